"""Triangles and spans of factors, in plain array code."""

import jax
import jax.numpy as jnp
import numpy as np

from spookax.math.sqrt_gaussian import spanning, upper

close = np.testing.assert_allclose


def test_columns_that_have_decayed_to_nothing_do_no_harm(rng):
    """Directions that a constraint damps shrink until their squares have no digits left, and further."""
    M = rng.normal(size=(9, 6))
    triangle = jax.jit(jax.vmap(upper))
    for tiny in 10.0 ** np.arange(-140.0, -323.0, -2.0):
        scaled = M * [tiny, 0.3 * tiny, tiny, 1, 1, 1]
        R = triangle(jnp.asarray(scaled)[None])[0]
        close(R.T @ R, scaled.T @ scaled, atol=1e-12)


def test_the_span_of_a_projection(rng):
    """Of an oblique one, and of one that gives way a little; a projection of rank zero spans nothing."""
    A, B = rng.normal(size=(2, 7, 3))
    P = A @ np.linalg.solve(B.T @ A, B.T)
    for M in (P, P + 1e-6 * rng.normal(size=(7, 7))):
        T = np.asarray(spanning(jnp.asarray(M), 0.01))
        close(T.T @ T, np.diag([1, 1, 1, 0, 0, 0, 0]), atol=1e-12)
        close(T @ T.T @ A, A, atol=1e-4)
    assert not np.any(spanning(jnp.zeros((4, 4)), 0.01))
