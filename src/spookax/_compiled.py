"""`compiled`: jit for the large programs of the estimators."""

import functools
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

T = TypeVar("T")

# A step is thousands of operations on tiny arrays. On a CPU, compiling one fusion at a time by the newer emitters takes
# twice as long as the elder ones and the result is no faster (`benchmarks/`). A library call or a team of threads for a
# product of 3 by 3 matrices costs more than the product: both are switched off.
_OPTIONS: dict[str, Any] = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_backend_optimization_level": 1,
    "xla_cpu_multi_thread_eigen": False,
    "xla_cpu_experimental_ynn_fusion_type": "",
}


@functools.cache
def compiler_options() -> dict[str, Any] | None:
    """The options of `compiled`; None where this version of XLA does not know them."""
    try:
        jax.jit(lambda x: x, compiler_options=_OPTIONS).lower(0.0).compile()
    except Exception:
        return None
    return _OPTIONS


class Compiled(Generic[T]):
    """`eqx.filter_jit` with options that halve the time to compile on a CPU.

    Several threads may call it: what is not compiled yet is compiled by one of them, and the others wait for it.
    """

    def __init__(self, function: Callable[..., T], optimise: bool = True):
        functools.update_wrapper(self, function)
        self._function, self._optimise = function, optimise
        self._compiling = threading.Lock()
        self._known: set[Any] = set()

    @functools.cached_property
    def _jitted(self) -> Callable[..., T]:
        options = compiler_options()
        if options and not self._optimise:
            options = options | {"xla_backend_optimization_level": 0}
        return eqx.filter_jit(self._function, compiler_options=options)  # pyright: ignore[reportCallIssue]

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


def compiled(function: Callable[..., T]) -> Compiled[T]:
    """A function as `Compiled`."""
    return Compiled(function)


def seldom_called(function: Callable[..., T]) -> Compiled[T]:
    """A function as `Compiled` in a third of the time, to run at a third of the speed."""
    return Compiled(function, optimise=False)
