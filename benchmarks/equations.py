"""The equations of a traced program, and the lines of the package that they come from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import spookax as sx

HERE = str(Path(sx.__file__).parent) + "/"
Place = tuple[tuple[str, str, int], ...]
"""The package's functions that were being called, innermost first: file below the package, name, line."""


def equations(jaxpr: Any) -> Iterator[tuple[Place, bool]]:
    """Place of every primitive, as often as it is called, and whether it is met for the first time."""
    met: set[int] = set()

    def walk(jaxpr: Any, caller: Place) -> Iterator[tuple[Place, bool]]:
        new = id(jaxpr) not in met
        met.add(id(jaxpr))
        for equation in jaxpr.eqns:
            place = _place_of(equation.source_info.traceback) + caller  # what is traced once knows no caller
            below = list(_jaxprs(equation.params))
            if not below:
                yield place, new
            for part in below:
                yield from walk(part, place if equation.primitive.name in ("jit", "pjit") else caller)

    yield from walk(jaxpr, ())


def _jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    for value in params.values():
        for item in value if isinstance(value, list | tuple) else (value,):
            if hasattr(item, "eqns"):
                yield item
            elif hasattr(item, "jaxpr") and hasattr(item.jaxpr, "eqns"):
                yield item.jaxpr


def _place_of(traceback: Any) -> Place:
    frames = traceback.frames if traceback is not None else ()
    ours = ((frame.file_name, frame.function_name, frame.line_num) for frame in frames)
    return tuple((file[len(HERE) :], name, line) for file, name, line in ours if file.startswith(HERE))
