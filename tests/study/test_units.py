"""Units of column headers."""

import math
import re

import pytest

from spookax.study.file import units as u


@pytest.mark.parametrize(
    ("text", "dimension", "factor"),
    [
        ("s", u.TIME, 1), ("ms", u.TIME, 1e-3), ("us", u.TIME, 1e-6), ("µs", u.TIME, 1e-6),
        ("min", u.TIME, 60),
        ("rad", u.ANGLE, 1), ("deg", u.ANGLE, math.pi / 180), ("°", u.ANGLE, math.pi / 180),
        ("turn", u.ANGLE, 2 * math.pi),
        ("rad/s", u.ANGULAR_RATE, 1), ("deg/s", u.ANGULAR_RATE, math.pi / 180),
        ("rad / s", u.ANGULAR_RATE, 1), ("rpm", u.ANGULAR_RATE, 2 * math.pi / 60),
        ("m", u.LENGTH, 1), ("cm", u.LENGTH, 1e-2), ("mm", u.LENGTH, 1e-3), ("m/s", u.SPEED, 1),
        ("mm/s", u.SPEED, 1e-3), ("V", u.VOLTAGE, 1), ("mV", u.VOLTAGE, 1e-3), ("A", u.CURRENT, 1),
        ("mA", u.CURRENT, 1e-3), ("N", u.FORCE, 1), ("Nm", u.TORQUE, 1), ("N m", u.TORQUE, 1),
        ("N.m", u.TORQUE, 1), ("N*m", u.TORQUE, 1), ("N·m", u.TORQUE, 1), ("mN m", u.TORQUE, 1e-3),
        ("1", u.NUMBER, 1), ("%", u.NUMBER, 1e-2),
    ],
)  # fmt: skip
def test_units_are_converted_to_si(text, dimension, factor):
    unit = u.parse_unit(f" {text} ")
    assert unit.dimension == dimension
    assert unit.factor == pytest.approx(factor, rel=1e-14)


def test_the_si_unit_of_every_dimension_has_factor_one():
    for dimension, symbol in u.SI_UNIT.items():
        assert (u.parse_unit(symbol).dimension, u.parse_unit(symbol).factor) == (dimension, 1.0)


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("counts", "2 pi / counts per turn"), ("Ticks", "2 pi / counts per turn"),
        ("px", "length of one pixel"), ("Hz", "2 pi"), ("Rad", r"\[rad\]"),
        ("MV", r"\[(mV|V)\]"), ("", "plain number"),
        ("furlong", "rad/s"), ("rad s", "rad/s"), ("m n", "rad/s"),
    ],
)  # fmt: skip
def test_other_units_are_refused_with_advice(text, cure):
    with pytest.raises(u.UnitError) as caught:
        u.parse_unit(text)
    assert caught.match("unit")
    assert re.search(cure, caught.value.cure)


@pytest.mark.parametrize(
    ("cell", "parts"),
    [
        ("q_arm [rad]", ("q_arm", "rad")),
        ("  joint angle (left)[ deg/s ] ", ("joint angle (left)", "deg/s")),
        ("q", ("q", None)),
        ("q []", ("q", "")),
        ("q [rad] raw", ("q [rad] raw", None)),
        ("", ("", None)),
    ],
)
def test_headers_are_split_into_name_and_unit(cell, parts):
    assert u.split_header(cell) == parts
