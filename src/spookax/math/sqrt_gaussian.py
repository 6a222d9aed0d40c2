"""Gaussians by square roots of their covariance: N(m, S S'), with S of any number of columns.

Nothing here inverts a covariance or subtracts two of them, so S may have any rank (a hard constraint, a noise that
moves only half of the state, a prior that knows nothing). Readings are whitened rows: H x + n = y with n ~ N(0, 1).
Everything is plain array code with forward and reverse derivatives; batches by `jax.vmap`.

**Source:** Bierman, *Factorization methods for discrete sequential estimation* (1977), chapters 4 to 6; Potter's update
in chapter 5.3 of it, square-root information smoothing in chapter 10.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from .._typing import Array, Float, Scalar
from . import small

_UNROLLED = 4


def _fast_alone(plain: Callable[..., Array], fast: Callable[..., Array]) -> Callable[..., Array]:
    """`fast` where a function is called for itself, `plain` in batches and for derivatives; both give the same.

    A LAPACK call takes a quarter of the time of a loop, but batches of such calls inside scans can hang on few cores.
    """
    alone = custom_vmap(fast)

    @alone.def_vmap
    def _in_batches(size: int, batched: list[bool], *args: Array) -> tuple[Array, bool]:
        axes = [0 if there else None for there in batched]
        return jax.vmap(plain, axes, axis_size=size)(*args), True

    @jax.custom_jvp
    def function(*args: Array) -> Array:
        return alone(*args)

    @function.defjvp
    def _derivative(primals, tangents):
        return function(*primals), jax.jvp(plain, primals, tangents)[1]

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
    if n <= _UNROLLED:
        for j in range(n):
            M = reflect(j, M)
    else:
        M = jax.lax.fori_loop(0, n, reflect, M)
    return _signed(jnp.triu(M[:n]))


def _signed(R: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """With a diagonal that is not negative, so that all ways to R give the same."""
    return jnp.where(jnp.diagonal(R) < 0, -1.0, 1.0)[:, None] * R


_upper = _fast_alone(_reflected, lambda M: _signed(jnp.linalg.qr(M, mode="r")))
_solve_upper = _fast_alone(small.solve_upper, lambda U, B: jax.scipy.linalg.solve_triangular(U, B))


_solve_transposed = _fast_alone(
    lambda U, B: small.solve_lower(U.T, B), lambda U, B: jax.scipy.linalg.solve_triangular(U, B, trans=1)
)


def upper(M: Float[Array, "k n"]) -> Float[Array, "n n"]:
    """Upper triangular R with R' R = M' M and no negative number on its diagonal; what rows say about n unknowns.

    A column that vanishes leaves a zero on the diagonal: the rank of M does not matter.
    """
    k, n = M.shape
    if k < n:
        M = jnp.concatenate([M, jnp.zeros((n - k, n), dtype=M.dtype)])
    return _reflected(M) if n <= _UNROLLED else _upper(M)


def _solved(U: Float[Array, "n n"], B: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """X with U X = B for an upper triangular U."""
    return small.solve_upper(U, B) if U.shape[0] <= _UNROLLED else _solve_upper(U, B)


def _solved_transposed(U: Float[Array, "n n"], B: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """X with U' X = B for an upper triangular U."""
    return small.solve_lower(U.T, B) if U.shape[0] <= _UNROLLED else _solve_transposed(U, B)


def lower(S: Float[Array, "n k"]) -> Float[Array, "n n"]:
    """Lower triangular L with L L' = S S': the same Gaussian with as many columns as rows."""
    return upper(S.T).T


class Conditioned(NamedTuple):
    """A Gaussian after some readings, and what the readings said."""

    mean: Float[Array, " n"]
    factor: Float[Array, "n k"]
    innovation: Float[Array, " c"]  # of every reading given those before it, in its own standard deviation: N(0, 1)
    log_det: Scalar  # log-determinant of the readings' covariance


def condition(
    mean: Float[Array, " n"], factor: Float[Array, "n k"], H: Float[Array, "c n"], y: Float[Array, " c"]
) -> Conditioned:
    """The Gaussian given H x + n = y, n ~ N(0, 1), one reading after the other (Potter); a zero row says nothing."""

    def one(carry, row):
        mean, factor = carry
        h, y = row
        phi = h @ factor
        side = factor @ phi
        F = 1.0 + phi @ phi
        root = jnp.sqrt(F)
        e = y - h @ mean
        factor = factor - (side / (F + root))[:, None] * phi[None, :]
        return (mean + side * (e / F), factor), (e / root, jnp.log(F))

    if H.shape[0] <= _UNROLLED:
        carry, found = (mean, factor), []
        for h, value in zip(H, y, strict=True):
            carry, out = one(carry, (h, value))
            found.append(out)
        if not found:
            return Conditioned(mean, factor, y, jnp.zeros((), dtype=mean.dtype))
        innovation, log_F = (jnp.stack(a) for a in zip(*found, strict=True))
    else:
        carry, (innovation, log_F) = jax.lax.scan(one, (mean, factor), (H, y))
    return Conditioned(*carry, innovation, jnp.sum(log_F))


class Rows(NamedTuple):
    """What is known of x as whitened rows: R x + n = y, n ~ N(0, 1); R upper triangular, of any rank."""

    R: Float[Array, "n n"]
    y: Float[Array, " n"]


def nothing(n: int, dtype: jnp.dtype) -> Rows:
    """Rows that say nothing."""
    return Rows(jnp.zeros((n, n), dtype=dtype), jnp.zeros(n, dtype=dtype))


class Affine(NamedTuple):
    """One step of a linear model: readings H x + J w + n = y, then x+ = A x + B w + c; w and n ~ N(0, 1)."""

    A: Float[Array, "n n"]
    B: Float[Array, "n q"]
    c: Float[Array, " n"]
    H: Float[Array, "r n"]
    J: Float[Array, "r q"]
    y: Float[Array, " r"]


def spoken(step: Affine, after: Rows) -> Rows:
    """What the readings of a step and everything after it say about (w, x), from what `after` says about x+."""
    n, q = step.B.shape
    from_after = jnp.column_stack([after.R @ step.B, after.R @ step.A, after.y - after.R @ step.c])
    both = upper(jnp.concatenate([from_after, jnp.column_stack([step.J, step.H, step.y])]))
    return Rows(both[: n + q, : n + q], both[: n + q, n + q])


def backward(step: Affine, after: Rows) -> Rows:
    """What the readings of a step and everything after it say about x: its noise is eliminated from its prior, the
    readings and the rows on x+ by one triangularisation.
    """
    n, q = step.B.shape
    prior = jnp.column_stack([jnp.eye(q, dtype=step.B.dtype), jnp.zeros((q, n + 1), dtype=step.B.dtype)])
    from_after = after.R @ jnp.column_stack([step.B, step.A, -step.c])
    from_after = from_after.at[:, -1].add(after.y)
    left = upper(jnp.concatenate([prior, from_after, jnp.column_stack([step.J, step.H, step.y])]))[q : q + n, q:]
    return Rows(left[:, :n], left[:, n])


def combine(mean: Float[Array, " n"], factor: Float[Array, "n k"], rows: Rows) -> tuple[Array, Float[Array, "n k"]]:
    """Mean and factor of a Gaussian given rows on the same unknowns, by one triangularisation."""
    k = factor.shape[1]
    seen = jnp.column_stack([rows.R @ factor, rows.y - rows.R @ mean])
    prior = jnp.column_stack([jnp.eye(k, dtype=mean.dtype), jnp.zeros(k, dtype=mean.dtype)])
    U = upper(jnp.concatenate([prior, seen]))[:k]
    # with x = mean + factor xi:  U xi = the last column, and the new factor is that of xi through the old one
    smoothed = _solved_transposed(U[:, :k], factor.T).T
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
    return mean, lower(jnp.concatenate([inside, (root[:, None] * (means - mean)).T], axis=1))


def gain_of(cross: Float[Array, "c k"], factor: Float[Array, "n k"]) -> Float[Array, "c n"]:
    """A with A S = `cross`, of least norm where S has not full rank (damped least squares, at rounding level)."""
    n = factor.shape[0]
    size = jnp.sqrt(jnp.sum(factor**2, axis=1))
    scale = jnp.where(size > 0, 1.0 / jnp.where(size > 0, size, 1.0), 0.0)
    damping = jnp.sqrt(jnp.finfo(factor.dtype).eps) * jnp.eye(n, dtype=factor.dtype)
    zero = jnp.zeros((n, cross.shape[0]), dtype=factor.dtype)
    system = jnp.column_stack([(scale[:, None] * factor).T, cross.T])
    U = upper(jnp.concatenate([system, jnp.column_stack([damping, zero])]))[:n]
    return _solved(U[:, :n], U[:, n:]).T * scale


def spanning(M: Float[Array, "n k"], least: float) -> Float[Array, "n n"]:
    """Orthonormal columns with the span of those of M, the strongest first, then zeros: Gram-Schmidt with pivoting.

    What is left of a column of M counts as nothing when it is shorter than `least`.
    """
    n, k = M.shape

    def one(M: Array, _: None) -> tuple[Array, Array]:
        length = jnp.sqrt(jnp.sum(M**2, axis=0))
        strongest = jnp.argmax(length) == jnp.arange(k)
        there = jnp.max(length) > least
        q = jnp.where(there, M @ strongest / jnp.where(there, jnp.max(length), 1.0), 0.0)
        return M - q[:, None] * (q @ M), q

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
    prior = jnp.column_stack([jnp.eye(k, dtype=U.dtype), jnp.zeros((k, n + 1), dtype=U.dtype)])
    T = upper(jnp.concatenate([prior, jnp.column_stack([G, H, y])]))
    V = T[:k, :k]
    solved = _solved(V, jnp.concatenate([T[:k, k:], jnp.eye(k, dtype=U.dtype)], axis=1))
    back = solved[:, : n + 1]  # xi = back[:, n] - back[:, :n] x + V^-1 n
    rest = T[k : k + n, k:]
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
    rows = upper(jnp.column_stack([jnp.concatenate([first.R, R]), jnp.concatenate([first.y, y])]))
    n = A.shape[0]
    U = lower(jnp.concatenate([second.A @ U, second.U], axis=1))
    return Segment(second.A @ A, second.A @ b + second.b, U, rows[:n, :n], rows[:n, n])


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
) -> tuple[Float[Array, "steps_1 n"], Float[Array, "steps_1 n n"], Rows]:
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
    rows = Rows(jnp.concatenate([back.R, zero[None]]), jnp.concatenate([back.y, jnp.zeros((1, n), dtype=mean.dtype)]))
    return ahead.b, ahead.U, rows
