"""LU of a matrix without zeros to use, by blocks, in a loop: for the many bodies of which any two may touch.

No pivoting: the matrices are those of `block_sparse`, with their rows in an order in which that is stable. The program
does not grow with the matrix, but for a few stages: each eliminates half of the rows that are left, in a loop that
changes all of those, so that little is changed that is gone already. Nothing calls LAPACK: in batches inside scans it
can block the thread pool of a small machine, and is no faster from some hundred rows on.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from .._typing import Array, Float, Int
from .blocks import plain_inverse
from .product import matmul

_BLOCKS = {240: 12, 10**9: 24}  # rows of a block, by the largest matrix that it is for
_STAGED = 4  # blocks below which there is one stage only
_PIVOT = 3  # rows of a block that are swept at once
_BANDS = 3, 6  # parts of a large matrix that are windows for a band


def rows_of_block(size: int) -> int:
    """Rows of a block of the factors of a matrix of this size."""
    return next(rows for largest, rows in _BLOCKS.items() if size <= largest)


class Factor(NamedTuple):
    """L and U in one array, L below its blocks on the diagonal, U from them on, and the inverses of these blocks."""

    lu: Float[Array, "n n"]
    inverses: Float[Array, "blocks b b"]

    def solve(self, x: Float[Array, "m c"]) -> Float[Array, "m c"]:
        """The solution for some right-hand sides; m is the size that the matrix had before it was filled up."""
        count, b = self.inverses.shape[:2]
        filled = jnp.pad(x, ((0, count * b - x.shape[0]), (0, 0)))

        def forward(k: Int[Array, ""], y: Array) -> Array:
            mine = lax.dynamic_slice_in_dim(y, k * b, b)
            return y - lax.dot(_below(self.lu, k, b), mine)

        def backward(i: Int[Array, ""], y: Array) -> Array:
            k = count - 1 - i
            right = jnp.where(jnp.arange(count * b) >= (k + 1) * b, lax.dynamic_slice_in_dim(self.lu, k * b, b), 0.0)
            mine = lax.dynamic_slice_in_dim(y, k * b, b) - lax.dot(right, y)
            inverse = lax.dynamic_index_in_dim(self.inverses, k, keepdims=False)
            return lax.dynamic_update_slice_in_dim(y, lax.dot(inverse, mine), k * b, 0)

        y = lax.fori_loop(0, count, forward, filled)
        return lax.fori_loop(0, count, backward, y)[: x.shape[0]]


def windows(size: int) -> tuple[int, ...]:
    """Rows that a block and what it meets below may have, for matrices with a band: those that `factor` knows."""
    b = rows_of_block(size)
    return tuple(-(-size // part // b) * b for part in _BANDS) if b > min(_BLOCKS.values()) else ()


def factor(matrix: Float[Array, "n n"], band: Int[Array, ""] | None = None) -> Factor:
    """The factors of a matrix whose leading blocks are regular.

    `band`: how far entries that are not zero lie from the diagonal, if that is known. In a large matrix with a narrow
    band only a window is changed with every block.
    """
    size = matrix.shape[0]
    b = rows_of_block(size)
    count = -(-size // b)
    more = count * b - size
    ones = jnp.concatenate([jnp.zeros(size, matrix.dtype), jnp.ones(more, matrix.dtype)])
    filled = jnp.pad(matrix, ((0, more), (0, more))) + jnp.diag(ones)
    narrow = windows(size)
    if band is None or not narrow:
        return _whole(filled, count, b)
    fits = [b + band <= window for window in narrow]
    which = len(narrow) - sum(fit.astype(int) for fit in fits)  # the windows get narrower
    ways = [lambda m, w=w: _banded(m, count, b, w) for w in reversed(narrow)]
    return lax.switch(which, [*ways, lambda m: _whole(m, count, b)], filled)


def _whole(lu: Array, count: int, b: int) -> Factor:
    """Without a band: in stages of half of the blocks that are left."""
    found = []
    first = 0
    while first < count:
        left = count - first
        now = left // 2 if left > _STAGED else left
        rest, part = _eliminate(lu[first * b :, first * b :], now, b)
        lu = lax.dynamic_update_slice(lu, rest, (first * b, first * b))
        found.append(part)
        first += now
    return Factor(lu, jnp.concatenate(found))


def _banded(matrix: Array, count: int, b: int, window: int) -> Factor:
    """With a band: every block and what it meets lie in a window."""
    more = window - b

    def eliminated(lu: Array, k: Int[Array, ""]) -> tuple[Array, Array]:
        part = lax.dynamic_slice(lu, (k * b, k * b), (window, window))
        pivot = _inverse(part[:b, :b])
        lower = lax.dot(part[b:, :b], pivot)
        below = jnp.concatenate([lower, part[b:, b:] - lax.dot(lower, part[:b, b:])], axis=1)
        return lax.dynamic_update_slice(lu, jnp.concatenate([part[:b], below]), (k * b, k * b)), pivot

    lu, pivots = lax.scan(eliminated, jnp.pad(matrix, ((0, more), (0, more))), jnp.arange(count))
    return Factor(lu[: count * b, : count * b], pivots)


def _inverse(m: Array) -> Array:
    """Inverse of a block, by sweeps in place (Gauss and Jordan) in a loop: a few operations, whatever its size."""
    numbers = jnp.arange(m.shape[0])

    def swept(m: Array, first: Int[Array, ""]) -> tuple[Array, None]:
        mine = (numbers >= first) & (numbers < first + _PIVOT)
        rows, columns = (lax.dynamic_slice_in_dim(m, first, _PIVOT, axis=axis) for axis in (0, 1))
        pivot = plain_inverse(lax.dynamic_slice_in_dim(rows, first, _PIVOT, axis=1))
        rows = lax.dynamic_update_slice(matmul(pivot, rows), pivot, (0, first))
        others = jnp.where(mine, 0.0, m) - matmul(jnp.where(mine[:, None], 0.0, columns), rows)
        return lax.dynamic_update_slice(others, rows, (first, 0)), None

    return lax.scan(swept, m, jnp.arange(0, m.shape[0], _PIVOT))[0]


def _below(lu: Array, k: Int[Array, ""], b: int) -> Array:
    """A column of blocks, zero from its block on the diagonal upwards."""
    column = lax.dynamic_slice_in_dim(lu, k * b, b, axis=1)
    return jnp.where(jnp.arange(lu.shape[0])[:, None] >= (k + 1) * b, column, 0.0)


def _eliminate(matrix: Array, count: int, b: int) -> tuple[Array, Array]:
    """Some blocks eliminated: L and U in their columns and rows, the Schur complement in the others."""

    def eliminated(lu: Array, k: Int[Array, ""]) -> tuple[Array, Array]:
        rows = lax.dynamic_slice_in_dim(lu, k * b, b)
        pivot = _inverse(lax.dynamic_slice_in_dim(rows, k * b, b, axis=1))
        lower = lax.dot(_below(lu, k, b), pivot)
        right = jnp.where(jnp.arange(lu.shape[0]) >= (k + 1) * b, rows, 0.0)
        column = lax.dynamic_slice_in_dim(lu, k * b, b, axis=1)
        gone = jnp.arange(lu.shape[0])[:, None] < (k + 1) * b
        lu = lu - lax.dot(lower, right)
        return lax.dynamic_update_slice_in_dim(lu, jnp.where(gone, column, lower), k * b, 1), pivot

    return lax.scan(eliminated, matrix, jnp.arange(count))
