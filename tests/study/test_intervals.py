"""What the result says of parameters at a bound, in their own units."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import spookax as sx
from spookax.models import Free, ParameterMap, Tie
from spookax.scene import Scene
from spookax.scene.expression import Expression
from spookax.study.judging.intervals import intervals
from spookax.study.judging.output import correlation, gauges

MASS, GAIN, TILT, LEFT = "bodies.arm.mass", "motors.drive.gain", "tilt.x", "bodies.rest.mass"
SCENE = {
    "spookax": 1,
    "bodies": {name: {"mass": 1.0, "inertia": [1, 1, 1]} for name in ("arm", "rest")},
    "joints": {"pin": {"type": "hinge", "child": "arm"}, "other": {"type": "hinge", "child": "rest"}},
    "motors": {"drive": {"type": "torque", "joint": "pin", "gain": 0.5}},
}


@pytest.fixture(scope="module")
def shared() -> ParameterMap:
    system, _ = sx.build(Scene.model_validate(SCENE))
    free = (
        Free(MASS, 1.0, lower=0.5),
        Free(GAIN, 0.5, transform="identity"),
        Free(TILT, 0.0, upper=0.1, transform="identity", prior_sd=0.2),
    )
    ties = (Tie(LEFT, Expression(f"2 - {MASS}")), Tie("bodies.rest.com.x", Expression(f"{MASS} * {GAIN}")))
    return ParameterMap(system, free, ties)


@pytest.fixture(scope="module")
def fit() -> Any:
    """Mass and tilt at their bounds."""
    covariance = np.array([[0.01, 0.0, 0.0], [0.0, 0.04, 0.01], [0.0, 0.01, 0.0025]])
    z = np.array([np.log(0.5), 1.2, 0.5])
    information = np.array([[1e-6, 0.0, 0.0], [0.0, 1e-6, 0.0], [0.0, 0.0, 1e-6]])
    return SimpleNamespace(
        iterate=SimpleNamespace(z=z), reach=np.array([0.2, 0.0, -0.1]), covariance=covariance, information=information
    )


def test_intervals_have_the_bound_at_one_end(shared, fit):
    found = intervals(shared, fit, {})
    one_sided = {path for path, told in found.items() if told["interval_kind"] == "one-sided"}
    assert one_sided == {MASS, TILT, LEFT}  # what is tied to another as well has a standard deviation
    assert found[MASS]["at_bound"] == "lower"
    np.testing.assert_allclose(found[MASS]["interval"], [0.5, 0.5 * np.exp(0.2)])
    assert found[MASS]["sd"] == pytest.approx(0.5 * np.expm1(0.1))
    assert found[TILT]["at_bound"] == "upper"
    np.testing.assert_allclose(found[TILT]["interval"], [0.1 - 0.1 * 0.2, 0.1])
    assert found[LEFT]["at_bound"] == "upper"
    np.testing.assert_allclose(found[LEFT]["interval"], [2 - 0.5 * np.exp(0.2), 1.5])


def test_what_hardly_moves_takes_part_where_it_holds_the_others(shared, fit):
    """A mass that moves by 3 % of the gain and is known to 0.1 %: held, it would tell the gain; the tilt would not."""
    rows = np.array([[1e3, -30.0, 0.0], [0.0, 0.1, 10.0], [0.0, 0.0, 1e3]])
    free = SimpleNamespace(iterate=fit.iterate, reach=np.zeros(3), covariance=fit.covariance)
    (group,) = gauges(shared, free, rows.T @ rows)
    assert group["paths"] == [MASS, GAIN]


def test_a_parameter_at_a_bound_takes_part_in_no_group(shared, fit):
    (group,) = gauges(shared, fit, fit.information)
    assert group["paths"] == [GAIN]
    matrix = np.array(correlation(shared, fit))
    np.testing.assert_allclose(matrix, np.diag([0.0, 1.0, 0.0]))
