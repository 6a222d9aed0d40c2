"""The active-set derivative against differences, central away from ties and one-sided at ties."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from complementarity.problems import FILE, as_problem, p_matrices, random_bounds

from spookax._results import MLCP_RESULTS
from spookax.complementarity import MLCP, Lemke, ProjectedGaussSeidel, solve_mlcp

pytestmark = pytest.mark.usefixtures("strict_jax")
BATCH, N_ROWS = 300, 5


def x_of(problem: MLCP):
    return solve_mlcp(problem).x


def shifted(problem: MLCP, direction: MLCP, by) -> MLCP:
    return jax.tree.map(lambda a, d: a + by * d, problem, direction)


solve_all = jax.jit(jax.vmap(x_of))
tangent = jax.jit(jax.vmap(lambda p, d: jax.jvp(x_of, (p,), (d,))[1]))


second_tangent = jax.jit(
    jax.vmap(lambda p, d: jax.jvp(lambda p: jax.jvp(x_of, (p,), (d,))[1], (p,), (d,))[1])
)


@pytest.fixture
def problems(rng):
    """Problems with every kind of bound, and directions that keep equal bounds equal."""
    q = rng.normal(size=(BATCH, N_ROWS))
    problem = as_problem(p_matrices(rng, BATCH, N_ROWS), q, *random_bounds(rng, q.shape))
    direction = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)), problem)
    lower = jnp.where(problem.lower == problem.upper, direction.upper, direction.lower)
    return problem, eqx.tree_at(lambda d: d.lower, direction, lower)


def test_against_central_differences(problems):
    problem, direction = problems
    margin = jax.vmap(MLCP.degeneracy)(problem, solve_all(problem))
    regular = np.asarray(margin > 1e-4)
    assert regular.mean() > 0.95, "degenerate draws: no derivative to test"
    step = 1e-7
    difference = (
        solve_all(shifted(problem, direction, step)) - solve_all(shifted(problem, direction, -step))
    ) / (2 * step)
    x_dot = tangent(problem, direction)
    error = jnp.linalg.norm(x_dot - difference, axis=1) / (1 + jnp.linalg.norm(difference, axis=1))
    assert error[regular].max() < 3e-8


def test_reverse_is_the_transpose_of_forward(problems, rng):
    problem, direction = problems
    weight = jnp.asarray(rng.normal(size=(BATCH, N_ROWS)))
    gradient = jax.jit(jax.vmap(lambda p, y: jax.vjp(x_of, p)[1](y)[0]))(problem, weight)
    forward = jnp.sum(weight * tangent(problem, direction), axis=1)
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    terms = [jnp.sum((g * d).reshape(BATCH, -1), axis=1) for g, d in pairs]
    size = 1 + sum(jnp.abs(term) for term in terms)
    assert jnp.max(jnp.abs(forward - sum(terms)) / size) < 1e-12


def test_second_derivative(problems):
    problem, direction = problems
    regular = np.asarray(jax.vmap(MLCP.degeneracy)(problem, solve_all(problem)) > 1e-3)
    assert regular.mean() > 0.9, "degenerate draws: no derivative to test"
    step = 1e-6
    difference = (
        tangent(shifted(problem, direction, step), direction)
        - tangent(shifted(problem, direction, -step), direction)
    ) / (2 * step)

    second = second_tangent(problem, direction)
    error = jnp.linalg.norm(second - difference, axis=1) / (1 + jnp.linalg.norm(difference, axis=1))
    assert jnp.isfinite(second).all()
    assert error[regular].max() < 1e-6

    def cost(p):
        return jnp.sum(x_of(p) ** 2)

    def squared_gradient(p):
        return jnp.sum(jax.grad(cost)(p).q ** 2)

    reverse = jax.jit(jax.vmap(jax.grad(squared_gradient)))(problem)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(reverse))


def test_in_q_alone_the_solution_is_piecewise_linear(problems):
    """So the second derivative in q vanishes, exactly."""
    problem, direction = problems
    only_q = jax.tree.map(jnp.zeros_like, direction)
    only_q = eqx.tree_at(lambda d: d.q, only_q, direction.q)
    assert jnp.all(second_tangent(problem, only_q) == 0)


def test_a_tie_takes_the_side_on_which_the_row_is_free(rng):
    """Rows on a bound with w = 0. Where [A] moves them inwards it is the derivative on that side."""
    N = p_matrices(rng, BATCH, N_ROWS)
    x = np.where(
        rng.random((BATCH, N_ROWS)) < 0.5, rng.choice([-1.0, 1.0], (BATCH, N_ROWS)), rng.uniform(-0.9, 0.9)
    )
    tie = np.zeros((BATCH, N_ROWS), bool)
    tie[:, 0], x[:, 0] = True, 1.0
    pushed = ~tie & (np.abs(x) == 1)  # held with a margin
    q = -np.einsum("bij,bj->bi", N, x) - np.where(pushed, 0.5 * x, 0.0)
    problem = as_problem(N, q, -np.ones_like(x), np.ones_like(x))
    np.testing.assert_allclose(solve_all(problem), x, atol=1e-12)

    direction = jax.tree.map(jnp.zeros_like, problem)
    direction = eqx.tree_at(lambda d: d.q, direction, jnp.asarray(rng.normal(size=x.shape)))
    x_dot = tangent(problem, direction)
    inwards = -jnp.sign(x_dot[:, :1])  # of the tied row at its upper bound
    direction = eqx.tree_at(lambda d: d.q, direction, inwards * direction.q)
    step = 1e-7
    one_sided = (solve_all(shifted(problem, direction, step)) - solve_all(problem)) / step
    np.testing.assert_allclose(inwards * x_dot, one_sided, rtol=1e-5, atol=1e-6)
    outwards = (solve_all(shifted(problem, direction, -step)) - solve_all(problem)) / -step
    np.testing.assert_allclose(outwards[:, 0], 0.0, atol=1e-6)  # the other side: held


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
    entry = next(entry for entry in FILE["problems"] if entry["name"] == "lcp_CPS_1")  # N = [[1, 1], [1, 1]]
    problem = as_problem(entry["M"], entry["q"], np.zeros(2), np.full(2, np.inf))
    gradient = jax.jit(jax.grad(lambda p: solve_mlcp(p).x.sum()))(problem)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


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
    difference = [(value(q + d) - value(q - d)) / 2e-6 for d in 1e-6 * jnp.eye(2)]
    gradient = jax.jit(jax.grad(cost))(q)
    np.testing.assert_allclose(gradient, difference, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(cost))(q), gradient, rtol=1e-12)


def test_the_guess_has_no_derivative():
    problem = as_problem(np.eye(2), [0.5, -3.0], -np.ones(2), np.ones(2))
    gradient = jax.jit(jax.grad(lambda guess: solve_mlcp(problem, guess=guess).x.sum()))(
        jnp.asarray([0.3, 0.2])
    )
    np.testing.assert_array_equal(gradient, 0.0)


@pytest.mark.parametrize("solver", [Lemke(), ProjectedGaussSeidel()], ids=["lemke", "projected"])
def test_status_and_counts_come_along(solver):
    problem = as_problem(np.eye(2), [0.5, -3.0], -np.ones(2), np.ones(2))

    def cost(problem):
        solution = solve_mlcp(problem, solver)
        return jnp.sum(solution.x), solution

    (value, solution), _ = jax.jit(jax.value_and_grad(cost, has_aux=True))(problem)
    assert value == 0.5
    assert solution.result == MLCP_RESULTS.successful
    assert solution.pivots == (0 if isinstance(solver, Lemke) else solver.sweeps)
