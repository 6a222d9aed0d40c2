"""Levels of rows with bounds that follow other impulses (`System.following`): their size, and what they add to a step.

The impulse of a row with bounds is F x with F = `Box.force` + sum growth |z|, z the impulses that it follows: rows of a
constraint node, or the user's rows with bounds in it.
"""

from collections.abc import Sequence

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
    system: System,
    rows: Rows,
    lam: Float[Array, "nodes rows"],
    x: Float[Array, " boxes"],
    shape: Float[Array, "discs 2 2"] | None = None,
) -> Float[Array, "affected rows"] | None:
    """How the impulses F x of rows grow with z, for every one of `affected`; None where nothing follows anything.

    `shape`: how x of the rows of discs (first axis) changes with their F (`discs.shapes`); without it x is kept.
    """
    if not system.following:
        return None
    entries, boxes = map(list, zip(*affected(system), strict=True))
    own = len(system.following)
    _, direction = sizes(followed(system, lam, rows.box.force, x))
    per_force = jnp.concatenate([x[np.array(boxes[:own])], jnp.zeros(len(boxes) - own, dtype=x.dtype)])
    place = {box: (d, k) for d, pair in enumerate(system.discs) for k, box in enumerate(pair)}
    if shape is not None and place:
        none = len(system.discs), 0  # an entry of zero behind those of the discs
        mine = np.array([place.get(box, none) for box in boxes])
        its = np.array([place.get(system.following[i].box, none) for i in entries])
        bent = jnp.concatenate([shape, jnp.zeros_like(shape[:1])])[mine[:, 0], mine[:, 1], its[:, 1]]
        per_force = per_force + forces(system, rows, lam, x)[np.array(boxes)] * bent
    return (take(rows.box.growth, entries) * per_force)[:, None] * take(direction, entries)


def affected(system: System) -> list[tuple[int, int]]:
    """(entry of `System.following`, row with bounds whose impulse it changes): its own row, in order; then the other
    row of its disc, whose ellipse gets another shape."""
    other = {a: b for pair in system.discs for a, b in (pair, pair[::-1])}
    own = [(i, f.box) for i, f in enumerate(system.following)]
    return own + [(i, other[box]) for i, box in own if box in other]


def changes(
    system: System,
    rows: Rows,
    at: tuple[Float[Array, "nodes rows"], Float[Array, " boxes"]],
    by: tuple[Float[Array, "nodes rows"], Float[Array, " boxes"]],
) -> Float[Array, " boxes"]:
    """Changes of the F that follow, where the impulses of joints and x of rows with bounds are `at` and change `by`."""
    _, direction = sizes(followed(system, at[0], rows.box.force, at[1]))
    along = jnp.sum(direction * followed(system, by[0], rows.box.force, by[1]), axis=-1)
    return _on_boxes(system, [f.box for f in system.following], rows.box.growth * along)


def grown(
    system: System, slope: Float[Array, "affected rows"], force: Float[Array, " boxes"], x: Float[Array, " boxes"]
) -> Float[Array, " boxes"]:
    """What impulses F x of rows with bounds add to those of the rows that follow them."""
    lam = jnp.zeros((len(system.node_rows), system.width), dtype=x.dtype)
    entries, boxes = map(list, zip(*affected(system), strict=True))
    by = jnp.sum(slope * take(followed(system, lam, force, x), entries), axis=-1)
    return _on_boxes(system, boxes, by)


def _on_boxes(system: System, boxes: Sequence[int], amount: Float[Array, " places"]) -> Float[Array, " boxes"]:
    """Sums of amounts at rows with bounds."""
    return sums(amount, [[n for n, at in enumerate(boxes) if at == box] for box in range(len(system.boxes))])


def follows_bounded(system: System) -> bool:
    """Whether any row follows one that has bounds itself."""
    return bool(np.any(_bounded(system) < len(system.boxes)))


def blocks(system: System, rows: Rows, slope: Float[Array, "affected rows"]) -> Float[Array, "edges 6 rows"]:
    """b^T slope for every edge: impulses on its body per impulse in its node. That of a row with bounds is what its
    line adds to the node, see `saddle.blocks`."""
    own = [rows.b_own] if system.own_lines else []
    sides, entry = [], []
    edges: list[list[int]] = [[] for _ in system.edges]
    for n, (i, box) in enumerate(affected(system)):
        line = system.box_lines[box]
        for body in system.bodies_of(line):
            edges[system.edges.index((system.following[i].node, body))].append(len(sides))
            sides.append(system.side(line, body))
            entry.append(n)
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
