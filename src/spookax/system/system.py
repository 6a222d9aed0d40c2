"""The static half of a mechanism: names, connections and the elimination order. Changing it recompiles."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..math.block_sparse import Pattern, symbolic

WORLD = -1
ROWS = {"fixed": 6, "hinge": 5, "prismatic": 5, "ball": 3}


@dataclasses.dataclass(frozen=True)
class Joint:
    """A joint between two bodies; `parent` is `WORLD` or a body number."""

    name: str
    type: str
    parent: int
    child: int

    @property
    def num_rows(self) -> int:
        return ROWS[self.type]


@dataclasses.dataclass(frozen=True)
class Axis:
    """The free coordinate of a hinge or prismatic joint: where springs, friction, motors and sensors act."""

    joint: int
    rotational: bool
    friction: bool  # has a dry-friction row in the MLCP


@dataclasses.dataclass(frozen=True)
class Motor:
    """A motor on an axis; `cogging`: periods of its cogging per turn (hinge) or per metre (prismatic joint)."""

    name: str
    axis: int
    cogging: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True)
class Sensor:
    """A sensor: `type` joint_position, joint_rate (of an axis), body_pose, point_position (of a body).

    `cyclic`: periods of an encoder's cyclic error per turn (hinge) or per metre (prismatic joint).
    """

    name: str
    type: str
    target: int
    cyclic: tuple[float, ...] = ()

    @property
    def size(self) -> int:
        return {"joint_position": 1, "joint_rate": 1, "body_pose": 6, "point_position": 3}[self.type]


@dataclasses.dataclass(frozen=True)
class System:
    """Bodies, joints, axes, motors, sensors and user rows of one mechanism, without any number that may change.

    Hashable: it is a static argument of compiled functions.
    """

    bodies: tuple[str, ...]
    joints: tuple[Joint, ...]
    axes: tuple[Axis, ...]
    motors: tuple[Motor, ...]
    sensors: tuple[Sensor, ...]
    constraints: tuple[Any, ...]  # the user's rows: see `spookax.constraints.custom`
    tree: tuple[int, ...]  # joint numbers that connect each body to the root, in order from the root
    pattern: Pattern

    @property
    def num_bodies(self) -> int:
        return len(self.bodies)

    @property
    def cogging(self) -> tuple[tuple[int, float], ...]:
        """(motor, order) of every period of every motor's cogging, as in `Params.cogging`."""
        return tuple((m, order) for m, motor in enumerate(self.motors) for order in motor.cogging)

    @property
    def cyclic(self) -> tuple[tuple[int, float], ...]:
        """(sensor, order) of every period of every encoder's cyclic error, as in `Params.cyclic`."""
        return tuple((s, order) for s, sensor in enumerate(self.sensors) for order in sensor.cyclic)

    @property
    def friction_axes(self) -> tuple[int, ...]:
        return tuple(i for i, axis in enumerate(self.axes) if axis.friction)

    def joint_index(self, name: str) -> int:
        """Number of the joint called `name`; raises KeyError with the known names."""
        return _find(self.joints, name, "joint")

    def axis_of(self, joint_name: str) -> int:
        """Number of the axis of a hinge or prismatic joint."""
        j = self.joint_index(joint_name)
        for i, axis in enumerate(self.axes):
            if axis.joint == j:
                return i
        raise KeyError(f"joint '{joint_name}' is a {self.joints[j].type} joint and has no single free axis")

    def axis_names(self) -> tuple[str, ...]:
        return tuple(self.joints[axis.joint].name for axis in self.axes)

    def motor_index(self, name: str) -> int:
        return _find(self.motors, name, "motor")

    def sensor_index(self, name: str) -> int:
        return _find(self.sensors, name, "sensor")


def _find(items: tuple[Any, ...], name: str, kind: str) -> int:
    for i, item in enumerate(items):
        if item.name == name:
            return i
    known = ", ".join(item.name for item in items) or "none"
    raise KeyError(f"no {kind} called '{name}'; known: {known}")


def spanning_tree(num_bodies: int, joints: tuple[Joint, ...]) -> tuple[int, ...]:
    """Joints of a breadth-first spanning tree from the world, in the order in which they reach new bodies."""
    reached, tree = {WORLD}, []
    grew = True
    while grew:
        grew = False
        for j, joint in enumerate(joints):
            if (joint.parent in reached) != (joint.child in reached):
                reached |= {joint.parent, joint.child}
                tree.append(j)
                grew = True
        if not grew and len(reached) <= num_bodies:  # a free group: root it at its first body
            rest = [b for b in range(num_bodies) if b not in reached]
            if rest:
                reached.add(rest[0])
                grew = True
    return tuple(tree)


def saddle_pattern(
    num_bodies: int,
    joints: tuple[Joint, ...],
    axes: tuple[Axis, ...],
    constraints: tuple[Any, ...],
    bodies: Mapping[str, int],
    tree: tuple[int, ...],
) -> Pattern:
    """Block pattern of [D -A^T; A S]: nodes are bodies (6), joints and user rows, eliminated leaves to root.

    A tree joint follows directly after the body that it connects outward; loop-closing joints and user rows come
    last, when every body is gone, because the pivot of a constraint node needs the bodies it acts on eliminated.
    """
    sizes = [6] * num_bodies + [j.num_rows for j in joints] + [c.num_rows for c in constraints]
    edges: set[tuple[int, int]] = set()
    for j, joint in enumerate(joints):
        for body in (joint.parent, joint.child):
            if body != WORLD:
                edges.add((num_bodies + j, body))
    for axis in axes:
        joint = joints[axis.joint]
        if joint.parent != WORLD:
            edges.add((joint.parent, joint.child))
    for c, constraint in enumerate(constraints):
        for name in constraint.bodies:
            if name != "world":
                edges.add((num_bodies + len(joints) + c, bodies[name]))

    outward: dict[int, int] = {}  # body -> tree joint that carries it
    reached = {WORLD}
    for j in tree:
        joint = joints[j]
        body = joint.parent if joint.child in reached else joint.child
        if joint.parent not in reached and joint.child not in reached:  # root of a free group
            reached.add(joint.parent)
            body = joint.child
        reached.add(body)
        outward[body] = j
    order: list[int] = []
    roots = [b for b in range(num_bodies) if b not in outward]
    for body in reversed(list(outward)):
        order += [body, num_bodies + outward[body]]
    order += roots
    order += [i for i in range(len(sizes)) if i not in set(order)]
    return symbolic(tuple(sizes), edges, tuple(order))
