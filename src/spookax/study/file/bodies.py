"""What keeps bodies possible when only some of their moments of inertia are unknown.

No moment of a body exceeds the sum of the other two. So one unknown moment has the difference and the sum of the others
as its bounds, and two or three are searched over together (`models.moments`). But not every moment in a scene file is
known: about directions in which a body never turns a moment has no effect, and files give any number. Such moments do
not stand in the way: they are changed with the estimate where a possible body needs it.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...scene import Scene
from ...scene.explain import Finding
from ...scene.inertia import MOMENTS, flaws
from ...scene.joint_types import frame
from ...scene.located import FileProblem
from ...scene.parts import Joint
from ...scene.shapes import matrices, rotation_matrix
from .study import Study

if TYPE_CHECKING:  # a study is checked without JAX
    from ...models import Free

_PLANAR = ("fixed", "prismatic", "hinge", "cylindrical", "screw", "planar", "generic")
_ROOM = 3.0  # factor on a start within which its estimate is expected
_PARALLEL = 1e-9  # sine of the angle between directions that are one


def idle_moments(scene: Scene) -> dict[str, tuple[str, ...]]:
    """Body -> its principal moments without effect on any motion that the joints allow.

    A body that turns about one direction only, as all do whose axes are parallel down to the world, has one moment that
    counts; a body that does not turn has none.
    """
    found = {}
    for name, directions in _directions(scene).items():
        seen = {i for d in directions for i in np.flatnonzero(np.abs(d) > _PARALLEL)}
        found[name] = tuple(part for i, part in enumerate(MOMENTS) if i not in seen)
    return found


def possible(scene: Scene, free: "Sequence[Free]", tied: Collection[str]) -> "tuple[Free, ...]":
    """Unknowns with the moments of bodies confined to possible ones, where nothing else is known of them.

    As they are: moments that others do not confine, since these are idle, tied or come with products of inertia, and
    several of which one has bounds or a prior of its own.
    """
    idle, found = idle_moments(scene), list(free)
    for name, body in scene.bodies.items():
        path, inertia = f"bodies.{name}.inertia", body.inertia
        mine = [f for f in found if f.path.startswith(f"{path}.")]
        known = [part for part in MOMENTS if part not in (f.path.rpartition(".")[2] for f in mine)]
        if not mine or inertia.xy or inertia.xz or inertia.yz:
            continue
        if not all(f.transform == "log" for f in mine) or any(t.startswith(path) for t in tied):
            continue
        if not set(known).isdisjoint(idle[name]):
            continue
        moments = {f.path.rpartition(".")[2]: f.start for f in mine}
        start = tuple(float(moments.get(part, getattr(inertia, part))) for part in MOMENTS)  # type: ignore[arg-type]
        if len(mine) == 1:
            a, b = (getattr(inertia, part) for part in known)
            lower, upper = max(mine[0].lower, abs(a - b)), min(mine[0].upper, a + b)
            found[found.index(mine[0])] = dataclasses.replace(mine[0], lower=lower, upper=upper)
        elif all(f.lower == -np.inf and f.upper == np.inf and f.prior_sd is None for f in mine):
            parts = tuple(part for part in MOMENTS if part in moments)
            found[found.index(mine[0])] = dataclasses.replace(
                mine[0], path=path, start=start, transform="moments", parts=parts
            )
            found = [f for f in found if f not in mine]
    return tuple(found)


def make_way(scene: Scene, numbers: Mapping[str, float]) -> dict[str, float]:
    """New numbers for idle moments that make no body possible with `numbers`, by path; empty where all are."""
    idle, found = idle_moments(scene), {}
    for name, body in scene.bodies.items():
        path, inertia = f"bodies.{name}.inertia", body.inertia
        free = [part for part in idle[name] if f"{path}.{part}" not in numbers]
        counts = [part for part in MOMENTS if part not in free]
        if not free or not counts or inertia.xy or inertia.xz or inertia.yz:
            continue
        moments = {part: numbers.get(f"{path}.{part}", getattr(inertia, part)) for part in MOMENTS}
        if flaws(np.diag(list(moments.values()))):
            new = _nearest(moments, free)
            found |= {f"{path}.{part}": value for part, value in new.items() if value != moments[part]}
    return found


def _nearest(moments: Mapping[str, float], free: Sequence[str]) -> dict[str, float]:
    """The free ones, one or two, of three moments that no body has, so that one has them."""
    held = [value for part, value in moments.items() if part not in free]
    if len(free) == 1:
        a, b = held
        return {free[0]: float(np.clip(moments[free[0]], abs(a - b), a + b))}
    (c,), (a, b) = held, (moments[part] for part in free)
    scale = max(1.0, c / (a + b))
    a, b = scale * a, scale * b
    return dict(zip(free, (min(a, b + c), min(b, a + c)), strict=True))


def idle_doubts(study: Study, scene: Scene) -> Iterator[FileProblem]:
    """Unknown moments without effect."""
    for name, idle in idle_moments(scene).items():
        for part in idle:
            if (path := f"bodies.{name}.inertia.{part}") in study.parameters:
                message = f"body '{name}' never turns about its {part[0]} axis, so that this moment has no effect"
                yield study.located.problem(Finding(("parameters", path), None, message, "Delete this line."))


def in_the_way(study: Study, scene: Scene) -> Iterator[str]:
    """Sentences about known moments without effect that leave an unknown one of the same body little room."""
    for name, idle in idle_moments(scene).items():
        path, inertia = f"bodies.{name}.inertia", scene.bodies[name].inertia
        mine = [part for part in MOMENTS if f"{path}.{part}" in study.parameters]
        known = [part for part in idle if part not in mine]
        if len(mine) != 1 or len(known) != 2:
            continue
        (own,), (a, b) = mine, (getattr(inertia, part) for part in known)
        start = study.parameters[f"{path}.{own}"].start or getattr(inertia, own)
        if abs(a - b) > start / _ROOM or a + b < _ROOM * start:
            yield (
                f"{path}.{own}: {known[0]} and {known[1]} have no effect on this motion; if it is found outside "
                f"{abs(a - b):.4g} to {a + b:.4g} kg m^2, the identified scene has others, for no body has these"
            )


def _directions(scene: Scene) -> dict[str, np.ndarray]:
    """Directions about which each body can turn, in its own axes; of several ways to the world the most confining."""
    every = np.eye(3)
    # world -> its orientation, which is that of the body at zero angles on that way, and the directions in world axes
    ways: dict[str, tuple[np.ndarray, np.ndarray]] = {"world": (every, np.zeros((0, 3)))}
    for _ in scene.bodies:
        for joint in scene.joints.values():
            turn, own = rotation_matrix(joint.rotation), _own_directions(joint)
            for here, there, relative in ((joint.parent, joint.child, turn), (joint.child, joint.parent, turn.T)):
                if here not in ways:
                    continue
                at, before = ways[here]
                orientation = at @ relative
                parent = at if here == joint.parent else orientation
                directions = _merged(np.concatenate([before, own @ parent.T]))
                if there not in ways or len(directions) < len(ways[there][1]):
                    ways[there] = orientation, directions
    return {name: ways[name][1] @ ways[name][0] if name in ways else every for name in scene.bodies}


def _own_directions(joint: Joint) -> np.ndarray:
    """Directions about which a joint turns, in the parent's axes; all three where they do not stay."""
    axes = [axis for axis in joint.kind.axes if axis.rotational]
    if joint.type not in _PLANAR or len(axes) > 1:
        return np.eye(3)
    columns = matrices(frame(joint.axis, joint.x_axis))
    return np.array([columns[:, axis.column] for axis in axes]).reshape(-1, 3)


def _merged(directions: np.ndarray) -> np.ndarray:
    """One direction, or none, or where they are several all three: the body then turns about any."""
    if len(directions) == 0:
        return directions
    first = directions[0]
    parallel = np.linalg.norm(np.cross(directions, first), axis=1) < _PARALLEL
    return directions[:1] if parallel.all() else np.eye(3)
