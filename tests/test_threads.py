"""Independent pieces on all cores: results, errors and settings are those of a loop."""

import jax
import jax.numpy as jnp
import pytest

from spookax._threads import concurrently


def test_results_come_in_order():
    assert concurrently([lambda i=i: i**2 for i in range(5)]) == [0, 1, 4, 9, 16]
    assert concurrently([]) == []


def test_an_error_is_raised():
    def fail() -> None:
        raise ValueError("third")

    with pytest.raises(ValueError, match="third"):
        concurrently([lambda: None, lambda: None, fail])


@pytest.mark.parametrize("x64", [True, False])
def test_precision_is_the_callers(x64):
    with jax.enable_x64(x64):
        found = concurrently([lambda: jnp.ones(3) / 3] * 2)
    assert {str(a.dtype) for a in found} == {"float64" if x64 else "float32"}
