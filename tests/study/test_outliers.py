"""Wild readings: at sight, and in identifications of the same recording with and without them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from study.test_identify import (
    SD,
    STEPS,
    SWING,
    TIME,
    angles,
    assert_near,
    entry,
    numbers,
    pendulum,
    study,
    write_csv,
)
from typer.testing import CliRunner

import spookax as sx
from spookax.cli.app import app
from spookax.cli.progress import result_text
from spookax.study.judging.trust import trust
from spookax.study.recordings.sight import off_neighbours

pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).parents[2]
SHARE = 0.05


@pytest.mark.parametrize("uneven", [False, True])
def test_gross_outliers_are_seen_at_sight(rng, uneven):
    """Also two in a row, equal ones three apart, every other one, and in a fast signal; and none beside them."""
    time = TIME + uneven * 0.3 * (TIME[1] - TIME[0]) * rng.uniform(-1, 1, STEPS)
    value = np.sin(20 * time) + SD * rng.normal(size=STEPS)
    wild = [5, 90, 91, 140, 143, 170, 172, 174, 200, STEPS - 1]
    value[wild] += [1.0, -1.0, 0.5, 99.0, 99.0, 0.5, 0.5, 0.5, 0.2, 0.3]
    assert list(np.flatnonzero(off_neighbours(time, value, SD) > 8.0)) == wild


def test_a_clean_signal_has_none_at_sight(rng):
    value = np.sin(20 * TIME) + SD * rng.normal(size=STEPS)
    value[::7] = np.nan
    assert off_neighbours(TIME, value, 0.1 * SD).max() < 5.0


def test_an_encoder_in_coarse_steps_has_none_at_sight():
    value = np.round(np.sin(3 * TIME) / 0.01) * 0.01
    assert off_neighbours(TIME, value, 0.01 / np.sqrt(12)).max() < 8.0


@pytest.fixture(scope="module")
def good() -> np.ndarray:
    return angles(pendulum(), SWING[0])[:-1] + SD * np.random.default_rng(1).normal(size=STEPS)


@pytest.fixture(scope="module")
def at() -> np.ndarray:
    return np.sort(np.random.default_rng(2).choice(STEPS, 12, replace=False))


def identified(folder: Path, value: np.ndarray, every: int = 1, **estimator: Any) -> sx.Estimate:
    write_csv(folder / "run.csv", value)
    return sx.identify(study(folder, pendulum(), [entry("run.csv", every=every)], **estimator))


@pytest.fixture(scope="module")
def found(tmp_path_factory, good, at) -> sx.Estimate:
    """Of a swing with twelve wild readings, the smallest of them eight standard deviations off."""
    value = good.copy()
    value[at] += np.random.default_rng(3).choice([-1, 1], 12) * SD * np.geomspace(8, 1e5, 12)
    return identified(tmp_path_factory.mktemp("wild"), value, outliers=SHARE)


def test_wild_readings_do_not_pull_an_estimate(found):
    assert found.status == "converged"
    assert_near(found)


def test_they_are_listed(found, good, at):
    listed = found.outliers
    assert sorted(round(r["time"] / TIME[1]) for r in listed) == list(at)
    assert [abs(r["off"]) for r in listed] == sorted((abs(r["off"]) for r in listed), reverse=True)
    for reading in listed:
        k = round(reading["time"] / TIME[1])
        assert reading["predicted"] == pytest.approx(good[k], abs=5 * SD)
        assert reading["value"] == found.states["run/measured/angle"][k, 0]
        assert reading["off"] == pytest.approx((reading["value"] - reading["predicted"]) / SD)
        assert reading["weight"] < 0.5
    assert found.content["outliers"]["sensors"] == {"angle": {"set_aside": 12, "of": STEPS}}


def test_and_told_of(found):
    assert f"angle: 12 of {STEPS} readings set aside as outliers, farthest off run at" in result_text(found)
    assert found.content["trust"]["grade"] == "good"
    assert f"12 of {STEPS} readings were set aside as outliers." in found.content["trust"]["reasons"]
    assert "outliers" not in [suspect["kind"] for suspect in found.content["diagnosis"]["suspects"]]
    assert found.content["runs"]["run"]["signals"]["angle"]["rms"] < 2 * SD


def test_and_drawn(tmp_path, found):
    page = sx.write_report(tmp_path, found.to_json(), found.states).read_text()
    assert "<caption>All of them, the farthest off first.</caption>" in page
    assert '"name":"set aside"' in page.replace(": ", ":")


def test_an_estimate_with_them_is_read_again(tmp_path, found):
    assert sx.load_estimate(found.save(tmp_path)).outliers == found.outliers


def test_without_wild_readings_the_estimate_is_the_plain_one(tmp_path, good):
    plain, robust = identified(tmp_path, good), identified(tmp_path, good, outliers=SHARE)
    assert plain.outliers == []
    shift = (numbers(robust) - numbers(plain)) / numbers(plain, "sd")
    assert np.max(np.abs(shift)) < 0.3
    np.testing.assert_allclose(numbers(robust, "sd"), numbers(plain, "sd"), rtol=0.1)


def test_more_outliers_than_expected_are_a_reason_for_care(found):
    content = found.to_json()
    content["outliers"] = content["outliers"] | {"share": 0.01}
    told = trust(content)
    assert told.grade == "fair"
    assert "More readings of angle were set aside than the study expects: 4.7 %, not 1 %." in told.reasons[0]


def test_readings_that_are_not_used_are_not_judged_but_spoil_no_error(tmp_path, good, at):
    value = good.copy()
    value[at] += 0.5
    found = identified(tmp_path, value, every=2, outliers=SHARE)
    assert found.content["outliers"]["sensors"] == {"angle": {"set_aside": int(np.sum(at % 2 == 0)), "of": STEPS // 2}}
    assert found.content["runs"]["run"]["signals"]["angle"]["rms_open_loop"] < 2 * SD
    assert not {"outliers", "gaps"} & {suspect["kind"] for suspect in found.content["diagnosis"]["suspects"]}
    assert_near(found)


@pytest.mark.slow
def test_the_residual_form_sets_the_same_readings_aside(tmp_path, found):
    value = found.states["run/measured/angle"][:, 0]
    other = identified(tmp_path, value, outliers=SHARE, form="residual")
    times = [{r["time"] for r in estimate.outliers} for estimate in (found, other)]
    assert times[0] == times[1]
    shift = (numbers(other) - numbers(found)) / numbers(found, "sd")
    assert np.max(np.abs(shift)) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["true", "prediction"])
def test_the_demo_with_two_per_cent_of_wild_readings(tmp_path, noise):
    """Through the shell: parameters, sensor noise, and which readings are listed."""
    truth = json.loads((ROOT / "demo/truth.json").read_text())
    rng = np.random.default_rng(4)
    header, *lines = (ROOT / "demo/train.csv").read_text().splitlines()
    table = np.array([line.split(",") for line in lines], dtype=float)
    wild = rng.random((len(table), 2)) < 0.02
    table[:, 2:] += wild * rng.choice([-1, 1], wild.shape) * 10 ** rng.uniform(-2, 1, wild.shape)
    np.savetxt(tmp_path / "train.csv", table, fmt="%.6f", delimiter=",", header=header, comments="")
    (tmp_path / "furuta.yaml").write_text((ROOT / "demo/furuta.yaml").read_text())
    content = yaml.safe_load((ROOT / "demo/furuta_study.yaml").read_text())
    content["estimator"]["process_noise"]["estimate"] = yaml.safe_load(noise)
    content["estimator"] |= {"outliers": 0.02, "sensor_noise": {"estimate": True}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(content))
    done = CliRunner().invoke(
        app, ["identify", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "out"), "--quiet"]
    )
    assert done.exit_code == 0, done.output
    found = sx.load_estimate(tmp_path / "out")
    for path, value in truth["parameters"].items():
        assert abs(found.value(path) - value) < 3 * found.parameters[path]["sd"], path
    sd = np.hypot(truth["noise"]["sensor_sd"], truth["noise"]["quantum"] / np.sqrt(12))
    for (level,) in found.content["noise"]["sensors"].values():
        assert level == pytest.approx(sd, rel=0.15)
    columns = {"arm_encoder": 0, "pend_encoder": 1}
    listed = np.zeros_like(wild)
    for reading in found.outliers:
        listed[np.argmin(np.abs(table[:, 0] - reading["time"])), columns[reading["sensor"]]] = True
    assert np.mean(listed[wild]) > 0.95
    assert np.mean(listed[~wild]) < 0.005
    assert f"{listed.sum()} of {wild.size} readings were set aside as outliers." in done.output
