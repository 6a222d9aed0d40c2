"""The only place that differentiates a model: all steps of a recording at once.

    dx+ = A dx + B dw + C dz,      e = H dx + J dw + D dz + n,   n ~ N(0, 1)

in tangent coordinates; e are the readings minus the predicted ones, whitened, zero where nothing was seen. Readings
may depend on the pair (x, x+); the dependence on x+ is carried through the step, so H, J and D are total.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .._typing import Array, Float
from ..protocol import AbstractModel, Noise, Samples

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
    """A trajectory of the simulator: states x_0 ... x_K, whitened noise and hints of the K steps."""

    x: Any
    w: Float[Array, "steps m"]
    hint: Float[Array, "steps h"]


def before(x: Any) -> Any:
    """States at the start of every step."""
    return jax.tree.map(lambda a: a[:-1], x)


def after(x: Any) -> Any:
    """States at the end of every step."""
    return jax.tree.map(lambda a: a[1:], x)


def whitened(model: AbstractModel, noise: Noise, predicted: Array, y: Array, seen: Array) -> Float[Array, " c"]:
    """Whitened residuals of the slots of one step, flattened; zero where nothing was seen."""
    e = jax.vmap(model.difference)(jnp.where(seen > 0, y, 0.0), jnp.where(seen > 0, predicted, 0.0))
    return (seen * e / noise.sensor).reshape(-1)


def residuals(model: AbstractModel, z: Array, noise: Noise, path: Path, samples: Samples) -> Float[Array, "steps c"]:
    """Whitened readings minus predictions along a trajectory."""
    p = model.prepare(z)

    def one(x, x1, y, s, seen):
        predicted = jax.vmap(lambda s: model.observe(x, x1, p, s))(s)
        return whitened(model, noise, predicted, y, seen)

    return jax.vmap(one)(before(path.x), after(path.x), samples.y, samples.s, samples.seen)


def linearise(
    model: AbstractModel, z: Array, noise: Noise, path: Path, samples: Samples, steady: Array | float = 0.0
) -> Linearised:
    """Jacobians along a trajectory of the simulator.

    With `steady` = 1, C leaves out how the parameters change what the noise does, (dB/dz) w (`model.can_steady`).
    """
    n, m = model.tangent_size, model.noise_size
    half = n // 2

    def one(args):
        x, x1, u, w, hint, y, s, seen = args

        def posed(pose: Array) -> Array:
            start = model.retract(x, jnp.concatenate([pose, jnp.zeros(n - half, dtype=z.dtype)]))
            return model.local(model.replay(start, model.prepare(z), u, w, noise, hint), x1)

        def moved(rest: Array) -> Array:
            velocity, dw, dz = jnp.split(rest, (n - half, n - half + m))
            start, p = model.quicken(x, velocity), model.prepare(z + dz)
            if model.can_steady:
                return model.local(model.steadied(start, p, u, w + dw, noise, hint, jnp.asarray(steady)), x1)
            return model.local(model.replay(start, p, u, w + dw, noise, hint), x1)

        def read(start: Array, end: Array, dz: Array) -> Array:
            pair = model.retract(x, start), model.retract(x1, end)
            p = model.prepare(z + dz)
            predicted = jax.vmap(lambda s: model.observe(*pair, p, s))(s)
            return whitened(model, noise, predicted, y, seen)

        # in two parts: only the pose moves the geometry, which is most of the work
        rest = jnp.zeros(n - half + m + z.shape[0], dtype=z.dtype)
        by_pose, by_rest = jax.jacfwd(posed)(jnp.zeros(half, dtype=z.dtype)), jax.jacfwd(moved)(rest)
        step = jnp.concatenate([by_pose, by_rest], axis=1)
        A, B, C = jnp.split(step, (n, n + m), axis=1)
        # readings are few: backwards from them, and through the step by the chain rule
        zero = jnp.zeros(n, dtype=z.dtype), jnp.zeros(n, dtype=z.dtype), jnp.zeros_like(z)
        e, back = jax.vjp(read, *zero)
        by_start, by_end, by_z = jax.vmap(back)(jnp.eye(e.shape[0], dtype=e.dtype))
        return Linearised(A, B, C, -by_start - by_end @ A, -by_end @ B, -by_z - by_end @ C, e)

    data = (before(path.x), after(path.x), samples.u, path.w, path.hint, samples.y, samples.s, samples.seen)
    return chunked(one, data, path.w.shape[0])


def chunked(function: Callable[[Any], Any], data: Any, count: int) -> Any:
    """`vmap` in chunks that fit the cache; one compiled body, so `count` should have a divisor up to 32."""
    size = max(d for d in range(1, min(_CHUNK, count) + 1) if count % d == 0)
    if size * 8 < _CHUNK:  # no useful divisor
        size = count
    split = jax.tree.map(lambda a: a.reshape(count // size, size, *a.shape[1:]), data)
    out = jax.lax.map(jax.vmap(function), split)
    return jax.tree.map(lambda a: a.reshape(count, *a.shape[2:]), out)
