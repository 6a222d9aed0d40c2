"""Bordered least squares against dense linear algebra in numpy."""

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spookax.math import bordered
from spookax.math.bordered import BorderedFactor, BorderedProblem, BorderedRows

pytestmark = pytest.mark.timeout(300)

# one program a case each: called as they are they compile every operation and every loop
back_substitute, sensitivity = jax.jit(bordered.back_substitute), jax.jit(bordered.sensitivity)
eliminate, reduced = jax.jit(bordered.eliminate), jax.jit(bordered.reduced)
covariance, border_covariance = jax.jit(bordered.covariance), jax.jit(bordered.border_covariance)


@dataclasses.dataclass(frozen=True)
class Case:
    n: int
    b: int
    p: int
    m1: int
    m2: int
    m0: int
    prior: int = 2
    damping: float = 0.0
    missing: float = 0.0  # share of the sensor rows that are zeroed


CASES = [
    Case(n=6, b=3, p=2, m1=3, m2=2, m0=6),
    Case(n=5, b=2, p=3, m1=3, m2=2, m0=3, damping=0.3),
    Case(n=12, b=2, p=4, m1=2, m2=4, m0=4, missing=0.4),
    Case(n=7, b=4, p=2, m1=3, m2=1, m0=0, prior=0, damping=0.5, missing=0.5),
    Case(n=4, b=3, p=0, m1=4, m2=2, m0=6, prior=0),
    Case(n=1, b=2, p=1, m1=0, m2=4, m0=3),
    Case(n=2, b=1, p=2, m1=2, m2=1, m0=2),
]


def random_problem(case: Case, seed: int = 0, draw=None) -> BorderedProblem:
    rng = np.random.default_rng(seed)
    draw = draw or (lambda rng, *shape: rng.normal(size=shape))

    def rows(*lead, blocks):
        shapes = ((*lead, blocks, case.b), (*lead, case.p), lead)
        return [draw(rng, *shape) for shape in shapes]

    triples = rows(case.n - 1, case.m1, blocks=3)
    pairs = rows(case.n, case.m2, blocks=2)
    initial = rows(case.m0, blocks=2)
    present = rng.uniform(size=(case.n, case.m2)) >= case.missing
    pairs = [array * present.reshape(present.shape + (1,) * (array.ndim - 2)) for array in pairs]
    damping = case.damping * rng.uniform(0.5, 2.0, size=(case.n + 1, case.b))
    prior = draw(rng, case.prior, case.p), draw(rng, case.prior)
    arrays = (BorderedRows(*triples), BorderedRows(*pairs), BorderedRows(*initial), damping, *prior)
    return jax.device_put(BorderedProblem(*arrays))


def dense(problem: BorderedProblem) -> tuple[np.ndarray, np.ndarray, int]:
    """`(A, c, number of state unknowns)` of the cost |A [d; dchi] + c|^2."""
    problem = jax.tree.map(np.asarray, problem)
    blocks, b = problem.damping.shape
    nx, p = blocks * b, problem.prior_border.shape[1]
    stack, constant = [], []

    def add(states, border, residual, k):
        """One row on the blocks k, k + 1, ..."""
        row = np.zeros(nx + p)
        row[k * b : k * b + states.size] = np.ravel(states)
        row[nx:] = border
        stack.append(row)
        constant.append(float(residual))

    for rows in (problem.triples, problem.pairs):
        for k in range(rows.residual.shape[0]):
            for i in range(rows.residual.shape[1]):
                add(rows.states[k, i], rows.border[k, i], rows.residual[k, i], k)
    for i in range(problem.initial.residual.size):
        add(problem.initial.states[i], problem.initial.border[i], problem.initial.residual[i], 0)
    for i in range(problem.prior_residual.size):
        add(np.zeros(0), problem.prior_border[i], problem.prior_residual[i], 0)
    damping = np.hstack([np.diag(np.ravel(problem.damping)), np.zeros((nx, p))])
    A = np.vstack([np.array(stack), damping])
    return A, np.concatenate([constant, np.zeros(nx)]), nx


@jax.jit
def solve(problem: BorderedProblem) -> tuple[BorderedFactor, jax.Array, jax.Array]:
    factor = eliminate(problem)
    dchi = bordered.free_border(factor)
    return factor, back_substitute(factor, dchi), dchi


def case_id(case: Case) -> str:
    return "-".join(f"{name}{value}" for name, value in dataclasses.asdict(case).items() if value)


every_case = pytest.mark.parametrize("case", CASES, ids=case_id)


@every_case
def test_joint_solution_is_dense_least_squares(case):
    problem = random_problem(case)
    A, c, _ = dense(problem)
    assert np.linalg.matrix_rank(A) == A.shape[1], "draw leaves an unknown free: nothing to compare"
    z = np.linalg.lstsq(A, -c, rcond=None)[0]
    factor, d, dchi = solve(problem)
    np.testing.assert_allclose(np.concatenate([np.ravel(d), dchi]), z, rtol=1e-9, atol=1e-9 * np.abs(z).max())
    np.testing.assert_allclose(factor.unexplained, np.sum((A @ z + c) ** 2), rtol=1e-9)


@every_case
def test_border_problem_is_what_remains_of_the_dense_one(case, rng):
    """At any border: the states, the cost, its quadratic model and the derivative of the states."""
    problem = random_problem(case)
    A, c, nx = dense(problem)
    factor = jax.tree.map(np.asarray, solve(problem)[0])
    S, s = reduced(factor)

    dchi = rng.normal(size=case.p)
    d = np.linalg.lstsq(A[:, :nx], -(c + A[:, nx:] @ dchi), rcond=None)[0]
    cost = np.sum((A @ np.concatenate([d, dchi]) + c) ** 2)
    np.testing.assert_allclose(np.ravel(back_substitute(factor, dchi)), d, rtol=1e-9, atol=1e-9)
    explained = factor.border_triangle @ dchi + factor.border_residual
    np.testing.assert_allclose(factor.unexplained + np.sum(explained**2), cost, rtol=1e-9)

    x, border = A[:, :nx], A[:, nx:]
    projected = border - x @ np.linalg.lstsq(x, border, rcond=None)[0]
    np.testing.assert_allclose(S, projected.T @ projected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(s, projected.T @ c, rtol=1e-9, atol=1e-9)
    slope = -np.linalg.lstsq(x, border, rcond=None)[0].reshape(case.n + 1, case.b, case.p)
    np.testing.assert_allclose(sensitivity(factor), slope, rtol=1e-9, atol=1e-9)


@every_case
def test_logdet_is_half_that_of_the_hessian_of_the_states(case):
    A, _, nx = dense(random_problem(case))
    factor = solve(random_problem(case))[0]
    sign, logdet = np.linalg.slogdet(A[:, :nx].T @ A[:, :nx])
    assert sign == 1
    np.testing.assert_allclose(jax.jit(lambda factor: factor.logdet)(factor), logdet / 2, rtol=1e-9, atol=1e-9)


@every_case
@pytest.mark.parametrize("border", ["free", "known"])
def test_covariance_blocks_are_those_of_the_dense_inverse(case, border):
    problem = random_problem(case)
    A, _, nx = dense(problem)
    if border == "known":
        A = A[:, :nx]
    P = np.linalg.inv(A.T @ A)
    factor = solve(problem)[0]
    cov_chi = border_covariance(factor) if border == "free" else None
    states = jax.tree.map(np.asarray, covariance(factor, cov_chi))
    b, scale = case.b, np.abs(P).max()
    if cov_chi is not None:
        np.testing.assert_allclose(cov_chi, P[nx:, nx:], rtol=1e-9, atol=1e-9 * scale)
    for k in range(case.n + 1):
        here, after = slice(k * b, (k + 1) * b), slice((k + 1) * b, (k + 2) * b)
        np.testing.assert_allclose(states.blocks[k], P[here, here], rtol=1e-9, atol=1e-9 * scale)
        if k < case.n:
            np.testing.assert_allclose(states.pairs[k], P[here, after], rtol=1e-9, atol=1e-9 * scale)


def weighted(rows: BorderedRows, weight: np.ndarray) -> BorderedRows:
    rows = jax.tree.map(np.asarray, rows)
    return BorderedRows(rows.states * weight[..., None, None], rows.border * weight[..., None], rows.residual * weight)


@pytest.mark.parametrize("heavy", ["triples", "pairs", "any"])
@pytest.mark.parametrize("weight", [1e6, 1e12])
def test_rows_of_very_different_weight_keep_their_digits(heavy, weight, rng):
    """The rows are whole numbers that hold exactly at a known solution: no reference has to be trusted.

    The normal equations of the same rows lose the light ones; that is what the square root is for.
    """
    case = Case(n=8, b=3, p=2, m1=3, m2=2, m0=6)

    def whole_numbers(rng, *shape):
        return rng.integers(-9, 10, size=shape).astype(float)

    z = rng.integers(-9, 10, size=(case.n + 1) * case.b + case.p).astype(float)
    d, dchi = z[: -case.p].reshape(case.n + 1, case.b), z[-case.p :]

    def consistent(rows, blocks):
        states = np.einsum("...msb,...sb->...m", rows.states, blocks)
        return BorderedRows(rows.states, rows.border, jnp.asarray(-(states + rows.border @ dchi)))

    problem = random_problem(case, draw=whole_numbers)
    rows = {
        "triples": consistent(problem.triples, np.stack([d[:-2], d[1:-1], d[2:]], axis=1)),
        "pairs": consistent(problem.pairs, np.stack([d[:-1], d[1:]], axis=1)),
        "initial": consistent(problem.initial, d[:2]),
    }
    for name in rows if heavy == "any" else [heavy]:
        shape = rows[name].residual.shape
        is_heavy = rng.uniform(size=shape) < 0.5 if heavy == "any" else np.ones(shape, bool)
        rows[name] = weighted(rows[name], np.where(is_heavy, weight, 1.0))
    prior = problem.prior_border
    problem = BorderedProblem(
        **rows, damping=problem.damping, prior_border=prior, prior_residual=jnp.asarray(-(prior @ dchi))
    )

    A, c, _ = dense(problem)
    assert np.all(A @ z + c == 0), "not consistent in exact arithmetic"
    factor, d_found, dchi_found = solve(problem)
    found = np.concatenate([np.ravel(d_found), dchi_found])
    normal = np.linalg.lstsq(A.T @ A, -A.T @ c, rcond=None)[0]
    assert np.abs(found - z).max() < 1e-9 * np.abs(z).max()
    assert np.abs(normal - z).max() > 1e-6 * np.abs(z).max()
    assert np.all(np.tril(factor.border_triangle, -1) == 0), "rounding errors of the heavy rows left in R_p"


def test_an_unknown_that_no_row_determines_is_named_by_its_pivot():
    problem = random_problem(CASES[0])

    def blind(rows, k, block):
        states = np.array(rows.states)
        states[k, :, block, 1] = 0.0
        return dataclasses.replace(rows, states=states)

    k = np.array([1, 2, 3])  # d_3[1] is read by these triples and the last two pairs
    triples, pairs = blind(problem.triples, k, 3 - k), blind(problem.pairs, k[1:], 3 - k[1:])
    problem = dataclasses.replace(problem, triples=triples, pairs=pairs)
    factor = eliminate(problem)
    assert factor.logdet == -np.inf
    assert np.argwhere(factor.pivots == 0).tolist() == [[3, 1]]
    damping = np.array(problem.damping)
    damping[3, 1] = 0.1
    damped = dataclasses.replace(problem, damping=damping)
    _, d, _ = solve(damped)
    assert np.all(np.isfinite(d))
    assert d[3, 1] == 0


def test_a_batch_is_its_members():
    problems = [random_problem(CASES[1], seed) for seed in range(3)]
    _, d, dchi = jax.jit(jax.vmap(solve))(jax.tree.map(lambda *leaves: np.stack(leaves), *problems))
    for i, problem in enumerate(problems):
        _, d_i, dchi_i = solve(problem)
        np.testing.assert_allclose(d[i], d_i, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(dchi[i], dchi_i, rtol=1e-9, atol=1e-12)


def test_shapes_that_do_not_belong_together_are_named():
    problem = random_problem(CASES[0])
    short = dataclasses.replace(problem, damping=problem.damping[:-1])
    with pytest.raises(ValueError, match=r"triples: .* 6 blocks of 3 unknowns .* border of 2"):
        eliminate(short)
    with pytest.raises(ValueError, match="prior: 2 rows"):
        eliminate(dataclasses.replace(problem, prior_residual=problem.prior_residual[:1]))
    with pytest.raises(ValueError, match="at least two state blocks"):
        eliminate(dataclasses.replace(problem, damping=problem.damping[:1]))


@pytest.mark.slow
def test_cost_is_linear_in_time_steps():
    """Four times the steps, less than six times the processor time of a solution with its covariance."""

    def solution(problem):
        factor, d, _ = solve(problem)
        return d, covariance(factor, border_covariance(factor))

    times, programs = {}, {}
    for n in (500, 2000):
        problem = random_problem(Case(n=n, b=6, p=4, m1=6, m2=2, m0=12, damping=0.1))
        program = jax.jit(solution).lower(problem).compile()
        jax.block_until_ready(program(problem))
        programs[n], times[n] = (program, problem), []
    for _ in range(8):  # alternating, so that a busy machine slows both
        for n, (program, problem) in programs.items():
            start = time.process_time()
            jax.block_until_ready(program(problem))
            times[n].append(time.process_time() - start)
    assert min(times[2000]) < 6 * min(times[500])
