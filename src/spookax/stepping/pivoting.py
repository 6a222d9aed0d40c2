"""Dry friction on many axes without a dense matrix: the active set is pivoted, and every trial is one sparse solve.

A row that sticks, b v + v_creep x = 0, is a viscous friction F / v_creep on its axis, and one that slips a known
impulse +-F b^T: with a guessed set the step is a factorisation of the same block pattern. What contradicts the guess is
changed all at once, and one row at a time (the last) when that has not helped for a while.

**Source:** Kostreva (1978), block pivot methods for solving the complementarity problem; Júdice and Pires (1994), a
block principal pivoting algorithm for large-scale strictly monotone LCPs, with Murty's rule as the fallback.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from .._results import MLCP_RESULTS
from .._typing import Array, Float, Int
from ..constraints import Rows
from ..constraints.assemble import scatter
from ..math.block_sparse import Factor
from ..system import System
from . import saddle


class BlockPivoting(eqx.Module):
    """Solves the step's friction rows sparsely. Exact, linear in the bodies for every trial of an active set.

    **Arguments:**

    - `patience`: trials without fewer contradictions before rows are changed one by one.
    - `max_pivots`: largest number of trials; default 4 n + 50.
    """

    patience: int = eqx.field(default=10, static=True)
    max_pivots: int | None = eqx.field(default=None, static=True)


class Trial(NamedTuple):
    """The step for a guessed active set: 0 sticks, +-1 slips with that level."""

    v: Float[Array, "bodies 6"]
    lam: Float[Array, "nodes rows"]
    y: Float[Array, " friction"]  # level that would make a row stick; beyond +-1 it slips


def on_set(system: System, rows: Rows, levels: Float[Array, " friction"]) -> tuple[Rows, Factor]:
    """The rows with friction as the set says, and their factor: what sticks is in kappa, what slips in p."""
    sticking = jnp.where(levels == 0, rows.bound / rows.creep, 0.0)
    slipping = scatter(system, rows.b_A, rows.b_B, saddle.spread(system, rows.bound * levels))
    kappa = rows.kappa + saddle.spread(system, sticking)
    known = eqx.tree_at(lambda r: (r.kappa, r.p), rows, (kappa, rows.p - slipping))
    return known, saddle.factor(system, known)


def pivot(
    system: System, solver: BlockPivoting, rows: Rows, guess: Float[Array, " friction"]
) -> tuple[Trial, Float[Array, " friction"], MLCP_RESULTS, Int[Array, ""]]:
    """The step and its active set, how it ended, and the number of trials."""
    count = guess.shape[0]
    most = 4 * count + 50 if solver.max_pivots is None else solver.max_pivots
    rounding = 64 * jnp.finfo(guess.dtype).eps

    def attempt(levels: Array) -> tuple[Trial, Array]:
        known, lu = on_set(system, rows, levels)
        v, lam = saddle.solve(system, lu, -known.p[..., None], -known.a[..., None])
        v, lam = v[..., 0], lam[..., 0]
        wrong = saddle.balance(system, known, v, lam, jnp.zeros_like(levels))
        gap = saddle.gaps(system, known, v) + known.sigma * lam
        dv, dlam = saddle.solve(system, lu, wrong[..., None], gap[..., None])
        v, lam = v - dv[..., 0], lam - dlam[..., 0]
        y = -saddle.friction_rates(system, rows, v) / rows.creep
        contradicts = jnp.where(levels == 0, jnp.abs(y) > 1 + rounding, y * levels < 1 - rounding)
        return Trial(v, lam, y), contradicts & (rows.bound > 0)

    def go_on(carry):
        _, _, wrong, _, _, k = carry
        return jnp.any(wrong) & (k < most)

    def body(carry):
        levels, trial, wrong, fewest, left, k = carry
        number = jnp.sum(wrong)
        better = number < fewest
        left = jnp.where(better, solver.patience, left - 1)
        last = jnp.arange(count) == jnp.max(jnp.where(wrong, jnp.arange(count), -1))
        change = jnp.where(left >= 0, wrong, last)
        levels = jnp.where(change, jnp.where(levels == 0, jnp.sign(trial.y), 0.0), levels)
        trial, wrong = attempt(levels)
        return levels, trial, wrong, jnp.minimum(number, fewest), left, k + 1

    levels = jnp.where(jnp.abs(guess) < 1, 0.0, jnp.sign(guess))
    start = (levels, *attempt(levels), jnp.array(count + 1), jnp.array(solver.patience), jnp.array(1))
    levels, trial, wrong, _, _, k = jax.lax.while_loop(go_on, body, start)
    result = MLCP_RESULTS.where(jnp.any(wrong), MLCP_RESULTS.pivot_limit, MLCP_RESULTS.successful)
    return trial, levels, result, k
