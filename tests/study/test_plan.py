"""Where first trajectories are meant to go: axes that are led, and where a recording begins."""

import jax
import numpy as np
import yaml
from study.test_identify import pendulum, write_csv

import spookax as sx
from spookax._fingerprint import kind
from spookax.estimation.batch import step_blocks
from spookax.study import read_study
from spookax.study.file.against_scene import sensor_dimensions
from spookax.study.running.plan import _independent
from spookax.study.running.setup import set_up


def test_axes_are_led_that_others_do_not_hold():
    """Of a crank and the piston that follows it the crank, which has no dead centre; both where they move alone."""
    lever = np.sin(np.linspace(0.0, 6.0, 32))  # of the piston: how fast it goes for how fast the crank turns
    column = np.stack([lever, np.ones(32)], axis=1)
    loop = 5.0 * column[:, :, None] * column[:, None, :]
    assert _independent(loop) == [1]
    assert sorted(_independent(loop + np.diag([2.0, 0.0]))) == [0, 1]
    assert _independent(loop + 1e-6 * np.eye(2)) == [1]  # what the compliance of joints leaves


def test_axes_of_a_tree_are_led_all(rng):
    """However much heavier one is than the other, and strongly as they may be coupled."""
    root = rng.normal(size=(32, 3, 3)) + 2 * np.eye(3)
    N = np.diag([1.0, 1e3, 1e-3]) @ (root @ np.swapaxes(root, 1, 2)) @ np.diag([1.0, 1e3, 1e-3])
    assert sorted(_independent(N)) == [0, 1, 2]


def test_a_recording_begins_where_it_says(tmp_path):
    """What no sensor tells: the angle of a joint whose rate is read. The scene's own start is that of the others."""
    time = np.arange(0.0, 0.5, 0.005)
    write_csv(tmp_path / "run.csv", np.full(len(time), 0.2), time, np.zeros(len(time)))
    sensors = {"gyro": {"type": "joint_rate", "joint": "pin", "sd": 0.01}}
    scene = pendulum(sensors=sensors, initial={"pin": {"position": 0.3}})
    (tmp_path / "scene.yaml").write_text(yaml.safe_dump(scene))
    one = {"file": "run.csv", "time": "t", "inputs": {"drive": "u"}, "sensors": {"gyro": "w"}}
    (tmp_path / "run.csv").write_text((tmp_path / "run.csv").read_text().replace("q [rad]", "w [rad/s]"))
    recordings = [one | {"name": "a"}, one | {"name": "b", "initial": {"pin": {"position": -0.7}}}]
    study = {"spookax": 1, "scene": "scene.yaml", "recordings": recordings, "parameters": {"bodies.bob.mass": {}}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    read = read_study(tmp_path / "study.yaml")
    found = sx.read_scene(read.scene_path)
    setup = set_up(read, found, sx.read_recordings(read, sensor_dimensions(found)))
    firsts = [float(path.x.near[0, 0]) for path, _ in setup.plans()]
    np.testing.assert_allclose(firsts, [0.3, -0.7], atol=1e-12)


def test_what_is_compiled_depends_on_no_length_and_no_sensor(tmp_path):
    """Short recordings, the check at half the step and axes that are not read: all have the programs of one block."""
    (tmp_path / "scene.yaml").write_text(yaml.safe_dump(pendulum()))
    recording = {"file": "run.csv", "time": "t", "inputs": {"drive": "u"}, "sensors": {"angle": "q"}}
    study = {"spookax": 1, "scene": "scene.yaml", "recordings": [recording], "parameters": {"bodies.bob.mass": {}}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    blocks = set()
    for seconds, step in ((0.3, None), (1.5, None), (1.5, 0.0025)):
        time = np.arange(0.0, seconds, 0.005)
        write_csv(tmp_path / "run.csv", np.full(len(time), 0.2), time, np.zeros(len(time)))
        read = read_study(tmp_path / "study.yaml")
        found = sx.read_scene(read.scene_path)
        setup = set_up(read, found, sx.read_recordings(read, sensor_dimensions(found)), step=step)
        blocks |= {end - begin for begin, end in step_blocks.spans(setup.grids[0].steps)}
    assert blocks == {step_blocks.BLOCK}
    unread = setup.model.following([False])
    assert jax.tree.structure(unread) == jax.tree.structure(setup.model)
    assert [kind(x) for x in jax.tree.leaves(unread)] == [kind(x) for x in jax.tree.leaves(setup.model)]
