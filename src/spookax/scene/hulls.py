"""Convex hulls of meshes, with few vertices: what of a mesh touches."""

import functools
import itertools
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spookax.scene.shapes import Mesh, load_mesh

if TYPE_CHECKING:
    from scipy.spatial import ConvexHull

MOST_VERTICES = 32
_CONVEX = 0.01  # by which the volume of a hull may be larger than that of a mesh that is taken for convex
_ROUNDING = 1e-5  # of the size of a mesh
_FLAT = 1e-4  # angle between triangles that are one facet [rad]
_OPPOSITE = np.concatenate([np.eye(3), -np.eye(3)])

Points = tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class Hull:
    """A convex hull in the axes of the mesh: vertices [m], facets and edges as numbers of these.

    `facets`: their corners, seen from outside anticlockwise; `edges`: both ends, then the facets on both sides.
    `excess`: by how much its volume is larger than that of the mesh, relative to that; none where the mesh is open.
    """

    vertices: Points
    facets: tuple[tuple[int, ...], ...]
    edges: tuple[tuple[int, int, int, int], ...]
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
        few = _pruned(corners if len(corners) <= MOST_VERTICES else _reduced(corners))
        hull = ConvexHull(few)
    except (QhullError, ValueError) as flat:
        raise ValueError(f"{file} encloses no volume: its vertices lie in a plane, or on a line") from flat
    facets = _facets(few, hull)
    volume = abs(float(mesh.volume)) if mesh.is_watertight else 0.0
    excess = float(whole.volume) / volume - 1 if volume > 0 else None
    return Hull(tuple(map(tuple, few.tolist())), facets, _edges(facets), excess)


def _facets(points: np.ndarray, hull: "ConvexHull") -> tuple[tuple[int, ...], ...]:
    """The corners of every facet: triangles that lie in one plane with a neighbour belong together."""
    normals, one_of = hull.equations[:, :3], np.arange(len(hull.simplices))
    for i, near in enumerate(hull.neighbors):
        for j in near:
            if np.linalg.norm(np.cross(normals[i], normals[j])) < _FLAT and normals[i] @ normals[j] > 0:
                one_of[one_of == one_of[j]] = one_of[i]
    facets = []
    for one in dict.fromkeys(one_of.tolist()):
        mine = np.unique(hull.simplices[one_of == one])
        arms, normal = points[mine] - points[mine].mean(axis=0), normals[one_of == one].mean(axis=0)
        angle = np.arctan2(np.cross(arms[0], arms) @ normal / np.linalg.norm(normal), arms @ arms[0])
        facets.append(tuple(mine[np.argsort(angle)].tolist()))
    return tuple(facets)


def _edges(facets: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, int, int, int], ...]:
    """The edges of closed facets: each runs one way along one of them and the other way along another."""
    facet = {side: f for f, corners in enumerate(facets) for side in itertools.pairwise((*corners, corners[0]))}
    return tuple((a, b, f, facet[b, a]) for (a, b), f in facet.items() if a < b)


def _pruned(corners: np.ndarray) -> np.ndarray:
    """Those that stick out of the hull of the others, by more than rounding in a file has put there."""
    from scipy.spatial import ConvexHull, QhullError

    least = _ROUNDING * np.ptp(corners, axis=0).max()
    for corner in corners:
        others = corners[np.any(corners != corner, axis=1)]
        try:
            planes = ConvexHull(others).equations
        except (QhullError, ValueError):  # without it they lie in a plane
            continue
        if np.max(planes[:, :3] @ corner + planes[:, 3]) < least:
            corners = others
    return corners


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
            "Write `hull: true` to let its convex hull touch, or cut it into convex meshes, as the library coacd does, "
            "and give the body a surface for each.",
        )
    return None
