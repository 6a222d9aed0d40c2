"""Which law of friction: each is identified from the recordings of a study, and those held back judge it."""

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ..._interruption import stoppable
from ...scene import FileError, Scene, read_scene, write_scene
from ...scene.explain import Finding
from ...scene.yaml12 import Dumper12
from ...system import build
from ..file.against_scene import check_against_scene, input_dimensions, sensor_dimensions
from ..file.read import StudyError, read_study
from ..file.study import ParameterSpec, Study
from ..file.windows import LISTS
from ..identifying.estimate import Estimate, finite_json, load_estimate
from ..identifying.identify import Progress, identify
from ..recordings.recording import Recording, read_recordings
from ..recordings.step_size import chosen_step
from ..running.checkpoint import FINISHED, UNFINISHED
from ..running.setup import USUAL_RATE, measured_rates
from .forecast import head
from .friction_laws import LAWS, Place, places, suits, variant

MECHANISM = "mechanism.yaml"
"""The scene that a law's study starts from, in its folder."""


@dataclass(frozen=True)
class Choice:
    """`content` is what `choice.json` holds; `interrupted`: whether laws are missing because a signal came."""

    content: dict[str, Any]
    interrupted: bool


def choose_friction(
    study: str | Path,
    folder: str | Path,
    *,
    joints: Sequence[str] = (),
    resume: bool = False,
    begin: Callable[[str], None] | None = None,
    report: Callable[[Progress], None] | None = None,
    done: Callable[[Path, Estimate], None] | None = None,
) -> Choice:
    """Identify a study with every law of friction (`LAWS`), and choose one by the recordings under `validate`.

    Every law gets a folder in `folder`, named after it, with its study, its scene and its estimate; `folder` itself
    gets `choice.json` and the study and scene of the law that is chosen, ready for `identify`.

    **Arguments:**

    - `joints`: whose friction is tried, as JOINT or JOINT.AXIS; when left out those whose friction is unknown in the
      study, and where there are none all. All of them have the same law at a time.
    - `resume`: keep the laws that an earlier call has finished, and go on with the one that it was at.
    - `begin`, `report`, `done`: called with the name of a law that is begun, after every iteration, and with folder and
      estimate of a law that is written.

    **Raises:** `FileError` for files that cannot be read and a study without recordings to validate; as `identify`.
    """
    folder, given = Path(folder), read_study(study)
    scene = read_scene(given.scene_path)
    check_against_scene(given, given.located, scene)
    if not given.validation:
        message = "is missing: laws of friction are judged by recordings that take no part in the identification"
        cure = "Write `validate: [{file: ..., windows: ...}]`, best with several windows."
        raise StudyError([given.located.problem(Finding(("validate",), None, message, cure))])
    chosen = places(given, scene, tuple(joints))
    recordings = read_recordings(given, sensor_dimensions(scene), inputs=input_dimensions(scene))
    held_back = read_recordings(given, sensor_dimensions(scene), "validate", recordings, inputs=input_dimensions(scene))
    scene = scene.model_copy(update={"step": chosen_step(given, scene, recordings)})  # the same for all laws
    rates, duration = _rates(scene, recordings, chosen), max(float(r.time[-1] - r.time[0]) for r in recordings)
    found, interrupted = {}, False
    made = {law: variant(given, scene, law, chosen, rates, duration) for law in LAWS if suits(law, chosen)}
    with stoppable() as stop:
        for law, (with_law, unknown) in made.items():
            if not unknown:  # nothing is left to identify
                continue
            if interrupted := stop.asked:
                break
            here = folder / law.replace(" + ", "-").lower()
            go_on = _write(given, with_law, unknown, here) and resume
            estimate = _earlier(here, recordings, held_back) if go_on else _nothing_earlier(here)
            if estimate is None or estimate.status == "interrupted":
                if begin:
                    begin(law)
                half = go_on and ((here / UNFINISHED).is_file() or estimate is not None)
                stop.after = ""
                stop.kept = f"{folder} has what was finished, and --resume goes on" if found else stop.kept
                estimate = identify(here / "study.yaml", report=report, resume=here if half else None, keep=here)
                with stop.waiting("writing"):
                    estimate.save(here)
                    if done:
                        done(here, estimate)
            if interrupted := estimate.status == "interrupted":
                break
            found[law] = _entry(law, here, estimate, unknown, chosen)
        content = head(Path(given.located.file).stem) | _judged(found)
        content |= {"joints": [place.index for place in chosen], "held_back": [spec.name for spec in given.validation]}
        with stop.waiting("writing"):
            folder.mkdir(parents=True, exist_ok=True)
            if content["chosen"]:
                _write(given, *made[content["chosen"]], folder)
            (folder / "choice.json").write_text(finite_json(content), encoding="utf-8")
    return Choice(content, interrupted)


def _rates(scene: Scene, recordings: Sequence[Recording], chosen: Sequence[Place]) -> dict[str, float]:
    """Usual rate of every axis that is tried [rad/s or m/s]."""
    system, _ = build(scene)
    sensors = [name for name in scene.sensors if all(name in r.sensors for r in recordings)]
    measured = measured_rates(system, sensors, recordings)
    axis_of = {axis.name: i for i, axis in enumerate(system.axes)}
    rates = {place.index: measured.get(axis_of[place.index], 0.0) for place in chosen}
    return {name: rate if rate > 0 else USUAL_RATE for name, rate in rates.items()}


def _write(study: Study, scene: Scene, unknown: Mapping[str, ParameterSpec], folder: Path) -> bool:
    """Write a study and its scene into a folder; whether the same lay there before."""
    folder.mkdir(parents=True, exist_ok=True)
    files = (folder / "study.yaml", folder / MECHANISM)
    before = [file.read_bytes() if file.is_file() else None for file in files]
    data = study.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    data["parameters"] = {path: spec.model_dump(mode="json", exclude_none=True) for path, spec in unknown.items()}
    data["scene"] = MECHANISM
    data.pop("defaults", None)  # the recordings have them
    for entry in itertools.chain(*(data.get(key, ()) for key in LISTS)):
        if "file" in entry:
            entry["file"] = _seen_from(study.folder / entry["file"], folder)
    text = yaml.dump(data, Dumper=Dumper12, sort_keys=False, allow_unicode=True, width=110)
    files[0].write_text(text, encoding="utf-8")
    write_scene(scene, files[1])
    return before == [file.read_bytes() for file in files]


def _seen_from(file: Path, folder: Path) -> str:
    try:
        return Path(os.path.relpath(file, folder)).as_posix()
    except ValueError:  # another drive
        return file.absolute().as_posix()


def _earlier(folder: Path, recordings: Sequence[Recording], held_back: Sequence[Recording]) -> Estimate | None:
    """The estimate of an earlier call, if it is from the same recordings."""
    try:
        estimate = load_estimate(folder)
    except FileError:
        return None
    of_run = {**estimate.content["runs"], **estimate.content["validation"]}
    known = [*recordings, *held_back] if estimate.status != "interrupted" else recordings
    same = all(of_run.get(r.name, {}).get("sha256") == r.sha256 for r in known)
    return estimate if same else None


def _nothing_earlier(folder: Path) -> None:
    """Take away an earlier estimate, which would pass for one of the study that was just written."""
    for name in ("estimate.json", FINISHED, UNFINISHED):
        (folder / name).unlink(missing_ok=True)


def _entry(
    law: str, folder: Path, estimate: Estimate, unknown: Mapping[str, ParameterSpec], chosen: Sequence[Place]
) -> dict[str, Any]:
    """What `choice.json` says of a law."""
    content = estimate.content
    runs: dict[str, Any] = content["validation"]
    signals = [signal for run in runs.values() for signal in run["signals"].values()]
    squares: dict[str, list[float]] = {}
    for signal in signals:
        squares.setdefault(signal["unit"], []).append(_number(signal["rms"]) ** 2)
    of_runs = [
        float(np.sqrt(np.mean([_number(signal["nrmse"]) ** 2 for signal in run["signals"].values()])))
        for run in runs.values()
    ]
    nrmse = float(np.sqrt(np.mean(np.square(of_runs)))) if of_runs else np.nan
    own = [path for path in unknown if any(path.startswith(f"{place.path}.") for place in chosen)]
    said = content["trust"]
    return {
        "law": law,
        "folder": folder.name,
        "status": estimate.status,
        "unknowns": len(unknown),
        "friction": {path: {key: content["parameters"][path][key] for key in ("value", "sd", "unit")} for path in own},
        "at_bound": [path for path in own if content["parameters"][path].get("at_bound")],
        "rms": {unit: float(np.sqrt(np.mean(values))) for unit, values in squares.items()},
        "nrmse": nrmse,
        "fit": 100 * (1 - nrmse),
        "nrmse_of": dict(zip(runs, of_runs, strict=True)),
        "grade": said["grade"],
        "trust": said["sentence"],
        "caution": next(iter(said["reasons"]), "") if said["grade"] != "good" else "",
    }


def _number(value: float | None) -> float:
    return np.nan if value is None else value


def _judged(found: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Laws by their held-out error, the best first, and the simplest that is within the noise of the best.

    The noise is that of the recordings held back: with d the squared error of a law minus that of the best in every one
    of them, the law is within it if the mean of d is at most its standard error. Of a single recording it is unknown,
    and the best is chosen. Only laws whose identification converged are chosen.
    """
    laws = sorted(found.values(), key=lambda one: (not np.isfinite(one["nrmse"]), one["nrmse"]))
    able = [one for one in laws if one["status"] == "converged" and np.isfinite(one["nrmse"])]
    if not able:
        return {"laws": laws, "best": None, "chosen": None}
    best = np.array(list(able[0]["nrmse_of"].values())) ** 2
    for one in able:
        more = np.array(list(one["nrmse_of"].values())) ** 2 - best
        one["more"] = float(np.mean(more))
        one["more_error"] = float(np.std(more, ddof=1) / np.sqrt(more.size)) if more.size > 1 else 0.0
    near = [one for one in able if one["more"] <= one["more_error"]]
    simplest = min(near, key=lambda one: (one["unknowns"], one["nrmse"]))
    return {"laws": laws, "best": able[0]["law"], "chosen": simplest["law"]}
