"""Independent pieces on all cores. XLA runs the many small operations of a step on one."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax

T = TypeVar("T")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def concurrently(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Results of all tasks, in order; each in a thread of its own on a CPU, one after the other elsewhere.

    What they compile should have been compiled before, or every thread compiles it.
    """
    if len(tasks) <= 1 or cores() == 1 or jax.default_backend() != "cpu":
        return [task() for task in tasks]
    x64 = jax.config.read("jax_enable_x64")  # of the caller: JAX keeps such settings thread by thread

    def run(task: Callable[[], T]) -> T:
        with jax.enable_x64(x64):
            return jax.block_until_ready(task())

    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(run, tasks))
