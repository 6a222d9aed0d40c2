"""Equality constraints of a compiled model: joints that close loops, and couplings."""

from typing import Any

from spookax.mjcf.compiler import Names
from spookax.mjcf.frame_poses import Pose, numbers, rotation_vector
from spookax.mjcf.source import WORLD, Carried, Source


def read_loops(source: Source, joint_names: Names) -> tuple[dict[str, Any], dict[str, Any]]:
    """Joints and couplings, by name, that stand for the equality constraints."""
    joints: dict[str, Any] = {}
    couplings: dict[str, Any] = {}
    if source.off("EQUALITY") or source.off("CONSTRAINT"):
        return joints, couplings
    model, coupling_names = source.model, Names()
    for i in range(model.neq):
        given, kind = source.name("equality", i), int(model.eq_type[i])
        what = f"equality '{given}'"
        if not model.eq_active0[i]:
            source.report.add(what, "is switched off at the start; it never acts here", "Delete it, or switch it on.")
        elif source.is_a(kind, "mjEQ_JOINT"):
            coupling = _coupling(source, i, what)
            if coupling:
                source.loops[i] = coupling_names.new(given, f"equality{i}")
                couplings[source.loops[i]] = coupling
        elif source.is_a(kind, "mjEQ_CONNECT") or source.is_a(kind, "mjEQ_WELD"):
            joint = _joint(source, i, what)
            if joint:
                source.loops[i] = joint_names.new(given, f"equality{i}")
                joints[source.loops[i]] = joint
        else:
            cure = "Say it by a `connect`, a `weld` or a `joint`."
            source.report.add(what, "this type of equality is not known here", cure)
    return joints, couplings


def _joint(source: Source, i: int, what: str) -> dict[str, Any] | None:
    """A ball joint for `connect`, a fixed one for `weld`; the ends are poses in the bodies of the scene."""
    model, weld = source.model, source.is_a(source.model.eq_type[i], "mjEQ_WELD")
    ids, data = (int(model.eq_obj1id[i]), int(model.eq_obj2id[i])), model.eq_data[i]
    if source.is_a(model.eq_objtype[i], "mjOBJ_SITE"):
        bodies = [source.bodies[model.site_bodyid[site]] for site in ids]
        local = [Pose.of(model.site_pos[site], model.site_quat[site]) for site in ids]
    else:  # a weld's numbers: the point in body 2, then the pose of body 2 in body 1
        bodies = [source.bodies[body] for body in ids]
        first = Pose.of(data[3:6], data[6:10]) if weld else Pose.of(data[0:3])
        local = [first, Pose.of(data[0:3] if weld else data[3:6])]
    ends: list[tuple[Carried, Pose]] = list(zip(bodies, local, strict=True))
    if ends[0][0].owner == ends[1][0].owner:
        source.report.add(what, "both its ends are on one rigid body", "Delete it.")
        return None
    (parent, in_parent), (child, in_child) = ends if bodies[1].owner != WORLD else ends[::-1]
    on_parent, on_child = parent.pose @ in_parent, child.pose @ in_child
    joint: dict[str, Any] = {"parent": parent.owner, "child": child.owner}
    joint |= {"at": numbers(on_parent.at), "child_at": numbers(on_child.at)}
    if weld:
        relative = on_parent @ on_child.inverse()
        return {"type": "fixed", **joint, "rotation": rotation_vector(relative.rotation)}
    return {"type": "ball", **joint}


def _coupling(source: Source, i: int, what: str) -> dict[str, Any] | None:
    """`driven - its ref = c0 + c1 (driver - its ref)`, the linear part of MuJoCo's polynomial."""
    model, data = source.model, source.model.eq_data[i]
    driven, driver = int(model.eq_obj1id[i]), int(model.eq_obj2id[i])
    if driver < 0:
        cure = "Delete the joint, so that the body is welded to its parent."
        source.report.add(what, "holds one joint at a constant position", cure)
        return None
    if any(data[2:5]):
        source.report.add(what, "its polynomial has powers above the first", "Set `polycoef` 2 to 4 to zero.")
    if driven not in source.axes or driver not in source.axes:
        source.report.add(what, "couples a joint that is missing here", "See what is said about that joint.")
        return None
    ref = [float(model.qpos0[model.jnt_qposadr[j]]) for j in (driven, driver)]
    ratio = float(data[1])
    offset = ref[0] + float(data[0]) - ratio * ref[1]
    return {"driver": source.axes[driver], "driven": source.axes[driven], "ratio": ratio, "offset": offset}
