"""Laws of friction that a study may try on its joints, each as a scene and the unknowns that go with it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...math import rotation
from ...scene import Scene
from ...scene.explain import Finding, nearest
from ...scene.expression import Expression
from ...scene.friction import Friction, Resistance, Stribeck
from ...scene.joint_types import FreeAxis
from ...scene.parts import Along, Body, Joint
from ..file.key_rules import default_transform
from ..file.read import StudyError
from ..file.study import ParameterSpec, Study

LAWS: dict[str, tuple[str, ...]] = {
    "none": (),
    "viscous": ("viscous",),
    "Coulomb": ("coulomb",),
    "Coulomb + viscous": ("coulomb", "viscous"),
    "asymmetric": ("coulomb", "backward", "viscous"),
    "Stribeck": ("coulomb", "stribeck.excess", "stribeck.speed", "viscous"),
    "bearing": ("bearing", "viscous"),
    "drag": ("coulomb", "viscous", "drag"),
    "air": ("coulomb", "air.viscous", "air.drag"),
}
"""Law -> the numbers of `friction` that it has, simple ones first; those of `air` are of the joint's child."""


_WEIGHT = 9.81  # where a scene has no gravity [m/s^2]


@dataclass(frozen=True)
class Place:
    """An axis whose friction is tried: `path` of its friction in the scene, the axis, its joint's name.

    `child`: the body that moves along it; `reach`: speed of its centre of mass per rate [m or 1], 0 where it turns
    about itself; `on_world`: whether no other joint moves it.
    """

    path: str
    joint: str
    axis: FreeAxis
    child: str
    reach: float
    on_world: bool

    @property
    def index(self) -> str:
        """The axis as scenes and studies name it under `joint`."""
        return self.axis.path(self.joint)


def places(study: Study, scene: Scene, joints: tuple[str, ...] = ()) -> list[Place]:
    """The axes of the joints that are named; without names those whose friction is unknown in the study, and where
    there are none all.

    **Raises:** `StudyError` for a name that the scene lacks, and where a tie holds friction of one of them.
    """
    known = list(_places(scene))
    names = list(dict.fromkeys(name for place in known for name in (place.joint, place.index)))
    for name in joints:
        if name not in names:
            message = f"the scene has no joint '{name}' with friction"
            raise StudyError([study.located.problem(Finding((), name, message, nearest(name, names)))])
    unknown = [place for place in known if any(path.startswith(f"{place.path}.") for path in study.parameters)]
    chosen = [place for place in known if place.joint in joints or place.index in joints] if joints else unknown
    chosen = chosen or known
    for place in chosen:
        for path, text in study.ties.items():
            named = next((p for p in (path, *Expression(text).paths) if p.startswith(f"{place.path}.")), None)
            if named:
                message = f"holds {named}, and with another law there is no such unknown"
                cure = "Delete the tie, or choose other joints with --joint."
                raise StudyError([study.located.problem(Finding(("ties", path), text, message, cure))])
    return chosen


def _places(scene: Scene) -> Iterator[Place]:
    for name, joint in scene.joints.items():
        for axis in joint.kind.axes[:1] if joint.kind.isotropic else joint.kind.axes:
            apart = axis.name and not joint.kind.isotropic
            place = f"joints.{name}.axes.{axis.name}" if apart else f"joints.{name}"
            yield Place(
                f"{place}.friction", name, axis, joint.child, _reach(scene, joint, axis), joint.parent == "world"
            )


def suits(law: str, places: Sequence[Place]) -> bool:
    """Whether some axes can have a law, and would move otherwise than under a simpler one: against air that is at rest
    a joint of the world moves as against `drag` of its own."""
    return all(_fits(law, place) for place in places) and (law != "air" or any(not p.on_world for p in places))


def _fits(law: str, place: Place) -> bool:
    """Whether an axis can have a law: a direction has no backward, and not every joint presses across its axis."""
    keys = LAWS[law]
    return not ("backward" in keys and place.axis.kind == "spin") and not ("bearing" in keys and not place.axis.bearing)


def variant(
    study: Study, scene: Scene, law: str, chosen: list[Place], rates: Mapping[str, float], duration: float
) -> tuple[Scene, dict[str, ParameterSpec]]:
    """The scene with a law on some axes, its numbers being the starts, and the unknowns of the study with those of the
    law in place of what it has of their friction.

    What the study or the scene says of a number of the law is kept; other starts follow from that (`starts`).

    **Arguments:** `rates`: usual rate of every axis [rad/s or m/s]; `duration`: of a recording [s].
    """
    unknown = {
        path: spec
        for path, spec in study.parameters.items()
        if not any(path.startswith(f"{place.path}.") for place in chosen)
    }
    joints, bodies = dict(scene.joints), dict(scene.bodies)
    for place in chosen:
        joint = joints[place.joint]
        own = place.axis.name if not joint.kind.isotropic else ""
        begin = starts(study, scene, place, rates[place.index], duration)
        keys = LAWS["drag" if law == "air" and place.on_world else law]
        given: dict[str, Any] = {key: begin[key] for key in keys if "." not in key}
        speed = begin["stribeck.speed"] if "stribeck.speed" in keys else Stribeck().speed
        exponent = joint.along(own).friction.stribeck.exponent
        excess = begin["stribeck.excess"] if "stribeck.excess" in keys else 0.0
        friction = Friction(**given, stribeck=Stribeck(excess=excess, speed=speed, exponent=exponent))
        joints[place.joint] = _with_friction(joint, own, friction)
        if "air.drag" in keys:
            bodies[place.child] = _with_air(bodies[place.child], place, begin)
        for path in (_path(place, key) for key in keys):
            spec = study.parameters.get(path) or ParameterSpec(transform=default_transform(path))
            unknown[path] = spec.model_copy(update={"start": None})
    return scene.model_copy(update={"joints": joints, "bodies": bodies}), unknown


def _path(place: Place, key: str) -> str:
    """Of a number of a law: in the joint; of air in its child, of whose centre of mass if the axis moves that."""
    if not key.startswith("air."):
        return f"{place.path}.{key}"
    return f"bodies.{place.child}.{key if place.reach else key.replace('air.', 'air.turning.')}"


def _with_air(body: Body, place: Place, begin: Mapping[str, float]) -> Body:
    new = {"viscous": begin["air.viscous"], "drag": begin["air.drag"]}
    air = body.air
    if not place.reach:
        return body.model_copy(update={"air": air.model_copy(update={"turning": Resistance(**new)})})
    return body.model_copy(update={"air": air.model_copy(update=new)})


def _with_friction(joint: Joint, axis: str, friction: Friction) -> Joint:
    if not axis:
        return joint.model_copy(update={"friction": friction})
    along: Along = joint.axes[axis].model_copy(update={"friction": friction})
    return joint.model_copy(update={"axes": {**joint.axes, axis: along}})


def starts(study: Study, scene: Scene, place: Place, rate: float, duration: float) -> dict[str, float]:
    """Where the numbers of the laws start: at what study or scene say of them, where that is not zero.

    The others follow from the friction that these make at the usual rate; where there is none at all, from the friction
    that would bring the child of the joint to rest in the course of a recording. Drag and what friction has more near
    rest start at a quarter of it. For the bearing all bodies of the scene rest on the joint.
    """
    joint = scene.joints[place.joint]
    friction = joint.along(place.axis.name if not joint.kind.isotropic else "").friction
    air = scene.bodies[place.child].air
    resistance, reach = (air, place.reach) if place.reach else (air.turning, 1.0)
    said = {
        "air.viscous": resistance.viscous,
        "air.drag": resistance.drag,
        "viscous": friction.viscous,
        "coulomb": friction.coulomb,
        "backward": friction.backward,
        "drag": friction.drag,
        "bearing": friction.bearing,
        "stribeck.excess": friction.stribeck.excess,
        "stribeck.speed": friction.stribeck.speed if friction.stribeck.excess else 0.0,
    }
    for key in said:
        spec = study.parameters.get(_path(place, key))
        if spec is not None and spec.start is not None:
            said[key] = spec.start
    weight = sum(body.mass for body in scene.bodies.values()) * (float(np.linalg.norm(scene.gravity)) or _WEIGHT)
    level = said["coulomb"] + said["bearing"] * weight
    level += (said["viscous"] + said["air.viscous"] * reach**2) * rate
    level += (said["drag"] + said["air.drag"] * reach**3) * rate**2
    level = level or _inertia(scene, joint, place.axis) * rate / duration
    guesses = {
        "viscous": level / rate,
        "coulomb": level,
        "backward": 1.0,
        "drag": level / (4 * rate**2),
        "air.viscous": level / (rate * reach**2),
        "air.drag": level / (4 * rate**2 * reach**3),
        "bearing": level / weight,
        "stribeck.excess": level / 4,
        "stribeck.speed": rate / 4,
    }
    return {key: said[key] if said[key] > 0 else float(f"{guesses[key]:.3g}") for key in said}


def _reach(scene: Scene, joint: Joint, axis: FreeAxis) -> float:
    """Speed of the child's centre of mass per rate [m or 1]; 0 if that is less than a hundredth of its radius of
    gyration. Where a joint has several turns it is the distance from their point."""
    if not axis.rotational:
        return 1.0
    body = scene.bodies[joint.child]
    lever = np.subtract(body.com, joint.child_at)
    if sum(other.rotational for other in joint.kind.axes) == 1:
        back = rotation.matrix(rotation.exp(-jnp.asarray(joint.rotation, dtype=float)))
        along = np.asarray(back) @ np.asarray(joint.axis, dtype=float)
        lever = np.cross(lever, along / np.linalg.norm(along))
    gyration = np.sqrt((body.inertia.xx + body.inertia.yy + body.inertia.zz) / 2 / body.mass)
    return float(np.linalg.norm(lever)) if np.linalg.norm(lever) > 0.01 * gyration else 0.0


def _inertia(scene: Scene, joint: Joint, axis: FreeAxis) -> float:
    """Of the child alone about a joint, in size [kg m^2 or kg]."""
    body = scene.bodies[joint.child]
    if not axis.rotational:
        return body.mass
    lever = np.subtract(body.com, joint.child_at)
    about = (body.inertia.xx + body.inertia.yy + body.inertia.zz) / 3
    return about + body.mass * float(lever @ lever)
