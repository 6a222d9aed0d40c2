"""Poses of frames, and the rotation vectors and quaternions that files hold them in."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from spookax.scene.fields import Vector
from spookax.scene.shapes import rotation_matrix

_ROUNDING = 1e-12  # what is smaller is taken for zero [m, rad or no unit]


@dataclass(frozen=True)
class Pose:
    """Where a frame B stands in a frame A: `rotation` R_AB, `at` p_AB_A. [m]"""

    rotation: np.ndarray = field(default_factory=lambda: np.eye(3))
    at: np.ndarray = field(default_factory=lambda: np.zeros(3))

    def __matmul__(self, other: "Pose") -> "Pose":
        return Pose(self.rotation @ other.rotation, self.apply(other.at))

    def apply(self, point: ArrayLike) -> np.ndarray:
        """A point of B, in A. [m]"""
        return self.rotation @ np.asarray(point, dtype=float) + self.at

    def inverse(self) -> "Pose":
        return Pose(self.rotation.T, -self.rotation.T @ self.at)

    @staticmethod
    def of(at: ArrayLike, quaternion: ArrayLike = (1.0, 0.0, 0.0, 0.0)) -> "Pose":
        """From a position [m] and a quaternion (w, x, y, z) of any length."""
        w, x, y, z = np.asarray(quaternion, dtype=float) / np.linalg.norm(quaternion)
        v = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
        return Pose(np.eye(3) + 2 * w * v + 2 * v @ v, np.array(at, dtype=float))

    @staticmethod
    def placed(at: Sequence[float], vector: Sequence[float]) -> "Pose":
        """From a position [m] and a rotation vector [rad], as scene files have them."""
        return Pose(rotation_matrix(vector), np.array(at, dtype=float))


def turned(axis: ArrayLike, angle: float) -> np.ndarray:
    """Rotation about `axis` (any length) by `angle` [rad]."""
    n = np.asarray(axis, dtype=float)
    return rotation_matrix((n / np.linalg.norm(n) * angle).tolist())


def quaternion(rotation: np.ndarray) -> np.ndarray:
    """Quaternion (w, x, y, z) with w >= 0 of a rotation matrix (Shepperd: from the largest component)."""
    R = rotation
    K = np.array(
        [
            [R[0, 0] + R[1, 1] + R[2, 2], R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]],
            [R[2, 1] - R[1, 2], R[0, 0] - R[1, 1] - R[2, 2], R[0, 1] + R[1, 0], R[0, 2] + R[2, 0]],
            [R[0, 2] - R[2, 0], R[0, 1] + R[1, 0], R[1, 1] - R[0, 0] - R[2, 2], R[1, 2] + R[2, 1]],
            [R[1, 0] - R[0, 1], R[0, 2] + R[2, 0], R[1, 2] + R[2, 1], R[2, 2] - R[0, 0] - R[1, 1]],
        ]
    )
    largest = int(np.argmax(np.diag(K)))
    q = K[largest] + np.eye(4)[largest]
    q = q / np.linalg.norm(q)
    return -q if q[0] < 0 else q


def rotation_vector(rotation: np.ndarray) -> Vector:
    """Axis times angle [rad] of a rotation matrix, at most pi long."""
    w, *v = quaternion(rotation)
    length = math.hypot(*v)
    scale = 2 * math.atan2(length, w) / length if length > 0 else 0.0
    return numbers(np.array(v) * scale)


def numbers(vector: ArrayLike) -> Vector:
    """Three plain numbers; what rounding left of zero is zero."""
    x, y, z = (0.0 if abs(v) < _ROUNDING else float(v) for v in np.asarray(vector, dtype=float))
    return x, y, z
