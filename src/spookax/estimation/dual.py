"""Dual estimation: two small filters, of states and of parameters, instead of one of both."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._compiled import compiled
from .._typing import AnyArray, Array, Float
from ..math import small
from ..math.sqrt_gaussian import condition, lower
from ..protocol import AbstractModel, Noise, Samples
from ..protocol.asked import duration, replayed
from .linearise import backwards
from .recursive import Filter, Innovation, innovation_of, placed, reading_of, standard_deviations
from .rules import Belief, Context, Extended, Reading
from .slow import Drift


class DualBelief(eqx.Module):
    """The belief about the states at the present parameters, how their mean follows these, and the parameters'."""

    states: Belief
    Y: Float[Array, "a p"]
    z: Float[Array, " p"]
    factor: Float[Array, "p p"]


class DualRecursion(eqx.Module):
    """A recording filtered; leading axis: steps."""

    x: Any
    sd: Float[Array, "steps n"]
    z: Float[Array, "steps p"]
    z_sd: Float[Array, "steps p"]
    innovation: Innovation
    last: DualBelief


class DualFilter(eqx.Module):
    """A filter of the states at the present parameters beside one of the parameters, whose readings are the first one's
    innovations, seen through the sensitivity of the states.

    For constant parameters this is the joint filter in another order (Friedland's two stages; on a linear model the
    same numbers), at n^3 + p^2 n instead of (n + p)^3 a step. For drifting ones it leaves out how a drift within one
    step couples to the states of that step; `WithParameters` keeps that.

    **Arguments:**

    - `model`, `noise`: as for `Filter`; readings are linearised at the mean.
    - `drift`: how the parameters change, constant when left out.

    **Source:** Friedland (1969); Wan and Nelson (2001), the dual extended Kalman filter.
    """

    model: AbstractModel
    noise: Noise
    drift: Drift | None = None

    def init(self, x0: Any, sd: AnyArray, z0: AnyArray, z_sd: AnyArray) -> DualBelief:
        """Independent beliefs about the first state and the parameters, by means and standard deviations."""
        states = self._filter(jnp.asarray(z0)).init(x0, sd)
        z0 = jnp.asarray(z0)
        return DualBelief(states, jnp.zeros((states.mean.shape[0], z0.shape[0])), z0, jnp.diag(jnp.asarray(z_sd)))

    def update(
        self, belief: DualBelief, u: AnyArray, y: AnyArray, seen: AnyArray | None = None, s: AnyArray | None = None
    ) -> tuple[DualBelief, Innovation]:
        """Both beliefs given the readings of a step."""
        return _update(self, belief, jnp.asarray(u), reading_of(self.model, y, seen, s, belief.z.dtype))

    def predict(self, belief: DualBelief, u: AnyArray) -> DualBelief:
        """Both beliefs at the end of the step."""
        return _predict(self, belief, jnp.asarray(u))

    def run(self, belief: DualBelief, samples: Samples) -> DualRecursion:
        """A whole recording in one compiled scan."""
        return _run(self, belief, placed(self.model, samples))

    def _filter(self, z: Array) -> Filter:
        return Filter(self.model, z, self.noise, Extended())

    def updated(self, belief: DualBelief, u: Array, reading: Reading) -> tuple[DualBelief, Innovation]:
        """`update`, not compiled."""
        states, Y, z = belief.states, belief.Y, belief.z
        at = Context(self.model, self.model.prepare(z), self.noise, u)
        hint = at.moved(states.x, states.mean, states.hint)[1] if self.model.reads_pair else states.hint

        def residual(a: Array, z: Array) -> Array:
            at_z, (d, w) = at._replace(p=self.model.prepare(z)), at.split(a)
            x = x1 = self.model.retract(states.x, d)
            if self.model.reads_pair:
                x1 = replayed(self.model, x, at_z.p, u, w, self.noise, hint)
            return at_z.residual(x, x1, reading)

        e, (by_a, by_z) = backwards(residual, states.mean, z)
        H, D = -by_a, -by_z
        HS = H @ states.factor
        # readings of the parameters: the innovations, in the standard deviations that the states leave them
        L = small.cholesky(HS @ HS.T + jnp.eye(e.shape[0], dtype=e.dtype))
        rows, white = small.solve_lower(L, H @ Y + D), small.solve_lower(L, e)
        found = condition(jnp.zeros_like(z), belief.factor, rows, white)
        log_det = found.log_det + 2 * jnp.sum(jnp.log(jnp.diagonal(L)))
        innovation = innovation_of(found.innovation, log_det, e, reading, self.noise)
        post = condition(states.mean, states.factor, H, e + H @ states.mean)
        gain = small.cholesky_solve(L, HS @ states.factor.T).T
        Y = Y - gain @ (H @ Y + D)
        after = Belief(states.x, post.mean + Y @ found.mean, post.factor, states.hint)
        return DualBelief(after, Y, z + found.mean, found.factor), innovation

    def predicted(self, belief: DualBelief, u: Array) -> DualBelief:
        """`predict`, not compiled."""
        states, n = belief.states, self.model.tangent_size
        after, (A, noises, _) = self._filter(belief.z).predicted(states, u, self.noise)
        at = Context(self.model, self.model.prepare(belief.z), self.noise, u)
        d, w = at.split(states.mean)

        def stepped(z: Array) -> Array:
            x = self.model.retract(states.x, d)
            x1 = replayed(self.model, x, self.model.prepare(z), u, w, self.noise, after.hint)
            return self.model.local(x1, after.x)

        _, (C,) = backwards(stepped, belief.z)
        Y = A @ belief.Y[:n] + C
        if self.model.reads_pair:
            Y = Y + noises @ belief.Y[n:]
            Y = jnp.concatenate([Y, jnp.zeros_like(belief.Y[n:])])
        if self.drift is None:
            return DualBelief(after, Y, belief.z, belief.factor)
        h = duration(self.model, at.p)
        keep = jnp.exp(-self.drift.decay * h)
        noise = jnp.broadcast_to(self.drift.density * jnp.sqrt(h), belief.z.shape)
        factor = lower(keep * belief.factor, jnp.diag(noise))
        return DualBelief(after, Y, keep * belief.z, factor)


@compiled
def _update(f: DualFilter, belief: DualBelief, u: Array, reading: Reading) -> tuple[DualBelief, Innovation]:
    return f.updated(belief, u, reading)


@compiled
def _predict(f: DualFilter, belief: DualBelief, u: Array) -> DualBelief:
    return f.predicted(belief, u)


@compiled
def _run(f: DualFilter, belief: DualBelief, samples: Samples) -> DualRecursion:
    n = f.model.tangent_size

    def body(belief: DualBelief, step):
        u, reading = step
        filtered, innovation = f.updated(belief, u, reading)
        states = filtered.states
        both = jnp.concatenate([states.factor[:n], filtered.Y[:n] @ filtered.factor], axis=1)
        x = f.model.retract(states.x, states.mean[:n])
        z_sd = standard_deviations(filtered.factor)
        return f.predicted(filtered, u), (x, standard_deviations(both), filtered.z, z_sd, innovation)

    reading = Reading(samples.y, samples.s, samples.seen)
    last, (x, sd, z, z_sd, innovation) = jax.lax.scan(body, belief, (samples.u, reading))
    return DualRecursion(x, sd, z, z_sd, innovation, last)
