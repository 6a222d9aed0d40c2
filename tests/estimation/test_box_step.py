"""The step of the parameters between their bounds: least squares on the host, and the package's own MLCP solver."""

import jax
import jax.numpy as jnp
import numpy as np

from spookax.complementarity import MLCP, solve_mlcp
from spookax.estimation.batch.bounded_step import box_step

SIZE, DAMPING = 6, 1e-7


def test_it_is_the_solution_of_the_complementarity_problem(rng):
    solve = jax.jit(lambda *problem: solve_mlcp(MLCP(*problem)).x)
    at_bounds = 0
    for _ in range(30):
        rows = rng.normal(size=(9, SIZE)) * 10 ** rng.uniform(-4, 0, SIZE)
        N, g = rows.T @ rows, rng.normal(size=SIZE) * 10 ** rng.uniform(-6, 3)
        lower, upper = -rng.uniform(size=SIZE) * 10 ** rng.uniform(-3, 0), rng.uniform(size=SIZE)
        lower[rng.random(SIZE) < 0.2] = 0.0  # a parameter at its bound
        found = box_step(N, g, lower, upper, DAMPING)
        damped = N + DAMPING * np.diag(np.diagonal(N))
        D = 1 / np.sqrt(np.diagonal(N))
        scaled = solve(*map(jnp.asarray, (D[:, None] * damped * D, -D * g, lower / D, upper / D)))
        np.testing.assert_allclose(found, D * scaled, atol=1e-9)
        at_bounds += np.sum((found == lower) | (found == upper))
    assert 30 < at_bounds < 30 * SIZE - 30  # both kinds are there


def test_what_is_held_stays_and_the_others_know():
    N = np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
    g, low, high = np.array([1.0, 1.0, 0.0]), np.array([-1.0, 0.25, -1.0]), np.array([1.0, 0.25, 1.0])
    # the second is given, and nothing speaks about the third
    np.testing.assert_allclose(box_step(N, g, low, high, 1e-12), [(1 - 0.25) / 2, 0.25, 0.0], atol=1e-9)
    np.testing.assert_array_equal(box_step(N, g, high, high, 1e-9), high)


def test_what_is_not_finite_is_no_step():
    one = np.ones(1)
    assert np.isnan(box_step(np.full((1, 1), np.nan), one, -one, one, 1e-9)).all()
    assert box_step(np.zeros((0, 0)), np.zeros(0), np.zeros(0), np.zeros(0), 1e-9).shape == (0,)
