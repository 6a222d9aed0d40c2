"""Predictions of estimates that lie in folders: of their own study's recordings, or of another's; and comparisons."""

import dataclasses
import datetime
import hashlib
import importlib.metadata
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..._compiled import on_device
from ...models import ParameterMap
from ...models.parameters import natural_values
from ...scene import FileError, FileProblem, Scene, read_scene
from ...scene.explain import nearest
from ...scene.paths import numeric_paths, wholes
from ...system import build
from ..file.against_scene import check_against_scene, check_recordings, input_dimensions, sensor_dimensions
from ..file.read import read_study
from ..file.study import RecordingSpec, Study
from ..file.windows import LISTS
from ..identifying.estimate import Estimate, finite_json, load_estimate
from ..identifying.identify import versions
from ..identifying.predict import Prediction, predict_recording
from ..identifying.stretches import in_stretches
from ..recordings.recording import Recording, read_recordings
from ..running.setup import free_parameters, tied_parameters
from .equation_error import equation_error
from .simulation_error import simulation_error

_SAME = 1e-6  # relative difference of numbers that are the same but for rounding


@dataclasses.dataclass(frozen=True)
class Forecaster:
    """An estimate from a folder, with the study and the scene that it belongs to."""

    folder: Path
    estimate: Estimate
    study: Study
    scene: Scene

    def predict(
        self, spec: RecordingSpec, recording: Recording, steps: int | None = None, z: np.ndarray | None = None
    ) -> Prediction:
        """The recording as the estimate predicts it; see `predict_recording`."""
        return predict_recording(self.study, self.estimate, recording, spec, scene=self.scene, steps=steps, z=z)

    def saw(self, recording: Recording) -> bool:
        """Whether the identification had this recording, or another window of its file that overlaps it."""
        runs = self.estimate.content["runs"]
        began = {name: float(self.estimate.states[f"{name}/time"][0]) for name in runs}
        return any(
            run["sha256"] == recording.sha256
            and began[name] < recording.time[-1]
            and recording.time[0] < began[name] + run["duration"]
            for name, run in runs.items()
        )

    def as_written(self) -> np.ndarray | None:
        """The scene's own numbers in the coordinates of the search; None where a transform or bound forbids them."""
        shared, numbers, several = _shared(self.study, self.scene), numeric_paths(self.scene), wholes(self.scene)
        given = [numbers[f.path] if f.path in numbers else several[f.path] for f in shared.free]
        try:
            with np.errstate(all="ignore"):
                z = shared.encode(given)
        except ValueError:
            return None
        return z if np.isfinite(z).all() else None

    def baselines(self) -> dict[str, np.ndarray]:
        """Least squares on what the estimate was identified from, by name: of the equation error and, from there and
        from the study's starts, of the simulation error (`study.equation_error`, `study.simulation_error`).
        """
        recordings = read_recordings(self.study, sensor_dimensions(self.scene), inputs=input_dimensions(self.scene))
        told = equation_error(self.study, self.scene, recordings)
        by_equations = None if told is None else told.z
        by_simulation = simulation_error(self.study, self.scene, recordings, by_equations)
        found = {"equation error": by_equations, "simulation error": by_simulation}
        return {f"{name}, {self.estimate.content['study']}": z for name, z in found.items() if z is not None}


def load_forecaster(folder: str | Path, other: Study | None = None) -> Forecaster:
    """Read an estimate, and the study and scene that it belongs to.

    `other`: its study where the file that it names is not there any more.

    **Raises:** `FileError` if one of them cannot be read, or has changed since the identification.
    """
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise RuntimeError("predictions need float64: call spookax.enable_x64() first")
    folder, estimate = Path(folder), load_estimate(folder)
    file = estimate.content.get("study_file")
    if file and Path(file).is_file():
        study = read_study(file, locate=other is None)
    elif other is not None:
        study = other
    else:
        message = f"its study is not there: {file}" if file else "its study was not read from a file"
        raise _refusal(folder / "estimate.json", message, "Give the study with --study.")
    scene = read_scene(study.scene_path)
    check_against_scene(study, study.located, scene)
    _same_scene(study, estimate)
    _same_parameters(study, scene, estimate, folder)
    return Forecaster(folder, estimate, study, scene)


def _same_scene(study: Study, estimate: Estimate) -> None:
    path = study.scene_path
    then = estimate.content.get("hashes", {}).get(path.name)
    if then and then != hashlib.sha256(path.read_bytes()).hexdigest():
        raise _refusal(path, "has changed since the identification", "Put it back, or identify again.")


def _same_parameters(study: Study, scene: Scene, estimate: Estimate, folder: Path) -> None:
    """The coordinates of the estimate mean under this study the numbers that it found."""
    shared, z = _shared(study, scene), estimate.checkpoint["z"]
    if z.shape == (shared.size,) and set(shared.paths) == set(estimate.parameters):
        value = np.asarray(natural_values(shared, on_device(z))[0])
        then = [estimate.value(path) for path in shared.paths]
        if np.allclose(value, then, rtol=_SAME, atol=0):
            return
    message = f"the parameters of {study.located.file} or their starts are not those of the identification"
    raise _refusal(folder / "estimate.json", message, "Give the study as it was with --study, or identify again.")


def _shared(study: Study, scene: Scene) -> ParameterMap:
    system, _ = build(scene, unknown=frozenset(study.parameters).union(study.ties))
    free = free_parameters(study, scene)
    return ParameterMap(system, free, tied_parameters(study, scene, free))


def choose(study: Study, scene: Scene, names: Sequence[str] = ()) -> list[tuple[RecordingSpec, Recording]]:
    """Recordings of a study to predict: those under `validate`, where there are none its `recordings`; or those of
    either that are named. The name of an entry with windows stands for all of them.

    **Raises:** `FileError` for names that it has not, and files that cannot be read.
    """
    check_recordings(study, scene)
    known = {spec.name: key for key in LISTS for spec in study.listed(key)}
    for name in names:
        if not _matching(name, known):
            message = f"there is no recording '{name}'"
            raise _refusal(Path(study.located.file), message, nearest(name, known))
    default = study.validation or study.recordings
    wanted = [match for name in names for match in _matching(name, known)] or [spec.name for spec in default]
    found: list[tuple[RecordingSpec, Recording]] = []
    for key in LISTS:
        if any(known[name] == key for name in wanted):
            recordings = read_recordings(study, sensor_dimensions(scene), key, inputs=input_dimensions(scene))
            pairs = zip(study.listed(key), recordings, strict=True)
            found += [(spec, recording) for spec, recording in pairs if spec.name in wanted]
    return found


def _matching(name: str, known: dict[str, str]) -> list[str]:
    return [name] if name in known else [k for k in known if re.fullmatch(re.escape(name) + r"_\d+", k)]


@dataclasses.dataclass(frozen=True)
class Forecast:
    """`content` is what `prediction.json` holds, `states` are arrays by RECORDING/quantity."""

    content: dict[str, Any]
    states: dict[str, np.ndarray]
    predictions: list[Prediction]

    def save(self, folder: str | Path) -> Path:
        """Write `prediction.json`; returns the folder, which is made if there is none."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "prediction.json").write_text(finite_json(self.content), encoding="utf-8")
        return folder


def forecast(
    folder: str | Path,
    *,
    study: Study | str | Path | None = None,
    recordings: Sequence[str] = (),
    steps: int | None = None,
    report: Callable[[str], None] | None = None,
) -> Forecast:
    """Predict recordings with the estimate in a folder, open loop and if asked some steps ahead.

    **Arguments:**

    - `study`: whose recordings; that of the estimate when left out.
    - `recordings`: their names; when left out those under `validate`, where there are none all of them.
    - `steps`: of the simulator, that every reading is predicted ahead.
    - `report`: called with the name of every recording that is begun.

    **Raises:** `FileError` for files that cannot be read or do not fit; `RuntimeError` without 64-bit floats.
    """
    other = read_study(study) if isinstance(study, str | Path) else study
    found = load_forecaster(folder, other)
    runs, states, predictions = {}, {}, []
    for spec, recording in choose(other or found.study, found.scene, recordings):
        if report:
            report(recording.name)
        prediction = found.predict(spec, recording, steps)
        stretches = in_stretches(found.study, found.estimate, prediction, spec, scene=found.scene)
        runs[recording.name] = prediction.content() | {"stretches": stretches, "seen": found.saw(recording)}
        states |= prediction.states()
        predictions.append(prediction)
    content = head(found.estimate.content.get("study", "")) | {
        "steps": steps,
        "step": found.estimate.content["step"],
        "runs": runs,
    }
    return Forecast(content, states, predictions)


def compare(
    folders: Sequence[str | Path],
    *,
    study: Study | str | Path | None = None,
    report: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Several estimates on the same recordings, beside the scene as it was written and least squares of the equation
    and the simulation error on what they were identified from.

    **Arguments:** as for `forecast`; without `study`, the recordings are those of the first estimate's study.

    **Returns:** `candidates`: names; `runs`: recording -> `horizon`, and of each of its `signals`, by sensor, `unit`,
    `rms`, `nrmse` and `fit` of every candidate, `best`, and `rms_held` of the last reading before the simulation goes
    on alone; `seen`: candidates that were identified from it.
    """
    other = read_study(study) if isinstance(study, str | Path) else study
    given = [load_forecaster(folder, other) for folder in folders]
    pairs = choose(other or given[0].study, given[0].scene)
    for found in given[1:]:
        check_recordings(other or given[0].study, found.scene)
    candidates: dict[str, tuple[Forecaster, np.ndarray | None]] = {str(f.folder): (f, None) for f in given}
    studies: set[str] = set()
    for found in given:
        if (z := found.as_written()) is not None:
            candidates.setdefault(f"{found.scene.name} as written", (found, z))
        if (name := found.estimate.content["study"]) not in studies:
            studies.add(name)
            candidates |= {baseline: (found, z) for baseline, z in found.baselines().items()}
    runs = {}
    for spec, recording in pairs:
        if report:
            report(recording.name)
        entries = {name: found.predict(spec, recording, z=z).content() for name, (found, z) in candidates.items()}
        first = next(iter(entries.values()))
        signals = {
            sensor: {"unit": signal["unit"], "rms_held": signal["rms_held"]} | beside(sensor, entries)
            for sensor, signal in first["signals"].items()
        }
        seen = [name for name, (found, z) in candidates.items() if z is None and found.saw(recording)]
        runs[recording.name] = {key: first[key] for key in ("file", "horizon", "head")} | {
            "seen": seen,
            "signals": signals,
        }
    return head(given[0].estimate.content.get("study", "")) | {"candidates": list(candidates), "runs": runs}


def beside(sensor: str, entries: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Errors of every candidate, and which of them is the least."""
    told = {name: entry["signals"][sensor] for name, entry in entries.items()}
    numbers = {key: {name: signal[key] for name, signal in told.items()} for key in ("rms", "nrmse", "fit")}
    finite = {name: rms for name, rms in numbers["rms"].items() if np.isfinite(rms)}
    return numbers | {"best": min(finite, key=lambda name: finite[name]) if finite else None}


def head(study: str) -> dict[str, Any]:
    """What files of results begin with; `study`: its name."""
    return {
        "spookax": importlib.metadata.version("spookax"),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "study": study,
        "versions": versions(),
    }


def _refusal(file: Path, message: str, cure: str) -> FileError:
    return FileError([FileProblem(str(file), 0, "", None, message, cure)])
