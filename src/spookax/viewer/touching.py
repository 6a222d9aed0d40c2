"""Places of contacts and arrows of their forces, as marks that move and grow along a motion."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .._contact_points import ContactPoints
from .drawing import WORLD, Part, cylinder, sphere
from .poses import BodyPoses, pose_matrix

FOLDER = "contact forces"  # no name of a body, which has no spaces
_COLOUR, _FORCE = "#e69f00", "#d1495b"
_POINT, _SHAFT, _TIP = 0.02, 0.01, 0.025  # radii, in sizes of the largest body
_HEAD = 0.2  # of an arrow, that is its tip
_LONGEST = 3.0  # of an arrow, in sizes of the largest body
_HIDDEN = 1e-6  # scale of what is not to be seen
_LIGHT = 1e-9
_DRAWN = 6  # pairs, those with the largest forces
_COLOURS = ("#2257a0", "#c8500a", "#3a8a3a", "#a04090", "#8a6d1f", "#5b6b7b")


@dataclass(frozen=True)
class Mark:
    """Something with a pose and a scale of its own at every time."""

    name: str
    parts: list[Part]
    p: np.ndarray  # (n, 3) in the world [m]
    e: np.ndarray  # (n, 4) w, x, y, z
    scale: np.ndarray  # (n, 3)


class Frames:
    """The steps that begin from each of some times to the next. Where none does, as at the end of a motion, those of
    the time before."""

    def __init__(self, steps: np.ndarray, time: np.ndarray):
        frame = np.clip(np.searchsorted(time, steps + 1e-9, side="right") - 1, 0, time.size - 1)
        begun, self._where, self._count = np.unique(frame, return_index=True, return_counts=True)
        self._held = np.maximum(np.searchsorted(begun, np.arange(time.size), side="right") - 1, 0)

    def means(self, values: np.ndarray) -> np.ndarray:
        """Means over the steps of every frame."""
        sums = np.add.reduceat(values, self._where)
        return (sums / self._count.reshape(-1, *[1] * (values.ndim - 1)))[self._held]


@dataclass(frozen=True)
class Line:
    """The forces of a pair over time, as points of an SVG line: x from 0 to 1, y from 0 to 1 (the largest force)."""

    label: str
    colour: str
    normal: str
    friction: str


@dataclass(frozen=True)
class Lines:
    """Those pairs that are drawn; `most`: the largest force [N]; `left_out`: how many pairs are not."""

    lines: list[Line]
    most: float
    left_out: int


def lines_of(contacts: ContactPoints, poses: BodyPoses) -> Lines:
    """Normal force and friction of the pairs that press hardest, means over the time until the next pose."""
    frames, time = Frames(contacts.time, poses.time), poses.time - poses.time[0]
    pairs = contacts.by_pair()
    means = {pair: frames.means(forces) for pair, forces in [*pairs.items()][:_DRAWN]}
    most = max((float(forces.max()) for forces in means.values()), default=0.0)

    def points(values: np.ndarray) -> str:
        return " ".join(f"{x:.5g},{y:.5g}" for x, y in zip(time / time[-1], values / most, strict=True))

    lines = [
        Line(f"{first} on {second}", colour, *map(points, forces.T))
        for ((first, second), forces), colour in zip(means.items(), _COLOURS, strict=False)
    ]
    return Lines(lines, most, len(pairs) - len(lines))


@dataclass(frozen=True)
class Marks:
    """All marks; `length`: of an arrow, per force [m/N]."""

    marks: list[Mark]
    length: float


def marks_of(contacts: ContactPoints, poses: BodyPoses, parts: dict[str, list[Part]]) -> Marks:
    """A ball at every place that touches at some time, and an arrow of the force on the first surface of its pair.

    Forces are means over the time until the next pose. An arrow as long as the largest body stands for the median of
    all forces; none is longer than three bodies.
    """
    frames, weight = Frames(contacts.time, poses.time), np.linalg.norm(contacts.force, axis=-1, keepdims=True)
    weight = weight + _LIGHT * (1 + weight.max(initial=0.0))  # or what does not touch would be nowhere
    place, force = frames.means(weight * contacts.point) / frames.means(weight), frames.means(contacts.force)
    used = np.any(force != 0, axis=(0, 2))
    place, force = place[:, used], force[:, used]
    size, strength = _largest(parts), np.linalg.norm(force, axis=-1)
    length = size / float(np.median(strength[strength > 0])) if used.any() else 0.0
    return Marks(list(_marks(place, force, strength, size, length)), length)


def _marks(place: np.ndarray, force: np.ndarray, strength: np.ndarray, size: float, length: float) -> Iterator[Mark]:
    upright = np.tile([1.0, 0.0, 0.0, 0.0], (len(place), 1))
    head = pose_matrix((0.0, 1.0 - _HEAD / 2, 0.0), np.eye(3))
    shaft = pose_matrix((0.0, (1.0 - _HEAD) / 2, 0.0), np.eye(3))
    for i in range(place.shape[1]):
        here = strength[:, i] > 0
        ball = [sphere("ball", _POINT * size, np.eye(4), _COLOUR)]
        shown = np.where(here, 1.0, _HIDDEN)[:, None] * np.ones(3)
        yield Mark(f"{FOLDER}/point_{i}", ball, place[:, i], upright, shown)
        arrow = [
            cylinder("shaft", (_SHAFT * size, _SHAFT * size), 1.0 - _HEAD, shaft, _FORCE),
            cylinder("tip", (0.0, _TIP * size), _HEAD, head, _FORCE),
        ]
        grown = np.minimum(length * strength[:, i], _LONGEST * size)
        scale = np.where(here[:, None], np.stack([np.ones_like(grown), grown, np.ones_like(grown)], axis=1), _HIDDEN)
        yield Mark(f"{FOLDER}/force_{i}", arrow, place[:, i], _turned(force[:, i], here), scale)


def _turned(force: np.ndarray, here: np.ndarray) -> np.ndarray:
    """Quaternions (n, 4) that turn y to a direction: half of the way is the axis."""
    unit = np.where(here[:, None], force, [0.0, 1.0, 0.0])
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    w, axis = 1 + unit[:, 1], np.stack([unit[:, 2], 0 * unit[:, 1], -unit[:, 0]], axis=1)
    straight_back = w < 1e-12
    q = np.concatenate([np.where(straight_back, 0.0, w)[:, None], axis], axis=1)
    q[straight_back] = [0.0, 1.0, 0.0, 0.0]
    return q / np.linalg.norm(q, axis=1, keepdims=True)


def _largest(parts: dict[str, list[Part]]) -> float:
    """Largest extent of a body. [m]"""
    bodies = [np.concatenate([part.corners for part in own]) for name, own in parts.items() if name != WORLD]
    return max(float(np.max(np.ptp(corners, axis=0))) for corners in bodies)
