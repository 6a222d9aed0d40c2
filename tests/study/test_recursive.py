"""`filter` and `smooth` of a study: recordings that a rollout made, written to files and read again."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
import yaml
from cli.scenes import refused, run
from study.test_identify import DRIVE, GAIN, STARTS, STEPS, SWING, TRUTH, H, angles, entry, pendulum, write_csv

import spookax as sx
import spookax.study.tracking.filter_recordings as module
from spookax._results import STEP_RESULTS
from spookax.scene.paths import numeric_paths
from spookax.study.tracking.filter_recordings import Tracking, filter_recordings, smooth_recordings

pytestmark = [pytest.mark.timeout(400), pytest.mark.quick]

SD, TORQUE = 1e-3, 0.01  # of a reading [rad], and of a torque on the pin that nobody knows of [N m sqrt(s)]
ESTIMATOR = {"process_noise": {"density": TORQUE, "estimate": False}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recordings of a pendulum, the second with another zero of its sensor and one reading that is wrong."""
    folder = tmp_path_factory.mktemp("recursive")
    rng = np.random.default_rng(4)
    (folder / "scene.yaml").write_text(yaml.safe_dump(pendulum()))
    for name, start, offset in (("first", SWING[0], 0.0), ("second", SWING[1], 0.05)):
        push = TORQUE / np.sqrt(H) / TRUTH[GAIN] * rng.normal(size=STEPS)
        angle = angles(pendulum(), start, DRIVE + push)[:-1] + offset
        np.save(folder / f"{name}.npy", angle)
        angle = angle + SD * rng.normal(size=STEPS)
        if offset:
            angle[150] += 0.1
        write_csv(folder / f"{name}.csv", angle)
    return folder


def study(folder: Path, name: str = "study", **recursive) -> Path:
    text = {"spookax": 1, "scene": "scene.yaml", "parameters": STARTS, "estimator": ESTIMATOR, "recursive": recursive}
    text["recordings"] = [entry("first.csv"), entry("second.csv")]
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(text))
    return path


@pytest.fixture(scope="module")
def filtered(folder: Path) -> Tracking:
    runs = []
    found = filter_recordings(study(folder, gate=1e-6), report=runs.append)
    assert runs == ["first", "second"]
    return found


@pytest.fixture(scope="module")
def smoothed(folder: Path) -> Tracking:
    return smooth_recordings(study(folder, gate=1e-6))


def test_parameters_are_found_on_the_way(filtered: Tracking):
    for path, truth in TRUTH.items():
        p = filtered.parameters[path]
        assert abs(p["value"] - truth) < 3.5 * p["sd"], path
        assert p["sd"] < 0.2 * truth
        over_time = [filtered.states[f"{name}/parameter_sd/{path}"] for name in ("first", "second")]
        # the second recording begins with what the first has taught
        assert over_time[1][0] <= over_time[0][-1] * (1 + 1e-9)
        assert over_time[1][-1] < over_time[0][-1]


def test_states_lie_in_their_bands(filtered: Tracking, smoothed: Tracking, folder: Path):
    for name, offset in (("first", 0.0), ("second", 0.05)):
        truth = np.load(folder / f"{name}.npy") - offset
        error = {}
        for found in (filtered, smoothed):
            states = found.states
            e = states[f"{name}/position/pin"][: len(truth)] - truth
            error[found.content["kind"]] = np.sqrt(np.mean(e[20:] ** 2))
            inside = np.abs(e[20:]) < 2.5 * states[f"{name}/position_sd/pin"][20 : len(e)]
            assert np.mean(inside) > 0.85
        assert error["smoothed"] < error["filtered"]  # the zero of the sensor has to be found, too
        assert error["smoothed"] < 10 * SD
        assert np.all(smoothed.states[f"{name}/position_sd/pin"] <= filtered.states[f"{name}/position_sd/pin"] + 1e-12)


def test_innovations_tell_the_fault(filtered: Tracking):
    first, second = (filtered.content["runs"][name] for name in ("first", "second"))
    assert first["faults"] == []
    assert first["refused"] == 0
    assert np.allclose(second["faults"], [150 * H])
    assert second["refused"] == 1
    assert 0.7 < first["nis"] < 1.3
    assert first["signals"]["angle"]["rms_ahead"] < 3 * SD


@pytest.mark.slow
def test_joint_filter_is_near_the_batch_estimate(folder: Path):
    """One pass against the converged joint problem with the same noise, linearised first where that ends."""
    text = yaml.safe_load(study(folder).read_text())
    text["recordings"] = text["recordings"][:1]
    (folder / "alone.yaml").write_text(yaml.safe_dump(text))
    batch = sx.identify(folder / "alone.yaml")
    for path in TRUTH:
        text["parameters"][path]["start"] = batch.value(path)
    (folder / "near.yaml").write_text(yaml.safe_dump(text))
    near = filter_recordings(folder / "near.yaml")
    for path in TRUTH:
        apart = abs(near.parameters[path]["value"] - batch.value(path))
        assert apart < batch.parameters[path]["sd"], path
        np.testing.assert_allclose(near.parameters[path]["sd"], batch.parameters[path]["sd"], rtol=0.2)
    held = filter_recordings(folder / "alone.yaml", estimate=batch.save(folder / "estimate"))
    assert held.content["settings"]["parameters"] == "held"
    for path in TRUTH:
        assert held.parameters[path]["value"] == pytest.approx(batch.value(path))
    assert held.content["log_likelihood"] > near.content["log_likelihood"]


@pytest.mark.slow  # the other rules compile other programs
@pytest.mark.parametrize("settings", [{"iterations": 2}, {"rule": "unscented"}, {"rule": "ensemble", "members": 300}])
def test_other_rules_find_the_same(folder: Path, settings: dict):
    found = filter_recordings(study(folder, "other", parameter_sd=0.3, gate=None, **settings))
    for path, truth in TRUTH.items():
        assert found.parameters[path]["value"] == pytest.approx(truth, rel=0.15), path


@pytest.mark.slow  # its own program
def test_the_gate_reaches_an_ensemble(folder: Path):
    found = filter_recordings(study(folder, "gated", rule="ensemble", members=300, parameter_sd=0.3, gate=1e-6))
    assert [found.content["runs"][name]["refused"] for name in ("first", "second")] == [0, 1]


def test_shell(folder: Path, tmp_path: Path, filtered: Tracking):
    out = tmp_path / "out"
    result = run("smooth", study(folder, gate=1e-6), "--out", out)
    assert result.exit_code == 0, result.output
    assert {file.name for file in out.iterdir()} == {"tracking.json", "states.npz", "scene.yaml", "tracking.html"}
    content = json.loads((out / "tracking.json").read_text())
    assert content["kind"] == "smoothed"
    assert content["status"] == "successful"
    assert "recording second" in result.stderr
    assert "1 steps out of the ordinary" in result.stdout
    page = (out / "tracking.html").read_text(encoding="utf-8")
    for text in ("joints.pin.friction.viscous", "angle: innovation", "innovations squared", "pin: rate"):
        assert text in page
    scene = sx.read_scene(out / "scene.yaml")
    assert numeric_paths(scene)[GAIN] == pytest.approx(content["parameters"][GAIN]["value"])
    assert run("view", out, "--html", tmp_path / "motion.html").exit_code == 0


def test_steps_that_were_not_solved_are_told(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In the result and by the shell, as an identification does."""
    plain = module.by_filter

    def stubborn(*args):
        found = plain(*args)
        wrong = np.arange(len(found.factor)) == 3
        limit = STEP_RESULTS.pivot_limit
        return found._replace(result=jax.tree.map(lambda a, b: np.where(wrong, b, a), found.result, limit))

    monkeypatch.setattr(module, "by_filter", stubborn)
    out = tmp_path / "out"
    result = run("filter", study(folder, gate=1e-6), "--out", out)
    assert result.exit_code == 1
    told = f"Recording first: 1 of {STEPS} steps were not solved, the first at {3 * H:g} s. The complementarity problem"
    assert told in result.stderr
    content = json.loads((out / "tracking.json").read_text())
    assert content["status"] == "step_failed"
    assert told in content["message"]
    assert "Recording second" in content["runs"]["second"]["unsolved"]


def test_mistakes_are_named(folder: Path, tmp_path: Path):
    path = study(folder, "bad", drift={"motors.drive.gian": 0.1})
    message = refused("filter", path, "--out", tmp_path)
    assert "recursive.drift.motors.drive.gian" in message
    assert "motors.drive.gain" in message
    path = study(folder, "ensemble", rule="ensemble")
    assert "Write extended or unscented" in refused("smooth", path, "--out", tmp_path)
    assert "there is no estimate" in refused("filter", study(folder), "--estimate", tmp_path, "--out", tmp_path)
