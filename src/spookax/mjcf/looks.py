"""Geoms of a compiled model as shapes of a scene."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from spookax.mjcf.frame_poses import Pose, numbers, rotation_vector
from spookax.mjcf.source import WORLD, Source

_SHOWN_GROUPS = 3  # MuJoCo's viewers hide the groups after these, which hold what is meant for collisions
_UNSET = np.array([0.5, 0.5, 0.5, 1.0], dtype=np.float32)  # rgba of a geom that leaves it to its material


def read_shapes(source: Source, touching: bool) -> dict[str, list[dict[str, Any]]]:
    """Shapes of every body of the scene. Geoms that nobody sees (hidden group, transparent) are left out.

    `touching`: whether the scene has surfaces that touch, which are drawn on the world.
    """
    model, report = source.model, source.report
    shapes: dict[str, list[dict[str, Any]]] = {}
    on_world = 0
    for g in range(model.ngeom):
        carried, rgba = source.bodies[model.geom_bodyid[g]], _rgba(source, g)
        if model.geom_group[g] >= _SHOWN_GROUPS or rgba[3] == 0:
            continue
        if carried.owner == WORLD:
            on_world += 1
            continue
        shape = _shape(source, g, f"geom '{source.name('geom', g)}'")
        if shape:
            pose = carried.pose @ shape.pop("pose")
            red, green, blue = (round(255 * float(np.clip(value, 0, 1))) for value in rgba[:3])
            shape |= {"at": numbers(pose.at), "rotation": rotation_vector(pose.rotation)}
            shape |= {"colour": f"#{red:02x}{green:02x}{blue:02x}"}
            shapes.setdefault(carried.owner, []).append(shape)
    if on_world and not touching:
        report.add("geoms", f"{on_world} on the world are not shown: the world has no shapes here", "Delete them.")
    return shapes


def _rgba(source: Source, g: int) -> np.ndarray:
    own, material = source.model.geom_rgba[g], source.model.geom_matid[g]
    return source.model.mat_rgba[material] if material >= 0 and np.array_equal(own, _UNSET) else own


def _shape(source: Source, g: int, what: str) -> dict[str, Any] | None:
    kind, pose = int(source.model.geom_type[g]), source.geom_pose(g)
    if (found := primitive(source, g)) is not None:
        return {**found, "pose": pose}
    if source.is_a(kind, "mjGEOM_MESH"):
        return mesh(source, g, what, "shown")
    name = source.mujoco.mjtGeom(kind).name.removeprefix("mjGEOM_").lower()
    source.report.add(what, f"there is no shape `{name}` here; it is not shown", "Use another shape for looks.")
    return None


def primitive(source: Source, g: int) -> dict[str, Any] | None:
    """Type and size of a geom that is a box, sphere, cylinder or capsule; nothing for others."""
    kind, size = int(source.model.geom_type[g]), [float(value) for value in source.model.geom_size[g]]
    if source.is_a(kind, "mjGEOM_BOX"):
        return {"type": "box", "size": [2 * half for half in size]}
    if source.is_a(kind, "mjGEOM_SPHERE"):
        return {"type": "sphere", "radius": size[0]}
    for constant, name in (("mjGEOM_CYLINDER", "cylinder"), ("mjGEOM_CAPSULE", "capsule")):
        if source.is_a(kind, constant):
            return {"type": name, "radius": size[0], "length": 2 * size[1]}
    return None


def mesh(source: Source, g: int, what: str, verb: str) -> dict[str, Any] | None:
    """The file of a geom that is a mesh, and its pose in the body; listed as not `verb` where there is none.

    MuJoCo moves vertices to their own frame of inertia, which is undone by the pose.
    """
    model, report, m = source.model, source.report, int(source.model.geom_dataid[g])
    named = bytes(model.paths)[model.mesh_pathadr[m] :].split(b"\0")[0].decode() if model.mesh_pathadr[m] >= 0 else ""
    scale = np.asarray(model.mesh_scale[m], dtype=float)
    if not named:
        report.add(what, f"its mesh comes from no file; it is not {verb}", "Save the mesh as a file.")
    elif not np.allclose(scale, scale[0], rtol=1e-9) or scale[0] <= 0:
        report.add(what, f"its mesh has another scale for each axis; it is not {verb}", "Scale the file itself.")
    else:
        file = next((path for path in _candidates(source, named) if path.is_file()), None)
        if file is not None and file.suffix.lower() != ".msh":
            own = Pose.of(model.mesh_pos[m], model.mesh_quat[m]).inverse()
            file_name = os.path.abspath(file)
            pose = source.geom_pose(g) @ own
            return {"type": "mesh", "file": file_name, "scale": float(scale[0]), "pose": pose}
        report.add(what, f"its mesh {named} cannot be {verb}", "Give an STL or OBJ file beside the model.")
    return None


def _candidates(source: Source, named: str) -> list[Path]:
    """Where a mesh may lie: as named, or beside the model."""
    folder = Path(source.report.file).parent
    return [folder / named, folder / "meshes" / named, folder / Path(named).name, Path(named)]
