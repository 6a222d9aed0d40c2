"""Programs without short reductions, for those that are called one step at a time.

XLA's CPU client makes and frees an object for every array of a reduction's inner function, at every call of a program:
with the two hundred sums, maxima and products of a step that takes several times as long as the step. Written out as
so many additions they are nothing apart. In a loop of many steps the opposite holds: there reductions are the faster.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal

from .._typing import Array
from . import product

_MOST = 12  # entries of a reduction that is written out
_INLINED = {"jit": "jaxpr", "custom_jvp_call": "call_jaxpr"}
_PAIRS: dict[str, Callable[[Array, Array], Array]] = {
    "reduce_sum": operator.add,
    "reduce_max": jnp.maximum,
    "reduce_min": jnp.minimum,
    "reduce_and": operator.and_,
    "reduce_or": operator.or_,
}


def written_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays with its short reductions and products written out, inside its loops and branches, too.

    It gives the same numbers to rounding. Rules for derivatives are lost.
    """

    def run(*args: Any) -> Any:
        closed, out = jax.make_jaxpr(function, return_shape=True)(*args)
        return jax.tree.unflatten(jax.tree.structure(out), _evaluate(closed, jax.tree.leaves(args)))

    return run


def _evaluate(closed: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
    jaxpr = closed.jaxpr
    known: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *args), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else known[atom]

    for equation in jaxpr.eqns:
        out = _bind(equation.primitive, [read(atom) for atom in equation.invars], equation.params)
        known.update(zip(equation.outvars, out, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _bind(primitive: Any, args: list[Any], params: dict[str, Any]) -> Sequence[Any]:
    name = primitive.name
    if name in _INLINED:
        return _evaluate(params[_INLINED[name]], args)
    if name in _PAIRS and all(args[0].shape[axis] in range(1, _MOST + 1) for axis in params["axes"]):
        return [_reduced(_PAIRS[name], args[0], params["axes"])]
    if name == product.NAME and args[0].shape[-1] <= _MOST:
        a, b = args
        return [functools.reduce(jnp.add, (a[..., k, None] * b[..., None, k, :] for k in range(a.shape[-1])))]
    out = primitive.bind(*args, **{key: _rewritten(value) for key, value in params.items()})
    return out if primitive.multiple_results else [out]


def _reduced(pair: Callable[[Array, Array], Array], x: Array, axes: Sequence[int]) -> Array:
    for axis in sorted(axes, reverse=True):
        x = functools.reduce(pair, (lax.index_in_dim(x, k, axis, keepdims=False) for k in range(x.shape[axis])))
    return x


def _rewritten(value: Any) -> Any:
    """The programs among the parameters of a primitive, written out."""
    if isinstance(value, ClosedJaxpr):
        return jax.make_jaxpr(functools.partial(_flat, value))(*value.in_avals)
    return tuple(map(_rewritten, value)) if type(value) is tuple else value


def _flat(closed: ClosedJaxpr, *args: Any) -> list[Any]:
    return _evaluate(closed, args)
