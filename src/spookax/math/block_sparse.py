"""Block LU of a matrix whose block pattern and elimination order are known when the system is built.

The matrices of this package are saddle matrices [D -A^T; A' S] with D, S positive and A' near A. Where A' = A, or S
makes up for what they differ by, their symmetric part is positive definite, so every Schur complement has one too and
LU without pivoting is stable in any order that never eliminates a constraint before every body that it acts on. The
nodes of one level do not touch each other and are eliminated together, as batches of blocks. A tree of few nodes is
eliminated from leaves to root, without fill; many nodes in levels whose number grows with their logarithm, with a
bounded fill for trees. Loops cost their fill.

Nothing here calls LAPACK: batched LAPACK inside scans can block the thread pool of a small machine, and closed
forms for blocks of at most six rows are faster.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float
from . import rotation
from .product import matmul

Key = tuple[int, ...]
Nodes = tuple[tuple[int, ...], ...]
_SLACK = 2  # how many neighbours more than the least a node may have to be eliminated in the same level


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


def inverses(m: Float[Array, "k n n"]) -> Float[Array, "k n n"]:
    """Inverses of a batch of blocks."""
    return inverse(m[0])[None] if m.shape[0] == 1 else jax.vmap(inverse)(m)


def take(values: Float[Array, "k ..."], index: Sequence[int]) -> Float[Array, "m ..."]:
    """Some entries of an array, by indices known when the program is built: nothing for all of them in order."""
    if len(index) == values.shape[0] and list(index) == list(range(values.shape[0])):
        return values
    if len(index) == 0 or list(index) == list(range(index[0], index[0] + len(index))):
        first = index[0] if len(index) else 0
        return jax.lax.slice_in_dim(values, first, first + len(index))
    blocks = jax.lax.GatherDimensionNumbers(tuple(range(1, values.ndim)), (0,), (0,))
    places = np.asarray(index, dtype=np.int32)[:, None]
    return jax.lax.gather(values, places, blocks, (1, *values.shape[1:]), mode="promise_in_bounds")


def sums(
    values: Float[Array, "k ..."], groups: Sequence[Sequence[int]], zero: int | None = None
) -> Float[Array, "groups ..."]:
    """Sums of entries of `values`, one for each group of indices known when the program is built.

    `zero`: the index of an entry that is zero, if there is one.
    """
    width = max((len(group) for group in groups), default=0)
    if width == 0:
        return jnp.zeros((len(groups), *values.shape[1:]), dtype=values.dtype)
    if width * len(groups) > 4 * (len(groups) + values.shape[0]):  # few groups with many entries
        owner = np.array([g for g, group in enumerate(groups) for _ in group], dtype=int)
        chosen = take(values, [i for group in groups for i in group])
        return jnp.zeros((len(groups), *values.shape[1:]), dtype=values.dtype).at[owner].add(chosen)
    padded, none = values, zero or 0
    if zero is None and any(len(group) < width for group in groups):
        padded, none = jnp.concatenate([values, jnp.zeros_like(values[:1])]), values.shape[0]
    columns = [[group[i] if i < len(group) else none for group in groups] for i in range(width)]
    return sum((take(padded, column) for column in columns[1:]), take(padded, columns[0]))


@dataclasses.dataclass(frozen=True)
class Pattern:
    """Symmetric block pattern: node sizes, levels of elimination, and the entries that exist after fill.

    The nodes of a level have one size and do not touch each other. `later[i]` lists the nodes eliminated after `i`
    whose row and column meet the one of `i`.
    """

    sizes: tuple[int, ...]
    levels: tuple[tuple[int, ...], ...]
    later: tuple[tuple[int, ...], ...]


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
    return Pattern(tuple(sizes), tuple(levels), tuple(later))


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


class Store:
    """Blocks by key, kept as stacks of one shape each; all bookkeeping is done when the program is built."""

    def __init__(self) -> None:
        self._stacks: list[Array] = []
        self._place: dict[Key, tuple[int, int]] = {}

    def put(self, keys: Sequence[Key], blocks: Float[Array, "k ..."]) -> None:
        """Keep (or replace) one block for each key."""
        self._place.update((key, (len(self._stacks), i)) for i, key in enumerate(keys))
        self._stacks.append(blocks)

    def copy(self) -> "Store":
        """The same blocks, to be changed by themselves."""
        other = Store()
        other._stacks, other._place = list(self._stacks), dict(self._place)
        return other

    def __iter__(self) -> Iterator[Key]:
        """The keys."""
        return iter(self._place)

    def __contains__(self, key: Key) -> bool:
        return key in self._place

    def get(self, keys: Sequence[Key]) -> Float[Array, "k ..."]:
        """The blocks of some keys, of one shape, stacked; zeros for keys that are not there, but for one at least."""
        places = [self._place.get(key, _NOWHERE) for key in keys]
        sources = list(dict.fromkeys(stack for stack, _ in places if stack >= 0))
        parts: list[Array] = []
        where, count = [-1] * len(places), 0
        for source in sources:
            mine = [n for n, (stack, _) in enumerate(places) if stack == source]
            parts.append(take(self._stacks[source], [places[n][1] for n in mine]))
            for n in mine:
                where[n], count = count, count + 1
        if -1 in where:
            parts.append(jnp.zeros_like(parts[0][:1]))
        return take(_joined(parts), [count if n < 0 else n for n in where])

    def add(self, keys: Sequence[Key], terms: Float[Array, "k ..."]) -> None:
        """Add a term to the block of each key; keys may repeat, blocks that are not there are zero.

        A term whose key names no node (a negative number) is zero and left out.
        """
        groups: dict[Key, list[int]] = {}
        left_out = None
        for i, key in enumerate(keys):
            if min(key) >= 0:
                groups.setdefault(key, []).append(i)
            else:
                left_out = i
        for here in (True, False):
            found = {key: group for key, group in groups.items() if (key in self) == here}
            if found:
                total = sums(terms, list(found.values()), zero=left_out)
                self.put(list(found), self.get(list(found)) + total if here else total)


_NOWHERE = (-1, 0)


def _joined(parts: Sequence[Array], axis: int = 0) -> Array:
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=axis)


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
        for front in reversed(self.fronts):
            keys = [(i,) for i in front.nodes]
            own = x.get(keys)
            if front.upper is not None:
                found = [x.get([(c,) for c in itertools.chain(*table)]) for _, table in front.later]
                rows = [part.reshape(len(keys), -1, own.shape[2]) for part in found]
                own = own - matmul(front.upper, _joined(rows, axis=1))
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
        shift = diagonal[:, :, None] * jnp.eye(diagonal.shape[1], dtype=diagonal.dtype)
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
                lower = _joined(by_size, axis=1)[:, :, None] * lower
            fronts.append(dataclasses.replace(front, lower=lower))
        return Factor(self.pattern, fronts + _eliminate(self.pattern, work, levels[self.count :]))


def begin(pattern: Pattern, work: Store, count: int) -> Begun:
    """Eliminate the nodes of the first `count` levels. `work`: as for `factor`."""
    return Begun(pattern, count, _eliminate(pattern, work, pattern.levels[:count]), work)


def factor(pattern: Pattern, work: Store) -> Factor:
    """Factor the matrix given by its blocks under `(row node, column node)`; absent blocks are zero. Uses up `work`."""
    return Factor(pattern, _eliminate(pattern, work, pattern.levels))


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
            lower, upper = matmul(_joined(below, axis=1), inverse_pivots), _joined(beside, axis=2)
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
            work.add(keys, _joined(parts))
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
