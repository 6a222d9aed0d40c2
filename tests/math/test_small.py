"""Small dense linear algebra against numpy's LAPACK."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from spookax.math import small

SIZES = [1, 2, 3, 12]

# one program each: called as they are they compile every operation and every loop
solve = jax.jit(small.solve, static_argnames=("pivot", "smallest_pivot"))
solve_lower = jax.jit(small.solve_lower, static_argnames="unit_diagonal")
solve_upper, log_abs_det, lu = jax.jit(small.solve_upper), jax.jit(small.log_abs_det), jax.jit(small.lu)
cholesky, cholesky_solve, solve_with = jax.jit(small.cholesky), jax.jit(small.cholesky_solve), jax.jit(small.solve_with)


@pytest.fixture(params=SIZES, ids=lambda n: f"n={n}")
def general(request, rng):
    """A general matrix and right-hand sides."""
    n = request.param
    return rng.normal(size=(n, n)), rng.normal(size=(n, 3))


@pytest.fixture(params=SIZES, ids=lambda n: f"n={n}")
def definite(request, rng):
    """A positive definite matrix and right-hand sides."""
    n = request.param
    A = rng.normal(size=(n, n))
    return A @ A.T + np.eye(n), rng.normal(size=(n, 3))


def test_solve(general):
    A, B = general
    np.testing.assert_allclose(solve(A, B), np.linalg.solve(A, B), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(solve(A, B[:, 0]), np.linalg.solve(A, B[:, 0]), rtol=1e-10, atol=1e-11)


def test_rows_are_exchanged_where_needed():
    A = jnp.asarray([[0.0, 2.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 3.0]])
    b = jnp.asarray([1.0, 2.0, 3.0])
    np.testing.assert_allclose(solve(A, b), [2.0, 0.0, 1.0], atol=1e-15)
    assert not np.isfinite(solve(A, b, pivot=False)).all()


def test_a_definite_matrix_needs_no_exchange(definite):
    A, B = definite
    skew = np.triu(A, 1) - np.triu(A, 1).T
    for M in (A, A + skew):
        np.testing.assert_allclose(solve(M, B, pivot=False), np.linalg.solve(M, B), rtol=1e-10, atol=1e-11)


def test_one_factorisation_serves_many_solves(general):
    A, B = general
    factor = lu(A)
    X = jax.jit(small.LU.solve)(factor, B)
    np.testing.assert_allclose(X, np.linalg.solve(A, B), rtol=1e-10, atol=1e-11)
    transposed = jax.jit(small.LU.solve_transposed)(factor, B)
    np.testing.assert_allclose(transposed, np.linalg.solve(A.T, B), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(solve_with(factor, A, B), X, rtol=0)


def test_determinant(general):
    A, _ = general
    np.testing.assert_allclose(log_abs_det(A), np.linalg.slogdet(A)[1], rtol=1e-11, atol=1e-13)


def test_triangles(definite):
    A, B = definite
    L, U = np.tril(A), np.triu(A)
    np.testing.assert_allclose(solve_lower(A, B), np.linalg.solve(L, B), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(solve_upper(A, B), np.linalg.solve(U, B), rtol=1e-9, atol=1e-11)
    unit = np.tril(A, -1) + np.eye(A.shape[0])
    x = solve_lower(A, B[:, 0], unit_diagonal=True)
    np.testing.assert_allclose(unit @ x, B[:, 0], rtol=1e-9, atol=1e-9)


def test_cholesky(definite):
    A, B = definite
    L = cholesky(A)
    np.testing.assert_allclose(L, np.linalg.cholesky(A), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(cholesky(np.tril(A)), L, rtol=0)
    np.testing.assert_allclose(cholesky_solve(L, B), np.linalg.solve(A, B), rtol=1e-10, atol=1e-11)


def test_cholesky_of_an_indefinite_matrix_is_nan():
    assert np.isnan(np.asarray(cholesky(jnp.asarray([[1.0, 2.0], [2.0, 1.0]])))[1, 1])


FUNCTIONS = {
    "solve": small.solve,
    "solve without exchange": lambda A, B: small.solve(A, B[:, 0], pivot=False),
    "solve_lower": small.solve_lower,
    "cholesky": lambda A, B: small.cholesky(A) @ B,
    "determinant": lambda A, B: small.log_abs_det(A) * B[0],
}


@pytest.mark.parametrize("n", [2, 3], ids=["unrolled", "loop"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives(name, n, rng):
    A = rng.normal(size=(n, n))
    at = jnp.asarray(A @ A.T + np.eye(n)), jnp.asarray(rng.normal(size=(n, 2)))
    check_grads(jax.jit(FUNCTIONS[name]), at, order=n - 1, modes=("fwd", "rev"), rtol=1e-3, atol=1e-4)


def test_gradient_of_the_log_determinant_is_the_inverse(definite):
    A, _ = definite
    gradient = jax.jit(jax.grad(lambda A: 2 * jnp.sum(jnp.log(jnp.diagonal(small.cholesky(A))))))(A)
    inverse = np.linalg.inv(A)  # only the lower triangle is read: off the diagonal it counts twice
    np.testing.assert_allclose(gradient, np.tril(2 * inverse, -1) + np.diag(np.diag(inverse)), rtol=1e-8, atol=1e-12)


def test_a_singular_matrix_gives_finite_numbers_on_request():
    A, b = jnp.ones((3, 3)), jnp.asarray([1.0, 2.0, 3.0])
    assert not np.isfinite(solve(A, b)).all()
    assert np.isfinite(solve(A, b, smallest_pivot=1e-12)).all()
    gradient = jax.jit(jax.grad(lambda A: small.solve(A, b, smallest_pivot=1e-12).sum()))(A)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("n", [2, 6])
def test_a_batch_is_a_loop(n, rng):
    A, B = rng.normal(size=(7, n, n)), rng.normal(size=(7, n))
    batch = jax.jit(jax.vmap(small.solve))(A, B)
    np.testing.assert_allclose(batch, [solve(a, b) for a, b in zip(A, B, strict=True)], rtol=1e-11)


@pytest.mark.parametrize("n", [2, 6])
def test_no_library_is_called(n):
    """LAPACK inside scans can hang on machines with few cores."""

    def cost(A, b):
        return jnp.sum(small.solve(small.cholesky(A), b) ** 2) + small.log_abs_det(A)

    batch = jax.vmap(jax.value_and_grad(cost, argnums=(0, 1)))
    assert "custom_call" not in jax.jit(batch).lower(jnp.ones((3, n, n)), jnp.ones((3, n))).as_text()


def test_float32_stays_float32():
    A, b = jnp.eye(3, dtype=jnp.float32), jnp.ones(3, jnp.float32)
    assert solve(A, b).dtype == cholesky(A).dtype == jnp.float32
