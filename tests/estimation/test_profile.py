"""Ends of intervals where the cost has risen by so much, whatever its shape."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from spookax.estimation import Settings
from spookax.estimation.batch import profile
from spookax.estimation.batch.all_recordings import Linear
from spookax.estimation.batch.noise_kept import IMPULSES, AbstractKept
from spookax.estimation.batch.problem import Iterate
from spookax.estimation.batch.profile import FAR, TAIL, Held, Profiles, find_end

TARGET = TAIL**2 / 2


def end(rise: Any, expected: float, room: float = FAR) -> tuple[float, str, list[float]]:
    """With the places that were looked at; `rise`: of the offset, None where there is no fit."""
    seen: list[float] = []

    def held_at(start: Held, offset: float) -> Held | None:
        seen.append(offset)
        value = rise(offset)
        return None if value is None else start._replace(offset=offset, rise=value)

    nothing: Any = None
    return *find_end(Held(0.0, 0.0, nothing, 0.0, nothing), held_at, expected, TARGET, room), seen


@pytest.mark.parametrize("side", [-1, 1])
def test_a_parabola_is_told_by_one_fit(side):
    sd = 0.2
    assert end(lambda d: (d / sd) ** 2 / 2, side * TAIL * sd) == (side * TAIL * sd, "linear", [side * TAIL * sd])


@pytest.mark.parametrize("side", [-1, 1])
def test_the_end_is_where_a_cost_that_is_no_parabola_has_risen(side):
    """A parabola in the parameter itself, where z is its logarithm: known to 40 %."""
    sd = 0.4

    def rise(d: float) -> float:
        return (np.expm1(d) / sd) ** 2 / 2

    found, kind, _ = end(rise, side * TAIL * sd)
    assert kind == "profile"
    assert rise(found) == pytest.approx(TARGET, rel=0.12)  # twice the 5 % of the distance that are allowed
    assert abs(found - side * TAIL * sd) > 0.1  # the linearisation is far off


def test_a_square_has_a_flat_bottom():
    found, kind, _ = end(lambda d: 8 * d**4, 0.1)
    assert kind == "profile"
    assert found == pytest.approx((TARGET / 8) ** 0.25, rel=0.1)


def test_a_bound_within_reach_is_the_end():
    assert end(lambda d: d**2 / 2, TAIL, room=0.5) == (0.5, "profile", [0.5])


def test_a_flat_cost_has_no_end():
    found, kind, seen = end(lambda d: 0.1 * np.tanh(d) ** 2, -TAIL)
    assert (found, kind) == (-np.inf, "profile")
    assert min(seen) == -FAR


def test_without_a_fit_there_the_linearisation_stays():
    assert end(lambda d: None, 0.3)[:2] == (0.3, "unchecked")
    assert end(lambda d: None, 0.3, room=0.2)[:2] == (0.2, "unchecked")
    assert end(lambda d: None, -2 * FAR)[:2] == (-np.inf, "unchecked")


class Valley:
    """In place of an estimator: two parameters, 1/2 |r|^2 with r = (x / a, (y - bend x^2 - x) / b), no states."""

    def __init__(self, bend: float, a: float = 0.2, b: float = 0.02):
        self.bend, self.a, self.b = bend, a, b
        self.settings, self.root_weights = SimpleNamespace(determinant=False), ()

    def kept_at_the_end(self, stage: Any) -> AbstractKept:
        return IMPULSES

    def cost(self, stage: Any, it: Any) -> float:
        x, y = it.z
        return float((x / self.a) ** 2 + ((y - self.bend * x**2 - x) / self.b) ** 2) / 2

    def linear(self, stage: Any, it: Any, kept: AbstractKept = IMPULSES) -> Linear:
        x, y = it.z
        J = np.array([[1 / self.a, 0.0], [-(2 * self.bend * x + 1) / self.b, 1 / self.b]])
        r = np.array([x / self.a, (y - self.bend * x**2 - x) / self.b])
        return Linear((), J.T @ J, -J.T @ r, self.cost(stage, it))

    def attempt(self, stage: Any, it: Any, linear: Linear, d: np.ndarray, part: float, *_: Any) -> Any:
        there = Iterate(it.z + part * d, (), ())
        return SimpleNamespace(iterate=there, cost=self.cost(stage, there), linear=self.linear(stage, there))

    def profiles(self, monkeypatch: pytest.MonkeyPatch, most: int = 100) -> Profiles:
        monkeypatch.setattr(profile, "Estimator", lambda problem, settings: self)
        problem, it = SimpleNamespace(lower=np.full(2, -np.inf), upper=np.full(2, np.inf)), Iterate(np.zeros(2), (), ())
        covariance = np.linalg.inv(self.linear(None, it).N)
        fit = SimpleNamespace(iterate=it, noise=None, root_weights=(), covariance=covariance, slope=np.zeros(2))
        stage = cast(Any, SimpleNamespace(model=None))
        return Profiles(cast(Any, problem), stage, cast(Any, fit), Settings(), np.diag(covariance), most)


@pytest.mark.parametrize("i", [0, 1])
def test_a_straight_valley_takes_one_simulation_for_each_end(i, monkeypatch):
    about = Valley(0.0).profiles(monkeypatch)
    sd = np.sqrt(about.variance[i])
    ends = about.ends(i, 0)
    assert (ends.kind, about.used) == ("linear", 2)
    assert (ends.below, ends.above) == pytest.approx((-TAIL * sd, TAIL * sd))


@pytest.mark.parametrize("bend", [0.7, 1.5])
def test_of_a_valley_that_bends_the_profile_is_found(bend, monkeypatch):
    """With y held, the least cost over x is a matter of one variable."""
    valley = Valley(bend)

    def rise(y: float) -> float:
        x = np.linspace(-0.8, 0.8, 40001)
        return float(np.min((x / valley.a) ** 2 + ((y - bend * x**2 - x) / valley.b) ** 2) / 2)

    about = valley.profiles(monkeypatch)
    ends = about.ends(1, 0)
    assert ends.kind == "profile"
    for end in (ends.below, ends.above):
        if abs(abs(end) - TAIL * np.sqrt(about.variance[1])) > 1e-9:  # else the linearisation is right to a fifth
            assert np.sqrt(rise(end) / TARGET) == pytest.approx(1.0, abs=0.25)  # a fold: rises steeply
        else:
            assert np.sqrt(rise(end) / TARGET) == pytest.approx(1.0, abs=0.2)
    assert about.used <= 12
    assert valley.profiles(monkeypatch, most=1).ends(1, 0).kind == "unchecked"


def test_nothing_is_spent_on_what_is_not_determined(monkeypatch):
    about = Valley(0.0, a=2.0).profiles(monkeypatch)
    assert about.ends(0, 0).kind == "unchecked"
    assert about.used == 0
    about.problem.lower[0] = -1.0  # a bound within reach is an end
    ends = about.ends(0, 0)
    assert (ends.below, ends.kind) == (-1.0, "profile")
