"""The tossed cube by `spookax identify`: a study of real tosses from the shell, and what it predicts beside MuJoCo.

A toss runs over many edges, and which of them hits first is a discrete choice that no derivative sees: as one
recording it ends in a local minimum. So the study cuts every toss into windows of sixteen samples, each with an initial
state of its own, in which the cube hits once or twice, and begins with so much process noise that the trajectories
follow the poses, less from stage to stage (without that it ends in a local minimum). The process noise is held and what
the model lacks goes into the noise of the sensor: were the process noise found by the evidence, it would explain the
impacts themselves.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import yaml
from scipy.spatial.transform import Rotation

from spookax import Estimate, load_estimate

from .contacts import RATE, MuJoCo, Ours, Toss, errors, fitted, scene, score, tosses
from .measure import Row

WINDOW = 16  # samples
COUNT = 6  # tosses that are identified from
START = (0.3, 0.2, 0.0)  # friction, restitution, height of the board [m]
PATHS = (
    "contacts.materials.default.friction",
    "contacts.materials.default.restitution",
    "contacts.surfaces.board.at.z",
)
COLUMNS = ("x", "y", "z", "rx", "ry", "rz")


def write(folder: Path, some: list[Toss]) -> Path:
    """The scene, the study and a recording of every toss; returns the study file."""
    header = ",".join(["t [s]", *(f"{c} [{'m' if i < 3 else 'rad'}]" for i, c in enumerate(COLUMNS))])
    for toss in some:
        turn = Rotation.from_quat(toss.quaternion, scalar_first=True).as_rotvec()
        table = np.column_stack([np.arange(len(turn)) / RATE, toss.position, turn])
        np.savetxt(folder / f"toss{toss.number}.csv", table, delimiter=",", header=header, comments="")
    known = scene(*START).model_dump(mode="json", exclude_unset=True)
    (folder / "scene.yaml").write_text(yaml.safe_dump(known), encoding="utf-8")
    windows = {"length": WINDOW / RATE}
    text = {
        "spookax": 1,
        "scene": "scene.yaml",
        "defaults": {"time": "t", "sensors": {"pose": list(COLUMNS)}},
        "recordings": [{"file": f"toss{toss.number}.csv", "windows": windows} for toss in some],
        "parameters": {path: {"start": start} for path, start in zip(PATHS, START, strict=True)},
        "estimator": {
            "noise_scale": [100, 10, 3, 1],
            "process_noise": {"kind": "bodies", "density": 0.01, "estimate": False},
            "sensor_noise": {"estimate": True},
            "max_iterations": 200,
            "tolerance": 1e-4,
            "restarts": 0,
            "check_half_step": False,
        },
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
    return folder / "study.yaml"


def identified(some: list[Toss]) -> Estimate:
    """The estimate that the shell finds from some tosses."""
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        study = write(folder, some)
        command = [sys.executable, "-m", "spookax", "identify", str(study), "--out", str(folder / "out"), "--quiet"]
        subprocess.run(command, check=False, env=os.environ)  # its status is in the estimate
        return load_estimate(folder / "out")


def run() -> list[Row]:
    """What is found, and errors of the tosses held back."""
    every = tosses()
    known, held = ([t for t in every if (t.number % 5 == 0) == back] for back in (False, True))
    return list(_predictions(known, held))


def _predictions(known: list[Toss], held: list[Toss]) -> Iterator[Row]:
    """What the shell finds, and errors of tosses held back with that and of MuJoCo with its own best parameters."""
    estimate = identified(known[:COUNT])
    yield from _rows(estimate)
    found = np.array([estimate.value(path) for path in PATHS])
    for engine, values in ((Ours, found), (MuJoCo, None)):
        if values is None:
            values = fitted(engine(known), known)
        off = errors(held, engine(held).simulate(values))
        yield {
            "engine": engine.name,
            "identified from": f"{COUNT} tosses, by the shell" if engine is Ours else f"{len(known)} tosses, by search",
            "parameters": " ".join(f"{v:.4g}" for v in values),
            "held back": len(held),
            "position mean [mm]": 1e3 * float(off[:, 0].mean()),
            "median": 1e3 * float(np.median(off[:, 0])),
            "rotation mean [rad]": float(off[:, 1].mean()),
            "median [rad]": float(np.median(off[:, 1])),
            "score": score(off),
        }


def _rows(estimate: Estimate) -> Iterator[Row]:
    for path, found in estimate.parameters.items():
        low, high = found.get("interval") or (np.nan, np.nan)
        yield {
            "status": estimate.status,
            "path": path,
            "value": found["value"],
            "sd": found["sd"],
            "interval": f"{low:.4g} to {high:.4g}",
        }
