"""Numbers, names and vectors of the files people write, as pydantic types that refuse what is not meant.

A number is never made from text or from true and false, and is always finite.
"""

import math
from collections.abc import Iterable
from typing import Annotated, Literal, TypeGuard

import pydantic

from spookax.scene.explain import Finding, refuse, shown


class Strict(pydantic.BaseModel):
    """Base of everything in a file: unknown keys are refused, and values do not change after reading."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


Number = Annotated[float, pydantic.Field(strict=True, allow_inf_nan=False)]
Positive = Annotated[float, pydantic.Field(strict=True, allow_inf_nan=False, gt=0)]
NonNegative = Annotated[float, pydantic.Field(strict=True, allow_inf_nan=False, ge=0)]


def _version(value: object) -> object:
    if type(value) is not int:  # true and 1.0 equal 1, too
        cure = "Write `spookax: 1`, the version of the format."
        refuse([Finding((), value, f"must be 1, got {shown(value)}", cure)])
    return value


Version = Annotated[Literal[1], pydantic.BeforeValidator(_version)]
Pair = tuple[Number, Number]
Vector = tuple[Number, Number, Number]
Text = Annotated[str, pydantic.Field(strict=True, min_length=1)]
_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
Name = Annotated[str, pydantic.Field(strict=True, pattern=rf"^{_NAME}$")]
AxisName = Annotated[str, pydantic.Field(strict=True, pattern=rf"^{_NAME}(\.{_NAME})?$")]
"""A joint, or `joint.axis` where a joint has several coordinates."""


def _direction(vector: Vector) -> Vector:
    if abs(math.hypot(*vector) - 1.0) < 1e-12:  # so that a written file reads back to the same numbers
        return vector
    largest = max(map(abs, vector))
    if largest == 0.0:
        refuse([Finding((), list(vector), "must not be zero", "Write a direction, such as [0, 0, 1].")])
    x, y, z = (component / largest for component in vector)  # squares cannot overflow
    length = math.hypot(x, y, z)
    return x / length, y / length, z / length


Direction = Annotated[Vector, pydantic.AfterValidator(_direction)]


def is_number(value: object) -> TypeGuard[float]:
    """Whether a raw value of a file would be taken for a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def matrix(values: Iterable[object]) -> list[list[float]] | None:
    """The rows of a 3 by 3 list of numbers; nothing if it is not one."""
    rows = [list(row) if isinstance(row, list | tuple) else [] for row in values]
    fits = len(rows) == 3 and all(len(row) == 3 and all(map(is_number, row)) for row in rows)
    return [[float(value) for value in row] for row in rows] if fits else None
