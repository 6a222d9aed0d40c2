"""`spookax` and `python -m spookax`: the shell, in a thread beside the one that hears Ctrl-C.

Little is imported here: a word stands on the terminal, and Ctrl-C is heard, before the rest is.
"""

import contextlib
import gc
import os
import signal
import sys
from typing import NoReturn

from ._interruption import Stop, stoppable

_ERASE = "\r\x1b[2K"


def main() -> int:
    """Run the command line; the exit status."""
    live = sys.stderr is not None and sys.stderr.isatty()
    if live:
        print("starting ...", end="", file=sys.stderr, flush=True)
    # OpenBLAS's threads wait for each other by spinning: where cores are taken a QR of 300 rows goes from 2 to 700 ms
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(200_000, 20, 100)  # tracing makes millions of objects, and few of them are cycles
    with stoppable() as stop:
        try:
            status = stop.run(lambda: _commands(live))
        except KeyboardInterrupt:
            _leave(stop, live)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done: no traceback from within Python's own end
    if stop.asked:  # nor another status from a second signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return status


def _commands(live: bool) -> int:
    try:
        from .cli import app
    finally:
        if live:
            print(_ERASE, end="", file=sys.stderr, flush=True)
    try:
        app()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _leave(stop: Stop, live: bool) -> NoReturn:
    """End at once: an ordinary exit waits for the compiler, or takes away what it works on."""
    with contextlib.suppress(Exception):  # nothing that goes wrong here may keep the process alive
        for end in stop.endings:
            end()
        print(f"{_ERASE if live else ''}interrupted; {stop.kept}", file=sys.stderr, flush=True)
    os._exit(stop.exit_status)


if __name__ == "__main__":
    sys.exit(main())
