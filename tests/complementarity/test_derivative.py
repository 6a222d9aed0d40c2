"""The active-set derivative against differences, central away from ties and one-sided at ties."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from complementarity.problems import EXACT, FILE, SOLVERS, as_problem, lcp, p_matrices, padded, random_bounds

from spookax._results import MLCP_RESULTS
from spookax.complementarity import MLCP, ProjectedGaussSeidel, solve_mlcp

BATCH, N_ROWS = 300, 5


@pytest.fixture(params=SOLVERS.values(), ids=SOLVERS)
def solver(request):
    return request.param


def x_of(problem: MLCP, solver=EXACT):
    return solve_mlcp(problem, solver).x


def shifted(problem: MLCP, direction: MLCP, by) -> MLCP:
    return jax.tree.map(lambda a, d: a + by * d, problem, direction)


@functools.partial(jax.jit, static_argnums=2)
def expansion(problem: MLCP, direction: MLCP, solver):
    """x, its first and its second derivative along a direction."""

    def along(problem, direction):
        def first(problem):
            return jax.jvp(lambda p: x_of(p, solver), (problem,), (direction,))

        (x, x_dot), (_, x_ddot) = jax.jvp(first, (problem,), (direction,))
        return x, x_dot, x_ddot

    return jax.vmap(along)(problem, direction)


@functools.partial(jax.jit, static_argnums=2)
def gradient(problem: MLCP, weight, solver) -> MLCP:
    return jax.vmap(lambda problem, weight: jax.vjp(lambda p: x_of(p, solver), problem)[1](weight)[0])(problem, weight)


@jax.jit
@jax.vmap
def checks(problem: MLCP, x):
    return problem.natural_residual(x), problem.degeneracy(x)


def relative(error, size):
    return np.linalg.norm(error, axis=1) / (1 + np.linalg.norm(size, axis=1))


@pytest.fixture
def problems(rng):
    """Problems with every kind of bound, and directions that keep equal bounds equal."""
    q = rng.normal(size=(BATCH, N_ROWS))
    problem = as_problem(p_matrices(rng, BATCH, N_ROWS), q, *random_bounds(rng, q.shape))
    direction = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)), problem)
    lower = jnp.where(problem.lower == problem.upper, direction.upper, direction.lower)
    return problem, eqx.tree_at(lambda d: d.lower, direction, lower)


@pytest.mark.parametrize(("order", "step", "tolerance"), [(1, 1e-7, 3e-8), (2, 1e-6, 1e-6)])
def test_against_central_differences(order, step, tolerance, problems, solver):
    problem, direction = problems
    here = expansion(problem, direction, solver)
    residual, degeneracy = map(np.asarray, checks(problem, here[0]))
    regular = (residual < 1e-14) & (degeneracy > 1e-3)  # sweeps may diverge
    assert regular.mean() > 0.9, "degenerate draws: no derivative to test"
    ahead, behind = (expansion(shifted(problem, direction, by), direction, solver)[order - 1] for by in (step, -step))
    difference = (ahead - behind) / (2 * step)
    assert jnp.isfinite(here[order]).all()
    assert relative(here[order] - difference, difference)[regular].max() < tolerance


def test_reverse_is_the_transpose_of_forward(problems, solver, rng):
    problem, direction = problems
    weight = jnp.asarray(rng.normal(size=(BATCH, N_ROWS)))
    forward = jnp.sum(weight * expansion(problem, direction, solver)[1], axis=1)
    pairs = zip(jax.tree.leaves(gradient(problem, weight, solver)), jax.tree.leaves(direction), strict=True)
    terms = jnp.stack([jnp.sum((g * d).reshape(BATCH, -1), axis=1) for g, d in pairs])
    assert jnp.max(jnp.abs(forward - terms.sum(axis=0)) / (1 + jnp.abs(terms).sum(axis=0))) < 1e-12


def test_reverse_over_reverse_is_finite(problems):
    def squared_gradient(problem):
        return jnp.sum(jax.grad(lambda p: jnp.sum(x_of(p) ** 2))(problem).q ** 2)

    second = jax.jit(jax.vmap(jax.grad(squared_gradient)))(problems[0])
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(second))


def test_in_q_alone_the_solution_is_piecewise_linear(problems):
    """So the second derivative in q vanishes, exactly."""
    problem, direction = problems
    only_q = eqx.tree_at(lambda d: d.q, jax.tree.map(jnp.zeros_like, direction), direction.q)
    assert jnp.all(expansion(problem, only_q, EXACT)[2] == 0)


def test_a_tie_takes_the_side_on_which_the_row_is_free(solver, rng):
    """Rows on a bound with w = 0. Where [A] moves them inwards it is the derivative on that side."""
    N = p_matrices(rng, BATCH, N_ROWS, least=0.5)  # sweeps converge
    x = np.where(rng.random((BATCH, N_ROWS)) < 0.5, rng.choice([-1.0, 1.0], (BATCH, N_ROWS)), rng.uniform(-0.9, 0.9))
    tie = np.zeros((BATCH, N_ROWS), bool)
    tie[:, 0], x[:, 0] = True, 1.0
    pushed = ~tie & (np.abs(x) == 1)  # held with a margin
    q = -np.einsum("bij,bj->bi", N, x) - np.where(pushed, 0.5 * x, 0.0)
    problem = as_problem(N, q, -np.ones_like(x), np.ones_like(x))
    direction = jax.tree.map(jnp.zeros_like, problem)
    direction = eqx.tree_at(lambda d: d.q, direction, jnp.asarray(rng.normal(size=x.shape)))
    solution, x_dot, _ = expansion(problem, direction, solver)
    np.testing.assert_allclose(solution, x, atol=1e-12)

    inwards = -jnp.sign(x_dot[:, :1])  # of the tied row at its upper bound
    direction = eqx.tree_at(lambda d: d.q, direction, inwards * direction.q)
    inside, outside = (expansion(shifted(problem, direction, by), direction, solver)[0] for by in (1e-7, -1e-7))
    np.testing.assert_allclose(inwards * x_dot, (inside - solution) / 1e-7, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outside[:, 0], 1.0, atol=1e-15)  # on the other side the row is held


@jax.jit
@jax.vmap
@functools.partial(jax.grad, argnums=(0, 1))
def friction_gradient(q, b):
    """Of x in w = x + q, -b <= x <= b."""
    return solve_mlcp(MLCP(jnp.ones((1, 1)), q[None], -b[None], b[None])).x[0]


def test_stick_slip_and_the_onset():
    """Inside x' = -q', outside x' = b', at the onset (the last one) as inside."""
    dq, db = friction_gradient(jnp.asarray([-0.99, -1.01, 1.01, -1.0]), jnp.ones(4))
    np.testing.assert_allclose(dq, [-1, 0, 0, -1], atol=1e-15)
    np.testing.assert_allclose(db, [0, 1, -1, 0], atol=1e-15)


def test_bounds_that_open_from_zero():
    """b = 0: x = 0 now, and x = -sign(q) b for small b > 0."""
    q = jnp.asarray([-1.0, 0.5, -1e-3, 2.0])
    np.testing.assert_allclose(friction_gradient(q, jnp.zeros(4))[1], -np.sign(q))


def test_where_the_solution_is_not_unique_the_derivative_is_finite():
    """N = [[1, 1], [1, 1]], q = (-1, -1): both rows are free or tied, and N is singular on them."""
    entry = next(entry for entry in FILE["problems"] if entry["name"] == "lcp_CPS_1")
    arrays = (np.repeat(a, BATCH, axis=0) for a in padded(*lcp(entry["M"], entry["q"]), N_ROWS))
    found = gradient(as_problem(*arrays), jnp.ones((BATCH, N_ROWS)), EXACT)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


def test_through_a_scan():
    """Gradient of a loop of solves, each warm-started by the last, against central differences."""

    def cost(q):
        def step(x, k):
            N = jnp.asarray([[1.0, 0.3], [0.1, 1.0]])
            drive = q * jnp.sin(0.37 * k + jnp.asarray([0.0, 1.0])) - 0.5 * x
            x = solve_mlcp(MLCP(N, drive, -jnp.ones(2), jnp.ones(2)), guess=x).x
            return x, jnp.sum(x**3)

        return jnp.sum(jax.lax.scan(step, jnp.zeros(2), jnp.arange(50.0))[1])

    q = jnp.asarray([1.7, 1.3])
    value = jax.jit(cost)
    difference = [(value(q + d) - value(q - d)) / 2e-6 for d in 1e-6 * np.eye(2)]
    np.testing.assert_allclose(jax.jit(jax.grad(cost))(q), difference, rtol=1e-7, atol=1e-7)


def test_status_and_counts_come_along_and_the_guess_has_no_derivative(solver):
    problem = as_problem(np.eye(2), [0.5, -3.0], -np.ones(2), np.ones(2))

    def cost(problem, guess):
        solution = solve_mlcp(problem, solver, guess)
        return jnp.sum(solution.x), solution

    gradients = jax.jit(jax.value_and_grad(cost, argnums=(0, 1), has_aux=True))
    (value, solution), (by_problem, by_guess) = gradients(problem, jnp.asarray([0.3, 0.2]))
    assert value == 0.5
    assert solution.result == MLCP_RESULTS.successful
    if isinstance(solver, ProjectedGaussSeidel):
        assert solution.pivots == solver.sweeps
    else:
        assert solution.pivots <= 2
    np.testing.assert_array_equal(by_problem.q, [-1.0, 0.0])
    np.testing.assert_array_equal(by_guess, 0.0)
