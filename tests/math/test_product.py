"""Products of small matrices against numpy, under every transformation."""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from jaxtyping import TypeCheckError

from spookax.math.product import matmul, matvec

A_SHAPE, B_SHAPE = (5, 3, 4), (5, 4, 2)
close = functools.partial(np.testing.assert_allclose, rtol=1e-13, atol=1e-13)


@pytest.fixture
def factors(rng) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=A_SHAPE), rng.normal(size=B_SHAPE)


def test_leading_axes(factors):
    A, B = factors
    close(matmul(jnp.asarray(A), jnp.asarray(B)), A @ B)
    close(matmul(jnp.asarray(A[0]), jnp.asarray(B)), A[0] @ B)
    close(matmul(jnp.asarray(A), jnp.asarray(B[0])), A @ B[0])
    close(matvec(jnp.asarray(A), jnp.asarray(B[..., 0])), np.einsum("bij,bj->bi", A, B[..., 0]))


def test_batches(factors):
    A, B = factors
    close(jax.vmap(matmul)(A, B), A @ B)
    close(jax.vmap(matmul, (None, 0))(A[0], B), A[0] @ B)
    close(jax.vmap(matmul, (0, None))(A, B[0]), A @ B[0])
    turned = np.moveaxis(A, 0, 2), np.moveaxis(B, 0, 1)
    close(jax.vmap(matmul, (2, 1), 1)(*turned), np.moveaxis(A @ B, 0, 1))
    close(jax.vmap(jax.vmap(matmul, (None, 0)), (0, None))(A, B), np.einsum("aik,bkj->abij", A, B))
    close(jax.vmap(jax.vmap(matmul, (0, None)), (None, 0))(A, B), np.einsum("aik,bkj->baij", A, B))


@pytest.mark.parametrize("narrow", [3, 4, 5])  # written out up to 4 columns
def test_long_times_small(narrow, rng):
    A, B = rng.normal(size=(300, narrow)), rng.normal(size=(narrow, 4))
    close(matmul(jnp.asarray(A), jnp.asarray(B)), A @ B, rtol=1e-12)
    close(jax.vmap(matmul, (0, None))(A.reshape(60, 5, narrow), B), (A @ B).reshape(60, 5, 4), rtol=1e-12)


def test_derivatives(factors):
    check_grads(jax.jit(matmul), factors, order=2)
    check_grads(jax.jit(jax.vmap(matmul)), factors, order=2)
    check_grads(jax.jit(jax.vmap(matmul, (None, 0))), (factors[0][0], factors[1]), order=2)
    by_both = jax.grad(lambda A, B: jnp.sum(jnp.sin(matmul(A, B))), (0, 1))(*factors)
    for mine, theirs in zip(by_both, jax.grad(lambda A, B: jnp.sum(jnp.sin(A @ B)), (0, 1))(*factors), strict=True):
        close(mine, theirs)


@pytest.mark.skipif(not os.environ.get("SPOOKAX_SHAPES"), reason="`make test` checks annotations (SPOOKAX_SHAPES)")
def test_a_shape_that_is_not_annotated_is_found():
    """Broadcasting would let it pass: the vector has one entry where the matrix has four columns."""
    with pytest.raises(TypeCheckError, match="matvec"):
        matvec(jnp.ones(A_SHAPE), jnp.ones((5, 1)))
