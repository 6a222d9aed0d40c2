"""Block elimination against numpy's dense solve, on random trees and loops."""

import ast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import compiled

from spookax.math import block_sparse
from spookax.math.blocks import Store, inverse, sums


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


@pytest.mark.parametrize("levels", [False, True], ids=["leaves to root", "levels"])
@pytest.mark.parametrize("extra_edges", [0, 1, 3], ids=["tree", "one loop", "three loops"])
def test_solution_equals_the_dense_one(extra_edges, levels, rng):
    sizes = (6, 5, 6, 5, 5, 6, 5, 6, 6, 5)
    edges, order = tree_edges(rng, len(sizes))
    while len(edges) < len(sizes) - 1 + extra_edges:
        i, j = sorted(rng.integers(0, len(sizes), 2).tolist())
        if i != j and (j, i) not in edges:
            edges.add((j, i))
    pattern = block_sparse.symbolic(sizes, edges, None if levels else order, {})
    fill = sum(len(later) for later in pattern.later) - len(edges)
    if not levels:
        assert fill == 0 if extra_edges == 0 else fill >= 0, "a tree from leaves to root has no fill"
    dense, blocks, _ = draw(rng, sizes, edges)
    rhs = rng.normal(size=(sum(sizes), 2))
    x = compiled(lambda blocks, rhs: solved(pattern, blocks, rhs))(stacks(sizes, blocks), rhs)
    np.testing.assert_allclose(x, np.linalg.solve(dense, rhs), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("size", [6, (6, 5)], ids=["one size", "two sizes"])
def test_nodes_with_fewer_neighbours_join_the_others(size, rng):
    """The ends of a chain, which meet one node later where the others meet two, share their program."""
    n = 40
    sizes = (size,) * n if isinstance(size, int) else tuple(size[i % 2] for i in range(n))
    pattern = block_sparse.symbolic(sizes, {(i, i + 1) for i in range(n - 1)}, None, {})
    apart = sum(len({len(pattern.later[i]) for i in level}) for level in pattern.levels)
    assert apart > len(pattern.levels) + 1, "nothing to fill up"
    dense, blocks, _ = draw(rng, sizes, {(i, i + 1) for i in range(n - 1)})
    rhs = rng.normal(size=(sum(sizes), 2))
    fronts = []

    @compiled
    def solve(stacked, rhs):
        factor = block_sparse.factor(pattern, filled(stacked))
        fronts.append(len(factor.fronts))
        return solution(factor, rhs)

    np.testing.assert_allclose(solve(stacks(sizes, blocks), rhs), np.linalg.solve(dense, rhs), rtol=1e-9, atol=1e-10)
    assert fronts[0] <= len(pattern.levels) + 1  # one node does not do the work of three


def stacks(sizes, blocks):
    """Blocks of one shape, stacked, with their keys."""
    shapes = {}
    for (i, j), block in blocks.items():
        shapes.setdefault((sizes[i], sizes[j]), []).append(((i, j), block))
    return {str([key for key, _ in found]): np.stack([b for _, b in found]) for found in shapes.values()}


def filled(stacked):
    work = Store()
    for keys, block in stacked.items():
        work.put(ast.literal_eval(keys), block)
    return work


def solved(pattern, stacked, rhs):
    return solution(block_sparse.factor(pattern, filled(stacked)), rhs)


def solution(factor, rhs):
    x, sizes = Store(), factor.pattern.sizes
    ends = np.cumsum(sizes)
    for i, (end, size) in enumerate(zip(ends, sizes, strict=True)):
        x.put([(i,)], rhs[None, end - size : end])
    factor.solve(x)
    return jnp.concatenate([x.get([(i,)])[0] for i in range(len(ends))])


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize(
    ("bodies", "waiting"), [(5, ()), (5, (1, 3)), (40, ())], ids=["all bodies first", "three of five", "with a loop"]
)
def test_what_was_begun_is_finished_for_other_rows(bodies, waiting, count, rng):
    """Bodies of 6 and nodes of 5 between them, whose rows are multiplied and whose diagonal is added to, twice."""
    sizes, nodes = (6,) * bodies + (5,) * (bodies - 1), bodies - 1
    joints = {bodies + j: {j, j + 1} for j in range(nodes)}
    edges = {(j, b) for j, ends in joints.items() for b in ends}
    pattern = block_sparse.symbolic(sizes, edges, None, joints | {b: set(joints) for b in waiting})
    assert set(pattern.levels[0]) == set(range(bodies)) - set(waiting)
    dense, blocks, _ = draw(rng, sizes, edges)
    assert (pattern.unrolled < len(pattern.levels)) == (bodies > 5)
    scale, diagonal = rng.uniform(0.5, 2.0, (2, nodes, 5)), rng.uniform(1.0, 2.0, (2, nodes, 5))
    rhs = rng.normal(size=(sum(sizes), 2))

    @compiled
    def solve(stacked, scale, diagonal, rhs):
        begun = block_sparse.begin(pattern, filled(stacked), count)
        return [solution(begun.finish(bodies, *change), rhs) for change in zip(scale, diagonal, strict=True)]

    for k, x in enumerate(solve(stacks(sizes, blocks), scale, diagonal, rhs)):
        by = np.concatenate([np.ones(6 * bodies), scale[k].reshape(-1)])
        added = np.concatenate([np.zeros(6 * bodies), diagonal[k].reshape(-1)])
        np.testing.assert_allclose(x, np.linalg.solve(by[:, None] * dense + np.diag(added), rhs), rtol=1e-9, atol=1e-9)


def chain_of(n, *sizes):
    """Nodes in a row, of some sizes in turn."""
    return tuple(sizes[i % len(sizes)] for i in range(n)), {(i, i + 1) for i in range(n - 1)}


def bush_of(n, rng):
    """A random tree in which nodes have at most three neighbours, of two sizes."""
    edges, free = set(), [0, 0, 0]
    for i in range(1, n):
        edges.add((i, free.pop(int(rng.integers(len(free))))))
        free += [i, i]
    return tuple(rng.choice([6, 5], n).tolist()), edges


@pytest.mark.parametrize("mechanism", ["chain", "chain of two sizes", pytest.param("bush", marks=pytest.mark.slow)])
def test_the_last_levels_are_rounds_of_a_loop(mechanism, rng):
    """The solution is the dense one, and its transpose that of the transposed matrix, alone and in a batch."""
    shapes = {"chain": chain_of(70, 6), "chain of two sizes": chain_of(70, 6, 3), "bush": bush_of(90, rng)}
    sizes, edges = shapes[mechanism]
    pattern = block_sparse.symbolic(sizes, edges, None, {})
    assert pattern.unrolled < len(pattern.levels)
    drawn = [draw(rng, sizes, edges)[:2] for _ in range(2)]
    rhs, weights = rng.normal(size=(2, 2, sum(sizes), 2))

    def both(stacked, rhs, weights):
        x, back = jax.vjp(lambda rhs: solved(pattern, stacked, rhs), rhs)
        return x, back(weights)[0]

    stacked = [stacks(sizes, blocks) for _, blocks in drawn]
    alone = compiled(both)(stacked[0], rhs[0], weights[0])
    x, cotangent = compiled(jax.vmap(both))(jax.tree.map(lambda *b: np.stack(b), *stacked), rhs, weights)
    for k, (dense, _) in enumerate(drawn):
        np.testing.assert_allclose(x[k], np.linalg.solve(dense, rhs[k]), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(cotangent[k], np.linalg.solve(dense.T, weights[k]), rtol=1e-9, atol=1e-9)
    for one, many in zip(alone, (x, cotangent), strict=True):
        np.testing.assert_allclose(one, many[0], rtol=1e-9, atol=1e-9)


def test_a_program_does_not_grow_with_the_length_of_a_chain(rng):
    """From 64 to 512 nodes three levels more, none of which is a program of its own."""
    lines = {}
    for n in (64, 512):
        sizes, edges = chain_of(n, 6)
        pattern = block_sparse.symbolic(sizes, edges, None, {})
        blocks = {key: np.zeros((6, 6)) for i, j in edges for key in ((i, j), (j, i), (i, i), (j, j))}

        def solve(stacked, rhs, pattern=pattern):
            x = Store()
            x.put([(i,) for i in range(len(rhs))], rhs)
            block_sparse.factor(pattern, filled(stacked)).solve(x)
            return x.get([(i,) for i in range(len(rhs))])

        lines[n] = len(jax.jit(solve).lower(stacks(sizes, blocks), np.zeros((n, 6, 1))).as_text().splitlines())
    assert lines[512] <= 1.02 * lines[64], lines


def test_levels_of_a_chain_grow_with_its_logarithm():
    """Bodies and joints in turn, joints after a body: each level halves what is left, and the fill stays bounded."""
    found = {}
    for n in (16, 64, 256):
        joints = {n + j: {b for b in (j - 1, j) if b >= 0} for j in range(n)}
        edges = {(j, b) for j, bodies in joints.items() for b in bodies} | {(b, b + 1) for b in range(n - 1)}
        found[n] = block_sparse.symbolic([6] * n + [5] * n, edges, None, joints)
        assert sum(map(len, found[n].levels)) == 2 * n
        assert sum(map(len, found[n].later)) <= 8 * n
    assert len(found[256].levels) - len(found[64].levels) <= len(found[64].levels) - len(found[16].levels) + 2
    assert len(found[256].levels) <= 26


def test_sums_of_groups(rng):
    """Few large groups and many small ones, empty ones among them."""
    values = rng.normal(size=(30, 2))
    for groups in ([[0, 1, 2], [], [5]], [list(range(30)), [], [], [1], [], [], [], [], [], [], [], []]):
        expected = np.array([values[group].sum(axis=0) for group in groups])
        np.testing.assert_allclose(sums(jnp.asarray(values), groups), expected, rtol=1e-14, atol=1e-14)
    values[7] = 0.0
    known = sums(jnp.asarray(values), [[0, 1], [2], [3]], zero=7)
    np.testing.assert_allclose(known, [values[0] + values[1], values[2], values[3]], rtol=1e-14)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 9])
def test_inverse_of_a_block(n, rng):
    m = rng.normal(size=(n, n))
    m = m + (0.5 - np.linalg.eigvalsh((m + m.T) / 2)[0]) * np.eye(n)
    np.testing.assert_allclose(compiled(inverse)(m), np.linalg.inv(m), rtol=1e-11, atol=1e-12)
