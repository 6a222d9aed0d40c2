"""What a file says and the other format cannot: collected, listed and, unless allowed, refused."""

import os
from collections.abc import Iterable

from spookax.scene import FileError, FileProblem


class MjcfError(FileError):
    """A conversion was refused; `problems` says everything that cannot be represented, or why nothing can."""


class Report:
    """Collects what is missing from the result of a conversion of `file`."""

    def __init__(self, file: str | os.PathLike[str]):
        self.file = os.fspath(file)
        self.missing: list[FileProblem] = []

    def add(self, what: str, message: str, cure: str) -> None:
        """`what`: kind and name of the element; a message is listed once for each element."""
        problem = FileProblem(self.file, 0, what, None, message, cure)
        if problem not in self.missing:
            self.missing.append(problem)

    def settle(self, allowed: bool) -> tuple[FileProblem, ...]:
        """What is missing, if that is allowed.

        **Raises:** `MjcfError` if anything is missing and that is not allowed.
        """
        if self.missing and not allowed:
            raise MjcfError(self.missing)
        return tuple(self.missing)

    def refuse(self, what: str, message: str, cure: str) -> MjcfError:
        """An error that no allowance helps against, after everything that was found before it."""
        return MjcfError([*self.missing, FileProblem(self.file, 0, what, None, message, cure)])


def listed(names: Iterable[str], most: int = 6) -> str:
    """Names in one phrase: `a`, `b` and 3 more."""
    quoted = [f"`{name}`" for name in names]
    shown, rest = quoted[:most], len(quoted) - most
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")
