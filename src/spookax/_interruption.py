"""Ctrl-C while something long is computed: a stop at the next safe point, and at once when it is pressed again."""

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
    """What Ctrl-C has asked for: `asked` by the first, `at_once` by the second."""

    def __init__(self) -> None:
        self.asked = self.at_once = False

    def check(self) -> None:
        """A safe point.

        **Raises:** `KeyboardInterrupt` if a stop was asked for.
        """
        if self.asked:
            raise KeyboardInterrupt

    def press(self, *_: Any) -> None:
        """The handler of the signal."""
        if self.asked:
            self.at_once = True
            raise KeyboardInterrupt
        self.asked = True
        with contextlib.suppress(RuntimeError):  # the signal came while the same stream was written to
            print("stopping after this step; press Ctrl-C again to stop at once", file=sys.stderr, flush=True)


_stops: list[Stop] = []  # of the outermost `stoppable`


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Under it Ctrl-C asks for a stop. One inside another shares its `Stop`.

    An exception that a signal raises in the middle of JAX may be lost in one of its callbacks. Nothing changes outside
    the main thread, or where Ctrl-C already does something else than usual.
    """
    here = threading.current_thread() is threading.main_thread()
    if here and _stops:
        yield _stops[0]
    elif here and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        _stops.append(Stop())
        signal.signal(signal.SIGINT, _stops[0].press)
        try:
            yield _stops[0]
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _stops.clear()
    else:
        yield Stop()


def still_computing() -> bool:
    """Whether a thread goes on with what was given up: inside the compiler it cannot be ended."""
    return any(thread.name.startswith(WORKER) for thread in threading.enumerate())
