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
    lcp,
    p_matrices,
    padded,
    random_bounds,
    violation,
)

from spookax._results import MLCP_RESULTS
from spookax.complementarity import Lemke, Solution, solve_mlcp

COLD = Lemke(rounds=0)  # no guessing: the pivoting itself
LANES = {2: 4000, 6: 4000, 12: 4000, 40: 200}


@functools.cache
def batched(solver: Lemke):
    return jax.jit(jax.vmap(lambda problem: solve_mlcp(problem, solver)))


def solve(arrays, solver=COLD) -> tuple[Solution, np.ndarray]:
    """Solutions of a batch, and which are good. Rows and lanes are filled up, so that few shapes are compiled."""
    batch, n = arrays[1].shape
    rows = next(size for size in LANES if size >= n)
    problem = as_problem(*(a[np.arange(LANES[rows]) % batch] for a in padded(*arrays, rows=rows)))
    solution = jax.tree.map(lambda a: np.asarray(a)[:batch], batched(solver)(problem))
    solution = eqx.tree_at(lambda s: (s.x, s.w), solution, (solution.x[:, :n], solution.w[:, :n]))
    return solution, np.asarray(solution.result == MLCP_RESULTS.successful)


def lane(tree, k):
    return jax.tree.map(lambda a: jax.device_put(np.asarray(a)[k]), tree)  # to slice in JAX compiles a program


@pytest.fixture(scope="module", params=[Lemke(), COLD], ids=["guessing", "pivoting"])
def published(request):
    """Each published problem with its solution, by name."""
    entries = FILE["problems"]
    arrays = (np.concatenate(a) for a in zip(*(padded(*lcp(e["M"], e["q"]), 40) for e in entries), strict=True))
    solution, _ = solve(tuple(arrays), request.param)
    return {entry["name"]: lane(solution, k) for k, entry in enumerate(entries)}


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
    solution, _ = solve(lcp(entry["M"], entry["q"]))
    np.testing.assert_allclose(solution.x[0], np.ones(3) / 3, rtol=1e-14)
    assert solution.pivots <= 6


@pytest.mark.parametrize("n", [6, 12])
def test_murty_is_not_exponential(n):
    """w = (I + 2 strict lower triangle) z - 1: with equal covering entries 2^n pivots."""
    solution, _ = solve(lcp(np.eye(n) + 2 * np.tril(np.ones((n, n)), -1), -np.ones(n)))
    np.testing.assert_allclose(solution.x[0], np.eye(n)[0], atol=1e-14)
    assert solution.pivots <= 3 * n


def test_coupled_friction(rng):
    """Copositive, redundant, with zero diagonal entries."""
    arrays = coupled_friction(rng, 200)
    solution, ok = solve(arrays)
    M, q, *_ = arrays
    x = np.asarray(solution.x)
    w = np.einsum("bij,bj->bi", M, x) + q
    assert ok.all()
    assert max(-x.min(), -w.min(), np.minimum(x, w).max()) < 1e-9


@pytest.mark.parametrize(("solver", "n"), [(COLD, 2), (COLD, 6), (COLD, 12), (Lemke(), 12)])
def test_never_a_wrong_answer_with_a_good_status(solver, n, rng):
    """12 000 degenerate problems by pivoting, 4000 from guesses."""
    arrays = degenerate(rng, LANES[n], n)
    solution, ok = solve(arrays, solver)
    assert violation(*arrays, solution.x)[ok].max() < 1e-9
    assert np.mean(ok) > 0.997  # the rest is too badly conditioned to be checked, and says so
    assert np.isfinite(solution.x).all()


def test_float32(rng):
    """Regularised by a thousandth: solved to single precision, or refused."""
    N, *rest = degenerate(rng, 2000, 12)
    arrays = [np.asarray(a, np.float32) for a in (N + 1e-3 * N * np.eye(12), *rest)]
    solution = batched(COLD)(as_problem(*arrays))
    ok = np.asarray(solution.result == MLCP_RESULTS.successful)
    assert solution.x.dtype == jnp.float32
    assert violation(*arrays, x=solution.x)[ok].max() < 1e-4
    assert np.mean(ok) > 0.99
    assert np.isfinite(solution.x).all()


@pytest.mark.parametrize(("n", "batch"), [(1, 1000), (2, 4000), (3, 4000), (5, 500)])
def test_every_kind_of_bound_against_enumeration(n, batch, rng):
    N, q = p_matrices(rng, batch, n), 2 * rng.normal(size=(batch, n))
    lower, upper = random_bounds(rng, q.shape)
    solution, ok = solve((N, q, lower, upper))
    assert ok.all()
    np.testing.assert_allclose(solution.x, by_enumeration(N, q, lower, upper), rtol=1e-9, atol=1e-11)


def test_rows_without_bounds_are_a_linear_system(rng):
    N, q = p_matrices(rng, 100, 6), rng.normal(size=(100, 6))
    solution, ok = solve((N, q, np.full_like(q, -np.inf), np.full_like(q, np.inf)))
    assert ok.all()
    np.testing.assert_allclose(solution.x, np.linalg.solve(N, -q[..., None])[..., 0], rtol=1e-9)


def test_bounds_are_met_exactly(rng):
    N, q = p_matrices(rng, 1000, 6), 3 * rng.normal(size=(1000, 6))
    bound = rng.uniform(0.1, 1.0, q.shape)
    solution, ok = solve((N, q, -bound, bound))
    x, w = np.asarray(solution.x), np.asarray(solution.w)
    assert ok.all()
    np.testing.assert_array_equal(np.abs(x)[np.abs(w) > 1e-9], bound[np.abs(w) > 1e-9])


@pytest.mark.parametrize(("n", "published_mean"), [(4, 3.2), (8, 5.5), (32, 22)])
def test_pivots_grow_like_n(n, published_mean, rng):
    """On random P-matrices not many more than a first prototype needed, and never near the limit."""
    q = rng.normal(size=(200, n))
    solution, ok = solve((p_matrices(rng, 200, n), q, np.zeros_like(q), np.full_like(q, np.inf)))
    assert ok.all()
    assert np.mean(solution.pivots) < 1.2 * published_mean
    assert np.max(solution.pivots) < 3 * n


def test_the_last_solution_is_a_guess_without_pivots(rng):
    N, q, one = p_matrices(rng, 50, 12), 2 * rng.normal(size=(50, 12)), np.ones((50, 12))
    last, _ = solve((N, q, -one, one))
    near = (N, q + 1e-6 * rng.normal(size=q.shape), -one, one)
    expected, _ = solve(near)
    solution = jax.jit(jax.vmap(functools.partial(solve_mlcp, solver=Lemke(rounds=1))))(as_problem(*near), guess=last.x)
    assert jnp.all(solution.result == MLCP_RESULTS.successful)
    assert jnp.all(solution.pivots == 0)
    np.testing.assert_allclose(solution.x, expected.x, rtol=1e-9, atol=1e-11)


def test_a_bad_guess_does_no_harm(rng):
    arrays = (p_matrices(rng, 1, 6), 2 * rng.normal(size=(1, 6)), -np.ones((1, 6)), np.ones((1, 6)))
    expected, _ = solve(arrays)
    problem = lane(as_problem(*arrays), 0)
    guesses = jnp.asarray([np.nan, np.inf, -1e30, 0.0, 1.0])[:, None] * jnp.ones((1, 6))
    solution = jax.jit(jax.vmap(lambda guess: solve_mlcp(problem, guess=guess)))(guesses)
    assert jnp.all(solution.result == MLCP_RESULTS.successful)
    np.testing.assert_allclose(solution.x, np.tile(expected.x, (5, 1)), rtol=1e-12, atol=1e-14)


def test_units_do_not_matter(rng):
    N, q = p_matrices(rng, 2000, 6), rng.normal(size=(2000, 6))
    lower, upper = random_bounds(rng, q.shape)
    D, c = 10 ** rng.uniform(-3, 3, q.shape), 10 ** rng.uniform(-6, 6, (2000, 1))
    plain, ok = solve((N, q, lower, upper))
    scaled, ok_scaled = solve((c[:, :, None] * N / (D[:, :, None] * D[:, None, :]), c * q / D, lower * D, upper * D))
    assert (ok & ok_scaled).all()
    np.testing.assert_allclose(scaled.x / D, plain.x, rtol=1e-9, atol=1e-12)


def test_a_batch_is_a_loop(rng):
    arrays = degenerate(rng, 20, 6)
    batch, _ = solve(arrays)
    one = jax.jit(lambda problem: solve_mlcp(problem, COLD))
    for k in range(20):
        alone = one(lane(as_problem(*arrays), k))
        np.testing.assert_allclose(batch.x[k], alone.x, rtol=1e-10, atol=1e-300)
        assert alone.pivots == batch.pivots[k]


def test_nothing_to_solve():
    nothing = as_problem(np.zeros((0, 0)), np.zeros(0), np.zeros(0), np.zeros(0))
    solution = solve_mlcp(nothing)
    assert solution.x.shape == (0,)
    assert solution.result == MLCP_RESULTS.successful


def test_no_library_is_called_and_no_type_changes():
    """LAPACK inside scans can hang on machines with few cores."""
    problem = as_problem(np.tile(np.eye(3), (5, 1, 1)), np.ones((5, 3)), -np.ones((5, 3)), np.ones((5, 3)))
    gradient = jax.vmap(jax.grad(lambda p: jnp.sum(solve_mlcp(p).x)))
    assert "custom_call" not in jax.jit(gradient).lower(problem).as_text()


def test_no_solution_is_said():
    """w_1 = -1 whatever x is."""
    solution, _ = solve(lcp([[0.0, 0.0], [0.0, 1.0]], [-1.0, -1.0]))
    result = lane(solution, 0).result
    assert result == MLCP_RESULTS.secondary_ray
    assert "redundant" in MLCP_RESULTS[result]
    assert jnp.isfinite(solution.x).all()


def test_the_pivot_limit_and_the_last_resort(rng):
    """Sweeps solve what few pivots did not, if the problem is friendly; otherwise the limit is named."""
    limited = Lemke(rounds=0, max_pivots=2, sweeps=100)
    friendly = p_matrices(rng, 1, 6, skew=0.0, least=1.0)[0]
    hostile = np.eye(6) + 3 * (np.triu(np.ones((6, 6)), 1) - np.tril(np.ones((6, 6)), -1))  # sweeps diverge
    q = -rng.uniform(0.5, 1.5, 6)
    wide = np.full(6, 1e3)
    arrays = np.stack([friendly, hostile]), np.stack([q, q]), -np.stack([wide, wide]), np.stack([wide, wide])
    solution = batched(limited)(as_problem(*arrays))
    expected, ok = solve(arrays)
    assert ok.all()
    assert lane(solution, 0).result == MLCP_RESULTS.successful
    np.testing.assert_allclose(solution.x[0], expected.x[0], rtol=1e-11)
    assert lane(solution, 1).result == MLCP_RESULTS.pivot_limit
    assert solution.residual[1] > 1e-6


def test_too_tight_a_tolerance_is_said(rng):
    arrays = lcp(p_matrices(rng, 1, 6)[0], -rng.uniform(0.5, 1.5, 6))
    solution = lane(batched(Lemke(tolerance=1e-30))(as_problem(*arrays)), 0)
    assert solution.residual > 0, "rounding happened to vanish"
    assert solution.result == MLCP_RESULTS.residual_check_failed


def test_nan_is_said():
    arrays = lcp(np.eye(2), [-1.0, 1.0])
    for k, array in enumerate(arrays):
        broken = array.copy()
        broken[(0,) * array.ndim] = np.nan
        solution, _ = solve((*arrays[:k], broken, *arrays[k + 1 :]))
        assert lane(solution, 0).result == MLCP_RESULTS.nonfinite_input
        assert jnp.isfinite(solution.x).all()
    assert solve(arrays)[1].all()
