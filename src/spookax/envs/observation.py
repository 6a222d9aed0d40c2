"""What an agent is told: readings of the scene's sensors with their noise and delay, or chosen coordinates as they are.

Both are causal: an observation at t_k has nothing in it that comes later.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import AnyArray, Array, Float
from ..sensors import readings
from ..system import State, System
from .moment import Moment, axis_index, sensor_index

_MOST = 2.0  # of a sensor's delay that states are kept for, where it is drawn anew in every episode


class Sight(eqx.Module):
    """What an observation is made from."""

    moment: Moment
    past: State  # states of the last steps, the latest first
    sd: Float[Array, " channels"]  # of the sensors' noise
    key: Array
    period: Array  # between two observations [s]


class AbstractObservation(eqx.Module):
    """What an agent is told of a `Sight`."""

    @abc.abstractmethod
    def names(self, system: System) -> tuple[str, ...]:
        """Of every number. **Raises:** `ValueError` for what the scene does not have, and for nothing at all."""

    @abc.abstractmethod
    def look(self, sight: Sight, seen: Array | None) -> tuple[Float[Array, " numbers"], Array]:
        """The numbers, and what is to be remembered at the next look; `seen` is none at the first."""


class Sensors(AbstractObservation):
    """What sensors read, with their noise and delay.

    **Arguments:**

    - `sensors`: names; those of the scene if left out.
    - `cos_sin`: encoders of turning joints that are told as cosine and sine.
    - `differences`: sensors whose change since the last observation, per second, is told, too, as controllers have it
      of an encoder; zero at the start.
    - `noise`: factor on the standard deviations of the sensors.
    """

    sensors: tuple[str, ...] | None = eqx.field(static=True)
    cos_sin: tuple[str, ...] = eqx.field(static=True)
    differences: tuple[str, ...] = eqx.field(static=True)
    noise: Float[AnyArray, ""]

    def __init__(
        self,
        sensors: tuple[str, ...] | None = None,
        *,
        cos_sin: tuple[str, ...] = (),
        differences: tuple[str, ...] = (),
        noise: float = 1.0,
    ):
        self.sensors = None if sensors is None else tuple(sensors)
        self.cos_sin, self.differences = tuple(cos_sin), tuple(differences)
        self.noise = np.asarray(noise, dtype=float)

    def names(self, system: System) -> tuple[str, ...]:
        told: list[str] = []
        chosen = [system.sensors[i] for i in self._chosen(system)]
        for sensor in chosen:
            parts = [sensor.name] if sensor.size == 1 else [f"{sensor.name}.{k}" for k in range(sensor.size)]
            told += [f"{f}({sensor.name})" for f in ("cos", "sin")] if sensor.name in self.cos_sin else parts
            told += [f"d {part}/dt" for part in parts] if sensor.name in self.differences else []
        for name in (*self.cos_sin, *self.differences):
            if name not in [sensor.name for sensor in chosen]:
                raise ValueError(f"the observation has no sensor '{name}': it has {', '.join(s.name for s in chosen)}")
        for sensor in chosen:
            turns = sensor.type == "joint_position" and system.axes[sensor.target].turns
            if sensor.name in self.cos_sin and not turns:
                raise ValueError(f"`cos_sin` is for encoders of joints that turn, and sensor '{sensor.name}' is none")
        if not told:
            raise ValueError("the observation has no sensor: name some, give the scene some, or observe `Coordinates`")
        return tuple(told)

    def look(self, sight: Sight, seen: Array | None) -> tuple[Float[Array, " numbers"], Array]:
        system = sight.moment.system
        chosen, values = self._chosen(system), []
        for i in chosen:
            values.append(_one(sight, i))
        clean = jnp.concatenate(values)
        channels = np.concatenate([_channels(system, i) for i in chosen])
        sd = sight.sd[channels] * jnp.asarray(self.noise, dtype=clean.dtype)
        now = clean + sd * jax.random.normal(sight.key, clean.shape, clean.dtype)
        speed = jnp.zeros_like(now) if seen is None else (now - seen) / sight.period
        told, at = [], 0
        for i in chosen:
            sensor, here = system.sensors[i], slice(at, at + system.sensors[i].size)
            told += [jnp.cos(now[here]), jnp.sin(now[here])] if sensor.name in self.cos_sin else [now[here]]
            told += [speed[here]] if sensor.name in self.differences else []
            at += sensor.size
        return jnp.concatenate(told), now

    def _chosen(self, system: System) -> list[int]:
        if self.sensors is None:
            return list(range(len(system.sensors)))
        return [sensor_index(system, name) for name in self.sensors]


def _channels(system: System, sensor: int) -> np.ndarray:
    """Where the readings of a sensor are among those of all."""
    begin = sum(other.size for other in system.sensors[:sensor])
    return np.arange(begin, begin + system.sensors[sensor].size)


def _one(sight: Sight, sensor: int) -> Float[Array, " size"]:
    """The reading of one sensor without noise: of the pair of states that its delay reaches back to."""
    moment, system = sight.moment, sight.moment.system
    params, one = moment.engine.params, jnp.ones((), sight.sd.dtype)
    offset = params.offset[sensor, : system.sensors[sensor].size]
    if not system.sensors[sensor].delayed:
        before, now = (jax.tree.map(lambda a, k=k: a[k], sight.past) for k in (1, 0))
        return readings(system, moment.engine, (sensor,), before, now, one) + offset
    # motion before the start is none: what is older than that is read there
    age = jnp.minimum(params.age[sensor], moment.time)
    held = jax.tree.leaves(sight.past)[0].shape[0]
    back = jnp.clip(jnp.floor(age / params.step + 1e-9), 0, held - 2).astype(int)
    before, now = (jax.tree.map(lambda a, k=k: a[back + k], sight.past) for k in (1, 0))
    engine = eqx.tree_at(lambda p: p.params.age, moment.engine, params.age.at[sensor].set(age))
    return readings(system, engine, (sensor,), before, now, one + back.astype(one.dtype)) + offset


def states_kept(system: System, ages: np.ndarray, step: float, drawn: bool) -> int:
    """How many states of the past the delays of sensors reach back to."""
    late = [ages[i] / step for i, sensor in enumerate(system.sensors) if sensor.delayed]
    return 2 + int(np.ceil((_MOST if drawn else 1.0) * max(late, default=0.0)))


class Coordinates(AbstractObservation):
    """Positions and rates of joint coordinates as they are.

    **Arguments:**

    - `positions`, `rates`: names, `joint` or `joint.axis`; all if left out.
    - `cos_sin`: those of the positions that are told as cosine and sine.
    """

    positions: tuple[str, ...] | None = eqx.field(static=True)
    rates: tuple[str, ...] | None = eqx.field(static=True)
    cos_sin: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        positions: tuple[str, ...] | None = None,
        rates: tuple[str, ...] | None = None,
        *,
        cos_sin: tuple[str, ...] = (),
    ):
        self.positions = None if positions is None else tuple(positions)
        self.rates = None if rates is None else tuple(rates)
        self.cos_sin = tuple(cos_sin)

    def names(self, system: System) -> tuple[str, ...]:
        positions, rates = self._chosen(system)
        told: list[str] = []
        for name in positions:
            axis_index(system, name)
            told += [f"cos({name})", f"sin({name})"] if name in self.cos_sin else [name]
        for name in self.cos_sin:
            if name not in positions:
                raise ValueError(f"`cos_sin` names '{name}', which is not among the positions: {', '.join(positions)}")
            if not system.axes[axis_index(system, name)].turns:
                raise ValueError(f"`cos_sin` is for coordinates that turn, and '{name}' slides")
        for name in rates:
            axis_index(system, name)
            told.append(f"d {name}/dt")
        if not told:
            raise ValueError("the observation is of nothing: name some positions or rates")
        return tuple(told)

    def look(self, sight: Sight, seen: Array | None) -> tuple[Float[Array, " numbers"], Array]:
        moment, told = sight.moment, []
        positions, rates = self._chosen(moment.system)
        for name in positions:
            q, _ = moment.joint(name)
            told += [jnp.cos(q), jnp.sin(q)] if name in self.cos_sin else [q]
        told += [moment.joint(name)[1] for name in rates]
        return jnp.stack(told), moment.position[:0]

    def _chosen(self, system: System) -> tuple[tuple[str, ...], tuple[str, ...]]:
        names = system.axis_names()
        return (names if self.positions is None else self.positions), (names if self.rates is None else self.rates)
