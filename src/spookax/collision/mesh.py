"""Convex meshes with spheres. Every function takes the first and the second surface, see `touch`."""

import jax.numpy as jnp

from .._typing import Array
from ..math import rotation
from ..math.product import matvec


def sphere_mesh(A, B):
    """The point of the mesh nearest to the centre; for a centre inside, out of the nearest face.

    Where that is on an edge or a corner, the triangles that meet there have it in common. Which triangle and which part
    of it is nearest is no derivative.
    """
    q, radius = matvec(B.R.T, A.r - B.r), A.size[0]
    a, b, c = jnp.moveaxis(B.mesh.triangles, 1, 0)
    product = rotation.cross(b - a, c - a)
    normals = product / jnp.sqrt(jnp.sum(product * product, axis=-1))[:, None]
    height = jnp.sum((q - a) * normals, axis=-1)
    over = q - height[:, None] * normals
    edges = [(a, b), (b, c), (c, a)]
    inner = [jnp.sum(rotation.cross(end - start, over - start) * normals, axis=-1) >= 0 for start, end in edges]
    near = jnp.concatenate([over, *(_on_edge(q, start, end) for start, end in edges)])
    exists = jnp.concatenate([inner[0] & inner[1] & inner[2], jnp.ones(3 * len(height), dtype=bool)])
    away = q - near
    square = jnp.where(exists, jnp.sum(away * away, axis=-1), jnp.inf)
    d = away[jnp.argmin(square)]
    outside = (jnp.max(height) > 0) & (jnp.sum(d * d) > 0)
    distance = jnp.sqrt(jnp.where(outside, jnp.sum(d * d), 1.0))
    face = jnp.argmax(height)
    normal = jnp.where(outside, d / distance, normals[face])
    gap = jnp.where(outside, distance, height[face]) - radius
    point = q - normal * (radius + gap / 2)
    places = (B.r + matvec(B.R, point))[None], matvec(B.R, normal)[None], gap[None]
    return *places, jnp.ones(1, dtype=bool)


def _on_edge(q: Array, start: Array, end: Array) -> Array:
    """The points of edges (k, 3) that are nearest to q."""
    along = end - start
    part = jnp.sum((q - start) * along, axis=-1) / jnp.sum(along * along, axis=-1)
    return start + jnp.clip(part, 0.0, 1.0)[:, None] * along
