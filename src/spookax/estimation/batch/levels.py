"""Noise levels from the evidence of the linearised problem (states and parameters integrated out).

-log p(y | levels) = 1/2 sum nu' F^-1 nu at the best parameters + 1/2 sum log |F| + sum log(sd of every reading),
evaluated by filtering again with scaled noise; nothing is linearised anew.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from ..._compiled import compiled
from ..._threads import concurrently
from ..._typing import AnyArray, Array, Float, Scalar
from ..linearise import Linearised
from . import step_blocks
from .sweeps import Carry, filter_on, reduced

_RANGE = np.log(1e3)  # a level moves by at most this factor at a time
_REACH = 2.0  # beyond what is known
_NOTHING = 0.1  # difference of a log-likelihood that means nothing
_EVALUATIONS = 20
SAME_LEVEL = 0.1  # change of a level, relative, that is none


class Evidence(NamedTuple):
    """What the evidence of one recording reads, at the present parameters: levels and parameters take turns."""

    lin: Sequence[Linearised]  # of every block, `at_present`
    w: Float[AnyArray, "steps m"]
    P0: Float[AnyArray, "n n"]
    readings: np.ndarray  # number of readings of every channel
    now: float | None = None  # -log evidence at the present levels, where it is known already


def at_present(lin: Linearised) -> Linearised:
    """Without the columns of the parameters."""
    C, D = (np.zeros((*a.shape[:-1], 0)) for a in (lin.C, lin.D))
    return lin._replace(C=C, D=D)


def relevelled(lin: Linearised, process: Array, sensor: Float[Array, " channels"]) -> Linearised:
    """The same problem in units of noise levels that are `process` and `sensor` times as large."""
    channel = jnp.tile(sensor, lin.e.shape[1] // sensor.shape[0])
    channel, process = channel[None, :, None], jnp.reshape(process, (1, 1, -1))
    H, J, D = lin.H / channel, process * lin.J / channel, lin.D / channel
    return lin._replace(B=process * lin.B, H=H, J=J, D=D, e=lin.e / channel[..., 0])


def _part(levels: Float[Array, " l"], carry: Carry, lin: Linearised, w: Array, channels: int) -> tuple[Scalar, Carry]:
    """What a block adds to -log evidence, at logs of (process, channels) relative to the present levels."""
    process = jnp.exp(levels[:-channels])  # one for all noises, or one for each
    carry, f = filter_on(
        relevelled(lin, process, jnp.exp(levels[-channels:])), w / jnp.atleast_1d(process)[None], carry
    )
    return reduced(f)[2] + jnp.sum(f.log_det) / 2, carry


_value = compiled(_part)


@compiled
def _value_and_slope(
    levels: Float[Array, " l"], carry: Carry, carry_dot: Carry, lin: Linearised, w: Array, channels: int
) -> tuple[Scalar, Array, Carry, Carry]:
    """The same with its derivative along every level, forwards: `carry_dot` has one more axis, the first."""

    def along(direction: Array, carry_dot: Carry):
        return jax.jvp(
            lambda levels, carry: _part(levels, carry, lin, w, channels), (levels, carry), (direction, carry_dot)
        )

    (value, carry), (slope, carry_dot) = jax.vmap(along, out_axes=(None, 0))(jnp.eye(levels.shape[0]), carry_dot)
    return value, slope, carry, carry_dot


def _surprise(data: Evidence, levels: np.ndarray) -> float:
    def one(carry: Carry, lin: Linearised, w: np.ndarray) -> tuple[Carry, Scalar]:
        value, carry = _value(levels, carry, lin, w, data.readings.shape[0])
        return carry, value

    _, parts = step_blocks.forward(one, _nothing_known(data), data.lin, step_blocks.split(data.w))
    return sum(map(float, parts))


def _surprise_and_slope(data: Evidence, levels: np.ndarray) -> tuple[float, np.ndarray]:
    def one(carry: tuple[Carry, Carry], lin: Linearised, w: np.ndarray):
        value, slope, *carries = _value_and_slope(levels, *carry, lin, w, data.readings.shape[0])
        return tuple(carries), (value, slope)

    start = _nothing_known(data)
    _, parts = step_blocks.forward(one, (start, _still(start, levels)), data.lin, step_blocks.split(data.w))
    return sum(float(value) for value, _ in parts), sum((np.asarray(slope) for _, slope in parts), np.zeros(()))


def _still(carry: Carry, levels: np.ndarray) -> Carry:
    return jax.tree.map(lambda a: np.zeros((levels.shape[0], *a.shape)), carry)


def _nothing_known(data: Evidence) -> Carry:
    P0 = np.asarray(data.P0)
    return np.zeros((P0.shape[0], 1)), P0  # pyright: ignore[reportReturnType]


def _least(cost: Callable[[float], float], now: float) -> float:
    """Where a function of one logarithm is least, to what means nothing; zero if that is best in its neighbourhood.

    `now`: its value at zero. Two points at a time, which two cores evaluate together.
    """
    points = {0.0: now}

    def evaluate(*at: float) -> float:
        points.update(zip(at, concurrently([functools.partial(cost, x) for x in at]), strict=True))
        return min(points, key=points.__getitem__)

    best = evaluate(-SAME_LEVEL, SAME_LEVEL)
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
        halfway = (best + foot) / 2
        best = evaluate(*((foot, halfway) if abs(foot - best) > SAME_LEVEL else (foot,)))
    return best


def preparation(
    data: Evidence, process: bool, sensors: bool, groups: int = 1, together: bool = False
) -> Callable[[], None]:
    """A call that compiles what `estimate_levels` will call for recordings of this form."""
    levels, carry, channels = np.zeros(groups + len(data.readings)), _nothing_known(data), len(data.readings)
    block = data.lin[0], step_blocks.split(data.w)[0]
    if groups * process + (1 if together else channels) * sensors == 1:
        return functools.partial(_value.prepare, levels, carry, *block, channels)
    return functools.partial(_value_and_slope.prepare, levels, carry, _still(carry, levels), *block, channels)


def estimate_levels(
    recordings: list[Evidence], process: bool, sensors: bool, groups: int = 1, together: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Factors on the process noise and on every channel's sd that the evidence asks for (1 where not asked for).

    `groups`: 1, or the number of noises for a factor each; `together`: one factor for all channels.
    """
    channels = len(recordings[0].readings)
    # every column is what one factor moves
    moved = np.eye(groups + channels)
    if together:
        moved = np.column_stack([moved[:, :groups], np.arange(groups + channels) >= groups])
    moved = moved[:, [process] * groups + [sensors] * (moved.shape[1] - groups)]

    def at(x: np.ndarray | float) -> np.ndarray:
        return moved @ np.clip(np.atleast_1d(x), -_RANGE, _RANGE)

    def cost(x: float) -> float:
        levels = at(x)
        total = sum(concurrently([functools.partial(_surprise, r, levels) for r in recordings])) + sum(
            float(r.readings @ levels[groups:]) for r in recordings
        )
        return total if np.isfinite(total) else 1e300

    def slope(x: np.ndarray) -> tuple[float, np.ndarray]:
        levels = at(x)
        found = concurrently([functools.partial(_surprise_and_slope, r, levels) for r in recordings])
        total, gradient = 0.0, np.zeros(groups + channels)
        for r, (value, g) in zip(recordings, found, strict=True):
            total += value + float(r.readings @ levels[groups:])
            gradient += g + np.concatenate([np.zeros(groups), r.readings])
        return total, moved.T @ gradient

    count = moved.shape[1]
    if count == 1:
        known = [r.now for r in recordings if r.now is not None]
        best = _least(cost, sum(known) if len(known) == len(recordings) else cost(0.0))
    elif count:
        # a gradient of 0.1 (a log-likelihood per logarithm of a level) is flat enough
        options = {"maxiter": 30, "ftol": 1e-9, "gtol": 0.1}
        bounds = [(-_RANGE, _RANGE)] * count
        best = minimize(slope, np.zeros(count), jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    else:
        best = np.zeros(0)
    levels = at(best)
    return np.exp(levels[0] if groups == 1 else levels[:groups]), np.exp(levels[groups:])
