"""The block matrix of the step: factor, solve, multiply. Body and constraint blocks only, never dense."""

import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float
from ..constraints.assemble import Rows, scatter
from ..constraints.axes import rates
from ..math import block_sparse
from ..math.block_sparse import Store, sums, take
from ..math.product import matvec
from ..system import System


def blocks(system: System, rows: Rows) -> Store:
    """Blocks of the step matrix by (row node, column node).

    What is implicit on an axis, sum kappa b^T b, is a row more in the node of its joint, kappa b v - m = 0 with the
    impulse -b^T m: the bodies that it couples then meet in that node only, and kappa may be zero.
    """
    nb = system.num_bodies
    out = Store()
    out.put([(i, i) for i in range(nb)], rows.D)
    if system.node_rows:
        of_axes, scaled = _axis_blocks(system, rows)
        upper = -jnp.swapaxes(rows.G + of_axes, 1, 2)
        diagonal = rows.sigma[:, :, None] * jnp.eye(system.width, dtype=rows.D.dtype)
        out.put([(nb + node, nb + node) for node in range(len(system.node_rows))], diagonal)
        out.put([(nb + node, body) for node, body in system.edges], rows.G + scaled)
        out.put([(body, nb + node) for node, body in system.edges], upper)
    return out


def _axis_blocks(system: System, rows: Rows) -> tuple[Float[Array, "edges rows 6"], Float[Array, "edges rows 6"]]:
    """b and kappa b of the axes of every edge's joint, in the rows that the joint leaves free."""
    count = len(system.axes)
    index = np.full((len(system.edges), system.width), 2 * count)
    for edge, (node, body) in enumerate(system.edges):
        for row, axis in system.rows_of_axes[node] if node < len(system.joints) else ():
            index[edge, row] = axis + count * (body == system.ends(axis)[1])
    none = jnp.zeros((1, 6), dtype=rows.D.dtype)
    b = jnp.concatenate([rows.b_A, rows.b_B])
    scaled = jnp.concatenate([rows.kappa, rows.kappa])[:, None] * b
    return jnp.concatenate([b, none])[index], jnp.concatenate([scaled, none])[index]


def factor(system: System, rows: Rows) -> block_sparse.Factor:
    """Block LU of the step matrix."""
    return block_sparse.factor(system.pattern, blocks(system, rows))


def solve(
    system: System, lu: block_sparse.Factor, p: Float[Array, "bodies 6 c"], a: Float[Array, "nodes rows c"]
) -> tuple[Float[Array, "bodies 6 c"], Float[Array, "nodes rows c"]]:
    """(v, lam) with K (v, lam) = (p, a), several right-hand sides at once."""
    nb = system.num_bodies
    x, bodies, nodes = Store(), [(i,) for i in range(nb)], [(nb + i,) for i in range(len(system.node_rows))]
    x.put(bodies, p)
    x.put(nodes, a)
    lu.solve(x)
    return x.get(bodies), jnp.where(system.filled[:, :, None], x.get(nodes), 0.0) if nodes else a


def friction_columns(system: System, rows: Rows) -> Float[Array, "bodies 6 friction"]:
    """b^T of the dry-friction axes, stacked over bodies."""
    return axis_columns(system, rows, system.friction_axes)


def axis_columns(system: System, rows: Rows, which: tuple[int, ...]) -> Float[Array, "bodies 6 which"]:
    """b^T of some axes, stacked over bodies."""
    values = jnp.concatenate([rows.b_A, rows.b_B, jnp.zeros((1, 6), dtype=rows.D.dtype)])
    count = len(system.axes)
    index = np.full((system.num_bodies, len(which)), 2 * count)
    for column, i in enumerate(which):
        parent, child = system.ends(i)
        index[child, column] = count + i
        if parent >= 0:
            index[parent, column] = i
    return jnp.swapaxes(values[index], 1, 2)


def balance(
    system: System,
    rows: Rows,
    v: Float[Array, "bodies 6"],
    lam: Float[Array, "nodes rows"],
    x: Float[Array, " friction"],
) -> Float[Array, "bodies 6"]:
    """Left side of the balance of impulses: D v + kappa terms - G^T lam - b^T F x + p."""
    out = matvec(rows.D, v) + rows.p
    if system.axes:
        amount = rows.kappa * rates(system, rows.b_A, rows.b_B, v)
        if system.friction_axes:
            amount = amount - spread(system, rows.bound * x)
        out = out + scatter(system, rows.b_A, rows.b_B, amount)
    if system.edges:
        pushes = matvec(jnp.swapaxes(rows.G, 1, 2), take(lam, [node for node, _ in system.edges]))
        out = out - sums(pushes, system.edges_of_body)
    return out


def spread(system: System, amount: Float[Array, " friction"]) -> Float[Array, " axes"]:
    """Numbers of the dry-friction axes among those of all axes, the others zero."""
    if len(system.friction_axes) == len(system.axes):
        return amount
    number = {axis: i for i, axis in enumerate(system.friction_axes)}
    return sums(amount, [[number[i]] if i in number else [] for i in range(len(system.axes))])


def gaps(system: System, rows: Rows, v: Float[Array, "bodies 6"]) -> Float[Array, "nodes rows"]:
    """G v + a of every constraint node."""
    if not system.edges:
        return rows.a
    return rows.a + sums(matvec(rows.G, take(v, [body for _, body in system.edges])), system.edges_of_node)


def friction_rates(system: System, rows: Rows, v: Float[Array, "bodies 6"]) -> Float[Array, " friction"]:
    """b v of the dry-friction axes [rad/s or m/s]."""
    return take(rates(system, rows.b_A, rows.b_B, v), system.friction_axes)
