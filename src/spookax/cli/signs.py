"""Signs of life on stderr while a command works: what it does, what it compiles and how far that is."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .._interruption import stoppable
from .._progress import Stage, listening

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from ..study.identifying.identify import Progress

HEAD = f"{'phase':<12} {'iteration':>9} {'cost':>13} {'step':>10} {'damping':>10} {'time':>8}"
_SHOWN = 2  # names of programs in the live line


class Signs:
    """On a terminal a live line that `phase` changes, with lines above it. Elsewhere the lines, and one more when
    compiling begins. `said` is what that one says; without it, or where `quiet`, nothing is told elsewhere.
    """

    def __init__(self, bar: "Bar | None", first: str, said: str, quiet: bool):
        self._bar, self._said, self._quiet = bar, said, quiet
        self._task = None if bar is None else bar.add_task(first, total=None)
        self._text = first
        self._under_way: list[str] = []
        self._due = self._ready = 0

    def phase(self, text: str) -> None:
        """What is done from now on."""
        self._text = text
        self._show()

    def line(self, text: str) -> None:
        """A line that stays."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False)
        elif not self._quiet:
            print(text, file=sys.stderr, flush=True)

    def hear(self, name: str, stage: Stage) -> None:
        """The listener of the compiler."""
        if stage == "due":
            self._due += 1
        elif stage == "compiling":
            self._under_way.append(name)
            if self._said and self._bar is None:
                self.line(self._said)
                self._said = ""
        elif name in self._under_way:
            self._under_way.remove(name)
            self._ready += 1
        self._show()

    def _show(self) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=self._compiling() or self._text)

    def _compiling(self) -> str:
        under_way = self._under_way.copy()
        names = list(dict.fromkeys(name.strip("_").replace("_", " ") for name in under_way))
        if not names:
            return ""
        most = max(self._due, self._ready + len(under_way))
        more = " and others" * (len(names) > _SHOWN)
        return f"compiling {', '.join(names[:_SHOWN])}{more}; {self._ready} of {most} programs are ready"


@contextmanager
def signs(first: str, said: str = "", *, quiet: bool = False) -> Iterator[Signs]:
    """Signs of life under it. `first`: what is done first; `said`: the line that tells of compiling where stderr is no
    terminal; `quiet`: none at all.
    """
    if quiet or not sys.stderr.isatty():
        found = Signs(None, first, said, quiet)
        with listening(found.hear):
            yield found
        return
    print(f"{first} ...", end="", file=sys.stderr, flush=True)  # what comes next takes a while to import
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with stoppable() as stop, Bar(*columns, console=console, transient=True) as bar:
        found = Signs(bar, first, said, quiet)
        stop.endings.append(bar.stop)
        try:
            with listening(found.hear):
                yield found
        finally:
            stop.endings.remove(bar.stop)


def by_iteration(told: Signs) -> "Callable[[Progress], None]":
    """A callback for `identify`: a line for every iteration, under the head of the table."""
    first = True

    def report(line: "Progress") -> None:
        nonlocal first
        if first:
            told.line(HEAD)
            first = False
        told.line(progress_line(line))
        told.phase(line.phase)

    return report


def by_recording(told: Signs) -> Callable[[str], None]:
    """A callback for what goes through recordings: a line for each that is begun."""

    def report(run: str) -> None:
        told.line(f"recording {run}")
        told.phase(run)

    return report


def by_phase(told: Signs) -> Callable[[str], None]:
    """A callback for what has phases of its own: a line for each that is begun."""

    def report(phase: str) -> None:
        told.line(phase)
        told.phase(phase)

    return report


def progress_line(line: "Progress") -> str:
    """One iteration: phase (with its stage, where it has several), iteration, cost, step, damping, time."""
    phase = f"{line.phase} {line.stage + 1}" if line.phase == "stages" else line.phase
    return (
        f"{phase:<12} {line.iteration:9d} {line.cost:13.6g} {line.step:10.2e} {line.damping:10.2e} "
        f"{line.seconds:6.1f} s"
    )
