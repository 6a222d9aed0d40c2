"""The exact solver: the active set of the guess, then Lemke's method; never silence."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._results import MLCP_RESULTS
from ._pivoting import LIMIT, RAY, SOLVED, follow_path
from .active_set import active_set_solve, refined_solve
from .mlcp import MLCP, AbstractMLCPSolver, Solution
from .projected import projected_sweeps


def _covering_vectors(n: int) -> np.ndarray:
    """Two generic vectors in [0.5, 1.5]: the same ones at every call, but no two entries related."""
    return np.random.default_rng(20250209).uniform(0.5, 1.5, (n, 2)).T


class _Best(NamedTuple):
    """The best candidate so far."""

    x: Float[Array, " n"]
    residual: Float[Array, ""]

    def improve(self, problem: MLCP, x: Float[Array, " n"]) -> "_Best":
        x = jnp.clip(x, problem.lower, problem.upper)
        residual = problem.natural_residual(x)
        better = residual < self.residual  # false for NaN
        return _Best(jnp.where(better, x, self.x), jnp.where(better, residual, self.residual))


class Lemke(AbstractMLCPSolver):
    """Finds the solution to rounding whenever N is positive definite or a P-matrix, and usually for any N.

    1. Rounds of "solve on the guessed active set, correct the set". In a simulation the first round nearly
       always ends it: this is what a time step costs.
    2. Lemke's method with bounded variables (`_pivoting.py`), on a problem scaled to N_ii = 1, with a generic
       covering vector; then with another one. The pivoting only decides the active set: x is recomputed on it
       by one factorisation with refinement.
    3. Sweeps of projected Gauss-Seidel and the active set they end with.

    Every candidate has to pass a check of its natural residual, whatever its origin; if none does, the result
    names the reason and x is the best candidate.

    **Arguments:**

    - `tolerance`: largest natural residual of a solution. Default eps^(2/3): 4e-11 in float64, 2e-5 in
      float32. [-]
    - `smallest_pivot`: entries of a scaled column that count as zero. Default eps^(3/5): 4e-10, 7e-5. [-]
    - `max_pivots`: of each attempt; default 10 n + 10.
    - `rounds`: how often an active set is guessed before pivoting.
    - `sweeps`: of the last resort.

    ??? cite "Source"
        Cottle, Pang, Stone (1992), The Linear Complementarity Problem, section 4.4 (Lemke's method). As
        coded, bounded variables are treated as in the simplex method, so that n rows with two bounds need a
        tableau of n rows.
    """

    tolerance: float | None = eqx.field(default=None, static=True)
    smallest_pivot: float | None = eqx.field(default=None, static=True)
    max_pivots: int | None = eqx.field(default=None, static=True)
    rounds: int = eqx.field(default=3, static=True)
    sweeps: int = eqx.field(default=300, static=True)

    def solve(self, problem: MLCP, guess: Float[Array, " n"] | None = None) -> Solution:
        eps = float(jnp.finfo(problem.q.dtype).eps)
        tolerance = eps ** (2 / 3) if self.tolerance is None else self.tolerance
        valid = problem.is_valid()
        start = -problem.q / problem.diagonal() if guess is None else guess
        start = jnp.where(jnp.isfinite(start), start, 0.0)
        origin = jnp.clip(jnp.zeros_like(start), problem.lower, problem.upper)
        best = _Best(jnp.where(valid, origin, 0.0), jnp.asarray(jnp.inf, start.dtype))

        def more_rounds(carry):
            k, _, best = carry
            return valid & (k < self.rounds) & ~(best.residual <= min(tolerance, 64 * eps))

        def next_round(carry):
            k, y, best = carry
            x = _solve_on_set(problem, y)
            return k + 1, x - problem.slack(x) / problem.diagonal(), best.improve(problem, x)

        _, y, best = jax.lax.while_loop(more_rounds, next_round, (jnp.int32(0), start, best))

        none_yet = (best, jnp.int32(0), jnp.int32(SOLVED))
        best, pivots, status = jax.lax.cond(
            valid & ~(best.residual <= tolerance),
            lambda: self._attempts(problem, y, tolerance, *none_yet),
            lambda: none_yet,
        )
        result = MLCP_RESULTS.where(status == RAY, MLCP_RESULTS.secondary_ray, MLCP_RESULTS.residual_check_failed)
        result = MLCP_RESULTS.where(status == LIMIT, MLCP_RESULTS.pivot_limit, result)
        result = MLCP_RESULTS.where(best.residual <= tolerance, MLCP_RESULTS.successful, result)
        result = MLCP_RESULTS.where(valid, result, MLCP_RESULTS.nonfinite_input)
        return Solution(best.x, problem.slack(best.x), result, pivots, best.residual)

    def _attempts(
        self,
        problem: MLCP,
        y: Float[Array, " n"],
        tolerance: float,
        best: _Best,
        pivots: Array,
        status: Array,
    ) -> tuple[_Best, Int[Array, ""], Int[Array, ""]]:
        """Lemke's method with each covering vector, then sweeps, until a candidate passes."""
        n, eps = problem.q.shape[0], float(jnp.finfo(problem.q.dtype).eps)
        max_pivots = 10 * n + 10 if self.max_pivots is None else self.max_pivots
        smallest_pivot = eps**0.6 if self.smallest_pivot is None else self.smallest_pivot
        covering = jnp.asarray(_covering_vectors(n), problem.q.dtype)
        D = 1 / jnp.sqrt(problem.diagonal())
        scaled = MLCP(D[:, None] * problem.N * D[None, :], D * problem.q, problem.lower / D, problem.upper / D)
        at_upper = y - problem.lower > problem.upper - y

        def unsolved(attempt, best):
            return problem.is_valid() & (attempt <= len(covering)) & ~(best.residual <= tolerance)

        def next_attempt(carry):
            # Under vmap every lane comes along until the last one is done: those without need get 0 pivots
            # and sweeps.
            attempt, best, pivots, status = carry
            pivoting = unsolved(attempt, best) & (attempt < len(covering))
            d = covering[jnp.minimum(attempt, len(covering) - 1)]
            outcome = follow_path(scaled, d, at_upper, jnp.where(pivoting, max_pivots, 0), smallest_pivot)
            sweeps = jnp.where(unsolved(attempt, best) & ~pivoting, self.sweeps, 0).astype(pivots.dtype)
            x = projected_sweeps(problem, best.x, sweeps)
            free, bound = _set_of(problem, x - problem.slack(x) / problem.diagonal())
            free = jnp.where(pivoting, outcome.free, free)
            bound = jnp.where(pivoting, jnp.where(outcome.at_upper, problem.upper, problem.lower), bound)
            best = best.improve(problem, refined_solve(problem, free, bound))
            return (
                attempt + 1,
                best,
                pivots + outcome.pivots + sweeps,
                jnp.where(pivoting, outcome.status, status),
            )

        start = (jnp.int32(0), best, pivots, status)
        return jax.lax.while_loop(lambda carry: unsolved(*carry[:2]), next_attempt, start)[1:]


def _set_of(problem: MLCP, y: Float[Array, " n"]) -> tuple[Bool[Array, " n"], Float[Array, " n"]]:
    """Free rows, and the bound of the others, from y = x - w / diagonal (or from x alone)."""
    return (y > problem.lower) & (y < problem.upper), jnp.clip(y, problem.lower, problem.upper)


def _solve_on_set(problem: MLCP, y: Float[Array, " n"]) -> Float[Array, " n"]:
    free, bound = _set_of(problem, y)
    return active_set_solve(problem.N, free, jnp.where(free, -problem.q, bound), pivot=False)
