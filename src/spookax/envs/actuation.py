"""From what an agent asks for to what motors are told: limits, rate limits, delay."""

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .._typing import AnyArray, Array, Float
from ..system import System
from .moment import motor_index

_ROUNDING = 1e-6  # of a step, by which a time may miss a multiple of it


class Actuation(eqx.Module):
    """The motors that an agent drives, in the order of its actions; the others are told zero.

    An action beyond its limits, or farther from the last one than its rate allows, counts as the nearest one that is
    not. It is held for a control period of `substeps` steps, and acts `late` steps after it was given.
    """

    motors: tuple[int, ...] = eqx.field(static=True)
    substeps: int = eqx.field(static=True)
    late: int = eqx.field(static=True)
    low: Float[AnyArray, " actions"]  # [the motors' units]
    high: Float[AnyArray, " actions"]
    slew: Float[AnyArray, " actions"]  # largest change per second, infinite where there is no limit

    @property
    def kept(self) -> int:
        """Earlier actions that are kept: the last one, and those that still wait."""
        return max(1, -(-self.late // self.substeps))

    def first(self) -> Float[Array, "kept actions"]:
        """Earlier actions at the start of an episode: none, or what comes nearest to that."""
        zero = jnp.clip(jnp.zeros_like(jnp.asarray(self.low)), self.low, self.high)
        return jnp.broadcast_to(zero, (self.kept, len(self.motors)))

    def commands(
        self, system: System, earlier: Float[Array, "kept actions"], action: Float[Array, " actions"], period: Array
    ) -> tuple[Float[Array, "substeps motors"], Float[Array, "kept actions"]]:
        """What motors are told in every step of a control period, and what is kept then."""
        room = self.slew * period
        allowed = jnp.clip(action, self.low, self.high)
        allowed = jnp.clip(allowed, earlier[0] - room, earlier[0] + room)
        latest = jnp.concatenate([allowed[None], earlier])
        age = np.maximum(-(-(self.late - np.arange(self.substeps)) // self.substeps), 0)
        told = jnp.zeros((self.substeps, len(system.motors)), dtype=latest.dtype)
        return told.at[:, np.array(self.motors)].set(latest[age]), latest[: self.kept]


def actuation(
    system: System,
    limits: Mapping[str, float | tuple[float, float]],
    rates: Mapping[str, float],
    step: float,
    period: float,
    delay: float,
) -> Actuation:
    """**Raises:** `ValueError` for unknown motors, empty limits, times that are no multiples of the step."""
    if not limits:
        raise ValueError(
            "`actions` names no motor: give the motors that an agent drives and their limits, {'drive': 4.0}"
        )
    motors = tuple(motor_index(system, name) for name in limits)
    pairs = [(-pair, pair) if isinstance(pair, int | float) else tuple(pair) for pair in limits.values()]
    for name, (low, high) in zip(limits, pairs, strict=True):
        if not (np.isfinite([low, high]).all() and low < high):
            raise ValueError(f"`actions` of '{name}' must be finite and grow from low to high, got {low:g} to {high:g}")
    for name, rate in rates.items():
        if name not in limits:
            raise ValueError(f"`action_rates` names '{name}', which is not among `actions`: {', '.join(limits)}")
        if not rate > 0:
            raise ValueError(f"`action_rates` of '{name}' must be positive, got {rate:g}")
    low, high = np.array(pairs).T
    slew = np.array([float(rates.get(name, np.inf)) for name in limits])
    substeps = steps_of("control_period", period, step)
    if substeps < 1:
        raise ValueError(f"`control_period` must be one step of {step:g} s at least, got {period:g} s")
    return Actuation(motors, substeps, steps_of("action_delay", delay, step), low, high, slew)


def steps_of(name: str, time: float, step: float) -> int:
    """How many steps a time is. **Raises:** `ValueError` where that is no whole number, or negative."""
    count = time / step
    if not (np.isfinite(count) and count >= 0 and abs(count - round(count)) <= _ROUNDING * max(count, 1.0)):
        below, above = np.floor(count) * step if np.isfinite(count) else 0.0, (np.floor(max(count, 0)) + 1) * step
        raise ValueError(
            f"`{name}` must be a multiple of the step of {step:g} s, got {time:g} s; next to it are {max(below, 0):g} "
            f"and {above:g} s"
        )
    return round(count)
