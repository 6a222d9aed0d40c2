"""Numbers by the maximum of a posterior density, and how well it tells them: Laplace's approximation.

The evidence of a switching model is smooth but for places where other components are kept, and costs the same for any
number of hyperparameters: quasi-Newton steps from its gradient, and at the end a Hessian from differences of that.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from spookax._threads import beside
from spookax._typing import Array, Float, Scalar

_DIFFERENCE = 0.02  # of logarithms, for the Hessian
_MOST = 80  # evaluations
_TOLERANCE = 1e-7  # of the cost: 1e-3 of a log evidence of 10^4
_FAR = 1e12
_ENOUGH = 0.05  # of the cost: what is gained less in as many evaluations as
_PATIENCE = 8


class _Settled(Exception):
    """Nothing more is gained: where other components are kept the evidence jumps, and line searches go on for ever."""


class Maximum(NamedTuple):
    """Where the posterior density is largest, minus its logarithm there, and how often it was asked for."""

    at: Float[np.ndarray, " n"]
    cost: float
    calls: int
    converged: bool


def maximum(
    cost: Callable[[Array], Scalar] | None,
    start: Float[np.ndarray, " n"],
    gradient: Callable[[Array], tuple[Scalar, Array]] | None = None,
    report: Callable[[int, float], None] | None = None,
    better: Callable[[Float[np.ndarray, " n"]], None] | None = None,
) -> Maximum:
    """The minimum of `cost`, minus a log density, from `start`.

    **Arguments:** `gradient`: value and gradient, when they are compiled already (then `cost` may be None); `report`:
    called with number and value of every evaluation: a place to stop; `better`: called with the best point so far.
    """
    if gradient is None:
        assert cost is not None
        gradient = eqx.filter_jit(jax.value_and_grad(cost))
    calls, best, since = 0, (np.inf, np.asarray(start, dtype=float)), (np.inf, 0)

    def both(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal calls, best, since
        calls += 1
        value, slope = (np.asarray(a, dtype=float) for a in gradient(jnp.asarray(x)))
        if report is not None:
            report(calls, float(value))
        if not (np.isfinite(value) and np.all(np.isfinite(slope))):
            return _FAR, np.zeros_like(x)
        if value < best[0]:
            best = float(value), x.copy()
            if better is not None:
                better(best[1])
        if best[0] < since[0] - _ENOUGH:
            since = best[0], calls
        elif calls - since[1] >= _PATIENCE:
            raise _Settled
        return float(value), slope

    options = {"maxfun": _MOST, "ftol": _TOLERANCE, "gtol": 1e-2}
    try:
        done = scipy.optimize.minimize(both, best[1], jac=True, method="L-BFGS-B", options=options)
        converged = bool(done.success) and best[0] < _FAR
    except _Settled:
        converged = True
    return Maximum(best[1], best[0], calls, converged)


def laplace(
    gradient: Callable[[Array], tuple[Scalar, Array]],
    at: Float[np.ndarray, " n"],
    prior_sd: Float[np.ndarray, " n"],
    report: Callable[[int, float], None] | None = None,
) -> Float[np.ndarray, "n n"]:
    """Covariance of the normal density that has the curvature of the posterior at its maximum.

    The Hessian comes from central differences of the gradient; no direction is told less well than by the prior, whose
    standard deviations are `prior_sd`.
    """
    steps = _DIFFERENCE * np.concatenate([np.eye(len(at)), -np.eye(len(at))])
    slopes = []
    with beside() as submit:
        for found in [submit(partial(gradient, jnp.asarray(at + step))) for step in steps]:
            value, slope = found()
            slopes.append(np.asarray(slope))
            if report is not None:
                report(0, float(value))
    ahead, back = np.split(np.array(slopes), 2)
    H = (ahead - back) / (2.0 * _DIFFERENCE)
    scaled = prior_sd[:, None] * (H + H.T) / 2.0 * prior_sd[None, :]  # the prior's own part is one
    value, vector = np.linalg.eigh(np.where(np.isfinite(scaled), scaled, 0.0))
    root = prior_sd[:, None] * vector / np.sqrt(np.maximum(value, 1.0))
    return root @ root.T
