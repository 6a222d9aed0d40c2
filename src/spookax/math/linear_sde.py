"""Linear stochastic differential equations, dx = (F x + B u) dt + G dW, moved exactly over a step of any length.

With an input u that is held over the step, x+ = A x + b u + S w, w ~ N(0, 1):

    [A b; 0 1] = exp([F B; 0 0] h),        S S' = int_0^h exp(F s) G G' exp(F s)' ds.

A and b come from one exponential: F may be singular (a free mass). The noise comes as a factor: over a short step by
Gauss's quadrature, whose nodes are its columns, then doubled, S(2h) = [S, A S]. Nothing is subtracted, so entries that
are many orders apart (displacement and force of a latent-force model) keep their digits, and F may be undamped. The
block exponential of Van Loan (1978) gives the same covariance, and a test compares the two.

**Source:** Särkkä and Solin, *Applied stochastic differential equations* (2019), chapter 6. Marino and Cicirello (2023)
print B = A^-1 (A_c - I) B_c below their equation 12, where A_c^-1 (A - I) B_c is meant, and take the noise from a
difference of stationary covariances (14).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float, Scalar
from .sqrt_gaussian import lower

_DOUBLINGS = 20  # the first step is 2^-20 of the whole: the series below is exact up to |F| h of some 1e5
_TERMS = 9
_NODES = 6


class Step(NamedTuple):
    """x+ = A x + b u + S w, w ~ N(0, 1)."""

    A: Float[Array, "n n"]
    b: Float[Array, "n inputs"]
    S: Float[Array, "n n"]


def exponential(M: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """exp(M), by a short series and doubling of exp(M) - 1, which keeps small entries."""
    D = jax.lax.fori_loop(0, _DOUBLINGS, lambda _, D: 2.0 * D + D @ D, _series(M / 2.0**_DOUBLINGS))
    return jnp.eye(M.shape[0], dtype=M.dtype) + D


def _series(X: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """exp(X) - 1 for a small X."""
    total = term = X
    for k in range(2, _TERMS):
        term = term @ X / k
        total = total + term
    return total


def discretised(F: Float[Array, "n n"], B: Float[Array, "n inputs"], G: Float[Array, "n m"], h: Scalar | float) -> Step:
    """A step of length h [s]. `G`: a factor of the spectral density of the noise, of any number of columns."""
    n, inputs = B.shape
    M = jnp.zeros((n + inputs, n + inputs), dtype=F.dtype)
    M = M.at[:n, :n].set(h * F).at[:n, n:].set(h * B)
    both = exponential(M)
    return Step(both[:n, :n], both[:n, n:], noise_factor(F, G, h))


def noise_factor(F: Float[Array, "n n"], G: Float[Array, "n m"], h: Scalar | float) -> Float[Array, "n n"]:
    """S of `Step`, lower triangular."""
    n, m = G.shape
    if m == 0:
        return jnp.zeros((n, n), dtype=F.dtype)
    short = jnp.asarray(h) / 2.0**_DOUBLINGS
    X, columns = short * F, [G]
    for k in range(1, _TERMS):
        columns.append(X @ columns[-1] / k)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    place = 0.5 * (1.0 + nodes)  # in the short step
    powers = np.sqrt(0.5 * weights)[:, None] * place[:, None] ** np.arange(_TERMS)
    spread = jnp.einsum("ak,knm->nam", jnp.asarray(powers, dtype=F.dtype), jnp.stack(columns))
    S = lower(jnp.sqrt(short) * spread.reshape(n, -1))

    def double(_: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        S, D = carry
        return lower(S, S + D @ S), 2.0 * D + D @ D

    return jax.lax.fori_loop(0, _DOUBLINGS, double, (S, _series(X)))[0]
