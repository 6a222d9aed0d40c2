"""Predictions of recordings: their errors, what an estimate in a folder predicts, and comparisons."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from cli.scenes import SLIDER, refused, run

import spookax as sx
from spookax.report import write_report
from spookax.study import read_recordings
from spookax.study.comparing.forecast import choose, forecast, load_forecaster
from spookax.study.identifying import predict
from spookax.study.identifying.estimate import Estimate
from spookax.study.identifying.predict import errors

H, MASS = 0.01, "bodies.cart.mass"
ENTRY = {"time": "t", "inputs": {"drive": "u"}, "sensors": {"scale": "x"}}


def pushed(seconds: float = 2.0, mass: float = 2.0) -> str:
    """A recording of the cart at rest, pushed to and fro: the position that leap-frog gives."""
    steps = round(seconds / H)
    u = np.where(np.arange(steps + 1) % 80 < 40, 1.0, -1.0)
    kick = np.concatenate([[u[0]], (u[:-1] + u[1:])[: steps - 1] / 2])  # means over t_k - h/2 to t_k + h/2
    x, v, found = 0.0, -0.5 * H * kick[0] * 4.0 / mass, [0.0]
    for push in kick:
        v += H * push * 4.0 / mass
        x += H * v
        found.append(x)
    lines = [f"{H * k:.2f},{u[k]:g},{1000 * (0.5 + found[k]):.9f}" for k in range(steps + 1)]
    return "t [s],u [V],x [mm]\n" + "\n".join(lines) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study with recordings `train` and, held back, `test` and windows of `late`, all filled up to as many steps."""
    late = {"file": "late.csv", "windows": [[0, 2], [2, 4]]}
    content: dict[str, Any] = {"spookax": 1, "scene": "slider.yaml", "defaults": ENTRY}
    content |= {"recordings": [{"file": "train.csv"}], "validate": [{"file": "test.csv"}, late]}
    content |= {"parameters": {MASS: {"start": 1.0}}, "estimator": {"process_noise": {"estimate": False}}}
    (tmp_path / "slider.yaml").write_text(SLIDER)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(content))
    for name, seconds in (("train", 2.0), ("test", 1.95), ("late", 4.0)):
        (tmp_path / f"{name}.csv").write_text(pushed(seconds))
    return tmp_path


def made(folder: Path, mass: float, name: str = "out", process: float = 1.0) -> Path:
    """The folder of an estimate with this mass, and a factor on the process noise."""
    train = read_recordings(sx.load_study(folder / "study.yaml"))[0]
    content: dict[str, Any] = {
        "study": "study",
        "study_file": str(folder / "study.yaml"),
        "step": H,
        "friction_speed": 0.01,
        "parameters": {MASS: {"value": mass, "sd": 0.1, "unit": "kg", "start": 1.0}},
        "runs": {"train": {"sha256": train.sha256, "duration": 2.0}},
        "noise": {"sensors": {"scale": [1e-4]}},
        "checks": {"gauge": []},
        "hashes": {"slider.yaml": hashlib.sha256((folder / "slider.yaml").read_bytes()).hexdigest()},
    }
    checkpoint = {"z": np.log([mass]), "process": np.array(process), "sensor": np.array([1e-4])}
    states = {"train/time": train.time}
    return Estimate("converged", "", content, states, None, checkpoint).save(folder / name)


def test_errors_of_a_prediction_by_hand():
    y = np.array([[0.0], [np.nan], [2.0], [4.0]])
    found = errors(y, y + 1.0)
    moves = np.sqrt(8 / 3)  # about the mean of 2
    assert found == pytest.approx({"rms": 1.0, "nrmse": 1 / moves, "fit": 100 * (1 - 1 / moves)})
    assert errors(y, np.full_like(y, 2.0))["fit"] == pytest.approx(0.0)
    assert errors(y, y) == {"rms": 0.0, "nrmse": 0.0, "fit": 100.0}


def test_each_column_moves_about_its_own_mean():
    y = np.array([[0.0, 100.0], [2.0, 102.0]])
    assert errors(y, y + 1.0)["nrmse"] == pytest.approx(1.0)


def test_a_simulation_that_diverged_is_no_small_error():
    y = np.array([[0.0], [1.0], [2.0]])
    assert not np.isfinite(errors(y, np.array([[0.0], [1.0], [np.nan]]))["rms"])
    assert not errors(y, np.array([[0.0], [1.0], [1e300]]))["nrmse"] < 1


def test_a_held_back_recording_is_checked_like_the_others(folder: Path):
    file = folder / "study.yaml"
    good = file.read_text()
    file.write_text(good.replace("file: test.csv", "file: tset.csv"))
    assert "study.yaml" in (said := refused("check", file))
    assert "validate" in said
    assert "test.csv" in said
    file.write_text(good.replace("file: test.csv", "file: test.csv\n  sensors: {scales: x}"))
    assert "the scene has no sensor 'scales'" in refused("check", file)
    file.write_text(good.replace("validate:", "validat:"))
    assert "validat: unknown key. Did you mean `validate`?" in refused("check", file)
    file.write_text(good.replace("file: test.csv", "file: test.csv\n  evry: 2"))
    assert "validate[0].evry: unknown key. Did you mean `every`?" in refused("check", file)
    file.write_text(good.replace("file: test.csv", "file: test.csv\n  name: train"))
    assert "the name 'train' is taken by recordings[0]" in refused("check", file)
    file.write_text(good)
    (folder / "test.csv").write_text(pushed().replace("u [V]", "u [A]"))
    assert "the input 'drive' is in A" in refused("check", file)
    (folder / "test.csv").write_text(pushed())
    assert "to validate, late_2: 2 s" in run("check", file).stdout


def test_recordings_are_chosen_by_name(folder: Path):
    study = sx.load_study(folder / "study.yaml")
    scene = sx.read_scene(study.scene_path)

    def names(*named: str) -> list[str]:
        return [recording.name for _, recording in choose(study, scene, named)]

    assert names() == ["test", "late_1", "late_2"]
    assert names("train", "late") == ["train", "late_1", "late_2"]
    with pytest.raises(sx.FileError, match=r"no recording 'tests'.*`test`"):
        names("tests")
    none = study.model_copy(update={"validation": []})
    assert [spec.name for spec, _ in choose(none, scene)] == ["train"]


def test_what_an_estimate_does_not_belong_to_is_refused(folder: Path):
    out = made(folder, 2.0)
    (folder / "slider.yaml").write_text(SLIDER.replace("gain: 4.0", "gain: 5.0"))
    with pytest.raises(sx.FileError, match=r"slider\.yaml: has changed since"):
        load_forecaster(out)
    (folder / "slider.yaml").write_text(SLIDER)
    text = (folder / "study.yaml").read_text()
    (folder / "study.yaml").write_text(text.replace(f"{MASS}:", f"{MASS}:\n    transform: identity"))
    with pytest.raises(sx.FileError, match="are not those of the identification"):
        load_forecaster(out)
    (folder / "study.yaml").rename(folder / "moved.yaml")
    with pytest.raises(sx.FileError, match=r"its study is not there.*--study"):
        load_forecaster(out)


def test_recordings_are_predicted_and_estimates_compared(folder: Path):
    right, wrong = made(folder, 2.0), made(folder, 3.0, "wrong")
    done = run("predict", right, "--recording", "test", "--recording", "train", "--out", folder / "p")
    assert done.exit_code == 0, done.output
    runs = json.loads((folder / "p/prediction.json").read_text())["runs"]
    assert runs["train"]["seen"]
    assert not runs["test"]["seen"]
    signal = runs["test"]["signals"]["scale"]
    assert signal["rms"] < 1e-6  # the recording is the simulator's own
    assert signal["fit"] > 99.99
    assert "train: took part in the identification" in done.stdout
    header, *rows = (folder / "p/test.csv").read_text().splitlines()
    assert header == "t [s],sensors.scale.measured [m],sensors.scale.predicted [m]"
    cells = np.array([row.split(",") for row in rows], dtype=float)
    np.testing.assert_allclose(cells[:, 2], cells[:, 1], atol=1e-5)
    assert "test, scale: measured and predicted" in (folder / "p/prediction.html").read_text(encoding="utf-8")

    done = run("compare", right, wrong, "--quiet", "--out", folder / "table.json")
    assert done.exit_code == 0, done.output
    table = json.loads((folder / "table.json").read_text())["runs"]["test"]["signals"]["scale"]
    scene = "slider as written"  # it has the right mass, too
    assert table["best"] in (str(right), scene)
    for baseline in ("equation error, study", "simulation error, study"):
        assert table["rms"][baseline] < 0.1 * table["rms"][str(wrong)]
    assert table["rms"][str(wrong)] > 1e-2
    assert abs(table["rms"][scene] - table["rms"][str(right)]) < 1e-6
    assert f"{table['best']}*" in done.stdout


@pytest.mark.parametrize("factor", [1e-4, 1e3])
def test_the_first_state_is_found_with_process_noise_at_first(factor, folder: Path, monkeypatch):
    """With less than is usual trajectories do not follow the readings; in the end it is the estimate's, and for another
    state a thousandth of that."""
    levels, fit = [], predict.fit

    def watched(problem: Any, stages: Any, *rest: Any) -> Any:
        levels.append([float(np.asarray(stage.noise.process)) for stage in stages])
        return fit(problem, stages, *rest)

    monkeypatch.setattr(predict, "fit", watched)
    off = forecast(made(folder, 2.0, process=factor), recordings=["test"]).content["runs"]["test"]["signals"]["scale"]
    assert levels == [[max(1.0, factor), factor], pytest.approx([factor, factor / 10, factor / 100, factor / 1000])]
    assert off["rms"] < 1e-6


def test_a_simulation_starts_where_it_meets_the_first_readings(folder: Path, monkeypatch):
    """Whatever process noise an estimate has: with a wrong mass that explains them in part, and the state less."""

    def rms(factor: float) -> float:
        estimate = made(folder, 3.0, f"noise{factor:g}", factor)
        return forecast(estimate, recordings=["test"]).content["runs"]["test"]["signals"]["scale"]["rms"]

    assert rms(1e4) == pytest.approx(rms(1e-2), rel=1e-3)
    monkeypatch.setattr(predict, "_FALL", ())
    assert abs(rms(1e4) - rms(1e-2)) > 0.01 * rms(1e-2)


@pytest.mark.slow  # the filter is compiled
def test_readings_are_predicted_some_steps_ahead(folder: Path):
    done = run("predict", made(folder, 2.0), "--recording", "test", "--steps", 10, "--out", folder / "p")
    assert done.exit_code == 0, done.output
    signal = json.loads((folder / "p/prediction.json").read_text())["runs"]["test"]["signals"]["scale"]
    assert signal["rms_ahead"] < 1e-6
    assert "10 steps ahead, 0.1 s" in done.stdout
    header, *rows = (folder / "p/test.csv").read_text().splitlines()
    assert header.endswith(",sensors.scale.ahead [m]")
    assert rows[9].endswith(",")  # nothing is known 10 steps before
    cells = np.array([row.split(",") for row in rows[10:]], dtype=float)
    np.testing.assert_allclose(cells[:, 3], cells[:, 1], atol=1e-5)
    assert "Errors 10 steps ahead" in (folder / "p/prediction.html").read_text(encoding="utf-8")

    wrong = made(folder, 3.0, "wrong", process=1e5)
    off = forecast(wrong, recordings=["test"], steps=8).content["runs"]["test"]["signals"]["scale"]
    missing = (4.0 / 2.0 - 4.0 / 3.0) * (8 * H) ** 2 / 2  # of the acceleration, over 8 steps; far less than over all
    assert 0.7 * missing < off["rms_ahead"] < 1.3 * missing < 0.1 * off["rms"]


def test_the_report_shows_what_was_held_back(tmp_path: Path):
    signal = {"unit": "rad", "rms": 0.02, "nrmse": 0.0123, "fit": 98.77, "rms_held": 1.2}
    seen = {"late": {"horizon": 10.0, "head": 0.3, "signals": {"encoder": signal}}}
    time = np.linspace(0.0, 1.0, 5)
    states = {"late/time": time, "late/measured/encoder": time, "late/open_loop/encoder": time + 0.1}
    page = write_report(tmp_path, {"status": "converged", "validation": seen}, states).read_text(encoding="utf-8")
    assert '<a href="#validation">' in page
    assert "1.23 %" in page
    assert "late, encoder: measured and predicted" in page
    assert "validation-0-0" in page
    assert 'href="#validation"' not in write_report(tmp_path, {"status": "converged"}, {}).read_text(encoding="utf-8")
