"""The triangles of a height field near a point: corners, faces, edges with the faces beside them.

Every cell of the grid is cut from its corner at low x and y to that at high x and y. All is in the axes of the
field. A window of cells around the point has a fixed number of each; what lies outside of the field does not exist.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Bool, Float, Int
from ..math import rotation
from .posed import Posed

_AROUND = ((1, 0), (1, 1), (0, 1), (-1, 0), (-1, -1), (0, -1))  # the ends of the edges of a corner, in order


class Window(NamedTuple):
    """What of a field is near: every face has a corner and its normal, every edge both ends and, of the face on either
    side, the corner that is not on it; every corner the ends of its six edges."""

    cell: Float[Array, " 2"]  # lengths of a cell [m]
    corner: Float[Array, "faces 3"]  # that with the right angle, seen from above
    sides: Float[np.ndarray, "faces 2"]  # signs of x and y towards the others
    normal: Float[Array, "faces 3"]
    is_face: Bool[Array, " faces"]
    ends: Float[Array, "edges 2 3"]
    beside: Float[Array, "edges 2 3"]
    has_face: Bool[Array, "edges 2"]
    peak: Float[Array, "corners 3"]
    spokes: Float[Array, "corners 6 3"]
    has_spoke: Bool[Array, "corners 6"]
    is_peak: Bool[Array, " corners"]


def cell_sizes(B: Posed) -> Float[Array, " 2"]:
    """Lengths of a cell along x and y. [m]"""
    return 2 * B.size[:2] / B.field.cells.astype(B.size.dtype)


def below(B: Posed, q: Float[Array, "k 3"]) -> tuple[Array, Array, Array]:
    """Of the triangles above or below some points: a corner, the normal, and whether there is one. Beyond the border
    that of the cell next to it."""
    cell, cells = cell_sizes(B), B.field.cells
    place = (q[:, :2] + B.size[None, :2]) / cell[None]
    number = jnp.clip(jnp.floor(jax.lax.stop_gradient(place)).astype(int), 0, cells[None] - 1)
    part = jax.lax.stop_gradient(place) - number.astype(q.dtype)
    left = (part[:, 1] > part[:, 0])[:, None]
    at = number + jnp.where(left, np.array([[0, 1]]), np.array([[1, 0]]))
    corner = _node(B, at)
    along_x, along_y = (_node(B, at + jnp.where(left, 1, -1) * np.array([unit])) for unit in ((1, 0), (0, -1)))
    slopes = [(end[:, 2] - corner[:, 2]) / (end[:, k] - corner[:, k]) for k, end in enumerate((along_x, along_y))]
    inside = jnp.all((place >= 0) & (place <= cells[None].astype(q.dtype)), axis=-1)
    return corner, _across(*slopes), inside


def _across(slope_x: Array, slope_y: Array) -> Array:
    n = jnp.stack([-slope_x, -slope_y, jnp.ones_like(slope_x)], axis=-1)
    return n / jnp.sqrt(jnp.sum(n * n, axis=-1))[..., None]


def _node(B: Posed, at: Int[Array, "*shape 2"]) -> Float[Array, "*shape 3"]:
    """Corners of the grid by their numbers along x and y; beyond the border as high as it."""
    cells, cell, half = (x.reshape((1,) * (at.ndim - 1) + (2,)) for x in (B.field.cells, cell_sizes(B), B.size[:2]))
    known = jnp.clip(at, 0, cells)
    z = B.field.heights[B.field.number, known[..., 1], known[..., 0]]
    xy = at.astype(z.dtype) * cell - half
    return jnp.concatenate([xy, z[..., None]], axis=-1)


def near(B: Posed, q: Float[Array, " 3"], reach: int) -> Window:
    """The window around a point, so many cells to every side of the one above or below it."""
    cell, cells, width = cell_sizes(B), B.field.cells, 2 * reach + 1
    place = jax.lax.stop_gradient((q[:2] + B.size[:2]) / cell)
    # a point far away sees nothing, and has numbers that can be counted
    start = jnp.clip(jnp.floor(place).astype(int), -width - 1, cells + 1) - reach
    number = start[None, None] + np.stack(np.meshgrid(*[np.arange(width + 1)] * 2, indexing="ij"), axis=-1)
    node = _node(B, number)  # (along x, along y, 3)
    known = jnp.all((number >= 0) & (number <= cells[None, None]), axis=-1)
    whole = jnp.all((number >= 0) & (number < cells[None, None]), axis=-1)[:-1, :-1]  # cells
    a, b, c, d = node[:-1, :-1], node[1:, :-1], node[:-1, 1:], node[1:, 1:]
    z = node[..., 2]
    right = _across((z[1:, :-1] - z[:-1, :-1]) / cell[0], (z[1:, 1:] - z[1:, :-1]) / cell[1])
    left = _across((z[1:, 1:] - z[:-1, 1:]) / cell[0], (z[:-1, 1:] - z[:-1, :-1]) / cell[1])

    def flat(x: Array) -> Array:
        return x.reshape(-1, *x.shape[2:])

    def both(first: Array, second: Array) -> Array:
        return jnp.concatenate([flat(first), flat(second)])

    def edges(p: Array, q: Array, first: Array, second: Array, exist: tuple[Array, Array]) -> tuple[Array, ...]:
        return flat(jnp.stack([p, q], 2)), flat(jnp.stack([first, second], 2)), flat(jnp.stack(exist, 2))

    along_x = edges(a[:, 1:], b[:, 1:], d[:, 1:], a[:, :-1], (whole[:, 1:], whole[:, :-1]))
    along_y = edges(a[1:], c[1:], d[1:], a[:-1], (whole[1:], whole[:-1]))
    across = edges(a, d, b, c, (whole, whole))
    ends, beside, has_face = (jnp.concatenate(parts) for parts in zip(along_x, along_y, across, strict=True))
    inner = slice(1, -1), slice(1, -1)
    shifts = [tuple(slice(1 + k, width + k) for k in step) for step in _AROUND]
    return Window(
        cell,
        both(b, c),
        np.repeat([[-1.0, 1.0], [1.0, -1.0]], width * width, axis=0),
        both(right, left),
        both(whole, whole),
        ends,
        beside,
        has_face,
        flat(node[inner]),
        flat(jnp.stack([node[shift] for shift in shifts], 2)),
        flat(jnp.stack([known[shift] for shift in shifts], 2)),
        flat(known[inner]),
    )


def inward(w: Window) -> tuple[Float[Array, "edges 2 3"], Float[Array, "edges 3"], Bool[Array, " edges"]]:
    """Of every edge: in the plane of the face on either side the direction into it, the mean normal, and whether bodies
    can touch it: the faces fall away from it, or it is of the border."""
    p, e = w.ends[:, 0], w.ends[:, 1] - w.ends[:, 0]
    arm = w.beside - p[:, None]
    along = jnp.sum(arm * e[:, None], axis=-1) / jnp.sum(e * e, axis=-1)[:, None]
    into = arm - along[..., None] * e[:, None]
    n = rotation.cross(jnp.broadcast_to(e[:, None], arm.shape), arm)
    n = n * jnp.where(n[..., 2:] < 0, -1.0, 1.0)
    n = n / jnp.sqrt(jnp.sum(n * n, axis=-1))[..., None]
    n = jnp.where(w.has_face[..., None], n, 0.0)
    falls = jax.lax.stop_gradient(jnp.sum(n[:, 0] * arm[:, 1], axis=-1)) < -tolerance(e) * jnp.min(w.cell)
    mean = jnp.sum(n, axis=1)
    has = w.has_face
    return into, mean, jnp.where(jnp.all(has, axis=1), falls, jnp.any(has, axis=1))


def tolerance(x: Array) -> float:
    """What is nothing beside 1."""
    return 100 * float(jnp.finfo(x.dtype).eps)
