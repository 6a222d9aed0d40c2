"""The numbers of a scene put into the MJCF or URDF file that it came from."""

import os
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree as Xml

import numpy as np

from spookax.mjcf.compiler import compiled, mujoco_module
from spookax.mjcf.drives import geared, output
from spookax.mjcf.exporting import law, turned_gravity
from spookax.mjcf.importing import checked, scene_data
from spookax.mjcf.missing import Report
from spookax.mjcf.source import Source, part, total
from spookax.scene import FileProblem, Scene, numeric_paths, with_numbers
from spookax.scene.parts import Along, Body, Coupling, Joint, Motor

_EQUAL = 1e-9  # numbers that differ by less, relative to the larger of them and 1e-6, have not changed
_ARRIVED = 1e-6  # of the number, or of the trace of its inertia: what MuJoCo's principal axes, and its six digits, keep


def update_mjcf(
    original: str | os.PathLike[str], scene: Scene, file: str | os.PathLike[str], allow_missing: bool = False
) -> tuple[FileProblem, ...]:
    """Write the original file again with the numbers of `scene`, which was imported from it and identified since.

    Masses, inertias, joints' friction, springs, armature and limits, couplings, motors, noise, gravity and step are put
    in their places; everything else of the file stays: contacts, tendons, cameras. What is written is MJCF as MuJoCo
    writes it, without comments and in one file. Needs the extra `mjcf`.

    **Arguments:**

    - `scene`: with the names that `import_mjcf` gave; a body that was made of several is changed in the one that moves.
    - `allow_missing`: write the file without the numbers that have no place in it, instead of raising.

    **Returns:** the numbers of the scene that are not in the new file; empty unless allowed.

    **Raises:** `MjcfError` with one problem for each number that does not arrive, unless allowed; also for what
    `import_mjcf` raises for whatever is allowed. `OSError` if the file cannot be written.
    """
    report = Report(original)
    mujoco = mujoco_module(report)
    source = Source(mujoco, compiled(mujoco, original, report), Report(original))
    before = checked(scene_data(source), report)
    spec = mujoco.MjSpec.from_file(os.fspath(original))
    spec.compile()  # numbers its elements as the model does
    places = _Places(mujoco, spec, source, before, scene)
    places.put_all()
    try:
        after = checked(scene_data(Source(mujoco, spec.compile(), Report(original))), report)
    except ValueError as failed:
        words = " ".join(str(failed).split())
        raise report.refuse("", f"MuJoCo refuses the new numbers: {words}", "Check the scene.") from None
    found = _numbers(after)
    for path, value in _changed(before, scene).items():
        body, scale = path.rpartition(".inertia.")[0], abs(value)
        if body:
            scale = float(np.trace(scene.bodies[body.partition(".")[2]].inertia.matrix()))
        if path not in found or abs(found[path] - value) > _ARRIVED * max(scale, 1e-6):
            cure = "Change it in the file by hand, or write the scene as a new file."
            report.add(path, f"{value:g} has no place of its own in the file", cure)
    missing = report.settle(allow_missing)
    Path(file).write_text(_moved(spec, Path(original), Path(file)), encoding="utf-8")
    return missing


def _moved(spec: Any, original: Path, file: Path) -> str:
    """The text of a specification, whose meshes and textures are still found if the new file is in another folder."""
    text: str = spec.to_xml()
    here, there = original.absolute().parent, file.absolute().parent
    if here == there:
        return text
    root = Xml.fromstring(text)
    settings = root.find("compiler")
    if settings is None:
        settings = Xml.Element("compiler")
        root.insert(0, settings)
    for key in ("meshdir", "texturedir"):
        settings.set(key, Path(os.path.relpath(here / getattr(spec, key), there)).as_posix())
    return Xml.tostring(root, encoding="unicode") + "\n"


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= _EQUAL * max(abs(a), abs(b), 1e-6)


def _numbers(scene: Scene) -> dict[str, float]:
    """Every number of a scene that a file can hold, by path."""
    noise = {f"sensors.{name}.sd": sensor.sd for name, sensor in scene.sensors.items()}
    return {**numeric_paths(scene), **noise, "step": scene.step}


def _changed(before: Scene, scene: Scene) -> dict[str, float]:
    """Numbers of the scene that the original has not; a tilt counts as gravity, as in MJCF."""
    if any(scene.tilt):
        x, y, z = turned_gravity(scene)
        turned = {"tilt.x": 0.0, "tilt.y": 0.0, "gravity.x": x, "gravity.y": y, "gravity.z": z}
        scene = with_numbers(scene, turned)
    old, new = _numbers(before), _numbers(scene)
    idle = {
        f"{path.removesuffix('excess')}{key}"
        for path, value in new.items()
        for key in ("speed", "exponent")
        if path.endswith("stribeck.excess") and value == 0
    }
    return {path: value for path, value in new.items() if path not in idle and not _same(old.get(path, np.nan), value)}


class _Places:
    """The places of a scene's numbers in MuJoCo's specification of a file."""

    def __init__(self, mujoco: ModuleType, spec: Any, source: Source, before: Scene, scene: Scene):
        self.mujoco, self.spec, self.source, self.before, self.scene = mujoco, spec, source, before, scene
        self.changed = _changed(before, scene)

    def put_all(self) -> None:
        option, scene = self.spec.option, self.scene
        option.timestep = scene.step
        if self._touched("gravity."):
            option.gravity = turned_gravity(scene)
        for body in self.spec.bodies:
            carried = self.source.bodies[body.id]
            if carried.root and carried.owner in scene.bodies and self._touched(f"bodies.{carried.owner}."):
                self._body(body, scene.bodies[carried.owner])
        for joint in self.spec.joints:
            path = self.source.axes.get(joint.id) or self.source.balls.get(joint.id, "")
            name, _, axis = path.partition(".")
            if name in scene.joints and self._touched(f"joints.{name}."):
                self._joint(joint, scene.joints[name].along(axis))
        for equality in self.spec.equalities:
            name = self.source.loops.get(equality.id, "")
            if name in scene.couplings:
                self._coupling(equality, scene.couplings[name])
        for actuator in self.spec.actuators:
            name = self.source.motors.get(actuator.id, "")
            if name in scene.motors and self._touched(f"motors.{name}."):
                self._motor(actuator, scene.motors[name])
        for sensor in self.spec.sensors:
            name = self.source.sensors.get(sensor.id, "")
            if self._touched(f"sensors.{name}.sd"):
                sensor.noise = scene.sensors[name].sd

    def _touched(self, prefix: str) -> bool:
        return any(path.startswith(prefix) for path in self.changed)

    def _body(self, body: Any, new: Body) -> None:
        """The whole less the parts that are welded to the body, which stay as they are; in the body's own frame."""
        pose = self.source.bodies[body.id].pose
        owner = self.source.bodies[body.id].owner
        parts = [(new.mass, np.array(new.com), new.inertia.matrix())]
        for b, carried in enumerate(self.source.bodies):
            if carried.owner == owner and b != body.id:
                mass, com, inertia = part(self.source, b)
                parts.append((-mass, com, -inertia))
        own = total(parts)
        if own["mass"] <= 0:
            return  # found missing afterwards
        components = own["inertia"]
        matrix = np.array([[components["".join(sorted(i + j))] for j in "xyz"] for i in "xyz"])
        turned = pose.rotation.T @ matrix @ pose.rotation
        if np.linalg.eigvalsh(turned)[0] <= 0:
            return
        body.explicitinertial = True
        body.mass, body.ipos, body.iquat = own["mass"], pose.inverse().apply(own["com"]), (1.0, 0.0, 0.0, 0.0)
        body.ialt.type = self.mujoco.mjtOrientation.mjORIENTATION_QUAT
        body.inertia = (0.0, 0.0, 0.0)  # what stood there as moments; the full matrix takes its place
        body.fullinertia = [turned[i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))]

    def _joint(self, joint: Any, along: Joint | Along) -> None:
        model, own = self.source.model, joint.id
        turns = self.source.is_a(joint.type, "mjJNT_HINGE")
        unit = 180 / np.pi if turns and self.spec.compiler.degree else 1.0
        damping, armature = along.friction.viscous, along.armature
        for a, gear in geared(self.source, own):  # what an actuator adds stays its own
            damping -= gear**2 * float(getattr(model, "actuator_damping", np.zeros(a + 1))[a])
            armature -= gear**2 * float(getattr(model, "actuator_armature", np.zeros(a + 1))[a])
        joint.springdamper = (0.0, 0.0)
        _set_first(joint, "damping", max(damping, 0.0))
        _set_first(joint, "stiffness", along.spring.stiffness)
        joint.armature, joint.frictionloss = max(armature, 0.0), along.friction.coulomb
        if along.spring.stiffness and joint.id in self.source.axes:
            joint.springref = along.spring.rest * unit
        lower, upper = along.limits.lower, along.limits.upper
        if model.jnt_limited[own] and lower is not None and upper is not None:
            joint.range = (lower * unit, upper * unit)

    def _coupling(self, equality: Any, new: Coupling) -> None:
        model = self.source.model
        driven, driver = (
            float(model.qpos0[model.jnt_qposadr[j]])
            for j in (model.eq_obj1id[equality.id], model.eq_obj2id[equality.id])
        )
        equality.data[0], equality.data[1] = new.offset - driven + new.ratio * driver, new.ratio

    def _motor(self, actuator: Any, new: Motor) -> None:
        """The law of `drives` turned round: what the joint feels, divided by the gear."""
        gear = float(self.source.model.actuator_gear[output(self.source, actuator.id)][0])
        gain, stiffness, damping = law(new)
        actuator.gainprm[0] = gain / gear
        if stiffness or damping or new.bias:
            actuator.biastype = self.mujoco.mjtBias.mjBIAS_AFFINE
        actuator.biasprm[:3] = (new.bias / gear, -stiffness / gear**2, -damping / gear**2)
        if new.max_force is not None:
            most = new.max_force / abs(gear)
            actuator.forcelimited, actuator.forcerange = self.mujoco.mjtLimited.mjLIMITED_TRUE, (-most, most)


def _set_first(element: Any, key: str, value: float) -> None:
    """Set a coefficient that newer versions of MuJoCo hold as the first of several."""
    if isinstance(getattr(element, key), np.ndarray):
        getattr(element, key)[0] = value
    else:
        setattr(element, key, value)
