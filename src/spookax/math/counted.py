"""A loop over the first of many inputs, whose number is known only when the program runs."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from .._typing import Array, Int

C = TypeVar("C")
T = TypeVar("T")


def scan(
    body: Callable[[C, Any], tuple[C, T]],
    carry: C,
    inputs: Any,
    begin: Int[Array, ""] | int,
    end: Int[Array, ""] | int,
) -> tuple[C, T]:
    """`jax.lax.scan` over the inputs numbered `begin` up to `end`; results of the others are zero.

    As fast as a scan of that length, and one program for all lengths up to that of the inputs; without derivative in
    reverse mode.
    """
    once = jax.jit(body)  # traced once for its form and the loop
    size = jax.tree.leaves(inputs)[0].shape[0]
    form = jax.eval_shape(once, carry, jax.tree.map(lambda a: a[0], inputs))[1]
    results = jax.tree.map(lambda a: jnp.zeros((size, *a.shape), a.dtype), form)

    def one(k: Array, at: tuple[C, T]) -> tuple[C, T]:
        carry, results = at
        carry, result = once(carry, jax.tree.map(lambda a: a[k], inputs))
        return carry, jax.tree.map(lambda all_, a: all_.at[k].set(a), results, result)

    return jax.lax.fori_loop(begin, end, one, (carry, results))
