"""Products of small matrices that XLA can fuse with what surrounds them.

A step multiplies some hundred matrices of three to twelve rows. On a CPU each `dot_general` of them is a call of its
own, several times as long as its arithmetic, and a batch of them has to be transposed for it; written as multiply and
sum, a product becomes part of its neighbours, a step takes a third of the time (`benchmarks/`), and its derivatives
compile in two thirds of the time. `matmul` therefore is one primitive, bilinear in its factors, that is written out
only where it is compiled and its final size is known. A batch stays the first axis, where it is: only if one factor is
the same for all of it, it becomes more rows of the other.
"""

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from .._typing import AnyArray, Array, Float

NAME = "spookax_matmul"  # of the primitive
_NARROW = 4  # terms of a sum that is never left to `dot_general`, which is the faster beyond
_ALONE = 16  # the same where there is no batch: a long matrix times a small one is a large program of XLA
_SINGLE, _LARGE = 216, 2048  # so many multiplications of one product, and more than so many of all of a batch


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
    lead, shape = tuple(range(a.ndim - 2)), (*a.shape, b.shape[-1])
    single = a.shape[-2] * a.shape[-1] * b.shape[-1]
    narrow = _NARROW if lead else _ALONE
    if a.shape[-1] > narrow and single >= _SINGLE and a.size * b.shape[-1] > _LARGE:
        return jax.lax.dot_general(a, b, (((a.ndim - 1,), (a.ndim - 2,)), (lead, lead)))
    rows = jax.lax.broadcast_in_dim(a, shape, (*lead, a.ndim - 2, a.ndim - 1))
    columns = jax.lax.broadcast_in_dim(b, shape, (*lead, a.ndim - 1, a.ndim))
    return jax.lax.reduce_sum(jax.lax.mul(rows, columns), (a.ndim - 1,))


def _batch(args: tuple[AnyArray, AnyArray], axes: tuple[int | None, int | None]) -> tuple[Array, int]:
    (a, b), (at, bt) = args, axes
    a, b = (m if t is None else jnp.moveaxis(m, t, 0) for m, t in ((a, at), (b, bt)))
    size = (b if at is None else a).shape[0]
    if bt is None and b.ndim == 2:  # more rows of a
        return matmul(a.reshape(-1, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[-1]), 0
    if at is None and a.ndim == 2 and b.shape[-1] == 1:  # the same, transposed
        return matmul(b[..., 0], a.T)[..., None], 0
    return matmul(*(jnp.broadcast_to(m, (size, *m.shape)) if t is None else m for m, t in ((a, at), (b, bt)))), 0


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
