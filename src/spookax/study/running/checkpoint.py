"""The last iterate as plain arrays, so that an interrupted identification can go on."""

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ..._compiled import on_device
from ...estimation.batch.problem import Iterate
from ...estimation.linearise import Path as Trajectory
from ...estimation.linearise import all_successful
from ...models import BodyState
from ...protocol import Noise
from ...scene import FileError, FileProblem

FINISHED = "checkpoint.npz"
UNFINISHED = "unfinished.npz"  # of a run that was cut short, beside the estimate of an earlier one perhaps


def pack_iterate(stage: int, noise: Noise, it: Iterate) -> dict[str, np.ndarray]:
    """Arrays of `checkpoint.npz`: noise levels, iterate, and the stage that it belongs to."""
    out = {"stage": np.asarray(stage), "process": np.asarray(noise.process)}
    out |= {"sensor": np.asarray(noise.sensor), "z": np.asarray(it.z)}
    for i, (own, path) in enumerate(zip(it.own, it.paths, strict=True)):
        out[f"{i}/own"], out[f"{i}/w"], out[f"{i}/guess"] = np.asarray(own), np.asarray(path.w), np.asarray(path.guess)
        for name in ("p", "e", "v", "w", "near", "c"):
            out[f"{i}/x/{name}"] = np.asarray(getattr(path.x, name))
    return out


def keep_iterate(folder: Path, stage: int, noise: Noise, it: Iterate) -> None:
    """Write `unfinished.npz`, whole or not at all; the folder is made if there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{UNFINISHED}.part"
    with part.open("wb") as stream:
        np.savez(stream, **pack_iterate(stage, noise, it))  # pyright: ignore[reportArgumentType]
    os.replace(part, folder / UNFINISHED)


def load_levels(path: Path, setup: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shared parameters (z), process and sensor noise levels of an estimate of the same study."""
    file, data = _load(path, "there is no estimate", "Give the folder that `spookax identify` wrote.")
    z, process, sensor = data["z"], data["process"], data["sensor"]
    if z.shape != setup.problem.z0.shape or sensor.shape != setup.sensor_sd.shape:
        message = "the estimate belongs to another study (other parameters or sensors)"
        raise FileError([FileProblem(str(file), 0, "", None, message, "Identify this study first.")])
    return z, process, sensor


def _load(path: Path, missing: str, cure: str, *, unfinished: bool = False) -> tuple[Path, dict[str, np.ndarray]]:
    names = (UNFINISHED, FINISHED) if unfinished else (FINISHED,)
    there = [path / name for name in names if (path / name).is_file()]
    file = [*there, path / FINISHED][0] if path.is_dir() else path
    if not file.is_file():
        raise FileError([FileProblem(str(file), 0, "", None, missing, cure)])
    try:
        with np.load(file) as stored:
            return file, {k: stored[k] for k in stored.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise FileError([FileProblem(str(file), 0, "", None, "the checkpoint cannot be read", cure)]) from error


def load_iterate(path: Path, setup: Any) -> tuple[int, np.ndarray, np.ndarray, Iterate]:
    """`(stage, factors on its process and sensor levels, iterate)`; a checkpoint of another study is refused.

    Of a folder, that of a run that was cut short goes before that of an estimate.
    """
    file, data = _load(path, "there is no checkpoint to resume from", "Run without --resume.", unfinished=True)
    own, paths = [], []
    fits = data["z"].shape == setup.problem.z0.shape
    for i, (grid, _) in enumerate(zip(setup.grids, setup.problem.samples, strict=True)):
        shape = grid.steps, setup.model.noise_size
        fits = fits and {f"{i}/w", f"{i}/guess"} <= data.keys() and data[f"{i}/w"].shape == shape
        if not fits:
            message = "the checkpoint belongs to another study (other parameters, recordings or step size) or version"
            raise FileError([FileProblem(str(file), 0, "", None, message, "Run without --resume.")])
        x = BodyState(*(on_device(data[f"{i}/x/{n}"]) for n in ("p", "e", "v", "w", "near", "c")))
        own.append(on_device(data[f"{i}/own"]))
        paths.append(
            Trajectory(x, on_device(data[f"{i}/w"]), on_device(data[f"{i}/guess"]), all_successful(grid.steps))
        )
    stage = min(int(data["stage"]), len(setup.stages) - 1)
    given = setup.stages[stage].noise
    process, sensor = data["process"] / np.asarray(given.process), data["sensor"] / np.asarray(given.sensor)
    return stage, process, sensor, Iterate(on_device(data["z"]), tuple(own), tuple(paths))
