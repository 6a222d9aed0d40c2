"""Recursive least squares with exponential forgetting, on a factor of the covariance.

    y_k = phi_k' theta + n_k,      theta_k minimises sum_i lambda^(k - i) |(y_i - phi_i' theta) / sd|^2

The comparison of identification with filters: linear in its parameters, without a model of how they change. What is
known is discounted by lambda a sample, in all directions: those that are not excited become less and less certain,
without bound.

**Source:** Ljung, *System identification* (1999), section 11.2; the factor's update is Potter's.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._compiled import compiled
from ..._typing import AnyArray, Array, Float, Scalar
from ...math.sqrt_gaussian import condition


class Coefficients(NamedTuple):
    """What is believed about theta: its estimate, and a factor of its covariance."""

    theta: Float[Array, " p"]
    factor: Float[Array, "p p"]


class LeastSquares(eqx.Module):
    """Recursive least squares.

    **Arguments:** `sd`: standard deviation of a reading [its unit]; `forgetting`: lambda in (0, 1], 1 forgets
    nothing. The memory is about 1 / (1 - lambda) samples long.

    **Raises:** a runtime error (`eqx.error_if`) when `forgetting` is not in (0, 1].
    """

    sd: Float[AnyArray, ""] | float
    forgetting: Float[AnyArray, ""] | float = 1.0

    def init(self, theta: AnyArray, sd: AnyArray) -> Coefficients:
        """Before the first reading: an estimate, and standard deviations (large where nothing is known)."""
        theta = jnp.asarray(theta)
        return Coefficients(theta, jnp.diag(jnp.broadcast_to(jnp.asarray(sd, dtype=theta.dtype), theta.shape)))

    def update(self, now: Coefficients, phi: AnyArray, y: AnyArray) -> Coefficients:
        """The estimate given one more reading; a reading that is NaN is missing."""
        return _update(self, now, jnp.asarray(phi), jnp.asarray(y))

    def run(
        self, start: Coefficients, phi: Float[AnyArray, "steps p"], y: Float[AnyArray, " steps"]
    ) -> tuple[Coefficients, Float[Array, "steps p"]]:
        """Where a whole recording leads in one compiled scan, and the estimates after all its samples."""
        return _run(self, start, jnp.asarray(phi), jnp.asarray(y))

    def updated(self, now: Coefficients, phi: Float[Array, " p"], y: Scalar) -> Coefficients:
        """`update`, not compiled."""
        rate = jnp.asarray(self.forgetting, dtype=y.dtype)
        rate = eqx.error_if(rate, ~((rate > 0) & (rate <= 1)), "`forgetting` must be above 0 and at most 1")
        there = ~jnp.isnan(y)
        row = jnp.where(there, phi, 0.0) / self.sd
        post = condition(now.theta, now.factor / jnp.sqrt(rate), row[None], jnp.where(there, y, 0.0)[None] / self.sd)
        return Coefficients(post.mean, post.factor)


@compiled
def _update(f: LeastSquares, now: Coefficients, phi: Array, y: Array) -> Coefficients:
    return f.updated(now, phi, y)


@compiled
def _run(f: LeastSquares, start: Coefficients, phi: Array, y: Array) -> tuple[Coefficients, Array]:
    def body(now: Coefficients, step: tuple[Array, Array]):
        after = f.updated(now, *step)
        return after, after.theta

    return jax.lax.scan(body, start, (phi, y))
