"""The only place that differentiates a model: all steps of a recording at once.

    dx+ = A dx + B dw + C dz,      e = H dx + J dw + D dz + n,   n ~ N(0, 1)

in tangent coordinates; e are the readings minus the predicted ones, whitened, zero where nothing was seen. Readings
may depend on the pair (x, x+); the dependence on x+ is carried through the step, so H, J and D are total.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._results import STEP_RESULTS
from .._typing import AnyArray, Array, Float
from ..protocol import AbstractModel, CarriedPoses, FreeDirections, HeldNoise, Noise, Samples
from ..protocol.asked import carried, replayed

_CHUNK = 32  # steps differentiated at once: small enough for the cache of one core


class Directions(NamedTuple):
    """Of states (leading axis), see `protocol.FreeDirections`."""

    along: Float[Array, "states n r"]
    read: Float[Array, "states r n"]


class Linearised(NamedTuple):
    """Jacobians of every step (leading axis) and the whitened residuals. dx has the coordinates of the directions of
    the state at which a step begins, where the model has such, else those of its tangents.
    """

    A: Float[Array, "steps n n"]
    B: Float[Array, "steps n m"]
    C: Float[Array, "steps n p"]
    H: Float[Array, "steps c n"]
    J: Float[Array, "steps c m"]
    D: Float[Array, "steps c p"]
    e: Float[Array, "steps c"]
    directions: Directions | None = None


class Path(NamedTuple):
    """A trajectory of the simulator: states x_0 ... x_K; whitened noise, guesses and results of the K steps."""

    x: Any
    w: Float[AnyArray, "steps m"]
    guess: Float[AnyArray, "steps h"]
    result: STEP_RESULTS  # of every step


def all_successful(steps: int) -> STEP_RESULTS:
    """The results of the steps of a path that no simulator has run."""
    return jax.tree.map(lambda a: np.full(steps, a), STEP_RESULTS.successful)


def before(x: Any) -> Any:
    """States at the start of every step."""
    return jax.tree.map(lambda a: a[:-1], x)


def after(x: Any) -> Any:
    """States at the end of every step."""
    return jax.tree.map(lambda a: a[1:], x)


def whitened(model: AbstractModel, noise: Noise, predicted: Array, y: Array, weight: Array) -> Float[Array, " c"]:
    """Whitened residuals of the slots of one step, flattened; zero where nothing was seen."""
    e = jax.vmap(model.difference)(jnp.where(weight > 0, y, 0.0), jnp.where(weight > 0, predicted, 0.0))
    return (weight * e / noise.sensor[None]).reshape(-1)


def residuals(model: AbstractModel, z: Array, noise: Noise, path: Path, samples: Samples) -> Float[Array, "steps c"]:
    """Whitened readings minus predictions along a trajectory."""
    p = model.prepare(z)

    def one(x, x1, y, s, weight):
        predicted = jax.vmap(lambda s: model.observe(x, x1, p, s))(s)
        return whitened(model, noise, predicted, y, weight)

    return jax.vmap(one)(before(path.x), after(path.x), samples.y, samples.s, samples.weight)


class StepRows(NamedTuple):
    """Jacobians of what a step determines, for a mechanism its velocities (all but the carried rows): the
    last rows of A, B and C, and the answer to a further impulse where the model takes one (`protocol.HeldNoise`). With
    directions rows are their coordinates, columns of A not yet.
    """

    A: Float[Array, "steps half n"]
    B: Float[Array, "steps half m"]
    C: Float[Array, "steps half p"]
    push: Float[Array, "steps half m"] | None


def directions(model: AbstractModel, z: Array, x: Any) -> Directions | None:
    """Of states along which the estimator moves; None where it moves in all directions."""
    free = model.offers(FreeDirections)
    if free is None:
        return None
    p = model.prepare(z)
    return Directions(*chunked(lambda x: free.free_directions(x, p), x, jax.tree.leaves(x)[0].shape[0]))


def step_rows(
    model: AbstractModel, z: Array, noise: Noise, path: Path, samples: Samples, free: Directions | None = None
) -> StepRows:
    """Jacobians of the steps of a trajectory of the simulator, backwards from the velocities: they are few.

    `free`: `directions` of its states.
    """
    n, half, held = model.tangent_size, carried(model), model.offers(HeldNoise)
    push = () if held is None else (jnp.zeros(n - half, dtype=z.dtype),)

    def one(args):
        x, x1, u, w, guess, read = args

        def stepped(start: Array, w: Array, z: Array, *push: Array) -> Array:
            again = partial(replayed, model) if held is None else held.pushed
            return model.local(again(model.retract(x, start), model.prepare(z), u, w, noise, guess, *push), x1)[half:]

        A, B, C, *by_push = backwards(stepped, jnp.zeros(n, dtype=z.dtype), w, z, *push, rows=read)[1]
        return StepRows(A, B, C, by_push[0] if by_push else None)

    read = None if free is None else free.read[1:, carried_directions(model) :, half:]
    return chunked(one, (before(path.x), after(path.x), samples.u, path.w, path.guess, read), path.w.shape[0])


def carried_directions(model: AbstractModel) -> int:
    """How many components of dx, its first ones, follow from the rest: those of tangents, or of directions."""
    free = model.offers(FreeDirections)
    return carried(model) and (carried(model) if free is None else free.free_size[0])


def completed(
    model: AbstractModel,
    z: Array,
    noise: Noise,
    path: Path,
    samples: Samples,
    rows: StepRows,
    kept: Array | float = 0.0,
    free: Directions | None = None,
) -> Linearised:
    """The rest of `linearise`: poses and readings, by the chain rule."""
    n, half, first = model.tangent_size, carried(model), carried_directions(model)
    poses, noises = model.offers(CarriedPoses), model.offers(HeldNoise)

    def led(x: Any, at: Directions | None) -> Array | None:
        """How a state follows the surface that parameters move, its coordinates held; (n, p), None if none do."""
        surface = model.offers(FreeDirections)
        if at is None or surface is None or surface.led_rates(x, model.prepare(z)) is None:
            return None
        moved = jax.jacfwd(lambda z: surface.led_rates(x, model.prepare(z)))(z)
        off = moved - at.along[half:, first:] @ (at.read[first:, half:] @ moved)
        return jnp.concatenate([jnp.zeros((half, off.shape[1]), dtype=z.dtype), off])

    def one(args):
        x, x1, w, y, s, weight, (A, B, C, push), now, then = args
        still, zero = jnp.zeros(half, dtype=z.dtype), jnp.zeros(n, dtype=z.dtype)
        led_begin, led_end = led(x, now), led(x1, then)

        def pose(start: Array, rates: Array, z: Array) -> Array:
            assert poses is not None
            begin = model.retract(x, jnp.concatenate([start, zero[half:]]))
            return model.local(poses.carry(begin, poses.retract_rates(x1, rates), model.prepare(z)), x1)[:half]

        def read(start: Array, end: Array, dz: Array) -> Array:
            pair = model.retract(x, start), model.retract(x1, end)
            p = model.prepare(z + dz)
            predicted = jax.vmap(lambda s: model.observe(*pair, p, s))(s)
            return whitened(model, noise, predicted, y, weight)

        by_begin, by_rate, by_z, turned = 0.0, zero, 0.0, None
        if led_begin is not None:
            C = C + A @ led_begin
        if now is not None:
            A = A @ now.along
        if half:
            rows_of_poses = None if then is None else then.read[:first, :half]
            by_pose, by_rate, by_z = backwards(pose, still, zero[half:], z, rows=rows_of_poses)[1]
            if led_end is not None:
                by_z = by_z + by_rate @ led_end[half:]
            if now is not None and then is not None:
                by_pose = by_pose @ now.along[:half, :first]
                by_rate, turned = by_rate @ then.along[half:, first:], by_rate @ then.along[half:, :first]
            by_begin = jnp.concatenate([by_pose, jnp.zeros((first, A.shape[1] - first), dtype=z.dtype)], axis=1)

        def with_poses(moved: Array | float, rate: Array) -> Array:
            if not half:
                return rate
            moved = moved + by_rate @ rate
            if turned is not None:  # velocities that turn with the pose: of second order in the step
                moved = moved + turned @ moved
            return jnp.concatenate([moved, rate])

        A, B = with_poses(by_begin, A), with_poses(0.0, B)
        if noises is not None and push is not None:  # the noise's effect stays where its impulse follows the parameters
            needed, change = noises.needed, (B if then is None else then.along @ B)[half:] @ w
            answer = jax.jacfwd(lambda z: needed(x, x1, model.prepare(z), change))(z)
            C = C + kept * push @ answer
        C = with_poses(by_z, C)
        # and from the readings, through the step
        e, (by_start, by_end, by_z) = backwards(read, zero, zero, jnp.zeros_like(z))
        if led_begin is not None and led_end is not None:
            by_z = by_z + by_start @ led_begin + by_end @ led_end
        if now is not None and then is not None:
            by_start, by_end = by_start @ now.along, by_end @ then.along
        return Linearised(A, B, C, -by_start - by_end @ A, -by_end @ B, -by_z - by_end @ C, e)

    now, then = None if free is None else before(free), None if free is None else after(free)
    data = (before(path.x), after(path.x), path.w, samples.y, samples.s, samples.weight, rows, now, then)
    return chunked(one, data, path.w.shape[0])._replace(directions=now)


def linearise(
    model: AbstractModel, z: Array, noise: Noise, path: Path, samples: Samples, kept: Array | float = 0.0
) -> Linearised:
    """Jacobians along a trajectory of the simulator.

    `kept`: share of the noise's effect that stays while parameters change. With 1, C leaves out how they change what
    the noise does, (dB/dz) w; the model offers `protocol.HeldNoise`.
    """
    free = directions(model, z, path.x)
    return completed(model, z, noise, path, samples, step_rows(model, z, noise, path, samples, free), kept, free)


def backwards(
    function: Callable[..., Array], *args: Array, rows: Array | None = None
) -> tuple[Array, tuple[Array, ...]]:
    """Value and Jacobians in all arguments, by reverse mode; `rows`: those times the Jacobians."""
    value, back = jax.vjp(function, *args)
    return value, jax.vmap(back)(jnp.eye(value.shape[0], dtype=value.dtype) if rows is None else rows)


def chunked(function: Callable[[Any], Any], data: Any, count: int) -> Any:
    """`vmap` in chunks that fit the cache; one compiled body, so `count` should have a divisor up to 32."""
    size = max(d for d in range(1, min(_CHUNK, count) + 1) if count % d == 0)
    if size * 8 < _CHUNK:  # no useful divisor
        size = count
    split = jax.tree.map(lambda a: a.reshape(count // size, size, *a.shape[1:]), data)
    out = jax.lax.map(jax.vmap(function), split)
    return jax.tree.map(lambda a: a.reshape(count, *a.shape[2:]), out)
