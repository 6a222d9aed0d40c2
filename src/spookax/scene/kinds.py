"""The types of joints: which rows each has, along which coordinates it is free, and which keys it takes.

The joint frame has columns (u, v, n): n along `axis`, u along `x_axis`. One table for files, engine and viewer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class FreeAxis:
    """A free coordinate of a joint.

    `kind`: `turn` about n, which is common to both sides; `slide` along a column of the parent's frame; `first` and
    `second`, the turns of a universal joint about the parent's n and the child's u; `distance` of the joint points.
    `name` is empty where a joint has one coordinate that needs no name. `bearing`: the joint's rows whose force presses
    on the axis.
    """

    name: str
    kind: Literal["turn", "slide", "first", "second", "distance"]
    bearing: tuple[int, ...]
    column: int = 2

    @property
    def rotational(self) -> bool:
        return self.kind not in ("slide", "distance")

    def path(self, joint: str) -> str:
        """How files call this coordinate of a joint: `joint` or `joint.name`."""
        return f"{joint}.{self.name}" if self.name else joint


@dataclass(frozen=True)
class JointKind:
    """A type of joint. `lengths`: for every row whether it is a length (else an angle); `keys`: of its own."""

    lengths: tuple[bool, ...]
    axes: tuple[FreeAxis, ...] = ()
    keys: tuple[str, ...] = ("axis",)

    @property
    def all_keys(self) -> frozenset[str]:
        """Keys that not every type takes and this one does."""
        named = any(axis.name for axis in self.axes)
        single = any(not axis.name for axis in self.axes)
        return frozenset((*self.keys, *(ALONG_AXIS if single else ()), *(("axes",) if named else ())))


ALONG_AXIS = ("friction", "spring", "armature", "limits")
NEEDED = ("length", "pitch")
OWN_KEYS = ("axis", "x_axis", *NEEDED, *ALONG_AXIS, "axes")

_ACROSS, _ALL = (0, 1), (0, 1, 2)
_TURN = FreeAxis("", "turn", _ACROSS)
_NAMED_TURN, _NAMED_SLIDE = FreeAxis("turn", "turn", _ACROSS), FreeAxis("slide", "slide", _ACROSS)
_POINT, _PARALLEL = (True,) * 3, (False,) * 3

KINDS = {
    "hinge": JointKind((*_POINT, False, False), (_TURN,)),
    "prismatic": JointKind((*_PARALLEL, True, True), (FreeAxis("", "slide", (3, 4)),)),
    "ball": JointKind(_POINT, keys=()),
    "fixed": JointKind((*_POINT, *_PARALLEL), keys=()),
    "cylindrical": JointKind((True, True, False, False), (_NAMED_TURN, _NAMED_SLIDE)),
    "screw": JointKind((True, True, False, False), (_TURN, _NAMED_SLIDE), ("axis", "pitch")),
    "universal": JointKind(
        (*_POINT, False), (FreeAxis("first", "first", _ALL), FreeAxis("second", "second", _ALL, 0)), ("axis", "x_axis")
    ),
    "planar": JointKind(
        (True, False, False),
        (FreeAxis("x", "slide", (0,), 0), FreeAxis("y", "slide", (0,), 1), FreeAxis("turn", "turn", (0,))),
        ("axis", "x_axis"),
    ),
    "inline": JointKind((True, True), (FreeAxis("", "slide", _ACROSS),)),
    "distance": JointKind((True,), keys=("axis", "length")),
    "line": JointKind((), (FreeAxis("", "distance", ()),)),
}


def types_with(key: str) -> list[str]:
    """Types of joints that take a key."""
    return [name for name, kind in KINDS.items() if key in kind.all_keys]


def free_axes(joints: Mapping[str, Any]) -> Iterator[tuple[str, str, FreeAxis]]:
    """(path, joint, axis) of every free coordinate, in order; `joints`: name -> type."""
    for name, kind in joints.items():
        for axis in KINDS[kind].axes if kind in KINDS else ():
            yield axis.path(name), name, axis


def frame(axis: ArrayLike, x_axis: ArrayLike | None = None) -> np.ndarray:
    """Quaternion w, x, y, z of the joint frame: the shortest turn from z to `axis`, then about it to `x_axis`."""
    n = np.asarray(axis, dtype=float)
    n = n / np.linalg.norm(n)
    q = np.array([0.0, 1.0, 0.0, 0.0] if n[2] < -1 + 1e-12 else [1 + n[2], -n[1], n[0], 0.0])
    w, x, y, z = q / np.linalg.norm(q)
    if x_axis is None:
        return np.array([w, x, y, z])
    u = np.array([1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)])
    wanted = np.asarray(x_axis, dtype=float)
    half = np.arctan2(wanted @ np.cross(n, u), wanted @ u) / 2
    c, s = np.cos(half), np.sin(half)
    return np.array([w * c - z * s, x * c + y * s, y * c - x * s, z * c + w * s])
