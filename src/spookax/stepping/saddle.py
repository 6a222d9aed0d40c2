"""The block matrix of the step: factor, solve, multiply. Body and constraint blocks only, never dense."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float
from ..constraints import bounded, contact_rows
from ..constraints.assemble import Rows, node_rates, scatter
from ..constraints.axes import rates
from ..constraints.contact_jacobian import Order, Sides, Slots
from ..math import block_sparse, dense
from ..math.blocks import Store, gathered, sums, take
from ..math.product import matmul, matvec
from ..system import System
from . import following

_UNROLLED = 8  # fronts of a factor whose solution is compiled twice, which saves a loop


class Touching(NamedTuple):
    """Contacts in the matrix: their Jacobian, and how fast their impulses fall with their rates [kg]."""

    J: Sides | Slots
    slope: Float[Array, "points rows rows"]


class Dense(NamedTuple):
    """Factors of the whole matrix, with the bodies in an order of their own."""

    factor: dense.Factor
    order: Order | None


def blocks(system: System, rows: Rows, slope: Array | None = None, touch: Touching | None = None) -> Store:
    """Blocks of the step matrix by (row node, column node).

    `slope`: what rows with bounds add to bodies by the impulses that they follow, see `following.slopes`.
    `touch`: what contacts add to the bodies, J^T slope J; those in slots, whose bodies are not known, are left out.

    What is implicit along a line, sum kappa b^T b, is a row more in the node of its joint (or of the user's row),
    kappa b v - m = 0 with the impulse -b^T m: the bodies that it couples then meet in that node only, and kappa may be
    zero.
    """
    nb = system.num_bodies
    out = Store()
    out.put([(i, i) for i in range(nb)], rows.D)
    if touch is not None and isinstance(touch.J, Sides):
        _touch(system, touch.J.J, touch.slope, out)
    if system.node_rows:
        of_lines, scaled = _line_blocks(system, rows)
        upper = -jnp.swapaxes(rows.G + of_lines, 1, 2)
        if slope is not None:
            upper = upper - following.blocks(system, rows, slope)
        diagonal = rows.sigma[:, :, None] * np.eye(system.width, dtype=rows.D.dtype)[None]
        out.put([(nb + node, nb + node) for node in range(len(system.node_rows))], diagonal)
        out.put([(nb + node, body) for node, body in system.edges], rows.G_ahead + scaled)
        out.put([(body, nb + node) for node, body in system.edges], upper)
    return out


def _touch(
    system: System, J: Float[Array, "sides rows 6"], slope: Float[Array, "points rows rows"], out: Store
) -> None:
    """Add J^T slope J: what acts on a body alone, and between two bodies."""
    sides = system.contacts.sides
    pulled = matmul(take(slope, [point for point, _ in sides]), J)
    out.add([(body, body) for _, body in sides], matmul(jnp.swapaxes(J, 1, 2), pulled))
    pairs = system.contacts.crossings
    if pairs:
        mine, other = take(jnp.swapaxes(J, 1, 2), [i for i, _ in pairs]), take(pulled, [j for _, j in pairs])
        out.add([(sides[i][1], sides[j][1]) for i, j in pairs], matmul(mine, other))


def _line_blocks(system: System, rows: Rows) -> tuple[Float[Array, "edges rows 6"], Float[Array, "edges rows 6"]]:
    """b and kappa b of the lines of every edge's node, in the rows that the node leaves free.

    Of two lines that `Rows.cross` couples, those of their principal directions.
    """
    if rows.cross is not None:
        rows = _turned(system, rows, rows.cross)
    count = 2 * len(system.axes) + len(system.own_sides)
    index = np.full((len(system.edges), system.width), count)
    for edge, (node, body) in enumerate(system.edges):
        for row, line in system.rows_of_lines[node]:
            if body in system.bodies_of(line):
                index[edge, row] = system.side(line, body)
    none = jnp.zeros((1, 6), dtype=rows.D.dtype)
    b = [rows.b_A, rows.b_B]
    on_axes = rows.kappa[: len(system.axes)] if system.own_lines else rows.kappa
    scaled = jnp.concatenate([on_axes, on_axes])[:, None] * jnp.concatenate(b)
    if not system.own_lines:
        return gathered(jnp.concatenate([*b, none]), index), gathered(jnp.concatenate([scaled, none]), index)
    own = take(rows.kappa, [len(system.axes) + line for line, _ in system.own_sides])[:, None] * rows.b_own_ahead
    every = [*b, rows.b_own, none], [scaled, own, none]
    return gathered(jnp.concatenate(every[0]), index), gathered(jnp.concatenate(every[1]), index)


def _turned(system: System, rows: Rows, cross: Float[Array, " discs"]) -> Rows:
    """The rows with the lines of discs turned such that nothing couples them: sum of kappa b^T b stays what it is."""
    i, j = np.array(system.box_lines)[np.array(system.discs)].T
    x, y = rows.kappa[i], rows.kappa[j]
    apart = (x != y) | (cross != 0)
    angle = jnp.arctan2(2 * cross, jnp.where(apart, x - y, 1.0)) / 2
    c, s = jnp.cos(angle), jnp.sin(angle)
    along, across = x * c * c + 2 * cross * c * s + y * s * s, x * s * s - 2 * cross * c * s + y * c * c
    kappa = rows.kappa.at[i].set(along, unique_indices=True).at[j].set(jnp.maximum(across, 0.0), unique_indices=True)

    def turned(b: Float[Array, "axes 6"]) -> Float[Array, "axes 6"]:
        first, second = b[i], b[j]
        b = b.at[i].set(c[:, None] * first + s[:, None] * second, unique_indices=True)
        return b.at[j].set(c[:, None] * second - s[:, None] * first, unique_indices=True)

    return eqx.tree_at(lambda r: (r.b_A, r.b_B, r.kappa), rows, (turned(rows.b_A), turned(rows.b_B), kappa))


def factor(system: System, rows: Rows) -> block_sparse.Factor:
    """Block LU of the step matrix, see `blocks`."""
    return block_sparse.factor(system.pattern, blocks(system, rows))


def factor_near(system: System, rows: Rows, slope: Array | None, touch: Touching | None) -> block_sparse.Factor | Dense:
    """LU of the step matrix near a solution, with its contacts and what levels follow, see `blocks`: by its blocks, or
    as one dense matrix where contacts are in slots."""
    if touch is None or isinstance(touch.J, Sides):
        return block_sparse.factor(system.pattern, blocks(system, rows, slope, touch))
    order = touch.J.order
    if order is not None:  # of free bodies
        rows = eqx.tree_at(lambda r: r.D, rows, gathered(rows.D, order.bodies))
    matrix = blocks(system, rows, slope, touch).dense(system.pattern.sizes)
    matrix = touch.J.added(system, matrix, touch.slope)
    return Dense(dense.factor(matrix, None if order is None else 6 * order.width), order)


def begin(system: System, rows: Rows) -> block_sparse.Begun:
    """What the factors for every kappa share: the bodies that are eliminated before any constraint."""
    plain = eqx.tree_at(lambda r: (r.kappa, r.sigma), rows, (jnp.ones_like(rows.kappa), jnp.zeros_like(rows.sigma)))
    levels = system.pattern.levels
    count = next((k for k, level in enumerate(levels) if max(level) >= system.num_bodies), len(levels))
    return block_sparse.begin(system.pattern, blocks(system, plain), count)


def finish(system: System, begun: block_sparse.Begun, rows: Rows) -> block_sparse.Factor:
    """Block LU of the step matrix: `factor(system, rows)`, from what was begun with any kappa."""
    index = np.full((len(system.node_rows), system.width), system.num_lines)
    for node, lines in enumerate(system.rows_of_lines):
        for row, line in lines:
            index[node, row] = line
    scale = gathered(jnp.append(rows.kappa, jnp.ones((), rows.kappa.dtype)), index)
    return begun.finish(system.num_bodies, scale, rows.sigma)


def solve(
    system: System,
    lu: block_sparse.Factor | Dense,
    p: Float[Array, "bodies 6 c"],
    a: Float[Array, "nodes rows c"],
) -> tuple[Float[Array, "bodies 6 c"], Float[Array, "nodes rows c"]]:
    """(v, lam) with K (v, lam) = (p, a), several right-hand sides at once."""
    nb = system.num_bodies
    if isinstance(lu, Dense):
        p = p if lu.order is None else gathered(p, lu.order.bodies)
        both = lu.factor.solve(jnp.concatenate([p.reshape(-1, p.shape[2]), a.reshape(-1, a.shape[2])]))
        v, lam = both[: 6 * nb].reshape(p.shape), both[6 * nb :].reshape(a.shape)
        v = v if lu.order is None else gathered(v, lu.order.place)
        return v, jnp.where(system.filled[:, :, None], lam, 0.0)
    x, bodies, nodes = Store(), [(i,) for i in range(nb)], [(nb + i,) for i in range(len(system.node_rows))]
    x.put(bodies, p)
    x.put(nodes, a)
    lu.solve(x)
    return x.get(bodies), jnp.where(system.filled[:, :, None], x.get(nodes), 0.0) if nodes else a


def corrected(
    system: System,
    lu: block_sparse.Factor | Dense,
    rows: Rows,
    v: Float[Array, "bodies 6"],
    lam: Float[Array, "nodes rows"],
    x: Float[Array, " boxes"] | None = None,
) -> tuple[Float[Array, "bodies 6"], Float[Array, "nodes rows"]]:
    """(v, lam) after one step of iterative refinement with these x: what is wrong in a gap is divided by Sigma in
    inverse dynamics. Without x as if there were no rows with bounds."""
    wrong, gap = balance(system, rows, v, lam, x), gaps(system, rows, v) + rows.sigma * lam
    dv, dlam = solve(system, lu, wrong[..., None], gap[..., None])
    return v - dv[..., 0], lam - dlam[..., 0]


def refined_solve(
    system: System, lu: block_sparse.Factor, rows: Rows
) -> tuple[Float[Array, "bodies 6"], Float[Array, "nodes rows"]]:
    """(v, lam) of rows without bounds, after one step of refinement."""
    if len(lu.fronts) <= _UNROLLED:
        v, lam = solve(system, lu, -rows.p[..., None], -rows.a[..., None])
        return corrected(system, lu, rows, v[..., 0], lam[..., 0])
    start = jnp.zeros_like(rows.p), jnp.zeros_like(rows.a)
    return jax.lax.fori_loop(0, 2, lambda _, now: corrected(system, lu, rows, now[0], now[1]), start)


def box_columns(system: System, rows: Rows, ahead: bool = False) -> Float[Array, "bodies 6 boxes"]:
    """b^T of the rows with bounds, stacked over bodies; `ahead`: of their rates, not of their forces."""
    return line_columns(system, rows, system.box_lines, ahead)


def line_columns(
    system: System, rows: Rows, which: tuple[int, ...], ahead: bool = False
) -> Float[Array, "bodies 6 which"]:
    """b^T of some lines, stacked over bodies; `ahead`: as in `box_columns`."""
    own = [rows.b_own_ahead if ahead else rows.b_own] if system.own_lines else []
    values = jnp.concatenate([rows.b_A, rows.b_B, *own, jnp.zeros((1, 6), dtype=rows.D.dtype)])
    index = np.full((system.num_bodies, len(which)), values.shape[0] - 1)
    for column, line in enumerate(which):
        for body in system.bodies_of(line):
            index[body, column] = system.side(line, body)
    return jnp.swapaxes(gathered(values, index), 1, 2)


def balance(
    system: System,
    rows: Rows,
    v: Float[Array, "bodies 6"],
    lam: Float[Array, "nodes rows"],
    x: Float[Array, " boxes"] | None,
) -> Float[Array, "bodies 6"]:
    """Left side of the balance of impulses: D v + kappa terms - G^T lam - b^T F x - J^T cone + p; without x none of
    these."""
    out = matvec(rows.D, v) + rows.p
    if rows.contacts is not None:
        touch = contact_rows.impulses(rows.contacts, contact_rows.rates(system, rows.contacts, v))
        out = out - contact_rows.pushes(system, rows.contacts, touch)
    if system.num_lines:
        amount = rows.kappa * line_rates(system, rows, v, ahead=True)
        if x is not None and system.boxes:
            amount = amount - spread(system, following.forces(system, rows, lam, x) * x)
        out = out + push(system, rows, amount)
    if system.edges:
        pushes = matvec(jnp.swapaxes(rows.G, 1, 2), take(lam, [node for node, _ in system.edges]))
        out = out - sums(pushes, system.edges_of_body)
    return out


def spread(system: System, amount: Float[Array, " boxes"]) -> Float[Array, " lines"]:
    """Sums of the numbers of rows with bounds along every line."""
    return amount if system.box_lines == tuple(range(system.num_lines)) else sums(amount, system.boxes_of_line)


def push(system: System, rows: Rows, amount: Float[Array, " lines"]) -> Float[Array, "bodies 6"]:
    """Impulses b^T amount on the bodies."""
    if not system.own_lines:
        return scatter(system, rows.b_A, rows.b_B, amount)
    on_axes, own = amount[: len(system.axes)], amount[len(system.axes) :]
    return scatter(system, rows.b_A, rows.b_B, on_axes) + bounded.pushes(system, rows.b_own, own)


def line_rates(system: System, rows: Rows, v: Float[Array, "bodies 6"], ahead: bool = False) -> Float[Array, " lines"]:
    """b v of every line; `ahead`: as in `box_columns`."""
    on_axes = rates(system, rows.b_A, rows.b_B, v)
    if not system.own_lines:
        return on_axes
    own = bounded.rates(system, rows.b_own_ahead if ahead else rows.b_own, v)
    return jnp.concatenate([on_axes, own])


def gaps(system: System, rows: Rows, v: Float[Array, "bodies 6"]) -> Float[Array, "nodes rows"]:
    """G_ahead v + a of every constraint node."""
    return rows.a + node_rates(system, rows.G_ahead, v) if system.edges else rows.a


def box_rates(system: System, rows: Rows, v: Float[Array, "bodies 6"]) -> Float[Array, " boxes"]:
    """`rate` b v + `offset` of the rows with bounds, w without its last term."""
    if not system.boxes:
        return rows.box.offset
    return rows.box.rate * take(line_rates(system, rows, v, ahead=True), system.box_lines) + rows.box.offset
