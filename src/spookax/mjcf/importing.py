"""MJCF and URDF files as scenes."""

import os
from dataclasses import dataclass
from typing import Any

from spookax.mjcf.compiler import Names, compiled, mujoco_module
from spookax.mjcf.drives import read_motors, read_sensors
from spookax.mjcf.frame_poses import numbers
from spookax.mjcf.joints import read_joints
from spookax.mjcf.looks import read_shapes
from spookax.mjcf.loops import read_loops
from spookax.mjcf.missing import MjcfError, Report
from spookax.mjcf.source import WORLD, Source, carry_bodies, list_bodies, masses
from spookax.mjcf.touching_geoms import read_contacts
from spookax.scene import FileProblem, Scene
from spookax.scene.located import Located, validate


@dataclass(frozen=True)
class Imported:
    """A scene from an MJCF or URDF file, and what of the file it does not say (empty unless allowed)."""

    scene: Scene
    missing: tuple[FileProblem, ...]


def import_mjcf(file: str | os.PathLike[str], allow_missing: bool = False) -> Imported:
    """Read an MJCF or URDF file by MuJoCo's compiler. Needs the extra `mjcf`.

    **Arguments:**

    - `file`: the file; meshes are looked for beside it.
    - `allow_missing`: return a scene without what a scene cannot say, instead of raising.

    **Returns:** the scene, whose joint positions are MuJoCo's `qpos` [rad or m], and what is missing from it.

    **Raises:** `MjcfError` with one problem for each thing of the file that a scene cannot say, unless allowed; also
    if MuJoCo is not installed, the file cannot be read or does not compile, or if nothing in it moves.
    """
    report = Report(file)
    mujoco = mujoco_module(report)
    data = scene_data(Source(mujoco, compiled(mujoco, file, report), report))
    missing = report.settle(allow_missing)
    return Imported(checked(data, report), missing)


def checked(data: dict[str, Any], report: Report) -> Scene:
    """Data as a scene.

    **Raises:** `MjcfError` if numbers of the model are none that a scene can have.
    """
    return validate(Located(report.file, data), Scene, MjcfError)


def scene_data(source: Source) -> dict[str, Any]:
    """The data of the scene that a compiled model is; what is missing goes to the report of `source`.

    **Raises:** `MjcfError` if nothing moves.
    """
    report, model, joint_names = source.report, source.model, Names()
    carry_bodies(source, Names((WORLD,)))
    bodies: dict[str, Any] = {name: {**body, "shapes": []} for name, body in masses(source).items()}
    if not bodies:
        raise report.refuse("", "nothing in it moves", "Give a body a joint.")
    joints, initial = read_joints(source, joint_names)
    closing, couplings = read_loops(source, joint_names)
    data = {
        "spookax": 1,
        "name": model_name(source) or "scene",
        "step": float(model.opt.timestep),
        "gravity": (0.0, 0.0, 0.0) if source.off("GRAVITY") else numbers(model.opt.gravity),
        "bodies": bodies,
        "joints": {**joints, **closing},
        "couplings": couplings,
        "motors": read_motors(source),
        "sensors": read_sensors(source),
        "initial": initial,
    }
    contacts = read_contacts(source, data["joints"])
    for owner, shapes in read_shapes(source, contacts is not None).items():
        bodies[owner]["shapes"] = shapes
    list_bodies(source)
    return data if contacts is None else data | {"contacts": contacts}


def model_name(source: Source) -> str:
    """Name of the model, as its first line says it."""
    return bytes(source.model.names).split(b"\0")[0].decode()
