"""Ctrl-C or SIGTERM in a long computation: a stop at the next safe point, and at once when it comes again."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

WORKER = "spookax-worker"
"""What the names of threads that compute begin with."""


class Stop:
    """What Ctrl-C or SIGTERM has asked for: `asked` by the first, `at_once` by the second."""

    def __init__(self) -> None:
        self.asked = self.at_once = False
        self.signal = int(signal.SIGINT)  # that asked

    @property
    def exit_status(self) -> int:
        """What shells give a process that the signal ended: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + self.signal

    def check(self) -> None:
        """A safe point.

        **Raises:** `KeyboardInterrupt` if a stop was asked for.
        """
        if self.asked:
            raise KeyboardInterrupt(self.signal)

    def press(self, number: int = signal.SIGINT, *_: Any) -> None:
        """The handler of both signals."""
        if self.asked:
            self.at_once = True
            raise KeyboardInterrupt(self.signal)
        self.asked, self.signal = True, int(number)
        again = "press Ctrl-C again" if number == signal.SIGINT else "a second signal is needed"
        with contextlib.suppress(RuntimeError, OSError):  # it came while the stream was written to, or that is closed
            print(f"stopping after this step; {again} to stop at once", file=sys.stderr, flush=True)


_stops: list[Stop] = []  # of the outermost `stoppable`
_USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Under it Ctrl-C and SIGTERM ask for a stop. One inside another shares its `Stop`.

    An exception that a signal raises in the middle of JAX may be lost in one of its callbacks. Nothing changes outside
    the main thread, or for a signal that already does something else than usual.
    """
    here = threading.current_thread() is threading.main_thread()
    if here and _stops:
        yield _stops[0]
        return
    stop, ours = Stop(), [number for number in _USUAL if here and signal.getsignal(number) is _USUAL[number]]
    if ours:
        _stops.append(stop)
    for number in ours:
        signal.signal(number, stop.press)
    try:
        yield stop
    finally:
        for number in ours:
            signal.signal(number, _USUAL[number])
        if ours:
            _stops.clear()


def exit_status(interruption: KeyboardInterrupt) -> int:
    """What shells give a process that the signal behind it ended."""
    return 128 + (interruption.args[0] if interruption.args else signal.SIGINT)


def still_computing() -> bool:
    """Whether a thread goes on with what was given up: inside the compiler it cannot be ended."""
    return any(thread.name.startswith(WORKER) for thread in threading.enumerate())
