"""Poses of the body frames over time, as plain arrays."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from ..scene import Scene
from ..scene.joint_types import frame
from ..scene.parts import Initial, Joint
from ..scene.shapes import matrices, rotation_matrix


class States(Protocol):
    """What has states to show: a trajectory (time (n,), r (n, bodies, 3), e (n, bodies, 4)) or one state."""

    @property
    def time(self) -> Any: ...
    @property
    def r(self) -> Any: ...
    @property
    def e(self) -> Any: ...


@dataclass(frozen=True)
class BodyPoses:
    """Where the body frames are at n times. Whatever can be turned into arrays is accepted.

    **Raises:** `ValueError` if shapes do not match, times do not increase or a quaternion is zero.
    """

    time: np.ndarray  # (n,) [s]
    p_WB: np.ndarray  # (n, bodies, 3) origins in the world [m]
    e_WB: np.ndarray  # (n, bodies, 4) unit quaternions w, x, y, z from body to world
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        time, p_WB, e_WB = (np.asarray(x, dtype=float) for x in (self.time, self.p_WB, self.e_WB))
        shape = (time.size, len(self.names))
        if time.ndim != 1 or time.size == 0 or p_WB.shape != (*shape, 3) or e_WB.shape != (*shape, 4):
            raise ValueError(
                f"poses of {shape[1]} bodies need time (n,), p_WB (n, {shape[1]}, 3) and "
                f"e_WB (n, {shape[1]}, 4) with n >= 1, got {time.shape}, {p_WB.shape} and {e_WB.shape}"
            )
        if not np.all(np.diff(time) > 0):
            raise ValueError("times of poses must be finite and increase")
        length = np.linalg.norm(e_WB, axis=-1, keepdims=True)
        if np.any(length == 0):
            raise ValueError("a quaternion of length zero is no orientation")
        values = {"time": time, "p_WB": p_WB, "e_WB": e_WB / length, "names": tuple(self.names)}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_states(cls, scene: Scene, time: ArrayLike, r: ArrayLike, e: ArrayLike) -> "BodyPoses":
        """Poses from centres of mass r [m] and quaternions e, one state or n of them: p_WB = r - R(e) com.

        The centres of mass in body axes are those of `scene`; if they were identified, pass the
        identified scene.

        **Raises:** `ValueError` if the arrays do not fit the bodies of the scene.
        """
        names = tuple(scene.bodies)
        time, r, e = (np.asarray(x, dtype=float) for x in (time, r, e))
        if r.shape[-2:] != (len(names), 3) or e.shape[-2:] != (len(names), 4):
            raise ValueError(
                f"the scene has {len(names)} bodies, but the states have r {r.shape} and e {e.shape}; "
                f"wanted (..., {len(names)}, 3) and (..., {len(names)}, 4)"
            )
        com = np.array([body.com for body in scene.bodies.values()], dtype=float)
        origins = r - np.einsum("...bij,bj->...bi", matrices(e), com)
        return cls(np.atleast_1d(time), origins.reshape(-1, len(names), 3), e.reshape(-1, len(names), 4), names)

    def until_failure(self) -> "BodyPoses":
        """Poses before the first that is not finite: what there is to see of a simulation that failed.

        **Raises:** `ValueError` if the first is not finite already.
        """
        values = np.concatenate([self.p_WB, self.e_WB], axis=-1)
        bad = np.any(~np.isfinite(values), axis=(1, 2))
        if bad[0]:
            raise ValueError("the first pose is not finite: there is nothing to show")
        return self[: int(np.argmax(bad))] if np.any(bad) else self

    def thinned(self, rate: float = 60.0) -> "BodyPoses":
        """The first pose in every 1 / rate seconds, and the last one. [Hz]"""
        bins = np.floor((self.time - self.time[0]) * rate + 1e-6)
        keep = np.unique(bins, return_index=True)[1]
        return self[np.union1d(keep, self.time.size - 1)]

    def __getitem__(self, frames: Any) -> "BodyPoses":
        return BodyPoses(self.time[frames], self.p_WB[frames], self.e_WB[frames], self.names)


def initial_poses(scene: Scene) -> BodyPoses:
    """Poses at the joint positions under the scene's `initial`, along a spanning tree of its joints.

    Joints are taken breadth first from the world; a group of bodies that nothing ties to it stands with its first body
    where its `initial` says, or at the origin. Loops are drawn as the file says, closed or not: for the assembled pose
    show a state.
    """
    X_WB: dict[str, np.ndarray] = {"world": np.eye(4)}
    waiting = dict(scene.joints)
    while len(X_WB) <= len(scene.bodies):
        ready = [n for n, joint in waiting.items() if joint.parent in X_WB or joint.child in X_WB]
        if not ready:
            name = next(name for name in scene.bodies if name not in X_WB)
            start = scene.bodies[name].initial
            X_WB[name] = pose_matrix(start.position, rotation_matrix(start.rotation)) if start else np.eye(4)
        for name in ready:
            joint = waiting.pop(name)
            X_PC = _relative_pose(name, joint, scene.initial)
            if joint.child not in X_WB:
                X_WB[joint.child] = X_WB[joint.parent] @ X_PC
            elif joint.parent not in X_WB:
                X_WB[joint.parent] = X_WB[joint.child] @ np.linalg.inv(X_PC)
    X = np.stack([X_WB[name] for name in scene.bodies])
    return BodyPoses(np.zeros(1), X[None, :, :3, 3], quaternions(X[:, :3, :3])[None], tuple(scene.bodies))


def poses_of(scene: Scene, motion: "BodyPoses | States | None") -> BodyPoses:
    """Poses from what somebody wants to see: poses, a trajectory, a state, or the scene alone.

    **Raises:** `ValueError` if the motion is not one of this scene.
    """
    if motion is None:
        return initial_poses(scene)
    names = motion.names if isinstance(motion, BodyPoses) else getattr(motion, "body_names", tuple(scene.bodies))
    if tuple(names) != tuple(scene.bodies):
        raise ValueError(f"the motion is of bodies {', '.join(names)}, the scene has {', '.join(scene.bodies)}")
    poses = motion
    if not isinstance(poses, BodyPoses):
        poses = BodyPoses.from_states(scene, poses.time, poses.r, poses.e)
    return poses.until_failure()


def quaternions(R: np.ndarray) -> np.ndarray:
    """Unit quaternions w, x, y, z (n, 4) of rotation matrices (n, 3, 3).

    4 q qᵀ is linear in R; its row with the largest diagonal entry is q times a number far from zero.
    """
    xx, yy, zz = R[:, 0, 0], R[:, 1, 1], R[:, 2, 2]
    wx, wy, wz = R[:, 2, 1] - R[:, 1, 2], R[:, 0, 2] - R[:, 2, 0], R[:, 1, 0] - R[:, 0, 1]
    xy, xz, yz = R[:, 1, 0] + R[:, 0, 1], R[:, 0, 2] + R[:, 2, 0], R[:, 2, 1] + R[:, 1, 2]
    rows = [
        [1 + xx + yy + zz, wx, wy, wz],
        [wx, 1 + xx - yy - zz, xy, xz],
        [wy, xy, 1 - xx + yy - zz, yz],
        [wz, xz, yz, 1 - xx - yy + zz],
    ]
    outer = np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)
    largest = np.argmax(np.diagonal(outer, axis1=1, axis2=2), axis=1)
    q = outer[np.arange(len(R)), largest]
    return q / np.linalg.norm(q, axis=-1, keepdims=True)


def pose_matrix(at: ArrayLike, rotation: np.ndarray) -> np.ndarray:
    """A pose as a (4, 4) matrix, from its origin [m] and its (3, 3) rotation matrix."""
    X = np.eye(4)
    X[:3, :3], X[:3, 3] = rotation, at
    return X


def _relative_pose(name: str, joint: Joint, initial: Mapping[str, Initial]) -> np.ndarray:
    """Pose of the child in the parent, X_PC (4, 4), at the joint's initial positions."""
    F = matrices(frame(joint.axis, joint.x_axis))  # columns u, v, n in the parent
    turn, slide = np.eye(3), F[:, 2] * (joint.length or joint.radius or 0.0)
    spin = np.zeros(3)
    for axis in joint.kind.axes:
        start = initial.get(axis.path(name))
        along = F[:, axis.column] * (start.position if start is not None else 0.0)
        if axis.kind == "spin":
            spin = spin + along
        elif axis.rotational:
            turn = turn @ rotation_matrix(tuple(along))
        else:
            slide = slide + along
    R_PC = turn @ rotation_matrix(tuple(spin)) @ rotation_matrix(joint.rotation)
    return pose_matrix(np.asarray(joint.at) + slide - R_PC @ np.asarray(joint.child_at), R_PC)
