"""`identify`: from a study to an `Estimate`."""

import dataclasses
import datetime
import functools
import hashlib
import importlib.metadata
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..._compiled import on_device
from ..._interruption import stoppable
from ..._typing import AnyArray
from ...estimation.batch.problem import Fit
from ...models.parameters import natural_values
from ...scene import Scene, read_scene
from ..file.against_scene import check_against_scene, input_dimensions, sensor_dimensions
from ..file.read import read_study
from ..file.study import Study
from ..judging.bands import foretold
from ..judging.density import PREFIXES
from ..judging.diagnosis import diagnosis, explanations, suspects
from ..judging.error_bars import ErrorBars, natural
from ..judging.intervals import intervals
from ..judging.judge import ending
from ..judging.output import bands, correlation, friction_curves, gauges, run_contents, told, undetermined
from ..judging.posterior import posterior_content
from ..judging.set_aside import outliers
from ..judging.trust import trust
from ..recordings.recording import Recording, read_recordings
from ..running.checkpoint import pack_iterate
from ..running.setup import Setup, set_up
from .estimate import Estimate, identified_scene
from .solve import Progress, Solver
from .stretches import validate


def identify(
    study: Study | str | Path,
    *,
    report: Callable[[Progress], None] | None = None,
    resume: str | Path | None = None,
    keep: str | Path | None = None,
    recordings: list[Recording] | None = None,
    scene: Scene | None = None,
) -> Estimate:
    """Identify the unknown parameters of a study from its recordings.

    **Arguments:**

    - `report`: called after every iteration.
    - `resume`: the folder (or `checkpoint.npz`) of an earlier estimate of the same study to go on from.
    - `keep`: a folder in which the present iterate lies meanwhile (`unfinished.npz`), for `resume` after a crash.
    - `recordings`, `scene`: instead of the files that the study names. What it lists under `validate` is read all the
      same, and predicted afterwards.

    **Returns:** an `Estimate`; a failure is a status with its explanation, not an exception. Ctrl-C and
    SIGTERM end it after the iteration and give the last iterate, as a KeyboardInterrupt from `report` does.

    **Raises:** `FileError` for files that cannot be read; `RuntimeError` without 64-bit floats; `KeyboardInterrupt`
    where a signal leaves no iterate to keep, or comes again.
    """
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise RuntimeError("identification needs float64: call spookax.enable_x64() first")
    if not isinstance(study, Study):
        study = read_study(study)
    scene = scene or read_scene(study.scene_path)
    check_against_scene(study, study.located, scene)
    if recordings is None:
        recordings = read_recordings(study, sensor_dimensions(scene), inputs=input_dimensions(scene))
    held_back = read_recordings(study, sensor_dimensions(scene), "validate", recordings, inputs=input_dimensions(scene))
    with stoppable() as stop:
        solver = Solver(study, set_up(study, scene, recordings), report, stop, None if keep is None else Path(keep))
        solver.run(None if resume is None else Path(resume))
        return _judged(_estimate(solver), solver, scene, held_back)


def _judged(estimate: Estimate, solver: Solver, scene: Scene, held_back: list[Recording]) -> Estimate:
    """The estimate with what it predicts of the recordings under `validate`, and whether to trust it."""
    content, states = estimate.content, estimate.states
    content["validation"] = {}
    if held_back and not (solver.interrupted or solver.stop.asked):
        content["validation"], arrays = validate(solver.study, estimate, scene, held_back)
        states = states | arrays
    content["trust"] = dataclasses.asdict(trust(estimate.to_json()))
    return dataclasses.replace(estimate, states=states)


def _estimate(solver: Solver) -> Estimate:
    fit, setup, study, bars = solver.fit, solver.setup, solver.study, solver.bars
    assert fit is not None
    failed, tried = solver.failure, functools.partial(_restarts, solver)
    status, message = ending(setup, fit, interrupted=solver.interrupted, failure=failed, restarts=tried)
    recordings = told(setup, fit, solver.stage)
    runs, states = run_contents(setup, fit, solver.stage, recordings)
    explained = explanations(setup, fit, states)
    found = suspects(setup, fit, explained, solver.misread, solver.half_step)
    solver.look_closer(explained)
    information = bars.information if bars else fit.information
    assumed = _by_sensor(setup, setup.sensor_sd)
    if solver.stands():
        found_bands = bands(setup, fit, solver.stage, information, recordings)
        states |= found_bands
        for name, run in runs.items():
            for sensor, signal in run["signals"].items():
                if (band := found_bands.get(f"{name}/open_loop_sd/{sensor}")) is not None:
                    time, measured = (states[f"{name}/{key}"] for key in ("time", f"measured/{sensor}"))
                    signal["foretold"] = foretold(time, measured, band, np.array(assumed[sensor]))
    value, sd = natural(setup, fit)
    shared, settings = setup.model.shared, study.estimator
    start = np.asarray(natural_values(shared, on_device(setup.problem.z0))[0])
    owner = [free for free in shared.free for _ in range(free.size)]
    parameters: dict[str, dict[str, Any]] = {
        path: {
            "value": float(value[i]),
            "sd": float(sd[i]),
            "unit": setup.unit_of(path),
            "start": float(start[i]),
            "lower": float(owner[i].lower),
            "upper": float(owner[i].upper),
            "transform": owner[i].transform,
            "prior_sd": owner[i].prior_sd,
        }
        for i, path in enumerate(shared.unknown_paths)
    }
    for i, tie in enumerate(shared.ties, start=len(parameters)):
        parameters[tie.path] = {
            "value": float(value[i]),
            "sd": float(sd[i]),
            "unit": setup.unit_of(tie.path),
            "start": float(start[i]),
            "tied": tie.expression.text,
        }
    for path, interval in intervals(shared, fit, bars.profiles if bars else {}).items():
        parameters[path] |= interval
    content = {
        "spookax": importlib.metadata.version("spookax"),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "study": Path(study.located.file).stem,
        "study_file": str(Path(study.located.file).resolve()) if study.located.data else None,
        "form": settings.form,
        "objective": settings.objective,
        "step": float(setup.scene.step),
        "friction_speed": setup.friction_speed[-1],
        "cost": float(fit.cost),
        "iterations": solver.iterations,
        "restarts": {"drawn": solver.drawn, "followed": solver.followed},
        "parameters": parameters,
        "correlation": {"paths": list(shared.unknown_paths), "matrix": correlation(shared, fit)},
        "posterior": posterior_content(shared, fit) | {"undetermined": undetermined(fit, information).tolist()},
        "friction": friction_curves(setup, fit),
        "runs": runs,
        "noise": {
            "kind": setup.model.noise.kind,
            "process_density": _process_density(setup, fit),
            "process_unit": _process_unit(setup),
            "sensors": _by_sensor(setup, fit.noise.sensor),
            "assumed": assumed,
        },
        "convergence": [dataclasses.asdict(line) for line in solver.lines],
        "checks": {
            "gauge": gauges(shared, fit, information),
            "half_step": bars.half_step if bars else None,
            "suspicion": bars.suspicion if bars else None,
            "coloured": _coloured(bars),
            "misread": solver.misread._asdict() if solver.misread else None,
            "prediction": _left_out(solver),
        },
        "outliers": outliers(setup, fit, states),
        "diagnosis": diagnosis(setup, states, found),
        "versions": versions(),
        "hashes": hashes_of(setup, study),
    }
    numbers = {p: float(v) for p, v in zip(shared.paths, value, strict=True)}
    scene, said = identified_scene(setup.scene, numbers)
    message = f"{message} {said}".strip()
    if scene is None:
        status = "unphysical" if status == "converged" else status
    else:  # keeps the friction that it was identified with
        regularisation = scene.regularisation.model_copy(update={"v_creep": setup.friction_speed[-1]})
        scene = scene.model_copy(update={"regularisation": regularisation})
    return Estimate(status, message, content, states, scene, pack_iterate(solver.stage, fit.noise, fit.iterate))


def _restarts(solver: Solver) -> str:
    """A sentence about other starts, where the first one has failed."""
    if not solver.drawn:
        return "No other starts were tried."
    tried = f"{solver.drawn} other start{'s' * (solver.drawn > 1)} tried"
    if not solver.followed:
        return f"{tried}, none of which promised more."
    were = "were" if solver.followed > 1 else "was"
    return f"{tried}, {solver.followed} of which promised more and {were} followed to the end."


def _coloured(bars: ErrorBars | None) -> float | None:
    """By how much coloured innovations widened the standard deviations, at most."""
    return None if bars is None else float(np.max(bars.widened, initial=1.0))


def _left_out(solver: Solver) -> dict[str, Any] | None:
    """How well readings that were left out were predicted, with which density of the process noise."""
    if not solver.candidates:
        return None
    tried = [
        {"density": np.asarray(c.process).tolist(), "rms": c.error, "relative": float(c.score[0])}
        for c in solver.candidates
    ]
    ends = [r.time[out] for r, out in zip(solver.setup.recordings, solver.left_out, strict=True)]
    longest = max(float(time[-1] - time[0]) for time in ends if time.size)
    scores = solver.candidates[solver.chosen].score.tolist()
    spans = [{"seconds": part * longest, "relative": e} for part, e in zip(PREFIXES, scores, strict=True)]
    return {"tried": tried, "chosen": solver.chosen, "spans": spans}


def _process_density(setup: Setup, fit: Fit) -> float | dict[str, float]:
    density = setup.density * np.asarray(fit.noise.process)
    if density.ndim == 0:
        return float(density)
    return {name: float(x) for name, x in zip(setup.system.axis_names(), density, strict=True)}


def _process_unit(setup: Setup) -> str | dict[str, str]:
    """Of every joint where each has a level of its own, else of all; a level of bodies is that of the forces."""
    units = {axis.name: "N m sqrt(s)" if axis.rotational else "N sqrt(s)" for axis in setup.system.axes}
    if np.ndim(setup.stages[0].noise.process):
        return units
    return " or ".join(sorted(set(units.values()))) if setup.model.noise.kind == "joints" else "N sqrt(s)"


def _by_sensor(setup: Setup, sd: AnyArray) -> dict[str, list[float]]:
    """Standard deviations of the channels of every sensor."""
    levels, i = {}, 0
    for name in setup.sensors:
        size = setup.system.sensors[setup.system.sensor_index(name)].size
        levels[name] = [float(x) for x in np.asarray(sd)[i : i + size]]
        i += size
    return levels


def hashes_of(setup: Setup, study: Study) -> dict[str, str]:
    """SHA-256 of the files that a study was read from."""
    hashes = {r.path.name: r.sha256 for r in setup.recordings}
    for path in (Path(study.located.file), study.scene_path):
        if path.is_file():
            hashes[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return hashes


def versions() -> dict[str, str]:
    """Of the packages that compute."""
    names = ("spookax", "jax", "jaxlib", "numpy", "equinox")
    return {"python": platform.python_version(), **{n: importlib.metadata.version(n) for n in names}}
