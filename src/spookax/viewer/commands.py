"""Commands to meshcat's viewer that draw a scene and its motion.

They are the JSON form of what meshcat's server sends to browsers (set_object, set_transform, set_property,
set_animation). A page that carries them needs no server.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..scene import Scene
from ..scene.shapes import matrices
from .drawing import WORLD, Part, joint_points
from .poses import BodyPoses, pose_matrix
from .touching import Mark

Command = dict[str, Any]
_ROOT = "/scene"
_CAMERA = "/Cameras/default/rotated/<object>"
_VIEW = np.array([0.45, -1.0, 0.4])  # where the camera stands from the middle of the scene
_FIELD_OF_VIEW = 45.0  # [deg]


def commands(scene: Scene, parts: dict[str, list[Part]], poses: BodyPoses, marks: Sequence[Mark] = ()) -> list[Command]:
    """Draw the parts of every body at its first pose and marks beside them, and let both move if there are more."""
    return [
        *_surroundings(),
        _transform(_ROOT, _fit(scene, parts, poses)),
        *_objects(parts | {mark.name: mark.parts for mark in marks}),
        *_first_poses(poses, marks),
        *([_animation(poses, marks)] if poses.time.size > 1 else []),
    ]


def _surroundings() -> Iterator[Command]:
    for path in ("/Grid", "/Axes"):
        yield _property(path, "visible", False)
    yield _property("/Background", "top_color", [1.0, 1.0, 1.0])
    yield _property("/Background", "bottom_color", [0.88, 0.9, 0.93])
    distance = 1.0 / np.sin(np.radians(_FIELD_OF_VIEW / 2))
    x, y, z = distance * _VIEW / np.linalg.norm(_VIEW)
    yield _property(_CAMERA, "position", [x, z, -y])  # the camera's own axes have y up
    yield _property(_CAMERA, "fov", _FIELD_OF_VIEW)


def _fit(scene: Scene, parts: dict[str, list[Part]], poses: BodyPoses) -> np.ndarray:
    """Moves and scales the scene, wherever its bodies get, into a sphere of radius 1 about the origin.

    Camera, lights and clipping then suit a mechanism of any size.
    """
    R = matrices(poses.e_WB)
    reached = joint_points(scene, WORLD)
    for index, name in enumerate(poses.names):
        corners = np.concatenate([part.corners for part in parts[name]])
        points = np.einsum("nij,cj->nci", R[:, index], corners) + poses.p_WB[:, index, None]
        reached += [points.min(axis=(0, 1)), points.max(axis=(0, 1))]
    low, high = np.min(reached, axis=0), np.max(reached, axis=0)
    scale = 2 / np.linalg.norm(high - low)
    return pose_matrix(-scale * (low + high) / 2, scale * np.eye(3))


def _objects(parts: dict[str, list[Part]]) -> Iterator[Command]:
    for body, own in parts.items():
        for part in own:
            path = f"{_ROOT}/{body}/{part.name}"
            material = {
                "uuid": f"{path} material",
                "type": "MeshPhongMaterial",
                "color": int(part.colour.removeprefix("#"), 16),
                "flatShading": part.geometry["type"] == "BufferGeometry",
                "side": 2,  # both, for meshes that are inside out
            }
            mesh = {
                "uuid": path,
                "type": "Mesh",
                "geometry": f"{path} geometry",
                "material": material["uuid"],
                "matrix": _column_major(part.X_BP),
            }
            described = {
                "metadata": {"version": 4.5, "type": "Object"},
                "geometries": [{"uuid": mesh["geometry"], **part.geometry}],
                "materials": [material],
                "object": mesh,
            }
            yield {"type": "set_object", "path": path, "object": described}


def _first_poses(poses: BodyPoses, marks: Sequence[Mark]) -> Iterator[Command]:
    for name, p, R in zip(poses.names, poses.p_WB[0], matrices(poses.e_WB[0]), strict=True):
        yield _transform(f"{_ROOT}/{name}", pose_matrix(p, R))
    for mark in marks:
        yield _transform(f"{_ROOT}/{mark.name}", pose_matrix(mark.p[0], matrices(mark.e[0]) * mark.scale[0]))


def _animation(poses: BodyPoses, marks: Sequence[Mark]) -> Command:
    """Tracks of keys, one clip per body and mark; time counts from the first pose, in seconds."""
    times = poses.time - poses.time[0]
    moving = [(name, poses.p_WB[:, i], poses.e_WB[:, i], None) for i, name in enumerate(poses.names)]
    moving += [(mark.name, mark.p, mark.e, mark.scale) for mark in marks]
    clips = []
    for name, p, e, scale in moving:
        values = [("position", "vector3", p), ("quaternion", "quaternion", np.roll(e, -1, axis=-1))]
        values += [] if scale is None else [("scale", "vector3", scale)]
        tracks = [{"name": f".{key}", "type": kind, "times": times, "values": a.ravel()} for key, kind, a in values]
        clip = {"name": "motion", "fps": 1, "tracks": tracks}
        clips.append({"path": f"{_ROOT}/{name}", "clip": clip})
    options = {"play": False, "repetitions": 1e9}
    return {"type": "set_animation", "animations": clips, "options": options}


def _property(path: str, name: str, value: Any) -> Command:
    return {"type": "set_property", "path": path, "property": name, "value": value}


def _transform(path: str, X: np.ndarray) -> Command:
    return {"type": "set_transform", "path": path, "matrix": _column_major(X)}


def _column_major(X: np.ndarray) -> np.ndarray:
    return X.T.ravel()
