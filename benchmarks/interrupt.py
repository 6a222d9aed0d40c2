"""Ctrl-C at random moments of `identify` and `simulate`: exit status, what stands on stderr, what is left.

Status 0 means that all had been written when the signal came, and nothing was left to end.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

COMMANDS = {
    "simulate": ("simulate", "demo/furuta.yaml", "--time", "5", "--out", "{out}/swing.csv"),
    "identify": ("identify", "demo/furuta_study.yaml", "--out", "{out}"),
}
MOMENTS = 20  # of each command, half of them in first runs and half in later ones
_BEGINS = 0.1  # [s] that Python itself takes to start
_SOON = 60.0  # [s] in which a command has to end


def run() -> list[dict[str, Any]]:
    """A row for every moment; a first run has nothing compiled, a later one what an earlier run has kept."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and hands that on
    rng, rows = np.random.default_rng(0), []
    for name, command in COMMANDS.items():
        with tempfile.TemporaryDirectory() as kept:
            whole = [_seconds(command, Path(kept)) for _ in range(2)]  # fills the cache, uses it
            for kind, duration in zip(("first", "later"), whole, strict=True):
                moments = (np.arange(MOMENTS // 2) + rng.uniform(size=MOMENTS // 2)) / (MOMENTS // 2)
                for moment in _BEGINS + moments * (duration - _BEGINS):
                    with tempfile.TemporaryDirectory() as cache:
                        row = _interrupted(command, float(moment), Path(kept if kind == "later" else cache))
                    rows.append({"command": name, "run": kind, "whole [s]": round(duration, 1), **row})
                    print(" ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    return rows


def _environment(cache: Path) -> Mapping[str, str]:
    return os.environ | {"JAX_COMPILATION_CACHE_DIR": str(cache), "SPOOKAX_CACHE": str(cache)}


def _start(command: tuple[str, ...], out: Path, cache: Path, *more: str) -> subprocess.Popen[str]:
    arguments = [part.format(out=out) for part in command]
    return subprocess.Popen(
        [sys.executable, "-m", "spookax", *arguments, *more],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(cache),
    )


def _seconds(command: tuple[str, ...], cache: Path) -> float:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as out:
        process = _start(command, Path(out), cache)
        _, said = process.communicate()
    if process.returncode:
        raise RuntimeError(said)
    return time.perf_counter() - began


def _interrupted(command: tuple[str, ...], moment: float, cache: Path) -> dict[str, Any]:
    """One run that Ctrl-C ends, and whether `--resume` goes on from what it left."""
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        process = _start(command, out, cache)
        time.sleep(moment)
        over = process.poll() is not None
        pressed = time.perf_counter()
        if not over:
            process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=_SOON)
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
        words = [line for line in said.splitlines() if line.startswith("interrupted")] or said.splitlines() or [""]
        left = sorted(file.name for file in out.iterdir())
        return {
            "moment [s]": round(moment, 2),
            "status": process.returncode if not over else f"{process.returncode} (over)",
            "ends in [s]": 0.0 if over else round(time.perf_counter() - pressed, 2),
            "traceback": "yes" if any(word in said for word in ("Traceback", "Error", "Fatal", "terminate")) else "no",
            "last word": words[-1].partition(". ")[0],
            "left": ", ".join(left) or "nothing",
            "resumed": _resumed(command, out, cache) if left and not over and command[0] == "identify" else "",
        }


def _resumed(command: tuple[str, ...], out: Path, cache: Path) -> str:
    """How `--resume` goes on: its first line of the table, or what it says instead."""
    process = _start(command, out, cache, "--resume")
    assert process.stderr is not None
    line = ""
    for line in process.stderr:
        if line.startswith(("stages", "density", "all readings")):
            break
    process.send_signal(signal.SIGINT)
    process.communicate()
    return " ".join(line.split()[:4])
