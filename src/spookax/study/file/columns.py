"""Columns of a recording, found by name and converted to SI units."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from spookax.scene.explain import nearest
from spookax.study.file import units as u
from spookax.study.file.study import Column
from spookax.study.file.table import Report, Table, numbers

Values = Float[np.ndarray, " n"]


@dataclass(frozen=True)
class Picked:
    """A column in SI units, and what to call it in a report."""

    values: Values
    unit: str
    label: str


class Picker:
    """Finds columns of a table by name, checks their units and converts their numbers."""

    def __init__(self, table: Table, report: Report) -> None:
        self.table = table
        self.report = report
        self.names = [u.split_header(cell) for cell in table.header]
        self.read: dict[int, Values] = {}

    def __call__(self, column: Column, use: str, allowed: Sequence[str], named: str = "") -> Picked:
        """The column in SI units; its numbers are NaN where there is a problem, which is in the report.

        `use`: what for, in words; `named`: where, if the reader may have to look there.
        """
        found = [index for index, (name, _) in enumerate(self.names) if name == column.column]
        line = self.table.header_line
        if len(found) != 1:
            known = [name for name, _ in self.names]
            count = f"{len(found)} columns" if found else "no column"
            cure = "Give each column its own name." if found else self._absent(column.column, known)
            self.report.add(f"{count} '{column.column}' for {use}{named}", cure, line=line, column=column.column)
            return Picked(np.full(len(self.table.columns[0]), np.nan), "", column.column)
        (index,) = found
        label = self.table.label(index)
        unit = self._unit(index, column, use, allowed)
        if index not in self.read:
            needed = "Every sample needs a time; delete the line." if allowed == (u.TIME,) else None
            self.read[index] = numbers(self.table, index, self.report, needed)
        return Picked(self.read[index] * unit.factor, u.SI_UNIT[unit.dimension], label)

    @staticmethod
    def _absent(name: str, known: Sequence[str]) -> str:
        """What to do where there is no column of a name."""
        for other in known:
            if unit := re.fullmatch(re.escape(name) + r"\s*\((.*)\)", other):
                return f"Write `{name} [{unit[1]}]` in the header for `{other}`: units stand in square brackets."
        return nearest(name, known)

    def _unit(self, index: int, column: Column, use: str, allowed: Sequence[str]) -> u.Unit:
        """The column's unit; when there is none that fits, the SI unit of what is expected."""
        name, text = self.names[index]
        label, line = self.table.label(index), self.table.header_line
        otherwise = u.parse_unit(u.SI_UNIT[allowed[0]])
        examples = " or ".join(f"[{u.SI_UNIT[dimension]}]" for dimension in allowed)
        given = column.unit if text is None else text
        if given is None:
            cure = f"Write `{name} [unit]` in the header, or `{{column: {name}, unit: ...}}` in the study"
            self.report.add("has no unit", f"{cure}; here {examples}.", line=line, column=label)
            return otherwise
        try:
            unit = u.parse_unit(given)
        except u.UnitError as error:
            self.report.add(str(error), error.cure, line=line, column=label, value=given)
            return otherwise
        if unit.dimension not in allowed:
            expected = " or ".join(allowed)
            message = f"{use} must be {_a(expected)}, but [{given}] is {_a(unit.dimension)}"
            cure = f"Name another column, or write {examples} if the unit is wrong."
            self.report.add(message, cure, line=line, column=label, value=given)
        elif text is not None and column.unit is not None and u.parse_unit(column.unit) != unit:
            message = f"the header says [{text}], the study says [{column.unit}]"
            self.report.add(message, "Take the unit out of the study file.", line=line, column=label)
        return unit


def _a(words: str) -> str:
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"
