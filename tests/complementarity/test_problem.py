"""The problem as data: residual, ties, validity."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from complementarity.problems import as_problem

from spookax.complementarity import MLCP

INF = np.inf
#                N = 2: rows free, at the lower bound, at the upper bound, and free from both sides
BOX = as_problem(2 * np.eye(4), [-1.0, 3.0, -6.0, 4.0], [-1.0, -1.0, -1.0, -INF], [1.0, 1.0, 1.0, INF])
SOLUTION = jnp.asarray([0.5, -1.0, 1.0, -2.0])


def test_a_solution_has_no_residual():
    np.testing.assert_allclose(BOX.slack(SOLUTION), [0.0, 1.0, -4.0, 0.0])
    assert BOX.natural_residual(SOLUTION) == 0


@pytest.mark.parametrize(
    "wrong", [[0.5, -1, 1, -1.9], [1, -1, 1, -2], [0.5, 1, 1, -2], [0.5, -1, -1, -2], [0.5, -1.1, 1, -2]]
)
def test_anything_else_has_one(wrong):
    assert BOX.natural_residual(jnp.asarray(wrong, float)) > 0.01


def test_the_residual_is_the_natural_map_over_the_size_of_its_terms():
    # Row 4 with x = -1.9: w = 0.2, a move of 0.1 back to the solution; terms 1.9 + (3.8 + 4) / 2.
    x = SOLUTION.at[3].set(-1.9)
    np.testing.assert_allclose(BOX.natural_residual(x), 0.1 / 5.8, rtol=1e-12)


def test_a_giant_x_does_not_hide_its_error():
    """Nothing is solved where q is lost in the rounding of N x."""
    problem = as_problem([[1.0, 1.0], [1.0, 1.0]], [-1.0, -2.0], [-INF, -INF], [INF, INF])
    assert problem.natural_residual(jnp.asarray([1e20, -1e20])) > 1e-3


@pytest.mark.parametrize("n", [1, 4, 12])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e308])
def test_nan_and_infinity_are_no_solutions(bad, n, rng):
    """In a batch too, where the compiled maximum may skip a NaN."""
    free = np.full(n, np.inf)
    problem = as_problem(np.ones((n, n)) + np.eye(n), np.ones(n), -free, free)
    x = jnp.asarray(rng.normal(size=(n, n))).at[jnp.arange(n), jnp.arange(n)].set(bad)
    assert jnp.all(jax.jit(jax.vmap(problem.natural_residual))(x) > 1e-3)
    assert jnp.all(jax.jit(jax.vmap(problem.natural_residual))(jnp.full((n, n), bad)) > 1e-3)


def test_units_do_not_matter(rng):
    x = jnp.asarray(rng.normal(size=4))
    D, c = jnp.asarray(10 ** rng.uniform(-5, 5, 4)), 1e-7
    scaled = MLCP(c * BOX.N / (D[:, None] * D[None, :]), c * BOX.q / D, BOX.lower * D, BOX.upper * D)
    np.testing.assert_allclose(scaled.natural_residual(D * x), BOX.natural_residual(x), rtol=1e-12)
    np.testing.assert_allclose(scaled.degeneracy(D * x), BOX.degeneracy(x), rtol=1e-12)


def test_degeneracy_is_the_distance_to_a_tie():
    # Row 1 moves by 0.5 to its bound, terms 0.5 + (1 + 1) / 2; row 2 by w / 2 = 0.5, terms 1 + (2 + 3) / 2.
    np.testing.assert_allclose(BOX.degeneracy(SOLUTION), min(0.5 / 1.5, 0.5 / 3.5), rtol=1e-12)
    tie = eqx.tree_at(lambda p: p.q, BOX, BOX.q.at[1].set(2.0))  # x = -1 and w = 0
    assert tie.degeneracy(SOLUTION) == 0


def test_degeneracy_without_bounds_is_infinite():
    free = as_problem(np.eye(2), [1.0, 0.0], [-INF, 3.0], [INF, 3.0])
    assert free.degeneracy(jnp.asarray([-1.0, 3.0])) == jnp.inf


@pytest.mark.parametrize(
    ("field", "value"),
    [(field, np.nan) for field in ("N", "q", "lower", "upper")]
    + [("N", INF), ("q", -INF), ("lower", INF), ("upper", -INF), ("lower", 2.0)],
)
def test_nonsense_is_not_valid(field, value):
    assert BOX.is_valid()
    array = getattr(BOX, field)
    assert not eqx.tree_at(lambda p: getattr(p, field), BOX, array.at[(0,) * array.ndim].set(value)).is_valid()
