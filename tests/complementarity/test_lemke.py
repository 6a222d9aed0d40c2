"""The exact solver: published and degenerate problems, every kind of bound, and what a failure says."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from complementarity.problems import (
    FILE,
    as_problem,
    by_enumeration,
    coupled_friction,
    degenerate,
    p_matrices,
    random_bounds,
    violation,
)

from spookax._results import MLCP_RESULTS
from spookax.complementarity import MLCP, Lemke, solve_mlcp

COLD = Lemke(rounds=0)  # no guessing: the pivoting itself


SIZES = [2, 4, 6, 8, 12]
BATCH = 2000  # always, so that a size is compiled once


@functools.cache
def batched(solver: Lemke):
    return jax.jit(jax.vmap(lambda problem: solve_mlcp(problem, solver)))


def solve(arrays, solver=COLD, dtype=None):
    solution = batched(solver)(as_problem(*arrays, dtype=dtype))
    return solution, np.asarray(solution.result == MLCP_RESULTS.successful)


def lcp(M, q) -> MLCP:
    q = np.asarray(q, float)
    return as_problem(np.asarray(M, float), q, np.zeros_like(q), np.full_like(q, np.inf))


def padded(M, q, n):
    """The same with rows w_i = z_i + 1 appended, so that problems of several sizes make one batch."""
    k = len(q)
    larger = np.eye(n)
    larger[:k, :k] = M
    return larger, np.append(np.array(q, float), np.ones(n - k))


@pytest.fixture(scope="module", params=[Lemke(), COLD], ids=["guessing", "pivoting"])
def published(request):
    """Each published problem and its solution, by name."""
    n = max(len(entry["q"]) for entry in FILE["problems"])
    M, q = (np.array(a) for a in zip(*(padded(e["M"], e["q"], n) for e in FILE["problems"]), strict=True))
    solution, _ = solve((M, q, np.zeros_like(q), np.full_like(q, np.inf)), request.param)
    return {e["name"]: jax.tree.map(lambda a, k=k: a[k], solution) for k, e in enumerate(FILE["problems"])}


@pytest.mark.parametrize("entry", FILE["problems"], ids=lambda entry: entry["name"])
def test_published_problem(entry, published):
    """A listed solution, or a status that says that there is none or that Lemke's method does not find it."""
    solution = published[entry["name"]]
    assert jnp.isfinite(solution.x).all()
    solutions = entry.get("all_basic_solutions", [entry["a_solution"]] if "a_solution" in entry else [])
    if solution.result == MLCP_RESULTS.successful:
        x = solution.x[: len(entry["q"])]
        assert min(np.abs(x - np.array(z)).max() / np.abs(z).max() for z in solutions) < 1e-9
    else:
        assert entry.get("lemke_random_d_status", 0) != 0
        assert solution.result == MLCP_RESULTS.secondary_ray


def test_kostreva_does_not_cycle():
    """A P-matrix on which the first-index rule cycles."""
    entry = next(entry for entry in FILE["problems"] if entry["name"] == "kostreva_cycling")
    solution = solve_mlcp(lcp(entry["M"], entry["q"]), COLD)
    np.testing.assert_allclose(solution.x, np.ones(3) / 3, rtol=1e-14)
    assert solution.pivots <= 6


@pytest.mark.parametrize("n", [6, 12])
def test_murty_is_not_exponential(n):
    """w = (I + 2 strict lower triangle) z - 1: with equal covering entries 2^n pivots."""
    solution = solve_mlcp(lcp(np.eye(n) + 2 * np.tril(np.ones((n, n)), -1), -np.ones(n)), COLD)
    np.testing.assert_allclose(solution.x, np.eye(n)[0], atol=1e-14)
    assert solution.pivots <= 3 * n


def test_coupled_friction(rng):
    """Copositive, redundant, with zero diagonal entries."""
    problem = coupled_friction(rng, 200)
    solution, ok = solve(problem)
    M, q, *_ = problem
    x = np.asarray(solution.x)
    w = np.einsum("bij,bj->bi", M, x) + q
    assert ok.all()
    assert max(-x.min(), -w.min(), np.minimum(x, w).max()) < 1e-9


@pytest.mark.parametrize(("solver", "n"), [(COLD, n) for n in SIZES] + [(Lemke(), n) for n in SIZES[::2]])
def test_never_a_wrong_answer_with_a_good_status(solver, n, rng):
    """10 000 problems by pivoting, 6 000 from guesses."""
    problem = degenerate(rng, BATCH, n)
    solution, ok = solve(problem, solver)
    assert violation(*problem, solution.x)[ok].max() < 1e-9
    assert np.mean(ok) > 0.997  # the rest is too badly conditioned to be checked, and says so
    assert np.isfinite(solution.x).all()


def test_float32(rng):
    """Regularised by a thousandth: solved to single precision, or refused."""
    N, *rest = degenerate(rng, BATCH, 12)
    N = N + 1e-3 * N * np.eye(12)
    problem = [np.asarray(a, np.float32) for a in (N, *rest)]
    solution, ok = solve(problem)
    assert solution.x.dtype == jnp.float32
    assert violation(*problem, solution.x)[ok].max() < 1e-4
    assert np.mean(ok) > 0.99
    assert np.isfinite(solution.x).all()


@pytest.mark.parametrize("n", [2, 4])
def test_every_kind_of_bound_against_enumeration(n, rng):
    N, q = p_matrices(rng, BATCH, n), 2 * rng.normal(size=(BATCH, n))
    lower, upper = random_bounds(rng, q.shape)
    expected = by_enumeration(N, q, lower, upper)
    solution, ok = solve((N, q, lower, upper))
    assert ok.all()
    np.testing.assert_allclose(solution.x, expected, rtol=1e-9, atol=1e-11)


def test_rows_without_bounds_are_a_linear_system(rng):
    N, q = p_matrices(rng, BATCH, 4), rng.normal(size=(BATCH, 4))
    solution, ok = solve((N, q, np.full_like(q, -np.inf), np.full_like(q, np.inf)))
    assert ok.all()
    np.testing.assert_allclose(solution.x, np.linalg.solve(N, -q[..., None])[..., 0], rtol=1e-9)


def test_bounds_are_met_exactly(rng):
    N, q = p_matrices(rng, BATCH, 6), 3 * rng.normal(size=(BATCH, 6))
    bound = rng.uniform(0.1, 1.0, q.shape)
    solution, ok = solve((N, q, -bound, bound))
    y = solution.x - solution.w
    assert ok.all()
    np.testing.assert_array_equal(np.where(y > bound, bound, solution.x), solution.x)
    np.testing.assert_array_equal(np.where(y < -bound, -bound, solution.x), solution.x)


@pytest.mark.parametrize(("n", "published"), [(4, 3.2), (8, 5.5), (32, 22)])
def test_pivots_grow_like_n(n, published, rng):
    """Not more than a first version needed on random P-matrices, and none near the limit."""
    q = rng.normal(size=(BATCH, n))
    solution, ok = solve((p_matrices(rng, BATCH, n), q, np.zeros_like(q), np.full_like(q, np.inf)))
    assert ok.all()
    assert jnp.mean(solution.pivots.astype(float)) < 1.2 * published
    assert jnp.max(solution.pivots) < 3 * n


@pytest.mark.parametrize("n", [2, 12])
def test_the_last_solution_is_a_guess_without_pivots(n, rng):
    N, q = p_matrices(rng, 1, n)[0], 2 * rng.normal(size=n)
    last = solve_mlcp(as_problem(N, q, -np.ones(n), np.ones(n)))
    near = as_problem(N, q + 1e-4 * rng.normal(size=n), -np.ones(n), np.ones(n))
    solution = solve_mlcp(near, Lemke(rounds=1), last.x)
    assert solution.result == MLCP_RESULTS.successful
    assert solution.pivots == 0
    np.testing.assert_allclose(solution.x, solve_mlcp(near, COLD).x, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("guess", [np.nan, np.inf, -1e30, 0.0])
def test_a_bad_guess_does_no_harm(guess, rng):
    problem = as_problem(p_matrices(rng, 1, 4)[0], 2 * rng.normal(size=4), -np.ones(4), np.ones(4))
    solution = solve_mlcp(problem, Lemke(), jnp.full(4, guess))
    assert solution.result == MLCP_RESULTS.successful
    np.testing.assert_allclose(solution.x, solve_mlcp(problem, COLD).x, rtol=1e-12, atol=1e-14)


def test_units_do_not_matter(rng):
    N, q = p_matrices(rng, BATCH, 6), rng.normal(size=(BATCH, 6))
    factor = 10 ** rng.uniform(-6, 6, (BATCH, 1))
    lower, upper = random_bounds(rng, q.shape)
    D = 10 ** rng.uniform(-3, 3, q.shape)
    plain, ok = solve((N, q, lower, upper))
    scaled, ok_scaled = solve(
        (factor[:, :, None] * N / (D[:, :, None] * D[:, None, :]), factor * q / D, lower * D, upper * D)
    )
    assert (ok & ok_scaled).all()
    np.testing.assert_allclose(scaled.x / D, plain.x, rtol=1e-9, atol=1e-12)


def test_a_batch_is_a_loop(rng):
    problem = as_problem(*degenerate(rng, BATCH, 4))
    batch = batched(COLD)(problem)
    one = eqx.filter_jit(solve_mlcp)
    for k in range(20):
        alone = one(jax.tree.map(lambda a, k=k: a[k], problem), COLD)
        np.testing.assert_allclose(batch.x[k], alone.x, rtol=1e-10, atol=1e-300)
        assert alone.pivots == batch.pivots[k]


def test_nothing_to_solve():
    nothing = as_problem(np.zeros((0, 0)), np.zeros(0), np.zeros(0), np.zeros(0))
    solution = solve_mlcp(nothing)
    assert solution.x.shape == (0,)
    assert solution.result == MLCP_RESULTS.successful


@pytest.mark.usefixtures("strict_jax")
def test_no_library_is_called_and_no_type_changes():
    """LAPACK inside scans can hang on machines with few cores."""
    problem = as_problem(np.tile(np.eye(3), (5, 1, 1)), np.ones((5, 3)), -np.ones((5, 3)), np.ones((5, 3)))
    gradient = jax.vmap(jax.grad(lambda p: jnp.sum(solve_mlcp(p).x)))
    assert "custom_call" not in jax.jit(gradient).lower(problem).as_text()


def test_no_solution_is_said():
    """w = -1 whatever x is."""
    solution = solve_mlcp(lcp([[0.0, 0.0], [0.0, 1.0]], [-1.0, -1.0]))
    assert solution.result == MLCP_RESULTS.secondary_ray
    assert "redundant" in MLCP_RESULTS[solution.result]
    assert jnp.isfinite(solution.x).all()


def test_too_few_pivots_are_said(rng):
    N, q = p_matrices(rng, 1, 12)[0], rng.normal(size=12)
    solution = solve_mlcp(lcp(N, q), Lemke(rounds=0, max_pivots=2, sweeps=1))
    assert solution.result == MLCP_RESULTS.pivot_limit
    assert solution.residual > 1e-3


def test_the_last_resort_solves_what_pivots_did_not(rng):
    N, q = p_matrices(rng, 1, 6, skew=0.0, least=1.0)[0], rng.normal(size=6)
    solution = solve_mlcp(lcp(N, q), Lemke(rounds=0, max_pivots=1))
    assert solution.result == MLCP_RESULTS.successful
    np.testing.assert_allclose(solution.x, solve_mlcp(lcp(N, q), COLD).x, rtol=1e-12)


def test_too_tight_a_tolerance_is_said(rng):
    N, q = p_matrices(rng, 1, 6)[0], rng.normal(size=6)
    q[:] = -np.abs(q)
    solution = solve_mlcp(lcp(N, q), Lemke(tolerance=1e-30))
    assert solution.residual > 0, "rounding happened to vanish"
    assert solution.result == MLCP_RESULTS.residual_check_failed


@pytest.mark.parametrize("field", ["N", "q", "lower", "upper"])
def test_nan_is_said(field):
    problem = as_problem(np.eye(2), [-1.0, 1.0], [-1.0, -1.0], [1.0, 1.0])
    array = getattr(problem, field)
    broken = eqx.tree_at(lambda p: getattr(p, field), problem, array.at[(0,) * array.ndim].set(jnp.nan))
    solution = solve_mlcp(broken)
    assert solution.result == MLCP_RESULTS.nonfinite_input
    assert jnp.isfinite(solution.x).all()
