"""Signs of life on stderr: a live line on a terminal, else a line or none."""

import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.scenes import SLIDER, write

from spookax._progress import announce
from spookax.cli.signs import Signs, by_recording, signs

SOON = 0.5  # [s] to the first word


class Bar:
    """What `Signs` asks of a bar."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def add_task(self, text: str, total: None) -> int:
        self.shown.append(text)
        return 0

    def update(self, task: int, description: str) -> None:
        self.shown.append(description)


def test_the_live_line_says_what_is_compiled_and_how_far_that_is():
    bar = Bar()
    told = Signs(bar, "reading", "", quiet=False)
    for name, stage in (
        *[("", "due")] * 3,
        ("_placed", "compiling"),
        ("step_rows", "compiling"),
        ("step_rows", "compiling"),
        ("third", "compiling"),
        ("_placed", "ready"),
        ("step_rows", "ready"),
        ("step_rows", "ready"),
        ("third", "ready"),
    ):
        told.hear(name, stage)
    told.phase("stages")
    assert bar.shown[0] == "reading"
    assert bar.shown[4] == "compiling placed; 0 of 3 programs are ready"
    assert bar.shown[7] == "compiling placed, step rows and others; 0 of 4 programs are ready"
    assert bar.shown[-3:-1] == ["compiling third; 3 of 4 programs are ready", "reading"]
    assert bar.shown[-1] == "stages"


def test_elsewhere_one_line_tells_of_compiling(capsys: pytest.CaptureFixture[str]):
    with signs("reading", "compiling ...") as told:
        announce("first", "compiling")
        announce("first", "ready")
        announce("second", "compiling")
        by_recording(told)("train")
    assert capsys.readouterr().err == "compiling ...\nrecording train\n"


@pytest.mark.parametrize("quiet", [True, False])
def test_nothing_is_said_where_it_is_not_asked_for(capsys: pytest.CaptureFixture[str], quiet: bool):
    with signs("reading", "compiling ..." if quiet else "", quiet=quiet):
        announce("first", "compiling")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", ["check", "simulate", "--help"])
def test_a_word_stands_on_the_terminal_at_once(tmp_path: Path, command: str):
    """After what Python itself takes to start, which is measured in the same breath."""
    scene = write(tmp_path, slider_yaml=SLIDER) / "slider.yaml"
    more = {"check": [scene], "simulate": [scene, "--time", "nan"]}.get(command, [])
    bare = min(_seconds_to_a_word("-c", "import typing, threading; print('x')") for _ in range(3))
    took = min(_seconds_to_a_word("-m", "spookax", command, *more) for _ in range(3))
    assert took - bare < SOON


def _seconds_to_a_word(*arguments: object) -> float:
    """Until something that can be read is written on a terminal that is stderr and stdout."""
    main, side = pty.openpty()
    began = time.perf_counter()
    command = [sys.executable, *map(str, arguments)]
    with subprocess.Popen(command, stdout=side, stderr=side, stdin=subprocess.DEVNULL) as process:
        os.close(side)
        said = b""
        while not re.search(rb"[A-Za-z]", said):
            said += os.read(main, 1024)
        took = time.perf_counter() - began
        process.kill()
    os.close(main)
    return took
