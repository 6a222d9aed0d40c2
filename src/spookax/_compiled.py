"""`compiled`: jit for the large programs of the estimators."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax

P = ParamSpec("P")
T = TypeVar("T")

# A step is thousands of operations on tiny arrays. On a CPU, compiling one fusion at a time by the newer emitters takes
# twice as long as the elder ones and the result is no faster (`benchmarks/`).
_OPTIONS: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}


@functools.cache
def compiler_options() -> dict[str, Any] | None:
    """The options of `compiled`; None where this version of XLA does not know them."""
    try:
        jax.jit(lambda x: x, compiler_options=_OPTIONS).lower(0.0).compile()
    except Exception:
        return None
    return _OPTIONS


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """`eqx.filter_jit` with options that halve the time to compile on a CPU."""

    @functools.cache
    def jitted() -> Callable[P, T]:
        return eqx.filter_jit(function, compiler_options=compiler_options())  # pyright: ignore[reportCallIssue]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return jitted()(*args, **kwargs)

    return call
