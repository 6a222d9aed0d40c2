"""Units in column headers: `name [unit]`, converted to SI with a check of the dimension.

A table of the units that recordings of mechanisms carry, and nothing more: no prefixes are
multiplied out and no algebra is done, so that a header either means one thing or is refused.
"""

import math
import re
from dataclasses import dataclass, field

TIME, ANGLE, ANGULAR_RATE = "time", "angle", "angular rate"
LENGTH, SPEED, ACCELERATION = "length", "speed", "acceleration"
VOLTAGE, CURRENT, FORCE, TORQUE, NUMBER = "voltage", "current", "force", "torque", "plain number"

SI_UNIT = {
    TIME: "s", ANGLE: "rad", ANGULAR_RATE: "rad/s", LENGTH: "m", SPEED: "m/s", ACCELERATION: "m/s^2",
    VOLTAGE: "V", CURRENT: "A", FORCE: "N", TORQUE: "N m", NUMBER: "1",
}  # fmt: skip
"""SI unit of each dimension; values are always converted to it."""


class UnitError(ValueError):
    """A unit that cannot be used. `cure` says what to write instead."""

    def __init__(self, message: str, cure: str) -> None:
        super().__init__(message)
        self.cure = cure


@dataclass(frozen=True)
class Unit:
    """A unit of measurement: `value_SI = factor * value`."""

    symbol: str = field(compare=False)  # deg and ° are one unit
    dimension: str
    factor: float


_TABLE: dict[str, dict[str, float]] = {
    TIME: {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0},
    ANGLE: {
        "rad": 1.0, "mrad": 1e-3, "deg": math.pi / 180, "°": math.pi / 180, "turn": 2 * math.pi,
        "rev": 2 * math.pi,
    },
    ANGULAR_RATE: {
        "rad/s": 1.0, "mrad/s": 1e-3, "deg/s": math.pi / 180, "°/s": math.pi / 180, "turn/s": 2 * math.pi,
        "rev/s": 2 * math.pi, "rpm": math.pi / 30, "rev/min": math.pi / 30,
    },
    LENGTH: {"m": 1.0, "cm": 1e-2, "mm": 1e-3, "um": 1e-6, "km": 1e3},
    SPEED: {"m/s": 1.0, "cm/s": 1e-2, "mm/s": 1e-3, "um/s": 1e-6, "km/h": 1 / 3.6},
    ACCELERATION: {"m/s^2": 1.0, "m/s²": 1.0, "mm/s^2": 1e-3, "mm/s²": 1e-3},
    VOLTAGE: {"V": 1.0, "mV": 1e-3, "kV": 1e3},
    CURRENT: {"A": 1.0, "mA": 1e-3, "uA": 1e-6},
    FORCE: {"N": 1.0, "mN": 1e-3, "kN": 1e3},
    TORQUE: {"Nm": 1.0, "mNm": 1e-3, "kNm": 1e3, "Nmm": 1e-3, "Ncm": 1e-2},
    NUMBER: {"1": 1.0, "%": 1e-2, "0/1": 1.0},
}  # fmt: skip

_UNITS = {
    symbol: Unit(symbol, dimension, factor)
    for dimension, factors in _TABLE.items()
    for symbol, factor in factors.items()
}

_REFUSED = {
    frozenset({"count", "counts", "tick", "ticks", "step", "steps", "lsb", "digit", "digits"}): (
        "encoder counts have no size of their own",
        "Multiply the column by the size of one count (2 pi / counts per turn) and write [rad].",
    ),
    frozenset({"hz", "khz"}): (
        "a frequency is neither an angular rate nor a time",
        "Multiply by 2 pi and write [rad/s], or write turns per second as [turn/s].",
    ),
    frozenset({"px", "pixel", "pixels"}): (
        "pixels have no size of their own",
        "Multiply the column by the length of one pixel and write [m].",
    ),
}

_HEADER = re.compile(r"(?P<name>.*?)\s*\[(?P<unit>[^\[\]]*)\]\s*", re.DOTALL)


def split_header(cell: str) -> tuple[str, str | None]:
    """Splits a header cell `name [unit]` into `(name, unit)`.

    `unit` is None when the cell has no brackets; empty brackets give the empty text, which
    `parse_unit` refuses. A name may hold spaces and round brackets, not square ones.
    """
    match = _HEADER.fullmatch(cell.strip())
    if match is None:
        return cell.strip(), None
    return match["name"].strip(), match["unit"].strip()


def is_unit(text: str) -> bool:
    """Whether `parse_unit` knows it."""
    try:
        return bool(parse_unit(text))
    except UnitError:
        return False


def parse_unit(text: str) -> Unit:
    """The unit that `text` names.

    A product of newtons and metres may be written `Nm`, `N m`, `N.m`, `N*m` or `N·m`; micro is
    `u` or `µ`. Capitals matter (`mV` is not `MV`).

    **Raises:** `UnitError`, with a cure, for an unknown unit or one without a fixed size (counts).
    """
    symbol = text.strip().replace("\u00b5", "u").replace("\u03bc", "u").replace("\u00ba", "°")
    symbol = re.sub(r"(?<=N)[\s.*·⋅]+(?=[cm]?m\b)", "", symbol)
    symbol = re.sub(r"\s*/\s*", "/", symbol)
    if unit := _UNITS.get(symbol):
        return unit
    for words, (reason, cure) in _REFUSED.items():
        if symbol.lower() in words:
            raise UnitError(f"the unit '{text}' cannot be converted: {reason}", cure)
    same = sorted(known for known in _UNITS if known.lower() == symbol.lower())
    if same:
        raise UnitError(f"unknown unit '{text}'", f"Write [{same[0]}]; capitals matter.")
    if not symbol:
        raise UnitError("the unit is empty", "Write for example [s], [rad], [V]; [1] for a plain number.")
    raise UnitError(f"unknown unit '{text}'", f"Use one of {', '.join(_UNITS)}.")
