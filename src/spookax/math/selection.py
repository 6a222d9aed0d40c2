"""Entries of an array by places that are known when the program is built.

The library's gather is transposed into a scatter, which XLA compiles for a CPU into a loop over single entries: in the
derivatives of a step, a sixth of their time. What is known beforehand is transposed into a choice again: an entry's
cotangent is the sum of those of the places that took it.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from .._typing import AnyArray, Array, Shaped

_MOST = 4  # choices that are summed up; where an entry is taken more often, scattering is the shorter program


def selected(
    values: Shaped[AnyArray, "..."], places: Sequence[int] | np.ndarray, axis: int = 0
) -> Shaped[Array, "..."]:
    """The entries of an array at these places along an axis, none of them beyond its end; zero where a place is -1.

    **Arguments:** `places` (k,): in the result, `axis` has this length.
    """
    return _selected.bind(values, places=tuple(map(int, places)), axis=axis % np.ndim(values))


def _gather(values: Array, places: tuple[int, ...], axis: int) -> Array:
    index = np.asarray(places, dtype=np.int32)
    if index.size == 0 or index.min() < 0:
        shape = (*values.shape[:axis], 1, *values.shape[axis + 1 :])
        index = np.where(index < 0, values.shape[axis], index)
        values = jnp.concatenate([values, jnp.zeros(shape, dtype=values.dtype)], axis=axis)
    rest = tuple(i for i in range(values.ndim) if i != axis)
    numbers = jax.lax.GatherDimensionNumbers(rest, (axis,), (axis,))
    sizes = (*values.shape[:axis], 1, *values.shape[axis + 1 :])
    return jax.lax.gather(values, index[:, None], numbers, sizes, mode="promise_in_bounds")


def _transposed(ct: Array, values: Any, places: tuple[int, ...], axis: int) -> list[Array]:
    size = values.aval.shape[axis]
    takers: list[list[int]] = [[] for _ in range(size)]
    for i, place in enumerate(places):
        if place >= 0:
            takers[place].append(i)
    width = max(map(len, takers), default=0)
    if width > _MOST:
        kept = [i for i, place in enumerate(places) if place >= 0]
        ct = jnp.moveaxis(selected(ct, kept, axis), axis, 0)
        out = jnp.zeros((size, *ct.shape[1:]), dtype=ct.dtype)
        return [jnp.moveaxis(out.at[np.array([places[i] for i in kept])].add(ct), 0, axis)]
    columns = [[of[k] if k < len(of) else -1 for of in takers] for k in range(max(width, 1))]
    return [sum((selected(ct, column, axis) for column in columns[1:]), selected(ct, columns[0], axis))]


def _batch(args: tuple[Array], axes: tuple[int], places: tuple[int, ...], axis: int) -> tuple[Array, int]:
    (values,), (at,) = args, axes
    return _selected.bind(values, places=places, axis=axis + (at <= axis)), at


_selected = Primitive("spookax_selected")
_selected.def_impl(jax.jit(_gather, static_argnums=(1, 2)))
_selected.def_abstract_eval(
    lambda values, places, axis: values.update(shape=(*values.shape[:axis], len(places), *values.shape[axis + 1 :]))
)
ad.deflinear2(_selected, _transposed)
batching.primitive_batchers[_selected] = _batch
mlir.register_lowering(_selected, mlir.lower_fun(_gather, multiple_results=False))
