"""The mixed linear complementarity problem as data, and what it means to solve one."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._results import MLCP_RESULTS
from ..math import small


class MLCP(eqx.Module):
    """Find x with w = N x + q and, row by row,

        lower <= x <= upper,   w >= 0 where x = lower,   w <= 0 where x = upper,   w = 0 between.

    Bounds may be infinite, on one side or both. If every principal minor of N is positive (for example if N
    is positive definite, symmetric or not) there is exactly one solution for every q and every pair of
    bounds.

    Units: [w] = [q]; x and w of a row may have any units, N_ij has those of w_i / x_j. All measures below are
    relative and do not change with the units of the rows.
    """

    N: Float[Array, "n n"]
    q: Float[Array, " n"]
    lower: Float[Array, " n"]
    upper: Float[Array, " n"]

    def slack(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """w = N x + q."""
        return self.N @ x + self.q

    def diagonal(self) -> Float[Array, " n"]:
        """Positive numbers in the units of w_i / x_i: N_ii, or, if not positive, the row's largest entry."""
        diagonal, largest = small.diagonal(self.N), jnp.max(jnp.abs(self.N), axis=1)
        diagonal = jnp.where(diagonal > jnp.finfo(diagonal.dtype).eps * largest, diagonal, largest)
        return jnp.where(diagonal > 0, diagonal, 1.0)

    def scale(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """What errors of a solution are measured with, row by row, in the units of x.

        That is |x| + (|N| |x| + |q|) / diagonal, the size of the numbers that make up w, so that rounding is
        about eps. Where x runs far off, as when N is singular on the free rows, this would forgive
        everything; so it is not more than 256 times the largest q, including N times the x that are on their
        bounds, in units that make N_ii = 1.
        """
        diagonal = self.diagonal()
        held = jnp.where((x == self.lower) | (x == self.upper), x, 0.0)
        terms = jnp.abs(self.N) @ jnp.abs(jnp.stack([x, held], axis=1)) + jnp.abs(self.q)[:, None]
        root = jnp.sqrt(diagonal)
        return jnp.minimum(jnp.abs(x) + terms[:, 0] / diagonal, 256 * jnp.max(terms[:, 1] / root) / root)

    def natural_residual(self, x: Float[Array, " n"]) -> Float[Array, ""]:
        """Largest |x - clip(x - w / diagonal, lower, upper)| / scale. [-]

        Zero exactly at a solution. About eps is what rounding allows; a value r says that x solves a problem
        whose N and q differ by about r, entry by entry.
        """
        w, scale = self.slack(x), self.scale(x)
        # The same without cancellation: x - clip(x - m, lower, upper) = clip(m, x - upper, x - lower).
        error = jnp.abs(jnp.clip(w / self.diagonal(), x - self.upper, x - self.lower))
        residual = jnp.max(error / jnp.where(scale > 0, scale, 1.0))
        # Said explicitly, because XLA's maximum on CPUs may ignore a NaN.
        return jnp.where(jnp.all(jnp.isfinite(w) & jnp.isfinite(scale)), residual, jnp.inf)

    def degeneracy(self, x: Float[Array, " n"]) -> Float[Array, ""]:
        """Distance of a solution to the nearest tie (a row on its bound with w = 0), relative to `scale`. [-]

        The solution is differentiable where this is positive. Rows with equal bounds have no ties.
        """
        move = self.slack(x) / self.diagonal()
        distance = jnp.minimum(jnp.abs(x - self.lower - move), jnp.abs(x - self.upper - move))
        scale = self.scale(x)
        distance = distance / jnp.where(scale > 0, scale, 1.0)
        return jnp.min(jnp.where(self.lower < self.upper, distance, jnp.inf))

    def is_valid(self) -> Bool[Array, ""]:
        """Whether N and q are finite and the bounds are numbers with lower <= upper."""
        bounds = (self.lower <= self.upper) & (self.lower < jnp.inf) & (self.upper > -jnp.inf)
        return jnp.all(jnp.isfinite(self.N)) & jnp.all(jnp.isfinite(self.q)) & jnp.all(bounds)


class Solution(eqx.Module):
    """What a solver returns. `x` is finite even where `result` says that it is no solution."""

    x: Float[Array, " n"]
    w: Float[Array, " n"]
    """N x + q."""
    result: MLCP_RESULTS
    pivots: Int[Array, ""]
    """Pivots, sweeps or trials of an active set; 0 where `Lemke` guessed the set."""
    residual: Float[Array, ""]
    """`MLCP.natural_residual(x)`. [-]"""


class AbstractMLCPSolver(eqx.Module):
    """Maps a problem to a solution. Not differentiable: use `solve_mlcp`, which adds the derivative."""

    @abc.abstractmethod
    def solve(self, problem: MLCP, guess: Float[Array, " n"] | None = None) -> Solution:
        """**Arguments:**

        - `guess`: an x, for example the solution of the previous time step; need not be feasible.
        """
