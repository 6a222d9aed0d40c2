"""Delays as unknowns of a study: where late readings and earlier commands lie, and recordings that tell them."""

from typing import Any

import numpy as np
import pytest
import yaml

import spookax as sx
from spookax.cli.outputs import readings
from spookax.scene import Scene
from spookax.study.recordings.grid import grid_of, kick_means, step_means
from spookax.study.running.setup import Setup, set_up

H, STEPS, SD, RATE_SD = 2e-3, 1024, 1e-3, 1e-2
MOTOR, ENCODER = "motors.drive.delay", "sensors.angle.delay"
TRUTH = {MOTOR: 7.3e-3, ENCODER: 4.1e-3}
TIME = H * np.arange(STEPS)


def arm(**delays: float) -> dict[str, Any]:
    """An arm on a vertical axis, linear but for nothing, with an encoder and a tachometer."""
    return {
        "spookax": 1,
        "step": H,
        "bodies": {"bob": {"mass": 1.0, "com": [0, 0, 0], "inertia": [1, 1, 0.02]}},
        "joints": {"pin": {"type": "hinge", "child": "bob", "axis": [0, 0, 1], "friction": {"viscous": 0.05}}},
        "motors": {"drive": {"type": "torque", "joint": "pin", "gain": 0.5, "delay": delays.get(MOTOR, 0.0)}},
        "sensors": {
            "angle": {"type": "joint_position", "joint": "pin", "sd": SD, "delay": delays.get(ENCODER, 0.0)},
            "speed": {"type": "joint_rate", "joint": "pin", "sd": RATE_SD},
        },
    }


def sweep(fastest: float) -> np.ndarray:
    """From rest, up to a frequency [Hz]."""
    return np.where(TIME > 0.02, 2 * np.sin(np.pi * fastest * TIME**2 / TIME[-1]), 0.0)


def study(
    folder, parameters: dict[str, Any], sensors: dict[str, str], u: np.ndarray, truth: dict[str, float] = TRUTH
) -> Any:
    """A study of what the true arm does, without noise of the process."""
    scene = Scene.model_validate(arm(**truth))
    system, params = sx.build(scene)
    found = sx.rollout(system, params, sx.state_from_joints(system, params), u[:, None])
    rng = np.random.default_rng(4)
    read = [readings(system, params, found, s)[:-1, 0] + sd * rng.normal(size=STEPS)
            for s, sd in zip(system.sensors, (SD, RATE_SD), strict=True)]  # fmt: skip
    np.savez(folder / "run.npz", **dict(zip(("t [s]", "u [V]", "q [rad]", "v [rad/s]"), (TIME, u, *read), strict=True)))
    (folder / "scene.yaml").write_text(yaml.safe_dump(arm()))
    recording = {"file": "run.npz", "time": "t", "inputs": {"drive": "u"}, "sensors": sensors}
    text = {"spookax": 1, "scene": "scene.yaml", "recordings": [recording], "parameters": parameters}
    (folder / "study.yaml").write_text(yaml.safe_dump(text))
    return folder / "study.yaml"


def ready(path) -> Setup:
    read = sx.load_study(path)
    return set_up(read, sx.read_scene(read.scene_path), sx.read_recordings(read))


BOTH = {"angle": "q", "speed": "v"}


def test_readings_lie_where_their_delay_says_and_commands_reach_back_to_the_bound(tmp_path):
    parameters = {MOTOR: {"start": 3e-3, "upper": 0.025}, ENCODER: {"start": 5e-3}}
    setup = ready(study(tmp_path, parameters, BOTH, u := sweep(3.0)))
    (samples,), (grid,), (recording,) = setup.problem.samples, setup.grids, setup.recordings
    assert setup.system.history == 16  # 12.5 steps and the one before, up to a power of two
    np.testing.assert_array_equal(grid.earlier, [2, 0])  # 2.5 steps, to even
    y, s, seen = map(np.asarray, (samples.y, samples.s, samples.weight))
    read = recording.sensors["angle"][:, 0]
    np.testing.assert_array_equal(y[: STEPS - 2, 0, 0], read[2:])
    np.testing.assert_allclose(s[: STEPS - 2, 0], [[2.0, 0.0]] * (STEPS - 2), atol=1e-9)
    assert seen[:, 0].sum() == 2 * STEPS - 2  # two readings show what was before the first step
    np.testing.assert_array_equal(grid.taken(y)[2:, 0], read[2:])
    np.testing.assert_array_equal(grid.taken(y)[:, 1], recording.sensors["speed"][:, 0])
    commands = np.asarray(samples.u)[..., 0]
    assert commands.shape == (STEPS, 17)
    for back in range(17):
        np.testing.assert_allclose(commands[back:, back], u[: STEPS - back], atol=1e-12)
    np.testing.assert_array_equal(commands[3, 4:], u[0])  # what was before the first stamp
    # a delay that comes out elsewhere moves them, and back
    bounds = dict(zip((MOTOR, ENCODER), np.asarray(setup.model.shared.bounds()).T, strict=True))
    assert bounds[ENCODER][1] == pytest.approx(np.arcsinh(0.1 / 5e-3))  # the default
    z = setup.model.shared.encode([3e-3, 9e-3])
    moved = setup.replaced(z)
    assert moved.replaced(z) is moved
    np.testing.assert_array_equal(np.asarray(moved.problem.samples[0].y)[: STEPS - 4, 0, 0], read[4:])


def test_what_a_tie_or_a_mode_may_make_of_a_delay_has_its_commands(tmp_path):
    path = study(tmp_path, {ENCODER: {"start": 5e-3}}, BOTH, sweep(3.0))
    text = yaml.safe_load(path.read_text())
    modes = {"late": {"set": {MOTOR: 0.06}}, "usual": {}}
    recursive = {"modes": modes, "switching": {"dwell_time": 1.0}, "parameters": "held"}
    for more, history in (({"ties": {MOTOR: f"2 * {ENCODER}"}}, 64), ({"recursive": recursive}, 32), ({}, 0)):
        path.write_text(yaml.safe_dump(text | more))
        assert ready(path).system.history == history


def test_means_over_steps_and_over_kicks_have_the_same_area(rng):
    """Kicks begin and end half a step earlier."""
    time = np.cumsum(rng.uniform(0.2, 1.5, size=100)) * H
    grid, value = grid_of(time, H), rng.normal(size=100)
    kicks, steps = kick_means(grid, time, value), step_means(grid, time, value, 3)
    np.testing.assert_allclose(steps[:3], value[0])
    assert len(steps) == grid.steps + 3
    np.testing.assert_allclose(kicks.sum() - steps[3:].sum(), (value[0] - value[-1]) / 2, atol=1e-9)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_delays_of_motor_and_encoder_are_identified(tmp_path):
    """7.3 and 4.1 ms at a step of 2 ms, against a tachometer that is in time."""
    parameters = {
        "bodies.bob.inertia.zz": {"start": 0.03},
        "joints.pin.friction.viscous": {"start": 0.1},
        MOTOR: {"start": 2e-3},
        ENCODER: {"start": 1e-3},
    }
    found = sx.identify(study(tmp_path, parameters, BOTH, sweep(4.0)))
    assert found.status == "converged"
    assert found.content["checks"]["gauge"] == []
    for path, truth in TRUTH.items():
        estimated = found.parameters[path]
        assert abs(estimated["value"] - truth) < 3 * estimated["sd"]
        assert estimated["sd"] < 0.1 * H
    assert found.content["diagnosis"]["white"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("column", "late"), [("u [V]", 5), ("q [rad]", -5)], ids=["input late", "encoder early"])
def test_a_column_that_no_delay_can_mend_is_shifted_as_the_suspicion_says(tmp_path, column, late):
    """By 10 ms: a command that was recorded late, an encoder that was recorded early."""
    parameters = {"bodies.bob.inertia.zz": {"start": 0.03}, "joints.pin.friction.viscous": {"start": 0.1}}
    path = study(tmp_path, parameters, BOTH, sweep(4.0), truth={})
    columns = dict(np.load(tmp_path / "run.npz"))
    columns[column] = np.roll(columns[column], late)
    if late > 0:
        columns[column][:late] = 0.0  # at rest, as before
    else:
        columns[column][late:] = np.nan  # nobody has read them
    np.savez(tmp_path / "run.npz", **columns)
    first = sx.identify(path).content["diagnosis"]["suspects"][0]
    shift = -late * H
    assert (first["kind"], first["cure"]) == (
        "delay",
        f"Shift the column in time: `{{column: NAME, shift: {shift:g}}}`.",
    )
    text = yaml.safe_load(path.read_text())
    key, name = ("inputs", "drive") if column == "u [V]" else ("sensors", "angle")
    entry = text["recordings"][0][key]
    entry[name] = {"column": entry[name], "shift": shift}
    path.write_text(yaml.safe_dump(text))
    found = sx.identify(path)
    assert found.status == "converged"
    assert found.content["diagnosis"]["white"]
    for name, truth in zip(parameters, (0.02, 0.05), strict=True):
        assert abs(found.parameters[name]["value"] - truth) < 3 * found.parameters[name]["sd"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_an_encoder_alone_cannot_tell_is_named(tmp_path):
    parameters = {"bodies.bob.inertia.zz": {"start": 0.03}, MOTOR: {"start": 5e-3}, ENCODER: {"start": 5e-3}}
    found = sx.identify(study(tmp_path, parameters, {"angle": "q"}, sweep(1.5)))
    (gauge,) = found.content["checks"]["gauge"]
    assert set(gauge["paths"]) == {MOTOR, ENCODER}
    assert gauge["message"].startswith("Only a combination is determined")
    together = sum(found.value(path) for path in TRUTH)
    assert together == pytest.approx(sum(TRUTH.values()), abs=3e-4)
