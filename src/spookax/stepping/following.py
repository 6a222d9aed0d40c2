"""Levels of rows with bounds that follow other impulses (`System.following`): their size, and what they add to a step.

The impulse of a row with bounds is F x with F = `Box.force` + sum growth |z|, z the impulses that it follows: rows of a
constraint node, or the user's rows with bounds in it.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float
from ..constraints import Rows
from ..math.blocks import sums, take
from ..system import System


def forces(
    system: System, rows: Rows, lam: Float[Array, "nodes rows"], x: Float[Array, " boxes"]
) -> Float[Array, " boxes"]:
    """Impulse F of every row with bounds per x."""
    if not system.following:
        return rows.box.force
    size, _ = sizes(followed(system, lam, rows.box.force, x))
    return raised(system, rows.box.force, rows.box.growth * size)


def fixed(rows: Rows, force: Float[Array, " boxes"]) -> Rows:
    """The rows with these F, which follow nothing."""
    growth = np.zeros(rows.box.growth.shape, rows.box.growth.dtype)
    return eqx.tree_at(lambda r: (r.box.force, r.box.growth), rows, (force, growth))


def raised(system: System, force: Float[Array, " boxes"], by: Float[Array, " followed"]) -> Float[Array, " boxes"]:
    """F plus what every entry of `System.following` adds."""
    return force.at[_boxes(system)].add(by)


def followed(
    system: System, lam: Float[Array, "nodes rows"], force: Float[Array, " boxes"], x: Float[Array, " boxes"]
) -> Float[Array, "followed rows"]:
    """z of every entry of `System.following`, zero in other rows, of the impulses of nodes and of rows with bounds."""
    entries = system.following
    own = np.array([[row in f.rows and row < system.node_rows[f.node] for row in range(system.width)] for f in entries])
    z = jnp.where(own, take(lam, [f.node for f in entries]), 0.0)
    bounded = _bounded(system)
    if np.all(bounded == len(system.boxes)):
        return z
    return z + jnp.append(force * x, jnp.zeros((), x.dtype))[bounded]


def sizes(z: Float[Array, "followed rows"]) -> tuple[Float[Array, " followed"], Float[Array, "followed rows"]]:
    """|z| and the direction of z, zero where z is."""
    square = jnp.sum(z * z, axis=-1)
    size = jnp.sqrt(jnp.where(square > 0, square, 1.0))
    direction = jnp.where(square[:, None] > 0, z / size[:, None], 0.0)
    return jnp.where(square > 0, size, 0.0), direction


def slopes(
    system: System, rows: Rows, lam: Float[Array, "nodes rows"], x: Float[Array, " boxes"]
) -> Float[Array, "followed rows"] | None:
    """How the impulse F x of a row grows with z, x kept, for every entry of `System.following`; None without any."""
    if not system.following:
        return None
    _, direction = sizes(followed(system, lam, rows.box.force, x))
    return (rows.box.growth * x[_boxes(system)])[:, None] * direction


def grown(
    system: System, slope: Float[Array, "followed rows"], force: Float[Array, " boxes"], x: Float[Array, " boxes"]
) -> Float[Array, " boxes"]:
    """What impulses F x of rows with bounds add to those of the rows that follow them."""
    lam = jnp.zeros((len(system.node_rows), system.width), dtype=x.dtype)
    return raised(system, jnp.zeros_like(x), jnp.sum(slope * followed(system, lam, force, x), axis=-1))


def follows_bounded(system: System) -> bool:
    """Whether any row follows one that has bounds itself."""
    return bool(np.any(_bounded(system) < len(system.boxes)))


def blocks(system: System, rows: Rows, slope: Float[Array, "followed rows"]) -> Float[Array, "edges 6 rows"]:
    """b^T slope for every edge: impulses on its body per impulse in its node. That of a row with bounds is what its
    line adds to the node, see `saddle.blocks`."""
    own = [rows.b_own] if system.own_lines else []
    sides, entry = [], []
    edges: list[list[int]] = [[] for _ in system.edges]
    for i, f in enumerate(system.following):
        line = system.box_lines[f.box]
        for body in system.bodies_of(line):
            edges[system.edges.index((f.node, body))].append(len(sides))
            sides.append(system.side(line, body))
            entry.append(i)
    b = take(jnp.concatenate([rows.b_A, rows.b_B, *own]), sides)
    return sums(b[:, :, None] * take(slope, entry)[:, None, :], edges)


def _boxes(system: System) -> np.ndarray:
    return np.array([f.box for f in system.following])


def _bounded(system: System) -> np.ndarray:
    """For every entry of `System.following` and row the row with bounds that is there; their number where none is."""
    box_of = {(node, row): line for node, lines in enumerate(system.rows_of_lines) for row, line in lines}
    found = np.full((len(system.following), system.width), len(system.boxes))
    for i, f in enumerate(system.following):
        for row in f.rows:
            if row >= system.node_rows[f.node]:
                (found[i, row],) = system.boxes_of_line[box_of[f.node, row]]
    return found
