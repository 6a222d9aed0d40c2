"""The types of joints: which rows each has, along which coordinates it is free, and which keys it takes.

The joint frame has columns (u, v, n): n along `axis`, u along `x_axis`. One table for files, engine and viewer.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class FreeAxis:
    """A free coordinate of a joint, or, of a ball joint and what rolls, a direction about which it turns.

    `kind`:

    - `turn` about a column that is common to both sides, `slide` along a column of the parent's frame, `distance` of
      the joint points;
    - `first` and `second`, the turns of a joint with two, about `column` of the parent and of the child; `other` is
      the column of the other turn;
    - `cardan`, the turns of a joint with three, in the order of the columns: `column` is the parent's, turned by those
      before;
    - `spin`: the position is a component of the rotation vector, the rate one of the relative angular velocity, both
      along a column of the child's frame.

    `name` is empty where a joint has one coordinate that needs no name. `bearing`: the joint's rows whose force presses
    on the axis.
    """

    name: str
    kind: Literal["turn", "slide", "first", "second", "cardan", "spin", "distance"]
    bearing: tuple[int, ...]
    column: int = 2
    other: int = -1

    @property
    def rotational(self) -> bool:
        return self.kind not in ("slide", "distance")

    @property
    def turns(self) -> bool:
        """Whether the position is an angle that counts full turns."""
        return self.rotational and self.kind != "spin"

    def path(self, joint: str) -> str:
        """How files call this coordinate of a joint: `joint` or `joint.name`."""
        return f"{joint}.{self.name}" if self.name else joint


@dataclass(frozen=True)
class Part:
    """Some rows of a joint, see `spookax.constraints.shipped_joints`; `columns` of the
    parent's frame, `child` of the child's.

    D: the points do not part along the columns, T: the columns stay perpendicular to the child's, Q: the frames stay
    parallel, L: the points keep their distance, sphere and disc: the child's rolls on the parent's plane.
    """

    kind: Literal["D", "T", "Q", "L", "sphere", "disc"]
    columns: tuple[int, ...] = (0, 1, 2)
    child: int = 2

    @property
    def lengths(self) -> tuple[bool, ...]:
        return (self.kind not in ("T", "Q"),) * (1 if self.kind == "L" else len(self.columns))

    @property
    def rows(self) -> tuple[str, ...]:
        """What each row holds: a coordinate of the parent's frame, or the length."""
        if self.kind == "L":
            return ("length",)
        turned = {"T": [3 + 3 - c - self.child for c in self.columns], "Q": [3 + c for c in self.columns]}
        return tuple(COORDINATES[c] for c in turned.get(self.kind, self.columns))

    @property
    def holonomic(self) -> tuple[bool, ...]:
        rolls = self.kind in ("sphere", "disc")
        return tuple(row == 0 or not rolls for row in range(len(self.lengths)))


@dataclass(frozen=True)
class JointKind:
    """A type of joint: its rows, its axes, and the keys of its own.

    `isotropic`: what acts is the same for all its axes and given once. `apart`: at zero the points are the joint's
    `length` or `radius` apart, along the axis.
    """

    parts: tuple[Part, ...]
    axes: tuple[FreeAxis, ...] = ()
    keys: tuple[str, ...] = ("axis",)
    isotropic: bool = False
    apart: bool = False

    @property
    def lengths(self) -> tuple[bool, ...]:
        """For every row whether it is a length (else an angle)."""
        return tuple(row for part in self.parts for row in part.lengths)

    @property
    def rows(self) -> tuple[str, ...]:
        """Names of the rows: the coordinates x, y, z, rx, ry, rz of the joint frame that each holds, or `length`."""
        return tuple(row for part in self.parts for row in part.rows)

    @property
    def holonomic(self) -> tuple[bool, ...]:
        """For every row whether it binds positions (else velocities only)."""
        return tuple(row for part in self.parts for row in part.holonomic)

    @property
    def all_keys(self) -> frozenset[str]:
        """Keys that not every type takes and this one does."""
        if self.isotropic:
            return frozenset((*self.keys, *ISOTROPIC))
        named = "locked" in self.keys or any(axis.name for axis in self.axes)
        single = any(not axis.name for axis in self.axes)
        return frozenset((*self.keys, *(ALONG_AXIS if single else ()), *(("axes",) if named else ())))


ALONG_AXIS = ("friction", "spring", "armature", "limits")
ISOTROPIC = ("friction", "spring", "armature")
NEEDED = ("length", "pitch", "radius")
OWN_KEYS = ("axis", "x_axis", "locked", *NEEDED, *ALONG_AXIS, "axes")
COORDINATES = ("x", "y", "z", "rx", "ry", "rz")  # of a generic joint: along and about the columns of its frame

_ACROSS, _ALL = (0, 1), (0, 1, 2)
_TURN = FreeAxis("", "turn", _ACROSS)
_NAMED_TURN, _NAMED_SLIDE = FreeAxis("turn", "turn", _ACROSS), FreeAxis("slide", "slide", _ACROSS)
_IN_PLANE = (FreeAxis("x", "slide", (0,), 0), FreeAxis("y", "slide", (0,), 1))
_SPINS = tuple(FreeAxis(COORDINATES[3 + c], "spin", _ALL, c) for c in _ALL)
_ON_PLANE = (*_IN_PLANE, *(FreeAxis(COORDINATES[3 + c], "spin", (0,), c) for c in _ALL))
_UNIVERSAL = (FreeAxis("first", "first", _ALL, 2, 0), FreeAxis("second", "second", _ALL, 0, 2))


def generic(locked: Iterable[str] = ()) -> JointKind:
    """A joint with any of six coordinates locked; the turns follow each other in the order rx, ry, rz."""
    held = frozenset(locked)
    slides = tuple(c for c in _ALL if COORDINATES[c] not in held)
    turns = tuple(c for c in _ALL if COORDINATES[3 + c] not in held)
    points = tuple(c for c in _ALL if c not in slides)
    parts = [Part("D", points)] if points else []
    axes = [FreeAxis(COORDINATES[c], "slide", tuple(range(len(points))), c) for c in slides]
    on_point = tuple(range(len(points)))
    match turns:
        case ():
            parts.append(Part("Q"))
        case (c,):
            parts.append(Part("T", tuple(k for k in _ALL if k != c), c))
            across = tuple(i for i, k in enumerate(points) if k != c)
            axes.append(FreeAxis(COORDINATES[3 + c], "turn", across, c))
        case (i, k):
            parts.append(Part("T", (i,), k))
            axes.append(FreeAxis(COORDINATES[3 + i], "first", on_point, i, k))
            axes.append(FreeAxis(COORDINATES[3 + k], "second", on_point, k, i))
        case _:
            axes += [FreeAxis(COORDINATES[3 + c], "cardan", on_point, c) for c in _ALL]
    return JointKind(tuple(parts), tuple(axes), ("axis", "x_axis", "locked"))


KINDS = {
    "hinge": JointKind((Part("D"), Part("T", _ACROSS)), (_TURN,)),
    "prismatic": JointKind((Part("Q"), Part("D", _ACROSS)), (FreeAxis("", "slide", (3, 4)),)),
    "ball": JointKind((Part("D"),), _SPINS, keys=(), isotropic=True),
    "fixed": JointKind((Part("D"), Part("Q")), keys=()),
    "cylindrical": JointKind((Part("D", _ACROSS), Part("T", _ACROSS)), (_NAMED_TURN, _NAMED_SLIDE)),
    "screw": JointKind((Part("D", _ACROSS), Part("T", _ACROSS)), (_TURN, _NAMED_SLIDE), ("axis", "pitch")),
    "universal": JointKind((Part("D"), Part("T", (2,), 0)), _UNIVERSAL, ("axis", "x_axis")),
    "planar": JointKind(
        (Part("D", (2,)), Part("T", _ACROSS)), (*_IN_PLANE, FreeAxis("turn", "turn", (0,))), ("axis", "x_axis")
    ),
    "inline": JointKind((Part("D", _ACROSS),), (FreeAxis("", "slide", _ACROSS),)),
    "distance": JointKind((Part("L"),), keys=("axis", "length"), apart=True),
    "line": JointKind((), (FreeAxis("", "distance", ()),)),
    "generic": generic(),
    "rolling_sphere": JointKind((Part("sphere", (2, 0, 1)),), _ON_PLANE, ("axis", "x_axis", "radius"), apart=True),
    "rolling_disc": JointKind((Part("disc", (2, 0, 1)),), _ON_PLANE, ("axis", "x_axis", "radius"), apart=True),
}


def kind_of(joint: Any) -> JointKind | None:
    """The kind of a joint in the raw data of a scene; none if its type is unknown."""
    name = joint.get("type") if isinstance(joint, Mapping) else None
    if not isinstance(name, str) or name not in KINDS:
        return None
    locked = joint.get("locked")
    if name != "generic" or not isinstance(locked, list | tuple):
        return KINDS[name]
    return generic(key for key in locked if key in COORDINATES)


def types_with(key: str) -> list[str]:
    """Types of joints that take a key."""
    return [name for name, kind in KINDS.items() if key in kind.all_keys]


def free_axes(joints: Mapping[str, JointKind]) -> Iterator[tuple[str, str, FreeAxis]]:
    """(path, joint, axis) of every free coordinate, in order; `joints`: name -> kind."""
    for name, kind in joints.items():
        for axis in kind.axes:
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
