"""What a `System` is made of: joints, axes, couplings, motors, sensors, without their numbers."""

import dataclasses
import enum

from ..scene.joint_types import JointKind

WORLD = -1


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

    `kind`, `column` and `other` as in `spookax.scene.joint_types.FreeAxis`; `name`: the joint's, or `joint.axis`.
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


class BoxKind(enum.Enum):
    """Who gives the numbers of a row with bounds, see `constraints.boxes`."""

    friction = "friction"
    lower = "lower"  # stops
    upper = "upper"
    motor = "motor"
    element = "element"
    own = "own"


@dataclasses.dataclass(frozen=True)
class BoxRow:
    """A row with bounds, along a line of `System`: an axis, or a line of a row of one's own.

    `number`: of the motor, or of the row in `System.bounded`.
    """

    line: int
    kind: BoxKind
    number: int = -1


@dataclasses.dataclass(frozen=True)
class Following:
    """A row with bounds, its number in `System.boxes`, whose level grows with the size of some impulses of a
    constraint node: `rows` as in the step matrix, those of the node and then of its lines (`System.rows_of_lines`)."""

    box: int
    node: int
    rows: tuple[int, ...]


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
    """A sensor: `type` joint_position, joint_rate (of an axis), body_pose, point_position, contact_force (of a body).

    `cyclic`: periods of an encoder's cyclic error per turn (hinge) or per metre (prismatic joint). `delayed`: its
    readings may be old. `surfaces`, `against`: those that feel a force of contact, and from which; `in_body`: in axes
    of the body.
    """

    name: str
    type: str
    target: int
    cyclic: tuple[float, ...] = ()
    delayed: bool = False
    surfaces: tuple[int, ...] = ()
    against: tuple[int, ...] = ()
    in_body: bool = False

    @property
    def size(self) -> int:
        sizes = {"joint_position": 1, "joint_rate": 1, "body_pose": 6, "point_position": 3, "contact_force": 3}
        return sizes[self.type]
