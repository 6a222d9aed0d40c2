"""What MJCF and URDF files say arrives in the scene; what a scene cannot say is listed, one line each."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mjcf.models import MODELS, mujoco, text, write

from spookax.mjcf import MjcfError, import_mjcf
from spookax.scene import read_scene, write_scene

GEOM = '<geom size="0.1" contype="0" conaffinity="0"/>'
BODY = f'<worldbody><body name="a"><joint name="j"/>{GEOM}</body></worldbody>'
TWO = (
    f'<worldbody><body name="a"><joint name="j"/>{GEOM}</body><body name="b"><joint name="k"/>{GEOM}</body></worldbody>'
)


def joints(*inner: str) -> str:
    return f'<worldbody><body name="a">{"".join(inner)}{GEOM}</body></worldbody>'


def load(folder: Path, model: str):
    return import_mjcf(write(folder, model)).scene


def test_masses_and_inertias_are_those_of_mujoco(tmp_path):
    """A body and what is welded to it: MuJoCo's composite of both, at its pose and about the common centre of mass."""
    file = write(tmp_path, text(*MODELS))
    model, scene = mujoco.MjModel.from_xml_path(str(file)), import_mjcf(file).scene
    weld = np.array(model.body_weldid)
    moving = [b for b in range(1, model.nbody) if weld[b] == b]
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    assert len(scene.bodies) == len(moving) == 21
    for b, body in zip(moving, scene.bodies.values(), strict=True):
        parts = np.flatnonzero(weld == b)
        mass = model.body_mass[parts]
        com = mass @ data.xipos[parts] / mass.sum()
        inertia = np.zeros((3, 3))
        for part, m in zip(parts, mass, strict=True):
            R, d = data.ximat[part].reshape(3, 3), data.xipos[part] - com
            inertia += R @ np.diag(model.body_inertia[part]) @ R.T + m * (d @ d * np.eye(3) - np.outer(d, d))
        free = model.jnt_type[model.body_jntadr[b]] == mujoco.mjtJoint.mjJNT_FREE  # its frame is that of the world
        R, at = (np.eye(3), np.zeros(3)) if free else (data.xmat[b].reshape(3, 3), data.xpos[b])
        assert body.mass == pytest.approx(mass.sum(), rel=1e-14)
        np.testing.assert_allclose(at + R @ np.array(body.com), com, atol=1e-15)
        np.testing.assert_allclose(R @ body.inertia.matrix() @ R.T, inertia, rtol=0, atol=1e-12 * inertia.max())


def test_numbers_along_a_joint(tmp_path):
    """Degrees become radians; positions are `qpos`, and the scene starts at `ref`."""
    model = """<compiler angle="degree"/><option timestep="0.004" gravity="1 2 3"/>""" + joints(
        '<joint name="j" axis="0 2 0" pos="0.1 0.2 0.3" damping="0.2" frictionloss="0.3" armature="0.4" '
        'stiffness="0.5" springref="30" ref="90" range="-90 45"/>'
    )
    scene = load(tmp_path, model)
    joint = scene.joints["j"]
    assert (scene.step, scene.gravity) == (0.004, (1.0, 2.0, 3.0))
    assert (joint.type, joint.parent, joint.child) == ("hinge", "world", "a")
    assert (joint.axis, joint.child_at) == ((0, 1, 0), (0.1, 0.2, 0.3))
    assert joint.at == pytest.approx((0.1, 0.2, 0.3))
    assert joint.rotation == pytest.approx((0, -np.pi / 2, 0))
    assert (joint.friction.viscous, joint.friction.coulomb, joint.armature) == (0.2, 0.3, 0.4)
    assert (joint.spring.stiffness, joint.spring.rest) == (0.5, pytest.approx(np.pi / 6))
    assert (joint.limits.lower, joint.limits.upper) == (pytest.approx(-np.pi / 2), pytest.approx(np.pi / 4))
    assert scene.initial["j"].position == pytest.approx(np.pi / 2)


@pytest.mark.parametrize(
    ("inner", "kind", "axes"),
    [
        ('<joint name="p" type="ball"/>', "ball", ["p.rx", "p.ry", "p.rz"]),
        (
            '<joint name="z"/><joint name="x" axis="1 0 0"/><joint name="y" axis="0 1 0"/>',
            "generic",
            ["z-x-y.rx", "z-x-y.ry", "z-x-y.rz"],
        ),
        (
            '<joint name="p" type="slide"/><joint name="q" type="slide" axis="1 0 0"/>',
            "generic",
            *[["p-q.x", "p-q.z"]],
        ),
        (
            '<joint name="p" type="slide"/><joint name="q" axis="1 0 0"/>',
            "generic",
            *[["p-q.x", "p-q.rz"]],
        ),
        ('<joint name="p" type="slide"/>', "prismatic", ["p"]),
        ('<joint name="p"/><joint name="q" axis="0 1 0"/>', "universal", ["p-q.first", "p-q.second"]),
        ('<joint name="p"/><joint name="q" type="slide"/>', "cylindrical", ["p-q.turn", "p-q.slide"]),
        ('<joint name="p.slide" type="slide"/><joint name="p.turn"/>', "cylindrical", ["p.turn", "p.slide"]),
        (
            '<joint name="x" type="slide" axis="0 1 0"/><joint name="y" type="slide" axis="1 0 0"/><joint name="t"/>',
            "planar",
            ["x-y-t.x", "x-y-t.y", "x-y-t.turn"],
        ),
        ('<joint name="p" type="slide"/><joint type="ball"/>', "inline", ["p-joint1"]),
    ],
)
def test_joints_of_one_body_become_one_joint(inner, kind, axes, tmp_path):
    scene = load(tmp_path, joints(inner))
    (joint,) = scene.joints.values()
    assert joint.type == kind
    assert list(scene.free_axes()) == axes


def test_what_acts_on_a_ball_joint(tmp_path):
    keys = 'damping="0.2" frictionloss="0.3" armature="0.4" stiffness="0.5"'
    joint = load(tmp_path, joints(f'<joint name="j" type="ball" {keys}/>')).joints["j"]
    assert (joint.friction.viscous, joint.friction.coulomb, joint.armature) == (0.2, 0.3, 0.4)
    assert joint.spring.stiffness == 0.5


@pytest.mark.parametrize(
    ("actuator", "kind", "numbers"),
    [
        ('<motor joint="j" gear="3" ctrlrange="-2 2" ctrllimited="true"/>', "torque", {"gain": 3, "max_force": 6}),
        ('<motor joint="j" gear="-3" forcerange="-2 2"/>', "torque", {"gain": -3, "max_force": 6}),
        ('<position joint="j" kp="4" kv="0.5"/>', "position", {"stiffness": 4, "damping": 0.5, "max_force": None}),
        ('<velocity joint="j" kv="0.5"/>', "velocity", {"damping": 0.5}),
        ('<velocity joint="j" kv="0.5" gear="2"/>', "dc", {"gain": 1, "back_emf": 2}),
        (
            '<general joint="j" gear="2" gainprm="5" biastype="affine" biasprm="1 0 -3"/>',
            "dc",
            {"gain": 10, "back_emf": 12, "bias": 2},
        ),
    ],
)
def test_actuators(actuator, kind, numbers, tmp_path):
    (motor,) = load(tmp_path, f"{BODY}<actuator>{actuator}</actuator>").motors.values()
    assert motor.type == kind
    assert {key: getattr(motor, key) for key in numbers} == numbers


def test_actuators_of_a_group_that_is_switched_off_are_none(tmp_path):
    option = '<option actuatorgroupdisable="2"/>'
    model = f'{option}{BODY}<actuator><motor name="m" joint="j"/><motor name="n" joint="j" group="2"/></actuator>'
    assert list(load(tmp_path, model).motors) == ["m"]


def test_what_an_actuator_adds_to_its_joint(tmp_path):
    model = f'{BODY}<actuator><motor joint="j" gear="3" armature="0.1" damping="0.2"/></actuator>'
    joint = load(tmp_path, model).joints["j"]
    assert (joint.armature, joint.friction.viscous) == (pytest.approx(0.9), pytest.approx(1.8))


def test_sensors_and_names(tmp_path):
    model = (
        (
            '<worldbody><body name="7 of 9" pos="1 0 0"><joint/><geom size="0.1" contype="0"/>'
            '<body name="tip" pos="0 0 2" quat="0 1 0 0"><geom size="0.1" contype="0"/>'
            '<site name="s" pos="0 0 0.5"/></body>'
            '</body></worldbody><sensor><jointpos joint="" name="a.b"/><jointvel joint="" noise="0.2"/>'
            '<framepos objtype="site" objname="s" name="a b"/></sensor>'
        )
        .replace('joint=""', 'joint="x"')
        .replace("<joint/>", '<joint name="x"/>')
    )
    scene = load(tmp_path, model)
    assert list(scene.bodies) == ["_7_of_9"]
    assert [(name, sensor.type, sensor.sd) for name, sensor in scene.sensors.items()] == [
        ("a_b", "joint_position", 1e-3),
        ("sensor1", "joint_rate", 0.2),
        ("a_b_2", "point_position", 1e-3),
    ]
    marker = scene.sensors["a_b_2"]
    assert marker.type == "point_position"
    assert marker.at == (0.0, 0.0, 1.5)


def test_flags_switch_features_off(tmp_path):
    flags = ("constraint", "limit", "frictionloss", "spring", "damper", "gravity", "actuation", "equality", "contact")
    option = "<option><flag " + " ".join(f'{flag}="disable"' for flag in flags) + "/></option>"
    inner = '<joint name="j" damping="1" frictionloss="1" stiffness="1" range="-1 1" limited="true"/>'
    model = option + joints(inner).replace('contype="0" conaffinity="0"', "")
    scene = load(tmp_path, model + '<actuator><motor joint="j"/></actuator>')
    joint = scene.joints["j"]
    assert (joint.friction.viscous, joint.friction.coulomb, joint.spring.stiffness) == (0, 0, 0)
    assert joint.limits.upper is None
    assert (scene.gravity, scene.motors) == ((0, 0, 0), {})


TETRAHEDRON = "v 1 0 0\nv 0 2 0\nv 0 0 3\nv 0.5 0.5 -1\nf 1 2 3\nf 2 1 4\nf 3 2 4\nf 1 3 4\n"


def test_a_mesh_stands_where_mujoco_puts_it(tmp_path):
    """MuJoCo moves the vertices into the mesh's own frame of inertia; the shape takes them back."""
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes" / "part.obj").write_text(TETRAHEDRON)
    file = write(
        tmp_path,
        '<compiler meshdir="meshes"/><asset><mesh name="m" file="part.obj" scale="0.1 0.1 0.1"/></asset>'
        '<worldbody><body name="a"><joint/><geom type="mesh" mesh="m" pos="1 2 3" quat="0.8 0.1 0.3 0.2" contype="0" '
        'rgba="1 0 0.5 1"/></body></worldbody>',
    )
    model = mujoco.MjModel.from_xml_path(str(file))
    (shape,) = import_mjcf(file).scene.bodies["a"].shapes
    assert shape.type == "mesh"
    assert (shape.scale, shape.colour) == (pytest.approx(0.1), "#ff0080")
    from spookax.scene.shapes import load_mesh, rotation_matrix

    ours = load_mesh(shape).vertices @ rotation_matrix(shape.rotation).T + np.array(shape.at)
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, model.geom_quat[0])
    theirs = model.mesh_vert @ turn.reshape(3, 3).T + model.geom_pos[0]
    distance = np.linalg.norm(ours[:, None] - theirs[None], axis=2)
    assert distance.min(axis=1).max() < 1e-6  # vertices are 32-bit in MuJoCo
    assert distance.min(axis=0).max() < 1e-6


URDF = """<robot name="arm"><link name="base"/><link name="rod"><inertial><origin xyz="0 0 -0.2"/><mass value="0.5"/>
<inertia ixx="0.01" iyy="0.02" izz="0.015" ixy="0.001" ixz="0" iyz="0"/></inertial></link>
<joint name="pivot" type="revolute"><parent link="base"/><child link="rod"/><origin xyz="0 0 1" rpy="0 0 0"/>
<axis xyz="0 1 0"/><limit lower="-1" upper="2" effort="0" velocity="1"/><dynamics damping="0.1" friction="0.2"/></joint>
</robot>"""


def test_urdf(tmp_path):
    file = tmp_path / "arm.urdf"
    file.write_text(URDF)
    scene = import_mjcf(file).scene
    pivot, rod = scene.joints["pivot"], scene.bodies["rod"]
    assert (pivot.type, pivot.at, pivot.axis) == ("hinge", (0, 0, 1), (0, 1, 0))
    assert (pivot.friction.viscous, pivot.friction.coulomb) == (0.1, 0.2)
    assert (pivot.limits.lower, pivot.limits.upper) == (-1, 2)
    assert (rod.mass, rod.com) == (0.5, pytest.approx((0, 0, -0.2)))
    assert (rod.inertia.xx, rod.inertia.xy) == (pytest.approx(0.01), pytest.approx(0.001))


def test_what_is_read_is_a_scene_file(tmp_path):
    scene = load(tmp_path, text(*MODELS))
    write_scene(scene, tmp_path / "scene.yaml")
    assert read_scene(tmp_path / "scene.yaml") == scene


SITE = f'<worldbody><body name="a"><joint name="j"/>{GEOM}<site name="s"/></body></worldbody>'
TENDON = '<tendon><fixed name="t"><joint joint="j" coef="1"/></fixed></tendon>'
# what the model has inside, the element that is named, and words of what is said about it
UNSAID = [
    (joints('<joint/><joint axis="1 0 1"/>'), "body 'a'", "joints (hinge, hinge)"),
    (joints('<joint/><joint axis="1 0 0" pos="0 1 0"/>'), "body 'a'", "held fast"),
    (joints('<joint/><joint axis="0 1 0"/><joint axis="1 0 0"/>'), "body 'a'", "a ball joint stands for them"),
    (joints('<joint/><joint axis="1 0 0" ref="20"/><joint axis="0 1 0"/>'), "body 'a'", "a ball joint stands"),
    (joints('<joint type="slide"/><joint type="slide" axis="1 0 1"/>'), "body 'a'", "(slide, slide)"),
    (joints('<joint axis="1 0 0"/><joint type="slide"/>'), "body 'a'", "(hinge, slide)"),
    (joints('<joint type="slide"/><joint name="j" type="ball" damping="1"/>'), "joint 'j'", "takes no `damping`"),
    (joints('<joint name="j" type="ball" range="0 1" limited="true"/>'), "joint 'j'", "takes no `range`"),
    (joints('<joint name="j" type="free" damping="1"/>'), "joint 'j'", "a free body takes no `damping`"),
    (joints('<joint name="j" stiffness="1 2"/>'), "joint 'j'", "not linear"),
    (joints('<joint name="j" damping="1 2"/>'), "joint 'j'", "not linear"),
    (BODY.replace('"a"', '"a" gravcomp="1"'), "body 'a'", "`gravcomp`"),
    (BODY.replace("</worldbody>", f'<body name="m" mocap="true">{GEOM}</body></worldbody>'), "body 'm'", "mocap"),
    (BODY.replace("</worldbody>", f"{GEOM}</worldbody>"), "geoms", "1 on the world"),
    (BODY.replace('size="0.1"', 'size="0.1 0.2 0.3" type="ellipsoid"'), "geom 'geom0'", "no shape `ellipsoid`"),
    (
        TWO.replace('contype="0" conaffinity="0"', 'type="ellipsoid"').replace("0.1", "0.1 1 1"),
        "contacts",
        "ellipsoid on ellipsoid: 1",
    ),
    (BODY + '<option density="1"/>', "option", "no fluid"),
    (BODY + TENDON, "tendons", "`t`"),
    (TWO + '<equality><joint name="e" joint1="j" joint2="k" polycoef="0 1 2"/></equality>', "equality 'e'", "powers"),
    (TWO + '<equality><joint name="e" joint1="j"/></equality>', "equality 'e'", "constant position"),
    (TWO + '<equality><weld name="e" body1="a" body2="b" active="false"/></equality>', "equality 'e'", "switched off"),
    (BODY + TENDON + '<equality><tendon name="e" tendon1="t"/></equality>', "equality 'e'", "type of equality"),
    (
        BODY.replace("</body>", f'<body name="c">{GEOM}</body></body>')
        + '<equality><connect name="e" body1="a" body2="c" anchor="0 0 0"/></equality>',
        "equality 'e'",
        "one rigid body",
    ),
    (BODY + TENDON + '<actuator><motor name="m" tendon="t"/></actuator>', "actuator 'm'", "not a joint"),
    (SITE + '<actuator><motor name="m" site="s"/></actuator>', "actuator 'm'", "not a joint"),
    (BODY + '<actuator><intvelocity name="m" joint="j" actrange="-1 1"/></actuator>', "actuator 'm'", "dynamics"),
    (
        BODY + '<actuator><general name="m" joint="j" gaintype="affine" gainprm="0 1 0"/></actuator>',
        "actuator 'm'",
        "gain depends",
    ),
    (
        BODY + '<actuator><muscle name="m" joint="j" lengthrange="0 1"/></actuator>',
        "actuator 'm'",
        "its bias is not affine",
    ),
    (BODY + '<actuator><position name="m" joint="j" gear="2"/></actuator>', "actuator 'm'", "not a position"),
    (
        BODY + '<actuator><general name="m" joint="j" biastype="affine" biasprm="0 1 0"/></actuator>',
        "actuator 'm'",
        "pushes away",
    ),
    (BODY + '<actuator><motor name="m" joint="j" forcerange="-1 2"/></actuator>', "actuator 'm'", "`forcerange`"),
    (
        BODY.replace('"j"', '"j" actuatorfrcrange="-1 2"') + '<actuator><motor name="m" joint="j"/></actuator>',
        "actuator 'm'",
        "`actuatorfrcrange`",
    ),
    (
        BODY.replace('"j"', '"j" actuatorfrcrange="-1 1"')
        + '<actuator><motor name="m" joint="j"/><motor joint="j"/></actuator>',
        "actuator 'm'",
        "several actuators together",
    ),
    (
        BODY + '<actuator><position name="m" joint="j" ctrlrange="-1 1" ctrllimited="true"/></actuator>',
        "actuator 'm'",
        "`ctrlrange`, -1 to 1",
    ),
    (
        joints('<joint name="j" type="ball"/>') + '<actuator><motor name="m" joint="j" gear="1 0 0"/></actuator>',
        "actuator 'm'",
        "has no axis",
    ),
    (BODY + '<sensor><framequat name="s" objtype="body" objname="a"/></sensor>', "sensor 's'", "`framequat`"),
    (BODY + '<sensor><jointpos name="s" joint="j" cutoff="1"/></sensor>', "sensor 's'", "`cutoff`"),
]


@pytest.mark.parametrize(("inside", "what", "words"), UNSAID)
def test_what_a_scene_cannot_say_is_listed_and_refused(inside, what, words, tmp_path):
    file = write(tmp_path, inside)
    with pytest.raises(MjcfError) as refused:
        import_mjcf(file)
    said = [str(problem) for problem in refused.value.problems if problem.path == what]
    assert any(words in line for line in said), str(refused.value)
    assert all(line.startswith(f"{file}: {what}: ") for line in said)
    allowed = import_mjcf(file, allow_missing=True)
    assert list(allowed.missing) == refused.value.problems


def test_everything_missing_is_listed_at_once(tmp_path):
    model = TWO.replace("<joint", '<joint stiffness="1 2"') + '<option density="1"/>'
    with pytest.raises(MjcfError) as refused:
        load(tmp_path, model)
    assert [problem.path for problem in refused.value.problems] == ["joint 'j'", "joint 'k'", "option"]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("<worldbody><geom size='1'/></worldbody>", "nothing in it moves"),
        ("<worldbody><bod/></worldbody>", "MuJoCo cannot compile it"),
    ],
)
def test_what_cannot_be_read_at_all(model, words, tmp_path):
    with pytest.raises(MjcfError, match=words):
        import_mjcf(write(tmp_path, model), allow_missing=True)


def test_a_file_that_cannot_be_read(tmp_path):
    near = write(tmp_path, text("furuta"))
    missing = near.with_name(f"_{near.name}")
    for file, words in ((missing, f"no such file. Did you mean {near}?"), (tmp_path, "cannot be read: ")):
        with pytest.raises(MjcfError) as refused:
            import_mjcf(file)
        assert str(refused.value).startswith(f"{file}: {words}")


def test_without_mujoco_the_extra_is_named(tmp_path):
    program = (
        "import sys; sys.modules['mujoco'] = None\n"
        "from spookax.mjcf import MjcfError, import_mjcf\n"
        "try:\n    import_mjcf('model.xml')\n"
        "except MjcfError as refused:\n    print(refused)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert "pip install 'spookax[mjcf]'" in result.stdout, result.stderr
