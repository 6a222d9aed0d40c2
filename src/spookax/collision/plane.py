"""Surfaces on a plane: their lowest points. Every function takes the surface and the plane, see `kinds`."""

import itertools

import jax.numpy as jnp
import numpy as np

from .._typing import Array
from ..math.product import matmul

STANDING = 0.1  # squared sine of the tilt below which a cylinder may stand on a rim
_CORNERS = np.array(list(itertools.product((-1.0, 1.0), repeat=3)))


def _above(A, B, points: Array) -> tuple[Array, Array, Array, Array]:
    """Points of a surface as places on the plane."""
    n = B.R[:, 2]
    gap = jnp.sum((points - B.r[None]) * n[None], axis=-1)
    return points, jnp.broadcast_to(n, points.shape), gap, jnp.ones(points.shape[:1], dtype=bool)


def sphere(A, B):
    """The lowest point."""
    return _above(A, B, (A.r - A.size[0] * B.R[:, 2])[None])


def capsule(A, B):
    """The lowest points of both ends."""
    ends = A.r[None] + jnp.stack([A.R[:, 2], -A.R[:, 2]]) * A.size[1]
    return _above(A, B, ends - A.size[0] * B.R[None, :, 2])


def box(A, B):
    """All corners: a choice among them could jump."""
    return _above(A, B, corners(A))


def corners(A) -> Array:
    """Of a box, in the world."""
    return A.r[None] + matmul(_CORNERS.astype(A.size.dtype) * A.size[None], A.R.T)


def mesh(A, B):
    """All vertices: a choice among them could jump."""
    points, normal, gap, _ = _above(A, B, A.r[None] + matmul(A.solid.vertices, A.R.T))
    return points, normal, gap, A.solid.is_vertex


def cylinder(A, B):
    """Points of both rims."""
    points, live = rims(A, B.R[:, 2])
    points, normal, gap, _ = _above(A, B, points)
    return points, normal, gap, live


def rims(A, n: Array) -> tuple[Array, Array]:
    """Of either rim four points that stay with the cylinder, on which it stands, and the lowest against the direction
    n, on which it rolls; and which of them count.

    One that rolls would stumble over those four.
    """
    along = A.R[:, 2]
    down = -(n - jnp.sum(n * along) * along)
    square = jnp.sum(down * down)
    tilted = square > jnp.finfo(square.dtype).eps
    lowest = jnp.where(tilted, down / jnp.sqrt(jnp.where(tilted, square, 1.0)), A.R[:, 0])
    fixed = jnp.stack([A.R[:, 0], A.R[:, 1], -A.R[:, 0], -A.R[:, 1]])
    rim = A.size[0] * jnp.concatenate([fixed, lowest[None]])
    ends = A.size[1] * along[None]
    live = jnp.array([False, False, False, False, True]) | (square < STANDING)
    return A.r[None] + jnp.concatenate([rim + ends, rim - ends]), jnp.concatenate([live, live])
