"""Gaussians by square roots of their covariance: N(m, S S'), with S of any number of columns.

Nothing here inverts a covariance or subtracts two of them, so S may have any rank (a hard constraint, a noise that
moves only half of the state, a prior that knows nothing). Readings are whitened rows: H x + n = y with n ~ N(0, 1).
Everything is plain array code with forward and reverse derivatives; batches by `jax.vmap`.

**Source:** Bierman, *Factorization methods for discrete sequential estimation* (1977), chapters 4 to 6; Potter's update
in chapter 5.3 of it, square-root information smoothing in chapter 10.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .._typing import Array, Float, Scalar
from . import small

_UNROLLED = 4


def upper(M: Float[Array, "k n"]) -> Float[Array, "n n"]:
    """Upper triangular R with R' R = M' M, by Householder reflections; what the rows of M say about n unknowns.

    A column that vanishes leaves a zero on the diagonal: the rank of M does not matter.
    """
    k, n = M.shape
    if k < n:
        M = jnp.concatenate([M, jnp.zeros((n - k, n), dtype=M.dtype)])
    rows = jnp.arange(M.shape[0])

    def reflect(j, M):
        x = jnp.where(rows >= j, M[:, j], 0.0)
        square = jnp.sum(x * x)
        there = square > 0
        length = jnp.where(there, jnp.sqrt(jnp.where(there, square, 1.0)), 0.0)
        pivot = M[j, j]
        v = x + jnp.where(rows == j, jnp.where(pivot < 0, -length, length), 0.0)
        scale = jnp.where(there, 1.0 / jnp.where(there, length * (length + jnp.abs(pivot)), 1.0), 0.0)
        return M - v[:, None] * (scale * (v @ M))[None, :]

    if n <= _UNROLLED:
        for j in range(n):
            M = reflect(j, M)
    else:
        M = jax.lax.fori_loop(0, n, reflect, M)
    return jnp.triu(M[:n])


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


def backward(step: Affine, after: Rows) -> Rows:
    """What this step's readings and everything after them say about x, from what `after` says about x+.

    The noise of the step is eliminated from its prior, the readings and the rows on x+ by one triangularisation.
    """
    n, q = step.B.shape
    eye, zero = jnp.eye(q, dtype=step.B.dtype), jnp.zeros((q, n + 1), dtype=step.B.dtype)
    from_after = jnp.column_stack([after.R @ step.B, after.R @ step.A, after.y - after.R @ step.c])
    stacked = jnp.concatenate(
        [jnp.column_stack([eye, zero]), from_after, jnp.column_stack([step.J, step.H, step.y])], axis=0
    )
    left = upper(stacked)[q : q + n, q:]
    return Rows(left[:, :n], left[:, n])


def combine(mean: Float[Array, " n"], factor: Float[Array, "n k"], rows: Rows) -> tuple[Array, Float[Array, "n k"]]:
    """Mean and factor of a Gaussian given rows on the same unknowns, by one triangularisation."""
    k = factor.shape[1]
    seen = jnp.column_stack([rows.R @ factor, rows.y - rows.R @ mean])
    prior = jnp.column_stack([jnp.eye(k, dtype=mean.dtype), jnp.zeros(k, dtype=mean.dtype)])
    U = upper(jnp.concatenate([prior, seen]))[:k]
    # with x = mean + factor xi:  U xi = the last column, and the new factor is that of xi through the old one
    xi = small.solve_upper(U[:, :k], U[:, k])
    return mean + factor @ xi, small.solve_lower(U[:, :k].T, factor.T).T


def gain_of(cross: Float[Array, "c k"], factor: Float[Array, "n k"]) -> Float[Array, "c n"]:
    """A with A S = `cross`, of least norm where S has not full rank (damped least squares, at rounding level)."""
    n = factor.shape[0]
    size = jnp.sqrt(jnp.sum(factor**2, axis=1))
    scale = jnp.where(size > 0, 1.0 / jnp.where(size > 0, size, 1.0), 0.0)
    damping = jnp.sqrt(jnp.finfo(factor.dtype).eps) * jnp.eye(n, dtype=factor.dtype)
    zero = jnp.zeros((n, cross.shape[0]), dtype=factor.dtype)
    system = jnp.column_stack([(scale[:, None] * factor).T, cross.T])
    U = upper(jnp.concatenate([system, jnp.column_stack([damping, zero])]))[:n]
    return small.solve_upper(U[:, :n], U[:, n:]).T * scale
