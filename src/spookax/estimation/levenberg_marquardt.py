"""Levenberg and Marquardt's iteration out of three parts, which every estimator brings for itself.

A *descent* says what step a point and a damping give, and where the step leads. An *acceptance* decides whether that
is taken, and sets the damping of the next step. A *stopping* rule says why it is over.

**Source:** Levenberg (1944), Marquardt (1963); the parts in the manner of Optimistix (Rader, Lyons and Kidger 2024).
"""

import abc
import dataclasses
import enum
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from .._results import ESTIMATE_RESULTS


class Ending(enum.Enum):
    """Why an iteration is over."""

    settled = "steps gained nothing, one after the other"
    nothing_promised = "the linear problem promises nothing that is worth a trial"
    little_gained = "a step gained little, and no more was asked for"
    short_steps = "only short steps are taken, and no more was asked for"
    corner = "the cost has a kink nearer than is worth following"
    stuck = "no step lowers the cost, although the linear problem promises it"
    limit = "as many iterations as were allowed"
    nonfinite = "the cost is not finite where the iteration begins"

    @property
    def result(self) -> ESTIMATE_RESULTS:
        """What that makes of an estimate."""
        return _RESULTS.get(self, ESTIMATE_RESULTS.successful)  # pyright: ignore[reportReturnType]


_RESULTS = {
    Ending.stuck: ESTIMATE_RESULTS.no_progress,
    Ending.limit: ESTIMATE_RESULTS.iteration_limit,
    Ending.nonfinite: ESTIMATE_RESULTS.nonfinite,
}


class Limits(NamedTuple):
    """What holds a step back."""

    damping: float  # of the parameters, times the diagonal of their matrix
    fraction: float = 1.0  # of the step that is gone
    width: int = 0  # which of its linear models the descent uses, where it has several


@runtime_checkable
class AnyStep(Protocol):
    """What a descent proposes, at least."""

    @property
    def d(self) -> Any:
        """The whole step of the parameters."""
        ...

    @property
    def promised(self) -> float:
        """What the cost gains by the whole step if the linear problem is right."""
        ...

    @property
    def length(self) -> float:
        """Of the whole step of the parameters, in their standard deviations."""
        ...


P = TypeVar("P")
S = TypeVar("S", bound=AnyStep)


class Step(NamedTuple):
    """A step of the parameters and nothing else; see `AnyStep`."""

    d: np.ndarray
    promised: float
    length: float


@dataclasses.dataclass(frozen=True)
class Trial(Generic[P]):
    """Where a step, or a part of it, leads."""

    point: P
    value: float  # the cost there
    gain: float  # of what is minimised, of which the cost may be a part; not finite where the trial failed
    promised: float  # gain, if the linear problem is right


class AbstractDescent(abc.ABC, Generic[P, S]):
    """What is minimised, and what a step is."""

    @abc.abstractmethod
    def value(self, point: P) -> float:
        """The cost at a point."""

    @abc.abstractmethod
    def step(self, point: P, limits: Limits) -> S:
        """The whole step that the linear problem at a point proposes."""

    @abc.abstractmethod
    def trial(self, point: P, step: S, limits: Limits) -> Trial[P]:
        """Where a fraction of the step leads."""

    def taken(self, trial: Trial[P]) -> P:
        """The point of a trial that was accepted, with what its next step needs."""
        return trial.point

    def linearised(self, point: P, width: int) -> P:
        """The same point with another of the linear models; asked for where an acceptance changes its `width`."""
        raise NotImplementedError(f"{type(self).__name__} has one linear model, and was asked for number {width}")


class AbstractAcceptance(abc.ABC):
    """Which steps are taken, and what holds back the next one."""

    @property
    @abc.abstractmethod
    def limits(self) -> Limits:
        """Of the next step."""

    @abc.abstractmethod
    def takes(self, value: float, step: AnyStep, trial: Trial[Any]) -> bool:
        """Whether a trial is taken, from a point with that cost; the limits follow."""

    @property
    @abc.abstractmethod
    def ending(self) -> Ending | None:
        """Why nothing more can be tried."""

    def goes_on(self, ending: Ending) -> bool:
        """Whether there is more to be done with other limits, where it would be over."""
        return False


class AbstractStopping(abc.ABC):
    """When it is over."""

    @abc.abstractmethod
    def before(self, value: float, step: AnyStep) -> Ending | None:
        """Before a step from a point with that cost is tried."""

    @abc.abstractmethod
    def after(
        self, value: float, step: AnyStep, trial: Trial[Any], taken: bool, acceptance: AbstractAcceptance
    ) -> Ending | None:
        """After that."""

    @abc.abstractmethod
    def begin(self) -> None:
        """Forget what was counted: the steps that follow are of another kind."""


@dataclasses.dataclass
class Budget:
    """Iterations that are allowed, and those that were used; a descent counts."""

    most: int
    used: int = 0

    @property
    def spent(self) -> bool:
        return self.used >= self.most


class Settled(AbstractStopping):
    """Over after two steps in turn that gain nothing: less than `absolute`, or `relative` of the cost. A step that is
    not taken counts as one of them where it is shorter than `short` [standard deviations]: the cost has a kink there.
    """

    def __init__(self, budget: Budget, relative: float, absolute: float, short: float = 0.0):
        self.budget, self.relative, self.absolute, self.short = budget, relative, absolute, short
        self._calm = 0

    def begin(self) -> None:
        self._calm = 0

    def before(self, value: float, step: AnyStep) -> Ending | None:
        if not np.isfinite(value):
            return Ending.nonfinite
        if self.budget.spent:
            return Ending.limit
        return Ending.nothing_promised if step.promised < self.relative * abs(value) else None

    def after(
        self, value: float, step: AnyStep, trial: Trial[Any], taken: bool, acceptance: AbstractAcceptance
    ) -> Ending | None:
        if taken:
            nothing = trial.gain < max(self.relative * abs(value), self.absolute)
            self._calm = self._calm + 1 if nothing else 0
        elif step.length < self.short:
            self._calm += 1
        return Ending.settled if self._calm >= _IN_TURN else acceptance.ending


_IN_TURN = 2


@dataclasses.dataclass(frozen=True)
class Tried(Generic[P, S]):
    """What an iteration has done."""

    point: P  # after it
    value: float  # the cost there
    step: S
    fraction: float  # of the step
    taken: bool
    damping: float  # of the next step


@dataclasses.dataclass(frozen=True)
class Ended(Generic[P, S]):
    """The last point, the step that was proposed there or tried last, and why it is over."""

    point: P
    step: S
    ending: Ending


def minimise(
    point: P,
    descent: AbstractDescent[P, S],
    acceptance: AbstractAcceptance,
    stopping: AbstractStopping,
    report: Callable[[Tried[P, S]], None] = lambda _: None,
) -> Ended[P, S]:
    """Steps from a point until the stopping rule says that it is over; `report` is called after each of them."""
    while True:
        limits, value = acceptance.limits, descent.value(point)
        step = descent.step(point, limits)
        ending = stopping.before(value, step)
        if ending is None:
            trial = descent.trial(point, step, limits)
            taken = acceptance.takes(value, step, trial)
            ending = stopping.after(value, step, trial, taken, acceptance)
            if taken:
                point = descent.taken(trial)
            report(Tried(point, descent.value(point), step, limits.fraction, taken, acceptance.limits.damping))
        if ending is not None:
            if not acceptance.goes_on(ending):
                return Ended(point, step, ending)
            stopping.begin()
        if acceptance.limits.width != limits.width:
            point = descent.linearised(point, acceptance.limits.width)
