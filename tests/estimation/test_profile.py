"""Ends of intervals where the cost has risen by so much, whatever its shape."""

from typing import Any

import numpy as np
import pytest

from spookax.estimation.batch.profile import FAR, TAIL, Held, find_end

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
