"""Dual estimation: two small filters, of states and of parameters, instead of one of both."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._results import STEP_RESULTS
from ..._typing import AnyArray, Array, Float
from ...math import small
from ...math.sqrt_gaussian import condition, lower
from ...protocol import AbstractModel, Noise
from ...protocol.asked import duration, replayed
from ..linearise import backwards
from ..recursive.every_filter import AbstractFilter, Estimated, Innovation, innovation_of, standard_deviations
from ..recursive.filter import Filter
from ..recursive.step_rules import Belief, Context, Extended, Reading
from .with_parameters import AugmentedState, Drift


class DualBelief(eqx.Module):
    """The belief about the states at the present parameters, how their mean follows these, and the parameters'."""

    states: Belief
    Y: Float[Array, "a p"]
    z: Float[Array, " p"]
    factor: Float[Array, "p p"]


class DualFilter(AbstractFilter):
    """A filter of the states at the present parameters beside one of the parameters, whose readings are the first one's
    innovations, seen through the sensitivity of the states.

    For constant parameters this is the joint filter in another order (Friedland's two stages; on a linear model the
    same numbers), at n^3 + p^2 n instead of (n + p)^3 a step. For drifting ones it leaves out how a drift within one
    step couples to the states of that step; `WithParameters` keeps that.

    **Arguments:**

    - `model`, `noise`: as for `Filter`; readings are linearised at the mean.
    - `drift`: how the parameters change, constant when left out.
    - `gate`: as for `Filter`.

    **Source:** Friedland (1969); Wan and Nelson (2001), the dual extended Kalman filter.
    """

    model: AbstractModel
    noise: Noise
    drift: Drift | None = None
    gate: Float[AnyArray, ""] | float = math.inf

    def init(self, x0: Any, sd: AnyArray, z0: AnyArray, z_sd: AnyArray) -> DualBelief:
        """Independent beliefs about the first state and the parameters, by means and standard deviations."""
        states = self._filter(jnp.asarray(z0)).init(x0, sd)
        z0 = jnp.asarray(z0)
        return DualBelief(states, jnp.zeros((states.mean.shape[0], z0.shape[0])), z0, jnp.diag(jnp.asarray(z_sd)))

    # --- what the compiled functions are made of

    def _filter(self, z: Array) -> Filter:
        return Filter(self.model, z, self.noise, Extended())

    def updated(
        self, belief: DualBelief, u: Array, reading: Reading, noise: Noise | None = None
    ) -> tuple[DualBelief, Innovation]:
        level = noise or self.noise
        states, Y, z = belief.states, belief.Y, belief.z
        at = Context(self.model, self.model.prepare(z), level, u)
        guess = at.moved(states.x, states.mean, states.guess)[1] if self.model.reads_pair else states.guess

        def residual(a: Array, z: Array) -> Array:
            at_z, (d, w) = at._replace(p=self.model.prepare(z)), at.split(a)
            x = x1 = self.model.retract(states.x, d)
            if self.model.reads_pair:
                x1 = replayed(self.model, x, at_z.p, u, w, level, guess)
            return at_z.residual(x, x1, reading)

        e, (by_a, by_z) = backwards(residual, states.mean, z)
        H, D = -by_a, -by_z
        HS = H @ states.factor
        # readings of the parameters: the innovations, in the standard deviations that the states leave them
        L = small.cholesky(HS @ HS.T + jnp.eye(e.shape[0], dtype=e.dtype))
        rows, white = small.solve_lower(L, H @ Y + D), small.solve_lower(L, e)
        found = condition(jnp.zeros_like(z), belief.factor, rows, white)
        log_det = found.log_det + 2 * jnp.sum(jnp.log(small.diagonal(L)))
        innovation = innovation_of(found.innovation, log_det, e, reading, level, self.gate)
        post = condition(states.mean, states.factor, H, e + H @ states.mean)
        gain = small.cholesky_solve(L, HS @ states.factor.T).T
        Y = Y - gain @ (H @ Y + D)
        after = Belief(states.x, post.mean + Y @ found.mean, post.factor, states.guess, states.result)
        both = DualBelief(after, Y, z + found.mean, found.factor)
        return jax.tree.map(lambda new, old: jnp.where(innovation.accepted > 0, new, old), both, belief), innovation

    def ended(self, belief: DualBelief) -> STEP_RESULTS:
        return belief.states.result  # pyright: ignore[reportReturnType]

    def predicted(self, belief: DualBelief, u: Array, noise: Noise | None = None) -> tuple[DualBelief, None]:
        level = noise or self.noise
        states, n = belief.states, self.model.tangent_size
        after, (A, noises, _) = self._filter(belief.z).predicted(states, u, level)
        at = Context(self.model, self.model.prepare(belief.z), level, u)
        d, w = at.split(states.mean)

        def stepped(z: Array) -> Array:
            x = self.model.retract(states.x, d)
            x1 = replayed(self.model, x, self.model.prepare(z), u, w, level, after.guess)
            return self.model.local(x1, after.x)

        _, (C,) = backwards(stepped, belief.z)
        Y = A @ belief.Y[:n] + C
        if self.model.reads_pair:
            Y = Y + noises @ belief.Y[n:]
            Y = jnp.concatenate([Y, jnp.zeros_like(belief.Y[n:])])
        if self.drift is None:
            return DualBelief(after, Y, belief.z, belief.factor), None
        h = duration(self.model, at.p)
        keep = jnp.exp(-self.drift.decay * h)
        wander = jnp.broadcast_to(self.drift.density * jnp.sqrt(h), belief.z.shape)
        factor = lower(keep * belief.factor, jnp.diag(wander))
        return DualBelief(after, Y, keep * belief.z, factor), None

    def stepped(
        self, belief: DualBelief, u: Array, reading: Reading, noise: Noise | None, trail: bool
    ) -> tuple[DualBelief, Estimated, None]:
        """The state is an `AugmentedState` of both, its standard deviations those of one and then of the other."""
        if trail:
            raise ValueError("dual filters go forwards only: run them without `trail`")
        filtered, innovation = self.updated(belief, u, reading, noise)
        states, n = filtered.states, self.model.tangent_size
        both = jnp.concatenate([states.factor[:n], filtered.Y[:n] @ filtered.factor], axis=1)
        x = AugmentedState(self.model.retract(states.x, states.mean[:n]), filtered.z)
        sd = jnp.concatenate([standard_deviations(both), standard_deviations(filtered.factor)])
        return self.predicted(filtered, u, noise)[0], Estimated(x, sd, innovation), None
