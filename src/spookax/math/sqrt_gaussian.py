"""Gaussians by square roots of their covariance: N(m, S S'), with S of any number of columns.

Nothing here inverts a covariance or subtracts two of them, so S may have any rank (a hard constraint, a noise that
moves only half of the state, a prior that knows nothing). Readings are whitened rows: H x + n = y with n ~ N(0, 1).
Everything is plain array code with forward and reverse derivatives; batches by `jax.vmap`.

**Source:** Bierman, *Factorization methods for discrete sequential estimation* (1977), chapters 4 to 6; Potter's update
in chapter 5.3 of it, square-root information smoothing in chapter 10.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from .._typing import Array, Float, Scalar
from . import small

UNROLLED = 4  # rows or columns that are worked through one by one


def fast_alone(
    plain: Callable[..., Any], fast: Callable[..., Any], smooth: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """`fast` where a function is called for itself, `plain` in batches, `smooth` (or `plain`) for derivatives; all give
    the same but for rounding.

    A LAPACK call takes a quarter of the time of a loop, but batches of such calls inside scans can hang on few cores.
    """
    alone = custom_vmap(fast)

    @alone.def_vmap
    def _in_batches(size: int, batched: Any, *args: Any) -> tuple[Any, Any]:
        axes = jax.tree.map(lambda there: 0 if there else None, batched)
        found = jax.vmap(plain, tuple(axes), axis_size=size)(*args)
        return found, jax.tree.map(lambda _: True, found)

    @jax.custom_jvp
    def function(*args: Any) -> Any:
        return alone(*args)

    @function.defjvp
    def _derivative(primals, tangents):
        return function(*primals), jax.jvp(smooth or plain, primals, tangents)[1]

    return function


def _reflected(M: Float[Array, "k n"]) -> Float[Array, "n n"]:
    """`upper` in plain array code, by Householder reflections."""
    n = M.shape[1]
    rows = jnp.arange(M.shape[0])
    info = jnp.finfo(M.dtype)
    nothing = info.tiny / info.eps  # squares below it have lost their digits; what decays for long comes by

    def reflect(j, M):
        x = jnp.where(rows >= j, M[:, j], 0.0)
        square = jnp.sum(x * x)
        there = square > nothing
        length = jnp.where(there, jnp.sqrt(jnp.where(there, square, 1.0)), 0.0)
        pivot = M[j, j]
        v = x + jnp.where(rows == j, jnp.where(pivot < 0, -length, length), 0.0)
        scale = jnp.where(there, 1.0 / jnp.where(there, length * (length + jnp.abs(pivot)), 1.0), 0.0)
        return M - v[:, None] * (scale * (v @ M))[None, :]

    if n == 1:  # a length: nothing is left to reflect
        square = jnp.sum(M * M)
        return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)[None, None]
    if n <= UNROLLED:
        for j in range(n):
            M = reflect(j, M)
    else:
        M = jax.lax.fori_loop(0, n, reflect, M)
    return _signed(jnp.triu(M[:n]))


def _signed(R: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """With a diagonal that is not negative, so that all ways to R give the same."""
    return jnp.where(small.diagonal(R) < 0, -1.0, 1.0)[:, None] * R


def _stacked(*M: Float[Array, "_ n"]) -> Float[Array, "k n"]:
    """Rows of several blocks, at least as many as columns."""
    n = M[0].shape[1]
    missing = n - sum(block.shape[0] for block in M)
    return jnp.concatenate([*M, jnp.zeros((missing, n), dtype=M[0].dtype)] if missing > 0 else M)


def _by_lapack(M: Float[Array, "k n"]) -> Float[Array, "n n"]:
    """`upper` by LAPACK's reflections."""
    return _signed(jnp.linalg.qr(M, mode="r"))


def _by_squares(*M: Float[Array, "_ n"], beside: bool = False, turned: bool = False) -> Float[Array, "..."]:
    """`upper` (`upper_beside`) by the Cholesky factor of M' M in a third of the time, as long as that keeps three
    quarters of the digits; by reflections where it does not. `turned`: its transpose.

    Rounding moves an entry of M' M by eps times the lengths of its two columns, and what a column of length d_j adds to
    those before it has the length R_jj: its square is known to eps (d_j / R_jj)^2 of itself.

    **Source:** Demmel, *On floating point errors in Cholesky* (1989); Higham, *Accuracy and stability of numerical
    algorithms* (2002), theorems 10.5 and 10.7.
    """
    n = M[0].shape[1]
    rows = n - 1 if beside else n
    P = sum((block.T @ block for block in M), jnp.zeros((n, n), dtype=M[0].dtype))
    if beside:  # nobody reads the last row, and its pivot would vanish where all readings agree
        last = jnp.arange(n) == n - 1
        P = P + jnp.where(last[:, None] & last[None], 1.0 + P[-1, -1], 0.0)
    L = jax.lax.linalg.cholesky(P, symmetrize_input=False)  # NaN where a pivot is not positive
    square, info = small.diagonal(P), jnp.finfo(P.dtype)
    enough = (small.diagonal(L) ** 2 > info.eps**0.25 * square) & (square > info.tiny / info.eps)

    def by_squares() -> Array:  # the zeros are there already, but LAPACK's order of entries is so changed in passing
        return jnp.tril(L)[:, :rows] if turned else jnp.triu(L.T)[:rows]

    def by_reflections() -> Array:
        R = _by_lapack(_stacked(*M))[:rows]
        return R.T if turned else R

    return jax.lax.cond(jnp.all(enough), by_squares, by_reflections)


_upper = fast_alone(lambda *M: _reflected(_stacked(*M)), _by_squares)
_lower = fast_alone(lambda *M: _reflected(_stacked(*M)).T, partial(_by_squares, turned=True))
_upper_beside = fast_alone(lambda *M: _reflected(_stacked(*M))[:-1], partial(_by_squares, beside=True))
_upper_singular = fast_alone(_reflected, _by_lapack)
_solve_upper = fast_alone(small.solve_upper, lambda U, B: jax.scipy.linalg.solve_triangular(U, B))
_divide_by_upper = fast_alone(
    lambda B, U: small.solve_lower(U.T, B.T).T, lambda B, U: jax.lax.linalg.triangular_solve(U, B)
)


def upper(*M: Float[Array, "_ n"]) -> Float[Array, "n n"]:
    """Upper triangular R with R' R = M' M and no negative number on its diagonal; what rows say about n unknowns.

    M: one or several blocks of rows. A column that vanishes leaves a zero on the diagonal: the rank does not matter.
    """
    return _reflected(_stacked(*M)) if M[0].shape[1] <= UNROLLED else _upper(*M)


def upper_beside(*M: Float[Array, "_ n_1"]) -> Float[Array, "n n_1"]:
    """[R r] with R' R = A' A and R' r = A' b for rows M = [A b]: what these say about n unknowns, R as in `upper`."""
    return _reflected(_stacked(*M))[:-1] if M[0].shape[1] <= UNROLLED else _upper_beside(*M)


def _solved(U: Float[Array, "n n"], B: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """X with U X = B for an upper triangular U."""
    return small.solve_upper(U, B) if U.shape[0] <= UNROLLED else _solve_upper(U, B)


def divided(B: Float[Array, "m n"], U: Float[Array, "n n"]) -> Float[Array, "m n"]:
    """X with X U = B for an upper triangular U."""
    return small.solve_lower(U.T, B.T).T if U.shape[0] <= UNROLLED else _divide_by_upper(B, U)


def lower(*S: Float[Array, "n _"]) -> Float[Array, "n n"]:
    """Lower triangular L with L L' = S S': the same Gaussian with as many columns as rows.

    S: one or several blocks of columns.
    """
    if S[0].shape[0] <= UNROLLED:  # blocks put together before they are turned: a fifth of the time
        return upper(jnp.concatenate(S, axis=1).T).T
    return _lower(*(block.T for block in S))


class Conditioned(NamedTuple):
    """A Gaussian after some readings, and what the readings said."""

    mean: Float[Array, " n"]
    factor: Float[Array, "n k"]
    innovation: Float[Array, " c"]  # of every reading given those before it, in its own standard deviation: N(0, 1)
    log_det: Scalar  # log-determinant of the readings' covariance
    gain: Float[Array, "groups n r"]  # of the innovations of some readings (a group) after the other
    said: Float[Array, "groups r n"]  # their rows H, in units of the innovations


def condition(
    mean: Float[Array, " n"], factor: Float[Array, "n k"], H: Float[Array, "c n"], y: Float[Array, " c"]
) -> Conditioned:
    """The Gaussian given H x + n = y, n ~ N(0, 1), one reading after the other (Potter); a zero row says nothing.

    The readings stand below the unknowns as further ones, H x, so that one product serves both.
    """
    c, n = H.shape
    if c == 0:
        zero = jnp.zeros((0, n, 0), dtype=mean.dtype)
        return Conditioned(mean, factor, y, jnp.zeros((), dtype=mean.dtype), zero, jnp.swapaxes(zero, 1, 2))

    def some(carry, readings):
        mean, factor = carry
        H, y = readings
        m, S, found = jnp.concatenate([mean, H @ mean]), jnp.concatenate([factor, H @ factor]), []
        for i in range(n, n + H.shape[0]):
            phi = S[i]
            side = S @ phi
            F = 1.0 + side[i]
            root = jnp.sqrt(F)
            e = y[i - n] - m[i]
            m, S = m + side * (e / F), S - (side / (F + root))[:, None] * phi[None, :]
            known = sum((gain[i] * said for _, _, gain, said in found), jnp.zeros_like(H[0]))
            found.append((e / root, jnp.log(F), side / root, (H[i - n] - known) / root))
        innovation, log_F, gain, said = (jnp.stack(a) for a in zip(*found, strict=True))
        return (m[:n], S[:n]), (innovation, log_F, gain[:, :n].T, said)

    if c <= UNROLLED:
        carry, told = some((mean, factor), (H, y))
        told = jax.tree.map(lambda a: a[None], told)
    else:  # some at a time; those that fill up the last ones say nothing
        filled = -(-c // UNROLLED) * UNROLLED
        H = jnp.concatenate([H, jnp.zeros((filled - c, n), dtype=H.dtype)]).reshape(-1, UNROLLED, n)
        y = jnp.concatenate([y, jnp.zeros(filled - c, dtype=y.dtype)]).reshape(-1, UNROLLED)
        carry, told = jax.lax.scan(some, (mean, factor), (H, y))
    innovation, log_F, gain, said = told
    return Conditioned(*carry, innovation.reshape(-1)[:c], jnp.sum(log_F), gain, said)


class InformationRows(NamedTuple):
    """What is known of x as whitened rows: R x + n = y, n ~ N(0, 1); R upper triangular, of any rank."""

    R: Float[Array, "n n"]
    y: Float[Array, " n"]


def nothing(n: int, dtype: jnp.dtype) -> InformationRows:
    """Rows that say nothing."""
    return InformationRows(jnp.zeros((n, n), dtype=dtype), jnp.zeros(n, dtype=dtype))


class Affine(NamedTuple):
    """One step of a linear model: readings H x + J w + n = y, then x+ = A x + B w + c; w and n ~ N(0, 1)."""

    A: Float[Array, "n n"]
    B: Float[Array, "n q"]
    c: Float[Array, " n"]
    H: Float[Array, "r n"]
    J: Float[Array, "r q"]
    y: Float[Array, " r"]


def backward_with_noise(step: Affine, after: InformationRows) -> InformationRows:
    """What the readings of a step and everything after it say about (w, x), from what `after` says about x+."""
    n, q = step.B.shape
    from_after = jnp.column_stack([after.R @ step.B, after.R @ step.A, after.y - after.R @ step.c])
    both = upper_beside(from_after, jnp.column_stack([step.J, step.H, step.y]))
    return InformationRows(both[:, : n + q], both[:, n + q])


def backward(step: Affine, after: InformationRows) -> InformationRows:
    """What the readings of a step and everything after it say about x: its noise is eliminated from its prior, the
    readings and the rows on x+ by one triangularisation.
    """
    n, q = step.B.shape
    from_after = after.R @ jnp.concatenate([step.B, step.A], axis=1)
    said = jnp.concatenate([from_after, jnp.concatenate([step.J, step.H], axis=1)])
    seen = jnp.column_stack([said, jnp.concatenate([after.y - after.R @ step.c, step.y])])
    left = upper_beside(jnp.eye(q, q + n + 1, dtype=step.B.dtype), seen)[q:, q:]
    return InformationRows(left[:, :n], left[:, n])


def combine(
    mean: Float[Array, " n"], factor: Float[Array, "n k"], rows: InformationRows
) -> tuple[Array, Float[Array, "n k"]]:
    """Mean and factor of a Gaussian given rows on the same unknowns, by one triangularisation."""
    k = factor.shape[1]
    seen = jnp.column_stack([rows.R @ factor, rows.y - rows.R @ mean])
    U = upper_beside(jnp.eye(k, k + 1, dtype=mean.dtype), seen)
    # with x = mean + factor xi:  U xi = the last column, and the new factor is that of xi through the old one
    smoothed = divided(factor, U[:, :k])
    return mean + smoothed @ U[:, k], smoothed


def merged(
    weights: Float[Array, " c"], means: Float[Array, "c n"], factors: Float[Array, "c n k"]
) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """Mean and factor of a mixture of c Gaussians; weights sum to one, any of them may be zero.

    The covariance is that of the components and that of their means: all columns side by side, triangularised.
    """
    mean = weights @ means
    there = weights > 0
    if mean.shape[0] == 1:  # a sum of squares needs no columns
        square = weights @ (jnp.sum(factors**2, axis=(1, 2)) + (means[:, 0] - mean) ** 2)
        return mean, jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)[None, None]
    root = jnp.where(there, jnp.sqrt(jnp.where(there, weights, 1.0)), 0.0)
    inside = jnp.moveaxis(root[:, None, None] * factors, 0, 1).reshape(mean.shape[0], -1)
    return mean, lower(inside, (root[:, None] * (means - mean[None])).T)


def gain_of(cross: Float[Array, "c k"], factor: Float[Array, "n k"]) -> Float[Array, "c n"]:
    """A with A S = `cross`, of least norm where S has not full rank (damped least squares, at rounding level)."""
    n = factor.shape[0]
    size = jnp.sqrt(jnp.sum(factor**2, axis=1))
    scale = jnp.where(size > 0, 1.0 / jnp.where(size > 0, size, 1.0), 0.0)
    damping = jnp.sqrt(jnp.finfo(factor.dtype).eps) * jnp.eye(n, dtype=factor.dtype)
    zero = jnp.zeros((n, cross.shape[0]), dtype=factor.dtype)
    system = jnp.column_stack([(scale[:, None] * factor).T, cross.T])
    U = _upper_singular(jnp.concatenate([system, jnp.column_stack([damping, zero])]))[:n]
    return _solved(U[:, :n], U[:, n:]).T * scale[None]


def spanning(M: Float[Array, "n k"], least: float) -> Float[Array, "n n"]:
    """Orthonormal columns with the span of those of M, the strongest first, then zeros: Gram-Schmidt with pivoting.

    What is left of a column of M counts as nothing when it is shorter than `least`.
    """
    n, k = M.shape

    def one(M: Array, _: None) -> tuple[Array, Array]:
        length = jnp.sqrt(jnp.sum(M**2, axis=0))
        strongest = (jnp.argmax(length) == jnp.arange(k)).astype(M.dtype)
        there = jnp.max(length) > least
        q = jnp.where(there, M @ strongest / jnp.where(there, jnp.max(length), 1.0), 0.0)
        return M - q[:, None] * (q @ M)[None], q

    return jax.lax.scan(one, M, None, length=n)[1].T


# ---------------------------------------------------------------------------------------------------------------
# all steps at once: segments of a chain, joined in any order


class Segment(NamedTuple):
    """A stretch of a chain: x_end = A x + b + U xi with xi ~ N(0, 1), given readings that say R x + n = y of x."""

    A: Float[Array, "n n"]
    b: Float[Array, " n"]
    U: Float[Array, "n n"]
    R: Float[Array, "n n"]
    y: Float[Array, " n"]


def _seen_through(
    A: Array, b: Array, U: Float[Array, "n k"], G: Float[Array, "r k"], H: Float[Array, "r n"], y: Float[Array, " r"]
) -> tuple[Array, Array, Float[Array, "n k"], Float[Array, "r n"], Float[Array, " r"]]:
    """A, b and U of x_end = A x + b + U xi given readings G xi + H x + n = y, and what these say of x."""
    k, n = U.shape[1], A.shape[1]
    T = upper_beside(jnp.eye(k, k + n + 1, dtype=U.dtype), jnp.column_stack([G, H, y]))
    V = T[:k, :k]
    solved = _solved(V, jnp.concatenate([T[:k, k:], jnp.eye(k, dtype=U.dtype)], axis=1))
    back = solved[:, : n + 1]  # xi = back[:, n] - back[:, :n] x + V^-1 n
    rest = T[k:, k:]
    return A - U @ back[:, :n], b + U @ back[:, n], U @ solved[:, n + 1 :], rest[:, :n], rest[:, n]


def segment(step: Affine) -> Segment:
    """One step as a segment."""
    A, b, U, R, y = _seen_through(step.A, step.c, step.B, step.J, step.H, step.y)
    return Segment(A, b, lower(U), R, y)


def joined(first: Segment, second: Segment) -> Segment:
    """Two segments, one after the other; associative.

    **Source:** Särkkä and García-Fernández (2021); in factors, Yaghoobi et al. (2022), derived anew for rows.
    """
    G, H, y = second.R @ first.U, second.R @ first.A, second.y - second.R @ first.b
    A, b, U, R, y = _seen_through(first.A, first.b, first.U, G, H, y)
    rows = upper_beside(jnp.column_stack([first.R, first.y]), jnp.column_stack([R, y]))
    n = A.shape[0]
    U = lower(second.A @ U, second.U)
    return Segment(second.A @ A, second.A @ b + second.b, U, rows[:, :n], rows[:, n])


def _from_the_start(parts: Segment, count: int, *, to_the_end: bool = False) -> Segment:
    """Every segment joined with all before it; `to_the_end`: with all after it.

    In rounds of doubling length, all alike: more joins than an associative scan needs, but one of them to compile.
    """
    at = jnp.arange(count)

    def round_(r: Array, parts: Segment) -> Segment:
        other = at + 2**r if to_the_end else at - 2**r
        there = (other >= 0) & (other < count)
        others = jax.tree.map(lambda a: a[jnp.clip(other, 0, count - 1)], parts)
        longer = jax.vmap(joined)(*((parts, others) if to_the_end else (others, parts)))
        return jax.tree.map(lambda a, b: jnp.where(there.reshape(-1, *(1,) * (a.ndim - 1)), a, b), longer, parts)

    return jax.lax.fori_loop(0, (count - 1).bit_length(), round_, parts)


def smoothed_in_parallel(
    steps: Affine, mean: Float[Array, " n"], factor: Float[Array, "n n"]
) -> tuple[Float[Array, "steps_1 n"], Float[Array, "steps_1 n n"], InformationRows]:
    """Predicted means and factors of the states at the start of every step and at the end, and what the readings from
    there on say about them: the whole recording in a number of rounds that grows with the logarithm of its length.
    """
    n, count = mean.shape[0], steps.c.shape[0]
    zero = jnp.zeros((n, n), dtype=mean.dtype)
    start = Segment(zero, mean, factor, zero, jnp.zeros_like(mean))
    parts = jax.vmap(segment)(steps)
    chain = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, parts)
    ahead = _from_the_start(chain, count + 1)
    back = _from_the_start(parts, count, to_the_end=True)
    rows = InformationRows(
        jnp.concatenate([back.R, zero[None]]), jnp.concatenate([back.y, jnp.zeros((1, n), dtype=mean.dtype)])
    )
    return ahead.b, ahead.U, rows
