"""Whether a failed fit would have gone well with another sign or unit of one channel.

Such a mistake is too large for a linearisation about what came of it. So the recordings are changed and the first stage
is fitted again, roughly and in a few iterations; how well that predicts what was left out decides.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ...estimation import Settings
from ...estimation.batch.simulator_form import Estimator
from ..file.study import Study
from ..recordings.recording import Recording
from ..running.setup import Setup, set_up
from . import density

POOR = 0.3  # of a signal's standard deviation: an error that makes other readings be tried
ROUGH, LOUD = 0.1, 10.0  # an error that makes signs be tried where noise was found so many times as large as given
_ITERATIONS = 8
_FAR = 50.0  # cost of a reading
_CLEAR = 0.5  # ratio of errors, geometric means, that speaks for a mistake
_FACTORS = {"rad": (180 / np.pi, np.pi / 180), "m": (1e3, 1e-3)}  # what the readings are to be multiplied by


class Misread(NamedTuple):
    """`factor`: what the readings of a channel (a sensor, or an input) have to be multiplied by; `ratio`: error of a
    rough fit with it over that of the best fit without.
    """

    channel: str
    factor: float
    ratio: float


def misread(
    study: Study, setup: Setup, settings: Settings, reached: float, say: Callable[..., None], units: bool = True
) -> Misread | None:
    """The sign or unit that predicts much better, if there is one.

    `reached`: what the fit has as `error_of`, infinite where it has none, and no more than a rough fit of what was
    recorded has; `units`: whether they are tried. Parameters
    that go far, and noise for the rest, may make up for a turned sign, but not for another unit.
    """
    settings = dataclasses.replace(settings, max_iterations=_ITERATIONS)

    def error(recordings: list[Recording]) -> float:
        other = set_up(study, setup.scene, recordings)
        read, left = density.without_the_end(other)
        fit = Estimator(read.problem, settings, say).run(read.start(), read.stages[:1])
        # one that is still far away has not left the readings along which it began, those that it has not seen included
        readings = sum(float(np.sum(np.asarray(s.weight) > 0)) for s in read.problem.samples)
        return error_of(density.candidate(other, left, fit)) if fit.cost < _FAR * readings else np.inf

    # a rough fit may predict better than one to the end, whatever the sign
    reached = min(reached, error(list(setup.recordings)))
    reached = reached if np.isfinite(reached) else 1.0
    best: Misread | None = None
    for channel, factor in _mistakes(setup, units):
        ratio = error([_times(r, channel, factor) for r in setup.recordings]) / reached
        if ratio < (best.ratio if best else _CLEAR):
            best = Misread(channel, factor, ratio)
    return best


def error_of(candidate: density.Candidate) -> float:
    """Error of what was left out over how much it moves, geometric mean over all times from its begin."""
    return float(np.exp(np.mean(np.log(candidate.score))))


def _mistakes(setup: Setup, units: bool) -> Iterator[tuple[str, float]]:
    """Channels and factors that may be wrong: signs first. A gain that is sought finds the sign of its input by itself,
    but not a factor of a thousand.
    """
    sought = {p.split(".")[1] for p in setup.model.shared.paths if p.startswith("motors.") and p.endswith(".gain")}
    inputs = [m.name for m in setup.system.motors if any(m.name in r.inputs for r in setup.recordings)]
    read = {name: u[0].split("/")[0] for r in setup.recordings for name, u in r.sensor_units.items() if len(u) == 1}
    yield from ((name, -1.0) for name in [*read, *(n for n in inputs if n not in sought)])
    if units:
        yield from ((name, factor) for name, unit in read.items() for factor in _FACTORS.get(unit, ()))
        yield from ((name, factor) for name in inputs for factor in _FACTORS["m"])


def _times(recording: Recording, channel: str, factor: float) -> Recording:
    sensors = {name: values * (factor if name == channel else 1.0) for name, values in recording.sensors.items()}
    inputs = {name: values * (factor if name == channel else 1.0) for name, values in recording.inputs.items()}
    return dataclasses.replace(recording, sensors=sensors, inputs=inputs)
