"""Steps backwards through pairs of beliefs, and which belief a smoothed one has come from.

`AllPairs` is expectation correction: any filtered belief at k may have led to any smoothed one at k+1. `MixFirst` mixes
what may have led to a mode before it steps back, as the bank of interacting models does forwards. `Lineage` asks
the filter, which knows what each of its beliefs was made of: a smoothed belief belongs to the filtered one that it
corrects, and shares itself only among the beliefs that went into that. Where the filter never had to merge anything,
that is exact in means, covariances and probabilities.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._typing import Array, Float, Scalar
from ...math import small
from ...math.sqrt_gaussian import lower
from ...protocol import AbstractModel
from ..recursive.step_rules import Belief
from .merging import heaviest, merge, transported
from .mixtures import AbstractCollapse, Mixtures


class ModeMotion(NamedTuple):
    """The motion of a step as a linear model: A a + E v + c, v ~ N(0, 1), a being all that is believed about."""

    A: Float[Array, "n a"]
    E: Float[Array, "n v"]
    c: Float[Array, " n"]


class Led(NamedTuple):
    """Every way from a belief at k to a mode at k+1; leading axes: modes at k, components, modes at k+1."""

    start: Belief  # in the chart that the motion is about
    motion: ModeMotion
    after: Any  # chart at k+1


class Pairs(NamedTuple):
    """What a step backwards starts from."""

    model: AbstractModel
    T: Float[Array, "n n"] | None  # free directions of the state; None: all
    log_transition: Float[Array, "modes modes"]
    filtered: Mixtures
    led: Led
    ahead: Mixtures  # smoothed, at k+1


class _Way(NamedTuple):
    """One of `Led`: mean and factor of the end, the start's covariance with the whitened end, and the columns of the
    start that the end does not tell.
    """

    mean: Float[Array, " n"]
    factor: Float[Array, "n n"]
    shared: Float[Array, "n n"]
    rest: Float[Array, "n k"]


class AbstractSharing(eqx.Module):
    """From which filtered beliefs smoothed ones have come, and how many are kept."""

    @abc.abstractmethod
    def end(self, model: AbstractModel, filtered: Mixtures) -> Mixtures:
        """The smoothed beliefs at the last readings, from the filtered ones."""

    @abc.abstractmethod
    def back(self, pairs: Pairs, more: Any) -> Mixtures:
        """The smoothed beliefs at k."""


class AllPairs(AbstractSharing):
    """Expectation correction: weights over all filtered beliefs; `collapse` says what is kept of a mode."""

    collapse: AbstractCollapse

    def end(self, model: AbstractModel, filtered: Mixtures) -> Mixtures:
        if self.collapse.count >= filtered.log_weight.shape[1]:
            return Mixtures(filtered.beliefs, filtered.log_weight)
        weight, beliefs, _ = jax.vmap(lambda w, b: self.collapse(model, w, b))(filtered.log_weight, filtered.beliefs)
        return Mixtures(beliefs, weight)

    def back(self, pairs: Pairs, more: Any) -> Mixtures:
        model, ahead = pairs.model, pairs.ahead
        ways = _ways(pairs)

        def pair(led: Led, way: _Way, later: Belief) -> tuple[Belief, Scalar]:
            return _stepped_back(model, pairs.T, led, way, later)

        over_components = jax.vmap(pair, in_axes=(None, None, 0))  # of a mode at k+1
        over_modes = jax.vmap(over_components, in_axes=(0, 0, 0))
        every = jax.vmap(jax.vmap(over_modes, in_axes=(0, 0, None)), in_axes=(0, 0, None))
        beliefs, density = every(pairs.led, ways, ahead.beliefs)  # i, its component, j, its component
        weight = _chances(pairs)[..., None] + density
        total = jax.nn.logsumexp(weight, axis=(0, 1))
        possible = jnp.isfinite(total)
        reached = ahead.log_weight - jnp.where(possible, total, 0.0)
        joint = jnp.where(possible[None, None], weight + reached[None, None], -jnp.inf)
        flat = jax.tree.map(lambda a: a.reshape(a.shape[0], joint[0].size, *a.shape[4:]), (joint, beliefs))
        weight, beliefs, _ = jax.vmap(lambda w, b: self.collapse(model, w, b))(*flat)
        return Mixtures(beliefs, weight)


class MixFirst(AbstractSharing):
    """One step backwards for each smoothed belief, to the mixture of all filtered ones that may have led to its mode.

    As many steps as smoothed beliefs, not as many as pairs. That a mode was the one before is told by the mode after it
    alone: its weight is p(i | j, readings up to k), and what is smoothed is alike for all i. `collapse` says what is
    kept of a mode.

    **Source:** Kim (1994) for the weights; Lopez and Danes (2010) for mixing.
    """

    collapse: AbstractCollapse

    def end(self, model: AbstractModel, filtered: Mixtures) -> Mixtures:
        return AllPairs(self.collapse).end(model, filtered)

    def back(self, pairs: Pairs, more: Any) -> Mixtures:
        model, ahead, weight = pairs.model, pairs.ahead, _chances(pairs)
        total = jax.nn.logsumexp(weight, axis=(0, 1))
        possible = jnp.isfinite(total)
        log_share = weight - jnp.where(possible, total, 0.0)[None, None]
        share = jnp.where(possible[None, None], jnp.exp(log_share), 1.0 / weight[..., 0].size)

        def mixed(share: Array, led: Led) -> Led:
            share, led = jax.tree.map(lambda a: a.reshape(share.size, *a.shape[2:]), (share, led))
            best = heaviest(led, share)
            both = merge(model, share, led.start)
            start = Belief(best.start.x, *transported(model, both, best.start.x), both.guess, both.result)
            return Led(start, best.motion, best.after)

        led = jax.vmap(mixed, in_axes=2)(share, pairs.led)
        alone = _ways(pairs._replace(led=jax.tree.map(lambda a: a[None, None], led)))
        ways = jax.tree.map(lambda a: a[0, 0], alone)

        def back(led: Led, way: _Way, later: Belief) -> Belief:
            return _stepped_back(model, pairs.T, led, way, later)[0]

        beliefs = jax.vmap(jax.vmap(back, in_axes=(None, None, 0)))(led, ways, ahead.beliefs)  # j, its component
        from_mode = jax.nn.logsumexp(log_share, axis=1)  # i, j
        joint = jnp.where(possible[None, :, None], from_mode[:, :, None] + ahead.log_weight[None], -jnp.inf)
        flat = jax.tree.map(lambda a: a.reshape(ahead.log_weight.size, *a.shape[2:]), beliefs)
        weight, beliefs, _ = jax.vmap(lambda w: self.collapse(model, w.reshape(-1), flat))(joint)
        return Mixtures(beliefs, weight)


class Lineage(AbstractSharing):
    """Weights over the filtered beliefs that the filter itself made the later one of; as many Gaussians as there."""

    def end(self, model: AbstractModel, filtered: Mixtures) -> Mixtures:
        return Mixtures(filtered.beliefs, filtered.log_weight)

    def back(self, pairs: Pairs, more: Any) -> Mixtures:
        model, ahead, group = pairs.model, pairs.ahead, more  # (i, its component, j): component at k+1
        ways = _ways(pairs)
        modes = jnp.broadcast_to(jnp.arange(group.shape[2]), group.shape)
        later = jax.tree.map(lambda a: a[modes, group], ahead.beliefs)

        def pair(led: Led, way: _Way, later: Belief) -> tuple[Belief, Scalar]:
            return _stepped_back(model, pairs.T, led, way, later)

        beliefs, density = _each(pair)(pairs.led, ways, later)
        weight = _chances(pairs) + density
        members = jax.nn.one_hot(group, ahead.log_weight.shape[1], dtype=bool)
        total = jax.nn.logsumexp(jnp.where(members, weight[..., None], -jnp.inf), axis=(0, 1))  # j, component
        own = total[modes, group]
        possible = jnp.isfinite(own)
        joint = jnp.where(possible, weight - jnp.where(possible, own, 0.0) + ahead.log_weight[modes, group], -jnp.inf)
        log_weight = jax.nn.logsumexp(joint, axis=2)
        there = jnp.isfinite(log_weight)[..., None]
        share = jnp.where(there, jnp.exp(joint - jnp.where(there, log_weight[..., None], 0.0)), 1.0 / joint.shape[2])
        merged = jax.vmap(jax.vmap(lambda w, b: merge(model, w, b)))(share, beliefs)
        return Mixtures(merged, log_weight)


def _chances(pairs: Pairs) -> Float[Array, "modes components modes"]:
    """Of a filtered belief and the mode after it."""
    return pairs.filtered.log_weight[:, :, None] + pairs.log_transition[:, None, :]


def _along(T: Array | None, v: Array) -> Array:
    return v if T is None else T.T @ v


def _ways(pairs: Pairs) -> _Way:
    """Every way. Each direction gets a spread at rounding level of the largest: what has none is compared by it."""
    n = pairs.model.tangent_size

    def moved(led: Led) -> Float[Array, "n k"]:
        return _along(pairs.T, jnp.concatenate([led.motion.A @ led.start.factor, led.motion.E], axis=1))

    columns = _each(moved)(pairs.led)
    size = jnp.sqrt(jnp.max(jnp.sum(columns**2, axis=-1), axis=(0, 1, 2)))
    if pairs.T is not None:
        size = jnp.full_like(size, jnp.max(size))
    floor = jnp.sqrt(jnp.finfo(size.dtype).eps) * size + jnp.finfo(size.dtype).tiny

    def one(led: Led, columns: Array) -> _Way:
        start, motion = led.start, led.motion
        zero = jnp.zeros((n, motion.E.shape[1]), dtype=start.mean.dtype)
        low = jnp.concatenate([start.factor[:n], zero], axis=1)
        factor = lower(columns, jnp.diag(floor))
        white = small.solve_lower(factor, columns)
        shared = low @ white.T
        return _Way(motion.A @ start.mean + motion.c, factor, shared, low - shared @ white)

    return _each(one)(pairs.led, columns)


def _each(function: Any) -> Any:
    """Over modes at k, components and modes at k+1."""
    return jax.vmap(jax.vmap(jax.vmap(function)))


def _stepped_back(model: AbstractModel, T: Array | None, led: Led, way: _Way, ahead: Belief) -> tuple[Belief, Scalar]:
    """The belief at the start of a step given that at its end, and the log-density of the end before that was known.

    In whitened coordinates of what the pair predicts no variance of a smoothed state can be above one. Where `ahead`
    has a larger one it stems from other pairs, and says less about this one than the pair itself: its deviation is
    divided by that variance. Without this, errors of the approximation can grow without bounds.
    """
    n = model.tangent_size
    goal, spread = transported(model, ahead, led.after)
    apart, spread = _along(T, goal - way.mean), _along(T, spread)
    white = small.solve_lower(way.factor, jnp.concatenate([apart[:, None], spread], axis=1))
    variance = jnp.maximum(jnp.sum(white[:, 1:] ** 2, axis=1), 1.0)
    after = Belief(
        led.start.x,
        led.start.mean[:n] + way.shared @ (white[:, 0] / variance),
        jnp.concatenate([way.rest, way.shared @ (white[:, 1:] / jnp.sqrt(variance)[:, None])], axis=1),
        led.start.guess,
        led.start.result,
    )
    columns = [way.factor, spread]
    if T is not None:  # directions that are not free, alike for all pairs
        columns.append(jnp.diag(1.0 - jnp.sum(T**2, axis=0)))
    L = lower(*columns)
    white = small.solve_lower(L, apart)
    return after, -0.5 * jnp.sum(white**2) - jnp.sum(jnp.log(jnp.abs(jnp.diagonal(L))))
