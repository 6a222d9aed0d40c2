"""The step of a study whose scene names none: short enough for how fast bodies turn in the recordings."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from cli.scenes import run
from study.test_identify import entry, pendulum, study, write_csv

import spookax as sx
from spookax.study import read_study
from spookax.study.identifying.estimate import identified_scene
from spookax.study.recordings.step_size import chosen_step
from spookax.study.running.setup import set_up

TIME = np.arange(0.0, 2.0, 0.001)


def swing(folder: Path, rate: float, scene: dict[str, Any] | None = None, **estimator: Any) -> Path:
    """A study of a swing at 1 kHz that is so fast at the bottom [rad/s], read by an encoder of 1000 counts a turn."""
    count = 2 * np.pi / 1000
    angle = count * np.round(rate / 5.0 * np.sin(5.0 * TIME) / count)
    write_csv(folder / "run.csv", angle, TIME, np.zeros(len(TIME)))
    scene = {key: value for key, value in pendulum().items() if key != "step"} | (scene or {})
    return study(folder, scene, [entry("run.csv")], **estimator)


def step_of(path: Path) -> float:
    read = read_study(path)
    return chosen_step(read, sx.read_scene(read.scene_path), sx.read_recordings(read))


@pytest.mark.parametrize(("rate", "step"), [(0.0, 5e-3), (4.0, 5e-3), (8.0, 2e-3), (15.0, 1e-3), (400.0, 5e-4)])
def test_the_fastest_body_turns_a_little_in_a_step(tmp_path, rate, step):
    """Counts of an encoder, 6.3 rad/s from one sample to the next, are no turning: angles 10 ms apart are compared."""
    assert step_of(swing(tmp_path, rate)) == step


def test_wild_readings_are_no_turning(tmp_path):
    path = swing(tmp_path, 4.0, outliers=0.05)
    read = read_study(path)
    (recording,) = sx.read_recordings(read)
    value = recording.sensors["angle"].copy()
    value[np.random.default_rng(3).random(len(value)) < 0.04] += 3.0
    wild = dataclasses.replace(recording, sensors={"angle": value})
    assert chosen_step(read, sx.read_scene(read.scene_path), [wild]) == 5e-3


def test_a_step_that_is_named_stays(tmp_path):
    """Also the one that is named as long as the default; and what slides does not turn."""
    assert step_of(swing(tmp_path, 15.0, {"step": 5e-3})) == 5e-3
    assert step_of(swing(tmp_path, 15.0, step=4e-3)) == 4e-3
    pin = pendulum()["joints"]["pin"] | {"type": "prismatic"}
    assert step_of(swing(tmp_path, 15.0, {"joints": {"pin": pin}})) == 5e-3


def test_estimate_and_check_have_that_step(tmp_path):
    """Whoever simulates the scene of an estimate has the step with which its numbers were found."""
    path = swing(tmp_path, 15.0)
    read = read_study(path)
    setup = set_up(read, sx.read_scene(read.scene_path), sx.read_recordings(read))
    assert setup.scene.step == float(setup.params.step) == 1e-3
    made, _ = identified_scene(setup.scene, {"motors.drive.gain": 0.4})
    assert made is not None
    sx.write_scene(made, tmp_path / "found.yaml")
    assert yaml.safe_load((tmp_path / "found.yaml").read_text())["step"] == 1e-3
    assert "1999 steps of 0.001 s" in run("check", path).stdout
