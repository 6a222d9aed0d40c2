"""A scene written as MJCF reads back to the same numbers, and MuJoCo moves it alike; what MJCF cannot say is listed."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mjcf.models import LOOPS, MODELS, mujoco, mujoco_path, text, write

from spookax.mjcf import MjcfError, import_mjcf, write_mjcf
from spookax.scene import Scene, numeric_paths

INERTIA = [[3e-3, 1e-4, 2e-4], [1e-4, 2e-3, -1e-4], [2e-4, -1e-4, 2.5e-3]]
BODY = {"mass": 0.3, "com": (0.1, 0.02, -0.1), "inertia": INERTIA}
ALONG = {"friction": {"viscous": 0.02}, "spring": {"stiffness": 0.7, "rest": 0.2}, "armature": 1e-3}
TIME, EVERY = 0.2, 0.01


def scene(bodies: str, joints: dict[str, Any], **more: Any) -> Scene:
    return Scene.model_validate(
        {
            "spookax": 1,
            "bodies": dict.fromkeys(bodies, BODY),
            "joints": joints,
            "gravity": (0.5, -1.0, -9.0),
            **more,
        }
    )


def compiled(file: Path, sharp: bool = False) -> Any:
    """The model at a small step; with sharp constraints where motions with loops are compared."""
    model = mujoco.MjModel.from_xml_path(str(file))
    model.opt.timestep, model.opt.integrator = 5e-5, mujoco.mjtIntegrator.mjINT_RK4
    if sharp:
        model.eq_solref[:], model.eq_solimp[:, :3] = (2e-4, 1), (0.9999, 0.9999, 1e-3)
    return model


def path(scene: Scene, folder: Path, name: str = "model.xml") -> np.ndarray:
    file = folder / name
    write_mjcf(scene, file)
    return mujoco_path(compiled(file, sharp=True), TIME, EVERY, key=bool(scene.initial))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "glued"])
def test_import_export_import(name, tmp_path):
    """The same numbers after a round trip; a free body's frame and joints that start at `ref` are what they were.

    What is glued comes back as one body: MJCF says a fixed joint by nesting.
    """
    first = import_mjcf(write(tmp_path, text(name))).scene
    missing = write_mjcf(first, tmp_path / "out.xml", allow_missing=bool(first.initial) and name in LOOPS)
    assert all(problem.path == "initial" for problem in missing)
    second = import_mjcf(tmp_path / "out.xml").scene
    ours, theirs = numeric_paths(first), numeric_paths(second)
    assert {path.replace("_", ".") for path in ours} == {path.replace("_", ".") for path in theirs}
    by_path = {path.replace("_", "."): value for path, value in theirs.items()}
    for key, value in ours.items():
        assert by_path[key.replace("_", ".")] == pytest.approx(value, rel=1e-9, abs=1e-12), key
    assert [joint.type for joint in second.joints.values()] == [joint.type for joint in first.joints.values()]
    assert [motor.type for motor in second.motors.values()] == [motor.type for motor in first.motors.values()]


@pytest.mark.parametrize("name", [name for name in MODELS if name != "glued"])
def test_mujoco_moves_the_export_as_the_original(name, tmp_path):
    """From the keyframe, which is where the original starts; the gear, whose start is not written, starts at zero."""
    model = text(name)
    file = write(tmp_path, re.sub(r' ref="\S+"', "", model) if name == "gear" else model)
    write_mjcf(import_mjcf(file).scene, tmp_path / "out.xml")
    model = compiled(tmp_path / "out.xml", sharp=True)
    theirs = mujoco_path(compiled(file), TIME, EVERY, 0.3)
    np.testing.assert_allclose(mujoco_path(model, TIME, EVERY, 0.3, key=model.nkey > 0), theirs, atol=1e-8)


JOINT = {"type": "hinge", "child": "a", "at": (0.1, 0, 0.2), "child_at": (0, 0.1, 0.3), "axis": (0.1, 1, 0.2)}
TURNED = {
    "parent": "a",
    "child": "b",
    "at": (0.1, -0.2, -0.3),
    "child_at": (0.05, 0.1, 0.2),
    "rotation": (0.3, -0.5, 0.2),
}
KINDS = {
    "hinge": ({"axis": (1, 2, 2), **ALONG}, {"": (0.4, 1.0)}),
    "prismatic": ({"axis": (1, 2, 2), **ALONG}, {"": (0.04, 0.5)}),
    "cylindrical": (
        {"axis": (1, 2, 2), "axes": {"turn": ALONG, "slide": ALONG}},
        {".turn": (0.4, 1.0), ".slide": (0.1, 0)},
    ),
    "universal": (
        {"axis": (0, 0, 1), "x_axis": (0.6, 0.8, 0), "axes": {"first": ALONG, "second": ALONG}},
        {".first": (0.4, 1.0), ".second": (-0.3, 0.5)},
    ),
    "planar": (
        {"axis": (0, 0, 1), "x_axis": (0.6, 0.8, 0), "axes": {"x": ALONG, "y": ALONG, "turn": ALONG}},
        {".x": (0.1, 0.2), ".y": (-0.1, 0.1), ".turn": (0.4, 1.0)},
    ),
    "inline": ({"axis": (1, 2, 2), **ALONG}, {"": (0.04, 0.5)}),
    "ball": ({"friction": {"viscous": 0.01}, "spring": {"stiffness": 2.0}, "armature": 1e-3}, {}),
    "generic": (
        {"axis": (0, 0, 1), "x_axis": (0.6, 0.8, 0), "locked": ["y"], "axes": dict.fromkeys(("x", "rx", "rz"), ALONG)},
        {".x": (0.1, 0.2), ".rx": (-0.1, 0.1), ".ry": (0.4, 1.0), ".rz": (0.2, 0.3)},
    ),
    "fixed": ({}, {}),
}


def turned_round(joint: dict[str, Any]) -> dict[str, Any]:
    """The same joint with parent and child exchanged; of types whose axes are common to both sides."""
    from spookax.mjcf.frame_poses import rotation_vector
    from spookax.scene.shapes import rotation_matrix

    R = rotation_matrix(joint["rotation"])
    axis = {"axis": tuple(-R.T @ np.array(joint["axis"]))} if "axis" in joint else {}
    ends = {"parent": joint["child"], "child": joint["parent"], "at": joint["child_at"], "child_at": joint["at"]}
    return {**joint, **ends, **axis, "rotation": rotation_vector(R.T)}


@pytest.mark.parametrize("kind", ["hinge", "prismatic", "cylindrical", "ball", "fixed"])
def test_a_joint_whose_child_is_nearer_to_the_world(kind, tmp_path):
    """The file nests it the other way round; positions, rates and motion are the same."""
    keys, starts = KINDS[kind]
    joint = {"type": kind, **TURNED, **keys}
    initial = {f"j{axis}": {"position": q, "rate": v} for axis, (q, v) in starts.items()}
    forward = scene("ab", {"base": JOINT, "j": joint}, initial=initial)
    backward = scene("ab", {"base": JOINT, "j": turned_round(joint)}, initial=initial)
    np.testing.assert_allclose(path(backward, tmp_path), path(forward, tmp_path), atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_either_body_may_be_the_root(kind, tmp_path):
    """Two bodies adrift without weight, tied by a joint with springs: their distance does not care which is nested."""
    joint = {"type": kind, **TURNED, **KINDS[kind][0]}
    distances = []
    for bodies in ("ab", "ba"):
        whole = path(scene(bodies, {"j": joint}, gravity=(0, 0, 0)), tmp_path)
        distances.append(np.linalg.norm(whole[:, 0] - whole[:, -1], axis=1))
    np.testing.assert_allclose(distances[0], distances[1], atol=1e-12)
    if kind not in ("ball", "fixed"):
        assert np.ptp(distances[0]) > 1e-4


def test_a_screw_advances_by_its_pitch(tmp_path):
    tied = scene("a", {"j": {"type": "screw", "child": "a", "axis": (0, 0, 1), "pitch": 0.02}})
    write_mjcf(tied, tmp_path / "screw.xml")
    model = compiled(tmp_path / "screw.xml", sharp=True)
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data, 4000)
    slide, turn = data.joint("j.slide").qpos[0], data.joint("j").qpos[0]
    assert abs(slide) > 1e-4
    assert slide == pytest.approx(0.02 / (2 * np.pi) * turn, rel=1e-4)


def test_a_joint_that_closes_a_loop_keeps_what_acts_along_it(tmp_path):
    """Four bars whose joints all have springs: a body is split in two, and moves as when another one is."""
    bars = {
        "crank": {"type": "hinge", "child": "a", "axis": (0, 1, 0), **ALONG},
        "elbow": {"type": "hinge", "parent": "a", "child": "b", "at": (0, 0, 0.1), "axis": (0, 1, 0), **ALONG},
        "ground": {"type": "hinge", "child": "c", "at": (0.35, 0, -0.2), "axis": (0, 1, 0), **ALONG},
        "wrist": {
            "type": "hinge",
            "parent": "b",
            "child": "c",
            "at": (0.35, 0, 0),
            "child_at": (0, 0, 0.3),
            "axis": (0, 1, 0),
        },
    }
    bars["wrist"] |= ALONG
    motors = {"m": {"type": "torque", "joint": "wrist", "bias": 0.1}}
    paths = []
    for order in (list(bars), list(bars)[::-1], ["wrist", "crank", "elbow", "ground"]):
        cut = scene("abc", {name: bars[name] for name in order}, motors=motors)
        write_mjcf(cut, tmp_path / "loop.xml")
        model = compiled(tmp_path / "loop.xml", sharp=True)
        assert (model.neq, model.njnt) == (1, 4)
        data = mujoco.MjData(model)
        mujoco.mj_step(model, data, 2000)
        assert float(model.body_mass.sum()) == pytest.approx(0.9)
        paths.append([data.joint(name).qpos[0] for name in bars])
    assert abs(paths[0][0]) > 1e-3
    np.testing.assert_allclose(paths[1:], [paths[0]] * 2, atol=1e-6)


def test_a_bare_hinge_that_closes_a_loop_is_two_points(tmp_path):
    bare = {"type": "hinge", "child": "b", "at": (0.2, 0, 0), "child_at": (0.1, 0, 0), "axis": (0, 1, 0)}
    joints = {
        "a": {"type": "hinge", "child": "a", "axis": (0, 1, 0), **ALONG},
        "b": {"type": "hinge", "parent": "a", "child": "b", "at": (0.1, 0, 0), "axis": (0, 1, 0), **ALONG},
        "c": bare,
    }
    write_mjcf(scene("ab", joints), tmp_path / "loop.xml")
    model = compiled(tmp_path / "loop.xml")
    assert (model.neq, model.njnt) == (2, 2)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert np.abs(data.efc_pos[: data.ne]).max() < 1e-15


def test_a_joint_and_a_coupling_of_the_same_name(tmp_path):
    ends = {"axis": (0, 1, 0), **ALONG}
    joints = {
        "a": {"type": "hinge", "child": "a", **ends},
        "b": {"type": "hinge", "child": "b", "at": (0.2, 0, 0), **ends},
        "gear": {"type": "ball", "parent": "a", "child": "b", "at": (0.2, 0, 0)},
    }
    gear = {"driver": "a", "driven": "b", "ratio": 1.0}
    write_mjcf(scene("ab", joints, couplings={"gear": gear}), tmp_path / "gear.xml")
    assert compiled(tmp_path / "gear.xml").neq == 2


def test_the_tilt_is_gravity(tmp_path):
    from spookax import build
    from spookax.constraints.prepared import base_gravity

    tilted = scene("a", {"j": JOINT}, tilt=(0.3, -0.4))
    write_mjcf(tilted, tmp_path / "tilt.xml")
    gravity = compiled(tmp_path / "tilt.xml").opt.gravity
    np.testing.assert_allclose(gravity, base_gravity(build(tilted)[1]), atol=1e-14)


def test_shapes_and_meshes(tmp_path):
    (tmp_path / "part.obj").write_text("v 1 0 0\nv 0 2 0\nv 0 0 3\nv 0.5 0.5 -1\nf 1 2 3\nf 2 1 4\nf 3 2 4\nf 1 3 4\n")
    shapes = [
        {"type": "box", "size": (0.1, 0.2, 0.3), "at": (1, 2, 3), "rotation": (0.1, 0.2, 0.3), "colour": "#102030"},
        {"type": "cylinder", "radius": 0.1, "length": 0.3},
        {"type": "capsule", "radius": 0.1, "length": 0.3},
        {"type": "sphere", "radius": 0.1},
        {
            "type": "mesh",
            "file": str(tmp_path / "part.obj"),
            "scale": 0.1,
            "at": (0.1, 0.2, 0.3),
            "rotation": (1, 0, 0),
        },
    ]
    drawn = Scene.model_validate({"spookax": 1, "bodies": {"a": {**BODY, "shapes": shapes}}})
    (tmp_path / "out").mkdir()
    write_mjcf(drawn, tmp_path / "out" / "drawn.xml")
    assert 'file="../part.obj"' in (tmp_path / "out" / "drawn.xml").read_text()
    again = import_mjcf(tmp_path / "out" / "drawn.xml").scene.bodies["a"]
    assert again.inertia == drawn.bodies["a"].inertia or np.allclose(again.inertia.matrix(), INERTIA, atol=1e-15)
    for before, after in zip(drawn.bodies["a"].shapes, again.shapes, strict=True):
        assert (after.type, after.colour) == (before.type, before.colour)
        assert after.at == pytest.approx(before.at, abs=1e-6)
        assert after.rotation == pytest.approx(before.rotation, abs=1e-6)


FRICTION = {"stribeck": {"excess": 0.1}, "bearing": 0.2, "drag": 0.3, "backward": 0.4}
UNSAID = [
    ({"joints": {"j": {**JOINT, "friction": FRICTION}}}, "joints.j", "no `stribeck`"),
    ({"joints": {"j": {**JOINT, "friction": FRICTION}}}, "joints.j", "no `bearing`"),
    ({"joints": {"j": {**JOINT, "friction": FRICTION}}}, "joints.j", "no `backward`"),
    ({"joints": {"j": {**JOINT, "friction": FRICTION}}}, "joints.j", "`drag` is not written"),
    ({"joints": {"j": {**JOINT, "limits": {"upper": 1, "restitution": 0.5}}}}, "joints.j", "no `restitution`"),
    ({"joints": {"d": {"type": "distance", "child": "a", "length": 1}}}, "joints.d", "no distance joint"),
    ({"joints": {"d": {"type": "line", "child": "a"}}}, "joints.d", "no line joint"),
    (
        {"joints": {"d": {"type": "line", "child": "a"}}, "motors": {"m": {"type": "torque", "joint": "d"}}},
        "motors.m",
        "`d` is no joint in MJCF",
    ),
    (
        {"motors": {"m": {"type": "torque", "joint": "j", "cogging": [{"order": 2, "cos": 1}]}}},
        "motors.m",
        "no `cogging`",
    ),
    ({"motors": {"m": {"type": "torque", "joint": "j", "bias": 1, "max_force": 2}}}, "motors.m", "`max_force` would"),
    ({"sensors": {"s": {"type": "joint_position", "joint": "j", "offset": 1}}}, "sensors.s", "no `offset`"),
    ({"rows": {"r": {"type": "own"}}}, "rows.r", "one's own (`own`)"),
    (
        {"joints": {"j": JOINT, "k": {"type": "ball", "child": "a"}}, "initial": {"j": {"position": 1}}},
        "initial",
        "loops and couplings",
    ),
]


@pytest.mark.parametrize(("more", "what", "words"), UNSAID)
def test_what_mjcf_cannot_say_is_listed_and_refused(more, what, words, tmp_path):
    given = scene("a", **{"joints": {"j": JOINT}, **more})
    with pytest.raises(MjcfError) as refused:
        write_mjcf(given, tmp_path / "out.xml")
    assert any(words in str(problem) for problem in refused.value.problems if problem.path == what), str(refused.value)
    assert not (tmp_path / "out.xml").exists()
    assert list(write_mjcf(given, tmp_path / "out.xml", allow_missing=True)) == refused.value.problems
    compiled(tmp_path / "out.xml")


def test_one_stop_and_sensors(tmp_path):
    sensors = {
        "angle": {"type": "joint_position", "joint": "j", "sd": 0.01},
        "rate": {"type": "joint_rate", "joint": "j", "sd": 0.02},
        "marker": {"type": "point_position", "body": "a", "at": (1, 2, 3), "sd": 0.03},
        "pose": {"type": "body_pose", "body": "a", "sd": 0.04},
    }
    write_mjcf(scene("a", {"j": {**JOINT, "limits": {"upper": 1}}}, sensors=sensors), tmp_path / "out.xml")
    model = compiled(tmp_path / "out.xml")
    assert model.jnt_range[0].tolist() == [-1e10, 1]
    assert model.sensor_noise.tolist() == [0.01, 0.02, 0.03, 0.04, 0.04]
