"""What is being compiled is told to whoever listens."""

import jax.numpy as jnp
import pytest

from spookax._compiled import compiled
from spookax._progress import announce, compiling, listening


def test_a_new_form_of_arguments_is_announced_and_a_known_one_is_not():
    @compiled
    def double(x):
        return 2 * x

    heard: list[tuple[str, str]] = []
    with listening(lambda *said: heard.append(said)):
        double(jnp.ones(3))
        double(jnp.zeros(3))
        assert heard == [("double", "compiling"), ("double", "ready")]
        double(jnp.zeros(4))
    assert heard == [("double", "compiling"), ("double", "ready")] * 2
    double(jnp.zeros(5))
    assert len(heard) == 4


def test_what_fails_is_over_too():
    heard: list[str] = []

    def fail() -> None:
        with compiling("program"):
            raise ValueError("cannot be compiled")

    with listening(lambda name, stage: heard.append(stage)), pytest.raises(ValueError, match="compiled"):
        fail()
    assert heard == ["compiling", "ready"]


def test_without_a_listener_nothing_happens():
    announce("program", "compiling")
