"""Scenes as MJCF."""

import math
import os
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as Xml

import numpy as np

from spookax.mjcf.elements import placed, primitive, text
from spookax.mjcf.frame_poses import Pose, numbers, turned
from spookax.mjcf.geoms import write_surfaces
from spookax.mjcf.missing import Report
from spookax.mjcf.tree import (
    NO_JOINT,
    WORLD,
    Branch,
    Motion,
    branches,
    forward_motions,
    is_bare,
    used_joints,
    zero_pose,
)
from spookax.scene import FileProblem, Scene
from spookax.scene.friction import Air, Friction
from spookax.scene.inertia import COMPONENTS
from spookax.scene.parts import Body, Joint, Limits, Motor, Sensor
from spookax.scene.shapes import Shape

_CONSTRAINTS = ("ball", "hinge", "fixed")  # joints that equality constraints can say
_FAR = 1e10  # stands for a stop that is not there [rad or m]


def write_mjcf(scene: Scene, file: str | os.PathLike[str], allow_missing: bool = False) -> tuple[FileProblem, ...]:
    """Write a scene as an MJCF file. Bodies, joints, motors and sensors keep their names and their numbers.

    The file starts where the scene does (keyframe `initial`), unless loops or couplings decide about that. A joint that
    closes a loop becomes constraints, or holds a part of its child that is welded to the rest. MuJoCo is not needed.

    **Arguments:**

    - `allow_missing`: write a file without what MJCF cannot say, instead of raising.

    **Returns:** what is missing from the file; empty unless allowed.

    **Raises:** `MjcfError` with one problem for each thing of the scene that MJCF cannot say, unless allowed. `OSError`
    if the file cannot be written.
    """
    report = Report(file)
    writer = _Writer(scene, Path(file), report)
    writer.write()
    missing = report.settle(allow_missing)
    Xml.indent(writer.root)
    Path(file).write_text(Xml.tostring(writer.root, encoding="unicode") + "\n", encoding="utf-8")
    return missing


def turned_gravity(scene: Scene) -> tuple[float, float, float]:
    """Gravity seen from the tilted base, which the scene turns by R_y(tilt y) R_x(tilt x). [m/s^2]"""
    x, y = scene.tilt
    return numbers((turned((0, 1, 0), y) @ turned((1, 0, 0), x)).T @ np.array(scene.gravity))


class _Writer:
    """Builds the tree of XML elements; what cannot be said goes to the report."""

    def __init__(self, scene: Scene, file: Path, report: Report):
        self.scene, self.file, self.report = scene, file, report
        self.root = Xml.Element("mujoco", model=scene.name)
        Xml.SubElement(self.root, "compiler", angle="radian")
        Xml.SubElement(self.root, "option", timestep=text(scene.step), gravity=text(turned_gravity(scene)))
        self.asset, self.world = Xml.SubElement(self.root, "asset"), Xml.SubElement(self.root, "worldbody")
        self.equality, self.actuator = Xml.SubElement(self.root, "equality"), Xml.SubElement(self.root, "actuator")
        self.sensor = Xml.SubElement(self.root, "sensor")
        self.bodies: dict[str, Xml.Element] = {WORLD: self.world}
        self.axes: set[str] = set()  # axes of the scene that are joints in the file
        self.meshes: dict[tuple[str, float], str] = {}

    def write(self) -> None:
        nested, closing = branches(self.scene)
        used = used_joints(self.scene)
        connected = [n for n in closing if self.scene.joints[n].type in _CONSTRAINTS and is_bare(self.scene, n, used)]
        split = [n for n in closing if n not in connected and self.scene.joints[n].type not in NO_JOINT]
        parts = Counter(self.scene.joints[name].child for name in split)
        for branch in nested:
            self._body(branch, 1 + parts[branch.body])
        for name in closing:
            joint = self.scene.joints[name]
            if name in connected:
                self._connect(name, joint)
            elif name in split:
                self._split(name, joint, 1 + parts[joint.child])
            else:
                self.report.add(f"joints.{name}", f"MJCF has no {joint.type} joint", "Delete it.")
        for name, coupling in self.scene.couplings.items():
            if self._known(f"couplings.{name}", coupling.driver, coupling.driven):
                self._couple(name, coupling.driven, coupling.driver, coupling.offset, coupling.ratio)
        for name, motor in self.scene.motors.items():
            if self._known(f"motors.{name}", motor.joint):
                self._motor(name, motor)
        for name, sensor in self.scene.sensors.items():
            self._sensor(name, sensor)
        for name, row in self.scene.rows.items():
            self.report.add(f"rows.{name}", f"a row of one's own (`{row.type}`) has no MJCF", "Delete it.")
        if self.scene.contacts is not None:
            write_surfaces(self.scene, self.scene.contacts, self.bodies, self.root, self.asset, self.report)
        for name in (name for name, body in self.scene.bodies.items() if body.initial is not None):
            cure = "Delete `initial`, and set `qpos` of its free joint in a keyframe."
            self.report.add(f"bodies.{name}", "where a free body starts is not written to MJCF", cure)
        self._start(nested, closed=bool(closing or len(self.equality)))
        for element in (self.asset, self.equality, self.actuator, self.sensor):
            if not len(element):
                self.root.remove(element)

    def _body(self, branch: Branch, parts: int) -> None:
        element = Xml.SubElement(self.bodies[branch.inside], "body", {"name": branch.body, **placed(branch.pose)})
        self.bodies[branch.body] = element
        if branch.joint is None:
            Xml.SubElement(element, "freejoint")
        else:
            self._joints(element, branch.joint, branch.motions)
        if self.scene.bodies[branch.body].air != Air():
            message = "`air` is not written: the fluid of MuJoCo resists by its density and viscosity"
            self.report.add(f"bodies.{branch.body}", message, "Delete `air`.")
        self._inertial(element, branch.body, parts)
        self._shapes(element, branch.body, self.scene.bodies[branch.body])

    def _inertial(self, element: Xml.Element, name: str, parts: int) -> None:
        """One of several equal parts of a body."""
        body = self.scene.bodies[name]
        inertia = text([getattr(body.inertia, key) / parts for key in COMPONENTS])
        Xml.SubElement(element, "inertial", mass=text(body.mass / parts), pos=text(body.com), fullinertia=inertia)

    def _joints(self, element: Xml.Element, name: str, motions: tuple[Motion, ...]) -> None:
        for motion in motions:
            self._joint(element, motion, name if len(motions) == 1 else f"{name}.ball")
        if self.scene.joints[name].type == "screw":
            pitch = self.scene.joints[name].pitch or 0.0
            self._couple(f"{name}.pitch", f"{name}.slide", name, 0.0, pitch / (2 * math.pi))

    def _joint(self, element: Xml.Element, motion: Motion, ball: str) -> None:
        """`ball`: the name of a joint that is no axis of the scene."""
        place = {"type": motion.type, "pos": text(numbers(motion.anchor))}
        if motion.path is None or motion.along is None:
            Xml.SubElement(element, "joint", {"name": ball, **place})
            return
        along, said = motion.along, {"name": motion.path, **place}
        if motion.type != "ball":
            self.axes.add(motion.path)
            said["axis"] = text(numbers(motion.direction))
        friction, spring = along.friction, along.spring
        given = {"damping": friction.viscous, "frictionloss": friction.coulomb, "armature": along.armature}
        given |= {"stiffness": spring.stiffness, "springref": spring.rest if spring.stiffness else 0.0}
        said |= {key: text(value) for key, value in given.items() if value}
        if along.limits.lower is not None or along.limits.upper is not None:
            lower = -_FAR if along.limits.lower is None else along.limits.lower
            upper = _FAR if along.limits.upper is None else along.limits.upper
            said |= {"limited": "true", "range": text((lower, upper))}
        Xml.SubElement(element, "joint", said)
        self._unsaid(motion.path, friction, along.limits)

    def _unsaid(self, path: str, friction: Friction, limits: Limits) -> None:
        extra = {"stribeck": friction.stribeck.excess, "bearing": friction.bearing, "restitution": limits.restitution}
        for key, value in extra.items():
            if value:
                self.report.add(f"joints.{path}", f"MJCF has no `{key}`", f"Set `{key}` to 0.")
        if friction.backward != 1:
            self.report.add(f"joints.{path}", "MJCF has no `backward` of friction", "Set `backward` to 1.")
        if friction.drag:
            message = "`drag` is not written: only newer versions of MuJoCo know damping that is not linear"
            self.report.add(f"joints.{path}", message, "Set `drag` to 0.")
        for key in ("learned", "elements"):
            if getattr(friction, key):
                self.report.add(f"joints.{path}", f"MJCF has no `{key}` of friction", f"Delete `{key}`.")

    def _shapes(self, element: Xml.Element, name: str, body: Body) -> None:
        for index, shape in enumerate(body.shapes):
            size = self._size(shape, f"bodies.{name}.shapes[{index}]")
            if size:
                red, green, blue = (int(shape.colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
                looks = {"contype": "0", "conaffinity": "0", "rgba": text((red, green, blue, 1.0))}
                Xml.SubElement(element, "geom", {**size, **placed(Pose.placed(shape.at, shape.rotation)), **looks})

    def _size(self, shape: Shape, path: str) -> dict[str, str] | None:
        if shape.type != "mesh":
            return primitive(shape)
        if Path(shape.file).suffix.lower() not in (".stl", ".obj"):
            self.report.add(path, f"MuJoCo reads no {Path(shape.file).suffix} meshes", "Save it as STL or OBJ.")
            return None
        key = (shape.file, shape.scale)
        if key not in self.meshes:
            self.meshes[key] = f"mesh{len(self.meshes)}"
            file = Path(os.path.relpath(shape.file, os.path.abspath(self.file.parent))).as_posix()
            scale = text((shape.scale,) * 3)  # `shell`, so that an open mesh does for looks
            Xml.SubElement(self.asset, "mesh", name=self.meshes[key], file=file, scale=scale, inertia="shell")
        return {"type": "mesh", "mesh": self.meshes[key]}

    def _split(self, name: str, joint: Joint, parts: int) -> None:
        """A joint that closes a loop, to a part of its child that is welded to the rest: nothing of it is lost."""
        half = f"{joint.child}.{name}"
        element = Xml.SubElement(self.bodies[joint.parent], "body", {"name": half, **placed(zero_pose(joint))})
        self._joints(element, name, forward_motions(name, joint))
        self._inertial(element, joint.child, parts)
        same = text((0, 0, 0, 1, 0, 0, 0))
        Xml.SubElement(self.equality, "weld", name=half, body1=joint.child, body2=half, relpose=same)

    def _connect(self, name: str, joint: Joint) -> None:
        """A joint that closes a loop, as constraints on sites: a point (ball), two points (hinge), a pose (fixed)."""
        zero = zero_pose(joint)
        offsets = [np.zeros(3)]
        if joint.type == "hinge":  # a second point on the axis, as far as the joint is from the centres of mass
            ends = [(joint.parent, joint.at), (joint.child, joint.child_at)]
            arms = [np.linalg.norm(np.subtract(at, self.scene.bodies[b].com)) for b, at in ends if b != WORLD]
            offsets.append(float(max([*arms, 1e-3])) * np.array(joint.axis))
        taken = name in self.scene.couplings  # equalities, too, in the file
        for number, offset in enumerate(offsets):
            label = f"{name}.{number}" if number or taken else name
            pair = (f"{label}.parent", f"{label}.child")
            on_parent = Pose(zero.rotation, np.array(joint.at) + offset)
            on_child = Pose(np.eye(3), np.array(joint.child_at) + zero.rotation.T @ offset)
            Xml.SubElement(self.bodies[joint.parent], "site", {"name": pair[0], **placed(on_parent)})
            Xml.SubElement(self.bodies[joint.child], "site", {"name": pair[1], **placed(on_child)})
            tag = "weld" if joint.type == "fixed" else "connect"
            Xml.SubElement(self.equality, tag, name=label, site1=pair[0], site2=pair[1])

    def _couple(self, name: str, driven: str, driver: str, offset: float, ratio: float) -> None:
        law = text((offset, ratio, 0, 0, 0))
        Xml.SubElement(self.equality, "joint", name=name, joint1=driven, joint2=driver, polycoef=law)

    def _known(self, path: str, *axes: str) -> bool:
        lost = [axis for axis in axes if axis not in self.axes]
        for axis in lost:
            self.report.add(path, f"`{axis}` is no joint in MJCF", "Delete it.")
        return not lost

    def _motor(self, name: str, motor: Motor) -> None:
        gain, stiffness, damping = law(motor)
        said = {"gainprm": text(gain), "biastype": "affine", "biasprm": text((motor.bias, -stiffness, -damping))}
        if motor.max_force is not None:
            said |= {"forcelimited": "true", "forcerange": text((-motor.max_force, motor.max_force))}
            if motor.bias:
                cure = "Set one of the two to nothing."
                self.report.add(f"motors.{name}", "in MJCF `max_force` would bound `bias` too", cure)
        if any(harmonic.cos or harmonic.sin for harmonic in motor.cogging):
            self.report.add(f"motors.{name}", "MJCF has no `cogging`", "Delete it.")
        if motor.delay:
            self.report.add(f"motors.{name}", "`delay` is not written to MJCF", "Set it to 0, and delay the commands.")
        Xml.SubElement(self.actuator, "general", {"name": name, "joint": motor.joint, **said})

    def _sensor(self, name: str, sensor: Sensor) -> None:
        path, noise = f"sensors.{name}", text(sensor.sd)
        if sensor.delay:
            self.report.add(path, "`delay` is not written to MJCF", "Set it to 0, and delay the readings.")
        match sensor.type:
            case "joint_position" | "joint_rate":
                if not self._known(path, sensor.joint):
                    return
                tag = "jointpos" if sensor.type == "joint_position" else "jointvel"
                Xml.SubElement(self.sensor, tag, name=name, joint=sensor.joint, noise=noise)
                cyclic = sensor.cyclic_error if sensor.type == "joint_position" else []
                if sensor.type == "joint_position" and (sensor.offset or any(h.cos or h.sin for h in cyclic)):
                    cure = "Set them to 0, and correct the readings instead."
                    self.report.add(path, "MJCF has no `offset` and no `cyclic_error` of an encoder", cure)
            case "body_pose":
                for tag, end in (("framepos", "position"), ("framequat", "orientation")):
                    said = {"name": f"{name}.{end}", "objtype": "xbody", "objname": sensor.body, "noise": noise}
                    Xml.SubElement(self.sensor, tag, said)
            case "point_position":
                Xml.SubElement(self.bodies[sensor.body], "site", name=name, pos=text(sensor.at))
                Xml.SubElement(self.sensor, "framepos", name=name, objtype="site", objname=name, noise=noise)
            case "contact_force":  # MuJoCo's is that of the first on the second
                if sensor.axes == "body":
                    self.report.add(path, "MJCF reads forces of contacts in axes of the world", "Set `axes: world`.")
                    return
                said = {"geom1": sensor.against} if sensor.against else {}
                said |= {"geom2": sensor.surface} if sensor.surface else {"body2": str(sensor.body)}
                said |= {"num": "1", "reduce": "netforce", "data": "force", "noise": noise}
                Xml.SubElement(self.sensor, "contact", {"name": name, **said})

    def _start(self, nested: list[Branch], closed: bool) -> None:
        """The keyframe of the initial positions and rates."""
        started = {path: start for path, start in self.scene.initial.items() if start.position or start.rate}
        if not started:
            return
        if closed:
            cure = "Set `qpos` of the whole loop in a keyframe, and delete `initial`."
            self.report.add("initial", "loops and couplings decide where this scene starts, not joints alone", cure)
            return
        by_body = {branch.body: branch for branch in nested}
        position: list[float] = []
        rate: list[float] = []
        for element in self.world.iter("body"):
            branch = by_body[str(element.get("name"))]
            if branch.joint is None:
                position, rate = [*position, 0, 0, 0, 1, 0, 0, 0], [*rate, *[0.0] * 6]
            for motion in branch.motions:
                if motion.type == "ball":
                    if any(motion.path and path.startswith(f"{motion.path}.") for path in started):
                        cure = "Set its `qpos` in a keyframe, and delete these."
                        self.report.add("initial", f"where ball joint {motion.path} starts is not written", cure)
                    position, rate = [*position, 1, 0, 0, 0], [*rate, *[0.0] * 3]
                else:
                    start = started.get(motion.path or "")
                    position, rate = [*position, start.position if start else 0], [*rate, start.rate if start else 0]
        key = Xml.SubElement(self.root, "keyframe")
        Xml.SubElement(key, "key", name="initial", qpos=text(position), qvel=text(rate))


def law(motor: Motor) -> tuple[float, float, float]:
    """(gain, stiffness, damping) of a motor, whose torque or force is gain u - stiffness position - damping rate."""
    match motor.type:
        case "torque":
            return motor.gain, 0.0, 0.0
        case "dc":
            return motor.gain, 0.0, motor.back_emf
        case "velocity":
            return motor.damping, 0.0, motor.damping
        case "position":
            return motor.stiffness, motor.stiffness, motor.damping
