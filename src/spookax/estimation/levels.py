"""Noise levels from the evidence of the linearised problem (states and parameters integrated out).

-log p(y | levels) = 1/2 sum nu' F^-1 nu at the best parameters + 1/2 sum log |F| + sum log(sd of every reading),
evaluated by filtering again with scaled noise; nothing is linearised anew.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize, minimize_scalar

from .._compiled import compiled
from .._typing import Array, Float, Scalar
from ..math import small
from .linearise import Linearised
from .sweeps import covariance_filter, reduced

_RANGE = np.log(1e3)  # a level moves by at most this factor at a time
_CLOSE = 0.05  # tolerance, relative to a level


class Evidence(NamedTuple):
    """What the evidence of one recording reads."""

    lin: Linearised
    w: Float[Array, "steps m"]
    Y0: Float[Array, "n p"]
    P0: Float[Array, "n n"]
    weight: Float[Array, " p"]  # 1/sd of the prior, own parameters included
    away: Float[Array, " p"]  # parameters minus their prior mean
    seen: np.ndarray  # number of readings of every channel


def _surprise_at(data: Evidence, levels: Float[Array, " l"]) -> Scalar:
    """-log evidence at levels relative to the present ones: logs of (process, channels)."""
    channels, lin = data.seen.shape[0], data.lin
    process = jnp.exp(levels[:-channels])  # one for all noises, or one for each
    channel = jnp.tile(jnp.exp(levels[-channels:]), lin.e.shape[1] // channels)
    H, J = lin.H / channel[:, None], process * lin.J / channel[:, None]
    scaled = Linearised(lin.A, process * lin.B, lin.C, H, J, lin.D / channel[:, None], lin.e / channel)
    f = covariance_filter(scaled, data.w / process, data.Y0, data.P0)
    N, g, q = reduced(f)
    N = N + jnp.diag(data.weight**2)
    g = g - data.weight**2 * data.away
    best = small.solve(N, g[:, None])[:, 0] if g.shape[0] else g
    return q - jnp.dot(g, best) / 2 + f.log_det / 2


_surprise = compiled(_surprise_at)


@compiled
def _surprise_and_slope(levels: Float[Array, " l"], data: Evidence) -> tuple[Scalar, Float[Array, " l"]]:
    return jax.value_and_grad(lambda levels: _surprise_at(data, levels))(levels)


def estimate_levels(
    recordings: list[Evidence], process: bool, sensors: bool, groups: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Factors on the process noise and on every channel's sd that the evidence asks for (1 where not asked for).

    `groups`: 1, or the number of noises for a factor each. The recordings share the parameters, but each is allowed
    its own best ones here: near the optimum these differ by their own uncertainty only.
    """
    channels = len(recordings[0].seen)
    chosen = np.concatenate([np.full(groups, process), np.full(channels, sensors)])
    levels = np.zeros(groups + channels)

    def cost(x: np.ndarray | float) -> float:
        levels[chosen] = np.clip(x, -_RANGE, _RANGE)
        total = sum(float(_surprise(r, jnp.asarray(levels))) + float(r.seen @ levels[groups:]) for r in recordings)
        return total if np.isfinite(total) else 1e300

    def slope(x: np.ndarray) -> tuple[float, np.ndarray]:
        levels[chosen] = x
        total, gradient = 0.0, np.zeros(groups + channels)
        for r in recordings:
            value, g = _surprise_and_slope(jnp.asarray(levels), r)
            total += float(value) + float(r.seen @ levels[groups:])
            gradient += np.asarray(g) + np.concatenate([np.zeros(groups), r.seen])
        return total, gradient[chosen]

    count = int(chosen.sum())
    if count == 1:
        # the bracket reaches down first: a start is more often too careful than too sure
        best = minimize_scalar(cost, bracket=(-1.0, 0.0), method="brent", tol=_CLOSE).x  # pyright: ignore
    elif count:
        # a gradient of 0.1 (a log-likelihood per logarithm of a level) is flat enough
        options = {"maxiter": 30, "ftol": 1e-9, "gtol": 0.1}
        bounds = [(-_RANGE, _RANGE)] * count
        best = minimize(slope, np.zeros(count), jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    else:
        best = np.zeros(0)
    levels[chosen] = np.clip(best, -_RANGE, _RANGE)
    return np.exp(levels[0] if groups == 1 else levels[:groups]), np.exp(levels[groups:])
