"""Projected Gauss-Seidel: a fixed number of sweeps, for large batches that can do with a few digits."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._results import MLCP_RESULTS
from .mlcp import MLCP, AbstractMLCPSolver, Solution


def projected_sweeps(problem: MLCP, x: Float[Array, " n"], sweeps: Array | int) -> Float[Array, " n"]:
    """`sweeps` times, row after row: x_i <- clip(x_i - (N x + q)_i / N_ii, lower_i, upper_i)."""
    diagonal = problem.diagonal()

    def relax(i, x):
        x_i = x[i] - (problem.N[i] @ x + problem.q[i]) / diagonal[i]
        return x.at[i].set(jnp.clip(x_i, problem.lower[i], problem.upper[i]))

    def sweep(_, x):
        return jax.lax.fori_loop(0, x.shape[0], relax, x)

    return jax.lax.fori_loop(0, sweeps, sweep, x)


class ProjectedGaussSeidel(AbstractMLCPSolver):
    """Converges for symmetric positive semidefinite N, linearly, slowly if N is badly conditioned; every lane
    of a batch takes the same time. Non-symmetric N: converges if the diagonal dominates.

    **Arguments:**

    - `sweeps`: number of sweeps.
    - `tolerance`: largest natural residual that counts as successful. [-]
    """

    sweeps: int = eqx.field(default=50, static=True)
    tolerance: float = eqx.field(default=1e-6, static=True)

    def solve(self, problem: MLCP, guess: Float[Array, " n"] | None = None) -> Solution:
        start = jnp.zeros_like(problem.q) if guess is None else guess
        start = jnp.clip(jnp.where(jnp.isfinite(start), start, 0.0), problem.lower, problem.upper)
        valid = problem.is_valid()
        x = projected_sweeps(problem, start, self.sweeps)
        x = jnp.where(valid & jnp.all(jnp.isfinite(x)), x, 0.0)
        residual = problem.natural_residual(x)
        result = MLCP_RESULTS.where(
            residual <= self.tolerance, MLCP_RESULTS.successful, MLCP_RESULTS.residual_check_failed
        )
        result = MLCP_RESULTS.where(valid, result, MLCP_RESULTS.nonfinite_input)
        return Solution(x, problem.slack(x), result, jnp.asarray(self.sweeps, jnp.int32), residual)
