"""The parts of a scene: bodies, joints, motors, sensors and what they consist of.

Where a unit depends on the joint, the first is that of a turning axis and the second that of a sliding one.
"""

import math
from typing import Annotated, Any, Literal

import numpy as np
import pydantic
from pydantic import Field

from spookax.scene.explain import Cure, Finding, refuse
from spookax.scene.fields import AxisName, Direction, Name, NonNegative, Number, Positive, Strict, Text, Vector
from spookax.scene.friction import Air, Friction
from spookax.scene.inertia import Inertia, flaws, from_matrix
from spookax.scene.joint_types import KINDS, JointKind, generic
from spookax.scene.rules import DC_CONSTANTS, body_rules, motor_rules
from spookax.scene.shapes import Shape, combine, solid

ZERO = (0.0, 0.0, 0.0)


def _follows() -> Any:
    """Stands for a value that a validator works out from others before anybody sees it."""
    return None


def _settle(part: Strict, **values: Any) -> None:
    """Replace fields of a part that is being validated; a field set to None counts as not given."""
    for key, value in values.items():
        object.__setattr__(part, key, value)
        (part.model_fields_set.discard if value is None else part.model_fields_set.add)(key)


class Start(Strict):
    """Where a body that no joint ties to the world is at t = 0, and how it moves."""

    position: Vector = Field(default=ZERO, description="Origin of its frame in the world, three numbers [m]")
    rotation: Vector = Field(default=ZERO, description="Orientation in the world, a rotation vector [rad]")
    velocity: Vector = Field(default=ZERO, description="Velocity of its origin in world axes, three numbers [m/s]")
    angular_velocity: Vector = Field(default=ZERO, description="In its own axes, three numbers [rad/s]")


class Body(Strict):
    """A rigid body: `mass`, `com` and `inertia`, or `density` and `shapes`, from which they are computed."""

    model_config = pydantic.ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["mass", "inertia"]}, {"required": ["density", "shapes"]}]}
    )

    mass: Annotated[Positive, Cure("For an immovable body join it to the world with a joint of type `fixed`.")] = Field(
        default_factory=_follows, description="Mass [kg]"
    )
    com: Vector = Field(default_factory=lambda: ZERO, description="Centre of mass in body axes, three numbers [m]")
    inertia: Inertia = Field(
        default_factory=_follows, description="Inertia about the centre of mass in body axes [kg m^2]"
    )
    density: Positive | None = Field(
        default=None, description="Density of all shapes, instead of mass, com and inertia [kg/m^3]"
    )
    shapes: list[Shape] = Field(default_factory=list, description="Shapes, for looks and for `density`")
    air: Air = Field(default_factory=Air, description="Resistance of air to the body, of the world and not of a joint")
    initial: Start | None = Field(
        default=None, description="Pose and velocity at t = 0, of a body that no joint ties to the world"
    )

    @pydantic.model_validator(mode="after")
    def _from_density(self) -> "Body":
        refuse(body_rules({key: getattr(self, key) for key in self.model_fields_set}))
        if self.density is not None:
            mass, com, inertia = _from_shapes(self.density, self.shapes)
            _settle(self, mass=mass, com=com, inertia=inertia, density=None)
        return self


def _from_shapes(density: float, shapes: list[Shape]) -> tuple[float, Vector, Inertia]:
    """Mass [kg], centre of mass [m] and inertia about it [kg m^2] of shapes of one density [kg/m^3]."""
    solids, found = [], []
    for index, shape in enumerate(shapes):
        try:
            with np.errstate(all="ignore"):  # sizes beyond the range of floats are found below
                solids.append(solid(shape))
        except ValueError as failed:
            cure = "Repair the mesh, or give mass and inertia instead of density."
            found.append(Finding(("shapes", index), None, str(failed), cure))
    refuse(found)
    with np.errstate(all="ignore"):
        unit = combine(solids)
        mass, inertia = density * unit.volume, density * unit.inertia
    if not (math.isfinite(mass) and mass > 0 and np.all(np.isfinite(inertia))) or flaws(inertia):
        message = f"give with this density a mass of {mass:g} kg and an inertia that cannot be used"
        refuse([Finding(("shapes",), None, message, "Check the sizes, in metres, and the density.")])
    x, y, z = (float(value) for value in unit.centroid)
    return mass, (x, y, z), Inertia(**from_matrix(inertia))


class Spring(Strict):
    """A linear spring along the axis of a joint."""

    stiffness: NonNegative = Field(default=0.0, description="Stiffness [N m/rad or N/m]")
    rest: Number = Field(default=0.0, description="Where it is relaxed [rad or m]")


class Limits(Strict):
    """Stops at the ends of an axis."""

    lower: Number | None = Field(default=None, description="Smallest position [rad or m]")
    upper: Number | None = Field(default=None, description="Largest position [rad or m]")
    restitution: NonNegative = Field(
        default=0.0, le=1.0, description="Speed after an impact on a stop, relative to that before (no unit)"
    )
    relative_compliance: Positive | None = Field(
        default=None, description="Overrides regularisation.relative_compliance for these stops (no unit)"
    )
    relaxation_steps: NonNegative | None = Field(
        default=None, description="Overrides regularisation.relaxation_steps for these stops (steps)"
    )


class Along(Strict):
    """What acts along one of several coordinates of a joint."""

    friction: Friction = Field(default_factory=Friction, description="Friction along the axis")
    spring: Spring = Field(default_factory=Spring, description="Spring along the axis")
    armature: NonNegative = Field(default=0.0, description="Rotor inertia as felt at the joint [kg m^2 or kg]")
    limits: Limits = Field(default_factory=Limits, description="Stops along the axis")


class Row(Strict):
    """How firmly one row of a joint holds."""

    relative_compliance: Positive | None = Field(
        default=None, description="Overrides the joint's relative_compliance for this row (no unit)"
    )
    relaxation_steps: NonNegative | None = Field(
        default=None, description="Overrides the joint's relaxation_steps for this row (steps)"
    )


class Joint(Strict):
    """A joint between a parent and a child. The point `at` of the parent meets `child_at` of the child."""

    type: Literal[
        "hinge",
        "prismatic",
        "ball",
        "fixed",
        "cylindrical",
        "screw",
        "universal",
        "planar",
        "inline",
        "distance",
        "line",
        "generic",
        "rolling_sphere",
        "rolling_disc",
    ] = Field(description="Kind of joint")
    parent: Name = Field(default="world", description="Name of a body, or `world`")
    child: Name = Field(description="Name of a body")
    at: Vector = Field(default=ZERO, description="Joint point in the parent's frame, three numbers [m]")
    child_at: Vector = Field(default=ZERO, description="Joint point in the child's frame, three numbers [m]")
    axis: Direction = Field(
        default=(0.0, 0.0, 1.0),
        description="Axis of the joint in the parent's frame, three numbers; its length does not matter",
    )
    x_axis: Direction | None = Field(
        default=None,
        description="Second axis of a universal joint, x of a planar, generic or rolling one (the axle of a disc): "
        "perpendicular to `axis`, in the parent's frame at zero angles",
    )
    locked: list[Literal["x", "y", "z", "rx", "ry", "rz"]] = Field(
        default_factory=list,
        description="Coordinates of a `generic` joint that are not free: along x, y, z and about them, z along `axis`",
    )
    length: Positive | None = Field(default=None, description="Distance of the points of a `distance` joint [m]")
    radius: Positive | None = Field(
        default=None, description="Of a sphere or disc that rolls on the plane across `axis` through `at` [m]"
    )
    pitch: Number | None = Field(default=None, description="How far a screw moves in a turn; negative: left-handed [m]")
    rotation: Vector = Field(
        default=ZERO,
        description="Orientation of the child in the parent at zero angle, a rotation vector [rad]",
    )
    friction: Friction = Field(default_factory=Friction, description="Friction along the axis")
    spring: Spring = Field(default_factory=Spring, description="Spring along the axis")
    armature: NonNegative = Field(default=0.0, description="Rotor inertia as felt at the joint [kg m^2 or kg]")
    limits: Limits = Field(default_factory=Limits, description="Stops along the axis")
    axes: dict[Name, Along] = Field(
        default_factory=dict, description="Friction, spring, armature and limits of a joint with several axes, by name"
    )
    relative_compliance: Positive | None = Field(
        default=None, description="Overrides regularisation.relative_compliance for this joint (no unit)"
    )
    relaxation_steps: NonNegative | None = Field(
        default=None, description="Overrides regularisation.relaxation_steps for this joint (steps)"
    )
    rows: dict[Name, Row] = Field(
        default_factory=dict,
        description="Compliance and relaxation of single rows, by what they hold: x, y, z, rx, ry, rz of the joint "
        "frame, or length",
    )

    @pydantic.model_validator(mode="after")
    def _every_axis(self) -> "Joint":
        names = [axis.name for axis in self.kind.axes if axis.name]
        if names and not self.kind.isotropic:
            missing = {name: Along() for name in names if name not in self.axes}
            _settle(self, axes={**self.axes, **missing})
        return self

    @property
    def kind(self) -> JointKind:
        """Rows and axes."""
        return generic(self.locked) if self.type == "generic" else KINDS[self.type]

    def along(self, axis: str) -> "Joint | Along":
        """What holds friction, spring, armature and limits of an axis: the joint itself unless it has several."""
        return self.axes[axis] if axis and not self.kind.isotropic else self


class Coupling(Strict):
    """Gears, racks and belts: position of `driven` = `ratio` * position of `driver` + `offset`."""

    driver: AxisName = Field(description="Name of a joint with one axis, or `joint.axis`")
    driven: AxisName = Field(description="Name of a joint with one axis, or `joint.axis`")
    ratio: Number = Field(description="Motion of `driven` per motion of `driver` [rad/rad, m/rad, rad/m or m/m]")
    offset: Number = Field(default=0.0, description="Position of `driven` where `driver` is at zero [rad or m]")
    relative_compliance: Positive | None = Field(
        default=None, description="Overrides regularisation.relative_compliance for this coupling (no unit)"
    )
    relaxation_steps: NonNegative | None = Field(
        default=None, description="Overrides regularisation.relaxation_steps for this coupling (steps)"
    )


class Harmonic(Strict):
    """One period of something that repeats with a joint's position: `cos * cos(phase) + sin * sin(phase)`."""

    order: Positive = Field(description="Periods per turn of a hinge or metre of a prismatic joint (no unit or 1/m)")
    cos: Number = Field(default=0.0, description="Amplitude of the cosine, in the unit of what repeats")
    sin: Number = Field(default=0.0, description="Amplitude of the sine, in the unit of what repeats")


class _Motor(Strict):
    joint: AxisName = Field(description="Name of a joint with one axis, or `joint.axis`")
    bias: Number = Field(default=0.0, description="Constant that is added to torque or force [N m or N]")
    cogging: list[Harmonic] = Field(
        default_factory=list, description="Torque or force that repeats with the joint's position"
    )
    max_force: Positive | None = Field(
        default=None, description="Largest torque or force of the drive, before `bias` and cogging [N m or N]"
    )
    delay: NonNegative = Field(default=0.0, description="How much later than given its input acts [s]")


class TorqueMotor(_Motor):
    """A motor whose torque (force on a prismatic joint) is `gain * u + bias`."""

    type: Literal["torque"] = Field(description="torque = gain * u + bias")
    gain: Number = Field(default=1.0, description="Torque per unit of input [N m/u or N/u]")


class DCMotor(_Motor):
    """A DC motor driven by a voltage u: torque = `gain * u - back_emf * rate + bias`.

    In a file also `torque_constant` K_t, `back_emf_constant` K_e and `resistance` R, from which
    gain = K_t / R and back_emf = K_t K_e / R follow.
    """

    model_config = pydantic.ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["gain", "back_emf"]}, {"required": list(DC_CONSTANTS)}]}
    )

    type: Literal["dc"] = Field(description="torque = gain * u - back_emf * rate + bias")
    gain: Number = Field(default_factory=_follows, description="Torque per volt [N m/V or N/V]")
    back_emf: NonNegative = Field(default_factory=_follows, description="Braking by back-EMF [N m s/rad or N s/m]")
    torque_constant: Number | None = Field(default=None, description="K_t [N m/A]")
    back_emf_constant: Number | None = Field(default=None, description="K_e, of the sign of K_t [V s/rad]")
    resistance: Positive | None = Field(default=None, description="R of the winding [ohm]")

    @pydantic.model_validator(mode="after")
    def _from_constants(self) -> "DCMotor":
        refuse(motor_rules({key: getattr(self, key) for key in self.model_fields_set}))
        k_t, k_e, resistance = self.torque_constant, self.back_emf_constant, self.resistance
        if k_t is not None and k_e is not None and resistance is not None:
            if k_t * k_e < 0:
                cure = "Give both the same sign; a motor brakes itself."
                refuse([Finding(("back_emf_constant",), k_e, "has not the sign of torque_constant", cure)])
            constants = dict.fromkeys(DC_CONSTANTS)
            _settle(self, gain=k_t / resistance, back_emf=k_t * k_e / resistance, **constants)
        return self


class VelocityMotor(_Motor):
    """A drive that holds a rate u: torque = `damping` * (u - rate), at most `max_force`."""

    type: Literal["velocity"] = Field(description="torque = damping * (u - rate)")
    damping: NonNegative = Field(description="Torque per error of the rate [N m s/rad or N s/m]")


class PositionMotor(_Motor):
    """A servo that holds a position u: torque = `stiffness` * (u - position) - `damping` * rate.

    With `max_force` at most that.
    """

    type: Literal["position"] = Field(description="torque = stiffness * (u - position) - damping * rate")
    stiffness: NonNegative = Field(description="Torque per error of the position [N m/rad or N/m]")
    damping: NonNegative = Field(default=0.0, description="Torque against the rate [N m s/rad or N s/m]")


Motor = Annotated[TorqueMotor | DCMotor | VelocityMotor | PositionMotor, Field(discriminator="type")]


class _Sensor(Strict):
    sd: Positive = Field(default=1e-3, description="Standard deviation of the noise of each number, in its unit")
    delay: NonNegative = Field(default=0.0, description="How old its readings are [s]")


class JointPosition(_Sensor):
    """An encoder: reads the joint's angle or displacement plus `offset` and `cyclic_error`."""

    type: Literal["joint_position"] = Field(description="Angle or displacement of a joint, plus offset")
    joint: AxisName = Field(description="Name of a joint with one axis, or `joint.axis`")
    offset: Number = Field(default=0.0, description="Zero offset [rad or m]")
    cyclic_error: list[Harmonic] = Field(
        default_factory=list, description="Error that repeats with the joint's position [rad or m]"
    )


class JointRate(_Sensor):
    """A tachometer: reads the joint's rate."""

    type: Literal["joint_rate"] = Field(description="Rate of a joint")
    joint: AxisName = Field(description="Name of a joint with one axis, or `joint.axis`")


class BodyPose(_Sensor):
    """Motion capture: reads a body frame's position and rotation vector in the world."""

    type: Literal["body_pose"] = Field(description="Position (3) [m] and rotation vector (3) [rad] of a body")
    body: Name = Field(description="Name of a body")


class PointPosition(_Sensor):
    """A marker: reads the world position of a point of a body."""

    type: Literal["point_position"] = Field(description="Position of a point of a body in world axes (3) [m]")
    body: Name = Field(description="Name of a body")
    at: Vector = Field(default=ZERO, description="The point in body axes, three numbers [m]")


class ContactForce(_Sensor):
    """A force plate or a foot's sensor: reads what presses on a surface, or on a body, and the friction there."""

    type: Literal["contact_force"] = Field(description="Force of contacts on a surface or a body (3) [N]")
    sd: Positive = Field(default=0.1, description="Standard deviation of the noise of each number [N]")
    surface: Name | None = Field(default=None, description="Name of a surface that feels it")
    body: Name | None = Field(default=None, description="Name of a body instead, whose surfaces all feel it")
    against: Name | None = Field(default=None, description="Surface that presses on it, if not all that may")
    axes: Literal["world", "body"] = Field(
        default="world", description="Axes of the three numbers: the world's, or those of the body that feels it"
    )


Sensor = Annotated[JointPosition | JointRate | BodyPose | PointPosition | ContactForce, Field(discriminator="type")]


class Initial(Strict):
    """State of a joint at t = 0."""

    position: Number = Field(default=0.0, description="Position [rad or m]")
    rate: Number = Field(default=0.0, description="Rate [rad/s or m/s]")


class UserRow(Strict):
    """A row of the user's own: its class under the name by which it is registered, and the numbers of the row."""

    model_config = pydantic.ConfigDict(extra="allow", frozen=True)

    type: Text = Field(description="Registered name of the class")
    bodies: tuple[Text, ...] | None = Field(
        default=None, description="Bodies that it acts on; those of the class if left out"
    )
    follows: tuple[Text, ...] | None = Field(
        default=None,
        description="What the limits of a bounded row follow: `rows.NAME`, or the force across an axis, `joints.NAME`",
    )
