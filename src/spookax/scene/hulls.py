"""Convex hulls of meshes, with few vertices: what of a mesh touches."""

import functools
import os
from dataclasses import dataclass

import numpy as np

from spookax.scene.shapes import Mesh, load_mesh

MOST_VERTICES = 32
MOST_TRIANGLES = 2 * MOST_VERTICES - 4  # Euler's formula
_CONVEX = 0.01  # by which the volume of a hull may be larger than that of a mesh that is taken for convex
_OPPOSITE = np.concatenate([np.eye(3), -np.eye(3)])

Points = tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class Hull:
    """A convex hull in the axes of the mesh: vertices [m], and triangles of them, seen from outside anticlockwise.

    `excess`: by how much its volume is larger than that of the mesh, relative to that; none where the mesh is open.
    """

    vertices: Points
    triangles: tuple[tuple[int, int, int], ...]
    excess: float | None


def hull_of(shape: Mesh) -> Hull:
    """The hull of a mesh, with the `MOST_VERTICES` of its vertices that change it most.

    **Raises:** `ValueError` with a sentence for a file that cannot be read as a mesh, or is flat.
    """
    return _hull(shape.file, os.path.getmtime(shape.file) if os.path.exists(shape.file) else 0.0, shape.scale)


@functools.lru_cache(maxsize=256)
def _hull(file: str, _: float, scale: float) -> Hull:
    from scipy.spatial import ConvexHull, QhullError  # slow to import, and needed for meshes only

    mesh = load_mesh(Mesh(type="mesh", file=file, scale=scale))
    points = np.unique(np.asarray(mesh.vertices), axis=0)
    try:
        whole = ConvexHull(points)
        corners = points[whole.vertices]
        few = corners if len(corners) <= MOST_VERTICES else _reduced(corners)
        hull = ConvexHull(few)
    except (QhullError, ValueError) as flat:
        raise ValueError(f"{file} encloses no volume: its vertices lie in a plane, or on a line") from flat
    few = few[hull.vertices]
    number = {int(v): i for i, v in enumerate(hull.vertices)}
    triangles = []
    for corners_of, plane in zip(hull.simplices, hull.equations, strict=True):
        a, b, c = (number[int(i)] for i in corners_of)
        outward = np.dot(np.cross(few[b] - few[a], few[c] - few[a]), plane[:3]) > 0
        triangles.append((a, b, c) if outward else (a, c, b))
    volume = abs(float(mesh.volume)) if mesh.is_watertight else 0.0
    excess = float(whole.volume) / volume - 1 if volume > 0 else None
    return Hull(tuple(map(tuple, few.tolist())), tuple(triangles), excess)


def _reduced(corners: np.ndarray) -> np.ndarray:
    """Those that lie farthest outside of the hull of the ones before, one after the other."""
    from scipy.spatial import ConvexHull

    chosen = list(dict.fromkeys(int(np.argmax(corners @ way)) for way in _OPPOSITE))
    rest = [i for i in range(len(corners)) if i not in chosen]
    while len(chosen) < 4:  # a body whose extremes coincide, as of a tetrahedron
        chosen.append(rest.pop(0))
    while len(chosen) < MOST_VERTICES:
        planes = ConvexHull(corners[chosen]).equations
        outside = np.max(corners @ planes[:, :3].T + planes[:, 3], axis=1)
        outside[chosen] = -np.inf
        chosen.append(int(np.argmax(outside)))
    return corners[chosen]


def refusal(shape: Mesh, hull: bool) -> tuple[str, str] | None:
    """Why a mesh cannot touch, and what to do; none if it can. `hull`: its hull is wanted, whatever the mesh is."""
    try:
        found = hull_of(shape)
    except ValueError as wrong:
        return str(wrong), "Give the mesh of a solid."
    if hull:
        return None
    if found.excess is None:
        return (
            "has holes, so that nothing says whether it is convex",
            "Close them, or write `hull: true` to let its convex hull touch.",
        )
    if found.excess > _CONVEX:
        return (
            f"is not convex: its convex hull has {100 * found.excess:.3g} % more volume",
            "Write `hull: true` to let its convex hull touch, or give the body several convex meshes.",
        )
    return None
