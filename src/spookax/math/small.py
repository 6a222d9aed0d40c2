"""Dense linear algebra for small matrices inside `jit`, `scan` and `vmap`, without LAPACK.

XLA on a CPU with few cores can hang in programs that combine batched LAPACK calls with scans, and a LAPACK
call costs more than the arithmetic when n is about 1 to 50. Everything here is plain array code: unrolled for
n <= 2 and a loop of fixed length above (measured: unrolling further is slower to compile and no faster to
run).

`A` is always `(n, n)` and `B` is `(n,)` or `(n, m)`; batches by `jax.vmap`. Every function but `lu` has a first and
second derivative, forward and reverse. Nothing raises: a singular matrix gives infinite or NaN values, as in
LAPACK.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

_UNROLLED = 2
_Carry = TypeVar("_Carry")


def _for_each(n: int, body: Callable[[Any, _Carry], _Carry], carry: _Carry, *, backwards: bool = False) -> _Carry:
    """`carry = body(k, carry)` for k = 0..n-1, or n-1..0."""
    if n <= _UNROLLED:
        for k in range(n):
            carry = body(n - 1 - k if backwards else k, carry)
        return carry
    return jax.lax.fori_loop(0, n, lambda k, c: body(n - 1 - k if backwards else k, c), carry)


def _below(T: Array, k: Any) -> Array:
    """Column k of `T` below the diagonal, zero elsewhere."""
    return jnp.where(jnp.arange(T.shape[0]) > k, T[:, k], 0.0)


def _above(T: Array, k: Any) -> Array:
    """Column k of `T` above the diagonal, zero elsewhere."""
    return jnp.where(jnp.arange(T.shape[0]) < k, T[:, k], 0.0)


def _substitute(T: Array, B: Array, *, lower: bool, unit_diagonal: bool) -> Array:
    """Forward (lower) or backward (upper) substitution with the triangle of `T`, reading only that."""
    columns = B if B.ndim == 2 else B[:, None]
    if T.shape[0] <= _UNROLLED:
        return _substitute_unrolled(T, columns, lower=lower, unit_diagonal=unit_diagonal).reshape(B.shape)
    rows = jnp.arange(T.shape[0])
    off_diagonal = _below if lower else _above

    def eliminate(k, X):
        row = X[k] if unit_diagonal else X[k] / T[k, k]
        return jnp.where((rows == k)[:, None], row[None, :], X - off_diagonal(T, k)[:, None] * row[None, :])

    return _for_each(T.shape[0], eliminate, columns, backwards=not lower).reshape(B.shape)


def _substitute_unrolled(T: Array, B: Float[Array, "n m"], *, lower: bool, unit_diagonal: bool) -> Float[Array, "n m"]:
    """`_substitute`, row by row."""
    n = T.shape[0]
    found: dict[int, Array] = {}
    for k in range(n) if lower else reversed(range(n)):
        row = jax.lax.slice_in_dim(B, k, k + 1)
        for j, x in found.items():
            row = row - _entry(T, k, j) * x
        found[k] = row if unit_diagonal else row / _entry(T, k, k)
    return jnp.concatenate([found[k] for k in range(n)]) if found else B


def _entry(T: Array, i: int, j: int) -> Float[Array, "1 1"]:
    return jax.lax.slice(T, (i, j), (i + 1, j + 1))


def _triangular_solve(T: Array, B: Array, *, lower: bool, unit_diagonal: bool) -> Array:
    T = jnp.tril(T) if lower else jnp.triu(T)
    if unit_diagonal:
        T = jnp.where(jnp.eye(T.shape[0], dtype=bool), 1.0, T)

    def substitute(_, b):
        return _substitute(jax.lax.stop_gradient(T), b, lower=lower, unit_diagonal=unit_diagonal)

    def substitute_transposed(_, b):
        return _substitute(jax.lax.stop_gradient(T).T, b, lower=not lower, unit_diagonal=unit_diagonal)

    return jax.lax.custom_linear_solve(lambda x: T @ x, B, substitute, substitute_transposed)


def solve_lower(L: Float[Array, "n n"], B: Array, *, unit_diagonal: bool = False) -> Array:
    """`X` with `tril(L) X = B`. With `unit_diagonal` the diagonal is taken as one and not read."""
    return _triangular_solve(L, B, lower=True, unit_diagonal=unit_diagonal)


def solve_upper(U: Float[Array, "n n"], B: Array, *, unit_diagonal: bool = False) -> Array:
    """`X` with `triu(U) X = B`. With `unit_diagonal` the diagonal is taken as one and not read."""
    return _triangular_solve(U, B, lower=False, unit_diagonal=unit_diagonal)


class LU(eqx.Module):
    """Factors of `A[permutation] = L U`, to be used for many right-hand sides.

    Without a derivative: `solve_with` takes it from `A` itself.
    """

    factors: Float[Array, "n n"]
    """U on and above the diagonal, L without its unit diagonal below."""
    permutation: Int[Array, " n"]

    def solve(self, B: Array) -> Array:
        """`X` with `A X = B`."""
        Y = _substitute(self.factors, B[self.permutation], lower=True, unit_diagonal=True)
        return _substitute(self.factors, Y, lower=False, unit_diagonal=False)

    def solve_transposed(self, B: Array) -> Array:
        """`X` with `A^T X = B`."""
        Y = _substitute(self.factors.T, B, lower=True, unit_diagonal=False)
        Y = _substitute(self.factors.T, Y, lower=False, unit_diagonal=True)
        return jnp.zeros_like(Y).at[self.permutation].set(Y)


def lu(A: Float[Array, "n n"], *, pivot: bool = True, smallest_pivot: float = 0.0) -> LU:
    """Gaussian elimination.

    **Arguments:**

    - `pivot`: exchange rows so that the largest entry of each column is the pivot. Without it the cost is
      about a third and rounding does not depend on the units of rows and columns; safe for positive definite
      matrices, also non-symmetric ones with a moderate skew part.
    - `smallest_pivot`: a pivot of smaller size is replaced by this number, so that a singular matrix gives
      large finite solutions instead of infinite ones. In the units of `A`: scale it first. 0 leaves every
      pivot.
    """
    n = A.shape[0]
    if n <= _UNROLLED:
        return _lu_unrolled(A, pivot, smallest_pivot)
    rows = jnp.arange(n)

    def eliminate(k, carry):
        A, permutation = carry
        if pivot:
            p = jnp.argmax(jnp.where(rows >= k, jnp.abs(A[:, k]), -1.0))
            exchanged = jnp.where(rows == k, p, jnp.where(rows == p, k, rows))
            A, permutation = A[exchanged], permutation[exchanged]
        if smallest_pivot > 0.0:
            A = jnp.where(
                (jnp.abs(A) < smallest_pivot) & (rows[:, None] == k) & (rows[None, :] == k), smallest_pivot, A
            )
        multipliers = _below(A, k) / A[k, k]
        A = A - multipliers[:, None] * jnp.where(rows > k, A[k], 0.0)[None, :]
        return jnp.where((rows[:, None] > k) & (rows[None, :] == k), multipliers[:, None], A), permutation

    return LU(*_for_each(n, eliminate, (A, rows)))


def _lu_unrolled(A: Float[Array, "n n"], pivot: bool, smallest_pivot: float) -> LU:
    """`lu` of at most two rows."""
    n = A.shape[0]
    permutation = jnp.asarray(np.arange(n))

    def guarded(row: Array, k: int) -> Array:
        if smallest_pivot <= 0.0:
            return row
        return jnp.where((np.arange(n) == k)[None] & (jnp.abs(row) < smallest_pivot), smallest_pivot, row)

    if n < 2:
        return LU(guarded(A, 0), permutation)
    if pivot:
        exchange = jnp.abs(_entry(A, 1, 0)) > jnp.abs(_entry(A, 0, 0))
        A, permutation = jnp.where(exchange, A[::-1], A), jnp.where(exchange[0], permutation[::-1], permutation)
    first = guarded(A[:1], 0)
    multiplier = _entry(A, 1, 0) / _entry(first, 0, 0)
    second = jnp.where((np.arange(n) == 0)[None], multiplier, A[1:] - multiplier * first)
    return LU(jnp.concatenate([first, guarded(second, 1)]), permutation)


def diagonal(A: Float[Array, "n n"]) -> Float[Array, " n"]:
    """The diagonal, by few operations."""
    n = A.shape[0]
    return jax.lax.slice(A.reshape(-1), (0,), (n * n,), (n + 1,))


def solve_with(factor: LU, A: Float[Array, "n n"], B: Array) -> Array:
    """`X` with `A X = B`, from factors of the same `A`; derivatives, forward and reverse, use them too."""
    factor = jax.lax.stop_gradient(factor)
    return jax.lax.custom_linear_solve(
        lambda x: A @ x, B, lambda _, b: factor.solve(b), lambda _, b: factor.solve_transposed(b)
    )


def solve(A: Float[Array, "n n"], B: Array, *, pivot: bool = True, smallest_pivot: float = 0.0) -> Array:
    """`X` with `A X = B`; arguments as in `lu`."""
    return solve_with(lu(jax.lax.stop_gradient(A), pivot=pivot, smallest_pivot=smallest_pivot), A, B)


@jax.custom_jvp
def log_abs_det(A: Float[Array, "n n"]) -> Float[Array, ""]:
    """`log |det A|`; -inf for a singular matrix."""
    return jnp.sum(jnp.log(jnp.abs(diagonal(lu(A).factors))))


@log_abs_det.defjvp
def _log_abs_det_jvp(primals, tangents):
    # (log |det A|)' = tr(A^-1 A').
    (A,), (A_dot,) = primals, tangents
    return log_abs_det(A), jnp.trace(solve(A, A_dot))


@jax.custom_jvp
def cholesky(A: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Lower `L` with `L L^T = A`; NaN if `A` is not positive definite. Reads the lower triangle only."""
    n = A.shape[0]
    rows = jnp.arange(n)

    def eliminate(k, A):
        column = jnp.where(rows >= k, A[:, k], 0.0) / jnp.sqrt(A[k, k])
        rest = A - jnp.where(rows > k, column, 0.0)[:, None] * jnp.where(rows > k, column, 0.0)[None, :]
        return jnp.where(rows[None, :] == k, column[:, None], rest)

    return jnp.tril(_for_each(n, eliminate, A))


@cholesky.defjvp
def _cholesky_jvp(primals, tangents):
    # A = L L^T. With ' for a tangent:  L^-1 A' L^-T = L^-1 L' + (L^-1 L')^T,  and L^-1 L' is lower
    # triangular, so it is the lower triangle of the left side with half its diagonal.
    (A,), (A_dot,) = primals, tangents
    L = cholesky(A)
    A_dot = jnp.tril(A_dot) + jnp.tril(A_dot, -1).T
    S = solve_lower(L, solve_lower(L, A_dot).T)
    half_diagonal = jnp.tril(S) - 0.5 * jnp.diag(diagonal(S))
    return L, L @ half_diagonal


def cholesky_solve(L: Float[Array, "n n"], B: Array) -> Array:
    """`X` with `L L^T X = B`."""
    return solve_upper(L.T, solve_lower(L, B))
