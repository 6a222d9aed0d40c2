"""Every physical number of a scene under the path that the file, studies and estimates call it by.

`bodies.arm.mass`, `bodies.arm.inertia.zz`, `joints.elbow.friction.viscous`, `tilt.x`. Vectors have components
x, y and z. Not among them: the time step and the regularisation (numerical), axes and rotations of joints,
points and noise levels of sensors, shapes, and initial states.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spookax.scene.explain import Loc
from spookax.scene.files import SceneError
from spookax.scene.friction import Friction
from spookax.scene.inertia import COMPONENTS
from spookax.scene.located import Located, validate
from spookax.scene.model import Scene
from spookax.scene.parts import ContactForce, Harmonic, JointPosition


class UnknownPathError(LookupError):
    """A path that no number of the scene has; the message names the nearest that exist."""


@dataclass(frozen=True)
class _Quantity:
    loc: Loc  # keys and indices that lead to the number
    unit: str


def numeric_paths(scene: Scene) -> dict[str, float]:
    """The value under every path, in the order of the file."""
    data = scene.model_dump()
    return {path: _at(data, quantity.loc) for path, quantity in _quantities(scene)}


def wholes(scene: Scene) -> dict[str, tuple[float, ...]]:
    """What can be unknown as a whole, the inertia of a body and the weights of learned friction, with its numbers."""
    found: dict[str, list[float]] = {}
    for path, value in numeric_paths(scene).items():
        whole = path.rpartition(".")[0]
        if whole.endswith((".inertia", ".learned.weights")):
            found.setdefault(whole, []).append(value)
    return {path: tuple(values) for path, values in found.items()}


def network_of(path: str) -> str | None:
    """The path of all weights of a network, for that of one of them; None for any other number."""
    whole, _, number = path.rpartition(".")
    return whole if whole.endswith(".learned.weights") and number.isdigit() else None


def _contacts(scene: Scene) -> Iterator[tuple[str, _Quantity]]:
    if scene.contacts is None:
        return
    for name in scene.contacts.materials:
        units = {"friction": "1", "restitution": "1", "spinning_friction": "m", "rolling_friction": "m"}
        for key, unit in units.items():
            yield f"contacts.materials.{name}.{key}", _Quantity(("contacts", "materials", name, key), unit)
    for name, surface in scene.contacts.surfaces.items():
        place, loc = f"contacts.surfaces.{name}", ("contacts", "surfaces", name)
        yield from _vector(f"{place}.at", (*loc, "at"), "m")
        if surface.type == "box":
            yield from _vector(f"{place}.size", (*loc, "size"), "m")
        for key in ("radius", "length"):
            if hasattr(surface, key):
                yield f"{place}.{key}", _Quantity((*loc, key), "m")


def get_number(scene: Scene, path: str) -> float:
    """The number under a path.

    **Raises:** `UnknownPathError`.
    """
    return _at(scene.model_dump(), _find(scene, path).loc)


def unit_of(scene: Scene, path: str) -> str:
    """The SI unit of the number under a path; "1" for a pure number.

    It depends on the kind of axis. The gain of a torque motor is per unit of its input u, `N m/u`.

    **Raises:** `UnknownPathError`.
    """
    return _find(scene, path).unit


def with_numbers(scene: Scene, numbers: Mapping[str, float]) -> Scene:
    """A copy of the scene with other numbers under some paths, checked like a file.

    **Raises:** `UnknownPathError`; `SceneError` if the new numbers are not physical.
    """
    data = scene.plain()
    for path, value in numbers.items():
        data = _put(data, _find(scene, path).loc, float(value))
    return validate(Located(scene.name, data), Scene, SceneError)


def _quantities(scene: Scene) -> Iterator[tuple[str, _Quantity]]:
    yield from _vector("gravity", ("gravity",), "m/s^2")
    for index, component in enumerate("xy"):
        yield f"tilt.{component}", _Quantity(("tilt", index), "rad")
    for name in scene.bodies:
        yield from _scalars("bodies", name, {"mass": "kg"})
        yield from _vector(f"bodies.{name}.com", ("bodies", name, "com"), "m")
        yield from _scalars("bodies", name, {f"inertia.{component}": "kg m^2" for component in COMPONENTS})
        for place, rotational in (("air", False), ("air.turning", True)):
            units = _axis_units(rotational)
            yield from _scalars(
                "bodies", name, {f"{place}.{key}": units[f"friction.{key}"] for key in ("viscous", "drag")}
            )
    for name, joint in scene.joints.items():
        for key in ("at", "child_at"):
            yield from _vector(f"joints.{name}.{key}", ("joints", name, key), "m")
        for key in ("length", "pitch", "radius"):
            if getattr(joint, key) is not None:
                yield f"joints.{name}.{key}", _Quantity(("joints", name, key), "m")
        for axis in joint.kind.axes[:1] if joint.kind.isotropic else joint.kind.axes:
            place = f"{name}.axes.{axis.name}" if axis.name and not joint.kind.isotropic else name
            units = _axis_units(axis.rotational)
            senseless = ("spring.rest", "friction.backward") if axis.kind == "spin" else ()
            kept = {key: units[key] for key in units if key not in senseless}
            yield from _scalars("joints", place, kept)
            yield from _parts(place, joint.along(axis.name).friction, units)
            limits = {"lower": "rad" if axis.rotational else "m", "upper": "rad" if axis.rotational else "m"}
            given = [key for key in limits if getattr(joint.along(axis.name).limits, key) is not None]
            units = {key: limits[key] for key in given} | ({"restitution": "1"} if given else {})
            yield from _scalars("joints", place, {f"limits.{key}": unit for key, unit in units.items()})
    yield from _contacts(scene)
    rotational = {name: axis.rotational for name, axis in scene.free_axes().items()}
    position = {True: "rad", False: "m"}
    for name, coupling in scene.couplings.items():
        driver, driven = (position[rotational[x]] for x in (coupling.driver, coupling.driven))
        ratio = "1" if driver == driven else f"{driven}/{driver}"
        yield from _scalars("couplings", name, {"ratio": ratio, "offset": driven})
    for name, motor in scene.motors.items():
        load, rate = ("N m", "N m s/rad") if rotational[motor.joint] else ("N", "N s/m")
        own = {
            "torque": {"gain": f"{load}/u"},
            "dc": {"gain": f"{load}/V", "back_emf": rate},
            "velocity": {"damping": rate},
            "position": {"stiffness": f"{load}/{position[rotational[motor.joint]]}", "damping": rate},
        }[motor.type]
        bound = {} if motor.max_force is None else {"max_force": load}
        yield from _scalars("motors", name, {**own, "bias": load, **bound, "delay": "s"})
        yield from _harmonics(("motors", name, "cogging"), motor.cogging, load)
    for name, sensor in scene.sensors.items():
        if not isinstance(sensor, ContactForce):  # whose delay counts in whole steps
            yield from _scalars("sensors", name, {"delay": "s"})
        if isinstance(sensor, JointPosition):
            unit = position[rotational[sensor.joint]]
            yield from _scalars("sensors", name, {"offset": unit})
            yield from _harmonics(("sensors", name, "cyclic_error"), sensor.cyclic_error, unit)
    for name, row in scene.rows.items():
        numbers = [key for key, value in (row.model_extra or {}).items() if isinstance(value, int | float)]
        yield from _scalars("rows", name, dict.fromkeys(numbers, "SI"))


def _parts(place: str, friction: Friction, units: Mapping[str, str]) -> Iterator[tuple[str, _Quantity]]:
    if friction.learned is not None:
        speed, load = units["friction.stribeck.speed"], units["friction.coulomb"]
        yield from _scalars("joints", place, {"friction.learned.speed": speed, "friction.learned.force": load})
        loc = ("joints", *place.split("."), "friction", "learned", "weights")
        for index in range(len(friction.learned.weights or ())):
            yield f"{'.'.join(loc)}.{index}", _Quantity((*loc, index), "1")
    for index in range(len(friction.elements)):
        loc = ("joints", *place.split("."), "friction", "elements", index)
        for key, unit in (("stiffness", units["spring.stiffness"]), ("reach", units["spring.rest"])):
            yield ".".join(map(str, (*loc, key))), _Quantity((*loc, key), unit)


def _axis_units(rotational: bool) -> dict[str, str]:
    """Units of what acts along an axis of a joint."""
    if rotational:
        load, position, viscous, stiffness, inertia, bearing = "N m", "rad", "N m s/rad", "N m/rad", "kg m^2", "m"
        drag = "N m s^2/rad^2"
    else:
        load, position, viscous, stiffness, inertia, bearing = "N", "m", "N s/m", "N/m", "kg", "1"
        drag = "N s^2/m^2"
    return {
        "friction.viscous": viscous,
        "friction.drag": drag,
        "friction.coulomb": load,
        "friction.backward": "1",
        "friction.stribeck.excess": load,
        "friction.stribeck.speed": f"{position}/s",
        "friction.stribeck.exponent": "1",
        "friction.bearing": bearing,
        "spring.stiffness": stiffness,
        "spring.rest": position,
        "armature": inertia,
    }


def _scalars(section: str, name: str, units: Mapping[str, str]) -> Iterator[tuple[str, _Quantity]]:
    for key, unit in units.items():
        yield f"{section}.{name}.{key}", _Quantity((section, *name.split("."), *key.split(".")), unit)


def _harmonics(loc: Loc, harmonics: Iterable[Harmonic], unit: str) -> Iterator[tuple[str, _Quantity]]:
    for index, harmonic in enumerate(harmonics):
        for key in ("cos", "sin"):
            yield f"{'.'.join(map(str, loc))}.{harmonic.order:g}.{key}", _Quantity((*loc, index, key), unit)


def _vector(path: str, loc: Loc, unit: str) -> Iterator[tuple[str, _Quantity]]:
    for index, component in enumerate("xyz"):
        yield f"{path}.{component}", _Quantity((*loc, index), unit)


def _find(scene: Scene, path: str) -> _Quantity:
    known = dict(_quantities(scene))
    if path not in known:
        near = difflib.get_close_matches(path, known, n=3, cutoff=0.4)
        meant = f" Nearest: {', '.join(near)}." if near else ""
        raise UnknownPathError(f"the scene '{scene.name}' has no number '{path}'.{meant}")
    return known[path]


def _at(data: Any, loc: Loc) -> float:
    for part in loc:
        data = data[part]
    return float(data)


def _put(data: Any, loc: Loc, value: float) -> Any:
    """A copy of nested dictionaries and tuples with another value in one place."""
    if not loc:
        return value
    part, rest = loc[0], loc[1:]
    if isinstance(data, dict):
        return {**data, part: _put(data[part], rest, value)}
    return tuple(_put(item, rest, value) if index == part else item for index, item in enumerate(data))
