"""The static half of a mechanism: names, connections and the elimination order. Changing it recompiles."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..math.block_sparse import Pattern
from .contact_pairs import NO_CONTACTS, Contacts
from .cycles import on_cycles
from .followed import followed
from .pattern import node_width
from .topology import WORLD, Axis, BoxKind, BoxRow, Coupling, Element, Following, Joint, Motor, Network, Sensor


@dataclasses.dataclass(frozen=True)
class System:
    """Bodies, joints, axes, motors, sensors and user rows of one mechanism, without any number that may change.

    Hashable: it is a static argument of compiled functions. Rows with bounds act along lines: the axes, then one for
    every row of `bounded`.
    """

    bodies: tuple[str, ...]
    joints: tuple[Joint, ...]
    axes: tuple[Axis, ...]
    couplings: tuple[Coupling, ...]
    motors: tuple[Motor, ...]
    sensors: tuple[Sensor, ...]
    constraints: tuple[Any, ...]  # the user's rows without bounds: see `spookax.constraints.custom`
    tree: tuple[int, ...]  # joint numbers that connect each body to the root, in order from the root
    pattern: Pattern
    networks: tuple[Network, ...] = ()
    elements: tuple[Element, ...] = ()
    contacts: Contacts = NO_CONTACTS
    history: int = 0  # commands of earlier steps that a state keeps, for motors with a delay
    bounded: tuple[Any, ...] = ()  # the user's rows with bounds
    air: tuple[int, ...] = ()  # bodies that air resists

    @property
    def num_bodies(self) -> int:
        return len(self.bodies)

    @functools.cached_property
    def force_sensors(self) -> tuple[int, ...]:
        """Numbers of the sensors of contact forces."""
        return tuple(i for i, sensor in enumerate(self.sensors) if sensor.type == "contact_force")

    @functools.cached_property
    def node_rows(self) -> tuple[int, ...]:
        """Rows of every constraint node: joints, couplings, user rows; none in those of rows with bounds."""
        return (
            *(j.num_rows for j in self.joints),
            *(1 for _ in self.couplings),
            *(c.num_rows for c in self.constraints),
            *(0 for _ in self.bounded),
        )

    @functools.cached_property
    def rows_of_lines(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """(row, line) of the lines of every constraint node: rows that follow its own in the step matrix.

        The axes of a joint are in its node, the lines of a user row with bounds in one without rows of its own.
        """
        owners = [axis.joint for axis in self.axes] + [self.first_bounded + b for b, _ in self.own_lines]
        numbers = _groups(owners, len(self.node_rows))
        return tuple(tuple(enumerate(mine, self.node_rows[node])) for node, mine in enumerate(numbers))

    @property
    def first_bounded(self) -> int:
        """Number of the first constraint node of a user row with bounds."""
        return len(self.joints) + len(self.couplings) + len(self.constraints)

    @functools.cached_property
    def own_lines(self) -> tuple[tuple[int, int], ...]:
        """(number in `bounded`, row of it) of the lines that follow the axes."""
        return tuple((b, row) for b, own in enumerate(self.bounded) for row in range(own.num_rows))

    @property
    def num_lines(self) -> int:
        """Lines along which rows with bounds act: axes, and those of the user's own."""
        return len(self.axes) + len(self.own_lines)

    @property
    def own_rows(self) -> tuple[Any, ...]:
        """The user's rows, those without bounds first."""
        return (*self.constraints, *self.bounded)

    @functools.cached_property
    def row_numbers(self) -> tuple[tuple[int, str], ...]:
        """(number in `own_rows`, key) of every number of the user's rows, as in `Params.row_numbers`."""
        return tuple((i, key) for i, row in enumerate(self.own_rows) for key in row.defaults())

    @functools.cached_property
    def own_sides(self) -> tuple[tuple[int, int], ...]:
        """(own line, body) of every Jacobian row of the user's rows with bounds, the world left out."""
        return tuple(
            (line, self.bodies.index(name))
            for line, (b, _) in enumerate(self.own_lines)
            for name in self.bounded[b].bodies
            if name != "world"
        )

    @functools.cached_property
    def width(self) -> int:
        """Rows of the largest constraint node with its axes; the arrays of all nodes are filled up to it."""
        return node_width(self.joints, self.couplings, self.own_rows)

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
        groups += [set[int]() for _ in self.bounded]
        return np.array(on_cycles(groups), dtype=bool)

    @functools.cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """(constraint node, body) of every Jacobian: children of joints, their parents, couplings, user rows; at last
        those that are only followed (`num_followed_edges`), with a Jacobian of zeros.
        """
        jacobians = self._jacobians
        followed = [(f.node, body) for f in self.following for body in self.bodies_of(self.box_lines[f.box])]
        return (*jacobians, *dict.fromkeys(edge for edge in followed if edge not in jacobians))

    @property
    def num_followed_edges(self) -> int:
        """Edges between a body on which a row with bounds acts and a node that this row only follows."""
        return len(self.edges) - len(self._jacobians)

    @functools.cached_property
    def _jacobians(self) -> tuple[tuple[int, int], ...]:
        first = len(self.joints)
        children = [(j, joint.child) for j, joint in enumerate(self.joints)]
        parents = [(j, joint.parent) for j, joint in enumerate(self.joints) if joint.parent != WORLD]
        coupled = [(first + c, b) for c, x in enumerate(self.couplings) for b in self.coupled_bodies(x)]
        first += len(self.couplings)
        own = [
            (first + c, self.bodies.index(name))
            for c, row in enumerate(self.own_rows)
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

    @property
    def dependent(self) -> bool:
        """Whether joints close loops, or couplings do, so that some axes follow from others."""
        return len(self.tree) < len(self.joints) or bool(self.couplings)

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
        elasto-slide elements, the user's own.
        """
        friction = (BoxRow(i, BoxKind.friction) for i in self.friction_axes)
        stops = (BoxRow(i, BoxKind(stop)) for i, axis in enumerate(self.axes) for stop in axis.stops)
        motors = (
            BoxRow(motor.axis, BoxKind.motor, m)
            for m, motor in enumerate(self.motors)
            if motor.bounded and motor.type != "torque"
        )
        elements = (BoxRow(element.axis, BoxKind.element) for element in self.elements)
        own = (BoxRow(line, BoxKind.own, b) for line, (b, _) in enumerate(self.own_lines, len(self.axes)))
        return (*friction, *stops, *motors, *elements, *own)

    def boxes_of(self, *kinds: BoxKind) -> np.ndarray:
        """Numbers of the rows with bounds of some kinds."""
        return np.array([i for i, row in enumerate(self.boxes) if row.kind in kinds], dtype=int)

    @functools.cached_property
    def box_lines(self) -> tuple[int, ...]:
        """Line of every row with bounds."""
        return tuple(row.line for row in self.boxes)

    @functools.cached_property
    def boxes_of_line(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the rows with bounds along every line."""
        return _groups(self.box_lines, self.num_lines)

    @property
    def bearings(self) -> tuple[int, ...]:
        """The axes whose dry friction grows with the force in the joint."""
        return tuple(i for i in self.friction_axes if self.axes[i].bearing)

    @functools.cached_property
    def following(self) -> tuple[Following, ...]:
        """What levels of rows with bounds depend on: those of `bearings`, then those of the user's rows, line by line.

        A row that is followed follows none.
        """
        friction = self.friction_axes
        bearings = (Following(friction.index(i), self.axes[i].joint, self.axes[i].bearing) for i in self.bearings)
        parts = self.joints, len(self.couplings), self.constraints, self.bounded
        own = (
            Following(box, *followed(place, *parts))
            for box, (b, _) in zip(self.boxes_of(BoxKind.own).tolist(), self.own_lines, strict=True)
            for place in self.bounded[b].follows
        )
        return (*bearings, *own)

    @functools.cached_property
    def discs(self) -> tuple[tuple[int, int], ...]:
        """Rows with bounds that are bounded together, by their numbers: dry friction of both slides of a joint.

        Where it is another one backward, or only one grows with the force in the joint, each is by itself.
        """
        friction, found = self.friction_axes, []
        for joint in range(len(self.joints)):
            slides = [i for i, axis in enumerate(self.axes) if axis.joint == joint and axis.kind == "slide"]
            rough = [self.axes[i] for i in slides if i in friction and not self.axes[i].backward]
            if len(slides) == len(rough) == 2 and bool(rough[0].bearing) == bool(rough[1].bearing):
                found.append((friction.index(slides[0]), friction.index(slides[1])))
        return tuple(found)

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

    def bodies_of(self, line: int) -> tuple[int, ...]:
        """Bodies on which a line acts, the world left out."""
        if line < len(self.axes):
            return tuple(body for body in self.ends(line) if body != WORLD)
        return tuple(body for own, body in self.own_sides if own == line - len(self.axes))

    def side(self, line: int, body: int) -> int:
        """Place of the Jacobian of a line and one of its bodies among those of all axes' parents, of their children,
        and of `own_sides`."""
        count = len(self.axes)
        if line < count:
            return line + count * (body == self.ends(line)[1])
        return 2 * count + self.own_sides.index((line - count, body))

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
