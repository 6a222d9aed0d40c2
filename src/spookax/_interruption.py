"""Ctrl-C or SIGTERM in a long computation: a stop at the next safe point, and at once when it comes again."""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

WORKER = "spookax-worker"
"""What the names of threads that compute begin with."""


class Stop:
    """What Ctrl-C or SIGTERM has asked for: `asked` by the first, `at_once` by the second.

    - `after`: what a first signal waits for, in words; empty where there is nothing to wait for.
    - `kept`: what is left if all ends at once, in words.
    - `endings`: called before all ends at once, such as what takes a line from the terminal.
    """

    def __init__(self) -> None:
        self.asked = self.at_once = False
        self.signal = int(signal.SIGINT)  # that asked
        self.after, self.kept = "", "nothing was written"
        self.endings: list[Callable[[], Any]] = []
        self.thread: threading.Thread | None = None  # in which `run` does its task
        self._done = False

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

    @contextmanager
    def waiting(self, after: str) -> Iterator[None]:
        """A first signal waits for what is done under it: files are written whole."""
        before, self.after = self.after, after
        try:
            yield
        finally:
            self.after = before

    def press(self, number: int = signal.SIGINT, *_: Any) -> None:
        """The handler of both signals."""
        if self._done:
            return
        again, self.signal = self.asked, self.signal if self.asked else int(number)
        self.asked = True
        if again or (self.thread is not None and not self.after):
            self.at_once = True
            raise KeyboardInterrupt(self.signal)
        more = "press Ctrl-C again" if number == signal.SIGINT else "a second signal is needed"
        with contextlib.suppress(RuntimeError, OSError):  # it came while the stream was written to, or that is closed
            print(f"stopping after {self.after or 'this step'}; {more} to stop at once", file=sys.stderr, flush=True)

    def run(self, task: Callable[[], T]) -> T:
        """The result of a task that is done in a thread of its own, while this one, the main thread, waits for signals.

        Python hears signals in the main thread only, and not while that is inside the compiler.

        **Raises:** what the task raises; `KeyboardInterrupt` where a signal does not wait, while the task goes on.
        """
        results: list[T] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                results.append(task())
            except BaseException as error:  # for the thread that waits
                errors.append(error)

        self.thread = threading.Thread(target=work, name=f"{WORKER}-main")
        self.check()  # a signal that came before now
        self.thread.start()
        self.thread.join()
        self._done = True
        if errors:
            raise errors[0]
        return results[0]


_stops: list[Stop] = []  # of the outermost `stoppable`
_USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Under it Ctrl-C and SIGTERM ask for a stop. One inside another shares its `Stop`, in the thread of `run`, too.

    An exception that a signal raises in the middle of JAX may be lost in one of its callbacks. Nothing changes outside
    the main thread, or for a signal that already does something else than usual.
    """
    here = threading.current_thread() is threading.main_thread()
    if _stops and (here or threading.current_thread() is _stops[0].thread):
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
    others = (thread for thread in threading.enumerate() if thread is not threading.current_thread())
    return any(thread.name.startswith(WORKER) for thread in others)
