"""Recordings are worked through in blocks of equally many steps.

What is compiled is compiled for one block: once for recordings of every length, for a coarser or finer step, for a
prediction after an identification. What is large (Jacobians, covariances) stays in blocks, as lists, and so do the
readings of a fit, which go to the device once; trajectories are whole, on the host, and are split where they are
needed. Blocks that do not depend on one another run on all cores.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from ..._threads import concurrently
from ...protocol import Samples
from ..linearise import Path

BLOCK = 512  # steps: some milliseconds of work, many times what calling compiled code costs

T = TypeVar("T")
C = TypeVar("C")


def spans(steps: int) -> list[tuple[int, int]]:
    """Begin and end of every block. What is not made of whole blocks (a short recording) is a single one."""
    size = BLOCK if steps % BLOCK == 0 else steps
    return [(begin, begin + size) for begin in range(0, steps, size)]


def split(tree: T | list[T]) -> list[T]:
    """Arrays with one entry per step, in blocks; what is a list of blocks stays as it is."""
    if isinstance(tree, list):
        return tree
    host = jax.tree.map(np.asarray, tree)
    steps = jax.tree.leaves(host)[0].shape[0]
    return [jax.tree.map(lambda a, b=b, e=e: a[b:e], host) for b, e in spans(steps)]


def readings_on_device(samples: Samples) -> list[Samples]:
    """The readings of a recording in blocks, where they are computed with."""
    return jax.device_put(split(samples))


def split_path(path: Path) -> list[Path]:
    """A trajectory in blocks, each with the states at both of its ends."""
    host = jax.tree.map(np.asarray, path)
    steps = split((host.w, host.guess, host.result))
    x = [jax.tree.map(lambda a, b=b, e=e: a[b : e + 1], host.x) for b, e in spans(host.w.shape[0])]
    return [Path(x, *block) for x, block in zip(x, steps, strict=True)]


def joined(parts: Sequence[T]) -> T:
    """The arrays of all blocks as one."""
    return jax.tree.map(lambda *a: np.asarray(a[0]) if len(a) == 1 else np.concatenate(a), *parts)


def joined_path(parts: Sequence[Path]) -> Path:
    """The trajectory that consists of those of all blocks."""
    x = [jax.tree.map(lambda a: np.asarray(a)[:-1], part.x) for part in parts[:-1]]
    return Path(joined([*x, parts[-1].x]), *joined([(part.w, part.guess, part.result) for part in parts]))


def mapped(function: Callable[..., T], *blocks: Sequence[Any]) -> list[T]:
    """The function on all blocks, which do not depend on one another."""
    return concurrently([functools.partial(function, *block) for block in zip(*blocks, strict=True)])


def forward(function: Callable[..., tuple[C, T]], carry: C, *blocks: Sequence[Any]) -> tuple[C, list[T]]:
    """A scan over the blocks, `function(carry, *block)`: what the last one hands on, and the results of all."""
    out = []
    for block in zip(*blocks, strict=True):
        carry, part = function(carry, *block)
        out.append(part)
    return carry, out


def backward(function: Callable[..., tuple[C, T]], carry: C, *blocks: Sequence[Any]) -> tuple[C, list[T]]:
    """The same from the last block to the first; results in order of time."""
    carry, out = forward(function, carry, *(block[::-1] for block in blocks))
    return carry, out[::-1]
