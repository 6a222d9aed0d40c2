"""The static half of a mechanism: names, connections and the elimination order. Changing it recompiles."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..math.block_sparse import Pattern, symbolic
from ..scene.kinds import KINDS

WORLD = -1


@dataclasses.dataclass(frozen=True)
class Joint:
    """A joint between two bodies; `parent` is `WORLD` or a body number."""

    name: str
    type: str
    parent: int
    child: int

    @property
    def num_rows(self) -> int:
        return len(KINDS[self.type].lengths)


@dataclasses.dataclass(frozen=True)
class Axis:
    """A free coordinate of a joint: where springs, friction, motors, couplings and sensors act.

    `kind` and `column` as in `spookax.scene.kinds.FreeAxis`; `name`: the joint's, or `joint.axis`.
    """

    joint: int
    name: str
    kind: str
    column: int
    friction: bool  # has a dry-friction row in the MLCP

    @property
    def rotational(self) -> bool:
        return self.kind != "slide"


@dataclasses.dataclass(frozen=True)
class Coupling:
    """A row that lets the axis `driven` move by `ratio * per` times the axis `driver`; `path` is that of the ratio."""

    name: str
    driver: int
    driven: int
    path: str
    per: float = 1.0


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
    couplings: tuple[Coupling, ...]
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

    def axis_of(self, name: str) -> int:
        """Number of the axis called `joint`, or `joint.axis` of a joint with several; KeyError with the known names."""
        return _find(self.axes, name, "axis")

    def axis_names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    def ends(self, axis: int) -> tuple[int, int]:
        """Parent and child of an axis' joint."""
        joint = self.joints[self.axes[axis].joint]
        return joint.parent, joint.child

    def axis_ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Parents and children of all axes, as indices."""
        ends = np.array([self.ends(i) for i in range(len(self.axes))], dtype=int).reshape(-1, 2)
        return ends[:, 0], ends[:, 1]

    def coupled_bodies(self, coupling: Coupling) -> tuple[int, ...]:
        """Bodies that a coupling acts on, the world left out."""
        return tuple(sorted({*self.ends(coupling.driver), *self.ends(coupling.driven)} - {WORLD}))

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
    """Joints of a breadth-first spanning tree from the world, in the order in which they reach new bodies.

    Joints that leave most of a body free carry it only if no other does.
    """
    reached, tree = {WORLD}, []

    def reach(loosest: int) -> bool:
        grew = False
        for j, joint in enumerate(joints):
            if joint.num_rows >= loosest and (joint.parent in reached) != (joint.child in reached):
                reached.update((joint.parent, joint.child))
                tree.append(j)
                grew = True
        return grew

    while len(reached) <= num_bodies:
        if not (reach(3) or reach(1)):  # a free group: root it at its first body
            reached.add(next(b for b in range(num_bodies) if b not in reached))
    return tuple(tree)


def saddle_pattern(
    num_bodies: int,
    joints: tuple[Joint, ...],
    axes: tuple[Axis, ...],
    couplings: tuple[Coupling, ...],
    constraints: tuple[Any, ...],
    bodies: Mapping[str, int],
    tree: tuple[int, ...],
) -> Pattern:
    """Block pattern of [D -A^T; A S]: nodes are bodies (6), joints, couplings and user rows, eliminated leaves to root.

    A tree joint follows directly after the body that it connects outward; loop-closing joints and other rows come
    last, when every body is gone, because the pivot of a constraint node needs the bodies it acts on eliminated.
    """
    sizes = [6] * num_bodies + [j.num_rows for j in joints] + [1] * len(couplings) + [c.num_rows for c in constraints]
    edges: set[tuple[int, int]] = set()
    for j, joint in enumerate(joints):
        for body in (joint.parent, joint.child):
            if body != WORLD:
                edges.add((num_bodies + j, body))
    for axis in axes:
        joint = joints[axis.joint]
        if joint.parent != WORLD:
            edges.add((joint.parent, joint.child))
    for c, coupling in enumerate(couplings):
        for axis in (axes[coupling.driver], axes[coupling.driven]):
            for body in (joints[axis.joint].parent, joints[axis.joint].child):
                if body != WORLD:
                    edges.add((num_bodies + len(joints) + c, body))
    for c, constraint in enumerate(constraints):
        for name in constraint.bodies:
            if name != "world":
                edges.add((num_bodies + len(joints) + len(couplings) + c, bodies[name]))

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
