"""Other signs and units are believed where a rough fit with them explains the readings."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from spookax.estimation import Settings
from spookax.study.judging import density, misread
from spookax.study.recordings.recording import Recording

READINGS = 50
WELL, BADLY = 0.01, 0.9  # errors of what was left out, over how much it moves


def recording(values: float = 1.0) -> Recording:
    return cast(Any, SimpleNamespace)(
        inputs={}, sensors={"angle": np.full((READINGS, 1), values)}, sensor_units={"angle": ("rad",)}
    )


def found(
    monkeypatch: pytest.MonkeyPatch, cost_of_a_reading: float, right: float, units: bool = True
) -> misread.Misread | None:
    """What is found where fits to readings times `right` predict well and cost so much, and all others predict badly
    at a cost of 2.
    """

    def set_up(study: Any, scene: Any, recordings: list[Any]) -> Any:
        (factor,) = {float(v) for r in recordings for v in r.sensors["angle"][:, 0]}
        samples = [SimpleNamespace(weight=np.ones((READINGS, 1, 1)))]
        return SimpleNamespace(factor=factor, problem=SimpleNamespace(samples=samples, factor=factor))

    class Estimator:
        def __init__(self, problem: Any, settings: Settings, say: Any):
            self.factor = problem.factor

        def run(self, start: Any, stages: Any) -> Any:
            return SimpleNamespace(cost=READINGS * (cost_of_a_reading if self.factor == right else 2.0))

    def without_the_end(setup: Any) -> Any:
        return SimpleNamespace(problem=setup.problem, start=lambda: None, stages=[None]), ()

    def candidate(setup: Any, left: Any, fit: Any) -> Any:
        return SimpleNamespace(score=np.full(len(density.PREFIXES), WELL if setup.factor == right else BADLY))

    monkeypatch.setattr(misread, "set_up", set_up)
    monkeypatch.setattr(misread, "Estimator", Estimator)
    monkeypatch.setattr(misread, "_times", lambda r, channel, factor: recording(factor))
    for name, function in (("without_the_end", without_the_end), ("candidate", candidate)):
        monkeypatch.setattr(misread.density, name, function)
    model = SimpleNamespace(shared=SimpleNamespace(paths=()))
    setup = SimpleNamespace(recordings=[recording()], scene=None, model=model, system=SimpleNamespace(motors=[]))
    return misread.misread(cast(Any, None), cast(Any, setup), Settings(), BADLY, lambda *_: None, units)


@pytest.mark.parametrize(("right", "told"), [(-1.0, True), (np.pi / 180, False)])
def test_signs_are_tried_alone_where_a_fit_is_not_hopeless(right, told, monkeypatch):
    assert (found(monkeypatch, 5.0, right, units=False) is not None) == told


@pytest.mark.parametrize("right", [-1.0, np.pi / 180])
def test_what_explains_the_readings_and_predicts_is_believed(right, monkeypatch):
    told = found(monkeypatch, 5.0, right)
    assert told is not None
    assert (told.channel, told.factor) == ("angle", pytest.approx(right))
    assert told.ratio == pytest.approx(WELL / BADLY)


@pytest.mark.parametrize("right", [-1.0, np.pi / 180])
def test_a_fit_that_has_not_left_the_readings_is_not(right, monkeypatch):
    """It began along all readings, those that were left out included: that it meets them tells nothing."""
    assert found(monkeypatch, 1e3, right) is None


def test_nor_is_one_that_predicts_no_better(monkeypatch):
    assert found(monkeypatch, 1.0, right=7.0) is None


def test_a_gain_that_is_sought_finds_the_sign_of_its_input_but_no_unit():
    def tried(*paths: str) -> list[tuple[str, float]]:
        run = SimpleNamespace(inputs={"drive": np.zeros(3)}, sensor_units={"angle": ("rad",)})
        model = SimpleNamespace(shared=SimpleNamespace(paths=paths))
        system = SimpleNamespace(motors=[SimpleNamespace(name="drive"), SimpleNamespace(name="idle")])
        setup = SimpleNamespace(recordings=[run], model=model, system=system)
        return [
            (channel, factor) for channel, factor in misread._mistakes(cast(Any, setup), True) if channel != "angle"
        ]

    assert tried("motors.drive.gain") == [("drive", 1e3), ("drive", 1e-3)]
    assert tried("motors.drive.bias") == [("drive", -1.0), ("drive", 1e3), ("drive", 1e-3)]
