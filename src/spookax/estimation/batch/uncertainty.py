"""What the sweeps say at the optimum about the states: their posterior covariance, and the filter's innovations."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..._compiled import compiled
from ..._typing import Array, Float
from ..linearise import Linearised
from . import step_blocks
from .problem import Fit, Part, Problem, Settings, Stage, posterior
from .simulator_form import Estimator
from .step_blocks import joined
from .sweeps import Filtered, smooth_covariance_on


class FirstState(NamedTuple):
    """What a recording's own readings say of dx_0, its first state."""

    covariance: Float[np.ndarray, "n n"]  # with the parameters known
    moves: Float[np.ndarray, "n p"]  # how the best dx_0 follows the parameters


class Uncertainty(NamedTuple):
    """Of one recording."""

    covariance: Float[Array, "steps n n"]  # of dx_k, parameters included
    innovations: Float[Array, "steps c"]  # readings minus their prediction from earlier ones, in their own sd
    first: FirstState


@compiled
def _innovations(lin: Linearised, f: Filtered) -> Float[Array, "steps c"]:
    F = jax.vmap(lambda H, P, J: H @ P @ H.T + J @ J.T)(lin.H, f.P, lin.J) + jnp.eye(lin.H.shape[1])[None]
    return f.nu / jnp.sqrt(jnp.diagonal(F, axis1=1, axis2=2))


@compiled
def _covariance(after: tuple[Array, Array], lin: Linearised, f: Filtered, cov_z: Array):
    before, P = smooth_covariance_on(lin, f, cov_z, after)
    if lin.directions is not None:
        along = lin.directions.along
        P = along @ P @ jnp.swapaxes(along, 1, 2)
    return before, P


def state_uncertainty(lin: list[Linearised], f: list[Filtered], covariance: np.ndarray) -> Uncertainty:
    """Of the states of a recording, from its sweeps and the covariance of all its parameters."""
    n, p = f[0].Y.shape[1:]
    after = np.zeros((n, n)), np.zeros((n, p))
    before, found = step_blocks.backward(lambda *at: _covariance(*at, covariance), after, lin, f)
    N, T, Y, P = map(np.asarray, (*before, f[0].Y, f[0].P))
    first = FirstState(P[0] - P[0] @ N @ P[0], Y[0] + P[0] @ T)
    if (free := lin[0].directions) is not None:
        along = np.asarray(free.along)[0]
        first = FirstState(along @ first.covariance @ along.T, along @ first.moves)
    return Uncertainty(joined(found), joined(step_blocks.mapped(_innovations, lin, f)), first)


def preparations(lin: Linearised, f: Filtered) -> list[Callable[[], None]]:
    """Calls that compile what `uncertainty` will call, for blocks of the form of this one."""
    n, p = f.Y.shape[1:]
    after = np.zeros((n, n)), np.zeros((n, p))
    return [partial(_covariance.prepare, after, lin, f, np.zeros((p, p))), partial(_innovations.prepare, lin, f)]


def parts_of(problem: Problem, stage: Stage, fit: Fit) -> tuple[Part, ...]:
    """The recordings of a fit, linearised and filtered: from its last sweep, or anew where its form has none."""
    if fit.parts is not None:
        return fit.parts
    estimator = Estimator(problem, Settings())
    estimator.root_weights = fit.root_weights
    return estimator.linear(stage, fit.iterate).parts


def uncertainty(problem: Problem, stage: Stage, fit: Fit) -> list[Uncertainty]:
    """Covariances of the states of every recording and innovations at the estimate, from the fit's last sweep;
    without the directions of the parameters that nothing is known of.
    """
    N = fit.information + np.diag(problem.weight**2)
    known = posterior(problem, np.asarray(fit.iterate.z), N, fit.slope, fit.result).known
    found = []
    for part, own in zip(parts_of(problem, stage, fit), fit.own_covariance, strict=True):
        count = known.shape[0]
        both = np.zeros((count + own.shape[0],) * 2)
        both[:count, :count] = known
        if own.shape[0]:
            # own parameters follow the shared ones: cov = T cov_z T' + what remains of their own
            corner = np.asarray(part.N)[count:, count:] + np.diag(problem.own_weight**2)
            follow = -np.linalg.solve(corner, np.asarray(part.N)[count:, :count])
            both[count:, :count] = follow @ known
            both[:count, count:] = both[count:, :count].T
            both[count:, count:] = own
        found.append(state_uncertainty(part.lin, part.f, both))
    return found
