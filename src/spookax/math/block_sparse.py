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
from collections.abc import Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float
from . import rotation
from .product import matmul

Key = tuple[int, ...]
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
    return values[np.asarray(index, dtype=int)]


def sums(values: Float[Array, "k ..."], groups: Sequence[Sequence[int]]) -> Float[Array, "groups ..."]:
    """Sums of entries of `values`, one for each group of indices known when the program is built."""
    width = max((len(group) for group in groups), default=0)
    if width == 0:
        return jnp.zeros((len(groups), *values.shape[1:]), dtype=values.dtype)
    if width * len(groups) > 4 * (len(groups) + values.shape[0]):  # few groups with many entries
        owner = np.array([g for g, group in enumerate(groups) for _ in group], dtype=int)
        chosen = take(values, [i for group in groups for i in group])
        return jnp.zeros((len(groups), *values.shape[1:]), dtype=values.dtype).at[owner].add(chosen)
    if any(len(group) < width for group in groups):
        padded = jnp.concatenate([values, jnp.zeros_like(values[:1])])
    else:
        padded = values
    none = values.shape[0]
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
        """The blocks of some keys, of one shape, stacked."""
        places = [self._place[key] for key in keys]
        sources = list(dict.fromkeys(stack for stack, _ in places))
        parts, where = [], [0] * len(places)
        count = 0
        for source in sources:
            mine = [n for n, (stack, _) in enumerate(places) if stack == source]
            parts.append(take(self._stacks[source], [places[n][1] for n in mine]))
            for n in mine:
                where[n], count = count, count + 1
        return take(parts[0] if len(parts) == 1 else jnp.concatenate(parts), where)

    def add(self, keys: Sequence[Key], terms: Float[Array, "k ..."]) -> None:
        """Add a term to the block of each key; keys may repeat, blocks that are not there are zero."""
        targets = list(dict.fromkeys(keys))
        number = {key: i for i, key in enumerate(targets)}
        groups: list[list[int]] = [[] for _ in targets]
        for i, key in enumerate(keys):
            groups[number[key]].append(i)
        total = sums(terms, groups)
        old = [key in self for key in targets]
        if all(old):
            self.put(targets, self.get(targets) + total)
            return
        known = [i for i, is_old in enumerate(old) if is_old]
        fresh = [i for i, is_old in enumerate(old) if not is_old]
        if known:
            keys_known = [targets[i] for i in known]
            self.put(keys_known, self.get(keys_known) + take(total, known))
        self.put([targets[i] for i in fresh], take(total, fresh))


@dataclasses.dataclass
class _Front:
    """Nodes of one level that meet equally many nodes of the same sizes later, and what their elimination leaves.

    `inverses`: of the pivots P; `lower`: the factors K_ri P^-1 of all later nodes r, one below the other; `upper`: the
    blocks K_ic, side by side.
    """

    nodes: tuple[int, ...]
    later: tuple[tuple[int, ...], ...]  # the first later node of every node, the second, ...
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
            if front.lower is not None:
                terms = -matmul(front.lower, x.get([(i,) for i in front.nodes]))
                for keys, blocks in _by_shape(self._pieces(front, terms)):
                    x.add(keys, blocks)
        for front in reversed(self.fronts):
            keys = [(i,) for i in front.nodes]
            own = x.get(keys)
            if front.upper is not None:
                found = [x.get([(c,) for c in nodes]) for nodes in front.later]
                own = own - matmul(front.upper, jnp.concatenate(found, axis=1))
            x.put(keys, matmul(front.inverses, own))

    def _pieces(self, front: _Front, terms: Float[Array, "k rest c"]) -> Iterator[tuple[list[Key], Array]]:
        start = 0
        for nodes in front.later:
            size = self.pattern.sizes[nodes[0]]
            yield [(r,) for r in nodes], terms[:, start : start + size]
            start += size


def _by_shape(pieces: Iterable[tuple[list[Key], Array]]) -> Iterator[tuple[list[Key], Array]]:
    """Stacks of blocks of the same shape, joined."""
    found: dict[tuple[int, ...], tuple[list[Key], list[Array]]] = {}
    for keys, blocks in pieces:
        all_keys, parts = found.setdefault(blocks.shape[1:], ([], []))
        all_keys += keys
        parts.append(blocks)
    for all_keys, parts in found.values():
        yield all_keys, parts[0] if len(parts) == 1 else jnp.concatenate(parts)


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

        def factors(nodes: tuple[int, ...]) -> Float[Array, "k size"]:
            """What the rows of some nodes of one size are multiplied by."""
            one = jnp.ones((1, sizes[nodes[0]]), dtype=scale.dtype)
            table = jnp.concatenate([scale, one]) if max(nodes) >= first else one
            return take(table, [i - first if i >= first else table.shape[0] - 1 for i in nodes])

        fronts = []
        for front in self.fronts:
            lower = front.lower
            if lower is not None:
                lower = jnp.concatenate([factors(nodes) for nodes in front.later], axis=1)[:, :, None] * lower
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
        alike: dict[tuple[int, ...], list[int]] = {}
        for i in level:
            alike.setdefault(tuple(pattern.sizes[j] for j in pattern.later[i]), []).append(i)
        updates: list[tuple[list[Key], Array]] = []
        for sizes, nodes in alike.items():
            inverse_pivots = inverses(work.get([(i, i) for i in nodes]))
            later = tuple(zip(*(pattern.later[i] for i in nodes), strict=True))
            if not later:
                fronts.append(_Front(tuple(nodes), (), inverse_pivots, None, None))
                continue
            below = [work.get(list(zip(rows, nodes, strict=True))) for rows in later]
            lower = matmul(jnp.concatenate(below, axis=1), inverse_pivots)
            upper = jnp.concatenate([work.get(list(zip(nodes, columns, strict=True))) for columns in later], axis=2)
            fronts.append(_Front(tuple(nodes), later, inverse_pivots, lower, upper))
            product = -matmul(lower, upper)
            ends = np.cumsum(sizes)
            for rows, r_size, r_end in zip(later, sizes, ends, strict=True):
                for columns, c_size, c_end in zip(later, sizes, ends, strict=True):
                    block = product[:, r_end - r_size : r_end, c_end - c_size : c_end]
                    updates.append((list(zip(rows, columns, strict=True)), block))
        for keys, blocks in _by_shape(updates):
            work.add(keys, blocks)
    return fronts
