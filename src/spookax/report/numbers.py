"""Numbers as text. What is missing or not a number reads as a dash."""

import math
from typing import Any

MISSING = "–"


def finite(value: Any) -> float | None:
    """The value as a float; None if it is missing, not a number or infinite."""
    if value is None or isinstance(value, str | bool):
        return None
    value = float(value)
    return value if math.isfinite(value) else None


def number(value: Any, digits: int = 4) -> str:
    """To some significant digits, as Python reads it back; infinities as such."""
    if value is None or isinstance(value, str | bool) or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{float(value):.{digits}g}"


def measured(value: Any, sd: Any) -> str:
    """A value to the second digit of its standard deviation, but with 4 to 12 digits."""
    v, s = finite(value), finite(sd)
    digits = 4
    if v and s:
        digits = min(max(math.floor(math.log10(abs(v))) - math.floor(math.log10(abs(s))) + 2, 4), 12)
    return number(value, digits)


def levels(values: Any, digits: int = 4) -> str:
    """One number, or those of several components; equal ones once."""
    listed = list(values) if isinstance(values, list | tuple) else [values]
    return ", ".join(dict.fromkeys(number(value, digits) for value in listed)) or MISSING


def with_sd(value: Any, sd: Any) -> str:
    """A value and its standard deviation, where there is one."""
    return measured(value, sd) if finite(sd) is None else f"{measured(value, sd)} ± {number(sd, 2)}"


def percent(ratio: Any, digits: int = 3) -> str:
    """A ratio in percent."""
    ratio = finite(ratio)
    return MISSING if ratio is None else f"{100 * ratio:.{digits}g} %"


def unit(text: Any) -> str:
    """A unit as one prints it: kg m^2 as kg m², and nothing for a pure number."""
    text = "" if text in (None, "1") else str(text)
    return text.replace("^2", "²").replace("^3", "³")


def units(text: Any) -> str:
    """The units of a sensor's numbers, listed as `m, m, m`: those that are equal once."""
    return ", ".join(dict.fromkeys(str(text or "").split(", ")))


def with_unit(value: str, text: Any) -> str:
    """A number in its unit."""
    return f"{value} {unit(text)}".strip()
