"""Loops that are long for reverse mode: what they keep grows with the square root of their length."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def checkpointed_scan(f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any) -> tuple[Any, Any]:
    """`jax.lax.scan(f, init, xs)` for episodes that are differentiated.

    The reverse mode keeps the states of about every √n-th of n passes and what happens within one such part, which it
    goes through once more. So its memory grows with √n, and it takes one more pass forwards.

    **Source:** two levels of A. Griewank, "Achieving logarithmic growth of temporal and spatial complexity in reverse
    automatic differentiation" (1992).
    """
    length = jax.tree.leaves(xs)[0].shape[0]
    size = max(1, math.isqrt(length))
    whole = length // size * size

    @jax.checkpoint
    def part(carry: Any, xs: Any) -> tuple[Any, Any]:
        return jax.lax.scan(f, carry, xs)

    parts = jax.tree.map(lambda a: a[:whole].reshape(whole // size, size, *a.shape[1:]), xs)
    carry, ys = jax.lax.scan(part, init, parts)
    ys = jax.tree.map(lambda a: a.reshape(whole, *a.shape[2:]), ys)
    if whole == length:
        return carry, ys
    carry, rest = part(carry, jax.tree.map(lambda a: a[whole:], xs))
    return carry, jax.tree.map(lambda a, b: jnp.concatenate([a, b]), ys, rest)
