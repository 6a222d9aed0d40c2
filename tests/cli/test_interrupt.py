"""Ctrl-C ends a command at any moment: while it imports, compiles, iterates. What there is then is kept."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from cli.scenes import SLIDER, STUDY, study_folder, write

from spookax import _compiled
from spookax.estimation.batch.problem import Iterate
from spookax.protocol import Noise
from spookax.study.running.checkpoint import FINISHED, UNFINISHED, keep_iterate, load_levels

RESIDUAL = STUDY.replace("{estimate: false}", "{estimate: false, kind: bodies, density: 1.0}\n  form: residual")


def as_tests() -> tuple[str, str]:
    """What `python -m spookax` does, with programs that compile as quickly as those of tests."""
    options = f"_compiled.PLAIN.update({_compiled.PLAIN}); _compiled.QUICK.update({_compiled.QUICK})"
    run = 'runpy.run_module("spookax", run_name="__main__")'
    return "-c", f"import runpy; from spookax import _compiled; {options}; {run}"


@contextmanager
def started(*arguments: object, how: tuple[str, str] = ("-m", "spookax")) -> Iterator["subprocess.Popen[str]"]:
    """A command as a terminal starts it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored ones would be handed on
    command = [sys.executable, *how, *map(str, arguments)]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            yield process
            process.kill()
    finally:
        signal.signal(signal.SIGINT, before)


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Exit status, and what else is on stderr."""
    _, said = process.communicate(timeout=120)
    assert "Traceback" not in said
    return process.returncode, said


@pytest.mark.parametrize("moment", [0.3, 1.0, 2.0])
def test_while_it_imports_and_starts(tmp_path: Path, moment: float):
    scene = write(tmp_path, slider_yaml=SLIDER.replace("step: 0.01", "step: 1e-6")) / "slider.yaml"
    with started("simulate", scene, "--time", 20, "--out", tmp_path / "out.csv") as process:
        time.sleep(moment)
        process.send_signal(signal.SIGINT)
        assert ended(process) == (130, "interrupted; nothing was written\n")
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(("command", "study"), [("filter", STUDY), ("smooth", STUDY), ("identify", RESIDUAL)])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130)])
def test_while_it_compiles(tmp_path: Path, command: str, study: str, number: int, status: int):
    file = write(study_folder(tmp_path), study_yaml=study) / "study.yaml"
    with started(command, file, "--out", tmp_path / "out") as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("compiling")
        process.send_signal(number)
        assert ended(process) == (status, "interrupted; nothing was written\n")
    assert not list((tmp_path / "out").iterdir())


def test_sigterm_while_it_iterates_keeps_the_iterate_even_if_it_comes_twice(tmp_path: Path):
    file = study_folder(tmp_path) / "study.yaml"
    out = tmp_path / "out"
    with started("identify", file, "--out", out, how=as_tests()) as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("stages"):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        while "a second signal is needed" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        status, said = ended(process)
    assert status == 143
    assert said.endswith(f"interrupted; {out} has an iterate, from which --resume goes on\n")
    with np.load(out / UNFINISHED) as kept:
        assert kept["z"].shape == (1,)


class Setup:
    """What `load_levels` asks of one."""

    problem = type("Problem", (), {"z0": np.zeros(2)})
    sensor_sd = np.zeros(1)


def test_an_iterate_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def keep(z: float) -> None:
        noise = Noise(jnp.ones(()), jnp.ones(1))
        keep_iterate(tmp_path, 0, noise, Iterate(jnp.full(2, z), (), ()))

    keep(1.0)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        keep(2.0)
    with np.load(tmp_path / UNFINISHED) as kept:
        np.testing.assert_array_equal(kept["z"], 1.0)
    (tmp_path / UNFINISHED).rename(tmp_path / FINISHED)  # levels are those of an estimate, never of what was cut short
    monkeypatch.undo()
    keep(3.0)
    np.testing.assert_array_equal(load_levels(tmp_path, Setup)[0], 1.0)
