"""A scene as SVG: the parts that the viewer draws, seen without perspective, the farther faces first."""

import itertools

import numpy as np

from spookax.scene import Scene
from spookax.scene.shapes import matrices
from spookax.viewer import BodyPoses
from spookax.viewer.drawing import WORLD, Part, parts_of

SIDES = 28  # of what is round
PIECES = 12  # that a part is cut into along its length, so that parts which cross are sorted well
LIGHT = np.array([0.35, -0.55, 0.76])
TOWARDS = np.array([0.62, -0.68, 0.39])  # from the mechanism to the eye
SHADE = 0.5  # of a face's colour that it has in the dark

Quad = tuple[np.ndarray, np.ndarray]  # corners (n, 3) and outward normal (3,)


def draw(scene: Scene, poses: BodyPoses, box: tuple[float, float, float, float]) -> list[str]:
    """SVG elements of a scene at the first of some poses, fitted into a box x, y, width, height [px]."""
    back, light = (v / np.linalg.norm(v) for v in (TOWARDS, LIGHT))
    right = np.cross([0.0, 0.0, 1.0], back)
    right /= np.linalg.norm(right)
    view = np.stack([right, np.cross(back, right), back])
    faces = []  # corners as seen, brightness, colour
    for name, parts in parts_of(scene).items():
        X_WB = np.eye(4)
        if name != WORLD:
            i = poses.names.index(name)
            X_WB[:3, :3], X_WB[:3, 3] = matrices(poses.e_WB[0, i]), poses.p_WB[0, i]
        for part in parts:
            if name == WORLD and part.name.startswith("axis_"):
                continue  # the frame of the world
            X = X_WB @ part.X_BP
            for corners, normal in _faces(part):
                seen, n = (corners @ X[:3, :3].T + X[:3, 3]) @ view.T, X[:3, :3] @ normal
                if n @ back > 0:
                    faces.append((seen, SHADE + (1 - SHADE) * max(0.0, float(n @ light)), part.colour))
    faces.sort(key=lambda face: float(face[0][:, 2].mean()))
    flat = np.concatenate([corners[:, :2] for corners, _, _ in faces])
    low, high = flat.min(axis=0), flat.max(axis=0)
    x, y, width, height = box
    scale = min(width / (high - low)[0], height / (high - low)[1])
    middle = np.array([x + width / 2, y + height / 2])
    return [
        _polygon(middle + scale * np.array([1, -1]) * (corners[:, :2] - (low + high) / 2), bright, colour)
        for corners, bright, colour in faces
    ]


def _polygon(points: np.ndarray, bright: float, colour: str) -> str:
    r, g, b = (round(bright * int(colour[i : i + 2], 16)) for i in (1, 3, 5))
    fill, path = f"#{r:02x}{g:02x}{b:02x}", " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polygon points="{path}" fill="{fill}" stroke="{fill}" stroke-width="0.5"/>'


def _faces(part: Part) -> list[Quad]:
    """Flat faces of a part in its own axes. Meshes are not drawn."""
    shape = part.geometry
    match shape["type"]:
        case "BoxGeometry":
            return _box(np.array([shape["width"], shape["height"], shape["depth"]]))
        case "CylinderGeometry":
            return _cylinder(shape["radiusTop"], shape["height"])
        case "SphereGeometry":
            return _sphere(shape["radius"])
        case other:
            raise ValueError(f"part {part.name}: {other} is not drawn here")


def _box(size: np.ndarray) -> list[Quad]:
    """Its longest edge is cut into pieces."""
    cut = int(np.argmax(size))
    found = []
    for axis in range(3):
        others = [k for k in range(3) if k != axis]
        grids = [np.linspace(-0.5, 0.5, PIECES + 1 if k == cut else 2) for k in others]
        for side in (-1.0, 1.0):
            normal = side * np.eye(3)[axis]
            for a0, a1 in itertools.pairwise(grids[0]):
                for b0, b1 in itertools.pairwise(grids[1]):
                    corners = np.full((4, 3), side / 2)
                    corners[:, others] = [(a0, b0), (a1, b0), (a1, b1), (a0, b1)]
                    found.append((corners * size, normal))
    return found


def _cylinder(radius: float, height: float) -> list[Quad]:
    """Along y, as three.js has it."""
    turn = np.linspace(0, 2 * np.pi, SIDES + 1)
    ring = np.stack([np.cos(turn), np.zeros_like(turn), np.sin(turn)], axis=1)
    along = np.linspace(-height / 2, height / 2, PIECES + 1 if height > 2 * radius else 2)[:, None] * [0.0, 1.0, 0.0]
    found = [(radius * ring[:-1] + side * height / 2 * np.eye(3)[1], side * np.eye(3)[1]) for side in (-1.0, 1.0)]
    for a, b in itertools.pairwise(along):
        for p, q in itertools.pairwise(ring):
            normal = (p + q) / np.linalg.norm(p + q)
            found.append((np.stack([radius * p + a, radius * q + a, radius * q + b, radius * p + b]), normal))
    return found


def _sphere(radius: float) -> list[Quad]:
    high, turn = np.linspace(-np.pi / 2, np.pi / 2, SIDES // 2 + 1), np.linspace(0, 2 * np.pi, SIDES + 1)

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
