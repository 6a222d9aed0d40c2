"""Many rows with bounds without a dense matrix: the active set is pivoted, and every trial is one sparse solve.

A free row, rate b v + slack x + offset = 0, is a viscous friction F rate / slack on its axis, and one on a bound a
known impulse F x b^T: with a guessed set the step is a factorisation of the same block pattern. What contradicts the
guess is changed all at once, and one row at a time (the last) when that has not helped for a while.

**Source:** Kostreva (1978), block pivot methods for solving the complementarity problem; Júdice and Pires (1994), a
block principal pivoting algorithm for large-scale strictly monotone LCPs, with Murty's rule as the fallback.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from .._results import MLCP_RESULTS
from .._typing import Array, Bool, Float, Int
from ..constraints import Rows
from ..constraints.assemble import scatter
from ..math.block_sparse import Factor
from ..system import System
from . import saddle


class BlockPivoting(eqx.Module):
    """Solves the step's rows with bounds sparsely. Exact, linear in the bodies for every trial of an active set.

    **Arguments:**

    - `patience`: trials without fewer contradictions before rows are changed one by one.
    - `max_pivots`: largest number of trials; default 4 n + 50.
    """

    patience: int = eqx.field(default=10, static=True)
    max_pivots: int | None = eqx.field(default=None, static=True)


class Trial(NamedTuple):
    """The step for a guessed active set."""

    v: Float[Array, "bodies 6"]
    lam: Float[Array, "nodes rows"]
    y: Float[Array, " boxes"]  # x that would make w zero; beyond its bounds the row is on one


def on_set(
    system: System,
    rows: Rows,
    free: Bool[Array, " boxes"],
    x: Float[Array, " boxes"],
    pressed: Float[Array, "axes rows"] | None = None,
) -> tuple[Rows, Factor]:
    """The rows with what is free in kappa and p, and what is held (at `x`) in p; and their factor.

    `pressed`: as in `saddle.blocks`.
    """
    box = rows.box
    implicit = jnp.where(free, box.force * box.rate / box.slack, 0.0)
    given = box.force * jnp.where(free, -box.offset / box.slack, x)
    kappa = rows.kappa + saddle.spread(system, implicit)
    p = rows.p - scatter(system, rows.b_A, rows.b_B, saddle.spread(system, given))
    known = eqx.tree_at(lambda r: (r.kappa, r.p), rows, (kappa, p))
    return known, saddle.factor(system, known, pressed)


def pivot(
    system: System, solver: BlockPivoting, rows: Rows, guess: Float[Array, " boxes"]
) -> tuple[Trial, Bool[Array, " boxes"], MLCP_RESULTS, Int[Array, ""]]:
    """The step, which rows are free, how it ended, and the number of trials. Bearings push as `Box.force` says."""
    count, box = guess.shape[0], rows.box
    most = 4 * count + 50 if solver.max_pivots is None else solver.max_pivots
    rounding = 64 * jnp.finfo(guess.dtype).eps

    def at(side: Array) -> Array:
        return jnp.where(side < 0, box.lower, jnp.where(side > 0, box.upper, 0.0))

    def attempt(side: Array) -> tuple[Trial, Array]:
        """`side`: 0 free, -1 at the lower and 1 at the upper bound. The trial, and the sides that it asks for."""
        known, lu = on_set(system, rows, side == 0, at(side))
        v, lam = saddle.solve(system, lu, -known.p[..., None], -known.a[..., None])
        v, lam = v[..., 0], lam[..., 0]
        wrong = saddle.balance(system, known, v, lam, jnp.zeros_like(box.force))
        gap = saddle.gaps(system, known, v) + known.sigma * lam
        dv, dlam = saddle.solve(system, lu, wrong[..., None], gap[..., None])
        v, lam = v - dv[..., 0], lam - dlam[..., 0]
        left = saddle.box_rates(system, rows, v)
        y = -left / box.slack
        rough = rounding * (1 + (jnp.abs(left) + jnp.abs(box.offset)) / box.slack)
        leaves = jnp.where(y < box.lower - rough, -1.0, jnp.where(y > box.upper + rough, 1.0, 0.0))
        inward = jnp.where(side < 0, y > box.lower + rough, y < box.upper - rough)
        wanted = jnp.where(side == 0, leaves, jnp.where(inward, 0.0, side))
        return Trial(v, lam, y), jnp.where((box.force > 0) & (box.lower < box.upper), wanted, side)

    def go_on(carry):
        side, _, wanted, _, _, k = carry
        return jnp.any(wanted != side) & (k < most)

    def body(carry):
        side, trial, wanted, fewest, left, k = carry
        wrong = wanted != side
        number = jnp.sum(wrong)
        left = jnp.where(number < fewest, solver.patience, left - 1)
        last = jnp.arange(count) == jnp.max(jnp.where(wrong, jnp.arange(count), -1))
        side = jnp.where(jnp.where(left >= 0, wrong, last), wanted, side)
        trial, wanted = attempt(side)
        return side, trial, wanted, jnp.minimum(number, fewest), left, k + 1

    side = jnp.where(guess <= box.lower, -1.0, jnp.where(guess >= box.upper, 1.0, 0.0))
    start = (side, *attempt(side), jnp.array(count + 1), jnp.array(solver.patience), jnp.array(1))
    side, trial, wanted, _, _, k = jax.lax.while_loop(go_on, body, start)
    result = MLCP_RESULTS.where(jnp.any(wanted != side), MLCP_RESULTS.pivot_limit, MLCP_RESULTS.successful)
    y = jnp.where(side == 0, jnp.clip(trial.y, box.lower, box.upper), at(side))
    return trial._replace(y=y), side == 0, result, k
