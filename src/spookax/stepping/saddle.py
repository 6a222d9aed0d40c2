"""The block matrix of the step: factor, solve, multiply. Body and constraint blocks only, never dense."""

import jax.numpy as jnp

from .._typing import Array, Float
from ..constraints.assemble import Rows, node_bodies
from ..math import block_sparse
from ..math.product import matvec
from ..system import System


def blocks(system: System, rows: Rows) -> dict[tuple[int, int], Array]:
    """Blocks of [D + sum kappa b^T b, -G^T; G, Sigma] by (row node, column node)."""
    nb = system.num_bodies
    out: dict[tuple[int, int], Array] = {(i, i): rows.D[i] for i in range(nb)}
    for i, axis in enumerate(system.axes):
        joint = system.joints[axis.joint]
        sides = [(joint.parent, rows.b_A[i]), (joint.child, rows.b_B[i])]
        for body, b in sides:
            for other, c in sides:
                if body >= 0 and other >= 0:
                    term = rows.kappa[i] * b[:, None] * c[None, :]
                    out[body, other] = out[body, other] + term if (body, other) in out else term
    for node, bodies in enumerate(node_bodies(system)):
        out[nb + node, nb + node] = jnp.diag(rows.sigma[node])
        for body, jac in zip(bodies, rows.G[node], strict=True):
            out[nb + node, body] = jac
            out[body, nb + node] = -jac.T
    return out


def factor(system: System, rows: Rows) -> block_sparse.Factor:
    """Block LU of the step matrix."""
    return block_sparse.factor(system.pattern, blocks(system, rows))


def solve(
    system: System, lu: block_sparse.Factor, p: Float[Array, "bodies 6 c"], a: list[Float[Array, "rows c"]]
) -> tuple[Float[Array, "bodies 6 c"], tuple[Float[Array, "rows c"], ...]]:
    """(v, lam) with K (v, lam) = (p, a), several right-hand sides at once."""
    x = lu.solve([p[i] for i in range(system.num_bodies)] + list(a))
    return jnp.stack(x[: system.num_bodies]), tuple(x[system.num_bodies :])


def friction_columns(system: System, rows: Rows) -> Float[Array, "bodies 6 friction"]:
    """b^T of the dry-friction axes, stacked over bodies."""
    columns = []
    for i in system.friction_axes:
        joint = system.joints[system.axes[i].joint]
        column = jnp.zeros((system.num_bodies, 6), dtype=rows.D.dtype).at[joint.child].set(rows.b_B[i])
        if joint.parent >= 0:
            column = column.at[joint.parent].set(rows.b_A[i])
        columns.append(column)
    return jnp.stack(columns, axis=-1)


def balance(
    system: System, rows: Rows, v: Float[Array, "bodies 6"], lam: tuple[Array, ...], x: Float[Array, " friction"]
) -> Float[Array, "bodies 6"]:
    """Left side of the balance of impulses: D v + kappa terms - G^T lam - b^T F x + p."""
    out = matvec(rows.D, v) + rows.p
    parts = [out[i] for i in range(system.num_bodies)]
    dry = dict(zip(system.friction_axes, range(len(system.friction_axes)), strict=True))
    for i, axis in enumerate(system.axes):
        joint = system.joints[axis.joint]
        sides = [(b, row) for b, row in ((joint.parent, rows.b_A[i]), (joint.child, rows.b_B[i])) if b >= 0]
        amount = rows.kappa[i] * sum(jnp.sum(row * v[b]) for b, row in sides)
        if i in dry:
            amount = amount - rows.bound[dry[i]] * x[dry[i]]
        for b, row in sides:
            parts[b] = parts[b] + row * amount
    for node, bodies in enumerate(node_bodies(system)):
        for body, jac in zip(bodies, rows.G[node], strict=True):
            parts[body] = parts[body] - matvec(jac.T, lam[node])
    return jnp.stack(parts)


def gaps(system: System, rows: Rows, v: Float[Array, "bodies 6"]) -> tuple[Float[Array, " rows"], ...]:
    """G v + a of every constraint node."""
    return tuple(
        sum((matvec(jac, v[b]) for b, jac in zip(bodies, rows.G[node], strict=True)), rows.a[node])
        for node, bodies in enumerate(node_bodies(system))
    )


def friction_rates(system: System, rows: Rows, v: Float[Array, "bodies 6"]) -> Float[Array, " friction"]:
    """b v of the dry-friction axes [rad/s or m/s]."""
    columns = friction_columns(system, rows)
    return matvec(columns.reshape(-1, columns.shape[-1]).T, v.reshape(-1))
