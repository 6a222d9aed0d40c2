"""Good scenes are read with everything filled in; rules between keys are enforced with a sentence."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from spookax.scene import Scene, SceneError, read_scene

FULL = Path(__file__).with_name("full.yaml")
SCENES = sorted((Path(__file__).parents[2] / "scenes").glob("*.yaml"))


def write(folder: Path, text: str) -> Path:
    path = folder / "scene.yaml"
    path.write_text(text)
    return path


def one_problem(folder: Path, text: str):
    with pytest.raises(SceneError) as caught:
        read_scene(write(folder, text))
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize("path", SCENES, ids=lambda path: path.stem)
def test_shipped_scenes_are_read(path):
    scene = read_scene(path)
    assert scene.bodies
    assert scene.joints or scene.contacts


@pytest.mark.parametrize(("head", "name"), [("", "crane"), ("name: lift\n", "lift")])
def test_a_scene_without_a_name_has_that_of_its_file(tmp_path, head, name):
    path = tmp_path / "crane.yaml"
    path.write_text(head + "spookax: 1\nbodies:\n  a: {mass: 1, inertia: [1, 1, 1]}\n")
    assert read_scene(path).name == name


def test_every_key_arrives_where_it_belongs():
    scene = read_scene(FULL)
    assert (scene.name, scene.step, scene.gravity, scene.tilt) == (
        "full",
        0.004,
        (0.1, 0.2, -9.7),
        (0.01, -0.02),
    )
    rules = scene.regularisation
    assert (rules.relative_compliance, rules.relaxation_steps, rules.v_creep) == (2e-6, 1.5, 1e-5)
    base, arm, puck = scene.bodies["base"], scene.bodies["arm"], scene.bodies["puck"]
    assert np.array_equal(base.inertia.matrix(), np.diag([0.1, 0.2, 0.25]))
    assert base.shapes == []
    assert (arm.mass, arm.com) == (0.3, (0.1, -0.2, 0.3))
    rows = [[1e-3, 1e-4, -2e-4], [1e-4, 2e-3, 3e-4], [-2e-4, 3e-4, 2.5e-3]]
    assert np.array_equal(arm.inertia.matrix(), np.array(rows))
    assert [shape.type for shape in arm.shapes] == ["box", "cylinder"]
    assert arm.shapes[0].colour == "#a0B1c2"
    assert (puck.inertia.xx, puck.inertia.xy, puck.com) == (1e-3, 1e-5, (0.0, 0.0, 0.0))
    shoulder = scene.joints["shoulder"]
    assert np.allclose(shoulder.axis, np.array([1, 2, 2]) / 3, atol=1e-16)
    assert (shoulder.parent, shoulder.child, shoulder.at) == ("base", "arm", (0, 0, 1))
    assert (shoulder.child_at, shoulder.rotation) == ((0, 0, -0.5), (0, 0.3, 0))
    stribeck = shoulder.friction.stribeck
    assert (shoulder.friction.viscous, shoulder.friction.coulomb) == (0.02, 0.01)
    assert (stribeck.excess, stribeck.speed, stribeck.exponent) == (0.005, 0.2, 1.5)
    assert (shoulder.spring.stiffness, shoulder.spring.rest, shoulder.armature) == (0.7, 0.3, 1e-4)
    assert (shoulder.relative_compliance, shoulder.relaxation_steps) == (1e-7, 1)
    assert [joint.type for joint in scene.joints.values()] == [
        *("hinge", "prismatic", "ball", "fixed"),
        *("cylindrical", "universal", "screw", "distance", "generic", "rolling_disc"),
    ]
    shaft, gear = scene.joints["shaft"], scene.couplings["gear"]
    assert (shaft.axes["slide"].friction.viscous, shaft.axes["slide"].armature, shaft.axes["turn"].armature) == (
        0.3,
        0.01,
        0,
    )
    assert [axis.name for axis in scene.joints["mount"].kind.axes] == ["y", "rx", "rz"]
    assert (scene.joints["wheel"].radius, scene.joints["mount"].axes["rz"].armature) == (0.04, 0.02)
    assert (scene.joints["jack"].pitch, scene.joints["rod"].length) == (-0.02, 0.7)
    assert scene.joints["knuckle"].x_axis == (0, 1, 0)
    assert (gear.driver, gear.driven, gear.ratio, gear.offset) == ("shoulder", "shaft.turn", -2.5, 0.1)
    assert (gear.relative_compliance, gear.relaxation_steps) == (1e-5, 3)
    assert scene.initial["shaft.turn"].position == 0.2
    drive, push = scene.motors["drive"], scene.motors["push"]
    assert drive.type == "dc"
    assert (drive.gain, drive.back_emf) == (0.05 / 2.5, 0.05 * 0.04 / 2.5)
    assert push.type == "torque"
    assert (push.joint, push.gain, push.bias) == ("slide", 35.0, -1.5)
    encoder, marker = scene.sensors["encoder"], scene.sensors["marker"]
    assert encoder.type == "joint_position"
    assert (encoder.joint, encoder.sd, encoder.offset) == ("shoulder", 2e-3, 0.02)
    assert marker.type == "point_position"
    assert (marker.body, marker.sd, marker.at) == ("puck", 1e-3, (0.01, 0.02, 0.03))
    assert (scene.initial["shoulder"].position, scene.initial["shoulder"].rate) == (0.5, -0.1)
    assert scene.rows["pulley"].model_extra == {"ratio": 2.0}


def test_defaults():
    scene = Scene.model_validate({"spookax": 1, "bodies": {"a": {"mass": 1, "inertia": [1, 1, 1]}}})
    assert (scene.step, scene.gravity, scene.tilt) == (0.005, (0.0, 0.0, -9.81), (0.0, 0.0))
    rules = scene.regularisation
    assert (rules.relative_compliance, rules.relaxation_steps, rules.v_creep) == (1e-6, 2.0, 1e-6)
    assert scene.joints == scene.motors == scene.sensors == scene.initial == scene.rows == {}
    data = {**scene.plain(), "joints": {"j": {"type": "hinge", "child": "a"}}}
    joint = Scene.model_validate(data).joints["j"]
    assert (joint.parent, joint.axis, joint.relative_compliance) == ("world", (0, 0, 1), None)
    assert (joint.friction.coulomb, joint.friction.stribeck.speed, joint.armature) == (0, 0.1, 0)


def test_density_and_shapes_give_mass_com_and_inertia(tmp_path):
    text = "spookax: 1\nbodies:\n  a:\n    density: 1000\n    shapes:\n"
    box = "      - {type: box, size: [0.1, 0.2, 0.3], at: [1, 2, 3]}\n"
    body = read_scene(write(tmp_path, text + box)).bodies["a"]
    assert body.density is None
    assert body.mass == pytest.approx(6.0)
    assert np.allclose(body.com, [1, 2, 3])
    assert np.allclose(body.inertia.matrix(), 6 / 12 * np.diag([0.13, 0.10, 0.05]))


# (lines under the sections of a scene, line, path, message, cure)
BODY = "spookax: 1\nbodies:\n  a: {mass: 1, inertia: [1, 1, 1]}\n  b: {mass: 1, inertia: [1, 1, 1]}\n"
JOINTS = BODY + "joints:\n  h: {type: hinge, child: a}\n  s: {type: fixed, parent: a, child: b}\n"
KINDS = BODY + "joints:\n"
DC = JOINTS + "motors:\n  m:\n    type: dc\n    joint: h\n"


@pytest.mark.parametrize(
    ("text", "line", "path", "message", "cure"),
    [
        ("spookax: 1\n", 1, "bodies", "is missing", "Add `bodies: ...`"),
        ("spookax: 1\nbodies: {}\n", 2, "bodies", "must have at least 1 entry, got none", "Write as many"),
        (BODY.replace("1\n", "2\n", 1), 1, "spookax", "must be 1, got 2", "Write 1."),
        (BODY.replace("1\n", "true\n", 1), 1, "spookax", "must be 1, got true", "`spookax: 1`"),
        (
            KINDS + "  h:\n    type: hinge\n    child: a\n    friction: {learned: {force: 1, weights: [1, 2]}}\n",
            9,
            "joints.h.friction.learned.weights",
            "a network 1-6-6-1 has 61 weights, got 2",
            "Delete the line",
        ),
        (
            KINDS + "  p:\n    type: prismatic\n    child: a\n    friction: {learned: {force: 1, sees: [angle]}}\n",
            9,
            "joints.p.friction.learned.sees",
            "this axis has no angle",
            "Delete `angle`.",
        ),
        (
            KINDS + "  h:\n    type: hinge\n    child: a\n    friction: {learned: {force: 1, sees: [load, load]}}\n",
            9,
            "joints.h.friction.learned.sees",
            "names something twice",
            "Delete one",
        ),
        (
            KINDS + "  h:\n    type: hinge\n    child: a\n    friction: {learned: {force: 1, sees: [lode]}}\n",
            9,
            "joints.h.friction.learned.sees[0]",
            "got 'lode'",
            "load",
        ),
        (
            BODY + "  a b: {mass: 1, inertia: [1, 1, 1]}\n",
            5,
            "bodies.a b",
            "not allowed",
            "Begin with a letter",
        ),
        (BODY + "  world: {mass: 1, inertia: [1, 1, 1]}\n", 5, "bodies.world", "is reserved", "another name"),
        (
            BODY + "  c: {mass: 0, inertia: [1, 1, 1]}\n",
            5,
            "bodies.c.mass",
            "must be > 0 kg, got 0",
            "`fixed`",
        ),
        (BODY + "  c:\n    mass: 1\n", 5, "bodies.c.inertia", "is missing", "`density`"),
        (BODY + "  c: {density: 1}\n", 5, "bodies.c.shapes", "are missing", "`mass` and `inertia`"),
        (
            BODY + "  c:\n    density: 1\n    mass: 2\n    shapes: [{type: sphere, radius: 1}]\n",
            *(7, "bodies.c.mass", "cannot be given beside `density`", "Delete `mass`"),
        ),
        (
            BODY + "  c: {density: 1, shapes: [{type: sphere, radius: 1e-200}]}\n",
            *(5, "bodies.c.shapes", "give with this density a mass of 0 kg", "in metres"),
        ),
        (
            BODY + "  c: {density: 1e200, shapes: [{type: capsule, radius: 1e200, length: 1e200}]}\n",
            *(5, "bodies.c.shapes", "a mass of inf kg", "in metres"),
        ),
        (
            BODY + "  c: {mass: 1, inertia: [1, 1, 2.001]}\n",
            *(
                5,
                "bodies.c.inertia",
                "triangle inequality: its principal moments are 1, 1 and 2.001",
                "units",
            ),
        ),
        (
            BODY + "  c: {mass: 1, inertia: {xx: 1, yy: 1, zz: 1, xy: 1.5}}\n",
            *(5, "bodies.c.inertia", "positive definite; its principal moments are -0.5, 1 and 2.5", "> 0"),
        ),
        (
            BODY + "  c: {mass: 1, inertia: [[1, 0, 0], [0.1, 1, 0], [0, 0, 1]]}\n",
            *(5, "bodies.c.inertia", "must be a symmetric matrix", "three rows"),
        ),
        (BODY + "  c: {mass: 1, inertia: [1, 1]}\n", 5, "bodies.c.inertia", "is not a matrix", "three rows"),
        (BODY + "  c: {mass: 1, inertia: [1, .nan, 1]}\n", 5, "bodies.c.inertia.yy", "finite", "ordinary"),
        (
            BODY + "  c: {mass: 1, inertia: [1, 1, 1], shapes: [{type: mesh, file: part.stl}]}\n",
            *(5, "bodies.c.shapes[0].file", "no such file", "Check the name"),
        ),
        (BODY + "joints:\n  j: {type: hinge}\n", 6, "joints.j.child", "is missing", "Add `child: ...`"),
        (BODY + "joints:\n  j: {type: hinge, child: world}\n", 6, "joints.j.child", "cannot be", "Exchange"),
        (BODY + "joints:\n  j: {type: hinge, child: c}\n", 6, "joints.j.child", "no body 'c'", "`a`, `b`"),
        (
            BODY + "joints:\n  j: {type: hinge, child: a, axis: [0, 0, 0]}\n",
            *(6, "joints.j.axis", "must not be zero", "[0, 0, 1]"),
        ),
        (
            BODY + "joints:\n  j:\n    type: hinge\n    parent: a\n    child: a\n",
            *(9, "joints.j.child", "connects body 'a' to itself", "two different"),
        ),
        (
            BODY + "joints:\n  j: {type: fixed, child: a, friction: {viscous: 1}}\n",
            *(6, "joints.j.friction", "a fixed joint takes no `friction`", "hinge, prismatic"),
        ),
        (JOINTS + "motors:\n  m: {type: torque, joint: hh}\n", 9, "motors.m.joint", "no joint 'hh'", "`h`"),
        (JOINTS + "motors:\n  m: {type: torque, joint: s}\n", 9, "motors.m.joint", "fixed joint", "hinge"),
        (
            JOINTS + "motors:\n  m: {type: dc, joint: h, gain: 1}\n",
            *(9, "motors.m.back_emf", "is missing", "torque_constant"),
        ),
        (
            JOINTS + "motors:\n  m: {type: dc, joint: h, torque_constant: 1, resistance: 2}\n",
            *(9, "motors.m.back_emf_constant", "is missing", "go together"),
        ),
        (
            JOINTS + "motors:\n  m: {type: dc, joint: h, gain: 1, resistance: 2}\n",
            *(9, "motors.m.gain", "cannot be given beside `resistance`", "Delete"),
        ),
        (
            DC + "    torque_constant: 1\n    back_emf_constant: -1\n    resistance: 2\n",
            *(13, "motors.m.back_emf_constant", "has not the sign", "same sign"),
        ),
        (
            JOINTS + "motors:\n  m:\n    type: torque\n    joint: h\n    cogging: [{order: 8}, {order: 8.0, cos: 1}]\n",
            *(12, "motors.m.cogging[1].order", "order 8 is given twice", "another order"),
        ),
        (JOINTS + "sensors:\n  e: {type: joint_rate, joint: s}\n", 9, "sensors.e.joint", "fixed", "hinge"),
        (JOINTS + "sensors:\n  e: {type: body_pose, body: q}\n", 9, "sensors.e.body", "no body", "`a`, `b`"),
        (JOINTS + "initial:\n  q: {position: 1}\n", 9, "initial.q", "no joint 'q'", "`h`"),
        (JOINTS + "initial:\n  s: {position: 1}\n", 9, "initial.s", "a fixed joint", "with an axis"),
        (JOINTS + "initial:\n  h.turn: {position: 1}\n", 9, "initial.h.turn", "is a hinge joint", "`h`"),
        (KINDS + "  d: {type: distance, child: a}\n", 6, "joints.d.length", "is missing", "Add `length"),
        (KINDS + "  d: {type: hinge, child: a, pitch: 1}\n", 6, "joints.d.pitch", "takes no `pitch`", "type screw"),
        (
            KINDS + "  c: {type: planar, child: a, axes: {z: {}}}\n",
            *(6, "joints.c.axes.z", "no such axis", "`x`, `y`, `turn`"),
        ),
        (
            KINDS + "  c: {type: universal, child: a, x_axis: [0, 1, 1]}\n",
            *(6, "joints.c.x_axis", "perpendicular to `axis`", "across `axis`"),
        ),
        (
            KINDS + "  c: {type: cylindrical, child: a}\nmotors:\n  m: {type: torque, joint: c}\n",
            *(8, "motors.m.joint", "is a cylindrical joint", "`c.turn` or `c.slide`"),
        ),
        (
            JOINTS + "couplings:\n  g: {driver: h, driven: h, ratio: 2}\n",
            *(9, "couplings.g.driven", "coupled to itself", "two different"),
        ),
        (
            JOINTS + "couplings:\n  g: {driver: h, driven: k, ratio: 2}\n",
            *(9, "couplings.g.driven", "no joint 'k'", "`h`"),
        ),
        (KINDS + "  j: {type: ball, child: a}\ninitial:\n  j: {position: 1}\n", 8, "initial.j", "ball joint", "`j.rx`"),
        (
            KINDS + "  j: {type: ball, child: a, spring: {rest: 1}}\n",
            *(6, "joints.j.spring.rest", "must be 0 for a direction", "`generic` joint"),
        ),
        (
            KINDS + "  j: {type: rolling_sphere, radius: 1, child: a, axes: {rx: {limits: {lower: 0}}}}\n",
            *(6, "joints.j.axes.rx.limits", "has no angle", "`generic` joint"),
        ),
        (
            KINDS + "  h: {type: hinge, child: b}\n  j: {type: ball, child: a}\n"
            "couplings:\n  g: {driver: h, driven: j.rx, ratio: 2}\n",
            *(9, "couplings.g.driven", "has no angle about one axis", "`generic` joint"),
        ),
        (KINDS + "  j: {type: rolling_disc, child: a}\n", 6, "joints.j.radius", "is missing", "Add `radius"),
        (
            KINDS + "  j: {type: generic, child: a, locked: [x], axes: {x: {}}}\n",
            *(6, "joints.j.axes.x", "is locked", "in `locked`"),
        ),
        (
            KINDS + "  j: {type: generic, child: a, locked: [x, y, z, rx, ry, rz], axes: {q: {}}}\n",
            *(6, "joints.j.axes.q", "no such axis", "None is defined"),
        ),
        (KINDS + "  j: {type: generic, child: a, locked: [w]}\n", 6, "joints.j.locked[0]", "'x', 'y'", "one of these"),
        (KINDS + "  j: {type: hinge, child: a, locked: [x]}\n", 6, "joints.j.locked", "no `locked`", "generic"),
        (
            BODY + "joints:\n  j: {type: hinge, child: a, at: [0, -0.4]}\n",
            *(6, "joints.j.at", "must have 3 entries, got [0, -0.4]", "Write as many (joint point in the parent's"),
        ),
        (
            BODY + "joints:\n  j: {type: hinge, child: a, axis: [0, 0, 1, 0]}\n",
            *(6, "joints.j.axis", "must have 3 entries, got [0, 0, 1, 0]", "three numbers"),
        ),
        (
            BODY + "joints:\n  j: {type: xyz, child: a}\n",
            *(6, "joints.j.type", "must be 'hinge', 'prismatic', ", "Write one of these."),
        ),
        (JOINTS + "rows:\n  r: {ratio: 2}\n", 9, "rows.r.type", "is missing", "registered name"),
    ],
)
def test_what_a_scene_cannot_be_is_refused_with_a_sentence(tmp_path, text, line, path, message, cure):
    problem = one_problem(tmp_path, text)
    assert (problem.line, problem.path) == (line, path)
    assert message in problem.message
    assert cure in problem.cure


@pytest.mark.parametrize(
    ("section", "other", "ours"),
    [
        ("joints", "revolute", "hinge"),
        ("joints", "Pin", "hinge"),
        ("joints", "continuous", "hinge"),
        ("joints", "slider", "prismatic"),
        ("joints", "spherical", "ball"),
        ("joints", "weld", "fixed"),
        ("joints", "cardan", "universal"),
        ("joints", "helical", "screw"),
        ("joints", "rope", "line"),
        ("joints", "floating", "generic"),
        ("joints", "wheel", "rolling_disc"),
        ("joints", "prismatik", "prismatic"),
        ("motors", "effort", "torque"),
        ("motors", "servo", "position"),
        ("sensors", "encoder", "joint_position"),
        ("sensors", "tachometer", "joint_rate"),
    ],
)
def test_what_others_call_a_type_is_known(tmp_path, section, other, ours):
    text = JOINTS.replace("type: hinge", f"type: {other}") if section == "joints" else JOINTS
    more = "" if section == "joints" else f"{section}:\n  m: {{type: {other}, joint: h}}\n"
    problem = one_problem(tmp_path, text + more)
    assert problem.path in ("joints.h.type", f"{section}.m.type")
    assert problem.cure.startswith(f"Did you mean `{ours}`?")


def test_all_problems_are_in_one_report_in_the_order_of_the_file(tmp_path):
    text = FULL.read_text()
    for good, bad in (
        ("step: 0.004", "step: -0.004"),
        ("mass: 1.5", "mas: 1.5"),
        ("zz: 2.5e-3", "zz: 2.5"),
        ("parent: base\n    child: arm", "parent: bass\n    child: arm"),
        ("excess: 0.005", "excess: -0.005"),
        ("joint: slide\n    gain", "joint: wrist\n    gain"),
        ("sd: 0.1", "sd: .nan"),
    ):
        assert text.count(good) == 1
        text = text.replace(good, bad)
    with pytest.raises(SceneError) as caught:
        read_scene(write(tmp_path, text))
    assert [problem.path for problem in caught.value.problems] == [
        "step",
        "bodies.base.mass",
        "bodies.base.mas",
        "bodies.arm.inertia",
        "joints.shoulder.parent",
        "joints.shoulder.friction.stribeck.excess",
        "motors.push.joint",
        "sensors.tacho.sd",
    ]
    lines = [problem.line for problem in caught.value.problems]
    assert lines == sorted(lines)


def test_scenes_made_in_python_follow_the_same_rules():
    data = read_scene(FULL).plain()
    data["joints"]["slide"]["child"] = "bass"
    with pytest.raises(ValueError, match=r"joints\.slide\.child: there is no body 'bass'"):
        Scene.model_validate(data)


def test_reading_imports_neither_jax_nor_trimesh():
    code = (
        f"import sys; from spookax.scene import read_scene; read_scene({str(FULL)!r}); "
        "print([name for name in ('jax', 'trimesh') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
