"""What runs in another way on a CPU than on an accelerator."""

import jax
import jax.numpy as jnp

from spookax import _platform
from spookax._platform import by_platform


def test_only_what_this_process_can_run_is_traced(monkeypatch):
    traced = []

    def one(x):
        traced.append("cpu")
        return x + 1

    def other(x):
        traced.append("default")
        return x + 2

    def call(x):
        return by_platform(x, cpu=one, default=other)

    x = jnp.zeros(())
    monkeypatch.setattr(_platform, "backends", lambda: {"cpu": None})
    assert float(jax.jit(lambda x: call(x))(x)) == 1.0
    assert traced == ["cpu"]
    monkeypatch.setattr(_platform, "backends", lambda: {"cpu": None, "cuda": None})
    assert float(jax.jit(lambda x: call(x))(x)) == 1.0  # lowered for the CPU
    assert set(traced) == {"cpu", "default"}
