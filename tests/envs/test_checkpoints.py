"""Loops whose reverse mode keeps little."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.measure import temporary_memory
from spookax.envs import checkpointed_scan

pytestmark = pytest.mark.quick


def _pass(carry, x):
    carry = jnp.sin(carry) + x
    return carry, jnp.sum(carry**2)


@pytest.mark.parametrize("length", [1, 2, 7, 16, 19])
def test_values_and_gradients_are_those_of_a_plain_loop(length, rng):
    start, xs = jnp.asarray(rng.normal(size=3)), jnp.asarray(rng.normal(size=(length, 3)))

    def end(scan):
        def of(start, xs):
            carry, ys = scan(_pass, start, xs)
            return jnp.sum(carry) + jnp.sum(ys), (carry, ys)

        return jax.jit(jax.value_and_grad(of, (0, 1), has_aux=True))(start, xs)

    found, plain = jax.tree.leaves(end(checkpointed_scan)), jax.tree.leaves(end(jax.lax.scan))
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-14)


def test_what_the_gradient_keeps_grows_with_the_root_of_the_length():
    def kept(scan, length):
        def of(start):
            carry, _ = scan(lambda c, x: (jnp.sin(c) * x, None), start, jnp.ones(length))
            return jnp.sum(carry)

        compiled = jax.jit(jax.grad(of)).lower(jnp.ones(1000)).compile()
        size = temporary_memory(compiled)
        assert size is not None
        return size

    longer = 16
    assert kept(checkpointed_scan, 400 * longer) < longer**0.6 * kept(checkpointed_scan, 400)
    assert kept(jax.lax.scan, 400 * longer) > longer**0.9 * kept(jax.lax.scan, 400)
