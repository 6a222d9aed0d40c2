"""What is being compiled, for whoever listens: the shell does."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

Stage = Literal["due", "compiling", "ready"]
Listener = Callable[[str, Stage], None]

_listeners: list[Listener] = []


def announce(name: str, stage: Stage) -> None:
    """Say that a program will be needed, is being compiled, or is ready. Without a listener nothing happens."""
    for hear in tuple(_listeners):
        hear(name, stage)


@contextmanager
def compiling(name: str) -> Iterator[None]:
    """Announce a program before and after it is compiled, also where that fails."""
    announce(name, "compiling")
    try:
        yield
    finally:
        announce(name, "ready")


@contextmanager
def listening(hear: Listener) -> Iterator[None]:
    """Under it `hear(name, stage)` is called with every announcement, in the thread that compiles."""
    _listeners.append(hear)
    try:
        yield
    finally:
        _listeners.remove(hear)
