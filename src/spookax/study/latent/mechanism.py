"""What a study knows of the mechanism that rubs: a linear model for the estimator, a scene for the engine."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from spookax._compiled import seldom_called
from spookax._typing import Array, Float
from spookax.models import oscillator
from spookax.models.linear import LinearMechanism
from spookax.scene import Scene, SceneError
from spookax.scene.located import Located, validate
from spookax.scene.rules import scene_rules
from spookax.study.latent.base import smoothed
from spookax.study.latent.laws import SceneLaw
from spookax.study.latent.record import Record
from spookax.study.latent.switching_model import Setting

_UNITS = {"mass": "kg", "damping": "N s/m", "stiffness": "N/m"}
_SMALLEST = 1e-9  # of what is corrected, in its unit


class Mechanism(NamedTuple):
    """m z'' + c z' + k z + f = load."""

    mass: float | Array
    damping: float | Array
    stiffness: float | Array


class Rubbing(NamedTuple):
    """A contact whose friction is unknown: its name, its coordinate, and whether that is an angle."""

    name: str
    coordinate: int
    turns: bool = False

    @property
    def units(self) -> dict[str, str]:
        """Of what is found of it, by name."""
        place, force = ("rad", "N m") if self.turns else ("m", "N")
        return {"displacement": place, "velocity": f"{place}/s", "force": force}


class Reading(NamedTuple):
    """A number that is read: its name, what it is of which coordinate, its unit, and what it says at zero."""

    name: str
    kind: str  # "displacement", "velocity" or "acceleration"
    coordinate: int
    unit: str
    offset: float = 0.0


class AbstractKnown(abc.ABC):
    """A mechanism without the friction of its contacts.

    `point`: the coordinates at which its linear model has zeros.
    """

    contacts: tuple[Rubbing, ...]
    readings: tuple[Reading, ...]
    point: Float[np.ndarray, " q"]

    @abc.abstractmethod
    def linear(self) -> LinearMechanism:
        """The model that is estimated with: its states are coordinates and rates, its inputs those of `seen`."""

    @abc.abstractmethod
    def seen(self, record: Record) -> Record:
        """A recording as the linear model takes it."""

    @abc.abstractmethod
    def scene(self, name: str, laws: Sequence[SceneLaw], h: float, start: Float[np.ndarray, " n"]) -> Scene:
        """With a law at every contact.

        **Arguments:** `h`: longest step of the engine [s]; `start`: coordinates and rates.
        """

    @abc.abstractmethod
    def from_zeros(self, seen: Record, zeros: Sequence[float]) -> Record:
        """What is seen, with every base that moves read from a zero of its own on.

        **Arguments:** `zeros`: what each base reads where its spring is relaxed [m].
        """

    @abc.abstractmethod
    def loads(self, seen: Record) -> Float[np.ndarray, "k motors"]:
        """Inputs of that scene's motors at every sample."""

    @abc.abstractmethod
    def driven(self, record: Record) -> list[tuple[str, str]]:
        """Names and units of the columns of `loads`."""

    @property
    @abc.abstractmethod
    def numbers(self) -> dict[str, tuple[float, str]]:
        """What can be corrected, by name: value and unit."""

    @abc.abstractmethod
    def with_changes(self, change: Mapping[str, float]) -> "AbstractKnown":
        """With other numbers: the changes of some, by name."""

    def setting(self, components: int) -> Setting:
        """What is no number in the switching model."""
        reads = tuple((reading.kind, reading.coordinate) for reading in self.readings)
        return Setting(reads, tuple(contact.coordinate for contact in self.contacts), components)


class Oscillator(AbstractKnown):
    """A mass on a spring that is pushed, or whose base moves."""

    def __init__(self, m: Mechanism, sensor: str = "displacement", base: bool = False):
        self.m, self.base = Mechanism(*(float(a) for a in m)), base
        self.contacts, self.point = (Rubbing("mass", 0),), np.zeros(1)
        unit = {"displacement": "m", "velocity": "m/s", "acceleration": "m/s^2"}[sensor]
        self.readings = (Reading(sensor, sensor, 0, unit),)

    def linear(self) -> LinearMechanism:
        return _linear(*map(jnp.asarray, self.m), sensor=self.readings[0].kind, base=self.base)

    def seen(self, record: Record) -> Record:
        return smoothed(record) if self.base else record

    def scene(self, name: str, laws: Sequence[SceneLaw], h: float, start: Float[np.ndarray, " 2"]) -> Scene:
        """A body that slides along x, with a spring, viscous and set-valued dry friction, pushed by the motor `load`
        whose input is the force [N].
        """
        mass, [law] = float(self.m.mass), laws
        friction: dict[str, Any] = {"viscous": float(self.m.damping) + law.viscous, **law.dry()}
        side = (mass / 7800.0) ** (1 / 3)
        data = {
            "spookax": 1,
            "name": name,
            "step": h,
            "initial": {"slide": {"position": float(start[0]), "rate": float(start[1])}},
            "bodies": {
                "mass": {
                    "mass": mass,
                    "inertia": [mass * side**2 / 6.0] * 3,
                    "shapes": [{"type": "box", "size": [side, side, side], "colour": "#4477aa"}],
                }
            },
            "joints": {
                "slide": {
                    "type": "prismatic",
                    "child": "mass",
                    "axis": [1, 0, 0],
                    "spring": {"stiffness": float(self.m.stiffness)},
                    "friction": friction,
                }
            },
            "motors": {"load": {"type": "torque", "joint": "slide", "gain": 1.0}},
            "sensors": {"displacement": {"type": "joint_position", "joint": "slide", "sd": 1e-6}},
        }
        return validate(Located(f"scene '{name}'", data), Scene, SceneError, also=scene_rules)

    def from_zeros(self, seen: Record, zeros: Sequence[float]) -> Record:
        if not self.base:
            return seen
        [zero] = zeros
        return dataclasses.replace(seen, u=seen.u - np.array([zero, 0.0]))

    def loads(self, seen: Record) -> Float[np.ndarray, "k 1"]:
        """The force on the mass [N]; of a base k u + c u'."""
        if not self.base:
            return seen.u
        return (float(self.m.stiffness) * seen.u[:, 0] + float(self.m.damping) * seen.u[:, 1])[:, None]

    @property
    def numbers(self) -> dict[str, tuple[float, str]]:
        return {name: (float(getattr(self.m, name)), unit) for name, unit in _UNITS.items()}

    def with_changes(self, change: Mapping[str, float]) -> "Oscillator":
        moved = {name: max(getattr(self.m, name) + by, _SMALLEST) for name, by in change.items() if by}
        return Oscillator(self.m._replace(**moved), self.readings[0].kind, self.base)

    def driven(self, record: Record) -> list[tuple[str, str]]:
        del record
        return [("load", "N")]


@seldom_called
def _linear(mass: Array, damping: Array, stiffness: Array, sensor: str, base: bool) -> LinearMechanism:
    return oscillator(mass, damping, stiffness, [sensor], base)
