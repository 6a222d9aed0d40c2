"""A small fully connected network with tanh between its layers, its weights a flat vector."""

from collections.abc import Sequence
from itertools import pairwise

import jax.numpy as jnp

from .._typing import Array, Float, Scalar


def layers(weights: Float[Array, " p"], sizes: Sequence[int]) -> list[Array]:
    """Of every layer the matrix with the bias as its last column; order as in `spookax.scene.network_weights`."""
    found, begin = [], 0
    for a, b in pairwise(sizes):
        found.append(weights[begin : begin + (a + 1) * b].reshape(b, a + 1))
        begin += (a + 1) * b
    return found


def output(layers: Sequence[Array], inputs: Float[Array, " n"]) -> Scalar:
    """The first output."""
    y = inputs
    for i, layer in enumerate(layers):
        y = jnp.sum(layer[:, :-1] * y[None], axis=1) + layer[:, -1]
        y = jnp.tanh(y) if i < len(layers) - 1 else y
    return y[0]
