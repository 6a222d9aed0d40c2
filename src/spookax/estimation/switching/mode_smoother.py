"""States and modes given all readings, backwards through every pair of beliefs.

Backwards, with Gaussians for each mode j of step k+1: every pair (belief i at k, belief j at k+1) takes a
Rauch-Tung-Striebel step through the model that led from one to the other, gets the weight

    p(i, j | Y) = p(j | Y) * Pi_ij w_i N(m_j; m_ij, P_ij + P_j) / (the sum of these over i)

where m_j, P_j are the smoothed moments at k+1 and m_ij, P_ij what belief i at k predicts for them, and the pairs of
each mode are collapsed. Why this one: it is of the same order as the filter, needs no inverse of the models and no
likelihoods of the future that cannot be normalised, as smoothers of two filters do, and with one mode it is the
Rauch-Tung-Striebel smoother. Evaluating the density at m_j alone, without P_j, is a usual shortcut that makes the modes
too certain. Standard deviations are on the careful side, because a pair's step takes the smoothed state at k+1 for the
same whatever came before. Which beliefs at k may have led to one at k+1 is a part of its own: `sharing`.

States on constraints, such as a mechanism in redundant coordinates, are compared along their free directions T, the
derivative of `ConstrainedStart.start`: what leads across them is curvature, which no covariance accounts for. Gains
come from triangular factors; no covariance is inverted or subtracted.

**Source:** Barber (2006), expectation correction; Lopez and Danes (2010) mix instead of taking pairs.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ..._typing import Array, Float
from ...math.sqrt_gaussian import spanning
from ...protocol import AbstractModel, ConstrainedStart
from ...protocol.asked import admissible
from ..recursive.every_filter import Smoothed, standard_deviations
from .merging import heaviest, merge
from .mixtures import Mixtures, in_a_row
from .sharing import AbstractSharing, Led, Pairs


def backwards(
    model: AbstractModel,
    p: Any,
    log_transition: Float[Array, "modes modes"],
    sharing: AbstractSharing,
    end: Mixtures,
    steps: Any,
    way: Callable[[Any], tuple[Mixtures, Led, Any]],
) -> Smoothed:
    """The backward pass from what is believed after the last of `steps`.

    `way` gives of a step the filtered beliefs, how they moved, and what `sharing` wants to know besides; `p`: prepared
    parameters of some mode, for the free directions of states.
    """
    constrained = model.offers(ConstrainedStart) is not None

    def back(ahead: Mixtures, step: Any) -> tuple[Mixtures, Smoothed]:
        filtered, led, more = way(step)
        T = None
        if constrained:
            beliefs, weight = in_a_row(ahead, (ahead.beliefs, ahead.log_weight))
            there = heaviest(beliefs, jnp.exp(weight))
            T = _free_directions(model, p, model.retract(there.x, there.mean))
        modes = sharing.back(Pairs(model, T, log_transition, filtered, led, ahead), more)
        return modes, summarised(model, modes)

    _, found = jax.lax.scan(back, end, steps, reverse=True)
    return found


def summarised(model: AbstractModel, modes: Mixtures) -> Smoothed:
    """Of the beliefs at one step."""
    beliefs, weight = in_a_row(modes, (modes.beliefs, modes.log_weight))
    both = merge(model, jnp.exp(weight), beliefs)
    return Smoothed(both.x, standard_deviations(both.factor), both.factor, modes.log_probability)


def followed(found: Smoothed, *after: Smoothed) -> Smoothed:
    """Steps, and what comes after them."""
    for end in after:
        found = jax.tree.map(lambda a, e: jnp.concatenate([a, e[None]]), found, end)
    return found


def _free_directions(model: AbstractModel, p: Any, x: Any) -> Float[Array, "n n"]:
    """Orthonormal columns that span the directions in which admissible states next to x differ; the others are zero.

    The derivative of `start` is a projection: it stretches every direction by at least one, or takes it away but for
    what rows give way by.
    """

    def placed(d: Array) -> Array:
        return model.local(admissible(model, model.retract(x, d), p), x)

    return spanning(jax.jacfwd(placed)(jnp.zeros(model.tangent_size, dtype=jax.tree.leaves(x)[0].dtype)), least=0.01)
