"""A bank of filters, one for each mode, that exchange their beliefs: interacting multiple models.

The mode is a Markov chain with transition matrix Pi (row: from, column: to). A cycle weighs every mode by the
likelihood of the readings, mixes for every mode j the beliefs of all modes i with the weights
Pi_ij mu_i / sum_i Pi_ij mu_i, merges each mixture into one Gaussian, and moves it by the model of mode j. Filters are
those of `recursive`, over any models and rules that share a state.

Several such estimators may share one measurement, each seeing what the others predict: `Coupled`.

**Source:** Blom and Bar-Shalom (1988). Readings that depend on the pair of states belong to the mode of their step,
so with such models the beliefs are mixed after the step instead of before it.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._typing import AnyArray, Array, Float
from ...protocol import Noise
from ..recursive.every_filter import Recursion, Smoothed
from ..recursive.filter import Filter
from ..recursive.step_rules import Belief
from .bank import AbstractBank, checked
from .estimator import ModeTrail
from .merging import Modes, at, merge, transported
from .mixtures import KeepHeaviest, Mixtures
from .mode_smoother import backwards, followed, summarised
from .sharing import AllPairs, Led, MixFirst, ModeMotion


class Moved(NamedTuple):
    """How every mode (leading axis) moved: charts before and after the step, and the motion between them."""

    before: Any
    after: Any
    motion: ModeMotion


_LEAST = 1e-290  # probability at which a mode that is all but excluded is held: it can come back


class IMM(AbstractBank):
    """A bank of filters with mixing.

    **Arguments:**

    - `filters`: one for each mode. Their models share the state and its tangent. Filters of one form (the same
      classes with other numbers) run as one batch, others one after the other.
    - `transition`: Pi, probabilities of a mode (column) after a mode (row) in one step.
    - `mixing`: without it every filter goes on from its own belief (autonomous multiple models).
    - `sharing`: how the smoother steps back, with one Gaussian a mode: through all pairs of modes when left out
      (`AllPairs(KeepHeaviest(1))`), or mixed first as the filter does (`MixFirst(KeepHeaviest(1))`).
    - `gate`: readings of a step whose `nis` beside the mixture of what all modes expect is above this number are not
      used: neither states nor modes learn from them.

    **Raises:** `ValueError` when the tangents differ, when `transition` is no such matrix, or when a filter has a
    gate of its own: what one mode keeps out would count as likely.
    """

    bank: Any
    transition: Float[AnyArray, "modes modes"]
    gate: Float[AnyArray, ""] | float
    sharing: AllPairs | MixFirst
    mixing: bool = eqx.field(static=True)
    count: int = eqx.field(static=True)

    def __init__(
        self,
        filters: Sequence[Filter],
        transition: AnyArray,
        mixing: bool = True,
        gate: Float[AnyArray, ""] | float = math.inf,
        sharing: AllPairs | MixFirst | None = None,
    ):
        self.sharing = AllPairs(KeepHeaviest(1)) if sharing is None else sharing
        if self.sharing.collapse.count != 1:
            raise ValueError(f"a bank keeps one Gaussian a mode, got {self.sharing.collapse.count}; use MixtureFilter")
        if isinstance(self.sharing, MixFirst) and filters[0].model.reads_pair:
            raise ValueError("`MixFirst` needs models whose readings are of the state at the start of a step")
        self.bank, self.transition = checked(filters, transition)
        self.gate, self.mixing, self.count = gate, mixing, len(filters)

    def init(self, x0: Any, sd: AnyArray, probability: AnyArray | None = None, each: bool = False) -> Modes:
        """The beliefs before the first reading, as `Filter.init` makes them; modes equally likely when left out.

        `each`: x0 and `sd` have a leading axis of modes.
        """
        return self.started(x0, sd, probability, each)

    # --- what the compiled functions are made of

    def over(self, function, beliefs, *args):
        return self.each(function, beliefs, *args)

    def collapsed(self, modes: Modes) -> Modes:
        return modes

    def mixed(self, modes: Modes) -> Modes:
        """The beliefs after the mode may have changed."""
        possible = jnp.isfinite(modes.log_probability)
        mu = jnp.where(possible, jnp.maximum(modes.probability, _LEAST), 0.0)
        joint = mu[:, None] * jnp.asarray(self.transition)
        total = jnp.sum(joint, axis=0)
        reached = total > 0
        log_total = jnp.where(reached, jnp.log(jnp.where(reached, total, 1.0)), -jnp.inf)
        if not self.mixing:
            return Modes(modes.beliefs, log_total)
        weights = jnp.where(reached, joint / jnp.where(reached, total, 1.0)[None], 1.0 / self.count)
        beliefs = jax.vmap(lambda w: merge(self.model, w, modes.beliefs), in_axes=1)(weights)
        m = modes.beliefs.mean.shape[-1] - beliefs.mean.shape[-1]
        if m:  # beliefs that go on with the noise of their step, which has its prior here
            beliefs = jax.vmap(lambda b: _with_noise(b, m))(beliefs)
        return Modes(beliefs, log_total)

    def predicted(self, modes: Modes, u: Array, noise: Noise | None = None) -> tuple[Modes, Moved]:
        def one(f: Filter, belief: Belief, level: Noise | None) -> tuple[Belief, ModeMotion]:
            after, (A, noises, c) = f.predicted(belief, u, level or f.noise)
            m = belief.mean.shape[0] - f.model.tangent_size
            return after, ModeMotion(jnp.concatenate([A, noises[:, :m]], axis=1), noises[:, m:], c)

        if self.model.reads_pair:
            after, motion = self.each(one, modes.beliefs, noise)
            return self.mixed(Modes(after, modes.log_probability)), Moved(modes.beliefs.x, after.x, motion)
        modes = self.mixed(modes)
        after, motion = self.each(one, modes.beliefs, noise)
        return Modes(after, modes.log_probability), Moved(modes.beliefs.x, after.x, motion)

    def smoothed(self, found: Recursion) -> Smoothed:
        trail, last = found.trail, found.last
        first, n = self.first, self.model.tangent_size
        model, p, b = first.model, first.model.prepare(jnp.asarray(first.z)), last.beliefs
        end = _single(Modes(Belief(b.x, b.mean[:, :n], b.factor[:, :n, :n], b.guess, b.result), last.log_probability))
        back = backwards(model, p, jnp.log(jnp.asarray(self.transition)), self.sharing, end, trail, self._way)
        return followed(back, summarised(model, end))

    def _way(self, step: ModeTrail) -> tuple[Mixtures, Led, None]:
        model, count = self.model, jnp.arange(self.count)

        def pair(i: Array, j: Array) -> Led:
            leads = i if model.reads_pair else j  # the mode whose model makes the step
            start, origin = at(step.filtered.beliefs, i), at(step.moved.before, leads)
            if not model.reads_pair:  # otherwise in its own chart, with the noise of the step
                start = Belief(origin, *transported(model, start, origin), start.guess, start.result)
            return Led(start, at(step.moved.motion, leads), at(step.moved.after, leads))

        led = jax.vmap(lambda i: jax.vmap(lambda j: pair(i, j))(count))(count)
        return _single(step.filtered), jax.tree.map(lambda a: a[:, None], led), None


def _single(modes: Modes) -> Mixtures:
    """With an axis of components."""
    beliefs, weight = jax.tree.map(lambda a: a[:, None], (modes.beliefs, modes.log_probability))
    return Mixtures(beliefs, weight)


def _with_noise(belief: Belief, m: int) -> Belief:
    mean = jnp.concatenate([belief.mean, jnp.zeros(m, dtype=belief.mean.dtype)])
    factor = jax.scipy.linalg.block_diag(belief.factor, jnp.eye(m, dtype=mean.dtype))
    return Belief(belief.x, mean, factor, belief.guess, belief.result)
