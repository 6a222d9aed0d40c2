"""The check of annotated shapes and dtypes as functions are called; `SPOOKAX_SHAPES=1 pytest FILE` turns it on."""

from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype

# where arrays are; files and the shell are checked by pydantic and by their tests
ROOMS = "math collision complementarity system constraints stepping sensors protocol models estimation control"
MODULES = [f"spookax.{name}" for name in ROOMS.split()]
_check: Any = beartype(conf=BeartypeConf(is_pep484_tower=True))


def called(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its arguments and result checked. Those that make a module are not: it may be a batch of them,
    whose arrays have an axis more than one has.
    """
    return function if function.__name__ == "__init__" else _check(function)
