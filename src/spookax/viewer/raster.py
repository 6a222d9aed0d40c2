"""Pictures as arrays of pixels, drawn with numpy: no display, no browser. For frames of videos and `rgb_array`."""

from collections.abc import Iterator

import numpy as np

from ..scene import Scene
from ..scene.shapes import matrices
from .drawing import WORLD, parts_of
from .faces import faces
from .poses import BodyPoses, initial_poses

_SIDES = 12  # of what is round
_LIGHT = np.array([0.35, -0.55, 0.76])
_TOWARDS = np.array([0.45, -1.0, 0.4])  # from the mechanism to the eye, as in the browser
_SHADE = 0.5  # of a face's colour that it has in the dark
_ROOM = 1.15  # of the picture around what the mechanism can reach
_WHITE = 255


class Camera:
    """Draws a scene at poses of its bodies, seen without perspective, always from the same place.

    The picture holds all that the mechanism reaches: every body, turned any way about where the world holds it.

    **Arguments:** `size`: width and height [px].
    """

    def __init__(self, scene: Scene, size: tuple[int, int] = (480, 360)):
        self.width, self.height = size
        back, self._light = (v / np.linalg.norm(v) for v in (_TOWARDS, _LIGHT))
        right = np.cross([0.0, 0.0, 1.0], back)
        right /= np.linalg.norm(right)
        self._view = np.stack([right, np.cross(back, right), back])
        self._names = tuple(scene.bodies)
        self._faces: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]] = []  # body, corners, normal, colour
        for name, parts in parts_of(scene).items():
            body = -1 if name == WORLD else self._names.index(name)
            for part in parts:
                if name == WORLD and part.name.startswith("axis_"):
                    continue
                colour = np.array([int(part.colour[i : i + 2], 16) for i in (1, 3, 5)], dtype=float)
                R, p = part.X_BP[:3, :3], part.X_BP[:3, 3]
                for corners, normal in faces(part, _SIDES):
                    self._faces.append((body, corners @ R.T + p, R @ normal, colour))
        self._middle, self._scale = self._frame(scene)

    def _frame(self, scene: Scene) -> tuple[np.ndarray, float]:
        """Middle of the picture as seen [m], pixels per metre."""
        poses = initial_poses(scene)
        points = np.concatenate([corners for _, corners, _ in self._placed(poses.p_WB[0], poses.e_WB[0])])
        held = [joint.at for joint in scene.joints.values() if joint.parent == WORLD] or [(0.0, 0.0, 0.0)]
        middle = np.mean(np.asarray(held, dtype=float), axis=0)
        reach = _ROOM * float(np.max(np.linalg.norm(points - middle, axis=1)))
        return self._view[:2] @ middle, min(self.width, self.height) / (2 * reach)

    def _placed(self, p_WB: np.ndarray, e_WB: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Colour, corners and normal of every face in the world."""
        R_WB = matrices(e_WB)
        for body, corners, normal, colour in self._faces:
            if body < 0:
                yield colour, corners, normal
            else:
                yield colour, corners @ R_WB[body].T + p_WB[body], R_WB[body] @ normal

    def picture(self, poses: BodyPoses) -> np.ndarray:
        """The last of some poses as an image (height, width, 3) of bytes."""
        image = np.full((self.height, self.width, 3), _WHITE, dtype=np.uint8)
        seen = []
        for colour, corners, normal in self._placed(poses.p_WB[-1], poses.e_WB[-1]):
            if normal @ self._view[2] > 0:
                bright = _SHADE + (1 - _SHADE) * max(0.0, float(normal @ self._light))
                seen.append((corners @ self._view.T, bright * colour))
        for corners, colour in sorted(seen, key=lambda face: float(face[0][:, 2].mean())):  # the farther first
            flat = (corners[:, :2] - self._middle) * self._scale * [1, -1] + [self.width / 2, self.height / 2]
            _fill(image, flat, colour.astype(np.uint8))
        return image


def _fill(image: np.ndarray, corners: np.ndarray, colour: np.ndarray) -> None:
    """A convex polygon; pixels whose middle is inside, or within half a pixel of its edge."""
    height, width, _ = image.shape
    low = np.maximum(np.floor(corners.min(axis=0) - 0.5), 0).astype(int)
    high = np.minimum(np.ceil(corners.max(axis=0) + 0.5), [width, height]).astype(int)
    if not (low < high).all():
        return
    x, y = np.arange(low[0], high[0]) + 0.5, (np.arange(low[1], high[1]) + 0.5)[:, None]
    edges = np.roll(corners, -1, axis=0) - corners
    turn = np.sign(np.sum(corners[:, 0] * edges[:, 1] - corners[:, 1] * edges[:, 0]))
    inside = np.ones((y.size, x.size), dtype=bool)
    for (px, py), (dx, dy) in zip(corners, edges, strict=True):
        inside &= turn * (dx * (y - py) - dy * (x - px)) >= -0.5 * np.hypot(dx, dy)
    image[low[1] : high[1], low[0] : high[0]][inside] = colour
