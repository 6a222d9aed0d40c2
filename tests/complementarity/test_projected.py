"""The solver of fixed cost."""

import jax
import jax.numpy as jnp
import numpy as np
from complementarity.problems import as_problem, p_matrices, random_bounds, violation

from spookax._results import MLCP_RESULTS
from spookax.complementarity import ProjectedGaussSeidel, solve_mlcp


def friction_like(rng, batch=200, n=6):
    N = p_matrices(rng, batch, n, skew=0.0, least=0.5)
    return N, 2 * rng.normal(size=(batch, n)), *random_bounds(rng, (batch, n))


def test_the_status_is_honest(rng):
    arrays = friction_like(rng)
    for sweeps in (1, 5, 20):
        solution = jax.vmap(lambda p, k=sweeps: solve_mlcp(p, ProjectedGaussSeidel(sweeps=k)))(as_problem(*arrays))
        good = np.asarray(solution.result == MLCP_RESULTS.successful)
        wrong = violation(*arrays, solution.x)
        assert wrong[good].max(initial=0) < 1e-5
        assert not good[wrong > 1e-3].any()
        assert jnp.all(solution.pivots == sweeps)
    assert good.any()


def test_a_divergent_sweep_is_said():
    """Not diagonally dominant, not symmetric: the sweeps grow."""
    problem = as_problem([[1.0, 9.0], [-9.0, 1.0]], [1.0, 1.0], [-np.inf] * 2, [np.inf] * 2)
    solution = solve_mlcp(problem, ProjectedGaussSeidel(sweeps=400))
    assert solution.result == MLCP_RESULTS.residual_check_failed
    assert jnp.isfinite(solution.x).all()
