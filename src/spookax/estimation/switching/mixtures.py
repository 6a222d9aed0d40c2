"""Mixtures of Gaussians for every mode, all pairs of modes, and how mixtures are kept small."""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._typing import Array, Float, Int
from ...protocol import AbstractModel
from ..recursive.step_rules import Belief
from .merging import merge


class Mixtures(eqx.Module):
    """For every mode (leading axis) beliefs about the state (second axis), and their probabilities."""

    beliefs: Belief
    log_weight: Float[Array, "modes components"]
    origin: Int[Array, "modes c"] | None = None  # of all that was collapsed into them: into which of a mode's

    @property
    def log_probability(self) -> Float[Array, " modes"]:
        """Of every mode."""
        return jax.nn.logsumexp(self.log_weight, axis=-1)

    @property
    def probability(self) -> Float[Array, " modes"]:
        """Of every mode; they sum to one."""
        return jnp.exp(self.log_probability)


def in_a_row(modes: Any, tree: Any) -> Any:
    """Arrays by mode (and component) along one axis."""
    axes = modes.log_weight.ndim
    return jax.tree.map(lambda a: a.reshape(math.prod(a.shape[:axes]), *a.shape[axes:]), tree) if axes > 1 else tree


class AbstractCollapse(eqx.Module):
    """How a mixture of many Gaussians becomes one of few."""

    count: eqx.AbstractVar[int]  # Gaussians that are left

    @abc.abstractmethod
    def groups(self, log_weight: Float[Array, " c"], beliefs: Belief) -> Int[Array, " c"]:
        """The number, 0 to count - 1, of the Gaussian that every component becomes part of."""

    def __call__(
        self, model: AbstractModel, log_weight: Float[Array, " c"], beliefs: Belief
    ) -> tuple[Float[Array, " count"], Belief, Int[Array, " c"]]:
        """Weights and Gaussians of the groups, each with the mean and covariance of its components; the groups."""
        group = self.groups(log_weight, beliefs)

        def one(g: Array) -> tuple[Array, Belief]:
            weight = jnp.where(group == g, log_weight, -jnp.inf)
            there = jnp.any(weight > -jnp.inf)
            total = jax.nn.logsumexp(jnp.where(there, weight, 0.0))
            share = jnp.where(there, jnp.exp(weight - total), 1.0 / len(weight))
            return jnp.where(there, total, -jnp.inf), merge(model, share, beliefs)

        return *jax.vmap(one)(jnp.arange(self.count)), group


class KeepHeaviest(AbstractCollapse):
    """The heaviest `count` - 1 components stay as they are, the others become one."""

    count: int = eqx.field(static=True, default=3)

    def __check_init__(self):
        if not isinstance(self.count, int) or self.count < 1:
            raise ValueError(f"a mixture needs one Gaussian at least, and a whole number of them, got {self.count}")

    def groups(self, log_weight, beliefs):
        place = jnp.arange(len(log_weight))
        other = log_weight[None, :]
        before = (other > log_weight[:, None]) | ((other == log_weight[:, None]) & (place[None, :] < place[:, None]))
        return jnp.minimum(jnp.sum(before, axis=1), self.count - 1)
