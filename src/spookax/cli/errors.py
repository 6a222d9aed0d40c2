"""What the shell says when something cannot be done, and the exit status that goes with it."""

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import typer

from .._interruption import still_computing
from ..scene import FileError, FileProblem

BAD_INPUT = 2
FAILED = 1
INTERRUPTED = 130  # what shells give a process that Ctrl-C ended


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """A file that is refused or cannot be written ends the command with one report on stderr and status 2."""
    try:
        yield
    except FileError as refused:
        typer.echo(str(refused), err=True)
        raise typer.Exit(BAD_INPUT) from None
    except OSError as failed:
        where = f"{failed.filename}: " if failed.filename else ""
        typer.echo(f"{where}{failed.strerror or failed}. Check the name, the folder and your rights.", err=True)
        raise typer.Exit(BAD_INPUT) from None
    except KeyboardInterrupt:
        typer.echo("interrupted; nothing was written", err=True)
        if still_computing():  # an ordinary exit waits for the compiler, or takes away what it works on
            sys.stdout.flush()
            os._exit(INTERRUPTED)
        raise typer.Exit(INTERRUPTED) from None


def refuse(file: Path | str, message: str, cure: str) -> FileError:
    """A report of one problem with a file as a whole."""
    return FileError([FileProblem(str(file), 0, "", None, message, cure)])


def warn(doubts: Iterable[FileProblem]) -> None:
    """What looks like a slip, on stderr."""
    for problem in doubts:
        typer.echo(f"warning: {problem}", err=True)
