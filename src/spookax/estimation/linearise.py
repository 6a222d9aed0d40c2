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
from ..protocol import AbstractModel, CarriedPoses, HeldNoise, Noise, Samples
from ..protocol.asked import carried, replayed

_CHUNK = 32  # steps differentiated at once: small enough for the cache of one core


class Linearised(NamedTuple):
    """Jacobians of every step (leading axis) and the whitened residuals."""

    A: Float[Array, "steps n n"]
    B: Float[Array, "steps n m"]
    C: Float[Array, "steps n p"]
    H: Float[Array, "steps c n"]
    J: Float[Array, "steps c m"]
    D: Float[Array, "steps c p"]
    e: Float[Array, "steps c"]


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
    last rows of A, B and C, and the answer to a further impulse where the model takes one (`protocol.HeldNoise`).
    """

    A: Float[Array, "steps half n"]
    B: Float[Array, "steps half m"]
    C: Float[Array, "steps half p"]
    push: Float[Array, "steps half half"] | None


def step_rows(model: AbstractModel, z: Array, noise: Noise, path: Path, samples: Samples) -> StepRows:
    """Jacobians of the steps of a trajectory of the simulator, backwards from the velocities: they are few."""
    n, half, held = model.tangent_size, carried(model), model.offers(HeldNoise)
    push = () if held is None else (jnp.zeros(n - half, dtype=z.dtype),)

    def one(args):
        x, x1, u, w, guess = args

        def stepped(start: Array, w: Array, z: Array, *push: Array) -> Array:
            again = partial(replayed, model) if held is None else held.pushed
            return model.local(again(model.retract(x, start), model.prepare(z), u, w, noise, guess, *push), x1)[half:]

        A, B, C, *by_push = backwards(stepped, jnp.zeros(n, dtype=z.dtype), w, z, *push)[1]
        return StepRows(A, B, C, by_push[0] if by_push else None)

    return chunked(one, (before(path.x), after(path.x), samples.u, path.w, path.guess), path.w.shape[0])


def completed(
    model: AbstractModel,
    z: Array,
    noise: Noise,
    path: Path,
    samples: Samples,
    rows: StepRows,
    kept: Array | float = 0.0,
) -> Linearised:
    """The rest of `linearise`: poses and readings, by the chain rule."""
    n, half = model.tangent_size, carried(model)
    poses, noises = model.offers(CarriedPoses), model.offers(HeldNoise)

    def one(args):
        x, x1, w, y, s, weight, (A, B, C, push) = args
        still, zero = jnp.zeros(half, dtype=z.dtype), jnp.zeros(n, dtype=z.dtype)

        def pose(start: Array, rates: Array, z: Array) -> Array:
            assert poses is not None
            begin = model.retract(x, jnp.concatenate([start, zero[half:]]))
            return model.local(poses.carry(begin, poses.retract_rates(x1, rates), model.prepare(z)), x1)[:half]

        def read(start: Array, end: Array, dz: Array) -> Array:
            pair = model.retract(x, start), model.retract(x1, end)
            p = model.prepare(z + dz)
            predicted = jax.vmap(lambda s: model.observe(*pair, p, s))(s)
            return whitened(model, noise, predicted, y, weight)

        if noises is not None and push is not None:  # the noise's effect stays where its impulse follows the parameters
            needed = noises.needed
            answer = jax.jacfwd(lambda z: needed(x, x1, model.prepare(z), B @ w))(z)
            C = C + kept * push @ answer
        if half:
            by_pose, by_rate, by_z = backwards(pose, still, zero[half:], z)[1]
            by_begin = jnp.concatenate([by_pose, zero[None, half:] * by_pose[:, :1]], axis=1)
            parts = ((by_begin, A), (0.0, B), (by_z, C))
            A, B, C = (jnp.concatenate([moved + by_rate @ rate, rate]) for moved, rate in parts)
        # and from the readings, through the step
        e, (by_start, by_end, by_z) = backwards(read, zero, zero, jnp.zeros_like(z))
        return Linearised(A, B, C, -by_start - by_end @ A, -by_end @ B, -by_z - by_end @ C, e)

    data = (before(path.x), after(path.x), path.w, samples.y, samples.s, samples.weight, rows)
    return chunked(one, data, path.w.shape[0])


def linearise(
    model: AbstractModel, z: Array, noise: Noise, path: Path, samples: Samples, kept: Array | float = 0.0
) -> Linearised:
    """Jacobians along a trajectory of the simulator.

    `kept`: share of the noise's effect that stays while parameters change. With 1, C leaves out how they change what
    the noise does, (dB/dz) w; the model offers `protocol.HeldNoise`.
    """
    return completed(model, z, noise, path, samples, step_rows(model, z, noise, path, samples), kept)


def backwards(function: Callable[..., Array], *args: Array) -> tuple[Array, tuple[Array, ...]]:
    """Value and Jacobians in all arguments, by reverse mode."""
    value, back = jax.vjp(function, *args)
    return value, jax.vmap(back)(jnp.eye(value.shape[0], dtype=value.dtype))


def chunked(function: Callable[[Any], Any], data: Any, count: int) -> Any:
    """`vmap` in chunks that fit the cache; one compiled body, so `count` should have a divisor up to 32."""
    size = max(d for d in range(1, min(_CHUNK, count) + 1) if count % d == 0)
    if size * 8 < _CHUNK:  # no useful divisor
        size = count
    split = jax.tree.map(lambda a: a.reshape(count // size, size, *a.shape[1:]), data)
    out = jax.lax.map(jax.vmap(function), split)
    return jax.tree.map(lambda a: a.reshape(count, *a.shape[2:]), out)
