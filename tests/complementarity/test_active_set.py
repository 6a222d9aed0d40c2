"""Which rows are free, and the solve on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from complementarity.problems import as_problem
from jax.test_util import check_grads

from spookax.complementarity import active_set, active_set_solve, free_rows


def test_free_means_that_y_lies_between_the_bounds_and_ties_count():
    #                 inside  lower  upper  tie    tie   equal bounds, with w = 0 and not
    x = jnp.asarray([0.3, -1.0, 1.0, -1.0, 1.0, 0.5, 0.5])
    w = jnp.asarray([0.0, 0.1, -0.1, 0.0, 0.0, 0.0, 0.1])
    lower = jnp.asarray([-1.0, -1.0, -1.0, -1.0, -1.0, 0.5, 0.5])
    upper = jnp.asarray([1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5])
    free = active_set(x, w, jnp.full(7, 2.0), lower, upper)
    assert free.tolist() == [True, False, False, True, True, False, False]
    assert active_set(x, w, jnp.full(7, 2.0), lower, upper, tie=0.06).tolist() == [True] * 5 + [False] * 2


def test_ties_survive_rounding(rng):
    """q made so that every row is on its upper bound with w = 0, but for one unit in the last place of q."""
    N = rng.normal(size=(8, 8))
    N = N @ N.T + np.eye(8)
    for ulp in (np.inf, -np.inf):
        problem = as_problem(N, np.nextafter(-N @ np.ones(8), ulp), -np.ones(8), np.ones(8))
        assert jnp.all(free_rows(problem, jnp.ones(8)))


@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("pivot", [True, False])
def test_solve_on_the_free_rows(n, pivot, rng):
    A = rng.normal(size=(n, n))
    N, free, rhs = (
        jnp.asarray(A @ A.T + np.eye(n)),
        jnp.arange(n) % 2 == 0,
        jnp.asarray(rng.normal(size=(n, 3))),
    )
    x = active_set_solve(N, free, rhs, pivot=pivot)
    np.testing.assert_allclose((N @ x)[free], rhs[free], rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(x[~free], rhs[~free])
    np.testing.assert_allclose(active_set_solve(N, free, rhs[:, 0], pivot=pivot), x[:, 0], rtol=1e-12)


def test_a_saddle_matrix(rng):
    """Zero and negative diagonal entries, as in a bordered system."""
    M, A = np.diag(rng.uniform(1, 2, 4)), rng.normal(size=(2, 4))
    K = jnp.asarray(np.block([[M, -A.T], [A, np.zeros((2, 2))]]))
    rhs = jnp.asarray(rng.normal(size=6))
    np.testing.assert_allclose(active_set_solve(K, jnp.ones(6, bool), rhs), np.linalg.solve(K, rhs), rtol=1e-10)


def test_units_do_not_matter(rng):
    """Rows scaled by powers of two give the same digits."""
    A = rng.normal(size=(5, 5))
    N, rhs = jnp.asarray(A @ A.T), jnp.asarray(rng.normal(size=5))
    D, free = jnp.asarray(2.0 ** rng.integers(-30, 30, 5)), jnp.arange(5) < 4
    x = active_set_solve(N, free, rhs)
    scaled = active_set_solve(N / (D[:, None] * D[None, :]), free, jnp.where(free, rhs / D, rhs * D))
    np.testing.assert_array_equal(scaled / D, x)


def test_derivatives(rng):
    A = rng.normal(size=(4, 4))
    at = jnp.asarray(A @ A.T + np.eye(4)), jnp.asarray(rng.normal(size=4))
    solve = jax.jit(lambda N, rhs: active_set_solve(N, jnp.asarray([True, False, True, True]), rhs))
    check_grads(solve, at, order=2, modes=("fwd", "rev"), rtol=1e-3, atol=1e-4)


def test_singular_rows_give_finite_numbers():
    x, gradient = jax.value_and_grad(lambda N: active_set_solve(N, jnp.ones(3, bool), jnp.arange(3.0)).sum())(
        jnp.ones((3, 3))
    )
    assert jnp.isfinite(x)
    assert jnp.isfinite(gradient).all()
    assert jnp.isfinite(active_set_solve(jnp.zeros((2, 2)), jnp.ones(2, bool), jnp.ones(2))).all()
