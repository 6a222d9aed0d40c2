"""Block LU of a matrix whose block pattern and elimination order are known when the system is built.

The matrices of this package are saddle matrices [D -A^T; A' S] with D, S positive and A' near A. Where A' = A, or S
makes up for what they differ by, their symmetric part is positive definite, so every Schur complement has one too and
LU without pivoting is stable in any order that never eliminates a constraint before every body that it acts on. The
nodes of one level do not touch each other and are eliminated together, as batches of blocks. A tree of few nodes is
eliminated from leaves to root, without fill; many nodes in levels whose number grows with their logarithm, with a
bounded fill for trees. Loops cost their fill.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float
from .blocks import Key, Store, inverses, joined, take
from .level_loop import Loop, eliminate, rounds
from .product import matmul

Nodes = tuple[tuple[int, ...], ...]
_UNROLLED = 3  # levels of many nodes, each a program of its own
_LOOPED = 3  # fewer levels than these are none of a loop
_NARROW = 3  # later nodes of a node of a loop: filling up wider ones costs more time than it saves to compile them
_SLACK = 2  # how many neighbours more than the least a node may have to be eliminated in the same level


@dataclasses.dataclass(frozen=True)
class Pattern:
    """Symmetric block pattern: node sizes, levels of elimination, and the entries that exist after fill.

    The nodes of a level have one size and do not touch each other. `later[i]` lists the nodes eliminated after `i`
    whose row and column meet the one of `i`.
    """

    sizes: tuple[int, ...]
    levels: tuple[tuple[int, ...], ...]
    later: tuple[tuple[int, ...], ...]
    unrolled: int  # levels that are a program of their own; the others are rounds of a loop


def symbolic(
    sizes: Sequence[int], edges: set[tuple[int, int]], order: Sequence[int] | None, waits_for: dict[int, set[int]]
) -> Pattern:
    """Levels and fill of the elimination of the graph of `edges` (pairs of node numbers).

    In the given `order`, one node at a time; without one, in each level as many nodes as possible that have nearly the
    least number of neighbours. A node of `waits_for` is not eliminated before one of its nodes.
    """
    neighbours: list[set[int]] = [set() for _ in sizes]
    for i, j in edges:
        neighbours[i].add(j)
        neighbours[j].add(i)
    later: list[tuple[int, ...]] = [()] * len(sizes)
    levels: list[tuple[int, ...]] = []
    left, gone = set(range(len(sizes))), set()
    while left:
        level = (order[len(levels)],) if order is not None else _independent(sizes, neighbours, left, gone, waits_for)
        levels.append(level)
        for i in level:
            around = sorted(neighbours[i])
            later[i] = tuple(around)
            for j in around:
                neighbours[j].discard(i)
                neighbours[j].update(k for k in around if k != j)
        left.difference_update(level)
        gone.update(level)
    wide = [k for k, level in enumerate(levels) if max(len(later[i]) for i in level) > _NARROW]
    unrolled = max([_UNROLLED, *(k + 1 for k in wide)])
    if order is not None or len(levels) < unrolled + _LOOPED:
        unrolled = len(levels)
    return Pattern(tuple(sizes), tuple(levels), tuple(later), unrolled)


def _independent(
    sizes: Sequence[int], neighbours: list[set[int]], left: set[int], gone: set[int], waits_for: dict[int, set[int]]
) -> tuple[int, ...]:
    """Nodes of one size that can be eliminated together, those with few neighbours first."""
    ready = [i for i in left if not waits_for.get(i) or waits_for[i] & gone]
    least = min(len(neighbours[i]) for i in ready)
    ready = sorted((i for i in ready if len(neighbours[i]) <= least + _SLACK), key=lambda i: (len(neighbours[i]), i))
    best: list[int] = []
    for size in sorted({sizes[i] for i in ready}):
        chosen: list[int] = []
        touched: set[int] = set()
        for i in ready:
            if sizes[i] == size and i not in touched:
                chosen.append(i)
                touched |= neighbours[i]
        best = max(best, chosen, key=len)
    return tuple(sorted(best))


@dataclasses.dataclass
class _Front:
    """Nodes of one level that meet nodes of the same sizes later, and what their elimination leaves.

    `later`: by size, the later nodes of every node, -1 where it has fewer than others of the front. `inverses`: of the
    pivots P; `lower`: the factors K_ri P^-1 of all later nodes r, one below the other; `upper`: the blocks K_ic, side
    by side. They are zero for a node -1.
    """

    nodes: tuple[int, ...]
    later: tuple[tuple[int, Nodes], ...]
    inverses: Float[Array, "k s s"]
    lower: Float[Array, "k rest s"] | None
    upper: Float[Array, "k s rest"] | None


@dataclasses.dataclass
class Factor:
    """Block LU, level by level."""

    pattern: Pattern
    fronts: list[_Front]
    loop: Loop | None

    def solve(self, x: Store) -> None:
        """Replace the right-hand sides in `x`, blocks (size, columns) under `(node,)`, by the solution of K x = rhs."""
        for front in self.fronts:
            if front.lower is None:
                continue
            terms = -matmul(front.lower, x.get([(i,) for i in front.nodes]))
            start = 0
            for size, table in front.later:
                width = len(table[0]) * size
                mine = terms[:, start : start + width].reshape(-1, size, terms.shape[2])
                x.add([(r,) for r in itertools.chain(*table)], mine)
                start += width
        if self.loop is not None:
            self.loop.backward(self.loop.forward(x), x)
        for front in reversed(self.fronts):
            keys = [(i,) for i in front.nodes]
            own = x.get(keys)
            if front.upper is not None:
                found = [x.get([(c,) for c in itertools.chain(*table)]) for _, table in front.later]
                rows = [part.reshape(len(keys), -1, own.shape[2]) for part in found]
                own = own - matmul(front.upper, joined(rows, axis=1))
            x.put(keys, matmul(front.inverses, own))


@dataclasses.dataclass(frozen=True)
class Begun:
    """A factorisation after its first levels: what matrices share that differ in the rows of later nodes only."""

    pattern: Pattern
    count: int  # of levels
    fronts: list[_Front]
    left: Store  # the Schur complement of the nodes that are gone

    def finish(self, first: int, scale: Float[Array, "nodes size"], diagonal: Float[Array, "nodes size"]) -> Factor:
        """The factors of the matrix whose rows of the nodes from `first` on, none of them gone, are multiplied by
        `scale`; then `diagonal` is added to them."""
        sizes, levels = self.pattern.sizes, self.pattern.levels
        gone = {i for level in levels[: self.count] for i in level}
        work = self.left.copy()
        for size in sorted(set(sizes)):
            keys = [(i, j) for i, j in work if i >= first and j not in gone and sizes[j] == size]
            if keys:
                work.put(keys, take(scale, [i - first for i, _ in keys])[:, :, None] * work.get(keys))
        shift = diagonal[:, :, None] * np.eye(diagonal.shape[1], dtype=diagonal.dtype)[None]
        work.add([(i, i) for i in range(first, len(sizes))], shift)

        def factors(nodes: Sequence[int]) -> Float[Array, "k size"]:
            """What the rows of some nodes of one size are multiplied by."""
            one = jnp.ones((1, sizes[nodes[0]]), dtype=scale.dtype)
            table = jnp.concatenate([scale, one]) if max(nodes) >= first else one
            return take(table, [i - first if i >= first else table.shape[0] - 1 for i in nodes])

        fronts = []
        for front in self.fronts:
            lower = front.lower
            if lower is not None:
                count = lower.shape[0]
                by_size = [
                    factors([r for later in table for r in later]).reshape(count, -1) for _, table in front.later
                ]
                lower = joined(by_size, axis=1)[:, :, None] * lower
            fronts.append(dataclasses.replace(front, lower=lower))
        more = _eliminate(self.pattern, work, levels[self.count : self.pattern.unrolled])
        return Factor(self.pattern, fronts + more, _looped(self.pattern, work))


def begin(pattern: Pattern, work: Store, count: int) -> Begun:
    """Eliminate the nodes of the first `count` levels, or of fewer. `work`: as for `factor`."""
    count = min(count, pattern.unrolled)
    return Begun(pattern, count, _eliminate(pattern, work, pattern.levels[:count]), work)


def factor(pattern: Pattern, work: Store) -> Factor:
    """Factor the matrix given by its blocks under `(row node, column node)`; absent blocks are zero. Uses up `work`."""
    fronts = _eliminate(pattern, work, pattern.levels[: pattern.unrolled])
    return Factor(pattern, fronts, _looped(pattern, work))


def _looped(pattern: Pattern, work: Store) -> Loop | None:
    """The factors of the levels that are rounds of a loop."""
    levels = pattern.levels[pattern.unrolled :]
    return eliminate(rounds(pattern.sizes, levels, pattern.later), work) if levels else None


def _eliminate(pattern: Pattern, work: Store, levels: Sequence[tuple[int, ...]]) -> list[_Front]:
    """The fronts of some levels; `work` then holds the Schur complement of their nodes."""
    fronts = []
    for level in levels:
        updates: dict[tuple[int, ...], tuple[list[Key], list[Array]]] = {}
        for nodes, later in _alike(pattern, level):
            count, s = len(nodes), pattern.sizes[nodes[0]]
            inverse_pivots = inverses(work.get([(i, i) for i in nodes]))
            if not later:
                fronts.append(_Front(nodes, (), inverse_pivots, None, None))
                continue
            below, beside = [], []
            for _, table in later:
                meets = [(i, r) for i, row in zip(nodes, table, strict=True) for r in row]
                below.append(work.get([(r, i) for i, r in meets]).reshape(count, -1, s))
                blocks = work.get(meets)
                beside.append(jnp.swapaxes(blocks.reshape(count, -1, *blocks.shape[1:]), 1, 2).reshape(count, s, -1))
            lower, upper = matmul(joined(below, axis=1), inverse_pivots), joined(beside, axis=2)
            fronts.append(_Front(nodes, later, inverse_pivots, lower, upper))
            product = -matmul(lower, upper)
            start_r = 0
            for r_size, rows in later:
                end_r, start_c = start_r + len(rows[0]) * r_size, 0
                for c_size, columns in later:
                    end_c = start_c + len(columns[0]) * c_size
                    part = product[:, start_r:end_r, start_c:end_c]
                    part = part.reshape(count, len(rows[0]), r_size, len(columns[0]), c_size)
                    keys, parts = updates.setdefault((r_size, c_size), ([], []))
                    keys += [(r, c) for a, b in zip(rows, columns, strict=True) for r in a for c in b]
                    parts.append(jnp.swapaxes(part, 2, 3).reshape(-1, r_size, c_size))
                    start_c = end_c
                start_r = end_r
        for keys, parts in updates.values():
            work.add(keys, joined(parts))
    return fronts


def _alike(pattern: Pattern, level: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[tuple[int, Nodes], ...]]]:
    """The nodes of a level, together where they meet nearly as many later nodes, and these nodes, by size.

    Those with fewer are filled up: a few products with zero are faster compiled, and done, than a program of their own.
    """
    kinds = sorted({pattern.sizes[r] for i in level for r in pattern.later[i]})
    found: dict[tuple[int, ...], dict[int, list[list[int]]]] = {}
    for i in level:
        later = [[r for r in pattern.later[i] if pattern.sizes[r] == size] for size in kinds]
        found.setdefault(tuple(map(len, later)), {})[i] = later
    while found:
        most = max(found, key=sum)
        nodes = found.pop(most)
        for counts in [counts for counts in found if all(a <= b for a, b in zip(counts, most, strict=True))]:
            if len(found[counts]) * (sum(most) ** 2 - sum(counts) ** 2) <= len(nodes) * sum(most) ** 2:
                nodes |= found.pop(counts)
        chosen = [k for k, count in enumerate(most) if count]
        tables = (tuple(tuple(nodes[i][k] + [-1] * (most[k] - len(nodes[i][k]))) for i in nodes) for k in chosen)
        yield tuple(nodes), tuple((kinds[k], table) for k, table in zip(chosen, tables, strict=True))
