"""Products of small matrices that XLA can fuse with what surrounds them.

A step multiplies some hundred matrices of three to twelve rows. On a CPU each `dot_general` of them is a call of its
own, several times as long as its arithmetic; written as multiply and sum, it becomes part of its neighbours and a
step takes a third of the time (`benchmarks/`). In a large batch the opposite holds; a long matrix times a small one is
then best written as a sum of outer products. `matmul` therefore is one primitive, bilinear in its factors, that is
written out only where it is compiled and its final size is known.
"""

import functools

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from .._typing import AnyArray, Array, Float

NAME = "spookax_matmul"  # of the primitive
_LARGE = 2048  # multiplications of which another way is the faster
_NARROW = 16  # columns of a long matrix that is one of outer products


def matmul(a: Float[AnyArray, "*#batch i k"], b: Float[AnyArray, "*#batch k j"]) -> Float[Array, "*#batch i j"]:
    """a @ b; leading axes are equal or absent in one factor."""
    if a.ndim != b.ndim:
        lead = a.shape[:-2] or b.shape[:-2]
        a, b = (jnp.broadcast_to(m, (*lead, *m.shape[-2:])) for m in (a, b))
    return _matmul.bind(a, b)


def matvec(a: Float[AnyArray, "*#batch i k"], x: Float[AnyArray, "*#batch k"]) -> Float[Array, "*#batch i"]:
    """a @ x; leading axes are equal or absent in one factor."""
    out = matmul(a, jax.lax.expand_dims(x, (x.ndim,)))
    return jax.lax.squeeze(out, (out.ndim - 1,))


def _multiply(a: Array, b: Array) -> Array:
    if a.size * b.shape[-1] <= _LARGE:
        lead, shape = tuple(range(a.ndim - 2)), (*a.shape, b.shape[-1])
        rows = jax.lax.broadcast_in_dim(a, shape, (*lead, a.ndim - 2, a.ndim - 1))
        columns = jax.lax.broadcast_in_dim(b, shape, (*lead, a.ndim - 1, a.ndim))
        return jax.lax.reduce_sum(rows * columns, (a.ndim - 1,))
    if a.ndim == 2 and a.shape[1] <= _NARROW:
        parts = (a[:, k : k + 1] * b[k : k + 1] for k in range(a.shape[1]))
        return functools.reduce(jnp.add, parts)
    lead = tuple(range(a.ndim - 2))
    return jax.lax.dot_general(a, b, (((a.ndim - 1,), (a.ndim - 2,)), (lead, lead)))


def _batch(args: tuple[AnyArray, AnyArray], axes: tuple[int | None, int | None]) -> tuple[Array, int]:
    (a, b), (at, bt) = args, axes
    if at is None:  # the batch becomes columns of b
        assert bt is not None
        b = jnp.moveaxis(b, bt, -1)
        out = matmul(a, b.reshape(*b.shape[:-2], -1))
        return out.reshape(*out.shape[:-1], *b.shape[-2:]), out.ndim
    if bt is None:  # rows of a
        a = jnp.moveaxis(a, at, -2)
        lead, (rows, size, k) = a.shape[:-3], a.shape[-3:]
        out = matmul(a.reshape(*lead, rows * size, k), b)
        return out.reshape(*lead, rows, size, b.shape[-1]), len(lead) + 1
    return matmul(jnp.moveaxis(a, at, 0), jnp.moveaxis(b, bt, 0)), 0


_matmul = Primitive(NAME)
_matmul.def_impl(jax.jit(_multiply))
_matmul.def_abstract_eval(lambda a, b: a.update(shape=(*a.shape[:-1], b.shape[-1])))
ad.defbilinear(
    _matmul,
    lambda ct, a, b: matmul(ct, jnp.swapaxes(b, -1, -2)),
    lambda ct, a, b: matmul(jnp.swapaxes(a, -1, -2), ct),
)
batching.primitive_batchers[_matmul] = _batch
mlir.register_lowering(_matmul, mlir.lower_fun(_multiply, multiple_results=False))
