"""What a task sees of a mechanism at one time."""

import equinox as eqx

from .._typing import Array, Float, Scalar
from ..constraints import Prepared
from ..math import rotation
from ..math.product import matvec
from ..scene.explain import nearest
from ..sensors import between
from ..system import State, System


class Moment(eqx.Module):
    """A mechanism at the end of a control period. Rates are what is known then (`spookax.sensors`)."""

    system: System = eqx.field(static=True)
    engine: Prepared
    state: State
    time: Scalar  # since the start of the episode [s]
    position: Float[Array, " axes"]  # unwrapped joint coordinates [rad or m]
    rate: Float[Array, " axes"]  # [rad/s or m/s]
    memory: Float[Array, " memory"]  # what the task drew at the start

    @classmethod
    def of(cls, system: System, engine: Prepared, before: State, now: State, time: Array, memory: Array) -> "Moment":
        """From the states of the last two steps."""
        _, position, rate = between(system, engine, before, now, 1.0)
        none = now.near
        return cls(
            system,
            engine,
            now,
            time,
            none if position is None else position,
            none if rate is None else rate,
            memory,
        )

    def joint(self, name: str) -> tuple[Scalar, Scalar]:
        """Position and rate of one coordinate, `joint` or `joint.axis` [rad, rad/s or m, m/s].

        **Raises:** `ValueError` for a name that the scene does not have.
        """
        i = axis_index(self.system, name)
        return self.position[i], self.rate[i]

    def point(self, body: str, at: Array) -> Float[Array, " 3"]:
        """World position of a point given in the axes of a body's frame [m].

        **Raises:** `ValueError` for a body that the scene does not have.
        """
        i = body_index(self.system, body)
        return self.state.r[i] + matvec(rotation.matrix(self.state.e[i]), at - self.engine.params.com[i])

    def up(self, body: str) -> Scalar:
        """Cosine of the angle between a body's own z axis and that of the world.

        **Raises:** `ValueError` for a body that the scene does not have.
        """
        return rotation.matrix(self.state.e[body_index(self.system, body)])[2, 2]

    def velocity(self, body: str) -> Float[Array, " 3"]:
        """Of a body's centre of mass in the world [m/s], the mean over the last step.

        **Raises:** `ValueError` for a body that the scene does not have.
        """
        return self.state.v[body_index(self.system, body)]


def axis_index(system: System, name: str) -> int:
    """Number of a joint coordinate. **Raises:** `ValueError` with the nearest known names."""
    return _index(system.axis_names(), name, "joint coordinate")


def body_index(system: System, name: str) -> int:
    """Number of a body. **Raises:** `ValueError` with the nearest known names."""
    return _index(system.bodies, name, "body")


def sensor_index(system: System, name: str) -> int:
    """Number of a sensor. **Raises:** `ValueError` with the nearest known names."""
    return _index(tuple(sensor.name for sensor in system.sensors), name, "sensor")


def motor_index(system: System, name: str) -> int:
    """Number of a motor. **Raises:** `ValueError` with the nearest known names."""
    return _index(tuple(motor.name for motor in system.motors), name, "motor")


def _index(names: tuple[str, ...], name: str, what: str) -> int:
    if name not in names:
        raise ValueError(f"the scene has no {what} '{name}'. {nearest(name, names)}")
    return names.index(name)
