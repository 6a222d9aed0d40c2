"""Capsules on cylinders, see `pair_kinds`.

Seven places, in the manner of `capsule`: both ends, the point of the axis that is nearest, the two points where it
passes the rim above a cap, and the two where it passes the ends of the side. None of them is chosen.
"""

import jax
import jax.numpy as jnp

from .._typing import Array, Bool, Float
from ..math.product import matmul, matvec
from .polyhedron import PARALLEL, ROUND
from .posed import Posed
from .rounded import out_of_cylinder

_HALVINGS = 40


def capsule_cylinder(A: Posed, B: Posed) -> tuple[Array, ...]:
    """All in the axes of the cylinder."""
    along, c, length = matvec(B.R.T, A.R[:, 2]), matvec(B.R.T, A.r - B.r), A.size[1]
    radius, height = B.size[0], B.size[1]
    s, between = _nearest(along, c, length, radius, height)
    q = c[None] + jnp.append(jnp.stack([length, -length]), s)[:, None] * along[None]
    normal, distance = jax.vmap(lambda at: out_of_cylinder(at, radius, height))(q)
    parts = [
        (q, normal, distance, jnp.append(jnp.ones(2, dtype=bool), between)),
        _over_cap(along, c, length, radius, height),
        _beside(along, c, length, radius, height),
    ]
    q, normal, distance, live = (jnp.concatenate(part) for part in zip(*parts, strict=True))
    gap = distance - A.size[0]
    point = q - normal * (A.size[0] + gap / 2)[:, None]
    return B.r[None] + matmul(point, B.R.T), matmul(normal, B.R.T), gap, live


def _nearest(along: Array, c: Array, length: Array, radius: Array, height: Array) -> tuple[Array, Bool[Array, ""]]:
    """Where the axis is nearest to the cylinder, and whether that is between its ends, at one place.

    The squared distance from what is convex is convex along the axis: its slope has one root, found by halving. The
    derivative is that of a step of Newton's method.
    """

    def slope(s: Array) -> Array:
        q = c + s * along
        normal, distance = out_of_cylinder(q, radius, height)
        return jnp.maximum(distance, 0.0) * jnp.sum(normal * along)

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        rises = slope(middle) > 0
        return jnp.where(rises, low, middle), jnp.where(rises, middle, high)

    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (-length, length))
    s = jax.lax.stop_gradient((low + high) / 2)
    _, rate = jax.jvp(slope, (s,), (jnp.ones_like(s),))
    rate = jax.lax.stop_gradient(rate)
    curved = rate > PARALLEL
    inside = (jnp.abs(s) < length * (1 - ROUND)) & curved
    q = jax.lax.stop_gradient(c + s * along)
    return s - slope(s) / jnp.where(curved, rate, 1.0), inside & (jnp.sum(q[:2] ** 2) > radius**2)


def _over_cap(along: Array, c: Array, length: Array, radius: Array, height: Array) -> tuple[Array, ...]:
    """Where the axis passes the rim, seen along z, and is beyond the cap."""
    square = jnp.sum(along[:2] ** 2)
    slanted = square > PARALLEL
    safe = jnp.where(slanted, square, 1.0)
    middle = -jnp.sum(along[:2] * c[:2]) / safe
    left = radius**2 - jnp.sum((c + middle * along)[:2] ** 2)
    crosses = slanted & (left > 0)
    half = jnp.sqrt(jnp.where(crosses, left, 1.0) / safe)
    s = middle + jnp.stack([half, -half])
    q = c[None] + s[:, None] * along[None]
    up = jnp.where(q[:, 2:] < 0, -1.0, 1.0) * jnp.array([[0.0, 0.0, 1.0]], dtype=q.dtype)
    distance = jnp.abs(q[:, 2]) - height
    return q, up, distance, crosses & (jnp.abs(s) < length) & (distance > 0)


def _beside(along: Array, c: Array, length: Array, radius: Array, height: Array) -> tuple[Array, ...]:
    """Where the axis passes the ends of the side, outside of it."""
    slanted = jnp.abs(along[2]) > ROUND
    s = (jnp.stack([height, -height]) - c[2]) / jnp.where(slanted, along[2], 1.0)
    reached = slanted & (jnp.abs(s) < length)
    q: Float[Array, "2 3"] = c[None] + jnp.where(reached, s, 0.0)[:, None] * along[None]
    flat = q * jnp.array([[1.0, 1.0, 0.0]], dtype=q.dtype)
    square = jnp.sum(flat * flat, axis=-1)
    off = square > radius**2
    away = jnp.sqrt(jnp.where(off, square, 1.0))
    return q, flat / away[:, None], away - radius, reached & off
