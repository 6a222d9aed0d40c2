"""The order in which bodies and constraint nodes are eliminated, and the block pattern that follows from it."""

from collections.abc import Mapping
from typing import Any

from ..math.block_sparse import Pattern, symbolic
from .topology import WORLD, Axis, Coupling, Joint

_MANY = 8  # bodies from which on the step is factored in levels


def spanning_tree(num_bodies: int, joints: tuple[Joint, ...]) -> tuple[int, ...]:
    """Joints of a breadth-first spanning tree from the world, in the order in which they reach new bodies.

    Joints that leave most of a body free carry it only if no other does.
    """
    reached, tree = {WORLD}, []

    def reach(loosest: int) -> bool:
        grew = False
        for j, joint in enumerate(joints):
            if joint.num_rows >= loosest and (joint.parent in reached) != (joint.child in reached):
                reached.update((joint.parent, joint.child))
                tree.append(j)
                grew = True
        return grew

    while len(reached) <= num_bodies:
        if not (reach(3) or reach(1) or reach(0)):  # a free group: root it at its first body
            reached.add(next(b for b in range(num_bodies) if b not in reached))
    return tuple(tree)


def node_width(joints: tuple[Joint, ...], couplings: tuple[Coupling, ...], constraints: tuple[Any, ...]) -> int:
    """Rows of the largest constraint node, those of a joint's free axes among them."""
    of_joints = [joint.num_rows + len(joint.kind.axes) for joint in joints]
    return max([*of_joints, *(1 for _ in couplings), *(row.num_rows for row in constraints)], default=1)


def saddle_pattern(
    num_bodies: int,
    joints: tuple[Joint, ...],
    axes: tuple[Axis, ...],
    couplings: tuple[Coupling, ...],
    constraints: tuple[Any, ...],
    bodies: Mapping[str, int],
    tree: tuple[int, ...],
    touching: set[tuple[int, int]],
    followed: set[tuple[int, int]],
) -> Pattern:
    """Block pattern of the step: nodes are bodies (6), then joints, couplings, user rows (one size for all). Bodies
    that may touch each other meet directly, and so do those that a row acts on with the node (`followed`, as pairs
    with its number among the nodes of constraints) whose impulses the row follows.

    The pivot of a constraint node needs a body that it acts on eliminated. A few bodies are eliminated from leaves to
    root: a tree joint directly after the body that it connects outward, loop-closing joints and other rows last, when
    every body is gone. Many bodies go in levels, as many at once as do not touch each other.
    """
    acts_on = [{joint.parent, joint.child} - {WORLD} for joint in joints]
    for coupling in couplings:
        ends = (joints[axes[a].joint] for a in (coupling.driver, coupling.driven))
        acts_on.append({body for joint in ends for body in (joint.parent, joint.child)} - {WORLD})
    acts_on += [{bodies[name] for name in row.bodies if name != "world"} for row in constraints]
    edges = {(num_bodies + node, body) for node, around in enumerate(acts_on) for body in around} | touching
    edges |= {(num_bodies + node, body) for node, body in followed}
    sizes = [6] * num_bodies + [node_width(joints, couplings, constraints)] * len(acts_on)
    if num_bodies > _MANY:
        return symbolic(sizes, edges, None, {num_bodies + node: around for node, around in enumerate(acts_on)})

    outward: dict[int, int] = {}  # body -> tree joint that carries it
    reached = {WORLD}
    for j in tree:
        joint = joints[j]
        body = joint.parent if joint.child in reached else joint.child
        if joint.parent not in reached and joint.child not in reached:  # root of a free group
            reached.add(joint.parent)
            body = joint.child
        reached.add(body)
        outward[body] = j
    order: list[int] = []
    for body in reversed(list(outward)):
        order += [body, num_bodies + outward[body]]
    order += [b for b in range(num_bodies) if b not in outward]
    order += sorted(set(range(len(sizes))) - set(order))
    return symbolic(sizes, edges, order, {})
