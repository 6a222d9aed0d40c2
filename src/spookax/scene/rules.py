"""Rules between the keys of a scene: what belongs together, and names that must exist.

They read raw data and tolerate any, so that a file whose schema is violated in one place still reports all
the others. Places are relative to the part that a rule reads.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

from spookax.scene.contacts import contact_rules, force_rules
from spookax.scene.explain import Finding, nearest, shown
from spookax.scene.fields import is_number
from spookax.scene.joint_types import NEEDED, OWN_KEYS, JointKind, free_axes, kind_of, types_with

DC_CONSTANTS = ("torque_constant", "back_emf_constant", "resistance")
_FROM_SHAPES = ("mass", "com", "inertia")


def scene_rules(scene: Any) -> Iterator[Finding]:
    """Findings of every rule on the raw data of a scene.

    Names of bodies are not looked up when the file has no bodies at all, nor those of joints when `joints` is
    no mapping: that is reported by itself.
    """
    if not isinstance(scene, dict):
        return
    bodies, joints = scene.get("bodies"), scene.get("joints", {})
    bodies = bodies if isinstance(bodies, dict) else None
    joints = joints if isinstance(joints, dict) else None
    for name, body in (bodies or {}).items():
        yield from _within(("bodies", name), body_rules(body))
        if name == "world":
            cure = "Give the body another name; `world` is what does not move, and exists already."
            yield Finding(("bodies", name), None, "this name is reserved", cure)
    for name, joint in (joints or {}).items():
        yield from _within(("joints", name), joint_rules(joint, bodies))
    for name, body in (bodies or {}).items():
        carriers = _carriers(name, joints) if isinstance(body, dict) and body.get("initial") is not None else []
        if carriers:
            cure = "Give `initial` positions of its joints instead, at the end of the file."
            message = f"joint '{carriers[0]}' says where this body is"
            yield Finding(("bodies", name, "initial"), None, message, cure)
    for name, motor in _named(scene, "motors"):
        yield from _within(("motors", name), (*motor_rules(motor), *harmonic_rules(motor)))
        yield from _within(("motors", name), _reference_rules(motor, bodies, joints))
    for name, sensor in _named(scene, "sensors"):
        yield from _within(("sensors", name), harmonic_rules(sensor))
        yield from _within(("sensors", name), _reference_rules(sensor, bodies, joints))
        yield from _within(("sensors", name), force_rules(sensor, scene.get("contacts"), joints))
    for name, coupling in _named(scene, "couplings"):
        yield from _within(("couplings", name), coupling_rules(coupling, joints))
    for found in contact_rules(scene.get("contacts"), bodies, joints):
        yield Finding(("contacts", *found.loc), found.value, found.message, found.cure)
    for name, _ in _named(scene, "initial"):
        yield from _axis_rule(name, joints, ("initial", name), "an initial position belongs to")


def _carriers(body: str, joints: dict[str, Any] | None) -> list[str]:
    """Joints that tie a body to the world, directly or through others, or that have it as their child."""
    ends = {n: (j.get("parent", "world"), j.get("child")) for n, j in (joints or {}).items() if isinstance(j, dict)}
    reached = {"world"}
    for _ in ends:
        reached |= {end for pair in ends.values() if reached & set(pair) for end in pair if isinstance(end, str)}
    return [n for n, (parent, child) in ends.items() if body == child or (body == parent and body in reached)]


def body_rules(body: Any) -> Iterator[Finding]:
    """Mass and inertia are given, or follow from density and shapes, never both."""
    if not isinstance(body, dict):
        return
    given = [key for key in _FROM_SHAPES if body.get(key) is not None]
    if body.get("density") is None:
        for key, text in (("mass", "mass in kg"), ("inertia", "inertia about the centre of mass in kg m^2")):
            if key not in body:
                cure = f"Add `{key}: ...` ({text}), or give `density` [kg/m^3] and shapes instead of both."
                yield Finding((key,), None, "is missing", cure)
        return
    for key in given:
        yield Finding((key,), body[key], "cannot be given beside `density`", f"Delete `{key}` or `density`.")
    if not given and not body.get("shapes"):
        cure = "Add `shapes`, or give `mass` and `inertia` instead of `density`."
        yield Finding(("shapes",), None, "are missing, and `density` needs them", cure)


def motor_rules(motor: Any) -> Iterator[Finding]:
    """A DC motor has its gain and back-EMF, or the three constants they follow from."""
    if not isinstance(motor, dict) or motor.get("type") != "dc":
        return
    constants = [key for key in DC_CONSTANTS if motor.get(key) is not None]
    resolved = [key for key in ("gain", "back_emf") if motor.get(key) is not None]
    if constants and resolved:
        for key in resolved:
            message = f"cannot be given beside `{constants[0]}`"
            yield Finding((key,), motor[key], message, f"Delete `{key}`, or give gain and back_emf only.")
    elif constants:
        for key in DC_CONSTANTS:
            if motor.get(key) is None:
                cure = f"Add `{key}: ...`; torque_constant, back_emf_constant and resistance go together."
                yield Finding((key,), None, "is missing", cure)
    else:
        for key in ("gain", "back_emf"):
            if key not in motor:
                cure = f"Add `{key}: ...`, or give torque_constant, back_emf_constant and resistance."
                yield Finding((key,), None, "is missing", cure)


def harmonic_rules(part: Any) -> Iterator[Finding]:
    """Each order of a motor's cogging or an encoder's cyclic error is given once."""
    for key in ("cogging", "cyclic_error"):
        harmonics = part.get(key) if isinstance(part, dict) else None
        seen = set()
        for index, harmonic in enumerate(harmonics if isinstance(harmonics, list) else []):
            order = harmonic.get("order") if isinstance(harmonic, dict) else None
            if isinstance(order, int | float):
                name = f"{order:g}"  # as in its path
                if name in seen:
                    cure = "Delete one of the two, or give it another order."
                    yield Finding((key, index, "order"), order, f"order {name} is given twice", cure)
                seen.add(name)


def joint_rules(joint: Any, bodies: Iterable[str] | None) -> Iterator[Finding]:
    """Both ends exist and differ; the keys are those of the joint's type."""
    if not isinstance(joint, dict):
        return
    parent, child = joint.get("parent", "world"), joint.get("child")
    if parent != "world":
        yield from _exists(("parent",), parent, "body", bodies, also=["world"])
    if child == "world":
        cure = "Exchange parent and child; the angle then counts the other way."
        yield Finding(("child",), child, "the world cannot be the child of a joint", cure)
    elif isinstance(child, str) and parent == child:
        yield Finding(("child",), child, f"connects body '{child}' to itself", "Name two different bodies.")
    else:
        yield from _exists(("child",), child, "body", bodies)
    if kind := kind_of(joint):
        yield from _kind_rules(joint, kind)


def _kind_rules(joint: dict[str, Any], kind: JointKind) -> Iterator[Finding]:
    """The keys that this type of joint takes and needs."""
    for key in OWN_KEYS:
        if key not in kind.all_keys and joint.get(key) is not None:
            message = f"a {joint['type']} joint takes no `{key}`"
            cure = f"Delete `{key}`; it belongs to joints of type {', '.join(types_with(key))}."
            yield Finding((key,), joint[key], message, cure)
    for key in NEEDED:
        if key in kind.keys and joint.get(key) is None:
            yield Finding((key,), None, f"is missing, and a {joint['type']} joint needs it", f"Add `{key}: ...` (m).")
    yield from _limit_rules(joint.get("limits"), ("limits",))
    names = [axis.name for axis in kind.axes if axis.name and not kind.isotropic]
    axes, locked = joint.get("axes"), joint.get("locked")
    for name, along in axes.items() if isinstance(axes, dict) else ():
        yield from _limit_rules(along.get("limits") if isinstance(along, dict) else None, ("axes", name, "limits"))
    for name in axes if "axes" in kind.all_keys and isinstance(axes, dict) else ():
        if isinstance(locked, list) and name in locked:
            yield Finding(("axes", name), None, "is locked", f"Delete it, or `{name}` in `locked`.")
        elif name not in names:
            yield Finding(("axes", name), None, f"a {joint['type']} joint has no such axis", nearest(name, names))
    for axis in kind.axes:
        loc = ("axes", axis.name) if axis.name in names else ()
        part = axes.get(axis.name) if loc and isinstance(axes, dict) else joint
        if not axis.turns:
            yield from _angle_rules(part, (*loc, "friction", "learned", "sees"))
    rows = joint.get("rows")
    for name in rows if isinstance(rows, dict) else ():
        if name not in kind.rows:
            yield Finding(("rows", name), None, f"a {joint['type']} joint has no such row", nearest(name, kind.rows))
    if kind.isotropic:
        yield from _direction_rules(joint, ())
    elif isinstance(axes, dict):
        for axis in (axis for axis in kind.axes if axis.kind == "spin"):
            yield from _direction_rules(axes.get(axis.name), ("axes", axis.name))
    n, u = _vector(joint.get("axis", (0.0, 0.0, 1.0))), _vector(joint.get("x_axis"))
    if "x_axis" in kind.keys and n and u:
        lengths = math.hypot(*n) * math.hypot(*u)
        if abs(sum(a * b for a, b in zip(n, u, strict=True))) > 1e-6 * lengths:
            cure = "Give the direction in the plane across `axis`."
            yield Finding(("x_axis",), joint["x_axis"], "must be perpendicular to `axis`", cure)


def _direction_rules(along: Any, loc: tuple[str, ...]) -> Iterator[Finding]:
    """A direction about which a body turns has no angle that could be limited or a spring's rest, and no way back."""
    part = along if isinstance(along, dict) else {}
    limits, spring, friction = part.get("limits"), part.get("spring"), part.get("friction")
    rest = spring.get("rest") if isinstance(spring, dict) else None
    cure = "Use a `generic` joint, whose turns are angles."
    if isinstance(limits, dict) and any(limits.get(key) is not None for key in ("lower", "upper")):
        yield Finding((*loc, "limits"), None, "cannot be given for a direction, which has no angle", cure)
    if rest:
        yield Finding((*loc, "spring", "rest"), rest, "must be 0 for a direction, which has no angle", cure)
    backward = friction.get("backward") if isinstance(friction, dict) else None
    if backward is not None and backward != 1:
        message = "must be 1 for a direction, which has no angle that grows or falls"
        yield Finding((*loc, "friction", "backward"), backward, message, cure)


def _angle_rules(along: Any, loc: tuple[str, ...]) -> Iterator[Finding]:
    """What slides, and a direction about which a body turns, has no angle that friction could depend on."""
    for key in ("friction", "learned", "sees"):
        along = along.get(key) if isinstance(along, dict) else None
    if isinstance(along, list | tuple) and "angle" in along:
        yield Finding(loc, "angle", "this axis has no angle", "Delete `angle`.")


def _limit_rules(limits: Any, loc: tuple[str, ...]) -> Iterator[Finding]:
    """The lower stop lies below the upper one."""
    given: dict[str, Any] = limits if isinstance(limits, dict) else {}
    lower, upper = given.get("lower"), given.get("upper")
    if is_number(lower) and is_number(upper) and not lower < upper:
        cure = "Exchange them, or use a `fixed` joint for what cannot move."
        yield Finding((*loc, "upper"), upper, f"must be above `lower`, which is {shown(lower)}", cure)


def coupling_rules(coupling: Any, joints: dict[str, Any] | None) -> Iterator[Finding]:
    """Both axes exist and differ."""
    if not isinstance(coupling, dict):
        return
    for key in ("driver", "driven"):
        yield from _axis_rule(coupling.get(key), joints, (key,), "a coupling acts on")
        yield from _countable(coupling.get(key), joints, (key,))
    driven = coupling.get("driven")
    if isinstance(driven, str) and driven == coupling.get("driver"):
        yield Finding(("driven",), driven, "is coupled to itself", "Name two different axes.")


def _countable(name: Any, joints: dict[str, Any] | None, loc: tuple[str, ...]) -> Iterator[Finding]:
    """What is coupled has a coordinate, not only a direction."""
    joint_name = name.partition(".")[0] if isinstance(name, str) else ""
    kind = kind_of((joints or {}).get(joint_name))
    if kind and any(axis.kind == "spin" and axis.path(joint_name) == name for axis in kind.axes):
        message = f"joint '{joint_name}' has no angle about one axis that a coupling could act on"
        yield Finding(loc, name, message, "Use a `generic` joint with x, y and z locked, or a `universal` one.")


def _vector(value: Any) -> list[float] | None:
    fits = isinstance(value, list | tuple) and len(value) == 3 and all(map(is_number, value))
    return [float(x) for x in value] if fits else None


def _reference_rules(part: Any, bodies: Iterable[str] | None, joints: dict[str, Any] | None) -> Iterator[Finding]:
    """The joint or body that a motor or sensor names exists and suits it."""
    if isinstance(part, dict):
        yield from _exists(("body",), part.get("body"), "body", bodies)
        yield from _axis_rule(part.get("joint"), joints, ("joint",), "a motor or joint sensor acts on")


def _axis_rule(name: Any, joints: dict[str, Any] | None, loc: tuple[str, ...], purpose: str) -> Iterator[Finding]:
    """An axis is named as `joint`, or `joint.axis` where a joint has several."""
    if not isinstance(name, str) or joints is None:
        return
    joint_name = name.partition(".")[0]
    joint = joints.get(joint_name)
    if joint_name not in joints:
        kinds = {n: kind_of(j) for n, j in joints.items()}
        known = [path for path, _, _ in free_axes({n: kind for n, kind in kinds.items() if kind})]
        yield Finding(loc, name, f"there is no joint {shown(joint_name)}", nearest(name, known or joints))
    elif isinstance(joint, dict) and (kind := kind_of(joint)):
        paths = [axis.path(joint_name) for axis in kind.axes]
        if not paths:
            message = f"joint '{joint_name}' is a {joint['type']} joint; {purpose} an axis"
            yield Finding(loc, name, message, "Name a joint with an axis, such as a hinge or prismatic joint.")
        elif name not in paths:
            message = f"joint '{joint_name}' is a {joint['type']} joint; {purpose} one axis"
            yield Finding(loc, name, message, f"Write {' or '.join(f'`{path}`' for path in paths)}.")


def _exists(
    loc: tuple[str, ...], name: Any, kind: str, known: Iterable[str] | None, also: Iterable[str] = ()
) -> Iterator[Finding]:
    """A name is one of the known; values that are no names are left to the schema."""
    if known is not None and isinstance(name, str) and name not in known:
        yield Finding(loc, name, f"there is no {kind} {shown(name)}", nearest(name, [*also, *known]))


def _named(scene: dict[str, Any], section: str) -> list[tuple[str, Any]]:
    part = scene.get(section)
    return list(part.items()) if isinstance(part, dict) else []


def _within(loc: tuple[str, str], found: Iterable[Finding]) -> Iterator[Finding]:
    for finding in found:
        yield Finding((*loc, *finding.loc), finding.value, finding.message, finding.cure)
