"""Whole processes from the shell, as a newcomer starts them: with programs that were kept, and without any.

Median wall time of each command, and processor time of all its threads. `changed`: with other numbers in the scene,
another recording, other starts and bounds in the study.
"""

import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from .measure import ROOT, Row, table

REPEATS = 5
DEMO = ROOT / "demo"


def run() -> list[Row]:
    """One row per command, printed as it comes."""
    with tempfile.TemporaryDirectory() as folder:
        here, rows = Path(folder), []
        for name, command, changed in _commands(here):
            rows.append(_measured(here, name, command, changed))
            print(table(rows[-1:]), flush=True)
        return rows


def _commands(here: Path) -> Iterator[tuple[str, list[str], list[str] | None]]:
    """Name, command, and the same command on files with other numbers."""
    spookax = [sys.executable, "-m", "spookax"]
    study, scene, other = DEMO / "furuta_study.yaml", DEMO / "furuta.yaml", _changed(here)
    chain = here / "chain.yaml"
    chain.write_text(_chain(64))

    def simulate(file: Path, seconds: str) -> list[str]:
        return [*spookax, "simulate", str(file), "--time", seconds, "--out", str(here / "out.csv")]

    def estimate(verb: str, file: Path) -> list[str]:
        return [*spookax, verb, str(file), "--out", str(here / verb), "--quiet"]

    yield "check scene", [*spookax, "check", str(scene)], None
    yield "check study", [*spookax, "check", str(study)], None
    yield "simulate furuta", simulate(scene, "5"), simulate(other / "furuta.yaml", "4")
    yield "simulate four-bar", simulate(ROOT / "scenes/four_bar.yaml", "5"), None
    yield "simulate chain of 64", simulate(chain, "1"), None
    yield "identify demo", estimate("identify", study), estimate("identify", other / "furuta_study.yaml")
    yield "filter demo", estimate("filter", study), None
    yield "make demo", [sys.executable, str(ROOT / "scripts/demo.py")], None


def _measured(here: Path, name: str, command: Sequence[str], changed: Sequence[str] | None) -> Row:
    bare = [_seconds(command, "off") for _ in range(REPEATS)]
    kept = here / name.replace(" ", "_")
    _seconds(command, str(kept))
    warm = [_seconds(command, str(kept)) for _ in range(REPEATS)]
    row: Row = {"command": name}
    for label, runs in (("without", bare), ("kept", warm)):
        row[f"{label} [s]"] = statistics.median(wall for wall, _ in runs)
        row[f"{label}, processor [s]"] = statistics.median(processor for _, processor in runs)
    row["kept, changed [s]"] = _seconds(changed, str(kept))[0] if changed else None
    row["on disk [MiB]"] = sum(file.stat().st_size for file in kept.iterdir()) / 2**20 if kept.is_dir() else 0.0
    return row


def _seconds(command: Sequence[str], cache: str) -> tuple[float, float]:
    """Wall and processor time of a process."""
    environment = os.environ | {"SPOOKAX_CACHE": cache}
    for name in ("JAX_COMPILATION_CACHE_DIR", "PYTHONDONTWRITEBYTECODE"):  # as on a machine of one's own
        environment.pop(name, None)
    before, began = _of_children(), time.perf_counter()
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return time.perf_counter() - began, _of_children() - before


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _changed(here: Path) -> Path:
    """The demo with a heavier pendulum, other starts and bounds, and the other recording, shortened."""
    folder = here / "changed"
    folder.mkdir()
    scene = (DEMO / "furuta.yaml").read_text()
    (folder / "furuta.yaml").write_text(re.sub(r"mass: ([0-9.e-]+)", lambda m: f"mass: {1.01 * float(m[1]):g}", scene))
    study = (DEMO / "furuta_study.yaml").read_text().replace("train.csv", "test.csv")
    study = re.sub(r"start: ([-0-9.e]+), lower", lambda m: f"start: {1.1 * float(m[1]):g}, lower", study)
    (folder / "furuta_study.yaml").write_text(study)
    lines = (DEMO / "test.csv").read_text().splitlines(keepends=True)
    (folder / "test.csv").write_text("".join(lines[: int(0.9 * len(lines))]))
    return folder


def _chain(links: int) -> str:
    """A hanging chain, the first link turned to the side."""
    lines = ["spookax: 1", "name: chain", "step: 0.005", "bodies:"]
    inertia = np.array([1.0, 1.0, 0.1]) * 1e-4
    for i in range(links):
        moments = ", ".join(f"{moment:g}" for moment in inertia)
        lines.append(f"  link{i}: {{mass: 0.1, com: [0, 0, -0.05], inertia: [{moments}]}}")
    lines.append("joints:")
    for i in range(links):
        parent, at = ("world", 0.0) if i == 0 else (f"link{i - 1}", -0.1)
        where = f"parent: {parent}, child: link{i}, at: [0, 0, {at}], child_at: [0, 0, 0]"
        lines.append(f"  joint{i}: {{type: hinge, {where}, axis: [0, 1, 0], friction: {{viscous: 1.0e-4}}}}")
    lines.append("initial: {joint0: {position: 0.5}}")
    return "\n".join(lines) + "\n"
