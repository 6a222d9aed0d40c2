"""Every number of a mechanism that may change, be identified, batched or differentiated: all traced, no recompile."""

import dataclasses
import difflib
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float, Scalar
from ..math.product import matvec
from ..math.selection import selected
from .system import System


class Params(eqx.Module):
    """Numbers of a mechanism, in the order of the bodies, joints, axes, couplings, motors, sensors of `System`."""

    step: Scalar  # h [s]
    gravity: Float[Array, " 3"]  # world [m/s^2]
    tilt: Float[Array, " 2"]  # rotation of the base about world x, then y [rad]
    v_creep: Scalar  # largest creep speed of a stuck axis [rad/s or m/s]
    # bodies
    mass: Float[Array, " bodies"]  # [kg]
    com: Float[Array, "bodies 3"]  # centre of mass in body axes [m]
    inertia: Float[Array, "bodies 6"]  # xx yy zz xy xz yz about the centre of mass, body axes [kg m^2]
    air: Float[Array, "aired 4"]  # of `System.air`: linear, quadratic; of turning [N s/m, N s^2/m^2; N m s, N m s^2]
    # joints
    at: Float[Array, "joints 3"]  # joint point in the parent's frame [m]
    child_at: Float[Array, "joints 3"]  # joint point in the child's frame [m]
    parent_frame: Float[Array, "joints 4"]  # joint frame (z: axis) in the parent's frame
    child_frame: Float[Array, "joints 4"]  # joint frame in the child's frame
    length: Float[Array, " joints"]  # of a distance joint, radius of one that rolls [m]
    relative_compliance: Float[Array, "joints rows"]  # rho = Sigma / scale of G M^-1 G^T [-]
    relaxation: Float[Array, "joints rows"]  # tau / h [steps]
    # axes
    viscous: Float[Array, " axes"]  # [N m s/rad or N s/m]
    drag: Float[Array, " axes"]  # quadratic [N m s^2/rad^2 or N s^2/m^2]
    coulomb: Float[Array, " axes"]  # [N m or N]
    backward: Float[Array, " backward"]  # dry friction against v < 0 per that against v > 0, of `System.backward_axes`
    stribeck_excess: Float[Array, " axes"]  # static minus Coulomb level [N m or N]
    stribeck_speed: Float[Array, " axes"]  # [rad/s or m/s]
    stribeck_exponent: Float[Array, " axes"]
    bearing: Float[Array, " axes"]  # dry friction per force across the axis [m or -]
    learned_speed: Float[Array, " networks"]  # speed that a network sees as 1 [rad/s or m/s]
    learned_force: Float[Array, " networks"]  # friction that is 1 at its end [N m or N]
    weights: Float[Array, " weights"]  # of all networks
    element_stiffness: Float[Array, " elements"]  # [N m/rad or N/m]
    element_reach: Float[Array, " elements"]  # deflection at which an element slips [rad or m]
    stiffness: Float[Array, " axes"]  # [N m/rad or N/m]
    rest: Float[Array, " axes"]  # [rad or m]
    armature: Float[Array, " axes"]  # [kg m^2 or kg]
    lower: Float[Array, " axes"]  # stops; -inf where there is none [rad or m]
    upper: Float[Array, " axes"]  # inf where there is none [rad or m]
    restitution: Float[Array, " axes"]  # of impacts on the stops [-]
    stop_compliance: Float[Array, " axes"]  # rho of the stops [-]
    stop_relaxation: Float[Array, " axes"]  # tau / h of the stops [steps]
    # couplings
    ratio: Float[Array, " couplings"]  # motion of the driven axis per motion of the driver; of screws per turn
    coupling_offset: Float[Array, " couplings"]  # [rad or m]
    coupling_compliance: Float[Array, " couplings"]  # rho [-]
    coupling_relaxation: Float[Array, " couplings"]  # tau / h [steps]
    # motors
    gain: Float[Array, " motors"]  # of torque and DC motors [N m or N per unit of input]
    back_emf: Float[Array, " motors"]  # torque against the rate; `damping` of drives [N m s/rad or N s/m]
    servo: Float[Array, " motors"]  # `stiffness` of position motors [N m/rad or N/m]
    max_force: Float[Array, " motors"]  # inf where there is none [N m or N]
    bias: Float[Array, " motors"]  # [N m or N]
    cogging: Float[Array, "cogging 2"]  # factors of cos and sin, in the order of `System.cogging` [N m or N]
    delay: Float[Array, " motors"]  # between a command and what it does [s]
    # sensors
    age: Float[Array, " sensors"]  # `delay` of a sensor: of what it reads [s]
    offset: Float[Array, "sensors 6"]  # added to the reading; the first `size` entries count
    cyclic: Float[Array, "cyclic 2"]  # factors of cos and sin, in the order of `System.cyclic` [rad or m]
    point: Float[Array, "sensors 3"]  # point of a point_position sensor in the body's frame [m]
    # the user's own rows, those without bounds first
    row_numbers: Float[Array, " numbers"]  # in the order of `System.row_numbers`, in their own units
    row_compliance: Float[Array, " constraints"]  # rho of the user's rows [-]
    row_relaxation: Float[Array, " constraints"]  # tau / h of the user's rows [steps]
    # contacts
    surface_at: Float[Array, "surfaces 3"]  # centre in the body's frame [m]
    surface_turn: Float[Array, "surfaces 3"]  # orientation in the body, a rotation vector [rad]
    surface_size: Float[Array, "surfaces 3"]  # lengths of a box, mesh or field; radius and length of what is round [m]
    material_friction: Float[Array, " materials"]  # [-]
    material_restitution: Float[Array, " materials"]  # [-]
    material_spinning: Float[Array, " materials"]  # torque across a contact per normal force [m]
    material_rolling: Float[Array, " materials"]  # [m]
    contact_compliance: Scalar  # relative to 1/m of the bodies [-]
    contact_relaxation: Scalar  # tau / h of an overlap [steps]
    recovery: Scalar  # largest speed at which an overlap is led back [m/s]
    heights: Float[Array, "fields rows columns"] | None = None  # of height fields, filled up to the largest [m]


_XYZ = {"x": 0, "y": 1, "z": 2}
_INERTIA = {"xx": 0, "yy": 1, "zz": 2, "xy": 3, "xz": 4, "yz": 5}
AIR = ("viscous", "drag", "turning.viscous", "turning.drag")
_AXIS_FIELDS = {
    "friction.viscous": "viscous",
    "friction.drag": "drag",
    "friction.coulomb": "coulomb",
    "friction.stribeck.excess": "stribeck_excess",
    "friction.stribeck.speed": "stribeck_speed",
    "friction.stribeck.exponent": "stribeck_exponent",
    "friction.bearing": "bearing",
    "spring.stiffness": "stiffness",
    "spring.rest": "rest",
    "armature": "armature",
}
_ROUND = ("radius", "length")
_SIZES = {
    "plane": (),
    "sphere": ("radius",),
    "capsule": _ROUND,
    "cylinder": _ROUND,
    "box": ("size.x", "size.y", "size.z"),
    "mesh": (),
    "height_field": (),
}
_MOTOR_FIELDS = {
    "torque": {"gain": "gain"},
    "dc": {"gain": "gain", "back_emf": "back_emf"},
    "velocity": {"damping": "back_emf"},
    "position": {"stiffness": "servo", "damping": "back_emf"},
}


@dataclasses.dataclass(frozen=True)
class ParameterPath:
    """Where one scene path, like `bodies.arm.inertia.zz`, lives in `Params`: a field and an index into it."""

    path: str
    field: str
    index: tuple[int, ...]
    count: int = 1  # of entries from there on that are this number

    def get(self, params: Params) -> Scalar:
        return jnp.ravel(getattr(params, self.field)[self.index])[0]

    def set(self, params: Params, value: Scalar) -> Params:
        new = jnp.where(self.mask(params), value, getattr(params, self.field))
        return eqx.tree_at(lambda p: getattr(p, self.field), params, new)

    def mask(self, params: Params) -> np.ndarray:
        """Which entries of the field are this number."""
        here = np.zeros(jnp.shape(getattr(params, self.field)), dtype=bool)
        here[self.index if self.count == 1 else slice(self.index[0], self.index[0] + self.count)] = True
        return here


def put(params: Params, places: Sequence[ParameterPath], values: Float[Array, " values"]) -> Params:
    """`params` with a number at each of the places, all those of a field at once."""
    fields: dict[str, list[tuple[int, int]]] = {}
    for k, place in enumerate(places):
        mine = np.flatnonzero(place.mask(params))
        fields.setdefault(place.field, []).extend((int(i), k) for i in mine)
    new = {name: _with_entries(getattr(params, name), entries, values) for name, entries in fields.items()}
    return dataclasses.replace(params, **new)


def _with_entries(old: Array, entries: list[tuple[int, int]], values: Float[Array, " values"]) -> Array:
    """`old` with entries (in flat order) from `values`: pairs of places in both."""
    there, here = (np.array(side) for side in zip(*entries, strict=True))
    size, count = np.size(old), len(entries)
    if (np.diff(there) == 1).all() and (np.diff(here) == 1).all():  # such as the weights of a network
        part = jax.lax.slice_in_dim(values, here[0], here[0] + count)
        new = jax.lax.pad(part, jnp.zeros((), values.dtype), [(there[0], size - count - there[0], 0)])
    else:
        choice = np.zeros((size, len(values)))
        choice[there, here] = 1.0
        new = matvec(jnp.asarray(choice, dtype=values.dtype), values)
    mine = np.zeros(size, dtype=bool)
    mine[there] = True
    return jnp.where(mine.reshape(np.shape(old)), new.reshape(np.shape(old)), old)


def paths(system: System) -> dict[str, ParameterPath]:
    """Every parameter path of a mechanism."""
    found: dict[str, ParameterPath] = {}

    def add(path: str, field: str, *index: int, count: int = 1) -> None:
        found[path] = ParameterPath(path, field, index, count=count)

    for name, i in _XYZ.items():
        add(f"gravity.{name}", "gravity", i)
    add("tilt.x", "tilt", 0)
    add("tilt.y", "tilt", 1)
    for b, body in enumerate(system.bodies):
        add(f"bodies.{body}.mass", "mass", b)
        for name, i in _XYZ.items():
            add(f"bodies.{body}.com.{name}", "com", b, i)
        for name, i in _INERTIA.items():
            add(f"bodies.{body}.inertia.{name}", "inertia", b, i)
    for a, body in enumerate(system.air):
        for i, key in enumerate(AIR):
            add(f"bodies.{system.bodies[body]}.air.{key}", "air", a, i)
    for j, joint in enumerate(system.joints):
        for name, i in _XYZ.items():
            add(f"joints.{joint.name}.at.{name}", "at", j, i)
            add(f"joints.{joint.name}.child_at.{name}", "child_at", j, i)
        add(f"joints.{joint.name}.relative_compliance", "relative_compliance", j)  # of all rows
        for r, row in enumerate(joint.kind.rows):
            add(f"joints.{joint.name}.rows.{row}.relative_compliance", "relative_compliance", j, r)
        if joint.kind.apart:
            key = "length" if "length" in joint.kind.keys else "radius"
            add(f"joints.{joint.name}.{key}", "length", j)
    for a, axis in enumerate(system.axes):
        joint = system.joints[axis.joint]
        place, shared = joint.place(axis.name), joint.kind.isotropic
        if shared and a > 0 and system.axes[a - 1].joint == axis.joint:
            continue
        for suffix, field in _AXIS_FIELDS.items():
            absent = {"rest": axis.kind == "spin", "armature": not axis.takes_rotor, "drag": not axis.drags}
            if not absent.get(field):
                add(f"{place}.{suffix}", field, a, count=len(joint.kind.axes) if shared else 1)
        if axis.backward:
            add(f"{place}.friction.backward", "backward", system.backward_axes.index(a))
        for field in (*axis.stops, *(("restitution",) if axis.stops else ())):
            add(f"{place}.limits.{field}", field, a)
    for n, network in enumerate(system.networks):
        add(f"{network.place}.speed", "learned_speed", n)
        add(f"{network.place}.force", "learned_force", n)
        for i in range(network.begin, network.end):
            add(f"{network.place}.weights.{i - network.begin}", "weights", i)
    of_place = [element.place for element in system.elements]
    for i, place in enumerate(of_place):
        if place not in of_place[:i]:
            for key in ("stiffness", "reach"):
                add(f"{place}.{key}", f"element_{key}", i, count=of_place.count(place))
    for c, coupling in enumerate(system.couplings):
        add(coupling.path, "ratio", c)
        if coupling.path.startswith("couplings."):
            add(f"couplings.{coupling.name}.offset", "coupling_offset", c)
    for m, motor in enumerate(system.motors):
        for key, field in (*_MOTOR_FIELDS[motor.type].items(), ("bias", "bias"), ("delay", "delay")):
            add(f"motors.{motor.name}.{key}", field, m)
        if motor.bounded:
            add(f"motors.{motor.name}.max_force", "max_force", m)
    for i, key in enumerate(("cos", "sin")):
        for c, (m, order) in enumerate(system.cogging):
            add(f"motors.{system.motors[m].name}.cogging.{order:g}.{key}", "cogging", c, i)
        for c, (s, order) in enumerate(system.cyclic):
            add(f"sensors.{system.sensors[s].name}.cyclic_error.{order:g}.{key}", "cyclic", c, i)
    for s, sensor in enumerate(system.sensors):
        if sensor.type == "contact_force":
            continue
        add(f"sensors.{sensor.name}.delay", "age", s)
        if sensor.size == 1:
            add(f"sensors.{sensor.name}.offset", "offset", s, 0)
        else:
            for i in range(sensor.size):
                add(f"sensors.{sensor.name}.offset.{i}", "offset", s, i)
    for m, name in enumerate(system.contacts.materials):
        add(f"contacts.materials.{name}.friction", "material_friction", m)
        add(f"contacts.materials.{name}.restitution", "material_restitution", m)
        add(f"contacts.materials.{name}.spinning_friction", "material_spinning", m)
        add(f"contacts.materials.{name}.rolling_friction", "material_rolling", m)
    for s, surface in enumerate(system.contacts.surfaces):
        place = f"contacts.surfaces.{surface.name}"
        for name, i in _XYZ.items():
            add(f"{place}.at.{name}", "surface_at", s, i)
        for i, key in enumerate(_SIZES[surface.type]):
            add(f"{place}.{key}", "surface_size", s, i)
    for n, (row, key) in enumerate(system.row_numbers):
        add(f"rows.{system.own_rows[row].name}.{key}", "row_numbers", n)
    return found


def locate(system: System, path: str) -> ParameterPath:
    """The place of one path; an unknown one raises KeyError with the nearest known paths."""
    known = paths(system)
    if path not in known:
        near = difflib.get_close_matches(path, known, n=3)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise KeyError(f"no parameter '{path}'{hint}")
    return known[path]


def inertia_matrix(i6: Float[Array, "... 6"]) -> Float[Array, "... 3 3"]:
    """Symmetric matrix of the six numbers xx yy zz xy xz yz."""
    return selected(i6, (0, 3, 4, 3, 1, 5, 4, 5, 2), -1).reshape(*i6.shape[:-1], 3, 3)
