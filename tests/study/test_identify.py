"""Identification through `identify`: recordings that a rollout made, written to files and read again.

All studies have the same mechanism, number of steps and unknowns where they can: one compilation serves them.
"""

import functools
import json
import re
import signal
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

import spookax as sx
from spookax.cli.check import check_study
from spookax.cli.progress import result_text
from spookax.estimation.batch.profile import TAIL
from spookax.models import BodyState
from spookax.scene import Scene, get_number
from spookax.study.identifying import solve
from spookax.study.running.setup import Setup, set_up

pytestmark = [pytest.mark.timeout(400), pytest.mark.quick]

H, STEPS, SD = 5e-3, 256, 1e-3
TIME = H * np.arange(STEPS)
INERTIA, VISCOUS, GAIN = "bodies.bob.inertia.xx", "joints.pin.friction.viscous", "motors.drive.gain"
TRUTH = {INERTIA: 0.02, VISCOUS: 0.05, GAIN: 0.5}
STARTS = {INERTIA: {"start": 0.03}, VISCOUS: {"start": 0.1}, GAIN: {"start": 0.4, "transform": "log"}}
ESTIMATOR = {"process_noise": {"kind": "bodies", "density": 1e-4, "estimate": False}}
SWING = ({"position": 0.9, "rate": 0.5}, {"position": -0.4, "rate": -3.0})
DRIVE = np.where(TIME % 0.4 < 0.2, 2.0, -2.0)  # held over each step


def pendulum(**changes: Any) -> dict[str, Any]:
    """A bob on a damped hinge with a motor."""
    return {
        "spookax": 1,
        "step": H,
        "bodies": {"bob": {"mass": 1.0, "com": [0, 0, -0.3], "inertia": [0.02, 1, 1]}},
        "joints": {"pin": {"type": "hinge", "child": "bob", "axis": [1, 0, 0], "friction": {"viscous": 0.05}}},
        "motors": {"drive": {"type": "torque", "joint": "pin", "gain": 0.5}},
        "sensors": {"angle": {"type": "joint_position", "joint": "pin", "sd": SD}},
    } | changes


@functools.cache
def simulator(system: sx.System):
    return jax.jit(lambda params, state, u: sx.rollout(system, params, state, u[:, None]).joint("pin")[0])


def angles(scene: Scene | dict[str, Any], start: dict[str, float], u: np.ndarray = DRIVE) -> np.ndarray:
    """Angles at t_0 ... t_K of a swing."""
    system, params = sx.build(scene if isinstance(scene, Scene) else Scene.model_validate(scene))
    state = sx.state_from_joints(system, params, {"pin": start})
    return np.asarray(simulator(system)(params, state, jnp.asarray(u)))


def write_csv(path: Path, angle: np.ndarray, time: np.ndarray = TIME, u: np.ndarray = DRIVE) -> None:
    cells = np.where(np.isnan(angle), "", angle.astype(str))
    rows = [",".join(row) for row in zip(time.astype(str), u.astype(str), cells, strict=True)]
    path.write_text("\n".join(["t [s],u [V],q [rad]", *rows]) + "\n")


def entry(file: str, **more: Any) -> dict[str, Any]:
    columns = {"time": "t", "inputs": {"drive": "u"}, "sensors": {"angle": "q"}, "offsets": {"angle": 0.1}}
    return {"file": file, **columns, **more}


def study(folder: Path, scene: dict[str, Any], recordings: list[dict[str, Any]], **estimator: Any) -> Path:
    text = {"spookax": 1, "scene": "scene.yaml", "recordings": recordings, "parameters": STARTS}
    (folder / "scene.yaml").write_text(yaml.safe_dump(scene))
    (folder / "study.yaml").write_text(yaml.safe_dump(text | {"estimator": ESTIMATOR | estimator}))
    return folder / "study.yaml"


def one_swing(folder: Path, **estimator: Any) -> Path:
    """A study of one recording."""
    write_csv(folder / "run.csv", angles(pendulum(), SWING[0])[:-1] + SD * np.random.default_rng(1).normal(size=STEPS))
    return study(folder, pendulum(), [entry("run.csv")], **estimator)


def numbers(found: sx.Estimate, key: str = "value") -> np.ndarray:
    return np.array([found.parameters[path][key] for path in STARTS])


def assert_near(found: sx.Estimate) -> None:
    """Within 3 sd of the truth, and known at all."""
    error = (numbers(found) - list(TRUTH.values())) / numbers(found, "sd")
    assert np.all(np.abs(error) < 3)
    assert np.all(numbers(found, "sd") < 0.05 * numbers(found))


@pytest.mark.slow
def test_a_recording_that_is_held_back_changes_nothing_and_is_predicted(tmp_path, whole):
    path = one_swing(tmp_path)
    noise = SD * np.random.default_rng(2).normal(size=STEPS)
    write_csv(tmp_path / "late.csv", angles(pendulum(), SWING[1])[:-1] + noise)
    text = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(text | {"validate": [entry("late.csv")]}))
    found = sx.identify(path)
    np.testing.assert_allclose(numbers(found), numbers(whole), rtol=1e-9)
    assert list(found.content["runs"]) == ["run"]
    (seen,) = found.content["validation"].values()
    assert seen["signals"]["angle"]["rms"] < 5 * SD
    assert "fit 99" in next(line for line in result_text(found).splitlines() if line.startswith("late, angle"))
    assert "held back" in found.content["trust"]["reasons"][0]
    assert found.states["late/open_loop/angle"].shape == (STEPS, 1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> sx.Estimate:
    """The uninterrupted, marginal, simulator-form estimate of one swing."""
    return sx.identify(one_swing(tmp_path_factory.mktemp("whole")))


@pytest.mark.slow
def test_a_parameter_at_a_bound_has_a_one_sided_interval(tmp_path, whole):
    path = one_swing(tmp_path)
    text = yaml.safe_load(path.read_text())
    text["parameters"][VISCOUS] |= {"lower": 0.07}  # the truth is 0.05
    path.write_text(yaml.safe_dump(text))
    found = sx.identify(path)
    viscous = found.parameters[VISCOUS]
    assert viscous["at_bound"] == "lower"
    low, high = viscous["interval"]
    assert low == viscous["value"] == pytest.approx(0.07)
    assert low < low + viscous["sd"] < high < 0.071
    assert all("at_bound" not in whole.parameters[p] for p in STARTS)
    assert "joints.pin.friction.viscous" not in str(found.content["checks"]["gauge"])
    line = next(line for line in result_text(found).splitlines() if line.startswith(VISCOUS))
    assert re.search(r"at its lower bound; the recordings allow up to 0\.0700\d* \(95 %\)", line)
    for run in found.content["runs"].values():
        assert run["initial"]["pin"]["position_sd"] > 0


@pytest.mark.slow
def test_what_is_tied_is_in_the_estimate_and_its_scene(tmp_path):
    path = one_swing(tmp_path)
    text = yaml.safe_load(path.read_text())
    del text["parameters"][GAIN]
    path.write_text(yaml.safe_dump(text | {"ties": {GAIN: f"10 * {VISCOUS}"}}))
    found = sx.identify(path)
    gain, viscous = found.parameters[GAIN], found.parameters[VISCOUS]
    assert found.status == "converged"
    assert gain["tied"] == f"10 * {VISCOUS}"
    for key in ("value", "sd", "start"):
        assert gain[key] == pytest.approx(10 * viscous[key])
    assert abs(gain["value"] - TRUTH[GAIN]) < 3 * gain["sd"]
    assert found.scene is not None
    assert get_number(found.scene, GAIN) == gain["value"]
    assert found.content["correlation"]["paths"] == [INERTIA, VISCOUS]


def test_moments_without_effect_make_way(tmp_path, whole):
    """The bob turns about x only; no body has the moments of the file and the one that is found."""
    path = one_swing(tmp_path)
    flat = pendulum(bodies={"bob": {"mass": 1.0, "com": [0, 0, -0.3], "inertia": [0.004, 0.003, 0.003]}})
    (tmp_path / "scene.yaml").write_text(yaml.safe_dump(flat))
    assert (
        check_study(path)
        .lines[0]
        .startswith(
            "bodies.bob.inertia.xx: yy and zz have no effect on this motion; if it is found outside 0 to 0.006 kg m^2"
        )
    )
    found = sx.identify(path)
    assert found.status == "converged"
    # but for the compliance of the joint's rows, which goes by the inertia
    np.testing.assert_allclose(numbers(found), numbers(whole), rtol=1e-4)
    assert "other numbers for bodies.bob.inertia.yy, bodies.bob.inertia.zz" in found.message
    assert found.scene is not None
    value = found.value(INERTIA)
    assert [get_number(found.scene, f"bodies.bob.inertia.{part}") for part in ("xx", "yy", "zz")] == pytest.approx(
        [value, value / 2, value / 2]
    )


@pytest.mark.slow
def test_recordings_with_their_own_offsets(tmp_path, rng):
    offsets = {"first": 0.02, "second": -0.05}
    for (name, offset), start in zip(offsets.items(), SWING, strict=True):
        write_csv(tmp_path / f"{name}.csv", angles(pendulum(), start)[:-1] + offset + SD * rng.normal(size=STEPS))
    found = sx.identify(study(tmp_path, pendulum(), [entry("first.csv"), entry("second.csv")]))
    assert found.status == "converged"
    assert_near(found)
    for (name, offset), start in zip(offsets.items(), SWING, strict=True):
        run = found.content["runs"][name]
        estimated = run["offsets"]["angle"]
        first = run["initial"]["pin"]
        assert abs(estimated["value"] - offset) < 3 * estimated["sd"]
        assert 0 < estimated["sd"] < SD
        for key in ("position", "rate"):
            assert abs(first[key] - start[key]) < 3 * first[f"{key}_sd"]
            assert 0 < first[f"{key}_sd"] < 0.02
        # the identified scene replays from there
        again = angles(found.scene, {"position": first["position"], "rate": first["rate"]})[:-1]
        error = again + estimated["value"] - found.states[f"{name}/open_loop/angle"][:, 0]
        assert np.max(np.abs(error)) < 1e-5


@pytest.mark.slow
def test_dropouts_irregular_stamps_and_gaps(tmp_path, rng):
    """Stamps anywhere in their steps, a gap, empty cells in CSV, NaN in NPZ; a constant input to each."""
    for name, start, u in (("first.csv", SWING[0], 2.0), ("second.npz", SWING[1], -1.0)):
        angle = angles(pendulum(), start, np.full(STEPS, u))
        time = TIME + H * rng.uniform(0, 0.99, size=STEPS)
        time[0] = 0.0
        # along a step the model's pose moves at constant velocity
        read = np.interp(time, H * np.arange(STEPS + 1), angle) + SD * rng.normal(size=STEPS)
        read[rng.uniform(size=STEPS) < 0.2] = np.nan
        keep = (time < 0.5) | (time > 0.65)
        keep[-1] = True
        time, read = 100.0 + time[keep], read[keep]
        if name.endswith("csv"):
            write_csv(tmp_path / name, read, time, np.full(len(time), u))
        else:
            np.savez(tmp_path / name, **{"t [s]": time, "u [V]": np.full(len(time), u), "q [rad]": read})
    found = sx.identify(study(tmp_path, pendulum(), [entry("first.csv"), entry("second.npz")]))
    assert found.status == "converged"
    assert_near(found)
    for name in ("first", "second"):
        signals = {k: v for k, v in found.states.items() if k.startswith(name)}
        measured = signals[f"{name}/measured/angle"]
        missing = np.isnan(measured)
        assert 0.1 < missing.mean() < 0.3
        assert found.content["runs"][name]["samples"] == np.sum(~missing)
        for key, value in signals.items():
            if "measured" in key or "innovation" in key:
                np.testing.assert_array_equal(np.isnan(value), missing)
            else:
                assert np.all(np.isfinite(value)), key
        assert found.content["runs"][name]["signals"]["angle"]["rms"] < 1.2 * SD
    text = (found.save(tmp_path / "estimate") / "estimate.json").read_text()
    json.loads(text, parse_constant=pytest.fail)  # NaN or Infinity


@pytest.mark.slow
def test_cogging_of_the_motor_and_cyclic_error_of_the_encoder(tmp_path, rng):
    """What repeats with the angle is told apart: the torque moves the pendulum, the error only what is read."""
    cogging, cyclic = {"cos": 0.05, "sin": -0.08}, {"cos": 4e-3, "sin": -2e-3}

    def scene(torque: dict[str, float], error: dict[str, float]) -> dict[str, Any]:
        motor = {"type": "torque", "joint": "pin", "gain": 0.5, "cogging": [{"order": 5, **torque}]}
        sensor = {"type": "joint_position", "joint": "pin", "sd": SD, "cyclic_error": [{"order": 7, **error}]}
        return pendulum(motors={"drive": motor}, sensors={"angle": sensor})

    angle = angles(scene(cogging, cyclic), SWING[0])[:-1]
    read = angle + cyclic["cos"] * np.cos(7 * angle) + cyclic["sin"] * np.sin(7 * angle) + SD * rng.normal(size=STEPS)
    write_csv(tmp_path / "run.csv", read)
    file = study(tmp_path, scene({}, {}), [entry("run.csv")])
    truth = {f"motors.drive.cogging.5.{key}": value for key, value in cogging.items()}
    truth |= {f"sensors.angle.cyclic_error.7.{key}": value for key, value in cyclic.items()}
    text = yaml.safe_load(file.read_text())
    text["parameters"] |= {path: {"prior_sd": 0.1} for path in truth}
    file.write_text(yaml.safe_dump(text))
    found = sx.identify(file)
    assert found.status == "converged"
    assert_near(found)
    for path, value in truth.items():
        estimated = found.parameters[path]
        assert abs(estimated["value"] - value) < 3 * estimated["sd"], path
        assert estimated["sd"] < 0.3 * abs(value), path


@pytest.mark.slow
def test_a_common_factor_is_named(tmp_path, rng):
    """No gravity: gain, inertia and friction times anything move the same; mass and centre lie on the axis."""
    arm = pendulum(gravity=[0, 0, 0], bodies={"bob": {"mass": 1.0, "com": [0, 0, 0], "inertia": [0.02, 1, 1]}})
    for name, start in zip(("run", "late"), SWING, strict=True):
        write_csv(tmp_path / f"{name}.csv", angles(arm, start)[:-1] + SD * rng.normal(size=STEPS))
    path = study(tmp_path, arm, [entry("run.csv")])
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"validate": [entry("late.csv")]}))
    found = sx.identify(path)
    (gauge,) = found.content["checks"]["gauge"]
    # and the band of what was held back does not follow the unknown factor, as far as it may go
    assert np.nanmax(found.states["late/open_loop_sd/angle"]) < 20 * SD
    assert set(gauge["paths"]) == set(TRUTH)
    assert "common factor" in gauge["message"]
    assert "Fix one of them" in gauge["message"]
    ratios = numbers(found)[:2] / numbers(found)[2] * TRUTH[GAIN]
    np.testing.assert_allclose(ratios, [TRUTH[INERTIA], TRUTH[VISCOUS]], rtol=0.05)


def test_a_gain_is_per_unit_of_the_recorded_input(tmp_path, whole):
    assert whole.parameters[GAIN]["unit"] == "N m/V"
    path = one_swing(tmp_path)
    for header, expected in (("1", "N m"), ("A", "N m/A"), ("N", "N m/N"), ("N m", "1")):
        text = (tmp_path / "run.csv").read_text()
        (tmp_path / "run.csv").write_text(text.replace(text.splitlines()[0], f"t [s],u [{header}],q [rad]"))
        read = sx.load_study(path)
        setup = set_up(read, sx.read_scene(read.scene_path), sx.read_recordings(read))
        assert setup.unit_of(GAIN) == expected
        assert setup.unit_of(INERTIA) == "kg m^2"


def test_a_recording_without_faults_raises_no_suspicion(whole):
    found = whole.content["diagnosis"]
    assert found["white"]
    assert found["suspects"] == []
    assert found["sentence"].startswith("Innovations are white")
    assert result_text(whole).endswith(found["sentence"])


@pytest.mark.parametrize("fault", ["delay", "drift"])
def test_a_fault_is_the_first_suspicion(tmp_path, fault):
    path = one_swing(tmp_path)
    late = np.concatenate([np.full(6, DRIVE[0]), DRIVE])[:STEPS]
    angle = angles(pendulum(), SWING[0], late if fault == "delay" else DRIVE)[:-1]
    angle = angle + SD * np.random.default_rng(1).normal(size=STEPS)
    if fault == "drift":
        angle = angle + 0.1 * TIME / TIME[-1]
    write_csv(tmp_path / "run.csv", angle)
    found = sx.identify(path).content["diagnosis"]
    assert found["suspects"][0]["kind"] == fault
    assert f"First suspicion: {fault}" in found["sentence"]
    if fault == "delay":  # of 30 ms; the text has the line that mends it
        (start,) = re.findall(r"Write `sensors\.angle\.delay: \{start: ([0-9.]+)\}`", found["suspects"][0]["cure"])
        assert 0.015 < float(start) < 0.045


@pytest.mark.parametrize(("gravity", "start", "status"), [(600, 0.9, "converged"), (400, 1.6, "local_minimum")])
def test_a_step_that_is_too_long_is_the_first_suspicion(tmp_path, gravity, start, status):
    """Truth has steps a twentieth as long. What the check says that half the step explains, a fit with it does."""
    path, scene = one_swing(tmp_path), pendulum(gravity=[0, 0, -gravity])
    fine = angles(scene | {"step": H / 20}, {"position": start}, np.repeat(DRIVE, 20))[:-1:20]
    write_csv(tmp_path / "run.csv", fine + SD * np.random.default_rng(1).normal(size=STEPS))
    (tmp_path / "scene.yaml").write_text(yaml.safe_dump(scene))
    found = sx.identify(path)
    assert found.status == status
    first = found.content["diagnosis"]["suspects"][0]
    assert (first["kind"], first["cure"]) == ("step", "Write `step: 0.0025` under `estimator`.")
    study = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(study | {"estimator": study["estimator"] | {"step": H / 2}}))
    half = sx.identify(path)
    assert half.status == "converged"
    assert first["gain"] == pytest.approx(found.content["cost"] - half.content["cost"], rel=0.1)


def test_a_determined_study_has_no_gauge(whole):
    assert whole.status == "converged"
    checks = whole.content["checks"]
    assert checks["gauge"] == []
    assert all(abs(row["shift_in_sd"]) < 1 for row in checks["half_step"].values())
    assert_near(whole)


@pytest.fixture
def usual_handlers():
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("usual_handlers")
@pytest.mark.parametrize("by_signal", [signal.SIGINT, signal.SIGTERM, None])
def test_interrupted_and_resumed(tmp_path, whole, by_signal):
    path, lines = one_swing(tmp_path), []

    def report(line: sx.Progress) -> None:
        lines.append(line)
        if line.iteration == 2:
            if by_signal is None:
                raise KeyboardInterrupt
            signal.raise_signal(by_signal)

    stopped = sx.identify(path, report=report)
    assert stopped.status == "interrupted"
    assert "resume" in stopped.message.lower()
    assert [line.iteration for line in lines] == [0, 1, 2]
    folder = stopped.save(tmp_path / "estimate")
    stored = json.loads((folder / "estimate.json").read_text())
    assert stored["status"] == "interrupted"
    assert stored["study_file"] == str(path.resolve())
    assert stored["parameters"][INERTIA]["value"] == stopped.value(INERTIA)
    assert {p.name for p in folder.iterdir()} == {"estimate.json", "states.npz", "scene.yaml", "checkpoint.npz"}

    again: list[sx.Progress] = []
    resumed = sx.identify(path, report=again.append, resume=folder)
    assert resumed.status == "converged"
    assert again[0].cost < lines[1].cost  # goes on; does not begin again
    assert np.all(np.abs(numbers(resumed) - numbers(whole)) < 0.01 * numbers(whole, "sd"))
    np.testing.assert_allclose(numbers(resumed, "sd"), numbers(whole, "sd"), rtol=1e-2)
    np.testing.assert_allclose(resumed.content["cost"], whole.content["cost"], rtol=1e-4)


def test_a_motion_that_overflows_ends_it_at_once(tmp_path, whole):
    """An input of 10^300 V: no iteration, and nothing is said to be known."""
    path = one_swing(tmp_path)
    write_csv(tmp_path / "run.csv", np.zeros(STEPS), u=1e300 * DRIVE)
    found = sx.identify(path)
    assert found.status == "nonfinite"
    assert found.content["iterations"] == 0
    assert np.all(np.isinf(numbers(found, "sd")))


def test_recordings_are_as_long_as_they_are(tmp_path):
    """Whole blocks, as many as each needs, one at least."""
    time, entries = H * np.arange(1100), []
    for name, count in (("a", 1100), ("b", 600), ("c", 130), ("d", 40)):
        write_csv(tmp_path / f"{name}.csv", np.zeros(count), time[:count], np.zeros(count))
        entries.append(entry(f"{name}.csv"))

    def steps(form: str, chosen: list[dict[str, Any]]) -> list[int]:
        read = sx.load_study(study(tmp_path, pendulum(), chosen, form=form))
        return [grid.steps for grid in set_up(read, sx.read_scene(read.scene_path), sx.read_recordings(read)).grids]

    assert steps("simulator", entries) == [1536, 1024, 512, 512]
    assert steps("simulator", entries[2:]) == [512, 512]
    assert steps("residual", entries) == [1152] * 4


def test_another_start_is_tried_after_a_failure(tmp_path, rng):
    """A heavy bob, far from the start, and one iteration only."""
    heavy = pendulum(bodies={"bob": {"mass": 1.0, "com": [0, 0, -0.3], "inertia": [1.5, 1, 1]}})
    write_csv(tmp_path / "run.csv", angles(heavy, SWING[0])[:-1] + SD * rng.normal(size=STEPS))
    ends = {}
    for restarts in (0, 4):
        lines: list[sx.Progress] = []
        path = study(tmp_path, pendulum(), [entry("run.csv")], max_iterations=1, restarts=restarts)
        found = sx.identify(path, report=lines.append)
        assert found.status == "iteration_limit"
        assert "max_iterations" in found.message
        ends[restarts] = list(dict.fromkeys(line.phase for line in lines)), found.content["cost"]
    assert ends[0][0] == ["stages"]
    begun = {line.phase: line.cost for line in lines if line.phase.startswith("start ")}
    followed = ends[4][0][5:]
    assert len(begun) == 4
    assert followed == [f"re{name}" for name in sorted(begun, key=begun.__getitem__)][: len(followed)]
    assert 0 < len(followed) < 4, "the others explain less than the first did at that point"
    assert found.content["restarts"] == {"drawn": 4, "followed": len(followed)}
    assert ends[4][1] <= ends[0][1]


@pytest.mark.slow
def test_a_start_that_is_too_far_off_is_rescued(tmp_path, rng):
    """A factor of 30 is more than five iterations get over; of six other starts one is nearer."""
    far = {INERTIA: 30 * TRUTH[INERTIA], VISCOUS: 30 * TRUTH[VISCOUS], GAIN: TRUTH[GAIN] / 30}
    parameters = {path: {"start": value, "transform": "log"} for path, value in far.items()}
    write_csv(tmp_path / "run.csv", angles(pendulum(), SWING[0])[:-1] + SD * rng.normal(size=STEPS))
    ends = {}
    for restarts in (0, 6):
        path = study(tmp_path, pendulum(), [entry("run.csv")], max_iterations=5, restarts=restarts)
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"parameters": parameters}))
        ends[restarts] = sx.identify(path)
    assert ends[0].status == "iteration_limit"
    assert ends[6].status == "converged"
    assert np.all(np.abs(numbers(ends[6]) - np.array(list(TRUTH.values()))) < 3 * numbers(ends[6], "sd"))
    assert ends[6].content["convergence"][-1]["phase"].startswith("restart")


def test_what_no_start_explains_is_no_convergence(tmp_path, rng):
    """Readings twenty times worse than the scene says."""
    write_csv(tmp_path / "run.csv", angles(pendulum(), SWING[0])[:-1] + 20 * SD * rng.normal(size=STEPS))
    lines: list[sx.Progress] = []
    path = study(tmp_path, pendulum(), [entry("run.csv")], restarts=1)
    found = sx.identify(path, report=lines.append)
    assert found.status == "local_minimum"
    assert "times what the noise of the sensors explains" in found.message
    assert "1 other start" in found.message
    assert {line.phase for line in lines} == {"stages", "start 1", "restart 1"}
    assert sx.identify(path, resume=found.save(tmp_path / "estimate")).status == "local_minimum"


def log_density(path: Path, found: sx.Estimate):
    """z -> sum log|dv+/dw| along the estimated states, from steps of the simulator."""
    read = sx.load_study(path)
    setup = set_up(read, sx.read_scene(read.scene_path), sx.read_recordings(read))
    stage, stored = setup.stages[-1], found.checkpoint
    x = BodyState(*(jnp.asarray(stored[f"0/x/{name}"])[:-1] for name in ("p", "e", "v", "w", "near", "c")))

    @jax.jit
    def total(z: jax.Array) -> jax.Array:
        p = stage.model.prepare(jnp.concatenate([z, jnp.asarray(stored["0/own"])]))

        def one(x, u, w):
            def velocity(w: jax.Array) -> jax.Array:
                after, _ = stage.model.step(x, p, u, w, stage.noise, jnp.zeros(0))
                return jnp.concatenate([after.v.reshape(-1), after.w.reshape(-1)])

            return jnp.linalg.slogdet(jax.jacfwd(velocity)(w))[1]

        return jnp.sum(jax.vmap(one)(x, setup.problem.samples[0].u, jnp.asarray(stored["0/w"])))

    return total


def test_joint_objective_moves_by_the_slope_of_its_density(tmp_path, whole):
    """From least squares, which the marginal estimate is next to here: covariance times slope."""
    path = one_swing(tmp_path, objective="joint", check_half_step=False)  # which widens what the slope is seen by
    found = sx.identify(path)
    assert found.status == "converged"
    assert found.content["objective"] == "joint"
    total, z, small = log_density(path, found), jnp.asarray(found.checkpoint["z"]), 1e-3
    slope = np.array([float(total(z + d) - total(z - d)) / (2 * small) for d in small * np.eye(3)])
    sd = numbers(found, "sd") / numbers(found)  # of the logarithms
    expected = -np.array(found.content["correlation"]["matrix"]) @ (sd * slope)
    shift = np.log(numbers(found) / numbers(whole)) / sd
    assert np.max(np.abs(shift)) > 0.1
    np.testing.assert_allclose(shift, expected, atol=0.02)
    assert found.content["cost"] > whole.content["cost"]


@pytest.mark.usefixtures("usual_handlers")
def test_a_second_ctrl_c_ends_it_at_once_and_the_iterate_is_kept(tmp_path, whole, monkeypatch):
    monkeypatch.setattr(solve, "_KEEP_EVERY", 0.0)
    path, kept, lines = one_swing(tmp_path), tmp_path / "kept", []

    def report(line: sx.Progress) -> None:
        lines.append(line)
        if line.iteration == 2:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        sx.identify(path, report=report, keep=kept)
    assert [line.iteration for line in lines] == [0, 1, 2]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert [file.name for file in kept.iterdir()] == ["unfinished.npz"]
    again: list[sx.Progress] = []
    resumed = sx.identify(path, report=again.append, resume=kept)
    assert resumed.status == "converged"
    np.testing.assert_allclose(again[0].cost, lines[2].cost, rtol=1e-6)  # goes on where it was
    resumed.save(kept)
    assert not (kept / "unfinished.npz").exists()


@pytest.mark.usefixtures("usual_handlers")
def test_ctrl_c_while_it_compiles_begins_no_further_program(tmp_path, monkeypatch):
    begun = []

    def preparations(*_: Any) -> list[Any]:
        signal.raise_signal(signal.SIGINT)
        return [lambda: begun.append("program")]

    monkeypatch.setattr(solve, "preparations", preparations)
    monkeypatch.setattr(Setup, "start", lambda *_: begun.append("start"))
    with pytest.raises(KeyboardInterrupt):
        sx.identify(one_swing(tmp_path))
    assert begun == []


@pytest.mark.slow
def test_residual_form_is_the_same_estimate(tmp_path, whole):
    found = sx.identify(one_swing(tmp_path, form="residual"))
    assert found.status == "converged"
    assert found.content["form"] == "residual"
    shift = (numbers(found) - numbers(whole)) / numbers(whole, "sd")
    assert np.all(np.abs(shift) < 1e-3)
    np.testing.assert_allclose(found.content["cost"], whole.content["cost"], rtol=1e-4)
    np.testing.assert_allclose(numbers(found, "sd"), numbers(whole, "sd"), rtol=1e-2)


@pytest.mark.slow
def test_residual_form_is_interrupted(tmp_path, whole):
    def report(line: sx.Progress) -> None:
        if line.iteration == 2:
            raise KeyboardInterrupt

    path = one_swing(tmp_path, form="residual")
    try:
        stopped = sx.identify(path, report=report)
    except KeyboardInterrupt:  # it would end the whole run of tests
        pytest.fail("the interruption got through")
    assert stopped.status == "interrupted"
    resumed = sx.identify(path, resume=stopped.save(tmp_path / "estimate"))
    assert resumed.status == "converged"
    assert np.all(np.abs(numbers(resumed) - numbers(whole)) < 0.01 * numbers(whole, "sd"))


def test_residual_form_refuses_noise_on_the_joints_alone(tmp_path):
    noise = {"process_noise": {"kind": "joints", "density": 1e-4, "estimate": False}}
    with pytest.raises(sx.StudyError, match="kind: bodies"):
        sx.identify(one_swing(tmp_path, form="residual", **noise))


@pytest.mark.slow
def test_half_the_step_leads_where_an_identification_with_half_the_step_does(tmp_path, whole):
    unchecked = sx.identify(one_swing(tmp_path, check_half_step=False))
    np.testing.assert_allclose(numbers(unchecked), numbers(whole), rtol=1e-12)  # the check changes no estimate
    assert unchecked.content["checks"]["half_step"] is None
    other = sx.identify(one_swing(tmp_path, check_half_step=False, step=H / 2))
    half, sd = whole.content["checks"]["half_step"], numbers(unchecked, "sd")
    assert list(half) == list(STARTS)
    told = np.array([row["value"] for row in half.values()])
    shift = np.array([row["shift_in_sd"] for row in half.values()])
    np.testing.assert_allclose(shift, (told - numbers(whole)) / sd, rtol=1e-9)
    np.testing.assert_allclose(told / sd, numbers(other) / sd, rtol=0, atol=0.1 * np.max(np.abs(shift)))
    # to no step it is as far again, and that counts as an error, as far as a logarithm's is that of its number
    np.testing.assert_allclose(numbers(whole, "sd"), np.hypot(sd, 2 * shift * sd), rtol=0.02)


def test_every_number_has_an_interval(whole):
    for path in STARTS:
        found = whole.parameters[path]
        low, high = found["interval"]
        assert found["interval_kind"] == "normal"
        assert (high - low) / found["sd"] == pytest.approx(2 * TAIL, rel=0.01)


def test_the_band_of_a_simulation_is_that_of_its_parameters(whole):
    """Draws with the covariance, simulated anew, stay as near to the readings as the noise is: they fit."""
    band = whole.states["run/open_loop_sd/angle"]
    assert band.shape == (STEPS, 1)
    assert np.all(band > 0)
    # p + 2 numbers are known from so many readings: sqrt(6 / 256) of the noise, which draws vary by a sixth
    known = SD * np.sqrt((len(STARTS) + 3) / STEPS)
    assert 0.3 * known < np.sqrt(np.mean(band**2)) < 3 * known
