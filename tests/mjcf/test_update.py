"""Identified numbers go to their places in the original file, and everything else of it stays."""

from pathlib import Path

import numpy as np
import pytest
from mjcf.models import mujoco, write

from spookax.mjcf import MjcfError, import_mjcf, update_mjcf
from spookax.scene import Scene, numeric_paths, with_numbers

DIGITS = 1e-5  # MuJoCo writes six significant digits
MODEL = """<mujoco model="robot"><compiler angle="degree" meshdir="parts"/>
<default><joint damping="0.1"/></default>
<asset><mesh name="m" file="part.obj"/></asset>
<worldbody><light pos="0 0 3"/><geom name="floor" type="plane" size="1 1 1"/>
  <body name="a" pos="0 0 1">
    <joint name="j 1" axis="0 1 0" range="-90 45" stiffness="2" springref="30" ref="10"/>
    <geom size="0.1" pos="0 0 -.2"/>
    <body name="w" pos="0.1 0 0" euler="0 30 0"><geom type="box" size=".1 .02 .1"/></body>
    <body name="b" pos="0 0 -.4"><joint name="k"/><geom type="mesh" mesh="m"/></body>
  </body>
  <body name="f" pos="1 2 3" quat="0.8 0 0.3 0.1"><freejoint/>
    <inertial pos="0.1 0 0" quat="0.8 0.1 0.2 0.3" mass="2" diaginertia="0.1 0.2 0.25"/></body>
</worldbody>
<equality><joint name="e" joint1="k" joint2="j 1" polycoef="0.1 2"/></equality>
<actuator><motor name="m" joint="j 1" gear="2" forcerange="-3 3"/>
  <position name="p" joint="k" kp="3" damping="0.02"/><velocity name="v" joint="j 1" kv="0.2"/></actuator>
<sensor><jointpos name="s" joint="k" noise="0.01"/></sensor></mujoco>
"""
CHANGED = {
    "bodies.a.mass": 9.0,
    "bodies.a.com.x": 0.03,
    "bodies.b.inertia.xx": 300.0,
    "bodies.f.mass": 2.2,
    "bodies.f.com.y": 2.1,
    "bodies.f.inertia.xy": 0.01,
    "joints.j_1.friction.viscous": 0.15,
    "joints.j_1.friction.coulomb": 0.25,
    "joints.j_1.spring.stiffness": 2.5,
    "joints.j_1.spring.rest": 0.4,
    "joints.j_1.limits.upper": 0.7,
    "joints.k.armature": 0.01,
    "joints.k.friction.viscous": 0.2,
    "couplings.e.ratio": 2.1,
    "couplings.e.offset": 0.05,
    "motors.m.gain": 2.4,
    "motors.m.max_force": 7.0,
    "motors.p.stiffness": 3.5,
    "motors.p.damping": 0.3,
    "motors.v.damping": 0.25,
    "gravity.z": -9.82,
}


@pytest.fixture
def original(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "part.obj").write_text(
        "v 1 0 0\nv 0 2 0\nv 0 0 3\nv 0.5 0.5 -1\nf 1 2 3\nf 2 1 4\nf 3 2 4\nf 1 3 4\n"
    )
    return write(tmp_path, MODEL, "robot.xml")


def read(file: Path) -> Scene:
    return import_mjcf(file, allow_missing=True).scene


def test_identified_numbers_are_in_place(original, tmp_path):
    (tmp_path / "out").mkdir()
    before = read(original)
    assert set(CHANGED) <= set(numeric_paths(before))
    data = with_numbers(before, CHANGED).plain()
    data["step"], data["sensors"]["s"]["sd"] = 0.001, 0.02
    assert update_mjcf(original, Scene.model_validate(data), tmp_path / "out" / "new.xml") == ()
    after = read(tmp_path / "out" / "new.xml")
    assert (after.step, after.sensors["s"].sd) == (0.001, 0.02)
    wanted, found = numeric_paths(before) | CHANGED, numeric_paths(after)
    assert wanted.keys() == found.keys()
    for path, value in wanted.items():
        scale = 400 if path.startswith("bodies.b.inertia") else 1.0
        assert found[path] == pytest.approx(value, rel=DIGITS, abs=DIGITS * scale), path


def test_everything_else_stays(original, tmp_path):
    """The floor that a scene does not know, lights, meshes, default classes, and bodies that nobody changed."""
    update_mjcf(original, with_numbers(read(original), {"motors.m.gain": 2.4}), tmp_path / "new.xml")
    old, new = (mujoco.MjModel.from_xml_path(str(path)) for path in (original, tmp_path / "new.xml"))
    assert (new.nlight, new.ngeom, new.nmesh, new.nbody) == (old.nlight, old.ngeom, old.nmesh, old.nbody)
    assert new.geom("floor").type == old.geom("floor").type
    for array in ("body_mass", "body_inertia", "jnt_range", "geom_contype", "dof_damping"):
        np.testing.assert_allclose(getattr(new, array), getattr(old, array), rtol=DIGITS, atol=1e-7)
    assert new.actuator("m").gainprm[0] == pytest.approx(1.2)
    assert "<default>" in (tmp_path / "new.xml").read_text()


def test_a_tilt_is_gravity(original, tmp_path):
    tilted = with_numbers(read(original), {"tilt.x": 0.1})
    assert update_mjcf(original, tilted, tmp_path / "new.xml") == ()
    gravity = mujoco.MjModel.from_xml_path(str(tmp_path / "new.xml")).opt.gravity
    np.testing.assert_allclose(gravity, (0, -9.81 * np.sin(0.1), -9.81 * np.cos(0.1)), rtol=DIGITS)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("joints.k.at.x", 0.1),
        ("joints.j_1.friction.stribeck.excess", 0.1),
        ("sensors.s.offset", 0.1),
        ("bodies.a.mass", 0.1),  # less than what is welded to it
    ],
)
def test_numbers_without_a_place_are_listed_and_refused(path, value, original, tmp_path):
    changed = with_numbers(read(original), {path: value})
    with pytest.raises(MjcfError) as refused:
        update_mjcf(original, changed, tmp_path / "new.xml")
    assert [problem.path for problem in refused.value.problems] == [path]
    assert "has no place" in str(refused.value)
    assert not (tmp_path / "new.xml").exists()
    assert list(update_mjcf(original, changed, tmp_path / "new.xml", allow_missing=True)) == refused.value.problems


def test_names_that_the_file_does_not_have_are_listed(original, tmp_path):
    data = read(original).plain()
    data["motors"]["other"] = {"type": "torque", "joint": "k"}
    with pytest.raises(MjcfError, match=r"motors\.other\.gain"):
        update_mjcf(original, Scene.model_validate(data), tmp_path / "new.xml")


def test_numbers_that_become_zero_arrive(original, tmp_path):
    gone = {"couplings.e.offset": 0.0, "bodies.f.com.z": 0.0, "joints.j_1.spring.stiffness": 0.0}
    assert update_mjcf(original, with_numbers(read(original), gone), tmp_path / "new.xml") == ()
