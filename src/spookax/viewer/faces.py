"""Flat faces of the parts that are drawn, for pictures without a browser."""

import itertools

import numpy as np

from .drawing import Part

Face = tuple[np.ndarray, np.ndarray]  # corners (n, 3) and outward normal (3,), in the axes of the part's geometry
_PIECES = 12  # that a part is cut into along its length, so that parts which cross are sorted well


def faces(part: Part, sides: int = 28) -> list[Face]:
    """Faces of a part in its own axes; what is round has so many `sides`.

    **Raises:** `ValueError` for a geometry that is not known.
    """
    shape = part.geometry
    match shape["type"]:
        case "BoxGeometry":
            return _box(np.array([shape["width"], shape["height"], shape["depth"]]))
        case "CylinderGeometry":
            return _cylinder(shape["radiusTop"], shape["height"], sides)
        case "SphereGeometry":
            return _sphere(shape["radius"], sides)
        case "BufferGeometry":
            return _mesh(shape["data"])
        case other:
            raise ValueError(f"part {part.name}: {other} is not drawn here")


def _mesh(data: dict) -> list[Face]:
    vertices = np.asarray(data["attributes"]["position"]["array"], dtype=float).reshape(-1, 3)
    corners = vertices[np.asarray(data["index"]["array"]).reshape(-1, 3)]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.linalg.norm(normals, axis=1)
    return [(c, n / size) for c, n, size in zip(corners, normals, length, strict=True) if size > 0]


def _box(size: np.ndarray) -> list[Face]:
    """Its longest edge is cut into pieces."""
    cut = int(np.argmax(size))
    found = []
    for axis in range(3):
        others = [k for k in range(3) if k != axis]
        grids = [np.linspace(-0.5, 0.5, _PIECES + 1 if k == cut else 2) for k in others]
        for side in (-1.0, 1.0):
            normal = side * np.eye(3)[axis]
            for a0, a1 in itertools.pairwise(grids[0]):
                for b0, b1 in itertools.pairwise(grids[1]):
                    corners = np.full((4, 3), side / 2)
                    corners[:, others] = [(a0, b0), (a1, b0), (a1, b1), (a0, b1)]
                    found.append((corners * size, normal))
    return found


def _cylinder(radius: float, height: float, sides: int) -> list[Face]:
    """Along y, as three.js has it."""
    turn = np.linspace(0, 2 * np.pi, sides + 1)
    ring = np.stack([np.cos(turn), np.zeros_like(turn), np.sin(turn)], axis=1)
    along = np.linspace(-height / 2, height / 2, _PIECES + 1 if height > 2 * radius else 2)[:, None] * [0.0, 1.0, 0.0]
    found = [(radius * ring[:-1] + side * height / 2 * np.eye(3)[1], side * np.eye(3)[1]) for side in (-1.0, 1.0)]
    for a, b in itertools.pairwise(along):
        for p, q in itertools.pairwise(ring):
            normal = (p + q) / np.linalg.norm(p + q)
            found.append((np.stack([radius * p + a, radius * q + a, radius * q + b, radius * p + b]), normal))
    return found


def _sphere(radius: float, sides: int) -> list[Face]:
    high, turn = np.linspace(-np.pi / 2, np.pi / 2, sides // 2 + 1), np.linspace(0, 2 * np.pi, sides + 1)

    def at(latitude: float, longitude: float) -> np.ndarray:
        flat = np.cos(latitude)
        return np.array([flat * np.cos(longitude), np.sin(latitude), flat * np.sin(longitude)])

    found = []
    for u, v in itertools.pairwise(high):
        for s, t in itertools.pairwise(turn):
            corners = np.stack([at(u, s), at(u, t), at(v, t), at(v, s)])
            normal = corners.mean(axis=0)
            found.append((radius * corners, normal / np.linalg.norm(normal)))
    return found
