"""Block LU of a matrix whose block pattern and elimination order are known when the system is built.

The matrices of this package have a positive definite symmetric part (saddle matrices [D -A^T; A S] with D, S
positive), so every Schur complement has one too and LU without pivoting is stable in any order that never
eliminates a constraint before a body that it acts on. For a tree ordered leaves to root no block fills in and the
cost is linear in the number of blocks; loops cost their fill.

Nothing here calls LAPACK: batched LAPACK inside scans can block the thread pool of a small machine, and closed
forms for blocks of at most six rows are faster.
"""

import dataclasses

import jax.numpy as jnp

from .._typing import Array, Float
from . import rotation
from .product import matmul


def inverse(m: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Inverse of a small matrix with positive definite symmetric part: halves, down to closed forms of size 3.

    Raises nothing: a singular matrix gives non-finite numbers, which the callers test.
    """
    n = m.shape[-1]
    if n == 1:
        return 1 / m
    if n == 2:
        (a, b), (c, d) = m
        return jnp.stack([jnp.stack([d, -b]), jnp.stack([-c, a])]) / (a * d - b * c)
    if n == 3:
        # adjugate: columns m1 x m2, m2 x m0, m0 x m1
        columns = rotation.cross(jnp.roll(m, -1, axis=0), jnp.roll(m, -2, axis=0))
        return columns.T / jnp.sum(m[0] * columns[0])
    k = 3 if n <= 6 else n // 2
    a, b, c, d = m[:k, :k], m[:k, k:], m[k:, :k], m[k:, k:]
    ai = inverse(a)
    left = matmul(c, ai)
    si = inverse(d - matmul(left, b))
    right = matmul(ai, b)
    corner = matmul(right, si)
    return jnp.block([[ai + matmul(corner, left), -corner], [-matmul(si, left), si]])


@dataclasses.dataclass(frozen=True)
class Pattern:
    """Symmetric block pattern: node sizes, elimination order, and the entries that exist after fill.

    `later[i]` lists the nodes eliminated after `i` whose row and column meet the one of `i`.
    """

    sizes: tuple[int, ...]
    order: tuple[int, ...]
    later: tuple[tuple[int, ...], ...]


def symbolic(sizes: tuple[int, ...], edges: set[tuple[int, int]], order: tuple[int, ...]) -> Pattern:
    """Fill of the elimination `order` on the graph of `edges` (pairs of node numbers)."""
    neighbours: list[set[int]] = [set() for _ in sizes]
    for i, j in edges:
        neighbours[i].add(j)
        neighbours[j].add(i)
    later: list[tuple[int, ...]] = [()] * len(sizes)
    for i in order:
        around = sorted(neighbours[i])
        later[i] = tuple(around)
        for j in around:
            neighbours[j].discard(i)
            neighbours[j].update(k for k in around if k != j)
    return Pattern(sizes, order, tuple(later))


@dataclasses.dataclass
class Factor:
    """Block LU: inverse pivots, lower factors L_ri = K_ri P_i, upper blocks K_ic."""

    pattern: Pattern
    pivots: list[Float[Array, "s s"]]
    inverses: list[Float[Array, "s s"]]
    lower: dict[tuple[int, int], Array]
    upper: dict[tuple[int, int], Array]

    def solve(self, rhs: list[Float[Array, "s c"]]) -> list[Float[Array, "s c"]]:
        """x of K x = rhs; one array of `c` columns per node."""
        x = list(rhs)
        for i in self.pattern.order:
            for r in self.pattern.later[i]:
                x[r] = x[r] - matmul(self.lower[r, i], x[i])
        for i in reversed(self.pattern.order):
            b = x[i]
            for c in self.pattern.later[i]:
                b = b - matmul(self.upper[i, c], x[c])
            x[i] = matmul(self.inverses[i], b)
        return x


def factor(pattern: Pattern, blocks: dict[tuple[int, int], Array]) -> Factor:
    """Factor the matrix given by its blocks `(row node, column node) -> (s_row, s_col)`; absent blocks are zero."""
    work = dict(blocks)
    pivots: list[Array] = [jnp.zeros(())] * len(pattern.sizes)
    inverses: list[Array] = [jnp.zeros(())] * len(pattern.sizes)
    lower: dict[tuple[int, int], Array] = {}
    upper: dict[tuple[int, int], Array] = {}
    for i in pattern.order:
        pivots[i] = work[i, i]
        inverses[i] = inverse(work[i, i])
        for c in pattern.later[i]:
            upper[i, c] = work[i, c]
        for r in pattern.later[i]:
            lower[r, i] = matmul(work[r, i], inverses[i])
            for c in pattern.later[i]:
                update = matmul(lower[r, i], upper[i, c])
                work[r, c] = work[r, c] - update if (r, c) in work else -update
    return Factor(pattern, pivots, inverses, lower, upper)
