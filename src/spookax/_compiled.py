"""`jit` with options for programs of many small operations, and `compiled` for the large ones of the estimators."""

import functools
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

T = TypeVar("T")

# A step is thousands of operations on tiny arrays. To run those that do not wait for each other at once, to call a
# library or to form a team of threads for a product of 3 by 3 matrices costs more than the product (`benchmarks/`).
_PLAIN: dict[str, Any] = {
    "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
    "xla_cpu_multi_thread_eigen": False,
    "xla_cpu_experimental_ynn_fusion_type": "",
    # compiling one fusion at a time by the newer emitters takes twice as long as by the elder ones; a step is no faster
    "xla_cpu_use_fusion_emitters": False,
}
_QUICK: dict[str, Any] = {"xla_backend_optimization_level": 1}


@functools.cache
def compiler_options(*, quick: bool = True) -> dict[str, Any]:
    """Options for programs of many small operations: those that this version of XLA knows.

    `quick`: with those that compile in nine tenths of the time.
    """

    def known(option: str, value: Any) -> bool:
        try:
            jax.jit(lambda x: x, compiler_options={option: value}).lower(0.0).compile()
        except Exception:
            return False
        return True

    return {k: v for k, v in (_PLAIN | _QUICK if quick else _PLAIN).items() if known(k, v)}


class Compiled(Generic[T]):
    """`eqx.filter_jit` with options for the outermost program.

    Several threads may call it: what is not compiled yet is compiled by one of them, and the others wait for it.
    """

    def __init__(self, function: Callable[..., T], options: Callable[[], dict[str, Any]]):
        functools.update_wrapper(self, function)
        self._function, self._options = function, options
        self._compiling = threading.Lock()
        self._known: set[Any] = set()

    @functools.cached_property
    def _jitted(self) -> Callable[..., T]:
        return eqx.filter_jit(self._function, compiler_options=self._options())  # pyright: ignore[reportCallIssue]

    @functools.cached_property
    def _part_of_another(self) -> Callable[..., T]:
        return eqx.filter_jit(self._function)  # options belong to the outermost program

    def __call__(self, *args: Any, **kwargs: Any) -> T:
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((args, kwargs))):
            return self._part_of_another(*args, **kwargs)
        key = _signature((args, kwargs))
        if key in self._known:
            return self._jitted(*args, **kwargs)
        with self._compiling:
            out = self._jitted(*args, **kwargs)
        self._known.add(key)
        return out

    def prepare(self, *args: Any, **kwargs: Any) -> None:
        """Compile for arguments of this form, unless that has been done."""
        if _signature((args, kwargs)) not in self._known:
            self(*args, **kwargs)


def _signature(tree: Any) -> Any:
    leaves, form = jax.tree.flatten(tree)
    kinds = [(x.shape, x.dtype) if isinstance(x, (jax.Array, np.ndarray)) else x for x in leaves]
    return form, tuple(kinds)


def jit(function: Callable[..., T]) -> Compiled[T]:
    """`jax.jit` for programs that step: arrays are traced, everything else is part of the program, as in
    `equinox.filter_jit`.

    On a CPU with XLA's own options a step takes up to twice as long, because operations that do not wait for each
    other are handed to several threads, which takes longer than to do them. Inside another compiled function these
    options are that one's.
    """
    return Compiled(function, functools.partial(compiler_options, quick=False))


def compiled(function: Callable[..., T]) -> Compiled[T]:
    """A function as `Compiled`, in nine tenths of the time of `jit`, to run at nine tenths of the speed."""
    return Compiled(function, compiler_options)


def seldom_called(function: Callable[..., T]) -> Compiled[T]:
    """A function as `Compiled` in half the time, to run at a quarter of the speed."""
    level = "xla_backend_optimization_level"
    return Compiled(function, lambda: {k: 0 if k == level else v for k, v in compiler_options().items()})
