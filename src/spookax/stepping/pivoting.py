"""Many rows with bounds without a dense matrix: the trials of `BlockPivoting`, every one a sparse solve.

A free row, rate b v + slack x + offset = 0, is a viscous friction F rate / slack along its line, and one on a bound a
known impulse F x b^T: with a guessed set the step is a factorisation of the same block pattern. The trials share the
elimination of the bodies that come before any joint.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._results import MLCP_RESULTS
from .._typing import Array, Bool, Float, Int
from ..complementarity import BlockPivoting
from ..complementarity.block_pivoting import bounds_of, sides_of, wanted_sides
from ..constraints import Rows
from ..math.block_sparse import Begun, Factor
from ..system import System
from . import saddle


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
    slope: Float[Array, "discs 2 2"] | None = None,
) -> Rows:
    """The rows with what is free in kappa and p, and what is held (at `x`) in p.

    `slope`: of discs, how fast x grows with y (`discs`): what that adds to kappa; p is that of what is held.
    """
    box = rows.box
    implicit = jnp.where(free, box.force * box.rate / box.slack, 0.0)
    given = box.force * jnp.where(free, -box.offset / box.slack, x)
    kappa = rows.kappa + saddle.spread(system, implicit)
    p = rows.p - saddle.push(system, rows, saddle.spread(system, given))
    rows = eqx.tree_at(lambda r: (r.kappa, r.p), rows, (kappa, p))
    if slope is None or not system.discs:
        return rows
    pairs = np.array(system.discs)
    added = box.force[pairs][:, :, None] * slope / box.slack[pairs][:, None, :]
    lines = np.array(system.box_lines)[pairs]
    kappa = kappa.at[lines].add(jnp.diagonal(added, axis1=1, axis2=2))
    new = kappa, (added[:, 0, 1] + added[:, 1, 0]) / 2
    return eqx.tree_at(lambda r: (r.kappa, r.cross), rows, new, is_leaf=lambda a: a is None)


def repeated(system: System, rows: Rows, x: Float[Array, " boxes"]) -> tuple[Trial, Bool[Array, " boxes"], Factor]:
    """The step on the active set of an x that is known to solve it, which rows are free, and the factor of that set."""
    box = rows.box
    free = (x > box.lower) & (x < box.upper)
    known = on_set(system, rows, free, x)
    lu = saddle.factor(system, known)
    v, lam = jnp.zeros_like(rows.p), jnp.zeros_like(rows.a)
    for _ in range(2):
        v, lam = saddle.corrected(system, lu, known, v, lam)
    y = -saddle.box_rates(system, rows, v) / box.slack
    return Trial(v, lam, jnp.where(free, jnp.clip(y, box.lower, box.upper), x)), free, lu


def pivot(
    system: System, solver: BlockPivoting, rows: Rows, begun: Begun, guess: Float[Array, " boxes"]
) -> tuple[Trial, Bool[Array, " boxes"], MLCP_RESULTS, Int[Array, ""]]:
    """The step, which rows are free, how it ended, and the number of trials. Levels are those of `Box.force`.

    A trial is refined if it is to be exact or asks for no change. One that is not refined changes only what
    contradicts it by more than its rounding, so that at a tie it does not undo what a refined one asked for.

    **Arguments:**

    - `begun`: `saddle.begin(system, rows)`.
    """
    box, eps = rows.box, float(jnp.finfo(guess.dtype).eps)
    lower, upper = box.lower, box.upper

    def asked(side: Array, v: Array, lam: Array, rounding: Array) -> tuple[Trial, Array]:
        left = saddle.box_rates(system, rows, v)
        y = -left / box.slack
        tie = rounding * (1 + (jnp.abs(left) + jnp.abs(box.offset)) / box.slack)
        return Trial(v, lam, y), wanted_sides(side, y, lower, upper, tie, (box.force > 0) & (lower < upper))

    def attempt(side: Array, exact: Array) -> tuple[Trial, Array]:
        known = on_set(system, rows, side == 0, bounds_of(side, lower, upper))
        lu = saddle.finish(system, begun, known)

        def go_on(carry):
            _, wanted, k = carry
            return (k == 0) | ((k == 1) & (exact | jnp.all(wanted == side)))

        def body(carry):
            trial, _, k = carry
            v, lam = saddle.corrected(system, lu, known, trial.v, trial.lam)
            return *asked(side, v, lam, jnp.where(k == 0, eps**0.4, 64 * eps)), k + 1

        nothing = Trial(jnp.zeros_like(rows.p), jnp.zeros_like(rows.a), jnp.zeros_like(box.force))
        trial, wanted, _ = jax.lax.while_loop(go_on, body, (nothing, side, jnp.array(0)))
        return trial, wanted

    side, trial, ended, k = solver.search(attempt, sides_of(guess, lower, upper))
    result = MLCP_RESULTS.where(ended, MLCP_RESULTS.successful, MLCP_RESULTS.pivot_limit)
    y = jnp.where(side == 0, jnp.clip(trial.y, lower, upper), bounds_of(side, lower, upper))
    return trial._replace(y=y), side == 0, result, k
