"""Noise levels from the evidence of the linearised problem (states and parameters integrated out).

-log p(y | levels) = 1/2 sum nu' F^-1 nu at the best parameters + 1/2 sum log |F| + sum log(sd of every reading),
evaluated by filtering again with scaled noise; nothing is linearised anew.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from .._compiled import compiled
from .._typing import Array, Float, Scalar
from .linearise import Linearised
from .sweeps import covariance_filter, reduced

_RANGE = np.log(1e3)  # a level moves by at most this factor at a time
_REACH = 2.0  # beyond what is known
_NOTHING = 0.1  # difference of a log-likelihood that means nothing
_EVALUATIONS = 20
SAME_LEVEL = 0.1  # change of a level, relative, that is none


class Evidence(NamedTuple):
    """What the evidence of one recording reads."""

    lin: Linearised
    w: Float[Array, "steps m"]
    P0: Float[Array, "n n"]
    seen: np.ndarray  # number of readings of every channel


def relevelled(lin: Linearised, process: Array, sensor: Float[Array, " channels"]) -> Linearised:
    """The same problem in units of noise levels that are `process` and `sensor` times as large."""
    channel = jnp.tile(sensor, lin.e.shape[1] // sensor.shape[0])
    H, J = lin.H / channel[:, None], process * lin.J / channel[:, None]
    return Linearised(lin.A, process * lin.B, lin.C, H, J, lin.D / channel[:, None], lin.e / channel)


def _surprise_at(data: Evidence, levels: Float[Array, " l"]) -> Scalar:
    """-log evidence at levels relative to the present ones: logs of (process, channels)."""
    channels = data.seen.shape[0]
    process = jnp.exp(levels[:-channels])  # one for all noises, or one for each
    # at the present parameters: levels and parameters take turns until they agree
    still = data.lin._replace(C=data.lin.C[..., :0], D=data.lin.D[..., :0])
    scaled = relevelled(still, process, jnp.exp(levels[-channels:]))
    f = covariance_filter(scaled, data.w / process, data.P0[:, :0], data.P0)
    return reduced(f)[2] + f.log_det / 2


_surprise = compiled(_surprise_at)


@compiled
def _surprise_and_slope(levels: Float[Array, " l"], data: Evidence) -> tuple[Scalar, Float[Array, " l"]]:
    return jax.value_and_grad(lambda levels: _surprise_at(data, levels))(levels)


def _least(cost: Callable[[float], float]) -> float:
    """Where a function of one logarithm is least, to what means nothing; zero if that is best in its neighbourhood."""
    points = {x: cost(x) for x in (-SAME_LEVEL, 0.0, SAME_LEVEL)}
    best = min(points, key=points.__getitem__)
    for _ in range(_EVALUATIONS):
        if best == 0.0 or abs(best) >= _RANGE:
            break
        known = sorted(points)
        middle = min(max(known.index(best), 1), len(known) - 2)
        a, b, c = known[middle - 1 : middle + 2]
        left, right = (points[b] - points[a]) / (b - a), (points[c] - points[b]) / (c - b)
        bend = 2 * (right - left) / (c - a)
        # the parabola's foot, as far as it is to be trusted; downhill where there is none
        foot = (a + b) / 2 - left / bend if bend > 0 else float(-np.sign(left + right)) * _RANGE
        foot = float(np.clip(foot, max(known[0] - _REACH, -_RANGE), min(known[-1] + _REACH, _RANGE)))
        if bend > 0 and bend * (foot - best) ** 2 / 2 < _NOTHING:
            return foot
        points[foot] = cost(foot)
        best = min(points, key=points.__getitem__)
    return best


def estimate_levels(
    recordings: list[Evidence], process: bool, sensors: bool, groups: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Factors on the process noise and on every channel's sd that the evidence asks for (1 where not asked for).

    `groups`: 1, or the number of noises for a factor each.
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
        best = _least(cost)
    elif count:
        # a gradient of 0.1 (a log-likelihood per logarithm of a level) is flat enough
        options = {"maxiter": 30, "ftol": 1e-9, "gtol": 0.1}
        bounds = [(-_RANGE, _RANGE)] * count
        best = minimize(slope, np.zeros(count), jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    else:
        best = np.zeros(0)
    levels[chosen] = np.clip(best, -_RANGE, _RANGE)
    return np.exp(levels[0] if groups == 1 else levels[:groups]), np.exp(levels[groups:])
