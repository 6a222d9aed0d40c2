"""Small fully connected networks as a flat list of weights: how many there are, and drawn ones to start from.

`sizes` are the numbers of inputs, of the units of every hidden layer, and of outputs. Weights go layer by layer, each a
matrix by rows with the bias as its last column.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

STARTS = {
    "rich": lambda a, b: (5.0 / 3.0 * math.sqrt(3.0 / a), 1.0 / math.sqrt(a)),
    "glorot": lambda a, b: (math.sqrt(6.0 / (a + b)), 0.0),
    "plain": lambda a, b: (1.0 / math.sqrt(a),) * 2,
}


def count(sizes: Sequence[int]) -> int:
    """How many weights there are."""
    return sum((a + 1) * b for a, b in pairwise(sizes))


def draw(sizes: Sequence[int], rng: np.random.Generator, kind: str = "rich") -> np.ndarray:
    """Weights (count(sizes),) to start from.

    `rich`: uniform with standard deviation (5/3) / sqrt(inputs) [Kaiming with the gain of tanh], biases within
    1/sqrt(inputs); `glorot`: within sqrt(6 / (inputs + outputs)), biases zero; `plain`: all within 1/sqrt(inputs).
    A network that starts with small weights learns a nearly straight line and keeps to it.
    """
    if kind not in STARTS:
        raise ValueError(f"no such start of a network: {kind!r}; known: {', '.join(STARTS)}")
    parts = []
    for a, b in pairwise(sizes):
        weight, bias = STARTS[kind](a, b)
        parts.append(rng.uniform(-1.0, 1.0, size=(b, a + 1)) * np.append(np.full(a, weight), bias))
    return np.concatenate([part.reshape(-1) for part in parts])
