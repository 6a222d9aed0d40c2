"""A scene whose friction is unknown at some of its joints: linear about one point, without that friction.

The point is where the scene's `initial` puts it, at rest; what pulls there (a weight, a bent spring) is a constant
load. The linear model is that of accelerations under stiff joints, the limit of the step as h goes to zero; its steps
are exact for any length, under loads that are held. How far it is from the scene along what was found, `bend` tells.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spookax._compiled import compiled
from spookax._typing import Array, Float
from spookax.models import JointMotion, Multibody, ParameterMap, ProcessNoise
from spookax.models.linear import LinearMechanism
from spookax.protocol import ModelError
from spookax.scene import Scene, SceneError, read_scene
from spookax.scene.explain import Finding, nearest
from spookax.scene.located import Located, validate
from spookax.scene.parts import JointPosition, JointRate
from spookax.scene.rules import scene_rules
from spookax.study.file.against_scene import check_recordings
from spookax.study.file.read import StudyError
from spookax.study.latent.laws import SceneLaw
from spookax.study.latent.mechanism import AbstractKnown, Mechanism, Oscillator, Reading, Rubbing
from spookax.study.latent.record import Record
from spookax.study.latent.section import LatentStudy
from spookax.system import build

_DRY = ("coulomb", "backward", "stribeck", "bearing", "learned", "elements")  # parts of friction that are unknown


class OfScene(AbstractKnown):
    """Some joints of a scene.

    **Raises:** `ModelError` where the scene has no accelerations that are a function of its state: other dry friction,
    stops, contacts, closed loops, ball joints, bodies that no joint holds, motors with a delay.
    """

    def __init__(self, scene: Scene, joints: Sequence[str], sensors: Sequence[str], inputs: Sequence[str]):
        self.given, self.inputs = scene, tuple(inputs)
        free = scene.free_axes()
        bare = _with_friction(scene, {joint: _smooth(scene, joint) for joint in joints})
        system, params = build(bare)
        self.motors = tuple(motor.name for motor in system.motors)
        none, seen = ParameterMap(system, ()), tuple(map(system.sensor_index, sensors))
        self._motion = JointMotion(Multibody(system, params, none, none, ProcessNoise("joints", 1.0), seen))
        self.names = system.axis_names()
        self.contacts = tuple(Rubbing(j, self.names.index(j), free[j].rotational) for j in joints)
        self.readings = tuple(_reading(scene, name, self.names) for name in sensors)
        self.point = np.array([_initial(scene, name) for name in self.names])
        self._shared = tuple(self.motors.index(name) for name in inputs)

    def linear(self) -> LinearMechanism:
        q = len(self.point)
        x = jnp.asarray(np.concatenate([self.point, np.zeros(q)]))
        F, B, E, f, C = _derivatives(self._motion, x)
        B = jnp.concatenate([B[:, jnp.array(self._shared, dtype=int)], f[:, None]], axis=1)
        at = np.array([contact.coordinate for contact in self.contacts])
        D, L = (jnp.zeros((len(self.readings), size)) for size in (B.shape[1], len(at)))
        return LinearMechanism(F, B, -E[:, at], C, D, L, jnp.eye(2 * q)[q + at])

    def seen(self, record: Record) -> Record:
        """Readings from those at the point on, and a constant load beside the others."""
        zero = [r.offset + (self.point[r.coordinate] if r.kind == "displacement" else 0.0) for r in self.readings]
        u = np.column_stack([record.u, np.ones(len(record.u))])
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

    def loads(self, seen: Record, offset: float) -> Float[np.ndarray, "k motors"]:
        del offset
        found = np.zeros((len(seen.u), len(self.motors)))
        found[:, list(self._shared)] = seen.u[:, : len(self._shared)]
        return found

    def driven(self, record: Record) -> list[tuple[str, str]]:
        """Those of motors that no recording drives are zero."""
        units = dict(record.inputs)
        return [(motor, units.get(motor, "1")) for motor in self.motors]

    def bend(self, x: Float[np.ndarray, "k n"], seen: Record) -> Float[np.ndarray, " contacts"]:
        """By how much the linear model is off along a motion, as the force at every contact that would make up for it:
        rms [N or N m].

        **Arguments:** `x`: coordinates and rates, from the point on, and forces.
        """
        m, q = self.linear(), len(self.point)
        push = np.zeros((len(x), q))
        push[:, [contact.coordinate for contact in self.contacts]] = -x[:, 2 * q :]
        whole = x[:, : 2 * q] + np.append(self.point, np.zeros(q))
        true = np.asarray(_rates(self._motion, *map(jnp.asarray, (whole, self.loads(seen, 0.0), push))))
        s, F, B, E = (np.asarray(a) for a in (m.slip, m.F, m.B, m.E))
        linear = x[:, : 2 * q] @ F.T + seen.u @ B.T + x[:, 2 * q :] @ E.T
        mass = -1.0 / np.diag(s @ E)
        return mass * np.sqrt(np.mean(((true - linear) @ s.T) ** 2, axis=0))


def known_of(study: LatentStudy) -> AbstractKnown:
    """The mechanism of a study.

    **Raises:** `SceneError` for a scene that cannot be read; `StudyError` with all that does not fit it.
    """
    if study.scene is None:
        own, [sensor] = study.latent, study.recordings[0].sensors
        assert own.mass is not None and own.damping is not None and own.stiffness is not None  # noqa: PT018
        return Oscillator(Mechanism(own.mass, own.damping, own.stiffness), sensor, study.base)
    scene = read_scene(study.folder / study.scene)
    check_recordings(study, scene)
    if found := list(_misfits(study, scene)):
        raise StudyError([study.located.problem(finding) for finding in found])
    first = study.recordings[0]
    try:
        return OfScene(scene, study.latent.joints, list(first.sensors), list(first.inputs))
    except ModelError as error:
        message, _, cure = str(error).partition(". ")
        cure = cure or "Take it out of the scene."
        raise StudyError([study.located.problem(Finding(("scene",), study.scene, message, cure))]) from None


def _misfits(study: LatentStudy, scene: Scene) -> Iterator[Finding]:
    free = scene.free_axes()
    for i, joint in enumerate(study.latent.joints):
        if joint not in free:
            yield Finding(("latent", "joints", i), joint, f"the scene has no joint '{joint}'", nearest(joint, free))
    read = set()
    for name in study.recordings[0].sensors:
        sensor, loc = scene.sensors[name], ("recordings", 0, "sensors", name)
        if not isinstance(sensor, JointPosition | JointRate):
            yield Finding(loc, None, f"'{name}' reads no coordinate of a joint", "Name joint_position or joint_rate.")
            continue
        if sensor.delay or (isinstance(sensor, JointPosition) and sensor.cyclic_error):
            yield Finding(loc, None, f"'{name}' has a delay or a cyclic error", "Take them out of the scene.")
        if isinstance(sensor, JointPosition):
            read.add(sensor.joint)
    if unread := [name for name in free if name not in read]:
        message = f"no sensor reads the position of {', '.join(unread)}"
        cure = "Add a joint_position to the scene and its column to the recordings, or lock the joint (`fixed`)."
        yield Finding(("recordings", 0, "sensors"), None, message, cure)


def _reading(scene: Scene, name: str, axes: Sequence[str]) -> Reading:
    sensor = scene.sensors[name]
    assert isinstance(sensor, JointPosition | JointRate)
    unit = "rad" if scene.free_axes()[sensor.joint].rotational else "m"
    place = axes.index(sensor.joint)
    if isinstance(sensor, JointPosition):
        return Reading(name, "displacement", place, unit, sensor.offset)
    return Reading(name, "velocity", place, f"{unit}/s")


def _initial(scene: Scene, axis: str) -> float:
    """Position of an axis at the start."""
    return float(scene.initial[axis].position) if axis in scene.initial else 0.0  # pyright: ignore[reportArgumentType]


def _smooth(scene: Scene, axis: str) -> dict[str, Any]:
    """Friction of an axis without its dry part."""
    joint, _, name = axis.partition(".")
    own = scene.joints[joint].along(name).friction.model_dump(exclude_none=True)
    return {key: value for key, value in own.items() if key not in _DRY}


def _with_friction(scene: Scene, friction: dict[str, dict[str, Any]], **others: Any) -> Scene:
    data = scene.plain() | others
    for axis, own in friction.items():
        joint, _, name = axis.partition(".")
        place = data["joints"][joint]
        (place["axes"][name] if name else place)["friction"] = own
    return validate(Located(f"scene '{scene.name}'", data), Scene, SceneError, also=scene_rules)


@compiled
def _derivatives(motion: JointMotion, x: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Of the drift by state, inputs and forces on the axes; the drift itself; of the readings."""
    p, u = motion.prepare(jnp.zeros(0)), jnp.zeros(motion.inputs)
    F, B = jax.jacfwd(lambda x, u: motion.drift(x, p, u), (0, 1))(x, u)
    return F, B, motion.spread(x, p), motion.drift(x, p, u), jax.jacfwd(lambda x: motion.read(x, p))(x)


@compiled
def _rates(motion: JointMotion, x: Array, u: Array, push: Array) -> Array:
    p = motion.prepare(jnp.zeros(0))
    return jax.vmap(lambda x, u, push: motion.rate(x, p, u, push))(x, u, push)
