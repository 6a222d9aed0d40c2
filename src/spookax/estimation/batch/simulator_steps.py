"""Steps of the simulator form: what is minimised, where a step leads, and when a phase is over."""

import abc
from typing import Any, NamedTuple

import numpy as np

from ..levenberg_marquardt import (
    AbstractAcceptance,
    AbstractDescent,
    AbstractStopping,
    AnyStep,
    Budget,
    Ending,
    Limits,
    Settled,
    Step,
    Trial,
)
from .all_recordings import AllRecordings, Linear, promised
from .bounded_step import box_step
from .noise_kept import IMPULSES, AbstractKept
from .problem import Iterate, Problem, Settings, Stage

LITTLE = 0.1  # change of the cost (a log-likelihood) that means nothing: 0.5 is one standard deviation
_ROUGH = 0.01  # relative decrease that ends what is iterated only roughly: stages, and the rounds of noise levels
_SHORT = 0.2  # fraction of a step below which a rough phase is given up
_TRUST = 1.0  # largest step of a parameter in one iteration, in z (one log-unit)
_NEAR = 0.3  # distance over which the slope of the log-determinant is taken as constant, in z


class AbstractObjective(abc.ABC):
    """What is minimised beside the cost J."""

    @abc.abstractmethod
    def gradient(self, linear: Linear) -> np.ndarray:
        """What a linear problem wants of the parameters."""

    @abc.abstractmethod
    def bounds(self, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
        """Of the parameters."""

    @abc.abstractmethod
    def gain(self, before: Linear, after: Linear) -> float:
        """By what is not in J."""


class CostAlone(AbstractObjective):
    """Nothing: J is minimised."""

    def gradient(self, linear: Linear) -> np.ndarray:
        return linear.g

    def bounds(self, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
        return problem.lower, problem.upper

    def gain(self, before: Linear, after: Linear) -> float:
        return 0.0


class WithDeterminant(AbstractObjective):
    """J + log-determinant, near the parameters z where its slope was found: the slope proposes, the determinant itself
    decides.
    """

    def __init__(self, recordings: AllRecordings, slope: np.ndarray, z: np.ndarray):
        self._recordings, self._slope, self._z = recordings, slope, z

    def gradient(self, linear: Linear) -> np.ndarray:
        return linear.g - self._slope

    def bounds(self, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
        return np.maximum(problem.lower, self._z - _NEAR), np.minimum(problem.upper, self._z + _NEAR)

    def gain(self, before: Linear, after: Linear) -> float:
        return self._recordings.log_determinant(before) - self._recordings.log_determinant(after)


COST_ALONE = CostAlone()


class Point(NamedTuple):
    """Trajectories of the simulator, what they cost, and the linear problem along them."""

    iterate: Iterate
    cost: float
    linear: Linear


class TrajectorySteps(AbstractDescent[Point, Step]):
    """A step is that of the reduced linear problem between bounds; a trial is simulated, in part of its length."""

    def __init__(
        self,
        recordings: AllRecordings,
        stage: Stage,
        budget: Budget,
        kept: AbstractKept = IMPULSES,
        objective: AbstractObjective = COST_ALONE,
    ):
        self.recordings, self.stage, self.budget, self.kept, self.objective = recordings, stage, budget, kept, objective
        self._bounds = objective.bounds(recordings.problem)

    def value(self, point: Point) -> float:
        return point.cost

    def step(self, point: Point, limits: Limits) -> Step:
        linear, z = point.linear, point.iterate.z
        low, high = (bound - z for bound in self._bounds)
        g = self.objective.gradient(linear)
        d = box_step(linear.N, g, np.maximum(low, -_TRUST), np.minimum(high, _TRUST), limits.damping)
        length = float(np.sqrt(np.maximum(d @ linear.N @ d, 0.0)))
        return Step(d, promised(point.cost, linear, g, d), length)

    def trial(self, point: Point, step: Step, limits: Limits) -> Trial[Point]:
        self.budget.used += 1
        linear, alpha = point.linear, limits.fraction
        new, cost, noise_change, ahead = self.recordings.attempt(
            self.stage, point.iterate, linear, step.d, alpha, self.kept, limits.width
        )
        gain = point.cost - cost + noise_change
        if np.isfinite(cost):
            gain += self.objective.gain(linear, ahead)
        expected = promised(point.cost, linear, self.objective.gradient(linear), step.d, alpha)
        return Trial(Point(new, cost, ahead), cost, gain, expected)

    def linearised(self, point: Point, width: int) -> Point:
        return point._replace(linear=self.recordings.linear(self.stage, point.iterate, self.kept, width))


def to_the_end(budget: Budget, settings: Settings) -> AbstractStopping:
    """Until nothing is gained. Near a kink (a joint about to stick) full steps overshoot: below the noise they count as
    such that gain nothing.
    """
    return Settled(budget, settings.tolerance, LITTLE, short=float(np.sqrt(2 * LITTLE)))


class Roughly(AbstractStopping):
    """Over as soon as a step gains little, or only a short one is taken."""

    def __init__(self, budget: Budget, settings: Settings):
        self._end = to_the_end(budget, settings)

    def begin(self) -> None:
        self._end.begin()

    def before(self, value: float, step: AnyStep) -> Ending | None:
        ending = self._end.before(value, step)
        return Ending.little_gained if ending is None and step.promised < _ROUGH * abs(value) else ending

    def after(
        self, value: float, step: AnyStep, trial: Trial[Any], taken: bool, acceptance: AbstractAcceptance
    ) -> Ending | None:
        ending = self._end.after(value, step, trial, taken, acceptance)
        if taken and trial.gain < _ROUGH * abs(value):
            return Ending.little_gained
        return Ending.short_steps if acceptance.limits.fraction < _SHORT else ending
