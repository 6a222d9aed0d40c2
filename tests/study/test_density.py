"""The density of the process noise that predicts best: how it is chosen, and that it finds what evidence does not."""

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import faulty_recordings
from spookax._results import ESTIMATE_RESULTS
from spookax.models import Multibody
from spookax.study.identifying import solve
from spookax.study.judging import density


def candidates(*scores):
    return [SimpleNamespace(score=np.array(score), error={}) for score in scores]


def test_the_best_over_the_longest_time_that_is_predicted_at_all():
    assert density.best(candidates([0.3, 0.01], [0.1, 0.02], [0.2, 0.03])) == 1
    # nobody predicts all that was left out: the first half decides
    assert density.best(candidates([0.9, 0.3], [0.8, 0.2], [0.7, 0.4])) == 1
    # nor that: the evidence stands
    assert density.best(candidates([0.9, 0.6], [0.8, 0.7])) == 0
    assert not density.told(candidates([0.9, 0.6], [0.8, 0.7]))


def test_where_the_end_is_out_of_reach_all_shorter_times_count():
    """An arm that only its controller holds: after half the time errors are what the motion makes of them."""
    arm = candidates([2.20, 0.062, 0.0038, 0.0025, 0.0011], [1.41, 0.052, 0.0079, 0.0055, 0.0035])
    assert density.best(arm) == 0
    a_little, clearly = [2.2, 0.052, 0.0043, 0.0021, 0.0009], [2.2, 0.03, 0.002, 0.001, 0.0005]
    assert density.best([*arm[:1], *candidates(a_little)]) == 0
    assert density.best([*arm[:1], *candidates(clearly)]) == 1
    # the end is predicted: it decides alone
    assert density.best(candidates([0.3, 0.01, 0.001], [0.2, 0.02, 0.002])) == 1


def test_of_those_that_are_as_good_the_one_with_the_most_noise():
    assert density.best(candidates([0.3], [0.1005], [0.1], [0.1001])) == 1


def tried(score, process, sensor):
    fit = SimpleNamespace(noise=SimpleNamespace(sensor=np.array([sensor])))
    return density.Candidate(np.array(process), fit, {"q": 0.1}, np.array([score]))  # pyright: ignore[reportArgumentType]


def test_fits_that_predict_alike_are_enough_unless_they_are_the_same_fit():
    setup = SimpleNamespace(sensor_sd=np.array([1e-3]), channels=["q"])

    def enough(*found):
        return density.enough(setup, found)  # pyright: ignore[reportArgumentType]

    first = tried(0.2, 1e-3, 1e-4)
    assert not enough(first)
    assert enough(first, tried(0.2, 3e-4, 1e-4))
    assert enough(first, tried(0.2, 3e-4, 2e-4))
    assert not enough(first, tried(0.1, 3e-4, 1e-4))
    # a sensor noise that falls as the density does leaves the weight of every reading as it was
    assert not enough(first, tried(0.2, 3e-4, 3e-5))


def test_a_fit_is_judged_by_the_trajectories_that_lead_nearer(monkeypatch):
    own, seen = (
        SimpleNamespace(noise=SimpleNamespace(process=1.0), score=np.array(s)) for s in ([2.0, 0.1], [1.0, 0.2])
    )
    monkeypatch.setattr(density, "prediction_error", lambda setup, fit, left: ({"q": fit.score[0]}, fit.score))
    setup = SimpleNamespace(density=3.0)
    for found in (density.candidate(setup, (), own, seen), density.candidate(setup, (), seen, own)):  # pyright: ignore[reportArgumentType]
        assert (found.error, found.score[0], found.process) == ({"q": 1.0}, 1.0, 3.0)
    assert density.candidate(setup, (), own).score[0] == 2.0  # pyright: ignore[reportArgumentType]


def test_a_simulation_that_leaves_everything_predicts_nothing_from_there_on(monkeypatch):
    """Readings that do not exist count for nobody."""
    time = np.linspace(0, 1, 101)
    simulated = np.where(time < 0.505, 0.1, np.nan)[:, None]
    monkeypatch.setattr(density, "predictions", lambda model, z, path, samples: simulated)
    measured = np.where(np.arange(101) % 2, np.nan, np.cos(9 * time))[:, None]
    setup = SimpleNamespace(
        stages=[SimpleNamespace(model=Multibody.__new__(Multibody))],
        clean=[SimpleNamespace(time=time, sensors={"q": measured})],
        grids=[SimpleNamespace(taken=lambda readings: readings)],
        problem=SimpleNamespace(samples=[None]),
        sensors=["q"],
        channels=["q"],
        sensor_sd=np.array([1e-3]),
    )
    fit = SimpleNamespace(iterate=SimpleNamespace(z=np.zeros(1), own=[np.zeros(0)], paths=[None]))
    error, score = density.prediction_error(setup, fit, [time > -1])  # pyright: ignore[reportArgumentType]
    assert not error
    assert np.all(np.isinf(score[:2]) == [True, False])
    there = measured[time <= 0.25, 0] - 0.1
    expected = np.sqrt((np.nanmean(there**2) + 1e-6) / np.nanvar(measured))
    np.testing.assert_allclose(score[2], expected, rtol=1e-12)


@pytest.mark.slow
def test_a_fit_that_is_begun_anew_begins_along_the_readings(tmp_path, monkeypatch):
    """Of an angle that drifts the last fit fails from the trajectories there are. Its process noise does not run away:
    it ends between what predicts best and what the evidence asks for."""
    monkeypatch.setattr(faulty_recordings, "FOLDER", tmp_path)
    begun, anew = [], solve.Solver._anew

    def kept(self, found):
        fit = anew(self, found)
        begun.append((fit, float(self.setup.density * fit.noise.process)))
        return fit

    monkeypatch.setattr(solve.Solver, "_anew", kept)
    found = faulty_recordings.identified("pendulum", "drift", 0)
    prediction = found.content["checks"]["prediction"]
    chosen = prediction["tried"][prediction["chosen"]]["density"]
    ((fit, asked),) = begun
    assert fit.result == ESTIMATE_RESULTS.successful
    assert fit.history[0].cost < 2 * fit.cost
    assert chosen <= found.content["noise"]["process_density"] <= asked
    assert found.status == "converged"
    assert found.content["diagnosis"]["suspects"][0]["kind"] == "drift"
    assert found.content["trust"]["grade"] == "fair"
