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
    """Blocks of [D + sum kappa b^T b, -G^T; G, Sigma] by (row node, column node)."""
    nb, nodes = system.num_bodies, range(system.num_bodies, system.num_bodies + len(system.node_rows))
    out = Store()
    D = rows.D
    if system.axes:
        b = jnp.concatenate([rows.b_A, rows.b_B])
        scaled = jnp.concatenate([rows.kappa, rows.kappa])[:, None] * b
        D = D + sums(scaled[:, :, None] * b[:, None, :], system.axes_of_body)
        pairs = [(*system.ends(i), i) for i in range(len(system.axes)) if system.ends(i)[0] >= 0]
        if pairs:
            chosen = [i for _, _, i in pairs]
            cross = take(scaled[: len(system.axes)], chosen)[:, :, None] * take(rows.b_B, chosen)[:, None, :]
            out.add([(A, B) for A, B, _ in pairs], cross)
            out.add([(B, A) for A, B, _ in pairs], jnp.swapaxes(cross, 1, 2))
    out.put([(i, i) for i in range(nb)], D)
    if system.node_rows:
        out.put([(i, i) for i in nodes], rows.sigma[:, :, None] * jnp.eye(system.width, dtype=D.dtype))
        out.put([(nb + node, body) for node, body in system.edges], rows.G)
        out.put([(body, nb + node) for node, body in system.edges], -jnp.swapaxes(rows.G, 1, 2))
    return out


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
    return x.get(bodies), x.get(nodes) if nodes else a


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
