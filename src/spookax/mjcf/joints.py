"""Joints of a compiled model as joints of a scene.

MuJoCo puts several joints into one body, one after the other from the parent to the child. Some such stacks are one
joint here. Positions agree with MuJoCo's `qpos`: an axis is at zero where `qpos` is, whatever its `ref`.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from spookax.mjcf.compiler import Names
from spookax.mjcf.drives import geared
from spookax.mjcf.frame_poses import Pose, numbers, rotation_vector, turned
from spookax.mjcf.source import Source
from spookax.scene.joint_types import COORDINATES

_SMALL = 1e-6  # of directions that should be perpendicular or parallel, and points that should meet [no unit or m]


@dataclass(frozen=True)
class _Step:
    """One joint of a stack: `hinge`, `slide`, `ball` or `free`, axis and anchor in the frame of its body."""

    index: int
    kind: str
    axis: np.ndarray
    anchor: np.ndarray


@dataclass(frozen=True)
class _Kind:
    """What a stack is called here, its point in the child's frame, and which of its joints point along the axes."""

    type: str
    point: np.ndarray
    names: tuple[str | None, ...]  # of the axes, by the stack's joints; none for one without an axis
    axis: int | None = None
    x_axis: int | None = None
    columns: np.ndarray | None = None  # (3, 3), of a generic joint's frame, one a row, in the parent


def read_joints(source: Source, names: Names) -> tuple[dict[str, Any], dict[str, Any]]:
    """Joints of the scene by name, and the initial positions of those that do not start at zero."""
    joints: dict[str, Any] = {}
    initial: dict[str, Any] = {}
    for b in range(1, source.model.nbody):
        stack = _stack(source, b)
        if not stack or stack[0].kind == "free":
            for step in stack:
                _list_unsaid(source, step.index, "a free body")
            continue
        zero, directions = _zero(source, b, stack)
        kind = _classify(stack, directions)
        if kind is None:
            kind = _list_stack(source, b, stack)
        name = names.new(_name([source.name("joint", step.index) for step in stack]), f"joint{stack[0].index}")
        joints[name] = _joint(source, b, kind, zero)
        axes = {}
        for step, axis in zip(stack, kind.names, strict=True):
            if axis is None:
                if kind.type == "ball" and step.kind == "ball":
                    source.balls[step.index] = name
                    joints[name] |= _about_ball(source, step.index)
                elif step.kind == "ball":
                    _list_unsaid(source, step.index, f"a {kind.type} joint")
                continue
            path = f"{name}.{axis}" if axis else name
            source.axes[step.index] = path
            axes[axis] = _along(source, step.index)
            reference = float(source.model.qpos0[source.model.jnt_qposadr[step.index]])
            if reference != 0:
                initial[path] = {"position": reference}
        joints[name] |= axes.get("", {})
        if named := {axis: along for axis, along in axes.items() if axis}:
            joints[name]["axes"] = named
        for key, number in (("axis", kind.axis), ("x_axis", kind.x_axis)):
            if number is not None:
                joints[name][key] = numbers(directions[number])
        if kind.columns is not None:
            joints[name] |= {"axis": numbers(kind.columns[2]), "x_axis": numbers(kind.columns[0])}
            joints[name]["locked"] = [key for key in COORDINATES if key not in kind.names]
    return joints, initial


def _stack(source: Source, b: int) -> list[_Step]:
    model, first = source.model, source.model.body_jntadr[b]
    kinds = ("hinge", "slide", "ball", "free")
    return [
        _Step(j, next(k for k in kinds if source.is_a(model.jnt_type[j], f"mjJNT_{k.upper()}")), *where)
        for j in range(first, first + model.body_jntnum[b])
        for where in [(np.array(model.jnt_axis[j]), np.array(model.jnt_pos[j]))]
    ]


def _zero(source: Source, b: int, stack: list[_Step]) -> tuple[Pose, list[np.ndarray]]:
    """Pose of a body in its parent's owner with all its joints at `qpos` = 0, and there the directions of their axes.

    The model's own pose is the one at `ref`. Each joint turns or slides those after it: they are taken back in order.
    """
    model = source.model
    pose = source.bodies[model.body_parentid[b]].pose @ Pose.of(model.body_pos[b], model.body_quat[b])
    directions = []
    for step in stack:
        directions.append(pose.rotation @ step.axis)
        if step.kind not in ("hinge", "slide"):
            continue
        back = -float(model.qpos0[model.jnt_qposadr[step.index]])
        if step.kind == "slide":
            pose = Pose(pose.rotation, pose.at + back * directions[-1])
        else:
            anchor, rotation = pose.apply(step.anchor), pose.rotation @ turned(step.axis, back)
            pose = Pose(rotation, anchor - rotation @ step.anchor)
    return pose, directions


def _classify(stack: list[_Step], directions: list[np.ndarray]) -> _Kind | None:
    first, *rest = stack
    match [step.kind for step in stack]:
        case ["hinge"]:
            return _Kind("hinge", first.anchor, ("",), 0)
        case ["slide"]:
            return _Kind("prismatic", first.anchor, ("",), 0)
        case ["ball"]:
            return _Kind("ball", first.anchor, (None,))
        case ["slide", "ball"]:
            return _Kind("inline", rest[0].anchor, ("", None), 0)
        case ["hinge", "hinge"]:
            return _universal(first, rest[0])
        case ["hinge", "slide"] if _same(first.axis, rest[0].axis):
            return _Kind("cylindrical", first.anchor, ("turn", "slide"), 0)
        case ["slide", "hinge"] if _same(first.axis, rest[0].axis):
            return _Kind("cylindrical", rest[0].anchor, ("slide", "turn"), 0)
        case ["slide", "slide", "hinge"]:
            return _planar(first, rest[0], rest[1]) or _generic(stack, directions)
    return _generic(stack, directions)


def _universal(first: _Step, second: _Step) -> _Kind | None:
    """Two axes at right angles that meet: the point is on the first one, where the second passes."""
    a, b, d = first.axis, second.axis, second.anchor - first.anchor
    if abs(a @ b) > _SMALL or abs(np.cross(a, b) @ d) > _SMALL:
        return None
    return _Kind("universal", first.anchor + (d @ a) * a, ("first", "second"), 0, 1)


def _planar(first: _Step, second: _Step, turn: _Step) -> _Kind | None:
    """Two slides at right angles before a turn about their normal; x is the one from which the other turns left."""
    normal = np.cross(first.axis, second.axis)
    if _same(normal, turn.axis):
        return _Kind("planar", turn.anchor, ("x", "y", "turn"), 2, 0)
    if _same(-normal, turn.axis):
        return _Kind("planar", turn.anchor, ("y", "x", "turn"), 2, 1)
    return None


def _generic(stack: list[_Step], directions: list[np.ndarray]) -> _Kind | None:
    """Slides, then turns about one point, at zero along columns of a right-handed frame, the turns in their order."""
    turns = [step for step in stack if step.kind == "hinge"]
    slides = stack[: len(stack) - len(turns)]
    meet = all(_same(step.anchor, turns[0].anchor) for step in turns)
    if any(step.kind != "slide" for step in slides) or any(step.kind != "hinge" for step in stack[len(slides) :]):
        return None
    for one, other in itertools.permutations(directions, 2) if meet else ():
        for x, z in ((one, other), (one, np.cross(one, other)), (np.cross(one, other), other)):
            columns = np.stack([x, np.cross(z, x), z])
            found = [[c for c in range(3) if _same(columns[c], way)] for way in directions]
            if abs(x @ z) > _SMALL or not all(found):
                continue
            number = [c for (c,) in found]
            of_turns = number[len(slides) :]
            if of_turns == sorted(set(of_turns)) and len(set(number[: len(slides)])) == len(slides):
                names = [COORDINATES[c if i < len(slides) else 3 + c] for i, c in enumerate(number)]
                return _Kind("generic", (turns or slides)[0].anchor, tuple(names), columns=columns)
    return None


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.abs(a - b).max() < _SMALL)


def _list_stack(source: Source, b: int, stack: list[_Step]) -> _Kind:
    """Say that a stack is no joint here. Three turns about one point are nearly a ball; other stacks are held fast."""
    kinds = ", ".join(step.kind for step in stack)
    what = f"body '{source.name('body', b)}'"
    cure = "Put a body with a small mass between them, so that each has joints of its own."
    meet = all(_same(step.anchor, stack[0].anchor) for step in stack)
    ball = [step.kind for step in stack] == ["hinge"] * 3 and meet
    instead = "a ball joint stands for them" if ball else "it is held fast instead"
    source.report.add(what, f"its joints ({kinds}) are together no joint that is known here; {instead}", cure)
    return _Kind("ball" if ball else "fixed", stack[0].anchor, (None,) * len(stack))


def _joint(source: Source, b: int, kind: _Kind, zero: Pose) -> dict[str, Any]:
    parent, child = source.bodies[source.model.body_parentid[b]].owner, source.bodies[b].owner
    return {
        "type": kind.type,
        "parent": parent,
        "child": child,
        "at": numbers(zero.apply(kind.point)),
        "child_at": numbers(kind.point),
        "rotation": rotation_vector(zero.rotation),
    }


def _along(source: Source, j: int) -> dict[str, Any]:
    """Friction, spring, armature and limits of a hinge or slide."""
    model, dof, what = source.model, source.model.jnt_dofadr[j], f"joint '{source.name('joint', j)}'"
    damping, armature = float(model.dof_damping[dof]), float(model.dof_armature[dof])
    for a, gear in geared(source, j):
        damping += gear**2 * float(getattr(model, "actuator_damping", np.zeros(a + 1))[a])
        armature += gear**2 * float(getattr(model, "actuator_armature", np.zeros(a + 1))[a])
        if source.optional("actuator_dampingpoly", a):
            source.report.add(what, "an actuator's damping that is not linear is not known here", "Set it to 0.")
    if source.optional("jnt_stiffnesspoly", j) or source.optional("dof_dampingpoly", dof):
        cure = "Give `stiffness` and `damping` one number each."
        source.report.add(what, "a spring or damping that is not linear is not known here", cure)
    if source.optional("jnt_springyield", j):
        source.report.add(what, "a spring that yields is not known here", "Set `springyield` to 0.")
    dry = 0.0 if source.off("FRICTIONLOSS") or source.off("CONSTRAINT") else float(model.dof_frictionloss[dof])
    friction = {"viscous": 0.0 if source.off("DAMPER") else damping, "coulomb": dry}
    found: dict[str, Any] = {"armature": armature, "friction": friction}
    if model.jnt_stiffness[j] != 0 and not source.off("SPRING"):
        rest = float(model.qpos_spring[model.jnt_qposadr[j]])
        found["spring"] = {"stiffness": float(model.jnt_stiffness[j]), "rest": rest}
    if model.jnt_limited[j] and not source.off("LIMIT") and not source.off("CONSTRAINT"):
        lower, upper = (float(end) for end in model.jnt_range[j])
        found["limits"] = {"lower": lower, "upper": upper}
    return found


def _about_ball(source: Source, j: int) -> dict[str, Any]:
    """Friction, spring and rotor of a ball joint."""
    found = _along(source, j)
    spring, given = found.get("spring"), source.model.qpos_spring[source.model.jnt_qposadr[j] :][:4]
    what = f"joint '{source.name('joint', j)}'"
    if found.pop("limits", None):
        cure = "Delete `range`, or make the joint of hinges and bodies between them."
        source.report.add(what, "a ball joint takes no `range` here", cure)
    if spring:
        del spring["rest"]
        if not _same(np.abs(given), np.eye(4)[0]):
            source.report.add(what, "a ball joint's spring is relaxed where it is at zero here", "Set its `ref` so.")
    return found


def _list_unsaid(source: Source, j: int, joint: str) -> None:
    """What a ball or free joint of the model has and the scene's has not."""
    model, dof = source.model, source.model.jnt_dofadr[j]
    has = {
        "damping": model.dof_damping[dof] != 0 and not source.off("DAMPER"),
        "frictionloss": model.dof_frictionloss[dof] != 0,
        "armature": model.dof_armature[dof] != 0,
        "stiffness": model.jnt_stiffness[j] != 0 and not source.off("SPRING"),
        "range": bool(model.jnt_limited[j]) and not source.off("LIMIT"),
    }
    for key, given in has.items():
        if given:
            cure = f"Delete `{key}`, or make the joint of hinges and bodies between them."
            source.report.add(f"joint '{source.name('joint', j)}'", f"{joint} takes no `{key}` here", cure)


def _name(names: list[str]) -> str:
    """Name of a stack: what its names have in front of a dot, if that is the same for all, or all of them."""
    fronts = {name.rpartition(".")[0] or name for name in names}
    return fronts.pop() if len(names) > 1 and len(fronts) == 1 else "-".join(names)
