"""The last levels of a block elimination as the rounds of one loop, so that programs do not grow with their number.

The levels of a long chain halve in size: the last half of them has few nodes, and a program of its own for each takes
as long to compile as one of many nodes. Here nodes are eliminated some at a time, never of two levels, every node
filled up with zeros to the same number of later nodes and, with an identity, to the same size. A round reads its
blocks from a table, and writes what it changes as new blocks behind all that are there: nothing is added in place,
which would be a loop over blocks within each round.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float, Int
from .blocks import Key, Store, gathered, inverses, joined, take
from .product import matmul

_START = 40.0  # what a round costs beside its nodes, in products of two blocks
_WIDEST = 32  # nodes of a round
_ZERO, _ONE = 0, 1  # the blocks that come before all others


class _New(NamedTuple):
    """How new blocks come about in every round: an older block, and some of the terms of the round (the last is zero).

    `first`: where the first of them goes.
    """

    old: Int[Array, "rounds new"]
    terms: Int[Array, "rounds new most"]
    first: Int[Array, " rounds"]


@dataclasses.dataclass(frozen=True)
class Rounds:
    """Which nodes of some levels are eliminated in which round, and where they find their blocks (-1: no node)."""

    sizes: tuple[int, ...]  # of all nodes of the matrix
    nodes: tuple[tuple[int, ...], ...]
    later: dict[int, tuple[int, ...]]
    together: int
    width: int

    @property
    def size(self) -> int:
        """Rows of every node once it is filled up."""
        return max(self.sizes[i] for nodes in self.nodes for i in nodes)

    @property
    def order(self) -> list[int]:
        """The nodes, those of one size together."""
        return sorted((i for nodes in self.nodes for i in nodes), key=lambda i: self.sizes[i])

    @property
    def turns(self) -> Iterator[tuple[list[int], list[list[int]]]]:
        """Nodes and their later nodes of every round, filled up."""
        for nodes in self.nodes:
            now = [*nodes, *[-1] * (self.together - len(nodes))]
            around = [self.later.get(i, ()) for i in now]
            yield now, [[*later, *[-1] * (self.width - len(later))] for later in around]


def rounds(sizes: Sequence[int], levels: Sequence[Sequence[int]], later: Sequence[tuple[int, ...]]) -> Rounds:
    """The rounds of some levels: as many nodes at a time as cost least."""
    width = max(1, *(len(later[i]) for level in levels for i in level))

    def split(together: int) -> list[tuple[int, ...]]:
        return [tuple(level[k : k + together]) for level in levels for k in range(0, len(level), together)]

    def cost(together: int) -> float:
        return len(split(together)) * (_START + together * (1 + width) ** 2)

    together = min((2**k for k in range(_WIDEST.bit_length())), key=cost)
    nodes = tuple(split(together))
    return Rounds(tuple(sizes), nodes, {i: later[i] for now in nodes for i in now}, together, width)


@dataclasses.dataclass
class Loop:
    """The factors of the nodes of all rounds: inverses of pivots P, all K_ri P^-1 below, all K_ic beside."""

    rounds: Rounds
    inverses: Float[Array, "rounds together size size"]
    lower: Float[Array, "rounds together rest size"]
    upper: Float[Array, "rounds together size rest"]

    def forward(self, x: Store) -> Float[Array, "rounds together size columns"]:
        """The right-hand sides of the nodes when their turn has come."""
        keys = [(i,) for i in self.rounds.order]
        sides = _filled_up(self.rounds, x, keys)
        before = jnp.zeros_like(sides[:1])
        turns = [([(i,) for i in now], [(r,) for later in around for r in later]) for now, around in self.rounds.turns]
        read, new = _tables(turns, keys, len(before))

        def one(values: Array, turn: tuple[Array, Array, _New]) -> tuple[Array, Array]:
            lower, read, new = turn
            own = gathered(values, read)
            terms = -matmul(lower, own)
            return _with_new(values, terms.reshape(-1, *values.shape[1:]), new), own

        _, own = jax.lax.scan(one, _with_room(before, sides, new), (self.lower, read, new))
        return own

    def backward(self, own: Float[Array, "rounds together size columns"], x: Store) -> None:
        """Put the solution at the nodes into `x`, given what `forward` returned."""
        of = self.rounds
        first = [1 + k * of.together for k in range(len(of.nodes))]
        place = {i: k + c for k, now in zip(first, of.nodes, strict=True) for c, i in enumerate(now)}
        around = [[[place.get(r, _ZERO) for r in later] for later in around] for _, around in of.turns]

        def one(z: Array, turn: tuple[Array, ...]) -> tuple[Array, None]:
            inverse, upper, own, around, first = turn
            rows = gathered(z, around).reshape(of.together, -1, z.shape[2])
            mine = matmul(inverse, own - matmul(upper, rows))
            return jax.lax.dynamic_update_slice_in_dim(z, mine, first, 0), None

        z = jnp.zeros((1 + len(of.nodes) * of.together, *own.shape[2:]), dtype=own.dtype)
        z, _ = jax.lax.scan(one, z, (self.inverses, self.upper, own, _places(around), _places(first)), reverse=True)
        for size in sorted({of.sizes[i] for i in of.order}):
            mine = [i for i in of.order if of.sizes[i] == size]
            x.put([(i,) for i in mine], take(z, [place[i] for i in mine])[:, :size])


def eliminate(of: Rounds, work: Store) -> Loop:
    """The factors of the nodes of `of`. `work`: blocks of the matrix, where no other node is left."""
    inside, (together, width, size) = set(of.order), (of.together, of.width, of.size)
    keys = sorted((key for key in work if set(key) <= inside), key=lambda key: [of.sizes[i] for i in key])
    blocks = _filled_up(of, work, keys)
    before = jnp.stack([jnp.zeros_like(blocks[0]), jnp.eye(size, dtype=blocks.dtype)])
    turns: list[tuple[list[Key], list[Key]]] = []
    for now, around in of.turns:
        below = [(r, i) for i, later in zip(now, around, strict=True) for r in later]
        products = [(r, c) for later in around for r in later for c in later]
        turns.append(([*((i, i) for i in now), *below, *((i, r) for r, i in below)], products))
    read, new = _tables(turns, keys, len(before), pivots=together)

    def one(values: Array, turn: tuple[Array, _New]) -> tuple[Array, tuple[Array, Array, Array]]:
        read, new = turn
        pivots, below, beside = jnp.split(gathered(values, read), [together, together * (1 + width)])
        inverse = inverses(pivots)
        lower = matmul(below.reshape(together, width * size, size), inverse)
        upper = jnp.swapaxes(beside.reshape(together, width, size, size), 1, 2).reshape(together, size, width * size)
        product = -matmul(lower, upper).reshape(together, width, size, width, size)
        terms = jnp.swapaxes(product, 2, 3).reshape(-1, size, size)
        return _with_new(values, terms, new), (inverse, lower, upper)

    _, factors = jax.lax.scan(one, _with_room(before, blocks, new), (read, new))
    return Loop(of, *factors)


def _filled_up(of: Rounds, store: Store, keys: Sequence[Key]) -> Float[Array, "blocks ..."]:
    """The blocks of some keys, those of one shape together, all of the largest size, the pivots by identities."""
    parts = []
    for shape, alike in itertools.groupby(keys, key=lambda key: [of.sizes[i] for i in key]):
        mine = list(alike)
        blocks = store.get(mine)
        missing = [(0, of.size - rows) for rows in shape]
        blocks = jnp.pad(blocks, [(0, 0), *missing, *[(0, 0)] * (blocks.ndim - 1 - len(shape))])
        if len(shape) == 2 and shape[0] == shape[1] < of.size:
            pivots = np.array([i == j for i, j in mine], dtype=blocks.dtype)
            corner = np.diag((np.arange(of.size) >= shape[0]).astype(blocks.dtype))
            blocks = blocks + pivots[:, None, None] * corner
        parts.append(blocks)
    return joined(parts)


def _tables(
    turns: Sequence[tuple[list[Key], list[Key]]], keys: Sequence[Key], before: int, pivots: int = 0
) -> tuple[Int[Array, "rounds read"], _New]:
    """Where every round finds the blocks that it reads, and how its terms change which.

    **Arguments:**

    - `turns`: of every round the keys that it reads, the first of them `pivots`, and those of its terms. A pivot
      that is not there is an identity, every other block a zero.
    - `keys`: of the blocks that are there from the start, behind `before` others.
    """
    place = {key: before + n for n, key in enumerate(keys)}
    groups: list[dict[Key, list[int]]] = []
    for _, terms in turns:
        mine: dict[Key, list[int]] = {}
        for n, key in enumerate(terms):
            if min(key) >= 0:
                mine.setdefault(key, []).append(n)
        groups.append(mine)
    count = max(map(len, groups))
    most = max((len(group) for mine in groups for group in mine.values()), default=0)
    first = before + len(keys) + count * np.arange(len(turns))
    read, old, parts = [], np.full((len(turns), count), _ZERO), np.full((len(turns), count, most), len(turns[0][1]))
    for k, ((wanted, _), mine) in enumerate(zip(turns, groups, strict=True)):
        read.append([place.get(key, _ONE if n < pivots else _ZERO) for n, key in enumerate(wanted)])
        for n, (key, group) in enumerate(mine.items()):
            old[k, n] = place.get(key, _ZERO)
            parts[k, n, : len(group)] = group
            place[key] = int(first[k]) + n
    return _places(read), _New(_places(old), _places(parts), _places(first))


def _places(table: object) -> Int[Array, "..."]:
    return jnp.asarray(table, dtype=jnp.int32)


def _with_room(before: Array, blocks: Array, new: _New) -> Float[Array, "blocks ..."]:
    """All blocks, and room for the new ones of every round."""
    count = len(before) + len(blocks) + new.old.size
    room = jnp.zeros((count, *blocks.shape[1:]), dtype=blocks.dtype)
    return room.at[: len(before)].set(before).at[len(before) : len(before) + len(blocks)].set(blocks)


def _with_new(values: Float[Array, "blocks ..."], terms: Float[Array, "terms ..."], new: _New) -> Array:
    """The blocks after a round."""
    terms = jnp.concatenate([terms, jnp.zeros_like(terms[:1])])
    fresh = gathered(values, new.old) + jnp.sum(gathered(terms, new.terms), axis=1)
    return jax.lax.dynamic_update_slice_in_dim(values, fresh, new.first, 0)
