"""Block elimination against numpy's dense solve, on random trees and loops."""

import numpy as np
import pytest
from engine.mechanisms import compiled

from spookax.math import block_sparse


def tree_edges(rng, n):
    """Every node hangs on an earlier one: edges, and an order from the leaves to the root."""
    return {(i, int(rng.integers(0, i))) for i in range(1, n)}, tuple(reversed(range(n)))


def draw(rng, sizes, edges):
    """A non-symmetric matrix of the pattern whose symmetric part is positive definite, as dense and as blocks."""
    ends = np.cumsum(sizes)
    node = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    dense = np.zeros((ends[-1], ends[-1]))
    for i, j in edges:
        dense[node[i], node[j]] = rng.normal(size=(sizes[i], sizes[j]))
        dense[node[j], node[i]] = rng.normal(size=(sizes[j], sizes[i]))
    for i, size in enumerate(sizes):
        dense[node[i], node[i]] = rng.normal(size=(size, size))
    lowest = np.linalg.eigvalsh((dense + dense.T) / 2)[0]
    dense = dense + (0.5 - lowest) * np.eye(len(dense))
    pairs = {(i, i) for i in range(len(sizes))} | edges | {(j, i) for i, j in edges}
    return dense, {(i, j): dense[node[i], node[j]] for i, j in pairs}, node


@pytest.mark.parametrize("extra_edges", [0, 1, 3], ids=["tree", "one loop", "three loops"])
def test_solution_equals_the_dense_one(extra_edges, rng):
    sizes = (6, 5, 6, 3, 1, 6, 2)
    edges, order = tree_edges(rng, len(sizes))
    while len(edges) < len(sizes) - 1 + extra_edges:
        i, j = sorted(rng.integers(0, len(sizes), 2).tolist())
        if i != j and (j, i) not in edges:
            edges.add((j, i))
    pattern = block_sparse.symbolic(sizes, edges, order)
    fill = sum(len(later) for later in pattern.later) - len(edges)
    assert fill == 0 if extra_edges == 0 else fill >= 0, "a tree from leaves to root has no fill"
    dense, blocks, node = draw(rng, sizes, edges)
    rhs = rng.normal(size=(sum(sizes), 2))
    solve = compiled(lambda blocks, rhs: block_sparse.factor(pattern, blocks).solve(rhs))
    x = np.concatenate(solve(blocks, [rhs[part] for part in node]))
    np.testing.assert_allclose(x, np.linalg.solve(dense, rhs), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 9])
def test_inverse_of_a_block(n, rng):
    m = rng.normal(size=(n, n))
    m = m + (0.5 - np.linalg.eigvalsh((m + m.T) / 2)[0]) * np.eye(n)
    np.testing.assert_allclose(compiled(block_sparse.inverse)(m), np.linalg.inv(m), rtol=1e-11, atol=1e-12)
