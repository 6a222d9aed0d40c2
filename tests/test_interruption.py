"""Ctrl-C asks for a stop, and pressed again it ends what goes on at once."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from spookax._interruption import WORKER, stoppable
from spookax._threads import concurrently


@pytest.fixture(autouse=True)
def usual_ctrl_c():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press():
    signal.raise_signal(signal.SIGINT)


def test_the_first_asks_and_the_second_raises(capsys):
    with stoppable() as stop:
        stop.check()
        press()
        assert stop.asked
        assert not stop.at_once
        assert capsys.readouterr().err == "stopping after this step; press Ctrl-C again to stop at once\n"
        with pytest.raises(KeyboardInterrupt):
            stop.check()
        with pytest.raises(KeyboardInterrupt):
            press()
        assert stop.at_once
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with stoppable() as stop:  # the next one begins anew
        stop.check()


def test_one_inside_another_is_the_same():
    with stoppable() as outer:
        with stoppable() as inner:
            assert inner is outer
        press()
        assert outer.asked


def test_a_handler_of_ones_own_stays():
    pressed = []
    signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    with stoppable() as stop:
        press()
        stop.check()
    assert pressed == [True]


def test_nothing_changes_outside_the_main_thread():
    handlers = []

    def work() -> None:
        with stoppable() as stop:
            handlers.append(signal.getsignal(signal.SIGINT))
            stop.check()

    with stoppable() as stop:
        press()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert handlers == [stop.press]
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers[1:] == [signal.default_int_handler]


def test_ctrl_c_does_not_wait_for_what_other_threads_do():
    began, go_on = threading.Event(), threading.Event()

    def task() -> None:
        began.set()
        go_on.wait(60)

    def ctrl_c() -> None:
        began.wait(60)
        time.sleep(0.5)  # until the main thread waits
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=ctrl_c).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        concurrently([task] * 2)
    assert time.monotonic() - start < 30
    assert any(thread.name.startswith(WORKER) for thread in threading.enumerate())
    go_on.set()


def test_the_shell_does_not_wait_either():
    """Python itself waits for threads before it ends."""
    program = f"""
import threading, time
from spookax.cli.errors import refusals
threading.Thread(target=time.sleep, args=[60], name={WORKER!r} + "_0").start()
with refusals():
    raise KeyboardInterrupt
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert result.returncode == 130
    assert result.stderr == "interrupted; nothing was written\n"
