"""How much process noise there is: the density whose fit best predicts readings that it has not seen.

Process noise is a claim about the model. Its evidence is that of one step ahead, and a model that lacks something (air
drag, a loose bearing) is off by little in each step and always to the same side: the evidence asks for a density that
swallows the lack, and inertia and friction go where they like. What counts for a simulator is where it is after a
while. So the end of recordings is left out (the last third of each; of three and more, the second half of every third),
the rest is fitted with falling densities, each from the result of the one before, and each fit simulates what was
left out, without noise, from where its readings end.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from ...estimation.batch.problem import Fit
from ...models import Multibody
from ..running.setup import Setup
from ..running.simulate import predictions
from .output import as_read

_LEFT_OUT = 1 / 3  # of one or two recordings, at the end of each
_LEFT_OUT_OF_MANY = 1 / 2  # of every third of three and more; what comes before tells its state
FALL = (10**-0.5,) * 10  # from one density to the next
_SAME = 0.02  # relative change of an error that is none
_BETTER = 0.97  # ratio of errors that counts as better
_CLEARLY = 0.8  # the same where the motion decides how large errors are
_PATIENCE = 4  # densities in a row, a hundredth at the end, that are no better
_HOPELESS = 0.5  # of the signal: an error that no fit can be told by
_NOISE = 1.5  # times the sensors' noise: nothing to be gained
PREFIXES = (1.0, 0.5, 0.25, 0.125, 0.0625)  # of what was left out


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A density and how well the fit with it predicts what was left out."""

    process: np.ndarray  # level [N m sqrt(s) or N sqrt(s)], () or one for each axis
    fit: Fit
    error: dict[str, float]  # sensor -> RMS of all that was left out [unit of the sensor]
    score: np.ndarray  # error over the signal's standard deviation, geometric mean of the channels, for every prefix

    def weight(self) -> float:
        """Of the readings beside the model: process noise over sensor noise, to a factor."""
        return float(np.mean(self.process) / np.exp(np.mean(np.log(self.fit.noise.sensor))))


def without_the_end(setup: Setup) -> tuple[Setup, tuple[np.ndarray, ...]]:
    """The same study with the end of recordings unread; and which samples were left out."""
    samples, left, count = [], [], len(setup.recordings)
    for i, (recording, grid, whole) in enumerate(
        zip(setup.recordings, setup.grids, setup.problem.samples, strict=True)
    ):
        time = recording.time
        part = _LEFT_OUT if count < 3 else _LEFT_OUT_OF_MANY * (i % 3 == 1)
        out = time > time[-1] - part * (time[-1] - time[0])
        weight = np.array(whole.weight)
        step, slot, channel = (place[out] for place in grid.places(weight.shape[2]))
        weight[np.maximum(step, 0), slot, channel] = 0.0
        samples.append(whole._replace(weight=weight))
        left.append(out)
    problem = dataclasses.replace(setup.problem, samples=tuple(samples))
    return dataclasses.replace(setup, problem=problem), tuple(left)


def prediction_error(setup: Setup, fit: Fit, left: Sequence[np.ndarray]) -> tuple[dict[str, float], np.ndarray]:
    """`error` and `score` of a `Candidate`. Without readings the smoothed noise is zero: the estimate simulates."""
    model = setup.stages[-1].model
    assert isinstance(model, Multibody)
    squares: dict[tuple[str, int], np.ndarray] = {}  # per channel: sums of squares for every prefix, counts, signal
    for i, (recording, grid, samples, out) in enumerate(
        zip(setup.clean, setup.grids, setup.problem.samples, left, strict=True)
    ):
        z = np.concatenate([fit.iterate.z, fit.iterate.own[i]])
        simulated = grid.taken(predictions(model, z, fit.iterate.paths[i], samples))
        time = recording.time[out]
        if not time.size:
            continue
        early = time[None] <= time[0] + np.array(PREFIXES)[:, None] * (time[-1] - time[0])
        column = 0
        for sensor in setup.sensors:
            measured = recording.sensors[sensor]
            size = measured.shape[1]
            e = (measured - as_read(measured, simulated[:, column : column + size]))[out]
            column += size
            for c in range(size):
                there = np.isfinite(measured[out, c])
                if not there.any():
                    continue
                counted = early & there
                squared = np.where(np.isfinite(e[:, c]), e[:, c], np.inf) ** 2  # a simulation that has left everything
                row = np.stack(
                    [
                        np.where(counted, squared, 0.0).sum(axis=1),
                        counted.sum(axis=1),
                        np.nanvar(measured[:, c]) * counted.sum(axis=1),
                    ]
                )
                squares[sensor, c] = squares.get((sensor, c), 0.0) + row
    error, logs = {}, []
    for sensor in setup.sensors:
        rows = [row for (name, _), row in squares.items() if name == sensor]
        total = np.sum(rows, axis=0) if rows else np.full((3, 1), np.inf)
        if np.isfinite(total[0, 0]):
            error[sensor] = float(np.sqrt(total[0, 0] / total[1, 0]))
    for (sensor, c), (square, count, signal) in squares.items():
        noise = float(setup.sensor_sd[setup.channels.index(sensor) + c]) ** 2 * count
        logs.append(np.log((square + noise) / np.maximum(signal, noise)) / 2)
    score = np.exp(np.mean(logs, axis=0)) if logs else np.ones(len(PREFIXES))
    return error, np.where(np.isfinite(score), score, np.inf)


def best(candidates: Sequence[Candidate]) -> int:
    """The candidate that predicts best what was left out; of those that are as good, the one with the most process
    noise. Where none predicts it to its end (an unstable motion), all shorter times count that one of them predicts:
    near the longest of them errors are as large as the motion makes them, and which fit is ahead is chance. There the
    evidence stands unless another one is clearly better.
    """
    scores = np.array([c.score for c in candidates])
    usable = np.flatnonzero(scores.min(axis=0) < _HOPELESS)
    if not usable.size:
        return 0
    to_the_end = usable[0] == 0
    found = scores[:, 0] if to_the_end else np.exp(np.mean(np.log(scores[:, usable]), axis=1))
    return int(np.argmax(found <= found.min() / (_BETTER if to_the_end else _CLEARLY)))


def told(candidates: Sequence[Candidate]) -> bool:
    """Whether any of the fits predicts what was left out for a while."""
    return bool(np.min([c.score for c in candidates]) < _HOPELESS)


def strayed(candidate: Candidate) -> bool:
    """Whether its trajectories end where what was left out never was, as an unstable motion does."""
    return not candidate.score[0] < _HOPELESS


def enough(setup: Setup, candidates: Sequence[Candidate]) -> bool:
    """Whether lower densities need not be tried: the last two predict alike, all that is left is noise, or the best is
    long ago. Errors do not fall and rise in order, so that one worse density says nothing.
    """
    found = candidates[best(candidates)].error
    sd = {name: setup.sensor_sd[setup.channels.index(name)] for name in found}
    if found and all(found[name] < _NOISE * sd[name] for name in found):
        return True
    if len(candidates) - 1 - best(candidates) >= _PATIENCE:
        return True
    if len(candidates) < 2:
        return False
    (before, now), scores = candidates[-2:], np.array([c.score for c in candidates[-2:]])
    # a sensor noise that fell as the density did weighs all as before: the same fit, which says nothing of a lower one
    weighed_anew = np.log(now.weight() / before.weight()) < np.log(FALL[0]) / 2
    return weighed_anew and bool(np.all(np.isclose(scores[0], scores[1], rtol=_SAME, atol=0.0)))


def candidate(setup: Setup, left: Sequence[np.ndarray], fit: Fit, seen: Fit | None = None) -> Candidate:
    """A fit of what is left, judged by what was left out: by its own trajectories, or by those of `seen`, a fit with
    the same parameters, if these lead nearer.
    """
    judged = [prediction_error(setup, begun, left) for begun in (fit, seen) if begun is not None]
    error, score = min(judged, key=lambda found: tuple(found[1]))
    return Candidate(setup.density * np.asarray(fit.noise.process), fit, error, score)
