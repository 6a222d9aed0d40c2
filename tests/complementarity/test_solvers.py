"""The same random problems through every solver: one solution, one derivative, and a status that is right."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from complementarity.problems import (
    EXACT,
    SOLVERS,
    as_problem,
    by_enumeration,
    degenerate,
    lcp,
    p_matrices,
    random_bounds,
    violation,
)

from spookax._results import MLCP_RESULTS
from spookax.complementarity import BlockPivoting, ProjectedGaussSeidel, solve_mlcp

ALL = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)


def batch(kind, rng):
    """N, q, lower, upper of 500 problems with 8 rows."""
    shape = 500, 8
    N, q = p_matrices(rng, *shape), 2 * rng.normal(size=shape)
    infinite = np.full(shape, np.inf)
    match kind:
        case "semidefinite":  # singular but for a thousandth, with ties
            N, *rest = degenerate(rng, *shape)
            return N + 1e-3 * N * np.eye(8), *rest
        case "symmetric":
            return p_matrices(rng, *shape, skew=0.0, least=0.5), q, *random_bounds(rng, shape)
        case "one-sided":
            return N, q, np.zeros(shape), infinite
        case "two-sided":
            return N, q, -np.ones(shape), np.ones(shape)
        case "fixed":
            return N, q, np.ones(shape), np.ones(shape)
        case "free":
            return N, q, -infinite, infinite
    return N, q, *random_bounds(rng, shape)


@functools.partial(jax.jit, static_argnums=0)
def _solve(solver, problem):

    def cost(problem):
        solution = solve_mlcp(problem, solver)
        return jnp.sum(solution.x), solution

    gradient, solution = jax.vmap(jax.grad(cost, has_aux=True))(problem)
    return solution, gradient


def solve(solver, problem):
    """Solutions of a batch, and the gradients of the sums of their x."""
    return jax.tree.map(np.asarray, _solve(solver, problem))


@functools.cache
def solved(solver, kind):
    """`solve` of a `batch`."""
    return solve(solver, as_problem(*batch(kind, np.random.default_rng(0))))


def only(solver, arrays):
    """The solution of a batch of one."""
    return jax.tree.map(lambda a: a[0], solve(solver, as_problem(*arrays))[0])


def successful(solution):
    return np.asarray(solution.result == MLCP_RESULTS.successful)


@ALL
@pytest.mark.parametrize("kind", ["mixed", "symmetric", "semidefinite", "one-sided", "two-sided", "fixed", "free"])
def test_the_solution_and_its_derivative(kind, solver, rng):
    """Positive definite N: those of the exact solver. Sweeps may fail, but not without saying so."""
    arrays = batch(kind, rng)
    (solution, gradient), (expected, expected_gradient) = (solved(s, kind) for s in (solver, EXACT))
    swept = isinstance(solver, ProjectedGaussSeidel)
    good = successful(solution)
    assert good.mean() > (0.999 if not swept else 0.5 if kind == "semidefinite" else 0.9)
    assert violation(*arrays, solution.x)[good].max() < (1e-5 if swept else 1e-9)
    assert np.isfinite(solution.x).all()
    if kind == "semidefinite":  # badly conditioned and in units from 1e-6 to 1e6: the conditions say enough
        return
    close = good & successful(expected) & np.asarray(solution.residual < 1e-14)
    assert close.mean() > 0.8
    np.testing.assert_allclose(solution.x[close], expected.x[close], rtol=1e-9, atol=1e-10)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected_gradient), strict=True):
        np.testing.assert_allclose(a[close], b[close], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("n", [2, 6, pytest.param(12, marks=pytest.mark.slow)])
def test_degenerate_problems_by_block_pivoting(n, rng):
    """Regularised by as little as 1e-8: solved, or refused. Never a wrong answer with a good status."""
    arrays = degenerate(rng, 4000, n)
    solution, _ = solve(BlockPivoting(), as_problem(*arrays))
    good = successful(solution)
    assert violation(*arrays, solution.x)[good].max() < 1e-9
    assert good.mean() > 0.995
    assert np.isfinite(solution.x).all()


@pytest.mark.parametrize("patience", [0, 10])
def test_trials_end_at_the_solution(patience, rng):
    """Also where rows are changed one at a time from the beginning, within 2^n trials."""
    N, q = p_matrices(rng, 1000, 5), 2 * rng.normal(size=(1000, 5))
    arrays = N, q, *random_bounds(rng, q.shape)
    solution, _ = solve(BlockPivoting(patience=patience), as_problem(*arrays))
    assert successful(solution).all()
    np.testing.assert_allclose(solution.x, by_enumeration(*arrays), rtol=1e-9, atol=1e-11)
    assert np.all(solution.pivots <= 2**5)


@pytest.mark.parametrize("n", [3, 7])
def test_one_row_at_a_time_ends_what_blocks_repeat(n):
    """Murty's P-matrix: held rows that are wrong go round for ever if all are changed at once."""
    N, q, lower, upper = lcp(np.eye(n) + 2 * np.roll(np.eye(n), 1, axis=1), -np.ones(n))
    problem = jax.tree.map(lambda a: a[0], as_problem(N, q, lower, upper))
    guess = jnp.zeros(n).at[n - 1].set(1.0)
    blocks = solve_mlcp(problem, BlockPivoting(patience=1000, max_pivots=500), guess)
    assert blocks.result == MLCP_RESULTS.pivot_limit
    solution = solve_mlcp(problem, BlockPivoting(), guess)
    assert solution.result == MLCP_RESULTS.successful
    np.testing.assert_allclose(solution.x, np.full(n, 1 / 3), rtol=1e-12)


@ALL
def test_any_guess_gives_the_same(solver, rng):
    problem = as_problem(p_matrices(rng, 1, 6, least=0.5)[0], 2 * rng.normal(size=6), -np.ones(6), np.ones(6))
    guesses = jnp.asarray(np.outer([np.nan, np.inf, -1e30, 0.0, 1.0], np.ones(6)))
    solution = jax.jit(jax.vmap(lambda guess: solve_mlcp(problem, solver, guess)))(guesses)
    assert successful(solution).all()
    np.testing.assert_allclose(solution.x, np.tile(solution.x[0], (5, 1)), rtol=1e-12, atol=1e-14)


@ALL
@pytest.mark.parametrize("which", range(4), ids=["N", "q", "lower", "upper"])
def test_nan_is_said(which, solver):
    arrays = lcp(np.eye(2), [-1.0, 1.0])
    arrays[which][(0,) * arrays[which].ndim] = np.nan
    solution = only(solver, arrays)
    assert solution.result == MLCP_RESULTS.nonfinite_input
    assert np.isfinite(solution.x).all()


@ALL
def test_no_solution_is_said(solver):
    """w_1 = -1 whatever x is."""
    solution = only(solver, lcp([[0.0, 0.0], [0.0, 1.0]], [-1.0, -1.0]))
    assert solution.result != MLCP_RESULTS.successful
    assert np.isfinite(solution.x).all()


def test_too_few_trials_and_too_tight_a_tolerance_are_said(rng):
    murty = lcp(np.eye(6) + 2 * np.tril(np.ones((6, 6)), -1), -np.ones(6))
    assert only(BlockPivoting(max_pivots=2), murty).result == MLCP_RESULTS.pivot_limit
    solution = only(BlockPivoting(tolerance=1e-30), lcp(p_matrices(rng, 1, 6)[0], -rng.uniform(0.5, 1.5, 6)))
    assert solution.residual > 0, "rounding happened to vanish"
    assert solution.result == MLCP_RESULTS.residual_check_failed
