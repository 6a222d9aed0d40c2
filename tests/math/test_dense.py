"""LU of dense matrices against numpy's LAPACK."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spookax.math import dense


def drawn(size, band, rng):
    """A matrix that is not symmetric, with a symmetric part that is positive definite and entries near its diagonal."""
    near = np.abs(np.subtract.outer(np.arange(size), np.arange(size))) <= band
    matrix = near * rng.normal(size=(size, size))
    return matrix + size * np.eye(size), rng.normal(size=(size, 2))


@pytest.mark.parametrize("size", [1, 37])
def test_solutions_are_those_of_lapack(size, rng):
    matrix, x = drawn(size, size, rng)
    factor = jax.jit(dense.factor)(matrix)
    np.testing.assert_allclose(factor.solve(jnp.asarray(x)), np.linalg.solve(matrix, x), rtol=1e-12, atol=1e-15)
    (transposed,) = jax.linear_transpose(factor.solve, x)(jnp.asarray(x))
    np.testing.assert_allclose(transposed, np.linalg.solve(matrix.T, x), rtol=1e-12, atol=1e-15)


@pytest.mark.slow
def test_a_band_of_any_width_is_factorised(rng):
    """Each window up to its limit, and just above it."""
    size = 252
    b, factor = dense.rows_of_block(size), jax.jit(dense.factor)
    limits = [window - b for window in dense.windows(size)]
    assert len(limits) == 2
    for band in (0, *limits, *(limit + 1 for limit in limits), size):
        matrix, x = drawn(size, band, rng)
        found = factor(matrix, band).solve(jnp.asarray(x))
        np.testing.assert_allclose(found, np.linalg.solve(matrix, x), rtol=1e-12, atol=1e-15)
