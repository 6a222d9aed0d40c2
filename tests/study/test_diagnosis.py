"""Faults of recordings at sight, and suspicions about an identification of one swing."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from spookax.study.judging.diagnosis import _correlations, _delay_cure, diagnosis
from spookax.study.judging.signatures import Key
from spookax.study.recordings.blemishes import blemishes
from spookax.study.recordings.recording import Recording

TIME = 5e-3 * np.arange(1000)


def recording(values: np.ndarray, keep: np.ndarray | None = None) -> Recording:
    keep = np.ones(len(TIME), dtype=bool) if keep is None else keep
    u = np.sign(np.sin(7 * TIME))
    return Recording(
        "run", Path("run.csv"), TIME[keep], {"drive": u[keep]}, {"angle": values[keep, None]}, {"drive": "V"}, {}, ""
    )


def swing(rng: np.random.Generator) -> np.ndarray:
    return np.sin(3 * TIME) * np.exp(-0.1 * TIME) + 1e-3 * rng.standard_normal(TIME.size)


def kinds(found: Recording) -> list[str]:
    return [b.kind for b in blemishes(found)]


def test_a_clean_recording_has_no_blemish(rng):
    assert kinds(recording(swing(rng))) == []


def test_nor_has_one_in_steps_of_an_encoder_that_comes_to_rest():
    fall = np.maximum(1 - 0.4 * TIME, 0) ** 2
    assert kinds(recording(np.round(fall / 1e-2) * 1e-2)) == []


def test_nor_has_a_slow_sensor_beside_a_fast_one(rng):
    values = np.where(np.arange(TIME.size) % 10, np.nan, swing(rng))
    assert kinds(recording(values)) == []


def test_missing_lines_are_counted(rng):
    keep = np.ones(TIME.size, dtype=bool)
    keep[300:340] = False
    (found,) = blemishes(recording(swing(rng), keep))
    assert found.kind == "gaps"
    assert found.times == pytest.approx(40)
    assert "0.205 s at 1.495 s" in found.text


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_a_channel_that_is_clipped(rng, noise):
    values = np.sin(5 * TIME) + noise * rng.standard_normal(TIME.size)
    assert set(kinds(recording(np.clip(values, -0.8, 0.8)))) == {"saturation"}


def test_outliers_are_placed(rng):
    values = swing(rng)
    values[[200, 611]] += (0.1, -0.2)
    (found,) = blemishes(recording(values))
    assert found.kind == "outliers"
    assert "at 1, 3.055 s" in found.text


def test_white_innovations_are_free_of_inputs_and_delayed_ones_are_not(rng):
    u, e = rng.standard_normal((2, 1000))
    told = _correlations(TIME, {"drive": u}, {"angle": e[:, None]})["sensors"]["angle"]
    assert told["p"] > 0.01
    assert told["free_of_inputs"]
    late = e.copy()
    late[7:] += u[:-7]
    told = _correlations(TIME, {"drive": u}, {"angle": late[:, None]})["sensors"]["angle"]
    assert not told["free_of_inputs"]
    assert np.argmax(np.abs(told["cross"]["drive"])) - 40 == 7
    walk = np.convolve(e, np.ones(3), "same")
    assert _correlations(TIME, {}, {"angle": walk[:, None]})["sensors"]["angle"]["p"] < 1e-6


def test_other_names_keep_their_blemishes(rng):
    values = swing(rng)
    values[[200, 611]] += (0.1, -0.2)
    one = recording(values)
    two = dataclasses.replace(one, sensors={"left": one.sensors["angle"], "right": swing(rng)[:, None]})
    assert [b.where for b in blemishes(two)] == ["left"]


def test_innovations_that_are_none_are_not_called_white(rng):
    one = recording(swing(rng))
    setup = cast(Any, SimpleNamespace(recordings=[one]))
    nothing = {"run/innovation/angle": np.full((len(TIME), 1), np.nan)}
    assert diagnosis(setup, nothing, [])["sentence"] == "There are no innovations to test."
    noise = {"run/innovation/angle": rng.standard_normal((len(TIME), 1))}
    assert diagnosis(setup, noise, [])["sentence"] == "Innovations are white."


@pytest.mark.parametrize(
    ("kind", "given", "late", "before", "cure"),
    [
        (
            "motor",
            0.0,
            0.0234,
            0.0,
            "Write `motors.drive.delay: {start: 0.023}` under `parameters`, or shift the column.",
        ),
        (
            "motor",
            0.05,
            -0.03,
            0.0,
            "Write `motors.drive.delay: {start: 0.02}` under `parameters`, or shift the column.",
        ),
        ("motor", 0.0, -0.0295, 0.0, "Shift the column in time: `{column: NAME, shift: -0.03}`."),
        ("motor", 0.0, -0.0305, 0.0, "Shift the column in time: `{column: NAME, shift: -0.03}`."),
        ("motor", 0.0, -0.01, -0.02, "Shift the column in time: `{column: NAME, shift: -0.03}`."),
        # a delay that is given stays: all of it is the column's
        ("motor", 0.02, -0.05, 0.0, "Shift the column in time: `{column: NAME, shift: -0.05}`."),
        ("sensor", 0.0, -0.02, 0.01, "Shift the column in time: `{column: NAME, shift: 0.03}`."),
        (
            "motor",
            0.0,
            -0.003,
            0.0,
            "Shift the column in time: `{column: NAME, shift: -0.01}`. "
            "That is 0.007 s too far: write `motors.drive.delay: {start: 0.007}`, too.",
        ),
        (
            "sensor",
            0.002,
            -0.024,
            0.0,
            "Shift the column in time: `{column: NAME, shift: 0.03}`. "
            "That is 0.006 s too far: write `sensors.angle.delay: {start: 0.008}`, too.",
        ),
    ],
)
def test_the_cure_of_a_delay_is_a_delay_or_a_column_that_is_shifted(kind, given, late, before, cure):
    """At 10 ms between samples, of a column that is shifted already or not."""
    name = "drive" if kind == "motor" else "angle"
    system = SimpleNamespace(motors=[SimpleNamespace(name="drive")], sensor_index=lambda _: 0)
    run = SimpleNamespace(time=0.01 * np.arange(20), shifts={name: before} if before else {})
    setup = cast(Any, SimpleNamespace(system=system, recordings=[run]))
    params = cast(Any, SimpleNamespace(delay=np.array([given]), age=np.array([given])))
    key = Key("delay", name, "1" if kind == "motor" else "")
    assert _delay_cure(setup, params, key, late) == cure
