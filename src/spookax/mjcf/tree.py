"""The tree of bodies that MJCF nests, chosen from the joints of a scene; the other joints close loops."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from spookax.mjcf.frame_poses import Pose
from spookax.scene import Scene
from spookax.scene.friction import Friction
from spookax.scene.joint_types import frame
from spookax.scene.parts import Along, Joint, JointPosition, JointRate

WORLD = "world"
NO_JOINT = ("distance", "line", "rolling_sphere", "rolling_disc")  # of MJCF, which cannot say them
_EASY = {"hinge": 1, "fixed": 1, "ball": 2}  # equality constraints can say these; larger: the sooner it closes a loop


@dataclass(frozen=True)
class Motion:
    """One joint in MJCF: its type, the axis of the scene that it is, direction and anchor in the nested body."""

    type: str  # hinge, slide or ball
    path: str | None  # `joint.axis`, or the joint for a ball of its own; nothing for one that is part of a joint
    along: Joint | Along | None
    direction: np.ndarray
    anchor: np.ndarray


@dataclass(frozen=True)
class Branch:
    """A body nested in another. `pose` is its own in that one with all joints at zero; a free one has no joint."""

    body: str
    inside: str
    pose: Pose
    joint: str | None
    motions: tuple[Motion, ...]


def branches(scene: Scene) -> tuple[list[Branch], list[str]]:
    """Bodies in an order in which every one follows the one it is nested in, and the joints that close loops.

    Joints that equality constraints cannot say are nested first. A joint whose child is nearer to the world than
    its parent is turned round; its positions stay the same.
    """
    group = {name: name for name in (WORLD, *scene.bodies)}

    def root(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    chosen: dict[str, Joint] = {}
    used = used_joints(scene)
    for name in sorted(scene.joints, key=lambda name: _rank(scene, name, used)):  # stable: else in the scene's order
        joint = scene.joints[name]
        ends = root(joint.parent), root(joint.child)
        if joint.type not in NO_JOINT and ends[0] != ends[1]:
            group[ends[0]] = ends[1]
            chosen[name] = joint
    found: list[Branch] = []
    reached = {WORLD}
    for start in (WORLD, *scene.bodies):
        if start not in reached:
            found.append(Branch(start, WORLD, Pose(), None, ()))
            reached.add(start)
        waiting = [start]
        while waiting:
            at = waiting.pop(0)
            for name in [name for name in scene.joints if name in chosen]:
                joint = chosen[name]
                other = {joint.parent: joint.child, joint.child: joint.parent}.get(at)
                if other is not None and other not in reached:
                    found.append(_branch(name, joint, at))
                    reached.add(other)
                    waiting.append(other)
    return found, [name for name in scene.joints if name not in chosen]


def _rank(scene: Scene, name: str, used: set[str]) -> int:
    return _EASY.get(scene.joints[name].type, 0) if is_bare(scene, name, used) else 0


def is_bare(scene: Scene, name: str, used: set[str]) -> bool:
    """Whether nothing acts along a joint and nothing else names it; `used`: from `used_joints`."""
    joint = scene.joints[name]
    along = [joint.along(axis.name) for axis in joint.kind.axes]
    still = all(not any((a.armature, a.spring.stiffness, _is_any(a.friction))) for a in along)
    return name not in used and still and all(a.limits.lower is a.limits.upper is None for a in along)


def _is_any(friction: Friction) -> bool:
    dry = any((friction.coulomb, friction.stribeck.excess, friction.bearing, friction.learned, friction.elements))
    return dry or friction.viscous > 0 or friction.drag > 0


def used_joints(scene: Scene) -> set[str]:
    """Joints that a motor, sensor, coupling or initial position names."""
    paths = [*scene.initial, *(motor.joint for motor in scene.motors.values())]
    paths += [path for coupling in scene.couplings.values() for path in (coupling.driver, coupling.driven)]
    paths += [sensor.joint for sensor in scene.sensors.values() if isinstance(sensor, JointPosition | JointRate)]
    return {path.partition(".")[0] for path in paths}


def zero_pose(joint: Joint) -> Pose:
    """Pose of the child in the parent with all axes at zero."""
    turn = Pose.placed((0.0, 0.0, 0.0), joint.rotation)
    return Pose(turn.rotation, np.array(joint.at) - turn.rotation @ np.array(joint.child_at))


def _branch(name: str, joint: Joint, inside: str) -> Branch:
    pose = zero_pose(joint)
    if inside == joint.parent:
        return Branch(joint.child, inside, pose, name, forward_motions(name, joint))
    backward = tuple(_motions(name, joint, np.eye(3), np.array(joint.at), -1.0))[::-1]
    return Branch(joint.parent, inside, pose.inverse(), name, backward)


def forward_motions(name: str, joint: Joint) -> tuple[Motion, ...]:
    """What a joint is in MJCF when its child is nested in its parent."""
    return tuple(_motions(name, joint, zero_pose(joint).rotation.T, np.array(joint.child_at), 1.0))


def _motions(name: str, joint: Joint, rotation: np.ndarray, anchor: np.ndarray, sign: float) -> Iterator[Motion]:
    """From the parent to the child: slides along the parent's directions, then turns."""
    columns = Pose.of((0.0, 0.0, 0.0), frame(joint.axis, joint.x_axis)).rotation
    for slide in (True, False):
        for axis in joint.kind.axes:
            if (axis.kind == "slide") == slide and axis.kind != "spin":
                direction = sign * rotation @ columns[:, axis.column]
                kind = "slide" if slide else "hinge"
                yield Motion(kind, axis.path(name), joint.along(axis.name), direction, anchor)
    if joint.type in ("ball", "inline"):
        own = (name, joint) if joint.type == "ball" else (None, None)
        yield Motion("ball", *own, np.array([0.0, 0.0, 1.0]), anchor)
