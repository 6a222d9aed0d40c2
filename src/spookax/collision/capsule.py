"""Capsules with boxes and meshes. Every function takes the first and the second surface, see `kinds`.

Five places: both ends, the point of the axis that is nearest to an edge or a corner, and the two points where the axis
passes the sides of the face below it, on which a capsule lies that is longer than the face.
"""

import jax
import jax.numpy as jnp

from .._typing import Array, Bool, Float
from ..math import rotation
from ..math.product import matmul, matvec
from . import box, polyhedron
from .polyhedron import PARALLEL, ROUND
from .posed import Polyhedron, Posed, cube


def capsule_box(A: Posed, B: Posed) -> tuple[Array, ...]:
    """On a box."""
    along, c, length = _axis(A, B)
    t, within = _nearest_to_box(along, c, length, B.size)
    q = c[None] + jnp.append(jnp.stack([length, -length]), t)[:, None] * along[None]
    return _all(A, B, cube(B.size), box.balls(q, A.size[0], B), within)


def capsule_mesh(A: Posed, B: Posed) -> tuple[Array, ...]:
    """On a mesh."""
    along, c, length = _axis(A, B)
    t, within = _nearest_to_mesh(along, c, length, B.solid)
    q = c[None] + jnp.append(jnp.stack([length, -length]), t)[:, None] * along[None]
    return _all(A, B, B.solid, polyhedron.balls(q, A.size[0], B), within)


def _axis(A: Posed, B: Posed) -> tuple[Array, Array, Array]:
    """Direction, middle and half length of the axis of A, in the axes of B."""
    return matvec(B.R.T, A.R[:, 2]), matvec(B.R.T, A.r - B.r), A.size[1]


def _all(
    A: Posed, B: Posed, P: Polyhedron, nearest: tuple[Array, Array, Array], within: Bool[Array, ""]
) -> tuple[Array, ...]:
    """The places of balls at both ends and the nearest point, then those of what lies on a face."""
    q, normal, height, live = _lying(*_axis(A, B), P)
    gap = height - A.size[0]
    point = q - normal[None] * (A.size[0] + gap / 2)[:, None]
    lying = B.r[None] + matmul(point, B.R.T), jnp.broadcast_to(matvec(B.R, normal), q.shape), gap
    found = (jnp.concatenate(both) for both in zip(nearest, lying, strict=True))
    return *found, jnp.concatenate([jnp.ones(2, dtype=bool), within[None], live])


def _lying(
    along: Float[Array, " 3"], c: Float[Array, " 3"], length: Float[Array, ""], P: Polyhedron
) -> tuple[Array, Array, Array, Array]:
    """Where the axis passes the sides of the face above which it is highest: points, the normal of the face, heights,
    and whether these are points of the axis, outside or straight below that face."""
    ends = jnp.stack([c + length * along, c - length * along])
    heights = matmul(P.normals, ends.T) - jnp.sum(P.normals * P.facets[:, 0], axis=1)[:, None]
    f = jnp.argmax(jnp.min(jax.lax.stop_gradient(heights), axis=1))
    face, out = P.facets[f], P.normals[f]
    side = rotation.cross(jnp.roll(face, -1, axis=0) - face, jnp.broadcast_to(out, face.shape))
    beyond, slope = jnp.sum(side * (c[None] - face), axis=-1), matvec(side, along)
    slanted = jnp.abs(slope) > ROUND * jnp.sqrt(jnp.sum(jax.lax.stop_gradient(side) ** 2, axis=-1))
    t = -beyond / jnp.where(slanted, slope, 1.0)
    high = jnp.min(jnp.where(slanted & (slope > 0), t, jnp.inf))
    low = jnp.max(jnp.where(slanted & (slope < 0), t, -jnp.inf))
    over = (low < high) & ~jnp.any(~slanted & (beyond > 0))
    t = jnp.stack([low, high])
    exists = over & (jnp.abs(t) < length)
    q = c[None] + jnp.where(exists, t, 0.0)[:, None] * along[None]
    height = matmul(P.normals, q.T) - jnp.sum(P.normals * P.facets[:, 0], axis=1)[:, None]
    below = jnp.max(height, axis=0) <= ROUND
    return q, out, height[f], exists & ((height[f] >= 0) | below)


def _nearest_to_box(along: Array, c: Array, length: Array, size: Array) -> tuple[Array, Array]:
    """Where the axis is nearest to an edge or a corner of the box, and whether that is so between the ends.

    The squared distance from the box is convex along the axis, its slope piecewise linear, with corners where the axis
    passes the planes of the faces: between the two of them next to the root it is a straight line.
    """
    slanted = jnp.abs(along) > ROUND
    to_faces = (jnp.stack([size, -size]) - c[None]) / jnp.where(slanted, along, 1.0)[None]
    ends = jnp.stack([length, -length])
    t = jnp.concatenate([jnp.clip(jnp.where(slanted, to_faces, length), -length, length).reshape(-1), ends])

    def slope(t: Array) -> Array:
        q = c + t * along
        return jnp.sum((q - jnp.clip(q, -size, size)) * along)

    slopes = jax.vmap(slope)(t)
    falls, rises = slopes <= 0, slopes >= 0
    low, high = jnp.max(jnp.where(falls, t, -length)), jnp.min(jnp.where(rises, t, length))
    a, b = slope(low), slope(high)
    grows = b - a > 0
    middle = jnp.where(grows, low - a * (high - low) / jnp.where(grows, b - a, 1.0), (low + high) / 2)
    beyond = jnp.sum(jnp.abs(c + middle * along) > size)
    return middle, (jnp.abs(middle) < length) & (beyond != 1)  # what is nearest to a face lies on it


def _nearest_to_mesh(along: Array, c: Array, length: Array, P: Polyhedron) -> tuple[Array, Array]:
    """Where the axis is nearest to an edge or a corner of the mesh, and whether that is so between the ends.

    Nearest is a point of an edge or a corner from which no corner lies towards the axis. Which one is no derivative.
    """
    start, edge = P.edges[:, 0], P.edges[:, 1] - P.edges[:, 0]
    ee, ea = jnp.sum(edge * edge, axis=-1), matvec(edge, along)
    d = start - c[None]
    square = ee - ea * ea
    crosses = square > PARALLEL * ee
    part = (ea * matvec(d, along) - jnp.sum(edge * d, axis=-1)) / jnp.where(crosses, square, 1.0)
    crosses = crosses & (part > 0) & (part < 1)
    corners = jnp.concatenate([start + part[:, None] * edge, P.vertices])
    t = matvec(corners - c[None], along)
    away = c[None] + t[:, None] * along[None] - corners
    highest = jnp.max(matmul(away, P.vertices.T), axis=1)
    reached = highest <= jnp.sum(away * corners, axis=-1) + ROUND * jnp.sqrt(jnp.sum(away * away, axis=-1))
    valid = reached & (jnp.abs(t) < length) & jnp.concatenate([crosses, jnp.ones(len(P.vertices), dtype=bool)])
    nearest = jnp.argmin(jnp.where(valid, jnp.sum(away * away, axis=-1), jnp.inf))
    return jnp.where(valid[nearest], t[nearest], 0.0), valid[nearest]
