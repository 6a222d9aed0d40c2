"""Ctrl-C and SIGTERM ask for a stop, and a second one ends what goes on at once."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from spookax._interruption import WORKER, exit_status, stoppable
from spookax._threads import concurrently

USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
AGAIN = {signal.SIGINT: "press Ctrl-C again", signal.SIGTERM: "a second signal is needed"}
STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}  # as shells give it


@pytest.fixture(autouse=True)
def usual_handlers():
    before = {number: signal.signal(number, handler) for number, handler in USUAL.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def press():
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", list(USUAL))
def test_the_first_asks_and_the_second_raises(capsys, number):
    with stoppable() as stop:
        stop.check()
        signal.raise_signal(number)
        assert stop.asked
        assert not stop.at_once
        assert stop.exit_status == STATUS[number]
        assert capsys.readouterr().err == f"stopping after this step; {AGAIN[number]} to stop at once\n"
        with pytest.raises(KeyboardInterrupt) as raised:
            stop.check()
        assert exit_status(raised.value) == STATUS[number]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        assert stop.at_once
    assert {n: signal.getsignal(n) for n in USUAL} == USUAL
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


def from_outside(number: int = signal.SIGINT):
    """As the system delivers a signal: the main thread hears it."""
    signal.pthread_kill(threading.main_thread().ident or 0, number)


def test_what_runs_beside_the_main_thread_hands_on_what_comes_of_it():
    with stoppable() as stop:
        assert stop.run(lambda: (threading.current_thread() is threading.main_thread(), 3)) == (False, 3)
    with stoppable() as stop, pytest.raises(SystemExit) as raised:
        stop.run(lambda: sys.exit(2))
    assert raised.value.code == 2


@pytest.mark.parametrize("number", list(USUAL))
def test_beside_it_the_first_signal_ends_the_waiting_where_nothing_is_kept(number):
    go_on = threading.Event()

    def task() -> None:
        from_outside(number)
        go_on.wait(60)

    start = time.monotonic()
    with stoppable() as stop:
        with pytest.raises(KeyboardInterrupt):
            stop.run(task)
        assert (stop.at_once, stop.exit_status) == (True, STATUS[number])
    assert time.monotonic() - start < 30
    go_on.set()


def test_beside_it_the_first_signal_waits_for_what_is_kept(capsys):
    def task() -> str:
        with stoppable() as mine, mine.waiting("writing"):
            from_outside()
            while not mine.asked:
                time.sleep(0.01)
            return "written"

    with stoppable() as stop:
        assert stop.run(task) == "written"
        from_outside()  # all is done: it comes too late
        assert (stop.asked, stop.at_once, stop.after) == (True, False, "")
    assert capsys.readouterr().err == "stopping after writing; press Ctrl-C again to stop at once\n"


def test_beside_it_the_second_signal_does_not_wait():
    def task() -> None:
        with stoppable() as mine, mine.waiting("writing"):
            for _ in range(2):
                from_outside()
                while not mine.asked:
                    time.sleep(0.01)
            go_on.wait(60)

    go_on = threading.Event()
    with stoppable() as stop, pytest.raises(KeyboardInterrupt):
        stop.run(task)
    go_on.set()


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


@pytest.mark.parametrize("number", list(USUAL))
def test_the_shell_does_not_wait_either(number):
    """Python itself waits for threads before it ends."""
    program = f"""
import threading, time
from spookax.cli.errors import refusals
threading.Thread(target=time.sleep, args=[60], name={WORKER!r} + "_0").start()
with refusals():
    raise KeyboardInterrupt({int(number)})
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert result.returncode == STATUS[number]
    assert result.stderr == "interrupted; nothing was written\n"
