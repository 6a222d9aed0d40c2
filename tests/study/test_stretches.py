"""Recordings that nobody can foretell to their end, in stretches: which there are, and whose errors are counted."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from spookax.study.identifying import stretches
from spookax.study.identifying.predict import Prediction
from spookax.study.recordings.recording import Recording

TIME = 0.01 * np.arange(1001)
HEAD, OFF, EARLY = 0.3, 0.02, 5.0  # s; errors of a prediction after its head, and in it


def found(
    monkeypatch: pytest.MonkeyPatch, lost: float, keep: np.ndarray | None = None, noise: float = 1e-3
) -> tuple[dict[str, Any] | None, list[tuple[float, float]]]:
    """Of a swing of 1 rad whose band opens at a time; and first and last time of every stretch that was predicted."""
    keep = np.ones(TIME.size, dtype=bool) if keep is None else keep
    time, angle = TIME[keep], np.sin(3 * TIME[keep])[:, None]
    recording = Recording("run", Path("run.csv"), time, {}, {"angle": angle}, {}, {"angle": ("rad",)}, "")
    band = np.where(time[:, None] < lost, 0.0, 1.0)
    whole = Prediction(recording, recording, HEAD, {"angle": angle}, {"angle": band})
    looked: list[tuple[float, float]] = []

    def predicted(study: Any, found: Any, part: Recording, spec: Any, **options: Any) -> Prediction:
        assert options["fit_seconds"] == HEAD
        assert found.posterior is None
        assert spec.initial == {}
        looked.append((float(part.time[0]), float(part.time[-1])))
        off = np.where(part.time <= part.time[0] + HEAD, EARLY, OFF)[:, None]
        return Prediction(part, part, HEAD, {"angle": part.sensors["angle"] + off})

    monkeypatch.setattr(stretches, "predict_recording", predicted)
    content = {"noise": {"sensors": {}, "assumed": {"angle": [noise]}}, "step": 0.01, "friction_speed": 1e-3}
    estimate = SimpleNamespace(content=content, checkpoint={"z": np.zeros(1), "process": np.ones(())})
    spec = SimpleNamespace(model_copy=lambda update: SimpleNamespace(**update))
    return stretches.in_stretches(cast(Any, None), cast(Any, estimate), whole, cast(Any, spec)), looked


def test_stretches_are_half_as_long_as_is_foretold(monkeypatch):
    told, looked = found(monkeypatch, 5.0)
    assert told is not None
    assert (told["foretold"], told["seconds"], told["count"]) == (5.0, 2.5, 4)
    np.testing.assert_allclose(looked, [(2.5 * k, 2.5 * (k + 1)) for k in range(4)], rtol=0, atol=0.011)
    assert told["signals"]["angle"]["rms"] == pytest.approx(OFF)  # heads are not counted


def test_they_are_twice_as_long_as_their_heads_at_least_and_no_more_than_twelve(monkeypatch):
    told, looked = found(monkeypatch, 0.0)
    assert told is not None
    assert (told["seconds"], told["count"]) == (2 * HEAD, 12)
    assert (looked[0][0], looked[-1][1]) == (0.0, 10.0)


def test_what_is_foretold_to_its_end_has_none(monkeypatch):
    assert found(monkeypatch, 11.0) == (None, [])
    # nor what hardly moves beside its noise
    assert found(monkeypatch, 5.0, noise=0.5) == (None, [])


def test_no_stretch_starts_in_a_gap(monkeypatch):
    told, looked = found(monkeypatch, 5.0, keep=(TIME < 2.4) | (TIME > 4.9))
    assert told is not None
    assert told["count"] == len(looked) == 3
