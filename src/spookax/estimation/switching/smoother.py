"""States and modes given all readings, for a bank whose beliefs were mixed.

Backwards, with a Gaussian for each mode j of step k+1: every pair (mode i at k, mode j at k+1) takes a
Rauch-Tung-Striebel step through the model that led from one to the other, gets the weight

    p(i, j | Y) = p(j | Y) * Pi_ij mu_i N(m_j; m_ij, P_ij + P_j) / (the sum of these over i)

where m_j, P_j are the smoothed moments at k+1 and m_ij, P_ij what mode i at k predicts for them, and the pairs of
each i are merged. Why this one: it is of the same order as the filter (one Gaussian a mode), needs no inverse of the
models and no likelihoods of the future that cannot be normalised, as smoothers of two filters do, and with one mode
it is the Rauch-Tung-Striebel smoother. Evaluating the density at m_j alone, without P_j, is a usual shortcut that
makes the modes too certain. Standard deviations are on the careful side, because a pair's step takes the smoothed
state at k+1 for the same whatever mode came before.

States on constraints, such as a mechanism in redundant coordinates, are compared along their free directions T, the
derivative of `model.start`: what leads across them is curvature, which no covariance accounts for. Gains come from
triangular factors; no covariance is inverted or subtracted.

**Source:** Barber (2006), expectation correction, with one component a mode; Lopez and Danes (2010) mix instead of
taking pairs.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..._typing import Array, Float, Scalar
from ...math import small
from ...math.sqrt_gaussian import gain_of, lower, spanning
from ...protocol import AbstractModel
from ..rules import Belief
from .merging import Modes, at, heaviest, merge, transported


class Motion(NamedTuple):
    """The motion of a step as a linear model: A a + E v + c, v ~ N(0, 1), a being all that is believed about."""

    A: Float[Array, "n a"]
    E: Float[Array, "n v"]
    c: Float[Array, " n"]


class Moved(NamedTuple):
    """How every mode (leading axis) moved: charts before and after the step, and the motion between them."""

    before: Any
    after: Any
    motion: Motion


class Trail(NamedTuple):
    """What the filter leaves of a step: every array with an axis of modes."""

    filtered: Modes
    before: Any
    after: Any
    motion: Motion


class SmoothedModes(NamedTuple):
    """States and modes given all readings of a recording; leading axis: steps + 1, the last one where it ends."""

    x: Any
    sd: Float[Array, "steps_1 n"]
    factor: Float[Array, "steps_1 n n"]
    log_probability: Float[Array, "steps_1 modes"]

    @property
    def probability(self) -> Float[Array, "steps_1 modes"]:
        """Of every mode; they sum to one."""
        return jnp.exp(self.log_probability)


def smoothed(
    model: AbstractModel, p: Any, log_transition: Float[Array, "modes modes"], trail: Trail, last: Modes
) -> SmoothedModes:
    """The backward pass, from the predicted beliefs after the last step. `p`: prepared parameters of some mode, for the
    free directions of states.
    """
    n = model.tangent_size

    def told(modes: Modes) -> tuple[Any, Array, Array, Array]:
        both = merge(model, modes.probability, modes.beliefs)
        return both.x, jnp.sqrt(jnp.sum(both.factor**2, axis=1)), both.factor, modes.log_probability

    def back(ahead: Modes, step: Trail) -> tuple[Modes, tuple[Any, Array, Array, Array]]:
        there = heaviest(ahead.beliefs, ahead.probability)
        T = _free_directions(model, p, model.retract(there.x, there.mean))
        modes = _before(model, T, log_transition, step, ahead)
        return modes, told(modes)

    b = last.beliefs
    end = Modes(Belief(b.x, b.mean[:, :n], b.factor[:, :n, :n], b.hint), last.log_probability)
    _, found = jax.lax.scan(back, end, trail, reverse=True)
    return SmoothedModes(*jax.tree.map(lambda a, e: jnp.concatenate([a, e[None]]), found, told(end)))


def _free_directions(model: AbstractModel, p: Any, x: Any) -> Float[Array, "n n"]:
    """Orthonormal columns that span the directions in which admissible states next to x differ; the others are zero.

    The derivative of `start` is a projection: it stretches every direction by at least one, or takes it away but for
    what rows give way by.
    """

    def placed(d: Array) -> Array:
        return model.local(model.start(model.retract(x, d), p), x)

    return spanning(jax.jacfwd(placed)(jnp.zeros(model.tangent_size, dtype=jax.tree.leaves(x)[0].dtype)), least=0.01)


def _before(model: AbstractModel, T: Array, log_transition: Array, step: Trail, ahead: Modes) -> Modes:
    """The smoothed beliefs at the start of a step from those at its end."""
    count = jnp.arange(log_transition.shape[0])

    def pair(i: Array, j: Array) -> tuple[Belief, Scalar]:
        leads = i if model.reads_pair else j  # the mode whose model makes the step
        start, origin = at(step.filtered.beliefs, i), at(step.before, leads)
        led = at(step.motion, leads), at(step.after, leads)
        return _stepped_back(model, T, start, origin, *led, at(ahead.beliefs, j))

    beliefs, density = jax.vmap(lambda i: jax.vmap(lambda j: pair(i, j))(count))(count)
    weights = step.filtered.log_probability[:, None] + log_transition + density
    total = jax.nn.logsumexp(weights, axis=0)
    possible = jnp.isfinite(total)
    joint = jnp.where(possible, weights - jnp.where(possible, total, 0.0) + ahead.log_probability, -jnp.inf)
    log_probability = jax.nn.logsumexp(joint, axis=1)
    reached = jnp.isfinite(log_probability)[:, None]
    share = jnp.exp(joint - jnp.where(reached, log_probability[:, None], 0.0))
    share = jnp.where(reached, share, 1.0 / share.shape[1])
    return Modes(jax.vmap(lambda w, b: merge(model, w, b))(share, beliefs), log_probability)


def _stepped_back(
    model: AbstractModel, T: Array, start: Belief, origin: Any, motion: Motion, chart: Any, ahead: Belief
) -> tuple[Belief, Scalar]:
    """The belief at the start of a step given that at its end, and the log-density of the end before that was known."""
    n = model.tangent_size
    if model.reads_pair:  # in its own chart, with the noise of the step
        mean, factor = start.mean, start.factor
    else:
        mean, factor = transported(model, start, origin)
    goal, spread = transported(model, ahead, chart)
    apart, spread = T.T @ (goal - (motion.A @ mean + motion.c)), T.T @ spread
    zero = jnp.zeros(motion.E.shape, dtype=mean.dtype)
    top = T.T @ jnp.concatenate([motion.A @ factor, motion.E], 1)
    low = jnp.concatenate([factor[:n], zero], 1)
    L = lower(jnp.concatenate([top, low]))  # [[of the end, 0], [what the start shares with it, the rest of the start]]
    gain = gain_of(L[n:, :n], L[:n, :n])
    after = Belief(
        origin,
        mean[:n] + gain @ apart,
        lower(jnp.concatenate([L[n:, n:], L[n:, :n] - gain @ L[:n, :n], gain @ spread], axis=1)),
        start.hint,
    )
    held = jnp.diag(1.0 - jnp.sum(T**2, axis=0))  # directions that are not free, alike for all pairs
    return after, _log_density(apart, jnp.concatenate([L[:n, :n], spread, held], axis=1))


def _log_density(d: Float[Array, " n"], factor: Float[Array, "n k"]) -> Scalar:
    """Of N(0, factor factor') at d; directions without any spread get one at rounding level of the largest."""
    n = d.shape[0]
    floor = jnp.sqrt(jnp.finfo(d.dtype).eps) * jnp.sqrt(jnp.max(jnp.sum(factor**2, axis=1)))
    L = lower(jnp.concatenate([factor, (floor + jnp.finfo(d.dtype).tiny) * jnp.eye(n, dtype=d.dtype)], axis=1))
    white = small.solve_lower(L, d)
    return -0.5 * jnp.sum(white**2) - jnp.sum(jnp.log(jnp.abs(jnp.diagonal(L))))
