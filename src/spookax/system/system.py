"""The static half of a mechanism: names, connections and the elimination order. Changing it recompiles."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..math.block_sparse import Pattern, symbolic
from ..scene.kinds import JointKind
from .contacts import NO_CONTACTS, Contacts
from .cycles import on_cycles

WORLD = -1
_MANY = 8  # bodies from which on the step is factored in levels


@dataclasses.dataclass(frozen=True)
class Joint:
    """A joint between two bodies; `parent` is `WORLD` or a body number."""

    name: str
    kind: JointKind
    parent: int
    child: int

    @property
    def num_rows(self) -> int:
        return len(self.kind.lengths)

    def place(self, axis: str) -> str:
        """Where in a scene the numbers of one of the joint's axes are, by the axis' name."""
        return f"joints.{self.name if self.kind.isotropic else axis.replace('.', '.axes.')}"


@dataclasses.dataclass(frozen=True)
class Axis:
    """A free coordinate of a joint: where springs, friction, limits, motors, couplings and sensors act.

    `kind`, `column` and `other` as in `spookax.scene.kinds.FreeAxis`; `name`: the joint's, or `joint.axis`.
    """

    joint: int
    name: str
    kind: str
    column: int
    other: int
    friction: bool  # has a dry-friction row in the MLCP
    bearing: tuple[int, ...] = ()  # rows of the joint whose force adds to that friction
    stops: tuple[str, ...] = ()  # of "lower" and "upper" those that it has
    bends: bool = False  # has a rotor, and a rate row that changes along the motion
    bounces: bool = False  # impacts on its stops are elastic in part
    drags: bool = False  # has quadratic drag
    backward: bool = False  # its dry friction is another one backward than forward

    @property
    def rotational(self) -> bool:
        return self.kind not in ("slide", "distance")

    @property
    def takes_rotor(self) -> bool:
        """Whether its armature may be changed from what it was built with."""
        return self.bends or self.kind == "turn"

    @property
    def turns(self) -> bool:
        """Whether the position is an angle that counts full turns."""
        return self.rotational and self.kind != "spin"


@dataclasses.dataclass(frozen=True)
class Network:
    """Learned dry friction of some axes that share it; `place`: of its numbers in the scene.

    `sees`: besides the speed; `sizes`: inputs, hidden units, 1; `begin`, `end`: of its weights in `Params.weights`.
    """

    place: str
    axes: tuple[int, ...]
    sees: tuple[str, ...]
    sizes: tuple[int, ...]
    begin: int
    end: int


@dataclasses.dataclass(frozen=True)
class Element:
    """An elasto-slide element on an axis; `place`: of its numbers in the scene, which several axes may share."""

    place: str
    axis: int


@dataclasses.dataclass(frozen=True)
class BoxRow:
    """A row of the MLCP on an axis; `kind`: friction, lower, upper (stops), motor, with its number, or element."""

    axis: int
    kind: str
    motor: int = -1


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
    """A motor on an axis; `cogging`: periods of its cogging per turn (hinge) or per metre (prismatic joint).

    `type`: torque, dc, velocity, position; `bounded`: its force has a largest value.
    """

    name: str
    axis: int
    type: str = "torque"
    bounded: bool = False
    cogging: tuple[float, ...] = ()

    @property
    def implicit(self) -> bool:
        """Whether its force depends on the new velocity and has no bound: it is in what is linear on the axis."""
        return self.type != "torque" and not self.bounded


@dataclasses.dataclass(frozen=True)
class Sensor:
    """A sensor: `type` joint_position, joint_rate (of an axis), body_pose, point_position (of a body).

    `cyclic`: periods of an encoder's cyclic error per turn (hinge) or per metre (prismatic joint). `delayed`: its
    readings may be old.
    """

    name: str
    type: str
    target: int
    cyclic: tuple[float, ...] = ()
    delayed: bool = False

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
    networks: tuple[Network, ...] = ()
    elements: tuple[Element, ...] = ()
    contacts: Contacts = NO_CONTACTS
    history: int = 0  # commands of earlier steps that a state keeps, for motors with a delay

    @property
    def num_bodies(self) -> int:
        return len(self.bodies)

    @functools.cached_property
    def node_rows(self) -> tuple[int, ...]:
        """Rows of every constraint node: joints, couplings, user rows."""
        return (
            *(j.num_rows for j in self.joints),
            *(1 for _ in self.couplings),
            *(c.num_rows for c in self.constraints),
        )

    @functools.cached_property
    def rows_of_axes(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """(row, axis) of the free axes of every joint: rows that follow those of the joint in the step matrix."""
        numbers = _groups([axis.joint for axis in self.axes], len(self.joints))
        return tuple(tuple(enumerate(mine, self.joints[j].num_rows)) for j, mine in enumerate(numbers))

    @functools.cached_property
    def width(self) -> int:
        """Rows of the largest constraint node with its axes; the arrays of all nodes are filled up to it."""
        return node_width(self.joints, self.couplings, self.constraints)

    @functools.cached_property
    def filled(self) -> np.ndarray:
        """Which rows of the constraint nodes exist, (nodes, width)."""
        return np.arange(self.width) < np.array(self.node_rows, dtype=int).reshape(-1, 1)

    @functools.cached_property
    def holonomic(self) -> np.ndarray:
        """Which rows of the constraint nodes bind positions (the others bind velocities), (nodes, width)."""
        out = np.ones((len(self.node_rows), self.width), dtype=bool)
        for j, joint in enumerate(self.joints):
            out[j, : joint.num_rows] = joint.kind.holonomic
        for c, row in enumerate(self.constraints, len(self.joints) + len(self.couplings)):
            out[c] = row.holonomic
        return out

    @functools.cached_property
    def in_loops(self) -> np.ndarray:
        """Constraint nodes whose bodies, the world among them, are connected without them, too; (nodes,)."""
        groups = [{joint.parent, joint.child} for joint in self.joints]
        groups += [{*self.ends(x.driver), *self.ends(x.driven)} for x in self.couplings]
        known = {name: i for i, name in enumerate(self.bodies)}
        groups += [{known.get(name, WORLD) for name in row.bodies} for row in self.constraints]
        return np.array(on_cycles(groups), dtype=bool)

    @functools.cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """(constraint node, body) of every Jacobian: children of joints, their parents, couplings, user rows."""
        first = len(self.joints)
        children = [(j, joint.child) for j, joint in enumerate(self.joints)]
        parents = [(j, joint.parent) for j, joint in enumerate(self.joints) if joint.parent != WORLD]
        coupled = [(first + c, b) for c, x in enumerate(self.couplings) for b in self.coupled_bodies(x)]
        first += len(self.couplings)
        own = [
            (first + c, self.bodies.index(name))
            for c, row in enumerate(self.constraints)
            for name in row.bodies
            if name != "world"
        ]
        return (*children, *parents, *coupled, *own)

    @functools.cached_property
    def edges_of_node(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the edges of every constraint node."""
        return _groups([node for node, _ in self.edges], len(self.node_rows))

    @functools.cached_property
    def edges_of_body(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the edges of every body."""
        return _groups([body for _, body in self.edges], self.num_bodies)

    @functools.cached_property
    def axes_of_body(self) -> tuple[tuple[int, ...], ...]:
        """Sides of axes on every body: i for the parent's side of axis i, i + (number of axes) for the child's."""
        parents, children = self.axis_ends()
        return _groups([*parents.tolist(), *children.tolist()], self.num_bodies)

    @functools.cached_property
    def roots(self) -> tuple[int, ...]:
        """Bodies from which the tree starts where nothing ties it to the world, those alone left out."""
        reached, roots = {WORLD}, []
        for j in self.tree:
            ends = {self.joints[j].parent, self.joints[j].child}
            if not ends & reached:
                roots.append(self.joints[j].parent)
            reached |= ends
        return tuple(roots)

    @functools.cached_property
    def rollers(self) -> tuple[int, ...]:
        """Bodies that roll on a plane, those of `roots` left out."""
        rolling = {joint.child for joint in self.joints if not all(joint.kind.holonomic)}
        return tuple(sorted(rolling - set(self.roots)))

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

    @functools.cached_property
    def boxes(self) -> tuple[BoxRow, ...]:
        """Rows with bounds of the step: dry friction, stops, motors whose force is bounded and depends on the rate,
        elasto-slide elements.
        """
        friction = (BoxRow(i, "friction") for i in self.friction_axes)
        stops = (BoxRow(i, stop) for i, axis in enumerate(self.axes) for stop in axis.stops)
        motors = (
            BoxRow(motor.axis, "motor", m)
            for m, motor in enumerate(self.motors)
            if motor.bounded and motor.type != "torque"
        )
        return (*friction, *stops, *motors, *(BoxRow(element.axis, "element") for element in self.elements))

    def boxes_of(self, *kinds: str) -> np.ndarray:
        """Numbers of the rows with bounds of some kinds."""
        return np.array([i for i, row in enumerate(self.boxes) if row.kind in kinds], dtype=int)

    @functools.cached_property
    def box_axes(self) -> tuple[int, ...]:
        return tuple(row.axis for row in self.boxes)

    @functools.cached_property
    def boxes_of_axis(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the rows with bounds on every axis."""
        return _groups(self.box_axes, len(self.axes))

    @property
    def bearings(self) -> tuple[int, ...]:
        """Numbers of the friction rows whose level grows with the force in the joint."""
        return tuple(i for i, axis in enumerate(self.friction_axes) if self.axes[axis].bearing)

    @property
    def backward_axes(self) -> tuple[int, ...]:
        """The axes whose dry friction depends on the sense of motion."""
        return tuple(i for i, axis in enumerate(self.axes) if axis.backward)

    @property
    def drags(self) -> bool:
        return any(axis.drags for axis in self.axes)

    @property
    def bounces(self) -> bool:
        return any(axis.bounces for axis in self.axes)

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


def _groups(owners: Sequence[int], count: int) -> tuple[tuple[int, ...], ...]:
    """Positions in `owners` of every number below `count`."""
    groups: list[list[int]] = [[] for _ in range(count)]
    for position, owner in enumerate(owners):
        if 0 <= owner < count:
            groups[owner].append(position)
    return tuple(map(tuple, groups))


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
        if not (reach(3) or reach(1) or reach(0)):  # a free group: root it at its first body
            reached.add(next(b for b in range(num_bodies) if b not in reached))
    return tuple(tree)


def node_width(joints: tuple[Joint, ...], couplings: tuple[Coupling, ...], constraints: tuple[Any, ...]) -> int:
    """Rows of the largest constraint node, those of a joint's free axes among them."""
    of_joints = [joint.num_rows + len(joint.kind.axes) for joint in joints]
    return max([*of_joints, *(1 for _ in couplings), *(row.num_rows for row in constraints)], default=1)


def saddle_pattern(
    num_bodies: int,
    joints: tuple[Joint, ...],
    axes: tuple[Axis, ...],
    couplings: tuple[Coupling, ...],
    constraints: tuple[Any, ...],
    bodies: Mapping[str, int],
    tree: tuple[int, ...],
    touching: set[tuple[int, int]],
) -> Pattern:
    """Block pattern of the step: nodes are bodies (6), then joints, couplings, user rows (one size for all). Bodies
    that may touch each other meet directly.

    The pivot of a constraint node needs a body that it acts on eliminated. A few bodies are eliminated from leaves to
    root: a tree joint directly after the body that it connects outward, loop-closing joints and other rows last, when
    every body is gone. Many bodies go in levels, as many at once as do not touch each other.
    """
    acts_on = [{joint.parent, joint.child} - {WORLD} for joint in joints]
    for coupling in couplings:
        ends = (joints[axes[a].joint] for a in (coupling.driver, coupling.driven))
        acts_on.append({body for joint in ends for body in (joint.parent, joint.child)} - {WORLD})
    acts_on += [{bodies[name] for name in row.bodies if name != "world"} for row in constraints]
    edges = {(num_bodies + node, body) for node, around in enumerate(acts_on) for body in around} | touching
    sizes = [6] * num_bodies + [node_width(joints, couplings, constraints)] * len(acts_on)
    if num_bodies > _MANY:
        return symbolic(sizes, edges, None, {num_bodies + node: around for node, around in enumerate(acts_on)})

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
    for body in reversed(list(outward)):
        order += [body, num_bodies + outward[body]]
    order += [b for b in range(num_bodies) if b not in outward]
    order += sorted(set(range(len(sizes))) - set(order))
    return symbolic(sizes, edges, order, {})
