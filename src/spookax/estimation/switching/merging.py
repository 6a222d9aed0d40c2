"""Mixtures of beliefs on a manifold, and what replaces them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._results import worst
from ..._typing import Array, Float
from ...math.sqrt_gaussian import merged
from ...protocol import AbstractModel
from ..recursive.step_rules import Belief


class Modes(eqx.Module):
    """A belief for every mode (leading axis), and what is believed about the modes."""

    beliefs: Belief
    log_probability: Float[Array, " modes"]

    @property
    def probability(self) -> Float[Array, " modes"]:
        """Of every mode; they sum to one."""
        return jnp.exp(self.log_probability)

    @property
    def log_weight(self) -> Float[Array, " modes"]:
        """Of every belief: one a mode."""
        return self.log_probability


def at(tree: Any, index: Any) -> Any:
    """One entry of the leading axis."""
    return jax.tree.map(lambda a: a[index], tree)


def heaviest(tree: Any, weights: Float[Array, " c"]) -> Any:
    """The entry of the leading axis that has the largest weight."""
    chosen = jnp.arange(weights.shape[0]) == jnp.argmax(weights)

    def pick(a: Array) -> Array:  # a sum that batches better than an index does
        mask = chosen.reshape(-1, *(1,) * (a.ndim - 1))
        return jnp.sum(jnp.where(mask, a, jnp.zeros_like(a)), axis=0, dtype=a.dtype)

    return jax.tree.map(pick, tree)


def transported(model: AbstractModel, belief: Belief, chart: Any) -> tuple[Float[Array, " n"], Float[Array, "n k"]]:
    """Mean and factor of a belief about the state in the chart about another point, to first order at its mean."""
    n = model.tangent_size
    mean, factor = belief.mean[:n], belief.factor[:n]

    def there(d: Array) -> Array:
        return model.local(model.retract(belief.x, d), chart)

    push = jax.vmap(lambda column: jax.jvp(there, (mean,), (column,))[1], in_axes=1, out_axes=1)
    return there(mean), push(factor)


def merge(model: AbstractModel, weights: Float[Array, " c"], beliefs: Belief) -> Belief:
    """The Gaussian with mean and covariance of a mixture, in the chart of its own mean.

    Means are averaged in the chart about the heaviest component's: mu = m* box-plus sum c_i d_i with
    d_i = m_i box-minus m*, and the covariance is sum c_i (P_i + (d_i - d)(d_i - d)'), as a factor. On a vector space
    these are the moments of the mixture. The guess is the heaviest component's, the result the worst.

    **Arguments:** `weights`, not negative, of sum one; `beliefs` with the components along the leading axis. Of a
    belief that goes on with the noise of its step only the state is merged.
    """
    n = model.tangent_size
    points = jax.vmap(lambda b: model.retract(b.x, b.mean[:n]))(beliefs)
    centre, guess = heaviest((points, beliefs.guess), weights)
    mean, factor = merged(weights, *jax.vmap(lambda b: transported(model, b, centre))(beliefs))
    result = None if beliefs.result is None else worst(beliefs.result)
    return Belief(model.retract(centre, mean), jnp.zeros_like(mean), factor, guess, result)
