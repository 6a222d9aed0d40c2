"""Independent pieces on all cores: results, errors and settings are those of a loop."""

import jax
import jax.numpy as jnp
import pytest

from spookax._compiled import compiled
from spookax._threads import beside, concurrently


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


def test_work_beside_comes_in_order_and_its_errors_are_raised():
    with beside() as submit:
        waiting = [submit(lambda i=i: i**2) for i in range(5)]
        assert [wait() for wait in waiting] == [0, 1, 4, 9, 16]

    def fail() -> int:
        raise ValueError("beside")

    with pytest.raises(ValueError, match="beside"), beside() as submit:
        submit(fail)()


def test_tasks_of_tasks_have_their_turn():
    assert concurrently([lambda: concurrently([lambda: 1, lambda: 2])] * 3) == [[1, 2]] * 3


def test_many_threads_compile_once():
    traced = []

    @compiled
    def double(x: jax.Array) -> jax.Array:
        traced.append(x.shape)
        return 2 * x

    found = concurrently([lambda i=i: double(jnp.full(3, i, dtype=int)) for i in range(6)])
    assert [float(a[0]) for a in found] == [0, 2, 4, 6, 8, 10]
    double.prepare(jnp.zeros(3, dtype=int))
    double.prepare(jnp.zeros(4, dtype=int))
    assert traced == [(3,), (4,)]
