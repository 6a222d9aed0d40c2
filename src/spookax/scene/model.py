"""A scene as a pydantic model, the mirror of its file."""

from typing import Any

import pydantic
from pydantic import Field

from spookax.scene.contacts import Contacts
from spookax.scene.explain import refuse
from spookax.scene.fields import AxisName, Name, NonNegative, Pair, Positive, Strict, Text, Vector, Version
from spookax.scene.joint_types import OWN_KEYS, FreeAxis, free_axes
from spookax.scene.parts import Body, Coupling, Initial, Joint, Motor, Sensor, UserRow
from spookax.scene.rules import scene_rules


class Regularisation(Strict):
    """How stiff joints are and how fast their errors decay."""

    relative_compliance: Positive = Field(
        default=1e-6, description="Compliance of every joint row, relative to its own mobility (no unit)"
    )
    relaxation_steps: NonNegative = Field(
        default=2.0, description="Time steps in which a joint error decays: 2 robust, 1 slightly more accurate (steps)"
    )
    v_creep: Positive = Field(default=1e-6, description="Largest creep of a joint that friction holds [rad/s or m/s]")


class Scene(Strict):
    """A mechanism: what a scene file says, with every default filled in."""

    spookax: Version = Field(description="Version of the format, 1")
    name: Text = Field(default="scene", description="Name of the mechanism. In a file: that of the file, if left out")
    step: Positive = Field(default=0.005, description="Time step h [s]")
    gravity: Vector = Field(default=(0.0, 0.0, -9.81), description="Gravity in world axes, three numbers [m/s^2]")
    tilt: Pair = Field(
        default=(0.0, 0.0),
        description="Tilt of the base, two numbers: rotation about world x, then about world y [rad]",
    )
    regularisation: Regularisation = Field(
        default_factory=Regularisation, description="Compliance and relaxation of joints"
    )
    bodies: dict[Name, Body] = Field(description="Bodies by name", min_length=1)
    joints: dict[Name, Joint] = Field(default_factory=dict, description="Joints by name")
    couplings: dict[Name, Coupling] = Field(
        default_factory=dict, description="Gears, racks and belts between axes of joints, by name"
    )
    motors: dict[Name, Motor] = Field(default_factory=dict, description="Motors by name")
    sensors: dict[Name, Sensor] = Field(default_factory=dict, description="Sensors by name")
    initial: dict[AxisName, Initial] = Field(
        default_factory=dict, description="Joint positions and rates at t = 0, by the name of the joint or `joint.axis`"
    )
    contacts: Contacts | None = Field(default=None, description="Surfaces that touch, and their materials")
    rows: dict[Name, UserRow] = Field(default_factory=dict, description="Rows of the user's own, by name")

    @pydantic.model_validator(mode="after")
    def _rules(self) -> "Scene":
        refuse(scene_rules(self.model_dump(exclude_unset=True)))
        return self

    def plain(self) -> dict[str, Any]:
        """The scene as dictionaries, tuples, text and numbers, without keys that the format refuses."""
        data = self.model_dump(exclude_none=True)
        for name, joint in data["joints"].items():
            keys = self.joints[name].kind.all_keys
            for key in OWN_KEYS:
                if key not in keys:
                    joint.pop(key, None)
        return data

    def adrift(self) -> list[str]:
        """Bodies that no joints hold to the world, directly or through others."""
        held = {"world"}
        for _ in self.joints:
            held |= {end for j in self.joints.values() if held & {j.parent, j.child} for end in (j.parent, j.child)}
        return [name for name in self.bodies if name not in held]

    def free_axes(self) -> dict[str, FreeAxis]:
        """Every free coordinate of a joint under the name that files call it by: `joint` or `joint.axis`."""
        return {path: axis for path, _, axis in free_axes({n: j.kind for n, j in self.joints.items()})}


def json_schema() -> dict[str, Any]:
    """The JSON Schema of scene files, for editors that complete and check them."""
    schema = Scene.model_json_schema()
    title = "spookax scene, format version 1"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": title}
