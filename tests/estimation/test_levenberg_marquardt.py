"""The damped loop alone, with parts as small as they can be: a valley that is known, and every way in which it ends."""

import numpy as np
import pytest

from spookax._results import ESTIMATE_RESULTS
from spookax.estimation.levenberg_marquardt import (
    AbstractAcceptance,
    AbstractDescent,
    Budget,
    Ending,
    Limits,
    Settled,
    Step,
    Trial,
    Tried,
    minimise,
)


class Valley(AbstractDescent[np.ndarray, Step]):
    """1/2 (x - 1)^2 + 50 (y - x^2)^2, whose minimum is zero at (1, 1); the other linear model has the wrong slope."""

    def __init__(self, budget: Budget, width: int = 0):
        self.budget, self.width, self.asked = budget, width, []

    def value(self, point):
        return float(np.sum(self.rows(point) ** 2)) / 2

    def rows(self, point):
        x, y = point
        return np.array([x - 1, 10 * (y - x**2)])

    def step(self, point, limits):
        sign = 1.0 if self.width == 0 else -1.0
        J, r = np.array([[1.0, 0.0], [-20 * point[0], 10.0]]), self.rows(point)
        N, g = J.T @ J, -sign * J.T @ r
        d = np.linalg.solve(N + limits.damping * np.diag(np.diag(N)), g)
        return Step(d, float(g @ d - d @ N @ d / 2), float(np.sqrt(d @ N @ d)))

    def trial(self, point, step, limits):
        self.budget.used += 1
        new = point + limits.fraction * step.d
        return Trial(new, self.value(new), self.value(point) - self.value(new), step.promised)

    def linearised(self, point, width):
        self.asked.append(width)
        self.width = width
        return point


class TenTimes(AbstractAcceptance):
    """Takes what costs less; from a wrong model it goes to the right one once no damping is enough."""

    def __init__(self, width: int = 0):
        self.damping, self.width = 1e-3, width

    @property
    def limits(self):
        return Limits(self.damping, width=self.width)

    @property
    def ending(self):
        return Ending.stuck if self.damping > 1e6 else None

    def takes(self, value, step, trial):
        taken = trial.value < value
        self.damping *= 0.1 if taken else 10.0
        return taken

    def goes_on(self, ending):
        again, self.width = self.width > 0, 0
        self.damping = 1e-3 if again else self.damping
        return again


START = np.array([-1.2, 1.0])


def run(most: int = 100, width: int = 0, start=START, relative: float = 0.0, absolute: float = 1e-20, report=None):
    steps = Valley(Budget(most), width)
    end = Settled(steps.budget, relative, absolute)
    return steps, minimise(start, steps, TenTimes(width), end, report or (lambda _: None))


def test_it_follows_a_curved_valley_to_its_end_downhill_all_the_way():
    told: list[Tried] = []
    steps, found = run(report=told.append)
    assert found.ending in (Ending.settled, Ending.stuck)
    np.testing.assert_allclose(found.point, [1.0, 1.0], rtol=1e-9)
    assert len(told) == steps.budget.used
    values = [steps.value(START), *(tried.value for tried in told)]
    for before, after, tried in zip(values, values[1:], told, strict=False):
        assert after < before if tried.taken else after == before
    assert not all(tried.taken for tried in told)  # else the damping was never put to the test


@pytest.mark.parametrize(
    ("given", "ending", "result"),
    [
        ({"most": 3}, Ending.limit, ESTIMATE_RESULTS.iteration_limit),
        ({"start": np.array([np.nan, 1.0])}, Ending.nonfinite, ESTIMATE_RESULTS.nonfinite),
        ({"relative": 1.1}, Ending.nothing_promised, ESTIMATE_RESULTS.successful),
        ({"absolute": 100.0}, Ending.settled, ESTIMATE_RESULTS.successful),
    ],
)
def test_every_ending_has_its_name(given, ending, result):
    told: list[Tried] = []
    _, found = run(**given, report=told.append)
    assert found.ending is ending
    assert found.ending.result == result
    if ending is Ending.settled:
        assert sum(tried.taken for tried in told) == 2
    else:
        assert len(told) == {Ending.limit: 3}.get(ending, 0)


def test_a_model_that_leads_uphill_is_stuck_and_another_one_goes_on():
    steps, found = run(width=1)
    assert steps.asked == [0]
    np.testing.assert_allclose(found.point, [1.0, 1.0], rtol=1e-9)
    assert Ending.stuck.result == ESTIMATE_RESULTS.no_progress


def test_short_steps_that_are_not_taken_count_where_the_rule_says_so():
    """Of a model that leads uphill, the first step is longer than one standard deviation and is not counted."""
    steps = Valley(Budget(100), 1)
    length = steps.step(START, TenTimes().limits).length
    for short, ending, used in ((2 * length, Ending.settled, 2), (0.0, Ending.stuck, 10)):
        steps = Valley(Budget(100), 1)
        found = minimise(START, steps, TenTimes(), Settled(steps.budget, 0.0, 0.0, short))
        assert found.ending is ending
        assert steps.budget.used == used
        np.testing.assert_array_equal(found.point, START)


def test_one_linear_model_cannot_be_changed():
    class Flat(Valley):
        linearised = AbstractDescent.linearised

    steps = Flat(Budget(100), 1)
    with pytest.raises(NotImplementedError, match="Flat has one linear model"):
        minimise(START, steps, TenTimes(1), Settled(steps.budget, 0.0, 1e-20))
