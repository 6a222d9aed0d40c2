"""Expressions of numbers and of paths in a scene, as a study writes them: `1.2 - bodies.a.mass`.

Numbers, paths, `+ - * / **`, parentheses and `sqrt`. Nothing else is understood, and no code of the file is run.
"""

import ast
import functools
import graphlib
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_PATH = re.compile(r"(?<![\w.])[A-Za-z_][\w-]*(?:\.[\w-]+)+", re.ASCII)
_TWO: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_ONE: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}
_LONGEST = 300  # characters
CURE = "Write numbers, paths, + - * / **, parentheses and sqrt(), with spaces around a minus: `1.2 - bodies.a.mass`."


class ExpressionError(ValueError):
    """What is written is no expression; the message says where it stops being one."""


@dataclass(frozen=True)
class Expression:
    """A formula for one number by others of the scene."""

    text: str

    def __post_init__(self) -> None:
        """**Raises:** `ExpressionError`."""
        _parse(self.text)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that take part, each once, in their order."""
        return _parse(self.text)[1]

    def value(self, numbers: Mapping[str, Any]) -> Any:
        """Its value [SI] at the numbers of its paths: floats, or arrays of JAX, which differentiate it.

        **Raises:** `ArithmeticError` of floats, where nothing is the result.
        """
        tree, paths = _parse(self.text)
        return _evaluate(tree, {_placeholder(i): numbers[path] for i, path in enumerate(paths)})


@functools.cache
def _parse(text: str) -> tuple[ast.expr, tuple[str, ...]]:
    """The tree with a placeholder for every path, and the paths."""
    if len(text) > _LONGEST:
        raise ExpressionError(f"has more than {_LONGEST} characters")
    paths: dict[str, int] = {}

    def placed(match: re.Match[str]) -> str:
        return _placeholder(paths.setdefault(match.group(), len(paths)))

    try:
        tree = ast.parse(_PATH.sub(placed, text).strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError("cannot be read as an expression") from None
    _check(tree, {_placeholder(i) for i in range(len(paths))})
    return tree, tuple(paths)


def _placeholder(index: int) -> str:
    return f"path_{index}_"


def _check(node: ast.expr, known: set[str]) -> None:
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _TWO:
            _check(left, known)
            _check(right, known)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _ONE:
            _check(operand, known)
        case ast.Call(func=ast.Name(id="sqrt"), args=[argument], keywords=[]):
            _check(argument, known)
        case ast.Constant(value=value) if type(value) in (int, float):
            pass
        case ast.Name(id=name):
            if name not in known:
                raise ExpressionError(f"'{name}' is neither a number nor a path of the scene")
        case _:
            raise ExpressionError("holds something else than numbers, paths, + - * / **, parentheses and sqrt()")


def _evaluate(node: ast.expr, numbers: Mapping[str, Any]) -> Any:
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            return _TWO[type(op)](_evaluate(left, numbers), _evaluate(right, numbers))
        case ast.UnaryOp(op=op, operand=operand):
            return _ONE[type(op)](_evaluate(operand, numbers))
        case ast.Call(args=[argument]):
            return _evaluate(argument, numbers) ** 0.5
        case ast.Name(id=name):
            return numbers[name]
    assert isinstance(node, ast.Constant)
    return float(node.value)  # pyright: ignore[reportArgumentType]


def in_order(ties: Mapping[str, Expression]) -> list[str]:
    """Tied paths, each after those that its expression needs.

    **Raises:** `graphlib.CycleError`, whose second argument is a cycle.
    """
    needs = {path: [other for other in tie.paths if other in ties] for path, tie in ties.items()}
    return list(graphlib.TopologicalSorter(needs).static_order())


def tied_values(ties: Mapping[str, Expression], numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Value [SI] of every tied path, in the order in which they are worked out.

    **Raises:** `ArithmeticError` if one of floats has none.
    """
    known, found = dict(numbers), {}
    for path in in_order(ties):
        found[path] = known[path] = ties[path].value(known)
        if isinstance(found[path], complex):
            raise ArithmeticError("a root of a negative number")
    return found
