"""`identify`: from a study to an `Estimate`."""

import dataclasses
import datetime
import hashlib
import importlib.metadata
import platform
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from .._interruption import stoppable
from .._results import ESTIMATE_RESULTS
from ..estimation.problem import Fit
from ..models.parameters import natural_values
from ..scene import Scene, SceneError, read_scene
from ..scene.paths import unit_of, with_numbers
from .check import check_against_scene, sensor_dimensions
from .checkpoint import pack_iterate
from .estimate import Estimate
from .model import Study
from .output import correlation, friction_curves, gauges, run_contents
from .read import read_study
from .recording import Recording, read_recordings
from .setup import Setup, set_up
from .solve import Progress, Solver, natural


def identify(
    study: Study | str | Path,
    *,
    report: Callable[[Progress], None] | None = None,
    resume: str | Path | None = None,
    recordings: list[Recording] | None = None,
    scene: Scene | None = None,
) -> Estimate:
    """Identify the unknown parameters of a study from its recordings.

    **Arguments:**

    - `report`: called after every iteration.
    - `resume`: the folder (or `checkpoint.npz`) of an earlier estimate of the same study to go on from.
    - `recordings`, `scene`: instead of the files that the study names.

    **Returns:** an `Estimate`; a failure is a status with its explanation, not an exception. Ctrl-C ends it after the
    iteration and gives the last iterate, as a KeyboardInterrupt from `report` does.

    **Raises:** `FileError` for files that cannot be read; `RuntimeError` without 64-bit floats; `KeyboardInterrupt`
    where Ctrl-C leaves no iterate to keep, or is pressed again.
    """
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise RuntimeError("identification needs float64: call spookax.enable_x64() first")
    if not isinstance(study, Study):
        study = read_study(study)
    scene = scene or read_scene(study.scene_path)
    check_against_scene(study, study.located, scene)
    if recordings is None:
        recordings = read_recordings(study, sensor_dimensions(scene))
    with stoppable() as stop:
        solver = Solver(study, set_up(study, scene, recordings), report, stop)
        solver.run(None if resume is None else Path(resume))
        return _estimate(solver)


def _estimate(solver: Solver) -> Estimate:
    fit, setup, study = solver.fit, solver.setup, solver.study
    assert fit is not None
    status, message = _status(solver, fit)
    value, sd = natural(setup, fit)
    shared, settings = setup.model.shared, study.estimator
    start = np.asarray(natural_values(shared, jnp.asarray(setup.problem.z0))[0])
    owner = [free for free in shared.free for _ in range(free.size)]
    parameters = {
        path: {
            "value": float(value[i]),
            "sd": float(sd[i]),
            "unit": unit_of(setup.scene, path),
            "start": float(start[i]),
            "lower": float(owner[i].lower),
            "upper": float(owner[i].upper),
            "transform": owner[i].transform,
            "prior_sd": owner[i].prior_sd,
        }
        for i, path in enumerate(shared.paths)
    }
    runs, states = run_contents(setup, fit, solver.stage)
    content = {
        "spookax": importlib.metadata.version("spookax"),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "study": Path(study.located.file).stem,
        "study_file": str(Path(study.located.file).resolve()) if study.located.data else None,
        "form": settings.form,
        "objective": settings.objective,
        "step": float(setup.scene.step),
        "friction_speed": float(settings.friction_speed[-1]),
        "cost": float(fit.cost),
        "iterations": solver.iterations,
        "parameters": parameters,
        "correlation": {"paths": list(shared.paths), "matrix": correlation(shared, fit)},
        "friction": friction_curves(setup, fit),
        "runs": runs,
        "noise": {
            "kind": setup.model.noise.kind,
            "process_density": _process_density(setup, fit),
            "process_unit": "N m sqrt(s) or N sqrt(s)",
            "sensors": _sensor_levels(setup, fit),
        },
        "convergence": [dataclasses.asdict(line) for line in solver.lines],
        "checks": {"gauge": gauges(shared, fit), "half_step": solver.half_step},
        "versions": versions(),
        "hashes": hashes_of(setup, study),
    }
    try:
        scene = with_numbers(setup.scene, {p: float(v) for p, v in zip(shared.paths, value, strict=True)})
    except SceneError as error:
        scene = setup.scene
        cure = f"is not a possible body or joint: {error} Use `transform: inertia`, bounds or a prior."
        if solver.interrupted:
            message = f"{message} So far it {cure}"
        else:
            status, message = "unphysical", f"The estimate {cure}"
    # the scene keeps the friction that it was identified with
    regularisation = scene.regularisation.model_copy(update={"v_creep": float(settings.friction_speed[-1])})
    scene = scene.model_copy(update={"regularisation": regularisation})
    return Estimate(status, message, content, states, scene, pack_iterate(solver.stage, fit))


def _status(solver: Solver, fit: Fit) -> tuple[str, str]:
    result = fit.result
    if solver.interrupted:
        result = ESTIMATE_RESULTS.interrupted
    elif result == ESTIMATE_RESULTS.successful and solver.failed:
        result = ESTIMATE_RESULTS.local_minimum
    for name in ("successful", "iteration_limit", "no_progress", "nonfinite", "interrupted", "local_minimum"):
        if result == getattr(ESTIMATE_RESULTS, name):
            label = {"successful": "converged"}.get(name, name)
            return label, ESTIMATE_RESULTS[getattr(ESTIMATE_RESULTS, name)]
    return "failed", ESTIMATE_RESULTS[result]


def _process_density(setup: Setup, fit: Fit) -> float | dict[str, float]:
    density = setup.density * np.asarray(fit.noise.process)
    if density.ndim == 0:
        return float(density)
    return {name: float(x) for name, x in zip(setup.system.axis_names(), density, strict=True)}


def _sensor_levels(setup: Setup, fit: Fit) -> dict[str, list[float]]:
    levels, i = {}, 0
    for name in setup.sensors:
        size = setup.system.sensors[setup.system.sensor_index(name)].size
        levels[name] = [float(x) for x in fit.noise.sensor[i : i + size]]
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
