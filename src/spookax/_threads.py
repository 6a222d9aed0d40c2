"""Independent pieces on all cores. XLA runs the many small operations of a step on one."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import jax

from ._interruption import WORKER

T = TypeVar("T")

_here = threading.local()  # `busy` in a thread that works on a task


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers() -> int:
    """Tasks that run at a time: one for each core, where JAX computes on the CPU; one elsewhere, and inside a task."""
    return 1 if getattr(_here, "busy", False) or jax.default_backend() != "cpu" else cores()


def _alone() -> bool:
    """Whether further threads are of no use. On one core, too, this one is left to Ctrl-C."""
    return workers() == 1


def _as_here() -> Callable[[Callable[[], T]], T]:
    """A way to call a task in another thread under the caller's settings, which JAX keeps thread by thread."""
    x64 = jax.config.read("jax_enable_x64")

    def run(task: Callable[[], T]) -> T:
        _here.busy = True
        with jax.enable_x64(x64):
            return jax.block_until_ready(task())

    return run


@contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    """A thread for every core. After an error no further task begins; after Ctrl-C nothing is waited for either."""
    pool, wait = ThreadPoolExecutor(cores(), WORKER), True
    try:
        yield pool
    except KeyboardInterrupt:
        wait = False
        raise
    finally:
        pool.shutdown(wait, cancel_futures=True)


def concurrently(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Results of all tasks, in order; on a CPU as many at a time as there are cores, elsewhere one after the other.

    Tasks of a task run one after the other: the cores are taken.
    """
    if len(tasks) <= 1 or _alone():
        return [task() for task in tasks]
    with _pool() as pool:
        return list(pool.map(_as_here(), tasks))


@contextmanager
def beside() -> Iterator[Callable[[Callable[[], T]], Callable[[], T]]]:
    """Work that other threads do beside this one: `submit(task)` gives a function that waits for the result."""
    if _alone():
        yield lambda task: _value(task())
        return
    run = _as_here()
    with _pool() as pool:
        yield lambda task: pool.submit(run, task).result


def _value(x: T) -> Callable[[], T]:
    return lambda: x
