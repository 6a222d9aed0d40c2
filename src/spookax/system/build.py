"""From a scene (plain Python) to the static system and its parameters (arrays)."""

import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._compiled import compiled, on_device
from .._typing import Array, Float
from ..math import rotation
from ..scene import Scene, SceneError
from ..scene.contacts import Surface
from ..scene.explain import Finding
from ..scene.friction import Element as SceneElement
from ..scene.friction import Learned
from ..scene.height_fields import heights_of
from ..scene.hulls import hull_of
from ..scene.joint_types import frame
from ..scene.located import Located
from ..scene.network_weights import count
from ..scene.parts import Along, Body, ContactForce, JointPosition, JointRate
from ..scene.parts import Joint as SceneJoint
from ..scene.row_types import own_rows
from .contact_pairs import contacts_of
from .followed import followed
from .params import AIR, Params
from .pattern import saddle_pattern, spanning_tree
from .system import System
from .topology import WORLD, Axis, Coupling, Element, Joint, Motor, Network, Sensor

_LEAST = 0.5  # delay that commands are kept for [steps]
_FEW_PLACES = 32  # of contacts that Lemke's method may solve
_DRY = ("coulomb", "stribeck.excess", "bearing")


def build(
    scene: Scene,
    constraints: tuple[Any, ...] = (),
    unknown: frozenset[str] = frozenset(),
    longest: Mapping[str, float] | None = None,
) -> tuple[System, Params]:
    """The static system and the parameters of a scene.

    **Arguments:** `scene`, as read by `spookax.scene.read_scene`; `constraints`: the user's own rows
    (`spookax.constraints.AbstractHolonomic`, `AbstractNonholonomic`, `AbstractUnilateral`, `AbstractBounded`), which
    name the bodies they act on; `longest`: what the delay of a motor may come to, by its path, where that is more than
    the scene's [s].

    **Raises:** `ValueError` for rows of the scene that have no class, or not the numbers that the file gives;
    `SceneError` for a pyramid of friction where there may be none.

    An axis gets a dry-friction row only if its level is positive in the scene or among the `unknown` paths, and so for
    bearings, another level backward (if not 1), restitution, quadratic drag and rotors of axes that do not simply turn;
    a body meets air on the same terms. Rows are topology, levels are parameters. States keep as many earlier commands
    as the longest delay of a motor needs.
    """
    names = tuple(scene.bodies)
    number = {name: i for i, name in enumerate(names)} | {"world": WORLD}
    joints = tuple(Joint(n, j.kind, number[j.parent], number[j.child]) for n, j in scene.joints.items())
    free = [(i, n, axis) for i, n in enumerate(scene.joints) for axis in scene.joints[n].kind.axes]
    along = [scene.joints[n].along(axis.name) for _, n, axis in free]

    def present(place: str, at: SceneJoint | Along | Body, key: str) -> bool:
        """Whether a number of an axis or a body is positive or unknown."""
        return operator.attrgetter(key)(at) > 0 or f"{place}.{key}" in unknown

    def dry(place: str, at: SceneJoint | Along) -> bool:
        levels = any(present(place, at, f"friction.{level}") for level in _DRY)
        return at.friction.learned is not None or levels or f"{place}.friction.backward" in unknown

    places = [joints[i].place(axis.path(n)) for i, n, axis in free]
    axes = tuple(
        Axis(
            i,
            axis.path(n),
            axis.kind,
            axis.column,
            axis.other,
            dry(place, at),
            axis.bearing if present(place, at, "friction.bearing") else (),
            tuple(key for key in ("lower", "upper") if getattr(at.limits, key) is not None),
            axis.kind != "turn" and present(place, at, "armature"),
            present(place, at, "limits.restitution"),
            present(place, at, "friction.drag"),
            dry(place, at) and (at.friction.backward != 1 or f"{place}.friction.backward" in unknown),
        )
        for (i, n, axis), place, at in zip(free, places, along, strict=True)
    )
    axis_of = {axis.name: i for i, axis in enumerate(axes)}
    screws = [n for n, j in scene.joints.items() if j.type == "screw"]
    couplings = (
        *(Coupling(n, axis_of[n], axis_of[f"{n}.slide"], f"joints.{n}.pitch", 1 / (2 * np.pi)) for n in screws),
        *(
            Coupling(n, axis_of[c.driver], axis_of[c.driven], f"couplings.{n}.ratio")
            for n, c in scene.couplings.items()
        ),
    )
    coupled = [*(scene.joints[n] for n in screws), *scene.couplings.values()]
    motors = tuple(
        Motor(n, axis_of[m.joint], m.type, m.max_force is not None, tuple(c.order for c in m.cogging))
        for n, m in scene.motors.items()
    )
    sensors = tuple(
        _force_sensor(scene, n, s, number)
        if isinstance(s, ContactForce)
        else Sensor(
            n,
            s.type,
            axis_of[s.joint] if isinstance(s, JointPosition | JointRate) else number[s.body],
            tuple(c.order for c in s.cyclic_error) if isinstance(s, JointPosition) else (),
            s.delay > 0 or f"sensors.{n}.delay" in unknown,
        )
        for n, s in scene.sensors.items()
    )
    tree = spanning_tree(len(names), joints)
    contacts = contacts_of(scene, number, unknown)
    touching = set() if contacts.slots else contacts.touching_bodies
    given = own_rows(scene, constraints)
    bounded = tuple(row for row in given if row.bounded)
    air = tuple(
        i
        for i, (n, b) in enumerate(scene.bodies.items())
        if any(present(f"bodies.{n}", b, f"air.{key}") for key in AIR)
    )
    constraints = tuple(row for row in given if not row.bounded)
    own = (*constraints, *bounded)
    parts = joints, len(couplings), constraints, bounded
    meeting = {
        (followed(place, *parts)[0], number[body])
        for row in bounded
        for place in row.follows
        for body in row.bodies
        if body != "world"
    }
    pattern = saddle_pattern(len(names), joints, axes, couplings, own, number, tree, touching, meeting)
    learned, networks = _networks(places, along)
    elements = _elements(places, along)
    of_system = names, joints, axes, couplings, motors, sensors, constraints, tree, pattern, networks
    delays = [max(m.delay, (longest or {}).get(f"motors.{n}.delay", 0.0)) for n, m in scene.motors.items()]
    history = _steps_kept(max(delays, default=0.0) / scene.step)
    system = System(*of_system, tuple(element for element, _ in elements), contacts, history, bounded, air)
    if (unfit := _unfit_for_a_pyramid(system)) is not None:
        raise SceneError([Located(f"scene '{scene.name}'", {}).problem(unfit)])

    defaults = scene.regularisation

    def array(values: list, *shape: int) -> Array:
        return on_device(np.asarray(values, dtype=float).reshape(-1, *shape))

    parent_frames = array([frame(j.axis, j.x_axis) for j in scene.joints.values()], 4)
    turns = array([j.rotation for j in scene.joints.values()], 3)
    bodies = list(scene.bodies.values())
    motor_specs = list(scene.motors.values())
    touch = scene.contacts
    surfaces = list(touch.surfaces.values()) if touch else []
    materials = list(touch.materials.values()) if touch else []
    offsets = np.zeros((len(sensors), 6))
    points = np.zeros((len(sensors), 3))
    for i, s in enumerate(scene.sensors.values()):
        offsets[i, : sensors[i].size] = getattr(s, "offset", 0.0)
        if s.type == "point_position":
            points[i] = s.at
    params = Params(
        step=on_device(float(scene.step)),
        gravity=on_device(scene.gravity),
        tilt=on_device(scene.tilt),
        v_creep=on_device(float(defaults.v_creep)),
        mass=array([b.mass for b in bodies]),
        com=array([b.com for b in bodies], 3),
        air=array([[operator.attrgetter(key)(bodies[i].air) for key in AIR] for i in air], 4),
        inertia=array([[getattr(b.inertia, k) for k in ("xx", "yy", "zz", "xy", "xz", "yz")] for b in bodies], 6),
        at=array([j.at for j in scene.joints.values()], 3),
        child_at=array([j.child_at for j in scene.joints.values()], 3),
        parent_frame=parent_frames,
        child_frame=_turned_back(parent_frames, turns),
        length=array([_or(j.length, _or(j.radius, 0.0)) for j in scene.joints.values()]),
        relative_compliance=_by_rows(scene, "relative_compliance", system.width),
        relaxation=_by_rows(scene, "relaxation_steps", system.width),
        viscous=array([j.friction.viscous for j in along]),
        drag=array([j.friction.drag for j in along]),
        coulomb=array([j.friction.coulomb for j in along]),
        backward=array([j.friction.backward for j, axis in zip(along, axes, strict=True) if axis.backward]),
        stribeck_excess=array([j.friction.stribeck.excess for j in along]),
        stribeck_speed=array([j.friction.stribeck.speed for j in along]),
        stribeck_exponent=array([j.friction.stribeck.exponent for j in along]),
        stiffness=array([j.spring.stiffness for j in along]),
        rest=array([j.spring.rest for j in along]),
        armature=array([j.armature for j in along]),
        bearing=array([j.friction.bearing for j in along]),
        learned_speed=array([x.speed for x in learned]),
        learned_force=array([x.force for x in learned]),
        weights=array([weight for x in learned for weight in x.weights or ()]),
        element_stiffness=array([spec.stiffness for _, spec in elements]),
        element_reach=array([spec.reach for _, spec in elements]),
        lower=array([_or(j.limits.lower, -np.inf) for j in along]),
        upper=array([_or(j.limits.upper, np.inf) for j in along]),
        restitution=array([j.limits.restitution for j in along]),
        stop_compliance=array([_or(j.limits.relative_compliance, defaults.relative_compliance) for j in along]),
        stop_relaxation=array([_or(j.limits.relaxation_steps, defaults.relaxation_steps) for j in along]),
        ratio=array([scene.joints[n].pitch for n in screws] + [c.ratio for c in scene.couplings.values()]),
        coupling_offset=array([getattr(c, "offset", 0.0) for c in coupled]),
        coupling_compliance=array([_or(c.relative_compliance, defaults.relative_compliance) for c in coupled]),
        coupling_relaxation=array([_or(c.relaxation_steps, defaults.relaxation_steps) for c in coupled]),
        gain=array([getattr(m, "gain", 0.0) for m in motor_specs]),
        back_emf=array([getattr(m, "back_emf", getattr(m, "damping", 0.0)) for m in motor_specs]),
        servo=array([getattr(m, "stiffness", 0.0) for m in motor_specs]),
        max_force=array([_or(m.max_force, np.inf) for m in motor_specs]),
        bias=array([m.bias for m in motor_specs]),
        cogging=array([[c.cos, c.sin] for m in motor_specs for c in m.cogging], 2),
        delay=array([m.delay for m in motor_specs]),
        age=array([s.delay for s in scene.sensors.values()]),
        offset=on_device(offsets),
        cyclic=array([[c.cos, c.sin] for s in scene.sensors.values() for c in getattr(s, "cyclic_error", [])], 2),
        point=on_device(points),
        row_numbers=array([float(v) for row in own for v in _numbers(scene, row).values()]),
        row_compliance=array([defaults.relative_compliance for _ in own]),
        row_relaxation=array([defaults.relaxation_steps for _ in own]),
        surface_at=array([s.at for s in surfaces], 3),
        surface_turn=array([s.rotation for s in surfaces], 3),
        surface_size=array([_size(s) for s in surfaces], 3),
        material_friction=array([m.friction for m in materials]),
        material_restitution=array([m.restitution for m in materials]),
        material_spinning=array([m.spinning_friction for m in materials]),
        material_rolling=array([m.rolling_friction for m in materials]),
        contact_compliance=on_device(touch.relative_compliance if touch else 1.0),
        contact_relaxation=on_device(touch.relaxation_steps if touch else 0.0),
        recovery=on_device(touch.recovery_speed if touch else 1.0),
        heights=_heights([heights_of(s) for s in surfaces if s.type == "height_field"]),
    )
    return system, params


def _numbers(scene: Scene, row: Any) -> dict[str, float]:
    """Numbers of a user row: those of its class, and what the scene says instead."""
    of_file = scene.rows[row.name].model_extra or {} if row.name in scene.rows else {}
    return {**row.defaults(), **of_file}


def _size(surface: Surface) -> tuple[float, float, float]:
    """Lengths of a surface: of a box or field, radius and length of what is round, extents of a mesh, no other."""
    if surface.type == "box":
        return surface.size
    if surface.type == "height_field":
        return *surface.size, 0.0
    if surface.type == "mesh":
        x, y, z = np.ptp(np.array(hull_of(surface).vertices), axis=0).tolist()
        return x, y, z
    return getattr(surface, "radius", 0.0), getattr(surface, "length", 0.0), 0.0


def _heights(grids: list[np.ndarray]) -> Float[Array, "fields rows columns"] | None:
    """Height fields in one array; none of a scene without."""
    if not grids:
        return None
    rows, columns = np.max([grid.shape for grid in grids], axis=0)
    filled = [np.pad(grid, ((0, rows - len(grid)), (0, columns - len(grid[0])))) for grid in grids]
    return on_device(np.stack(filled))


def _steps_kept(delay: float) -> int:
    """Earlier commands that a delay [steps] reaches back to: a power of two, so that few lengths are compiled for."""
    return 2 ** math.ceil(math.log2(max(delay, _LEAST) + 1)) if delay > 0 else 0  # the one before has a part in it


def _networks(places: list[str], along: list[SceneJoint | Along]) -> tuple[list[Learned], tuple[Network, ...]]:
    """Learned friction of the scene, and where in the parameters it is; the axes of a ball joint share theirs."""
    found: list[Learned] = []
    networks: list[Network] = []
    begin = 0
    for place in dict.fromkeys(places):
        axes = tuple(i for i, other in enumerate(places) if other == place)
        if (spec := along[axes[0]].friction.learned) is not None:
            end = begin + count(spec.sizes)
            found.append(spec)
            networks.append(Network(f"{place}.friction.learned", axes, spec.sees, spec.sizes, begin, end))
            begin = end
    return found, tuple(networks)


def _force_sensor(scene: Scene, name: str, sensor: ContactForce, number: Mapping[str, int]) -> Sensor:
    """A sensor of forces of contacts, with the surfaces that it is about."""
    assert scene.contacts is not None  # refused when the scene was read
    surfaces = {n: s.body for n, s in scene.contacts.surfaces.items()}
    body = surfaces[sensor.surface] if sensor.surface else sensor.body
    mine = (sensor.surface,) if sensor.surface else tuple(n for n in surfaces if surfaces[n] == body)
    others = surfaces if sensor.against is None else (sensor.against,)
    own, against = (tuple(list(surfaces).index(n) for n in names if n) for names in (mine, others))
    target, in_body = number[str(body)], sensor.axes == "body"
    return Sensor(name, sensor.type, target, (), sensor.delay > 0, own, against, in_body)


def _unfit_for_a_pyramid(system: System) -> Finding | None:
    """Why contacts of this mechanism cannot have a pyramid of friction."""
    places, message = system.contacts.num_points, ""
    if not system.contacts.pyramid:
        return None
    if places > _FEW_PLACES:
        message = f"surfaces may touch at {places} places; Lemke's method is for {_FEW_PLACES} at most"
    elif system.discs:
        message = "dry friction of two slides of a joint is a disc, which has no corners"
    elif system.contacts.turns:
        message = "it is of sliding friction alone, not of spinning and rolling friction"
    cure = "Take the cone (`friction: cone`), or name fewer `pairs`."
    return Finding(("contacts", "friction"), "pyramid", message, cure) if message else None


def _elements(places: list[str], along: list[SceneJoint | Along]) -> list[tuple[Element, SceneElement]]:
    """Elasto-slide elements of the scene; the axes of a ball joint have the same."""
    found = []
    for place in dict.fromkeys(places):
        axes = [i for i, other in enumerate(places) if other == place]
        for number, spec in enumerate(along[axes[0]].friction.elements):
            found += [(Element(f"{place}.friction.elements.{number}", axis), spec) for axis in axes]
    return found


@compiled
def _turned_back(frames: Float[Array, "joints 4"], turns: Float[Array, "joints 3"]) -> Float[Array, "joints 4"]:
    """Joint frames in the children's axes, which are turned against the parents'."""
    return rotation.multiply(rotation.conjugate(rotation.exp(turns)), frames)


def _by_rows(scene: Scene, key: str, width: int) -> Float[Array, "joints rows"]:
    """A number of every row of every joint: the row's own, else the joint's, else the scene's."""
    found = np.full((len(scene.joints), width), getattr(scene.regularisation, key), dtype=float)
    for j, joint in enumerate(scene.joints.values()):
        found[j] = _or(getattr(joint, key), found[j, 0])
        for r, name in enumerate(joint.kind.rows):
            if name in joint.rows:
                found[j, r] = _or(getattr(joint.rows[name], key), found[j, r])
    return on_device(found)


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
