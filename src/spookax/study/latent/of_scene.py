"""A scene whose friction is unknown at some of its joints: linear about one point, without that friction.

The point is where the scene's `initial` puts it, at rest; what pulls there (a weight, a bent spring) is a constant
load. The linear model is that of accelerations under stiff joints, the limit of the step as h goes to zero; its steps
are exact for any length, under loads that are held. How far it is from the scene along what was found, `bend` tells.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spookax._compiled import compiled
from spookax._typing import Array, Float
from spookax.models import Free, JointMotion, Multibody, ParameterMap, ProcessNoise
from spookax.models.linear import LinearMechanism
from spookax.scene import Scene, SceneError
from spookax.scene.located import Located, validate
from spookax.scene.parts import JointPosition, JointRate, PositionMotor
from spookax.scene.paths import numeric_paths, unit_of, with_numbers
from spookax.scene.rules import scene_rules
from spookax.study.file.bodies import make_way
from spookax.study.latent.base import base_motion
from spookax.study.latent.laws import SceneLaw
from spookax.study.latent.mechanism import AbstractKnown, Reading, Rubbing
from spookax.study.latent.record import Record
from spookax.system import build

DRY = "coulomb", "backward", "stribeck", "bearing", "learned", "elements"
"""Parts of friction that are unknown."""


class Base(NamedTuple):
    """A motor that stands for a spring and a damper to a base."""

    name: str
    motor: int  # its number
    stiffness: float
    damping: float

    @property
    def lag(self) -> float:
        """By how much its command goes ahead of the base, so that k u + c u' is in place of k u [s]."""
        return self.damping / self.stiffness


class OfScene(AbstractKnown):
    """Some joints of a scene.

    **Arguments:** `bases`: of the inputs those that are the displacement of a base: motors that hold a position, whose
    spring and damper stand on that base. `guesses`: paths of numbers of the scene that may be wrong.

    **Raises:** `ModelError` where the scene has no accelerations that are a function of its state: other dry friction,
    stops, contacts, closed loops, ball joints, bodies that no joint holds, motors with a delay.
    """

    def __init__(
        self,
        scene: Scene,
        joints: Sequence[str],
        sensors: Sequence[str],
        inputs: Sequence[str],
        bases: Sequence[str] = (),
        guesses: Sequence[str] = (),
    ):
        self.given, self.inputs, self.guesses = scene, tuple(inputs), tuple(guesses)
        free = scene.free_axes()
        bare = _with_friction(scene, {joint: _smooth(scene, joint) for joint in joints})
        system, params = build(bare, unknown=frozenset(guesses))
        self.motors = tuple(motor.name for motor in system.motors)
        values, seen = numeric_paths(bare), tuple(map(system.sensor_index, sensors))
        shared = ParameterMap(system, tuple(Free(path, values[path], transform="identity") for path in guesses))
        own, noise = ParameterMap(system, ()), ProcessNoise("joints", 1.0)
        self.motion = JointMotion(Multibody(system, params, shared, own, noise, seen))
        self.names = system.axis_names()
        self.contacts = tuple(Rubbing(j, self.names.index(j), free[j].rotational) for j in joints)
        self.readings = tuple(_reading(scene, name, self.names) for name in sensors)
        self.point = np.array([_initial(scene, name) for name in self.names])
        self._shared = tuple(self.motors.index(name) for name in inputs)
        self.bases = tuple(_base(scene, name, self.motors) for name in bases)

    def linear(self) -> LinearMechanism:
        q = len(self.point)
        x = jnp.asarray(np.concatenate([self.point, np.zeros(q)]))
        F, B, E, f, C = _derivatives(self.motion, jnp.asarray(self.motion.of.shared.start()), x)
        bases = [base.lag * B[:, base.motor] for base in self.bases]
        B = jnp.column_stack([B[:, jnp.array(self._shared, dtype=int)], *bases, f])
        at = np.array([contact.coordinate for contact in self.contacts])
        D, L = (jnp.zeros((len(self.readings), size)) for size in (B.shape[1], len(at)))
        return LinearMechanism(F, B, -E[:, at], C, D, L, jnp.eye(2 * q)[q + at], jnp.zeros((2 * q, 0)), q)

    def seen(self, record: Record) -> Record:
        """Readings from those at the point on; beside the loads, and bases as smoothed, the rates of these and a
        constant load.
        """
        zero = [r.offset + (self.point[r.coordinate] if r.kind == "displacement" else 0.0) for r in self.readings]
        u, rates = record.u.copy(), []
        for base in self.bases:
            i = self.inputs.index(base.name)
            u[:, i], rate = base_motion(record.u[:, i], record).u.T
            rates.append(rate)
        u = np.column_stack([u, *rates, np.ones(len(u))])
        return dataclasses.replace(record, y=record.y - np.array(zero), u=u)

    def scene(self, name: str, laws: Sequence[SceneLaw], h: float, start: Float[np.ndarray, " n"]) -> Scene:
        """That of the study; its step where that is short enough."""
        del name
        friction = {}
        for contact, law in zip(self.contacts, laws, strict=True):
            smooth = _smooth(self.given, contact.name)
            friction[contact.name] = smooth | {"viscous": smooth["viscous"] + law.viscous} | law.dry()
        q = len(self.names)
        initial = {
            axis: {"position": float(z), "rate": float(v)}
            for axis, z, v in zip(self.names, start[:q], start[q:], strict=True)
        }
        return _with_friction(self.given, friction, step=min(self.given.step, h), initial=initial)

    def from_zeros(self, seen: Record, zeros: Sequence[float]) -> Record:
        u = seen.u.copy()
        for base, zero in zip(self.bases, zeros, strict=True):
            u[:, self.inputs.index(base.name)] -= zero
        return dataclasses.replace(seen, u=u)

    def loads(self, seen: Record) -> Float[np.ndarray, "k motors"]:
        """Of a base k u + c u' in place of k u: its command goes ahead by c / k."""
        found = np.zeros((len(seen.u), len(self.motors)))
        found[:, list(self._shared)] = seen.u[:, : len(self._shared)]
        for base, rate in zip(self.bases, self.rates_of_bases(seen), strict=True):
            found[:, base.motor] += base.lag * rate
        return found

    def rates_of_bases(self, seen: Record) -> Float[np.ndarray, "bases k"]:
        """[m/s or rad/s]"""
        count = len(self._shared)
        return seen.u[:, count : count + len(self.bases)].T

    def driven(self, record: Record) -> list[tuple[str, str]]:
        """Those of motors that no recording drives are zero."""
        units = dict(record.inputs)
        return [(motor, units.get(motor, "1")) for motor in self.motors]

    def along(self, x: Float[np.ndarray, "k n"], seen: Record) -> tuple[Array, Array, Array]:
        """States, commands of motors and forces on the axes of a motion.

        **Arguments:** `x`: coordinates and rates, from the point on, and forces.
        """
        q = len(self.point)
        push = np.zeros((len(x), q))
        push[:, [contact.coordinate for contact in self.contacts]] = -x[:, 2 * q :]
        whole = x[:, : 2 * q] + np.append(self.point, np.zeros(q))
        return jnp.asarray(whole), jnp.asarray(self.loads(seen)), jnp.asarray(push)

    @property
    def numbers(self) -> dict[str, tuple[float, str]]:
        values = numeric_paths(self.given)
        return {path: (values[path], unit_of(self.given, path)) for path in self.guesses}

    def with_changes(self, change: Mapping[str, float]) -> "OfScene":
        """**Raises:** `SceneError` where no body has such numbers."""
        numbers = {path: value + change.get(path, 0.0) for path, (value, _) in self.numbers.items()}
        scene = with_numbers(self.given, numbers | make_way(self.given, numbers))
        sensors, bases = ([part.name for part in parts] for parts in (self.readings, self.bases))
        return OfScene(scene, [c.name for c in self.contacts], sensors, self.inputs, bases, self.guesses)

    def bend(self, x: Float[np.ndarray, "k n"], seen: Record) -> Float[np.ndarray, " contacts"]:
        """By how much the linear model is off along a motion, as the force at every contact that would make up for it:
        rms [N or N m].

        **Arguments:** `x`: coordinates and rates, from the point on, and forces.
        """
        m, q = self.linear(), len(self.point)
        true = np.asarray(rates(self.motion, jnp.asarray(self.motion.of.shared.start()), *self.along(x, seen)))
        s, F, B, E = (np.asarray(a) for a in (m.slip, m.F, m.B, m.E))
        linear = x[:, : 2 * q] @ F.T + seen.u @ B.T + x[:, 2 * q :] @ E.T
        mass = -1.0 / np.diag(s @ E)
        return mass * np.sqrt(np.mean(((true - linear) @ s.T) ** 2, axis=0))


def _reading(scene: Scene, name: str, axes: Sequence[str]) -> Reading:
    sensor = scene.sensors[name]
    assert isinstance(sensor, JointPosition | JointRate)
    unit = "rad" if scene.free_axes()[sensor.joint].rotational else "m"
    place = axes.index(sensor.joint)
    if isinstance(sensor, JointPosition):
        return Reading(name, "displacement", place, unit, sensor.offset)
    return Reading(name, "velocity", place, f"{unit}/s")


def _base(scene: Scene, name: str, motors: Sequence[str]) -> Base:
    motor = scene.motors[name]
    assert isinstance(motor, PositionMotor)
    return Base(name, motors.index(name), float(motor.stiffness), float(motor.damping))


def _initial(scene: Scene, axis: str) -> float:
    """Position of an axis at the start."""
    return float(scene.initial[axis].position) if axis in scene.initial else 0.0  # pyright: ignore[reportArgumentType]


def _smooth(scene: Scene, axis: str) -> dict[str, Any]:
    """Friction of an axis without its dry part."""
    joint, _, name = axis.partition(".")
    own = scene.joints[joint].along(name).friction.model_dump(exclude_none=True)
    return {key: value for key, value in own.items() if key not in DRY}


def _with_friction(scene: Scene, friction: dict[str, dict[str, Any]], **others: Any) -> Scene:
    data = scene.plain() | others
    for axis, own in friction.items():
        joint, _, name = axis.partition(".")
        place = data["joints"][joint]
        (place["axes"][name] if name else place)["friction"] = own
    return validate(Located(f"scene '{scene.name}'", data), Scene, SceneError, also=scene_rules)


@compiled
def _derivatives(motion: JointMotion, z: Array, x: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Of the drift by state, inputs and forces on the axes; the drift itself; of the readings."""
    p, u = motion.prepare(z), jnp.zeros(motion.inputs)
    F, B = jax.jacfwd(lambda x, u: motion.drift(x, p, u), (0, 1))(x, u)
    return F, B, motion.spread(x, p), motion.drift(x, p, u), jax.jacfwd(lambda x: motion.read(x, p))(x)


@compiled
def rates(motion: JointMotion, z: Array, x: Array, u: Array, push: Array) -> Array:
    """Drift along a motion, with further forces on the axes."""
    p = motion.prepare(z)
    return jax.vmap(lambda x, u, push: motion.rate(x, p, u, push))(x, u, push)
