"""Switching models with a mixture of Gaussians for every mode: assumed-density filter and smoothers.

The posterior of a switching linear model is a mixture whose size grows with every step: one Gaussian for each sequence
of modes. The filter moves every component i of every mode through the model of every mode j, conditions all of these on
the readings, and collapses what has come to mode j to I Gaussians. A bank of interacting models (`IMM`) keeps one, and
merges what goes to mode j *before* it is moved and read, which needs no more than one filter a mode; with I = 1 this
filter merges afterwards (the generalised pseudo-Bayesian filter of second order). Both share the loop, the readings and
the steps backwards.

**Source:** Alspach and Sorenson (1972); Barber (2006), which Marino and Cicirello (2023) use as (17, 18).
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._typing import AnyArray, Array, Float
from ...protocol import Noise
from ..recursive.every_filter import Recursion, Smoothed
from ..recursive.filter import Filter
from ..recursive.step_rules import Belief
from .bank import AbstractBank, checked
from .estimator import ModeTrail
from .mixtures import AbstractCollapse, KeepHeaviest, Mixtures
from .mode_smoother import backwards, followed, summarised
from .sharing import AbstractSharing, AllPairs, Led, MixFirst, ModeMotion


class MixtureStep(NamedTuple):
    """What moved the beliefs of a step: they are moved again on the way back, which takes less memory."""

    u: Array
    noise: Noise | None


class MixtureFilter(AbstractBank):
    """Assumed-density filter and expectation-correction smoother of a switching model.

    **Arguments:**

    - `filters`, `transition`, `gate`: as of `IMM`; readings belong to the state they are taken in.
    - `collapse`: how a mode's mixture is kept small; the number of its Gaussians is I.
    - `sharing`: from which beliefs at k the smoother takes those at k+1 to have come: `AllPairs(KeepHeaviest(J))` is
      expectation correction with J Gaussians a mode; `MixFirst(KeepHeaviest(J))` mixes before it steps back;
      `Lineage()` follows what the filter merged.
    - `before`: of every mode, from which modes it can be reached, as many for each: the filter leaves out what cannot
      come. All of them if left out.

    **Raises:** `ValueError` as `IMM` does, for models whose readings depend on both states of a step, for J > I, and
    where `before` does not fit the modes.
    """

    bank: Any
    transition: Float[AnyArray, "modes modes"]
    collapse: AbstractCollapse
    sharing: AbstractSharing
    gate: Float[AnyArray, ""] | float
    count: int = eqx.field(static=True)
    before: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def __init__(
        self,
        filters: Sequence[Filter],
        transition: AnyArray,
        collapse: AbstractCollapse | None = None,
        sharing: AbstractSharing | None = None,
        gate: Float[AnyArray, ""] | float = math.inf,
        before: Sequence[Sequence[int]] | None = None,
    ):
        self.bank, self.transition = checked(filters, transition)
        if filters[0].model.reads_pair:
            raise ValueError("mixtures need models whose readings are of the state at the start of a step; use IMM")
        self.collapse = KeepHeaviest(3) if collapse is None else collapse
        self.sharing = AllPairs(self.collapse) if sharing is None else sharing
        kept = self.sharing.collapse.count if isinstance(self.sharing, AllPairs | MixFirst) else self.collapse.count
        if kept > self.collapse.count:
            raise ValueError(f"the smoother keeps {kept} Gaussians a mode, more than the filter, {self.collapse.count}")
        self.gate, self.count = gate, len(filters)
        every = (tuple(range(self.count)),) * self.count
        self.before = every if before is None else tuple(tuple(map(int, modes)) for modes in before)
        if len(self.before) != self.count or len({len(modes) for modes in self.before}) != 1:
            raise ValueError(f"`before` needs {self.count} lists of one length, a list for every mode")
        if not all(0 <= i < self.count for modes in self.before for i in modes):
            raise ValueError(f"`before` names modes by their numbers, 0 to {self.count - 1}")

    def init(self, x0: Any, sd: AnyArray, probability: AnyArray | None = None, each: bool = False) -> Mixtures:
        """The beliefs before the first reading, as `IMM.init`: one Gaussian a mode."""
        modes, components = self.started(x0, sd, probability, each), len(self.before[0]) * self.collapse.count
        beliefs = jax.tree.map(lambda a: jnp.repeat(a[:, None], components, axis=1), modes.beliefs)
        weight = jnp.full((self.count, components), -jnp.inf, dtype=modes.log_probability.dtype)
        return Mixtures(beliefs, weight.at[:, 0].set(modes.log_probability))

    # --- what the compiled functions are made of

    def over(self, function, beliefs, *args):
        return self.each(lambda f, b, *a: jax.vmap(lambda one: function(f, one, *a))(b), beliefs, *args)

    def collapsed(self, modes: Mixtures) -> Mixtures:
        found = jax.vmap(lambda w, b: self.collapse(self.model, w, b))(modes.log_weight, modes.beliefs)
        weight, beliefs, origin = found
        return Mixtures(beliefs, weight, origin)

    def predicted(self, modes: Mixtures, u: Array, noise: Noise | None = None) -> tuple[Mixtures, MixtureStep]:
        before, ends = np.array(self.before), np.arange(self.count)[:, None]
        coming = jax.tree.map(lambda a: a[before], modes.beliefs)  # modes after, modes before, components

        def one(f: Filter, level: Noise | None, beliefs: Belief) -> Belief:
            return jax.vmap(jax.vmap(lambda belief: f.predicted(belief, u, level or f.noise)[0]))(beliefs)

        weight = modes.log_weight[before] + jnp.log(jnp.asarray(self.transition)[before, ends])[..., None]
        come = self.each(one, noise, coming), weight
        flat = jax.tree.map(lambda a: a.reshape(a.shape[0], a.shape[1] * a.shape[2], *a.shape[3:]), come)
        return Mixtures(*flat), MixtureStep(u, noise)

    def _led(self, modes: Mixtures, u: Array, noise: Noise | None) -> tuple[Belief, ModeMotion]:
        """Every belief moved by the model of every mode; leading axes: modes before, components, modes after."""

        def one(f: Filter, level: Noise | None) -> tuple[Belief, ModeMotion]:
            def moved(belief: Belief) -> tuple[Belief, ModeMotion]:
                after, motion = f.predicted(belief, u, level or f.noise)
                return after, ModeMotion(*motion)

            return jax.vmap(jax.vmap(moved))(modes.beliefs)

        return jax.tree.map(lambda a: jnp.moveaxis(a, 0, 2), self.each(one, noise))

    def smoothed(self, found: Recursion) -> Smoothed:
        trail, last = found.trail, found.last
        first = self.first
        model, p = first.model, first.model.prepare(jnp.asarray(first.z))
        filtered: Mixtures = jax.tree.map(lambda a: a[-1], trail.filtered)
        end = self.sharing.end(model, filtered)
        # of every step but the last: its beliefs, its motion, and what the filter made of the beliefs after it
        steps = jax.tree.map(lambda a: a[:-1], trail), jax.tree.map(lambda a: a[1:], trail.filtered.origin)

        def way(step: tuple[ModeTrail, Array]) -> tuple[Mixtures, Led, Array]:
            (filtered, moved), origin = step
            after, motion = self._led(filtered, *moved)
            starts = jax.tree.map(lambda a: jnp.repeat(a[:, :, None], self.count, axis=2), filtered.beliefs)
            return filtered, Led(starts, motion, after.x), self._by_start(origin, filtered.log_weight.shape[1])

        back = backwards(model, p, jnp.log(jnp.asarray(self.transition)), self.sharing, end, steps, way)
        return followed(back, summarised(model, end), summarised(model, last))

    def _by_start(self, origin: Array, components: int) -> Array:
        """What the components of every mode became part of in every mode after it: nothing that counts where that mode
        cannot be reached.
        """
        before, ends = np.array(self.before), np.arange(self.count)[:, None]
        group = origin.reshape(self.count, before.shape[1], components)
        whole = jnp.zeros((self.count, self.count, components), dtype=origin.dtype)
        return jnp.moveaxis(whole.at[before, ends].set(group), 1, 2)
