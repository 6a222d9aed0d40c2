"""What the sweeps say at the optimum about the states: their posterior covariance, and the filter's innovations."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._compiled import compiled
from .._typing import Array, Float
from .linearise import Linearised
from .problem import Fit, Problem, Settings, Stage
from .simulator_form import Estimator
from .sweeps import Filtered, smoothed_covariance


class Uncertainty(NamedTuple):
    """Of one recording."""

    covariance: Float[Array, "steps n n"]  # of dx_k, parameters included
    innovations: Float[Array, "steps c"]  # readings minus their prediction from earlier ones, in their own sd


@compiled
def _of(lin: Linearised, f: Filtered, covariance: Array) -> Uncertainty:
    F = jax.vmap(lambda H, P, J: H @ P @ H.T + J @ J.T)(lin.H, f.P, lin.J) + jnp.eye(lin.H.shape[1])
    sd = jnp.sqrt(jnp.diagonal(F, axis1=1, axis2=2))
    return Uncertainty(smoothed_covariance(lin, f, covariance), f.nu / sd)


def uncertainty(problem: Problem, stage: Stage, fit: Fit) -> list[Uncertainty]:
    """Covariances of the states of every recording and innovations at the estimate, from one more sweep."""
    linear = Estimator(problem, Settings()).linear(stage, fit.iterate)
    found = []
    for part, own in zip(linear.parts, fit.own_covariance, strict=True):
        count = fit.covariance.shape[0]
        both = np.zeros((count + own.shape[0],) * 2)
        both[:count, :count] = fit.covariance
        if own.shape[0]:
            # own parameters follow the shared ones: cov = T cov_z T' + what remains of their own
            corner = np.asarray(part.N)[count:, count:] + np.diag(problem.own_weight**2)
            follow = -np.linalg.solve(corner, np.asarray(part.N)[count:, :count])
            both[count:, :count] = follow @ fit.covariance
            both[:count, count:] = both[count:, :count].T
            both[count:, count:] = own
        found.append(_of(part.lin, part.f, jnp.asarray(both)))
    return found
