"""Spheres and capsules on each other, spheres on cylinders. Every function takes the first and the second surface, see
`kinds`."""

import jax.numpy as jnp

from .._typing import Array
from ..math.product import matvec

_PARALLEL = 1e-6  # squared sine of the angle between two axes below which they have no crossing


def between(p: Array, q: Array, radius_p: Array, radius_q: Array, otherwise: Array) -> tuple[Array, Array, Array]:
    """Place, normal from q to p and gap of two balls (k, 3); `otherwise`: the normal where their centres meet."""
    d = p - q
    square = jnp.sum(d * d, axis=-1)
    apart = square > 0
    distance = jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1.0)), 0.0)
    normal = jnp.where(apart[:, None], d / jnp.where(apart, distance, 1.0)[:, None], otherwise)
    gap = distance - radius_p - radius_q
    return q + normal * (radius_q + gap / 2)[:, None], normal, gap


def nearest_on_axis(p: Array, B) -> Array:
    """The points of a capsule's axis that are nearest to p (k, 3)."""
    along = jnp.clip(jnp.sum((p - B.r[None]) * B.R[None, :, 2], axis=-1), -B.size[1], B.size[1])
    return B.r[None] + along[:, None] * B.R[None, :, 2]


def sphere_sphere(A, B):
    """On the line of the centres."""
    found = between(A.r[None], B.r[None], A.size[0], B.size[0], B.R[None, :, 2])
    return *found, jnp.ones(1, dtype=bool)


def sphere_capsule(A, B):
    """On the line from the centre to the axis of the capsule."""
    q = nearest_on_axis(A.r[None], B)
    return *between(A.r[None], q, A.size[0], B.size[0], B.R[None, :, 0]), jnp.ones(1, dtype=bool)


def capsule_capsule(A, B):
    """The four ends, each against the other capsule, and the crossing of the axes where it is within both: none of them
    is chosen, so that nothing jumps where one takes over from another."""
    ends_A, ends_B = (X.r[None] + jnp.stack([X.R[:, 2], -X.R[:, 2]]) * X.size[1] for X in (A, B))
    a, b, d = A.R[:, 2], B.R[:, 2], B.r - A.r
    cos = jnp.sum(a * b)
    square = 1 - cos * cos
    crosses = square > _PARALLEL
    scale = 1 / jnp.where(crosses, square, 1.0)
    on_A = (jnp.sum(a * d) - cos * jnp.sum(b * d)) * scale
    on_B = (cos * jnp.sum(a * d) - jnp.sum(b * d)) * scale
    p = jnp.concatenate([ends_A, nearest_on_axis(ends_B, A), (A.r + on_A * a)[None]])
    q = jnp.concatenate([nearest_on_axis(ends_A, B), ends_B, (B.r + on_B * b)[None]])
    within = crosses & (jnp.abs(on_A) < A.size[1]) & (jnp.abs(on_B) < B.size[1])
    across = jnp.broadcast_to(B.R[:, 0], p.shape)
    return *between(p, q, A.size[0], B.size[0], across), jnp.concatenate([jnp.ones(4, dtype=bool), within[None]])


def sphere_cylinder(A, B):
    """The point of the cylinder nearest to the centre; for a centre inside, out of the nearer of rim and face."""
    q = matvec(B.R.T, A.r - B.r)
    local, distance = out_of_cylinder(q, B.size[0], B.size[1])
    normal, gap = matvec(B.R, local), distance - A.size[0]
    point = A.r - normal * (A.size[0] + gap / 2)
    return point[None], normal[None], gap[None], jnp.ones(1, dtype=bool)


def out_of_cylinder(q: Array, radius: Array, length: Array) -> tuple[Array, Array]:
    """Direction and distance from a cylinder along z to a point (3,), negative inside."""
    square = q[0] ** 2 + q[1] ** 2
    off = square > 0
    away = jnp.where(off, jnp.sqrt(jnp.where(off, square, 1.0)), 0.0)
    outward = jnp.where(off, q[:2] / jnp.where(off, away, 1.0), jnp.array([1.0, 0.0], dtype=q.dtype))
    side, top = away - radius, jnp.abs(q[2]) - length
    over, up = jnp.maximum(side, 0.0), jnp.maximum(top, 0.0)
    beyond = over * over + up * up
    outside = beyond > 0
    distance = jnp.sqrt(jnp.where(outside, beyond, 1.0))
    by_side = jnp.where(outside, over / distance, jnp.where(side > top, 1.0, 0.0))
    by_top = jnp.where(outside, up / distance, jnp.where(side > top, 0.0, 1.0))
    normal = jnp.append(by_side * outward, by_top * jnp.where(q[2] < 0, -1.0, 1.0))
    return normal, jnp.where(outside, distance, jnp.maximum(side, top))
