"""Shapes of bodies: primitives and meshes with their volume, centroid and inertia."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pydantic
from pydantic import Field, ValidationInfo

from spookax.scene.explain import Finding, nearest_file, refuse
from spookax.scene.fields import Positive, Strict, Text, Vector

Colour = Annotated[str, Field(strict=True, pattern=r"^#[0-9a-fA-F]{6}$")]


@dataclass(frozen=True)
class Solid:
    """A body of unit density (1 kg/m^3): its volume, and what is integrated over it."""

    volume: float  # [m^3]
    centroid: np.ndarray  # (3,) [m]
    inertia: np.ndarray  # (3, 3) about the centroid [m^5]

    def moved(self, rotation: np.ndarray, at: Sequence[float]) -> "Solid":
        """The solid turned by a (3, 3) rotation matrix and then moved by `at`. [m]"""
        centroid = rotation @ self.centroid + np.asarray(at)
        return Solid(self.volume, centroid, rotation @ self.inertia @ rotation.T)


def _resolved(file: str, info: ValidationInfo) -> str:
    """The absolute path, when it is known in which folder the scene lies (context `folder`)."""
    folder = (info.context or {}).get("folder")
    if folder is None:
        return file
    path = Path(os.path.abspath(Path(folder) / file))
    if not path.is_file():
        refuse([Finding((), file, f"no such file: {path}", nearest_file(path))])
    return str(path)


FileBeside = Annotated[Text, pydantic.AfterValidator(_resolved)]


class Placed(Strict):
    """Where a shape is in its body, and its colour."""

    at: Vector = Field(default=(0.0, 0.0, 0.0), description="Centre in body axes, three numbers [m]")
    rotation: Vector = Field(default=(0.0, 0.0, 0.0), description="Orientation in the body, a rotation vector [rad]")
    colour: Colour = Field(default="#8899aa", description='Colour, "#rrggbb" in quotes')


class Box(Placed):
    """A box with its centre at `at`."""

    type: Literal["box"] = Field(description="A box")
    size: tuple[Positive, Positive, Positive] = Field(description="Full lengths along x, y and z [m]")


class Cylinder(Placed):
    """A cylinder along its local z axis with its centre at `at`."""

    type: Literal["cylinder"] = Field(description="A cylinder along local z")
    radius: Positive = Field(description="Radius [m]")
    length: Positive = Field(description="Length along z [m]")


class Capsule(Placed):
    """A cylinder along local z with half a sphere on either end, centred at `at`."""

    type: Literal["capsule"] = Field(description="A cylinder along local z with round ends")
    radius: Positive = Field(description="Radius [m]")
    length: Positive = Field(description="Length of the cylindrical part, without the round ends [m]")


class Sphere(Placed):
    """A sphere with its centre at `at`."""

    type: Literal["sphere"] = Field(description="A sphere")
    radius: Positive = Field(description="Radius [m]")


class Mesh(Placed):
    """A triangle mesh from a file; its own origin is put at `at`."""

    type: Literal["mesh"] = Field(description="A triangle mesh from a file (STL, OBJ, PLY, ...)")
    file: FileBeside = Field(description="File of the mesh, relative to the scene file")
    scale: Positive = Field(default=1.0, description="Metres per unit of length of the mesh file")


Shape = Annotated[Box | Cylinder | Capsule | Sphere | Mesh, Field(discriminator="type")]


def rotation_matrix(vector: Sequence[float]) -> np.ndarray:
    """Rotation about `vector` by its length [rad] as a (3, 3) matrix (Rodrigues' formula)."""
    angle = math.hypot(*vector)
    if angle == 0.0:
        return np.eye(3)
    x, y, z = np.asarray(vector) / angle
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + math.sin(angle) * cross + (1.0 - math.cos(angle)) * cross @ cross


def matrices(e: np.ndarray) -> np.ndarray:
    """Rotation matrices (..., 3, 3) of unit quaternions w, x, y, z (..., 4)."""
    w, x, y, z = np.moveaxis(e, -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def solid(shape: Shape) -> Solid:
    """Volume, centroid and inertia of one shape in body axes; infinite or 0 beyond the range of floats.

    **Raises:** `ValueError` if a mesh cannot be read or does not enclose a volume.
    """
    match shape:
        case Box(size=(a, b, c)):
            volume = a * b * c
            moments = volume / 12 * np.array([b * b + c * c, a * a + c * c, a * a + b * b])
        case Cylinder(radius=r, length=length):
            volume = math.pi * r * r * length
            moments = _round_moments(volume * r * r / 2, volume * (3 * r * r + length * length) / 12)
        case Capsule(radius=r, length=length):
            # Each half sphere of volume v has 83/320 v d^2 across its axis about its own centroid, which
            # lies 3/8 r beyond the end of the cylinder.
            middle, v = math.pi * r * r * length, 2 / 3 * math.pi * r * r * r
            volume = middle + 2 * v
            along = middle * r * r / 2 + 2 * v * 2 / 5 * r * r
            beyond = length / 2 + 3 / 8 * r
            end = v * (83 / 320 * r * r + beyond * beyond)
            moments = _round_moments(along, middle * (3 * r * r + length * length) / 12 + 2 * end)
        case Sphere(radius=r):
            volume = 4 / 3 * math.pi * r * r * r
            moments = np.full(3, 2 / 5 * volume * r * r)
        case Mesh():
            return _mesh_solid(shape).moved(rotation_matrix(shape.rotation), shape.at)
    own = Solid(volume, np.zeros(3), np.diag(moments))
    return own.moved(rotation_matrix(shape.rotation), shape.at)


def combine(solids: Sequence[Solid]) -> Solid:
    """One solid from several; where they overlap the material counts twice.

    Each inertia is moved to the common centroid by the parallel axis theorem.
    """
    volume = sum(part.volume for part in solids)
    centroid = np.sum([part.volume * part.centroid for part in solids], axis=0) / volume
    inertia = np.zeros((3, 3))
    for part in solids:
        d = part.centroid - centroid
        inertia += part.inertia + part.volume * (d @ d * np.eye(3) - np.outer(d, d))
    return Solid(volume, centroid, inertia)


def load_mesh(shape: Mesh):
    """The mesh of a shape as a `trimesh.Trimesh` in metres, in the axes of its file.

    **Raises:** `ValueError` with a sentence if the file cannot be read as one mesh.
    """
    import trimesh  # slow to import, and needed for meshes only

    try:
        mesh = trimesh.load_mesh(shape.file)
        if not isinstance(mesh, trimesh.Trimesh) or not len(mesh.faces):
            raise ValueError("it has no triangles")
    except Exception as failed:  # trimesh's readers raise whatever a damaged file makes them raise
        raise ValueError(f"{shape.file} cannot be read as a mesh: {failed}") from failed
    return mesh.apply_scale(shape.scale)


def _round_moments(along: float, across: float) -> np.ndarray:
    return np.array([across, across, along])


def _mesh_solid(shape: Mesh) -> Solid:
    mesh = load_mesh(shape)
    if not mesh.is_watertight or mesh.volume <= 0:
        raise ValueError(f"{shape.file} does not enclose a volume (it is open or inside out)")
    return Solid(float(mesh.volume), np.asarray(mesh.center_mass), np.asarray(mesh.moment_inertia))
