"""What the shell says when something cannot be done, and the exit status that goes with it."""

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from .._interruption import exit_status, still_computing, stoppable

if TYPE_CHECKING:
    from ..scene import FileError, FileProblem

BAD_INPUT = 2
FAILED = 1
NOBODY_READS = 141  # what shells give a process that wrote into a closed pipe


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """A file that is refused or cannot be written ends the command with one report on stderr and status 2; a signal or
    a closed pipe with the status that shells give for it.
    """
    try:
        yield
    except KeyboardInterrupt as stopped:
        status = exit_status(stopped)
        with stoppable() as stop:
            typer.echo(f"interrupted; {stop.kept}", err=True)
        if still_computing():  # an ordinary exit waits for the compiler, or takes away what it works on
            sys.stdout.flush()
            os._exit(status)
        raise typer.Exit(status) from None
    except BrokenPipeError:  # `| head`: whoever closed the pipe has read enough
        for stream in (sys.stdout, sys.stderr):  # what they still hold is written when Python ends
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise typer.Exit(NOBODY_READS) from None
    except OSError as failed:
        where = f"{failed.filename}: " if failed.filename else ""
        cure = "Check the name, the folder and your rights."
        if isinstance(failed, FileExistsError | NotADirectoryError):
            cure = "A file stands where a folder is wanted: choose another name."
        typer.echo(f"{where}{failed.strerror or failed}. {cure}", err=True)
        raise typer.Exit(BAD_INPUT) from None
    except _file_error() as refused:
        typer.echo(str(refused), err=True)
        raise typer.Exit(BAD_INPUT) from None


def _file_error() -> "type[FileError]":
    """Imported only where something was raised: reading files is what takes long to import."""
    from ..scene import FileError

    return FileError


def refuse(file: Path | str, message: str, cure: str) -> "FileError":
    """A report of one problem with a file as a whole."""
    from ..scene import FileError

    return FileError([doubt(file, message, cure)])


def doubt(file: Path | str, message: str, cure: str) -> "FileProblem":
    """Something about a file as a whole, to refuse it or to warn."""
    from ..scene import FileProblem

    return FileProblem(str(file), 0, "", None, message, cure)


def warn(doubts: "Iterable[FileProblem]") -> None:
    """What looks like a slip, on stderr."""
    for problem in doubts:
        typer.echo(f"warning: {problem}", err=True)
