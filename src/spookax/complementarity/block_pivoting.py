"""Block pivoting: guess the active set, solve on it, change what contradicts the guess; and how that always ends."""

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._results import MLCP_RESULTS
from .active_set import refined_solve
from .mlcp import MLCP, AbstractMLCPSolver, Solution

Trial = TypeVar("Trial")
Sides = Float[Array, " n"]
"""Of every row: 0 free, -1 on its lower and 1 on its upper bound."""


def sides_of(x: Float[Array, " n"], lower: Float[Array, " n"], upper: Float[Array, " n"]) -> Sides:
    """The sides that an x is on."""
    return jnp.where(x <= lower, -1.0, jnp.where(x >= upper, 1.0, 0.0)).astype(x.dtype)


def bounds_of(side: Sides, lower: Float[Array, " n"], upper: Float[Array, " n"]) -> Float[Array, " n"]:
    """The bounds of the rows that are on one; zero for the others."""
    return jnp.where(side < 0, lower, jnp.where(side > 0, upper, 0.0))


def wanted_sides(
    side: Sides,
    y: Float[Array, " n"],
    lower: Float[Array, " n"],
    upper: Float[Array, " n"],
    tie: Float[Array, " n"],
    movable: Bool[Array, " n"],
) -> Sides:
    """The sides that a trial asks for: a free row is held whose y is outside, a held one is freed whose y is inside.

    **Arguments:**

    - `y`: x - w / diagonal, for any positive diagonal.
    - `tie`: what rounding can do to y; closer to its bound a row stays as it is.
    - `movable`: the other rows stay, too.
    """
    leaves = jnp.where(y < lower - tie, -1.0, jnp.where(y > upper + tie, 1.0, 0.0))
    inward = jnp.where(side < 0, y > lower + tie, y < upper - tie)
    wanted = jnp.where(side == 0, leaves, jnp.where(inward, 0.0, side))
    return jnp.where(movable, wanted, side).astype(side.dtype)


class BlockPivoting(AbstractMLCPSolver):
    """Solves on a guessed active set, and changes what contradicts the guess: all rows at once, and one at a time
    (the last) when that has not helped for a while.

    If N is a P-matrix (positive definite, symmetric or not) one at a time is Murty's rule, which ends: every set is
    tried at most once. It may take a number of trials that grows exponentially with the rows, though nothing like
    that is seen; the limit ends it before, and says so. Where N is only positive semidefinite nothing is guaranteed:
    N may be singular on the rows that a trial frees, and sets may repeat until the limit. Whatever ended the search,
    the natural residual of its result decides whether that is a solution.

    In a step the trials are sparse (`stepping.pivoting`), of the same rule, and N is never formed.

    **Arguments:**

    - `patience`: trials without fewer contradictions before rows are changed one by one.
    - `max_pivots`: largest number of trials; default 4 n + 50.
    - `tolerance`: largest natural residual of a solution; default as for `Lemke`. [-]

    ??? cite "Source"
        Kostreva (1978), block pivot methods for solving the complementarity problem; Júdice and Pires (1994), a block
        principal pivoting algorithm for large-scale strictly monotone LCPs, with Murty's rule as the fallback.
    """

    patience: int = eqx.field(default=10, static=True)
    max_pivots: int | None = eqx.field(default=None, static=True)
    tolerance: float | None = eqx.field(default=None, static=True)

    def search(
        self, attempt: Callable[[Sides, Bool[Array, ""]], tuple[Trial, Sides]], side: Sides
    ) -> tuple[Sides, Trial, Bool[Array, ""], Int[Array, ""]]:
        """The sides where the search ended, its last trial, whether that asks for no change, the number of trials.

        **Arguments:**

        - `attempt`: of some sides the trial, any arrays, and the sides that it asks for. With the flag it has to name
          all contradictions (that is what Murty's rule needs); without, a trial may leave out some, but not all.
        - `side`: of the first trial.
        """
        count = side.shape[0]
        most = 4 * count + 50 if self.max_pivots is None else self.max_pivots

        def go_on(carry):
            side, _, wanted, _, _, k = carry
            return (k == 0) | (jnp.any(wanted != side) & (k < most))

        def body(carry):
            side, _, wanted, fewest, left, k = carry
            wrong = wanted != side
            number = jnp.sum(wrong)
            left = jnp.where(number < fewest, self.patience, left - 1)
            last = jnp.arange(count) == jnp.max(jnp.where(wrong, jnp.arange(count), -1))
            side = jnp.where(jnp.where(left >= 0, wrong, last), wanted, side)
            trial, wanted = attempt(side, left < 0)
            return side, trial, wanted, jnp.where(k == 0, count + 1, jnp.minimum(number, fewest)), left, k + 1

        # the first trial is one of the loop, where nothing is wrong yet: it is compiled once
        none = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(attempt, side, jnp.array(False))[0])
        start = (side, none, side, jnp.array(count + 1), jnp.array(self.patience), jnp.array(0))
        side, trial, wanted, _, _, k = jax.lax.while_loop(go_on, body, start)
        return side, trial, jnp.all(wanted == side), k

    def solve(self, problem: MLCP, guess: Float[Array, " n"] | None = None) -> Solution:
        eps = float(jnp.finfo(problem.q.dtype).eps)
        tolerance = eps ** (2 / 3) if self.tolerance is None else self.tolerance
        lower, upper, diagonal = problem.lower, problem.upper, problem.diagonal()
        valid = problem.is_valid()
        start = -problem.q / diagonal if guess is None else guess
        start = jnp.where(jnp.isfinite(start), start, 0.0)

        def attempt(side: Array, _: Array) -> tuple[Array, Array]:
            x = refined_solve(problem, side == 0, bounds_of(side, lower, upper))
            y, tie = x - problem.slack(x) / diagonal, 64 * eps * problem.scale(x)
            return x, wanted_sides(side, y, lower, upper, tie, valid & (lower < upper))

        _, x, ended, trials = self.search(attempt, sides_of(start, lower, upper))
        x = jnp.clip(x, lower, upper)
        x = jnp.where(valid & jnp.all(jnp.isfinite(x)), x, 0.0)
        residual = problem.natural_residual(x)
        result = MLCP_RESULTS.where(ended, MLCP_RESULTS.residual_check_failed, MLCP_RESULTS.pivot_limit)
        result = MLCP_RESULTS.where(residual <= tolerance, MLCP_RESULTS.successful, result)
        result = MLCP_RESULTS.where(valid, result, MLCP_RESULTS.nonfinite_input)
        return Solution(x, problem.slack(x), result, trials, residual)
