"""Triangles and spans of factors, readings taken into them: single and in batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spookax.math.sqrt_gaussian import InformationRows, combine, condition, lower, spanning, upper

close = np.testing.assert_allclose
SIZES = [(4, 3), (9, 6), (3, 6), (36, 24), (60, 40)]


def textbook(M: np.ndarray) -> np.ndarray:
    """R of LAPACK's Householder reflections in double precision, with a diagonal that is not negative."""
    k, n = M.shape
    R = np.linalg.qr(np.concatenate([M, np.zeros((max(0, n - k), n))]), mode="r")
    return np.where(np.diag(R) < 0, -1.0, 1.0)[:, None] * R


def nearly_dependent(rng, rows: int, n: int, apart: float) -> np.ndarray:
    """Columns of lengths of many magnitudes, the last of them a sum of the others but for a part `apart` of it."""
    M = np.linalg.qr(rng.normal(size=(rows, n)))[0] + 0.1 * rng.normal(size=(rows, n)) / rows
    M[:, -1] = M[:, :-1] @ rng.normal(size=n - 1) + apart * M[:, -1]
    return M * 10.0 ** rng.uniform(-5, 5, size=n)


@pytest.mark.parametrize(("rows", "n"), SIZES, ids=str)
def test_a_triangle_is_the_one_of_reflections_whatever_the_blocks(rows, n, rng):
    M = rng.normal(size=(rows, n)) * 10.0 ** rng.uniform(-3, 3, size=n)
    S, length = M.T, np.linalg.norm(M, axis=0)
    triangles = jax.jit(upper)(M), jax.jit(upper)(M[:1], M[1:2], M[2:]), jax.jit(lower)(S[:, :2], S[:, 2:]).T
    for R in triangles:
        close(R / length[None], textbook(M) / length, atol=1e-11)
        assert np.all(np.tril(R, -1) == 0)
        assert np.all(np.diag(R) >= 0)


@pytest.mark.parametrize("apart", 10.0 ** -np.arange(0.0, 15.0, 1.0))
def test_a_direction_that_is_nearly_missing_keeps_its_digits(apart, rng):
    """Every pivot to ten digits, or to what reflections can tell; the squares alone have none left below 1e-8."""
    M = nearly_dependent(rng, 30, 12, apart)
    pivots = np.diag(textbook(M))
    close(np.diag(jax.jit(upper)(M)), pivots, rtol=max(1e-10, 1e-13 / apart))
    if apart < 0.5e-8:
        try:
            last = np.linalg.cholesky(M.T @ M)[-1, -1]
        except np.linalg.LinAlgError:
            last = np.nan
        assert not 0.9 < last / pivots[-1] < 1.1


def test_both_ways_to_a_triangle_meet(rng):
    """Where one takes over from the other nothing jumps: the pivot follows what is left of the column."""
    M = np.linalg.qr(rng.normal(size=(20, 8)))[0]
    direction = M[:, -1].copy()
    triangle = jax.jit(upper)
    for apart in np.geomspace(5e-3, 5e-2, 25):  # its square crosses eps^(1/4) here
        M[:, -1] = M[:, 0] + apart * direction
        close(triangle(M)[-1, -1], apart, rtol=1e-11)


def test_pivots_that_hide_how_singular_a_matrix_is(rng):
    """Kahan's triangle: no pivot is small, the matrix nearly singular. The Gaussian is right all the same."""
    n, angle = 30, 0.9
    K = np.sin(angle) ** np.arange(n)[:, None] * (np.eye(n) - np.cos(angle) * np.triu(np.ones((n, n)), 1))
    M = np.linalg.qr(rng.normal(size=(40, n)))[0] @ K
    R = jax.jit(upper)(M)
    length = np.linalg.norm(M, axis=0)
    close((R.T @ R) / np.outer(length, length), (M.T @ M) / np.outer(length, length), atol=1e-14)


def test_singular_triangles(rng):
    """Of no rank at all, with columns that vanish or repeat, and with fewer rows than columns."""
    M = rng.normal(size=(14, 9))
    for broken in (0.0 * M, M * (np.arange(9) != 4), M[:, [0, 1, 2, 3, 0, 5, 6, 7, 0]], M[:4], M[:1]):
        R = jax.jit(upper)(broken)
        close(R.T @ R, broken.T @ broken, atol=1e-13)
        assert np.all(np.tril(R, -1) == 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_squares_that_leave_the_range_of_numbers(dtype, rng):
    """Columns whose squares underflow or overflow are triangularised without them."""
    info, M = np.finfo(dtype), rng.normal(size=(12, 7))
    for size in (info.tiny**0.5, info.tiny**0.75, info.max**0.5, info.max**0.75):
        R = jax.jit(upper)(jnp.asarray(M * np.array([1, 1, 1, size, 1, size, 1], dtype), dtype))
        scaled = np.asarray(R, float) / np.array([1, 1, 1, size, 1, size, 1], float)
        close(scaled.T @ scaled, M.T @ M, atol=100 * float(info.eps))


def _of_a_triangle(t, M, toward, b):
    R = upper(M + t * toward)
    return jnp.sum(jnp.log(jnp.diagonal(R))) + jnp.sum(jnp.sin(R @ b))


# numbers are arguments: all cases call these
_value, _forward, _reverse = (
    jax.jit(of) for of in (_of_a_triangle, jax.jacfwd(_of_a_triangle), jax.grad(_of_a_triangle))
)


@pytest.mark.parametrize("apart", [1.0, 1e-2, 1e-3, 1e-5])
def test_derivatives_on_both_ways_to_a_triangle(apart, rng):
    """Forward and reverse against central differences, of a number that every entry of R has a part in."""
    M, toward = nearly_dependent(rng, 14, 7, apart), rng.normal(size=(14, 7))
    M /= np.linalg.norm(M, axis=0)
    case = M, apart * toward, rng.normal(size=7)
    eps = 1e-5
    central = (_value(eps, *case) - _value(-eps, *case)) / (2 * eps)
    close(_forward(0.0, *case), central, rtol=1e-6)
    close(_reverse(0.0, *case), central, rtol=1e-6)


def test_batches_of_triangles_are_the_single_ones(rng):
    """Regular and singular ones side by side, each what it is alone."""
    many = np.stack([nearly_dependent(rng, 20, 8, apart) for apart in (1.0, 1e-2, 1e-4, 1e-8, 0.0)])
    many /= np.linalg.norm(many, axis=1, keepdims=True)
    batch, alone = jax.jit(jax.vmap(upper))(many), np.stack([jax.jit(upper)(M) for M in many])
    close(batch, alone, atol=1e-11)
    first = many[0, :9]
    close(
        jax.jit(jax.vmap(upper, (None, 0)))(first, many),
        np.stack([textbook(np.concatenate([first, M])) for M in many]),
        atol=1e-11,
    )


@pytest.mark.parametrize("n", [3, 12])
@pytest.mark.parametrize("count", [0, 1, 4, 5, 11])
def test_readings_in_turn_are_the_readings_at_once(n, count, rng):
    """Mean, covariance, likelihood and whiteness against covariances; readings left out are rows of zeros."""
    m, S = rng.normal(size=n), rng.normal(size=(n, n + 2))
    H, y = rng.normal(size=(count, n)), rng.normal(size=count)
    H[2:3], y[2:3] = 0.0, 0.0
    found = jax.jit(condition)(m, S, H, y)
    P = S @ S.T
    F = H @ P @ H.T + np.eye(count)
    K = np.linalg.solve(F, H @ P).T
    close(found.mean, m + K @ (y - H @ m), atol=1e-10)
    close(found.factor @ found.factor.T, P - K @ H @ P, atol=1e-10)
    close(found.log_det, np.linalg.slogdet(F)[1], atol=1e-10)
    close(found.innovation, np.linalg.solve(np.linalg.cholesky(F), y - H @ m), atol=1e-10)


@pytest.mark.parametrize("count", [2, 4, 6])
def test_precise_readings_of_the_same_thing(count, rng):
    """1e8 times better than what was known: the covariance of the readings has no digits for their differences."""
    n, precise = 6, 1e8
    h = rng.normal(size=n)
    found = jax.jit(condition)(np.zeros(n), np.eye(n), np.tile(precise * h, (count, 1)), np.full(count, precise))
    known = np.linalg.norm(h @ found.factor)
    close(known, 1 / (precise * np.sqrt(count)), rtol=1e-6)
    close(h @ found.mean, 1.0, rtol=1e-14)
    close(found.innovation[1:], 0.0, atol=1e-6)


@pytest.mark.parametrize("weak", [1.0, 1e-4, 1e-9, 0.0])
def test_a_gaussian_and_rows_on_the_same_unknowns(weak, rng):
    """As least squares by reflections; the rows fit without rest, and may hardly see one of the directions."""
    n = 8
    m, S, R = rng.normal(size=n), np.tril(rng.normal(size=(n, n))) + 3 * np.eye(n), np.triu(rng.normal(size=(n, n)))
    R[-1] *= weak
    truth = rng.normal(size=n)
    mean, factor = jax.jit(combine)(m, S, InformationRows(1e5 * R, 1e5 * R @ truth))
    rows = np.concatenate([np.eye(n), 1e5 * R @ S])
    xi = np.linalg.lstsq(rows, np.concatenate([np.zeros(n), 1e5 * R @ (truth - m)]))[0]
    close(mean, m + S @ xi, atol=1e-9)
    pseudo = S @ np.linalg.pinv(rows, rcond=1e-15)
    close(factor @ factor.T, pseudo @ pseudo.T, rtol=1e-8, atol=1e-12)


def test_columns_that_have_decayed_to_nothing_do_no_harm(rng):
    """Directions that a constraint damps shrink until their squares have no digits left, and further."""
    M = rng.normal(size=(9, 6))
    triangle = jax.jit(jax.vmap(upper))
    for tiny in 10.0 ** np.arange(-140.0, -323.0, -2.0):
        scaled = M * [tiny, 0.3 * tiny, tiny, 1, 1, 1]
        R = triangle(jnp.asarray(scaled)[None])[0]
        close(R.T @ R, scaled.T @ scaled, atol=1e-12)


def test_the_span_of_a_projection(rng):
    """Of an oblique one, and of one that gives way a little; a projection of rank zero spans nothing."""
    A, B = rng.normal(size=(2, 7, 3))
    P, span = A @ np.linalg.solve(B.T @ A, B.T), jax.jit(spanning, static_argnums=1)
    for M in (P, P + 1e-6 * rng.normal(size=(7, 7))):
        T = np.asarray(span(M, 0.01))
        close(T.T @ T, np.diag([1, 1, 1, 0, 0, 0, 0]), atol=1e-12)
        close(T @ T.T @ A, A, atol=1e-4)
    assert not np.any(span(np.zeros((4, 4)), 0.01))
