"""The exact solver: the active set of the guess, then Lemke's method; never silence."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._results import MLCP_RESULTS
from ._pivoting import LIMIT, RAY, SOLVED, follow_path
from .active_set import ActiveSetSystem, active_set_solve
from .problem import MLCP, AbstractMLCPSolver, Solution
from .projected import projected_sweeps

_ATTEMPTS = 3  # Lemke with the first and the second covering vector, projected Gauss-Seidel


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

    1. Rounds of "solve on the guessed active set, correct the set". In a simulation the first one nearly always ends
       it: this is what a time step costs.
    2. Lemke's method with bounded variables (`_pivoting.py`), on a problem scaled to N_ii = 1, with a generic covering
       vector; then with another one. The pivoting only decides the active set: x is recomputed on it by one
       factorisation with refinement.
    3. Sweeps of projected Gauss-Seidel and the active set they end with.

    Every candidate has to pass a check of its natural residual, whatever its origin; if none does, the result names
    the reason and x is the best candidate.

    **Arguments:**

    - `tolerance`: largest natural residual of a solution. Default eps^(2/3): 4e-11 in float64, 2e-5 in float32. [-]
    - `smallest_pivot`: entries of a scaled column that count as zero. Default eps^(3/5): 4e-10, 7e-5. [-]
    - `max_pivots`: of each attempt; default 10 n + 10.
    - `rounds`: how often an active set is guessed before pivoting.
    - `sweeps`: of the last resort.

    ??? cite "Source"
        Cottle, Pang, Stone (1992), The Linear Complementarity Problem, section 4.4 (Lemke's method). As coded, bounded
        variables are treated as in the simplex method, so that n rows with two bounds need a tableau of n rows.
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

        def more_attempts(carry):
            attempt, best, _, _ = carry
            return valid & (attempt < _ATTEMPTS) & ~(best.residual <= tolerance)

        def next_attempt(carry):
            attempt, best, pivots, status = carry
            x, more_pivots, new_status = self._attempt(problem, attempt, y, best.x)
            status = jnp.where(attempt < _ATTEMPTS - 1, new_status, status)
            return attempt + 1, best.improve(problem, x), pivots + more_pivots, status

        none_yet = (jnp.int32(0), best, jnp.int32(0), jnp.int32(SOLVED))
        _, best, pivots, status = jax.lax.while_loop(more_attempts, next_attempt, none_yet)

        result = MLCP_RESULTS.where(status == RAY, MLCP_RESULTS.secondary_ray, MLCP_RESULTS.residual_check_failed)
        result = MLCP_RESULTS.where(status == LIMIT, MLCP_RESULTS.pivot_limit, result)
        result = MLCP_RESULTS.where(best.residual <= tolerance, MLCP_RESULTS.successful, result)
        result = MLCP_RESULTS.where(valid, result, MLCP_RESULTS.nonfinite_input)
        return Solution(best.x, problem.slack(best.x), result, pivots, best.residual)

    def _attempt(
        self, problem: MLCP, attempt: Int[Array, ""], y: Float[Array, " n"], x: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Int[Array, ""], Int[Array, ""]]:
        """A candidate x, pivots or sweeps, status of the pivoting."""
        n = problem.q.shape[0]
        eps = float(jnp.finfo(problem.q.dtype).eps)

        def pivoting():
            D = 1 / jnp.sqrt(problem.diagonal())
            scaled = MLCP(
                D[:, None] * problem.N * D[None, :], D * problem.q, problem.lower / D, problem.upper / D
            )
            outcome = follow_path(
                scaled,
                jnp.asarray(_covering_vectors(n), problem.q.dtype)[attempt],
                y - problem.lower > problem.upper - y,
                10 * n + 10 if self.max_pivots is None else self.max_pivots,
                eps**0.6 if self.smallest_pivot is None else self.smallest_pivot,
            )
            bound = jnp.where(outcome.at_upper, problem.upper, problem.lower)
            return outcome.free, bound, outcome.pivots, outcome.status

        def sweeping():
            swept = projected_sweeps(problem, x, self.sweeps)
            free, bound = _set_of(problem, swept - problem.slack(swept) / problem.diagonal())
            return free, bound, jnp.int32(self.sweeps), jnp.int32(SOLVED)

        free, bound, pivots, status = jax.lax.cond(attempt < _ATTEMPTS - 1, pivoting, sweeping)
        return _refined_solve(problem, free, bound), pivots, status


def _set_of(problem: MLCP, y: Float[Array, " n"]) -> tuple[Bool[Array, " n"], Float[Array, " n"]]:
    """Free rows, and the bound of the others, from y = x - w / diagonal (or from x alone)."""
    return (y > problem.lower) & (y < problem.upper), jnp.clip(y, problem.lower, problem.upper)


def _solve_on_set(problem: MLCP, y: Float[Array, " n"]) -> Float[Array, " n"]:
    free, bound = _set_of(problem, y)
    return active_set_solve(problem.N, free, jnp.where(free, -problem.q, bound), pivot=False)


def _refined_solve(
    problem: MLCP, free: Bool[Array, " n"], bound: Float[Array, " n"]
) -> Float[Array, " n"]:
    """x on an active set, with two steps of iterative refinement."""
    system = ActiveSetSystem(problem.N, free)

    def correct(_, x):
        return x - system.solve(jnp.where(free, problem.slack(x), x - bound))

    return jax.lax.fori_loop(0, 3, correct, jnp.where(free, 0.0, bound))
