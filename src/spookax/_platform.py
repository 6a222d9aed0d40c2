"""What a program does in another way on a CPU than on an accelerator."""

from collections.abc import Callable
from typing import TypeVar

import jax
from jax.extend.backend import backends

T = TypeVar("T")


def by_platform(*arguments: jax.Array, cpu: Callable[..., T], default: Callable[..., T]) -> T:
    """`jax.lax.platform_dependent`: which of both is decided when a program is lowered for a platform. It traces both,
    and that takes time; where the process has no platform but the CPU, only that one is traced.
    """
    if set(backends()) == {"cpu"}:
        return cpu(*arguments)
    return jax.lax.platform_dependent(*arguments, cpu=cpu, default=default)
