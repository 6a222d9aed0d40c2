"""Several methods of estimation on the recordings of one study, from the same start, side by side."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..._compiled import on_device
from ..._interruption import stoppable
from ..._typing import AnyArray
from ...estimation.batch.shooting import TRIALS
from ...models.parameters import natural_values, values_and_sd
from ...protocol import ModelError
from ...scene import Scene, read_scene
from ..file.against_scene import check_against_scene, input_dimensions, sensor_dimensions
from ..file.read import StudyError, read_study
from ..file.study import RecordingSpec, Study
from ..identifying.estimate import finite_json, identified_scene, save_scene
from ..identifying.identify import identify
from ..identifying.predict import Identified, Prediction, predict_recording
from ..recordings.recording import Recording, read_recordings
from ..running.setup import Setup, set_up
from ..tracking.filter_recordings import filter_recordings, smooth_recordings
from .equation_error import least_squares_of
from .forecast import beside, choose, head
from .method_names import NAMES, known_methods
from .networks import by_networks, jumping
from .simulation_error import shot

_LEVEL = 1.96  # standard deviations of the ends of an interval of 95 %
_SEGMENTS = 8  # of the longest recording, where the study says nothing
_UNSETTLED = f"not settled after {TRIALS} trials; the last one is taken"
_EXTRA = "it needs the extra `continuous` (diffrax, optax): `pip install .[continuous]` in a clone"


class _CannotError(Exception):
    """A method cannot serve this study; why."""


@dataclasses.dataclass(frozen=True)
class _Case:
    study: Study
    scene: Scene
    recordings: list[Recording]
    setup: Setup
    report: Callable[[str], None]  # raises KeyboardInterrupt where a signal has come

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return self.setup.problem.lower, self.setup.problem.upper


@dataclasses.dataclass(frozen=True)
class _Found:
    """What a method found: parameters by path with `value`, `sd` and `interval` of 95 %, as far as it tells them."""

    parameters: dict[str, dict[str, Any]]
    identified: Identified | None  # what its predictions take; None if there is nothing to predict with
    status: str = "done"
    message: str = ""


def _parameters(case: _Case, z: AnyArray, covariance: np.ndarray | None) -> dict[str, dict[str, Any]]:
    shared = case.setup.model.shared
    unknown = np.diag(np.full(shared.size, np.inf))
    values, sds = values_and_sd(shared, on_device(z), unknown if covariance is None else covariance)
    sds = [None] * len(values) if covariance is None else sds.tolist()
    return {path: _told(v, sd) for path, v, sd in zip(shared.paths, values, sds, strict=True)}


def _told(value: float, sd: float | None, interval: Sequence[float] | None = None) -> dict[str, Any]:
    if sd is not None and interval is None and np.isfinite(sd):
        interval = (value - _LEVEL * sd, value + _LEVEL * sd)
    return {
        "value": float(value),
        "sd": None if sd is None else float(sd),
        "interval": None if interval is None else [float(end) for end in interval],
    }


def _identified(case: _Case, z: AnyArray) -> Identified:
    """With the study's own levels: of methods that find none."""
    setup = case.setup
    levels, column, found = np.asarray(setup.stages[-1].noise.sensor), 0, {}
    for name in setup.sensors:
        size = setup.system.sensors[setup.system.sensor_index(name)].size
        found[name] = levels[column : column + size].tolist()
        column += size
    process = np.asarray(setup.stages[-1].noise.process)
    return Identified(np.asarray(z), process, found, float(setup.scene.step), setup.friction_speed[-1])


def _batch(case: _Case) -> _Found:
    estimate = identify(case.study, recordings=case.recordings, scene=case.scene)
    if estimate.status == "interrupted":
        raise KeyboardInterrupt
    told = {
        path: _told(found["value"], found["sd"], found.get("interval")) for path, found in estimate.parameters.items()
    }
    status = "done" if estimate.status == "converged" else estimate.status
    return _Found(told, Identified.by(estimate), status, estimate.message)


def _recursive(case: _Case, through: Callable[..., Any]) -> _Found:
    if case.study.recursive.parameters == "held":
        raise _CannotError("the study holds its parameters (`recursive: {parameters: held}`)")
    found = through(case.study, recordings=case.recordings, scene=case.scene, report=case.report)
    told = {path: _told(p["value"], p["sd"]) for path, p in found.parameters.items()}
    if not np.all(np.isfinite([p["value"] for p in told.values()])):
        return _Found(told, None, "failed", "it diverged: a parameter is not finite")
    try:
        z = np.clip(_encoded(case.setup, {path: p["value"] for path, p in told.items()}), *case.bounds)
    except ValueError as impossible:
        return _Found(told, None, "failed", str(impossible))
    status = "done" if found.content["status"] == "successful" else "failed"
    return _Found(told, _identified(case, z), status, found.content["message"])


def _encoded(setup: Setup, numbers: dict[str, float]) -> np.ndarray:
    """Natural values by path in the coordinates of the search."""
    given: list[Any] = []
    for free in setup.model.shared.free:
        if not isinstance(free.start, tuple):
            given.append(numbers[free.path])
            continue
        whole = dict(zip(("xx", "yy", "zz"), free.start, strict=False)) if free.parts else {}
        own = {path.rpartition(".")[2]: numbers[path] for path in free.paths}
        given.append(tuple((whole | own).values()))
    return setup.model.shared.encode(given)


def _shooting(case: _Case, segment: float | None) -> _Found:
    found = shot(case.setup, segment, [case.setup.problem.z0])
    if not np.isfinite(found.cost):
        return _Found({}, None, "failed", "no simulation from the start values stays finite")
    why = "" if found.settled else _UNSETTLED
    if found.gap > 1e-3:
        why = f"gaps of up to {found.gap:.2g} are left between segments: the trajectory is in pieces"
    told = _parameters(case, found.z, found.covariance)
    return _Found(told, _identified(case, found.z), "failed" if why else "done", why)


def _several(case: _Case) -> _Found:
    longest = max(float(r.time[-1] - r.time[0]) for r in case.recordings)
    return _shooting(case, case.study.comparison.segment or longest / _SEGMENTS)


def _equation(case: _Case) -> _Found:
    found = least_squares_of(case.setup)
    if found is None:
        raise _CannotError("the sensors do not tell the motion of all joints")
    return _Found(_parameters(case, found.z, found.covariance), _identified(case, found.z))


def _network(case: _Case) -> _Found:
    iterations = case.study.comparison.iterations
    try:
        z, ended = by_networks(case.setup, iterations, case.report)
    except ModelError as impossible:
        raise _CannotError(str(impossible)) from impossible
    except ImportError as missing:
        raise _CannotError(_EXTRA) from missing
    message = (
        f"{iterations} iterations (`comparison: {{iterations: }}` in the study)" if ended == "all steps" else ended
    )
    if names := jumping(case.setup):
        message += f"; the input of {', '.join(names)} jumps, which networks, smooth in time, round off: mistrust it"
    return _Found(_parameters(case, z, None), _identified(case, z), "done", message)


_RUN: dict[str, Callable[[_Case], _Found]] = {
    "batch": _batch,
    "filter": lambda case: _recursive(case, filter_recordings),
    "smoother": lambda case: _recursive(case, smooth_recordings),
    "shooting": _several,
    "simulation": lambda case: _shooting(case, None),
    "equation": _equation,
    "network": _network,
}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Methods side by side. `content` is what `comparison.json` holds, `states` are arrays by RECORDING/quantity,
    `scenes` has the identified scene of every method.
    """

    content: dict[str, Any]
    states: dict[str, np.ndarray]
    scenes: dict[str, Scene]
    interrupted: bool

    def save(self, folder: str | Path) -> Path:
        """Write `comparison.json` and METHOD/scene.yaml; returns the folder, which is made if there is none."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "comparison.json").write_text(finite_json(self.content), encoding="utf-8")
        for name, scene in self.scenes.items():
            (folder / name).mkdir(exist_ok=True)
            save_scene(scene, folder / name)
        return folder


def compare_methods(
    study: Study | str | Path,
    methods: Sequence[str] = NAMES,
    *,
    report: Callable[[str], None] | None = None,
) -> Comparison:
    """Run several methods on the recordings of a study and predict, with what each found, the recordings under
    `validate` (where there are none, its `recordings`).

    **Arguments:** `methods`: among `NAMES`; `report`: called with a line for every method and recording that is
    begun.

    **Returns:** a `Comparison`. A method that cannot serve the study, or that fails, is a row with the reason. Ctrl-C
    ends it after the method or the recording under way.

    **Raises:** `FileError` for files that cannot be read, and for an unknown method; `RuntimeError` without 64-bit
    floats.
    """
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise RuntimeError("comparing needs float64: call spookax.enable_x64() first")
    names = known_methods(methods)
    study = study if isinstance(study, Study) else read_study(study)
    scene = read_scene(study.scene_path)
    check_against_scene(study, study.located, scene)
    recordings = read_recordings(study, sensor_dimensions(scene), inputs=input_dimensions(scene))
    held_back = choose(study, scene)
    alone = study.model_copy(update={"validation": []})  # `identify` would predict them, too
    rows: dict[str, dict[str, Any]] = {}
    found: dict[str, Identified] = {}
    scenes: dict[str, Scene] = {}
    with stoppable() as stop, stop.waiting("this method or recording"):

        def said(text: str) -> None:
            stop.check()
            if report:
                report(text)

        case = _Case(alone, scene, recordings, set_up(study, scene, recordings), said)
        with contextlib.suppress(KeyboardInterrupt):  # what is finished stays
            for name in names:
                said(f"method {name}")
                rows[name], told = _row(case, name)
                if told.identified is not None:
                    found[name] = told.identified
                    made, _ = identified_scene(case.setup.scene, {p: v["value"] for p, v in told.parameters.items()})
                    scenes |= {name: made} if made else {}
        if not rows:
            stop.check()
        runs, states = _predicted(study, scene, held_back, found, said)
        interrupted = stop.asked
    for name, row in rows.items():
        row["diverged"] = sum(_diverged(run, name) for run in runs.values()) if runs and name in found else None
    start = np.asarray(natural_values(case.setup.model.shared, on_device(case.setup.problem.z0))[0])
    paths = case.setup.model.shared.paths
    content = head(Path(study.located.file).stem) | {
        "recordings": [r.name for r in recordings],
        "held_back": bool(study.validation),
        "parameters": {
            path: {"start": float(v), "unit": case.setup.unit_of(path)} for path, v in zip(paths, start, strict=True)
        },
        "methods": rows,
        "runs": runs,
        "mean": _means(runs, list(found)),
    }
    return Comparison(content, states, scenes, interrupted)


def _row(case: _Case, name: str) -> tuple[dict[str, Any], _Found]:
    began, compiling = time.perf_counter(), 0.0
    with _compile_clock() as clock:
        try:
            told = _RUN[name](case)
        except _CannotError as why:
            told = _Found({}, None, "not possible", str(why))
        except StudyError as why:
            told = _Found({}, None, "not possible", "; ".join(problem.message for problem in why.problems))
        compiling = clock()
    row = {
        "status": told.status,
        "message": told.message,
        "seconds": time.perf_counter() - began,
        "compiling": compiling,
        "parameters": told.parameters,
    }
    return row, told


@contextlib.contextmanager
def _compile_clock() -> Iterator[Callable[[], float]]:
    """Seconds in which something was traced or compiled, overlaps once."""
    spans: list[tuple[float, float]] = []

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        if event.startswith("/jax/core/compile/"):
            spans.append((time.perf_counter() - duration_secs, time.perf_counter()))

    def covered() -> float:
        total, until = 0.0, 0.0
        for begin, end in sorted(spans):
            total += max(0.0, end - max(begin, until))
            until = max(until, end)
        return total

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield covered
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def _predicted(
    study: Study,
    scene: Scene,
    pairs: Sequence[tuple[RecordingSpec, Recording]],
    found: dict[str, Identified],
    said: Callable[[str], None],
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Recording -> errors of every method; arrays RECORDING/time, /measured/SENSOR, /METHOD/SENSOR. A signal ends it
    before the next recording.
    """
    runs, states = {}, {}
    for spec, recording in pairs if found else ():
        try:
            said(f"predicting {recording.name}")
        except KeyboardInterrupt:
            break
        made: dict[str, Prediction] = {
            name: predict_recording(study, identified, recording, spec, scene=scene)
            for name, identified in found.items()
        }
        entries = {name: prediction.content() for name, prediction in made.items()}
        first = next(iter(entries.values()))
        signals = {
            sensor: {"unit": signal["unit"], "rms_held": signal["rms_held"]} | beside(sensor, entries)
            for sensor, signal in first["signals"].items()
        }
        runs[recording.name] = {key: first[key] for key in ("file", "horizon", "head")} | {"signals": signals}
        name = recording.name
        states[f"{name}/time"] = recording.time
        for sensor in signals:
            states[f"{name}/measured/{sensor}"] = recording.sensors[sensor]
            states |= {f"{name}/{method}/{sensor}": one.simulated[sensor] for method, one in made.items()}
    return runs, states


def _diverged(run: dict[str, Any], method: str) -> bool:
    return not all(np.isfinite(signal["rms"][method]) for signal in run["signals"].values())


def _means(runs: dict[str, Any], methods: Sequence[str]) -> dict[str, Any]:
    """Sensor -> unit, mean and median RMS error over the recordings of every method, and which is best."""
    found: dict[str, Any] = {}
    for sensor, unit in {s: signal["unit"] for run in runs.values() for s, signal in run["signals"].items()}.items():
        rms = {
            m: [run["signals"][sensor]["rms"][m] for run in runs.values() if sensor in run["signals"]] for m in methods
        }
        mean = {method: float(np.mean(values)) for method, values in rms.items()}
        finite = {method: value for method, value in mean.items() if np.isfinite(value)}
        found[sensor] = {
            "unit": unit,
            "mean": mean,
            "median": {method: float(np.median(values)) for method, values in rms.items()},
            "best": min(finite, key=lambda method: finite[method]) if finite else None,
        }
    return found
