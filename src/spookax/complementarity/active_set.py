"""Active sets: which rows of a solution are free, and the linear solve on the free rows."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..math import small
from .mlcp import MLCP


def active_set(
    x: Float[Array, " n"],
    w: Float[Array, " n"],
    diagonal: Float[Array, " n"],
    lower: Float[Array, " n"],
    upper: Float[Array, " n"],
    tie: Float[Array, " n"] | float = 0.0,
) -> Bool[Array, " n"]:
    """Rows that are free (w = 0) rather than held at a bound: lower <= y <= upper with y = x - w / diagonal.

    A tie (x on a bound and w = 0) counts as free, everywhere in the package. `tie` widens the bounds by what
    rounding can do to y, in the units of x. A row whose bounds are equal cannot move and is never free.
    """
    move = w / diagonal
    return (move <= x - lower + tie) & (move >= x - upper - tie) & (lower < upper)


class ActiveSetSystem(eqx.Module):
    """The equations (N x)_i = rhs_i on the free rows, x_i = rhs_i on the others, factored once.

    One system of full size, so shapes do not depend on the active set. Rounding is independent of the units
    of the rows. If N is singular on the free rows solutions are large but finite.
    """

    K: Float[Array, "n n"]
    """Free rows of D N D, otherwise those of the identity."""
    D: Float[Array, " n"]
    """|N_ii|^-1/2, which scales x = D x_scaled and the free rows."""
    free: Bool[Array, " n"]
    factor: small.LU

    def __init__(self, N: Float[Array, "n n"], free: Bool[Array, " n"], *, pivot: bool = True):
        """`pivot` as in `spookax.math.small.lu`."""
        size = jnp.abs(small.diagonal(N))
        size = jnp.where(size > 0, size, jnp.max(jnp.abs(N), axis=1))
        self.D = jax.lax.stop_gradient(1 / jnp.sqrt(jnp.where(size > 0, size, 1.0)))
        self.K = jnp.where(free[:, None], self.D[:, None] * N * self.D[None, :], jnp.eye(N.shape[0], dtype=N.dtype))
        self.free = free
        smallest_pivot = 0.01 * float(jnp.finfo(N.dtype).eps)
        self.factor = small.lu(jax.lax.stop_gradient(self.K), pivot=pivot, smallest_pivot=smallest_pivot)

    def solve(self, rhs: Array) -> Array:
        """x for `rhs` of shape `(n,)` or `(n, m)`."""
        columns = rhs if rhs.ndim == 2 else rhs[:, None]
        D, free = self.D[:, None], self.free[:, None]
        x = D * small.solve_with(self.factor, self.K, jnp.where(free, D * columns, columns / D))
        return jnp.where(free, x, columns).reshape(rhs.shape)


def active_set_solve(N: Float[Array, "n n"], free: Bool[Array, " n"], rhs: Array, *, pivot: bool = True) -> Array:
    """x with (N x)_i = rhs_i on the free rows and x_i = rhs_i on the others (`ActiveSetSystem`).

    Derivatives in `N` and `rhs`, forward and reverse, use the same factors. `rhs` is `(n,)` or `(n, m)`.
    """
    return ActiveSetSystem(N, free, pivot=pivot).solve(rhs)


def refined_solve(problem: MLCP, free: Bool[Array, " n"], bound: Float[Array, " n"]) -> Float[Array, " n"]:
    """x on an active set, with two steps of iterative refinement."""
    system = ActiveSetSystem(problem.N, free)

    def correct(_, x):
        return x - system.solve(jnp.where(free, problem.slack(x), x - bound))

    return jax.lax.fori_loop(0, 3, correct, jnp.where(free, 0.0, bound))
