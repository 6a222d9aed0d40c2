"""What is drawn of a scene: parts with a geometry, a colour and a pose in their body.

Geometries are three.js JSON, which meshcat's viewer reads. Its cylinders lie along y.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..scene import Scene
from ..scene.contacts import Plane, Surface
from ..scene.height_fields import HeightField, triangles
from ..scene.joint_types import frame
from ..scene.parts import Body, Joint
from ..scene.shapes import Box, Capsule, Cylinder, Mesh, Shape, Sphere, load_mesh, matrices, rotation_matrix
from .poses import pose_matrix

WORLD = "world"
_GROUND = 6.0  # extent of a plane, in sizes of the largest body; more where bodies start farther out
_THIN = 0.01
_GREY = "#555555"
_PLAIN = "#8899aa"
_FRAME = {"x": "#cc3311", "y": "#228833", "z": "#0055cc"}
_Z_TO_Y = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])  # of the drawn cylinder: y becomes z


@dataclass(frozen=True)
class Part:
    """A thing drawn with a body or the world."""

    name: str
    geometry: dict[str, Any]
    colour: str  # #rrggbb
    X_BP: np.ndarray  # (4, 4), pose in the body
    corners: np.ndarray  # (8, 3), of a box around it, in body axes [m]


def parts_of(scene: Scene, joints: bool = True) -> dict[str, list[Part]]:
    """The parts of every body and of the world, by name.

    A body without shapes is drawn by its surfaces that touch; without any it becomes a frame, a sphere at its centre of
    mass whose volume goes with its mass, and rods from there to its joints. `joints` adds markers: a pin along an axis
    that turns, a rail along one that slides, a ball.
    """
    touching = list(scene.contacts.surfaces.values()) if scene.contacts else []
    looks = {name: body.shapes or [s for s in touching if s.body == name] for name, body in scene.bodies.items()}
    shapes = {name: list(_shapes(found)) for name, found in looks.items()}
    size = _size(scene, shapes)
    heaviest = max((body.mass for name, body in scene.bodies.items() if not shapes[name]), default=1.0)
    ground = [surface for surface in touching if surface.body == WORLD]
    away = [np.abs(body.initial.position).max() for body in scene.bodies.values() if body.initial]
    extent = max(_GROUND * size, 3 * max(away, default=0.0))
    parts: dict[str, list[Part]] = {WORLD: [*_frame(0.12 * size), *_shapes(ground, extent)]}
    for name, body in scene.bodies.items():
        parts[name] = shapes[name] or list(_stick_figure(body, joint_points(scene, name), size, heaviest))
    for name, joint in scene.joints.items() if joints else ():
        parts[joint.parent] += _joint(name, joint, size)
    return parts


def joint_points(scene: Scene, body: str) -> list[np.ndarray]:
    """Where the joints of a body (or of the world) lie, in its own axes. [m]"""
    ends = [
        (end, point)
        for joint in scene.joints.values()
        for end, point in ((joint.parent, joint.at), (joint.child, joint.child_at))
    ]
    return [np.asarray(point, dtype=float) for end, point in ends if end == body]


def _size(scene: Scene, shapes: dict[str, list[Part]]) -> float:
    """Largest extent of a single body [m]; 1 if all are points."""
    extents = [0.0]
    for name, body in scene.bodies.items():
        points = [body.com, *joint_points(scene, name), *(c for part in shapes[name] for c in part.corners)]
        extents.append(float(np.max(np.ptp(np.array(points, dtype=float), axis=0))))
    return max(extents) or 1.0


def _shapes(shapes: Iterable[Shape | Surface], extent: float = 0.0) -> Iterator[Part]:
    """Shapes and surfaces; of planes a square slab of some extent. [m]"""
    for index, shape in enumerate(shapes):
        name = f"{shape.type}_{index}"
        X = pose_matrix(shape.at, rotation_matrix(shape.rotation))
        match shape:
            case Box():
                yield _box(name, shape.size, X, shape.colour)
            case Cylinder():
                yield _cylinder(name, shape.radius, shape.length, X, shape.colour)
            case Capsule():
                yield _cylinder(name, shape.radius, shape.length, X, shape.colour)
                for side, z in (("top", shape.length / 2), ("bottom", -shape.length / 2)):
                    end = X @ pose_matrix((0.0, 0.0, z), np.eye(3))
                    yield sphere(f"{name}_{side}", shape.radius, end, shape.colour)
            case Sphere():
                yield sphere(name, shape.radius, X, shape.colour)
            case Plane():
                thick = _THIN * extent
                slab = X @ pose_matrix((0.0, 0.0, -thick / 2), np.eye(3))
                yield _box(name, (extent, extent, thick), slab, shape.colour)
            case Mesh():
                mesh = load_mesh(shape)
                yield _triangles(name, mesh.vertices, mesh.faces, X, shape.colour)
            case HeightField():
                yield _triangles(name, *triangles(shape), X, shape.colour)


def _stick_figure(body: Body, points: list[np.ndarray], size: float, heaviest: float) -> Iterator[Part]:
    com = np.asarray(body.com, dtype=float)
    radius = 0.06 * size * max((body.mass / heaviest) ** (1 / 3), 0.3)
    yield from _frame(0.12 * size)
    yield sphere("com", radius, pose_matrix(com, np.eye(3)), _PLAIN)
    for index, point in enumerate(points):
        length = float(np.linalg.norm(point - com))
        if length > 1e-6 * size:
            X = _along((point - com) / length, (point + com) / 2)
            yield _cylinder(f"rod_{index}", 0.01 * size, length, X, _PLAIN)


def _joint(name: str, joint: Joint, size: float) -> Iterator[Part]:
    """A pin along every axis that turns, a rail along every one that slides, a ball where no direction is held."""
    name = f"joint_{name}"
    columns = matrices(frame(joint.axis, joint.x_axis)).T
    for axis in (axis for axis in joint.kind.axes if axis.kind not in ("distance", "spin")):
        part = f"{name}_{axis.name}" if axis.name else name
        radius, length = (0.015, 0.12) if axis.rotational else (0.008, 2.0)
        yield _cylinder(part, radius * size, length * size, _along(columns[axis.column], joint.at), _GREY)
    if joint.type in ("ball", "distance", "line"):
        yield sphere(name, 0.03 * size, pose_matrix(joint.at, np.eye(3)), _GREY)


def _frame(length: float) -> Iterator[Part]:
    for axis, unit in zip("xyz", np.eye(3), strict=True):
        yield _cylinder(f"axis_{axis}", 0.03 * length, length, _along(unit, unit * length / 2), _FRAME[axis])


def _box(name: str, lengths: ArrayLike, X: np.ndarray, colour: str) -> Part:
    x, y, z = (float(length) for length in np.asarray(lengths))
    geometry = {"type": "BoxGeometry", "width": x, "height": y, "depth": z}
    return Part(name, geometry, colour, X, _corners(X, (-x / 2, -y / 2, -z / 2), (x / 2, y / 2, z / 2)))


def sphere(name: str, radius: float, X: np.ndarray, colour: str) -> Part:
    """About the origin of the pose X."""
    geometry = {"type": "SphereGeometry", "radius": radius, "widthSegments": 32, "heightSegments": 16}
    return Part(name, geometry, colour, X, _corners(X, (-radius,) * 3, (radius,) * 3))


def _cylinder(name: str, radius: float, length: float, X: np.ndarray, colour: str) -> Part:
    """Along the z axis of the pose X."""
    return cylinder(name, (radius, radius), length, X @ pose_matrix((0.0, 0.0, 0.0), _Z_TO_Y), colour)


def cylinder(name: str, radii: tuple[float, float], length: float, X: np.ndarray, colour: str) -> Part:
    """Along the y axis of the pose X; `radii`: at its top, where y is largest, and at its bottom."""
    geometry = {"type": "CylinderGeometry", "height": length, "radialSegments": 48}
    geometry |= {"radiusTop": radii[0], "radiusBottom": radii[1]}
    half = (max(radii), length / 2, max(radii))
    return Part(name, geometry, colour, X, _corners(X, [-x for x in half], half))


def _triangles(name: str, vertices: ArrayLike, faces: ArrayLike, X: np.ndarray, colour: str) -> Part:
    vertices = np.asarray(vertices, dtype=float)
    position = {"itemSize": 3, "type": "Float32Array", "array": vertices.astype(np.float32).ravel()}
    index = {"type": "Uint32Array", "array": np.asarray(faces, dtype=np.uint32).ravel()}
    geometry = {"type": "BufferGeometry", "data": {"attributes": {"position": position}, "index": index}}
    return Part(name, geometry, colour, X, _corners(X, vertices.min(axis=0), vertices.max(axis=0)))


def _corners(X: np.ndarray, low: ArrayLike, high: ArrayLike) -> np.ndarray:
    box = np.array(list(itertools.product(*zip(np.asarray(low), np.asarray(high), strict=True))))
    return box @ X[:3, :3].T + X[:3, 3]


def _along(axis: ArrayLike, at: ArrayLike) -> np.ndarray:
    """A pose whose z axis is a unit vector."""
    z = np.asarray(axis, dtype=float)
    x = np.cross(np.eye(3)[np.argmin(np.abs(z))], z)
    x /= np.linalg.norm(x)
    return pose_matrix(at, np.column_stack([x, np.cross(z, x), z]))
