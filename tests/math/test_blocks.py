"""Inverses of small blocks against numpy, and their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from spookax.math.blocks import inverse, inverses


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6])
def test_inverse_and_its_derivatives(n, rng):
    m = jnp.asarray(2.0 * np.eye(n) + 0.3 * rng.normal(size=(n, n)))
    np.testing.assert_allclose(inverse(m), np.linalg.inv(m), rtol=1e-12, atol=1e-13)
    check_grads(jax.jit(inverse), (m,), order=2)


def test_a_batch(rng):
    m = jnp.asarray(2.0 * np.eye(6)[None] + 0.3 * rng.normal(size=(3, 6, 6)))
    np.testing.assert_allclose(inverses(m), np.linalg.inv(m), rtol=1e-11, atol=1e-13)
    np.testing.assert_array_equal(inverses(m[:1])[0], jax.jit(inverses)(m[:1])[0])
