"""Which of many pairs of surfaces are near each other: their boxes along the axes of the world, or a box on a plane.

Nothing here has a derivative: whether a pair is near is a choice, and what is chosen too much does no harm.
"""

import jax.numpy as jnp
import numpy as np

from .._typing import Array, Bool, Float, Int
from ..math.blocks import gathered
from ..math.product import matmul, matvec
from .posed import Posed

Indices = Int[np.ndarray, " pairs"]


def half_widths(
    types: tuple[str, ...], posed: Posed, along: Float[Array, "surfaces directions 3"]
) -> Float[Array, "surfaces directions"]:
    """How far every surface reaches from its centre along some directions, which are unit vectors. [m]

    **Arguments:** `types`: of the surfaces; planes, which have no size, reach nowhere.
    """
    box, ball, disc = (np.array([kind == name for kind in types])[:, None] for name in ("box", "sphere", "cylinder"))
    local = matmul(along, posed.R)
    radius, length = posed.size[:, None, 0], posed.size[:, None, 1]
    across = jnp.sqrt(jnp.maximum(1 - local[..., 2] ** 2, 0.0))
    of_round = jnp.where(disc, across, 1.0) * radius + jnp.where(ball, 0.0, jnp.abs(local[..., 2]) * length)
    found = jnp.where(box, jnp.sum(jnp.abs(local) * posed.size[:, None], axis=-1), of_round)
    if posed.mesh is None:
        return found
    reach = jnp.max(jnp.abs(matmul(local, jnp.swapaxes(posed.mesh.vertices, 1, 2))), axis=-1)
    return jnp.where(np.array([kind == "mesh" for kind in types])[:, None], reach, found)


def apart(types: tuple[str, ...], posed: Posed, first: Indices, second: Indices) -> Float[Array, " pairs"]:
    """How far the boxes along the world's axes are apart, of pairs that are not of planes; less than the gap. [m]"""
    reach = half_widths(types, posed, jnp.broadcast_to(jnp.eye(3, dtype=posed.r.dtype), (len(types), 3, 3)))
    d = jnp.abs(gathered(posed.r, first) - gathered(posed.r, second))
    return jnp.max(d - gathered(reach, first) - gathered(reach, second), axis=-1)


def above(types: tuple[str, ...], posed: Posed, first: Indices, second: Indices) -> Float[Array, " pairs"]:
    """How high the first surfaces are above the second, which are planes. [m]"""
    n = gathered(posed.R, second)[..., 2]
    chosen = posed.of(jnp.asarray(first))
    reach = half_widths(tuple(types[i] for i in first), chosen, n[:, None])[:, 0]
    return jnp.sum(n * (chosen.r - gathered(posed.r, second)), axis=-1) - reach


def over(types: tuple[str, ...], posed: Posed, first: Indices, second: Indices) -> Float[Array, " pairs"]:
    """How far the first surfaces are beside or above the second, which are height fields; above the highest point, as
    steep as the steepest is. [m]"""
    A, B = posed.of(jnp.asarray(first)), posed.of(jnp.asarray(second))
    reach = half_widths(tuple(types[i] for i in first), A, jnp.swapaxes(B.R, 1, 2))
    q = matvec(jnp.swapaxes(B.R, 1, 2), A.r - B.r)
    z, cells = B.field.heights, B.field.cells.astype(q.dtype)
    highest = jnp.max(z, axis=(1, 2))
    rises = [jnp.max(jnp.abs(jnp.diff(z, axis=axis)), axis=(1, 2)) for axis in (2, 1)]
    slopes = gathered(jnp.stack(rises, axis=1), B.field.number) * cells / (2 * B.size[:, :2])
    up = q[:, 2] - gathered(highest, B.field.number) - reach[:, 2]
    up = jnp.where(up > 0, up / jnp.sqrt(1 + jnp.sum(slopes * slopes, axis=-1)), up)
    beside = jnp.abs(q[:, :2]) - B.size[:, :2] - reach[:, :2]
    return jnp.maximum(up, jnp.max(beside, axis=-1))


def slots(
    near: Bool[Array, " pairs"], count: int
) -> tuple[Int[Array, " slots"], Bool[Array, " slots"], Bool[Array, ""]]:
    """The numbers of the pairs that are near, in their order, for so many slots; which slots are filled; and whether
    there are too few. An empty slot has the number 0. There is no sort, which not every program has."""
    place = jnp.where(near, jnp.cumsum(near) - 1, count)
    number = jnp.zeros(count, dtype=int).at[place].set(np.arange(near.shape[0]), mode="drop")
    found = jnp.sum(near)
    return number, jnp.arange(count) < found, found > count
