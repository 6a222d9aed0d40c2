"""The result of an identification, and the folder it is written to."""

import dataclasses
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...scene import FileError, FileProblem, Scene, SceneError, read_scene, write_scene
from ...scene.paths import with_numbers
from ...scene.wrong_kind import told_apart
from ..file.bodies import make_way
from ..running.checkpoint import FINISHED, UNFINISHED

IMPOSSIBLE = "scene.yaml is not written, for the numbers are no possible body or joint"


@dataclasses.dataclass
class Estimate:
    """Identified parameters with their uncertainty, what the fit looks like, and how it ended.

    `status` is `converged`, `interrupted` or the name of a failure; `message` explains a failure and what to try.
    `states` holds arrays by `RUN/quantity` (see the documentation of the estimate folder). `scene` has the identified
    numbers, and is None where these are no possible bodies or joints, which `message` says.
    """

    status: str
    message: str
    content: dict[str, Any]
    states: dict[str, np.ndarray]
    scene: Scene | None
    checkpoint: dict[str, np.ndarray]

    @property
    def parameters(self) -> dict[str, dict[str, Any]]:
        """path -> value, sd, unit, start, lower, upper."""
        return self.content["parameters"]

    @property
    def outliers(self) -> list[dict[str, Any]]:
        """Readings that were set aside as outliers, farthest off first: recording, sensor, component, time, value,
        predicted, off (in standard deviations of the sensor), weight. None unless the study has `estimator.outliers`.
        """
        return (self.content.get("outliers") or {}).get("readings", [])

    def value(self, path: str) -> float:
        """Identified value of one parameter [SI]."""
        return self.parameters[path]["value"]

    def to_json(self) -> dict[str, Any]:
        """The content of `estimate.json`."""
        return {"status": self.status, "message": self.message, **self.content}

    def save(self, folder: str | Path) -> Path:
        """Write `estimate.json`, `states.npz`, `checkpoint.npz` and, if there is a scene, `scene.yaml`; returns the
        folder.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        content = self.to_json()
        content = {**content, _INFINITE: [[list(place), repr(value)] for place, value in _infinite(content, ())]}
        (folder / "estimate.json").write_text(finite_json(content), encoding="utf-8")
        np.savez_compressed(folder / "states.npz", **self.states)  # pyright: ignore[reportArgumentType]
        np.savez(folder / FINISHED, **self.checkpoint)  # pyright: ignore[reportArgumentType]
        (folder / UNFINISHED).unlink(missing_ok=True)
        save_scene(self.scene, folder)
        return folder


def identified_scene(scene: Scene, numbers: Mapping[str, float]) -> tuple[Scene | None, str]:
    """The scene with other numbers under some paths, or None; and what is to be said of it: why there is none, or which
    numbers without effect were changed as well.
    """
    moved = make_way(scene, numbers)
    said = f"scene.yaml has other numbers for {', '.join(moved)}, which have no effect: no body has those of before."
    try:
        return with_numbers(scene, {**numbers, **moved}), said if moved else ""
    except SceneError as error:
        why = "; ".join(f"{problem.path} {problem.message}" for problem in error.problems)
        return None, f"{IMPOSSIBLE}: {why}. Use `transform: inertia`, bounds or a prior."


def save_scene(scene: Scene | None, folder: Path) -> None:
    """Write `scene.yaml`; without a scene that of an earlier run is taken away, lest it lie beside other numbers."""
    if scene is None:
        (folder / "scene.yaml").unlink(missing_ok=True)
    else:
        write_scene(scene, folder / "scene.yaml")


def load_estimate(folder: str | Path) -> Estimate:
    """The estimate that `Estimate.save` or `spookax identify` wrote into a folder.

    **Raises:** `FileError` if the folder holds none, or its files are damaged.
    """
    folder = Path(folder)
    if folder.is_file() and (other := told_apart(folder, "the folder of an estimate", "results")):
        raise _refusal(folder, *other)
    for name in ("estimate.json", "states.npz", "checkpoint.npz"):
        if not (folder / name).is_file():
            message = f"this folder holds no estimate: it has no {name}"
            raise _refusal(folder, message, "Give the --out of `spookax identify`.")
    file = folder / "estimate.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        for (*place, last), value in content.pop(_INFINITE, []):
            part = content
            for key in place:
                part = part[key]
            part[last] = float(value)
        status, message = content.pop("status"), content.pop("message")
        arrays = []
        for name in ("states.npz", "checkpoint.npz"):
            file = folder / name
            with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
                arrays.append({key: stored[key] for key in stored.files})
    except (*_DAMAGED, TypeError, AttributeError) as bad:
        raise _refusal(file, "cannot be read as a part of an estimate", "Run `spookax identify` again.") from bad
    scene = read_scene(folder / "scene.yaml") if (folder / "scene.yaml").is_file() else None
    return Estimate(status, message, content, arrays[0], scene, arrays[1])


def _refusal(file: Path, message: str, cure: str) -> FileError:
    return FileError([FileProblem(str(file), 0, "", None, message, cure)])


_DAMAGED = (OSError, ValueError, LookupError, EOFError, zipfile.BadZipFile, zlib.error)
_INFINITE = "not_finite"  # the key in estimate.json: where numbers stand that JSON has not, and which


def _infinite(value: Any, here: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], float]]:
    """Numbers that are not finite, with the keys and indices that lead to them."""
    if isinstance(value, float | np.floating) and not np.isfinite(value):
        yield here, float(value)
    elif isinstance(value, dict | list | tuple):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _infinite(part, (*here, key))


def finite_json(content: Any) -> str:
    """The text of a JSON file; numbers that are not finite are null."""
    return json.dumps(_finite(content), indent=2) + "\n"


def _finite(value: Any) -> Any:
    """JSON has no NaN: null instead."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value
