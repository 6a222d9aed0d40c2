"""Steps of the residual form: what a step of poses and parameters is, which are taken, and when it is over."""

import dataclasses
from collections import deque
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..._typing import Array
from ..levenberg_marquardt import (
    AbstractAcceptance,
    AbstractDescent,
    AbstractStopping,
    AnyStep,
    Budget,
    Ending,
    Limits,
    Trial,
)
from .bounded_step import box_step
from .problem import Stage
from .residual_recordings import Poses, Reduced, ResidualRecordings
from .residual_rows import ResidualLinear

_TRUST = 1.0  # largest step of a parameter in one iteration, in z (one log-unit)
_MEMORY = 5  # a step is accepted if its cost is below the largest of so many before
_ROUNDING = 1e-9  # or above it by no more than this part of the cost
_LEAST_DAMPING, _LARGEST_DAMPING = 1e-12, 1e8


class Point(NamedTuple):
    """An iterate and its rows, which it has once a step begins there."""

    poses: Poses
    linear: list[ResidualLinear] | None


class PoseStep(NamedTuple):
    """A step of the parameters with the problem, damping included, that it solves; `promised` by one alone, at most."""

    d: np.ndarray
    promised: float
    length: float
    reduced: Reduced


class PoseSteps(AbstractDescent[Point, PoseStep]):
    """Poses are damped, too, in the metric of the masses. The cost is J with the log-determinant as a linear function,
    `slope` its derivative.
    """

    def __init__(self, recordings: ResidualRecordings, stage: Stage, slope: Array, budget: Budget):
        self.recordings, self.stage, self.slope, self.budget = recordings, stage, slope, budget

    def value(self, point: Point) -> float:
        return point.poses.cost + float(self.slope @ point.poses.z)

    def step(self, point: Point, limits: Limits) -> PoseStep:
        p, here = self.recordings.problem, point.poses
        assert point.linear is not None
        reduced = self.recordings.reduce(point.linear, here, limits.damping)
        N, g, z = (np.asarray(a) for a in (reduced.N, reduced.g - self.slope, here.z))
        low, high = p.lower - z, p.upper - z
        d = box_step(N, g, np.maximum(low, -_TRUST), np.minimum(high, _TRUST), limits.damping)
        return PoseStep(d, _promise(N, g, low, high), float(np.sqrt(np.maximum(d @ N @ d, 0.0))), reduced)

    def trial(self, point: Point, step: PoseStep, limits: Limits) -> Trial[Point]:
        self.budget.used += 1
        here, reduced, d = point.poses, step.reduced, jnp.asarray(step.d)
        assert point.linear is not None
        new, length = self.recordings.attempt(self.stage, here, point.linear, reduced, d)
        planned = reduced.floor + float(d @ reduced.N @ d / 2 - reduced.g @ d + self.slope @ new.z)
        now, there = self.value(point), Point(new, None)
        value = self.value(there)
        return Trial(there, value, now - value, now - planned + limits.damping * length / 2)

    def taken(self, trial: Trial[Point]) -> Point:
        return self.begun(trial.point.poses)

    def begun(self, poses: Poses) -> Point:
        """The iterate as a point that a step may begin at."""
        return Point(poses, self.recordings.linear(self.stage, poses))


def _promise(N: np.ndarray, g: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """The decrease that one parameter alone promises, at most: half its squared projected gradient step in sd."""
    D = np.sqrt(np.where(np.diagonal(N) > 0, np.diagonal(N), 1.0))
    return float(np.max((D * np.clip(g / D**2, low, high)) ** 2, initial=0.0)) / 2


@dataclasses.dataclass
class NielsenDamping:
    """Nielsen's rule: less after a step that kept its promise, more and more where steps are refused."""

    value: float = 1e-6
    growth: float = 2.0

    def accept(self, gain: float, predicted: float) -> None:
        ratio = min(gain / predicted, 1.0) if predicted > 0 else 1.0
        less = max(1 / 3, 1 - (2 * ratio - 1) ** 3)
        self.value, self.growth = max(self.value * less, _LEAST_DAMPING), 2.0

    def reject(self) -> None:
        self.value, self.growth = self.value * self.growth, 2 * self.growth


class NonMonotone(AbstractAcceptance):
    """Takes what is no worse than the worst of the last few points: a trial may leave the joints' narrow valley for a
    while. `best`: of all that were taken, the one that costs least.
    """

    def __init__(self, damping: NielsenDamping, value: float, point: Point):
        self.damping, self.best = damping, point
        self._recent, self._least = deque([value], maxlen=_MEMORY), value

    @property
    def limits(self) -> Limits:
        return Limits(self.damping.value)

    @property
    def ending(self) -> Ending | None:
        return Ending.stuck if self.damping.value > _LARGEST_DAMPING else None

    def takes(self, value: float, step: AnyStep, trial: Trial[Any]) -> bool:
        if not (np.isfinite(trial.value) and trial.value <= max(self._recent) + _ROUNDING * abs(value)):
            self.damping.reject()
            return False
        self.damping.accept(trial.gain, trial.promised)
        self._recent.append(trial.value)
        if trial.value < self._least:
            self.best, self._least = trial.point, trial.value
        return True


class SmallSteps(AbstractStopping):
    """Over after `count` steps that changed next to nothing, or after one where no parameter alone promises more."""

    def __init__(self, budget: Budget, tolerance: float, count: int):
        self.budget, self.tolerance, self.count = budget, tolerance, count
        self._small = 0

    def begin(self) -> None:
        self._small = 0

    def before(self, value: float, step: AnyStep) -> Ending | None:
        if self._small >= self.count:
            return Ending.settled
        if self._small and step.promised < self.tolerance * abs(value):
            return Ending.nothing_promised
        return Ending.limit if self.budget.spent else None

    def after(
        self, value: float, step: AnyStep, trial: Trial[Any], taken: bool, acceptance: AbstractAcceptance
    ) -> Ending | None:
        if taken:
            self._small = self._small + 1 if abs(trial.gain) < self.tolerance * abs(value) else 0
        return acceptance.ending
