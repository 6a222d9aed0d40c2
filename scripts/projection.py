"""A scene as SVG: the parts that the viewer draws, seen without perspective, the farther faces first."""

import numpy as np

from spookax.scene import Scene
from spookax.scene.shapes import matrices
from spookax.viewer import BodyPoses
from spookax.viewer.drawing import WORLD, parts_of
from spookax.viewer.faces import faces

LIGHT = np.array([0.35, -0.55, 0.76])
TOWARDS = np.array([0.62, -0.68, 0.39])  # from the mechanism to the eye
SHADE = 0.5  # of a face's colour that it has in the dark


def draw(scene: Scene, poses: BodyPoses, box: tuple[float, float, float, float]) -> list[str]:
    """SVG elements of a scene at the first of some poses, fitted into a box x, y, width, height [px]."""
    back, light = (v / np.linalg.norm(v) for v in (TOWARDS, LIGHT))
    right = np.cross([0.0, 0.0, 1.0], back)
    right /= np.linalg.norm(right)
    view = np.stack([right, np.cross(back, right), back])
    seen_faces = []  # corners as seen, brightness, colour
    for name, parts in parts_of(scene).items():
        X_WB = np.eye(4)
        if name != WORLD:
            i = poses.names.index(name)
            X_WB[:3, :3], X_WB[:3, 3] = matrices(poses.e_WB[0, i]), poses.p_WB[0, i]
        for part in parts:
            if name == WORLD and part.name.startswith("axis_"):
                continue  # the frame of the world
            X = X_WB @ part.X_BP
            for corners, normal in faces(part):
                seen, n = (corners @ X[:3, :3].T + X[:3, 3]) @ view.T, X[:3, :3] @ normal
                if n @ back > 0:
                    seen_faces.append((seen, SHADE + (1 - SHADE) * max(0.0, float(n @ light)), part.colour))
    seen_faces.sort(key=lambda face: float(face[0][:, 2].mean()))
    flat = np.concatenate([corners[:, :2] for corners, _, _ in seen_faces])
    low, high = flat.min(axis=0), flat.max(axis=0)
    x, y, width, height = box
    scale = min(width / (high - low)[0], height / (high - low)[1])
    middle = np.array([x + width / 2, y + height / 2])
    return [
        _polygon(middle + scale * np.array([1, -1]) * (corners[:, :2] - (low + high) / 2), bright, colour)
        for corners, bright, colour in seen_faces
    ]


def _polygon(points: np.ndarray, bright: float, colour: str) -> str:
    r, g, b = (round(bright * int(colour[i : i + 2], 16)) for i in (1, 3, 5))
    fill, path = f"#{r:02x}{g:02x}{b:02x}", " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polygon points="{path}" fill="{fill}" stroke="{fill}" stroke-width="0.5"/>'
