"""Small blocks: inverses of batches of them, sums and choices known when the program is built, and a store by key.

Nothing here calls LAPACK: batched LAPACK inside scans can block the thread pool of a small machine, and closed
forms for blocks of at most six rows are faster.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import AnyArray, Array, Float, Int, Shaped
from . import rotation
from .product import matmul
from .selection import selected

Key = tuple[int, ...]


@jax.custom_jvp
def inverse(m: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Inverse of a small matrix with positive definite symmetric part: halves, down to closed forms of size 3.

    Raises nothing: a singular matrix gives non-finite numbers, which the callers test.
    """
    return plain_inverse(m)


@inverse.defjvp
def _inverse_jvp(primals, tangents):
    found = inverse(*primals)
    return found, -matmul(matmul(found, tangents[0]), found)


def plain_inverse(m: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """`inverse` without its rule for derivatives."""
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
    ai = plain_inverse(a)
    left = matmul(c, ai)
    si = plain_inverse(d - matmul(left, b))
    right = matmul(ai, b)
    corner = matmul(right, si)
    return jnp.block([[ai + matmul(corner, left), -corner], [-matmul(si, left), si]])


def inverses(m: Float[Array, "k n n"]) -> Float[Array, "k n n"]:
    """Inverses of a batch of blocks."""
    return inverse(m[0])[None] if m.shape[0] == 1 else jax.vmap(inverse)(m)


def take(values: Shaped[Array, "k ..."], index: Sequence[int]) -> Shaped[Array, "m ..."]:
    """Some entries of an array, by indices known when the program is built: nothing for all of them in order."""
    if len(index) == values.shape[0] and list(index) == list(range(values.shape[0])):
        return values
    if len(index) == 0 or list(index) == list(range(index[0], index[0] + len(index))):
        first = index[0] if len(index) else 0
        return jax.lax.slice_in_dim(values, first, first + len(index))
    return selected(values, index)


def gathered(values: Shaped[Array, "k ..."], places: Int[Array | np.ndarray, "..."]) -> Shaped[Array, "..."]:
    """The entries of an array at these places, none of them negative or beyond its end."""
    if isinstance(places, np.ndarray):
        return selected(values, places.reshape(-1)).reshape(*places.shape, *values.shape[1:])
    places = places.astype(np.int32)[..., None]
    lead = places.ndim - 1
    blocks = jax.lax.GatherDimensionNumbers(tuple(range(lead, lead + values.ndim - 1)), (0,), (0,))
    return jax.lax.gather(values, places, blocks, (1, *values.shape[1:]), mode="promise_in_bounds")


def chosen(values: Shaped[Array, "k ..."], which: Sequence[int] | AnyArray) -> Shaped[Array, "m ..."]:
    """Some entries of an array, by indices (m,) that are known when the program is built, or that it finds."""
    return gathered(values, which) if isinstance(which, jax.Array) else take(values, np.asarray(which).tolist())


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


def unstacked(values: Float[Array, " k"]) -> list[Float[Array, ""]]:
    """The numbers of a short array."""
    return [jax.lax.squeeze(jax.lax.slice_in_dim(values, i, i + 1), (0,)) for i in range(values.shape[0])]


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
        return take(joined(parts), [count if n < 0 else n for n in where])

    def dense(self, sizes: Sequence[int]) -> Float[Array, "n n"]:
        """The matrix of the blocks under (row node, column node); `sizes`: of the nodes."""
        first = np.concatenate([[0], np.cumsum(sizes)])
        out = jnp.zeros((first[-1], first[-1]), dtype=self._stacks[0].dtype)
        for stack, blocks in enumerate(self._stacks):
            mine = [(key, i) for key, (of, i) in self._place.items() if of == stack]
            if mine:
                at = np.array([(first[row], first[column]) for (row, column), _ in mine], dtype=np.int32)
                windows = jax.lax.ScatterDimensionNumbers((1, 2), (), (0, 1))
                out = jax.lax.scatter(out, at, take(blocks, [i for _, i in mine]), windows, mode="promise_in_bounds")
        return out

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


def joined(parts: Sequence[Array], axis: int = 0) -> Array:
    """The arrays one behind the other; a single one as it is."""
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=axis)


def in_order(parts: Sequence[Shaped[Array, "_ ..."]], keys: Sequence[Any]) -> Shaped[Array, "k ..."]:
    """The entries of all arrays, one behind the other, in the order of their keys."""
    return take(joined(parts), sorted(range(len(keys)), key=keys.__getitem__))
