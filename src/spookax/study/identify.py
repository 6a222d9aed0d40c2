"""`identify`: from a study to an `Estimate`."""

import dataclasses
import datetime
import hashlib
import importlib.metadata
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._results import ESTIMATE_RESULTS
from ..estimation import Settings
from ..estimation.simulator_form import Estimator, Fit, Iterate
from ..scene import Scene, SceneError, read_scene
from ..scene.paths import unit_of, with_numbers
from .check import check_against_scene, sensor_dimensions
from .checkpoint import load_iterate, pack_iterate
from .estimate import Estimate
from .model import RecordingSpec, Study
from .noise import estimate_levels
from .output import correlation, gauges, open_loop, predictions, run_contents
from .read import read_study
from .recording import Recording, read_recordings
from .setup import Setup, replace_noise, set_up

_NOISE_ROUNDS = 2
_FAILED_COST = 2.0  # times half the number of readings: more than any noise explains


@dataclasses.dataclass(frozen=True)
class Progress:
    """One line of progress; `phase` is compile, stage N, noise, restart N or check."""

    phase: str
    stage: int
    iteration: int
    cost: float
    step: float
    damping: float
    seconds: float


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

    **Returns:** an `Estimate`; a failure is a status with its explanation, not an exception. A KeyboardInterrupt
    ends the iteration and gives the last iterate.

    **Raises:** `FileError` for files that cannot be read; `RuntimeError` without 64-bit floats.
    """
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise RuntimeError("identification needs float64: call spookax.enable_x64() first")
    if not isinstance(study, Study):
        study = read_study(study)
    scene = scene or read_scene(study.scene_path)
    check_against_scene(study, study.located, scene)
    if recordings is None:
        recordings = read_recordings(study, sensor_dimensions(scene))
    run = _Run(study, set_up(study, scene, recordings), report)
    run.solve(resume)
    return run.estimate()


def predict_open_loop(
    scene: Scene, recording: Recording, spec: RecordingSpec, fit_seconds: float = 0.3
) -> dict[str, dict[str, float]]:
    """Simulate a recording from its first `fit_seconds` on and compare.

    The initial state and the offsets that `spec` frees are fitted on the first `fit_seconds` only, with every
    parameter of the scene as it is; then the scene is simulated with the recorded inputs, without feedback.

    **Returns:** sensor -> `rms` of the error [unit of the sensor] and `nrmse`, relative to the standard deviation of
    the measured signal.
    """
    start = recording.time <= recording.time[0] + fit_seconds
    short = dataclasses.replace(
        recording,
        time=recording.time[start],
        inputs={k: v[start] for k, v in recording.inputs.items()},
        sensors={k: v[start] for k, v in recording.sensors.items()},
    )
    study = Study.model_validate(
        {
            "spookax": 1,
            "scene": "scene",
            "recordings": [spec.model_dump(exclude_none=True, exclude={"start", "stop"})],
            "parameters": {"gravity.z": {"start": scene.gravity[2], "prior_sd": 1e-9, "transform": "identity"}},
            "estimator": {"friction_speed": [max(scene.regularisation.v_creep, 1e-3)]},
        }
    )
    setup = set_up(study, scene, [short])
    stage = setup.stages[-1]
    fit = Estimator(setup.problem, Settings(20, marginal=False)).run(setup.start(), [stage])
    whole = set_up(study, scene, [recording])
    z = jnp.concatenate([fit.iterate.z, fit.iterate.own[0]])
    x0 = jax.tree.map(lambda a: a[0], fit.iterate.paths[0].x)
    model = whole.model
    path = open_loop(model, z, stage.noise, x0, whole.problem.samples[0])
    grid = whole.grids[0]
    simulated = np.asarray(predictions(model, z, path, whole.problem.samples[0]))[grid.step_of, grid.slot_of]
    errors, column = {}, 0
    for sensor in whole.sensors:
        size = whole.system.sensors[whole.system.sensor_index(sensor)].size
        measured = recording.sensors[sensor]
        rms = float(np.sqrt(np.nanmean((measured - simulated[:, column : column + size]) ** 2)))
        errors[sensor] = {"rms": rms, "nrmse": rms / float(np.nanstd(measured))}
        column += size
    return errors


class _Run:
    """One identification: stages, noise levels, restarts, checks."""

    def __init__(self, study: Study, setup: Setup, report: Callable[[Progress], None] | None):
        self.study, self.setup, self.report = study, setup, report
        self.phase = "start"
        self.began = time.perf_counter()
        self.lines: list[Progress] = []
        self.process, self.sensor = float(setup.stages[-1].noise.process), setup.sensor_sd.copy()
        self.fit: Fit | None = None
        self.interrupted = False
        self.half_step: dict[str, Any] | None = None

    # --- running

    def solve(self, resume: str | Path | None) -> None:
        settings = self.study.estimator
        marginal = settings.objective == "marginal"
        base = Settings(settings.max_iterations, settings.tolerance, marginal=False)
        final = dataclasses.replace(base, marginal=marginal)
        estimator = Estimator(self.setup.problem, base, self._say)
        try:
            if resume is None:
                start, stages = self.setup.start(), self.setup.stages
            else:
                it = self._resumed(Path(resume))
                stages = self._stages()[-1:]
                start = estimator.retrack(stages[0], it)  # it may come from an earlier stage
            estimate_noise = settings.process_noise.estimate or settings.sensor_noise.estimate
            self.phase = "stages"
            estimator.settings = base if estimate_noise else final
            self.fit = self._with_restarts(estimator, start, stages)
            if estimate_noise:
                self._noise_rounds(estimator, base, final)
            if settings.check_half_step and self.fit.result == ESTIMATE_RESULTS.successful:
                self._check_half_step(final)
        except KeyboardInterrupt:
            self.interrupted = True
            if estimator.iterate is not None:
                self.fit = estimator.snapshot(self._stages()[-1], estimator.iterate)
            elif self.fit is None:
                raise

    def _stages(self):
        return replace_noise(self.setup.stages, self.process, self.sensor)

    def _with_restarts(self, estimator: Estimator, start: Iterate, stages) -> Fit:
        fit = estimator.run(start, stages)
        rng = np.random.default_rng(0)
        for k in range(self.study.estimator.restarts):
            if not self._failed(fit):
                break
            self.phase = f"restart {k + 1}"
            p = self.setup.problem
            z = np.clip(p.z0 + rng.uniform(-np.log(3), np.log(3), p.z0.shape), p.lower, p.upper)
            estimator.problem = dataclasses.replace(p)
            moved = dataclasses.replace(self.setup, problem=dataclasses.replace(p, z0=z))
            again = estimator.run(moved.start(), stages)
            fit = min(fit, again, key=lambda f: f.cost if np.isfinite(f.cost) else np.inf)
        return fit

    def _failed(self, fit: Fit) -> bool:
        readings = sum(float(np.sum(s.seen)) for s in self.setup.problem.samples)
        return not np.isfinite(fit.cost) or fit.cost > _FAILED_COST * readings / 2

    def _noise_rounds(self, estimator: Estimator, base: Settings, final: Settings) -> None:
        assert self.fit is not None
        settings = self.study.estimator
        for k in range(_NOISE_ROUNDS):
            self.phase = f"noise {k + 1}"
            stage = self._stages()[-1]
            process, sensor = estimate_levels(
                stage,
                self.setup.problem,
                self.fit.iterate,
                settings.process_noise.estimate,
                settings.sensor_noise.estimate,
            )
            change = max(abs(np.log(process)), float(np.max(np.abs(np.log(sensor)))))
            self.process, self.sensor = self.process * process, self.sensor * sensor
            done = change < 0.2 or k == _NOISE_ROUNDS - 1
            estimator.settings = final if done else base
            stage = self._stages()[-1]
            paths = tuple(p._replace(w=p.w / process) for p in self.fit.iterate.paths)
            self.fit = estimator.run(self.fit.iterate._replace(paths=paths), [stage])
            if done:
                break

    def _check_half_step(self, settings: Settings) -> None:
        """Estimate again at half the step size from the optimum; report the shift in standard deviations."""
        assert self.fit is not None
        self.phase = "half step"
        s = self.setup
        half = set_up(self.study, s.scene, list(s.recordings), step=float(s.scene.step) / 2)
        half = dataclasses.replace(half, problem=dataclasses.replace(half.problem, z0=np.asarray(self.fit.iterate.z)))
        stage = replace_noise(half.stages, self.process, self.sensor)[-1]
        problem = dataclasses.replace(half.problem, prior=s.problem.prior)
        half = dataclasses.replace(half, problem=problem, stages=(stage,))
        fit = Estimator(problem, settings, self._say).run(half.start(), [stage])
        value, sd = self._values(self.fit)
        other, _ = self._values(fit)
        self.half_step = {
            path: {"value": float(b), "shift_in_sd": float((b - a) / c) if c > 0 else None}
            for path, a, b, c in zip(s.model.shared.paths, value, other, sd, strict=True)
        }

    def _resumed(self, path: Path) -> Iterate:
        self.process, self.sensor, it = load_iterate(path, self.setup)
        return it

    def _say(self, line) -> None:
        progress = Progress(
            self.phase,
            line.stage,
            line.iteration,
            line.cost,
            line.step,
            line.damping,
            time.perf_counter() - self.began,
        )
        self.lines.append(progress)
        if self.report:
            self.report(progress)

    # --- the result

    def _values(self, fit: Fit) -> tuple[np.ndarray, np.ndarray]:
        shared = self.setup.model.shared
        value = np.asarray(shared.values(fit.iterate.z))
        jac = np.asarray(jax.jacfwd(shared.values)(fit.iterate.z))
        return value, np.sqrt(np.maximum(np.diag(jac @ fit.covariance @ jac.T), 0.0))

    def estimate(self) -> Estimate:
        assert self.fit is not None
        fit, setup = self.fit, self.setup
        status, message = self._status(fit)
        value, sd = self._values(fit)
        shared = setup.model.shared
        parameters = {}
        starts = np.asarray(shared.values(jnp.asarray(setup.problem.z0)))
        i = 0
        for free in shared.free:
            for _ in range(free.size):
                path = shared.paths[i]
                parameters[path] = {
                    "value": float(value[i]),
                    "sd": float(sd[i]),
                    "unit": unit_of(setup.scene, path),
                    "start": float(starts[i]),
                    "lower": float(free.lower),
                    "upper": float(free.upper),
                    "transform": free.transform,
                    "prior_sd": free.prior_sd,
                }
                i += 1
        runs, states = run_contents(self.study, setup, fit, self._stages()[-1])
        groups = gauges(shared, fit)
        content = {
            "spookax": importlib.metadata.version("spookax"),
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "study": Path(self.study.located.file).stem,
            "form": self.study.estimator.form,
            "objective": self.study.estimator.objective,
            "step": float(setup.scene.step),
            "friction_speed": float(self.study.estimator.friction_speed[-1]),
            "cost": float(fit.cost),
            "iterations": len(self.lines),
            "parameters": parameters,
            "correlation": {"paths": list(shared.paths), "matrix": correlation(shared, fit)},
            "runs": runs,
            "noise": {
                "kind": setup.model.noise.kind,
                "process_density": setup.density * self.process,
                "process_unit": "N m sqrt(s) or N sqrt(s)",
                "sensors": self._sensor_levels(),
            },
            "convergence": [dataclasses.asdict(line) for line in self.lines],
            "checks": {"gauge": groups, "half_step": self.half_step},
            "versions": _versions(),
            "hashes": self._hashes(),
        }
        try:
            scene = with_numbers(setup.scene, {p: float(v) for p, v in zip(shared.paths, value, strict=True)})
        except SceneError as error:
            status, scene = "unphysical", setup.scene
            message = (
                f"The estimate is not a possible body or joint: {error} Use `transform: inertia`, bounds or a prior."
            )
        creep = self.study.estimator.friction_speed[-1]
        scene = scene.model_copy(
            update={"regularisation": scene.regularisation.model_copy(update={"v_creep": float(creep)})}
        )
        return Estimate(status, message, content, states, scene, pack_iterate(self.process, self.sensor, fit.iterate))

    def _status(self, fit: Fit) -> tuple[str, str]:
        result = fit.result
        if self.interrupted:
            result = ESTIMATE_RESULTS.interrupted
        elif result == ESTIMATE_RESULTS.successful and self._failed(fit):
            result = ESTIMATE_RESULTS.local_minimum
        for name in ("successful", "iteration_limit", "no_progress", "nonfinite", "interrupted", "local_minimum"):
            if result == getattr(ESTIMATE_RESULTS, name):
                label = {"successful": "converged"}.get(name, name)
                return label, ESTIMATE_RESULTS[getattr(ESTIMATE_RESULTS, name)]
        return "failed", ESTIMATE_RESULTS[result]

    def _sensor_levels(self) -> dict[str, list[float]]:
        levels, i = {}, 0
        for name in self.setup.sensors:
            size = self.setup.system.sensors[self.setup.system.sensor_index(name)].size
            levels[name] = [float(x) for x in self.sensor[i : i + size]]
            i += size
        return levels

    def _hashes(self) -> dict[str, str]:
        hashes = {r.path.name: r.sha256 for r in self.setup.recordings}
        for path in (Path(self.study.located.file), self.study.scene_path):
            if path.is_file():
                hashes[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        return hashes


def _versions() -> dict[str, str]:
    names = ("spookax", "jax", "jaxlib", "numpy", "equinox")
    return {"python": platform.python_version(), **{n: importlib.metadata.version(n) for n in names}}
