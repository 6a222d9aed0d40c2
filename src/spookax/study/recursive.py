"""`filter_recordings` and `smooth_recordings`: once through the recordings of a study."""

import dataclasses
import datetime
import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import AnyArray
from ..estimation import (
    Drift,
    EnsembleFilter,
    Extended,
    Filter,
    Joint,
    Recursion,
    Unscented,
    WithParameters,
    faults,
    gate_of,
    innovation_tests,
)
from ..estimation.linearise import Path as StatePath
from ..estimation.recording import first_state
from ..math.sqrt_gaussian import lower
from ..models import Multibody
from ..models.parameters import natural_values
from ..protocol import AbstractModel, Noise, Samples
from ..scene import Scene, SceneError, read_scene, write_scene
from ..scene.explain import Finding
from ..scene.paths import unit_of, with_numbers
from .check import check_against_scene, sensor_dimensions
from .checkpoint import load_levels
from .estimate import finite_json
from .identify import hashes_of, versions
from .model import Study
from .output import as_read, axis_readings, axis_sd, poses, predictions
from .read import StudyError, read_study
from .recording import Recording, read_recordings
from .setup import Setup, set_up


@dataclasses.dataclass(frozen=True)
class Tracking:
    """States and parameters over the recordings of a study, and what the innovations say of the model.

    `content` is what `tracking.json` holds, `states` what `states.npz` does: arrays by `RUN/quantity`.
    """

    content: dict[str, Any]
    states: dict[str, np.ndarray]
    scene: Scene

    @property
    def parameters(self) -> dict[str, dict[str, Any]]:
        """path -> value and sd after the last recording, unit, start."""
        return self.content["parameters"]

    def save(self, folder: str | Path) -> Path:
        """Write `tracking.json`, `states.npz` and `scene.yaml`; returns the folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tracking.json").write_text(finite_json(self.content), encoding="utf-8")
        np.savez_compressed(folder / "states.npz", **self.states)  # pyright: ignore[reportArgumentType]
        write_scene(self.scene, folder / "scene.yaml")
        return folder


def filter_recordings(study: Study | str | Path, **options: Any) -> Tracking:
    """Filter the recordings of a study: every state from the readings up to its time.

    Parameters of the study are states, too (`recursive.parameters: estimated`), constant or drifting; what one
    recording has taught of them is the prior of the next.

    **Arguments** (by name):

    - `estimate`: folder of an estimate of the same study, whose noise levels and parameters are taken; these are held.
    - `report`: called with the name of every recording that is begun.
    - `recordings`, `scene`: instead of the files that the study names.

    **Raises:** `FileError` for files that cannot be read; `RuntimeError` without 64-bit floats.
    """
    return _Tracker(study, smooth=False, **options).run()


def smooth_recordings(study: Study | str | Path, **options: Any) -> Tracking:
    """Filter and smooth the recordings of a study: every state from all readings of its recording.

    Arguments as for `filter_recordings`; `StudyError` for the rule ensemble.
    """
    return _Tracker(study, smooth=True, **options).run()


class _Tracker:
    def __init__(
        self,
        study: Study | str | Path,
        *,
        smooth: bool,
        estimate: str | Path | None = None,
        report: Callable[[str], None] | None = None,
        recordings: list[Recording] | None = None,
        scene: Scene | None = None,
    ):
        if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
            raise RuntimeError("filtering needs float64: call spookax.enable_x64() first")
        self.study = study = study if isinstance(study, Study) else read_study(study)
        self.smooth, self.report, self.estimate = smooth, report, estimate
        if smooth and study.recursive.rule == "ensemble":
            message = "an ensemble has no linear model to smooth with"
            finding = Finding(("recursive", "rule"), "ensemble", message, "Write extended or unscented.")
            raise StudyError([study.located.problem(finding)])
        scene = scene or read_scene(study.scene_path)
        check_against_scene(study, study.located, scene)
        if recordings is None:
            recordings = read_recordings(study, sensor_dimensions(scene))
        self.setup: Setup = set_up(study, scene, recordings)
        stage = self.setup.stages[-1]
        assert isinstance(stage.model, Multibody)
        self.model, self.noise = stage.model, stage.noise
        self.held = estimate is not None or study.recursive.parameters == "held"
        self.z = np.array(self.setup.problem.z0)
        if estimate is not None:
            self.z, process, sensor = load_levels(Path(estimate), self.setup)
            self.noise = Noise(jnp.asarray(process), jnp.asarray(sensor))
        weight = self.setup.problem.weight
        given = np.array([f.prior_sd is not None for f in self.model.shared.free for _ in range(f.size)], dtype=bool)
        self.z_factor = np.diag(np.where(given, 1 / weight, study.recursive.parameter_sd))

    # --- one recording

    def _filter(self) -> Filter | EnsembleFilter:
        settings, own = self.study.recursive, self.model.own.size
        model: AbstractModel = self.model
        z = np.concatenate([self.z, np.zeros(own)])
        if not self.held:
            drift = None
            if settings.drift:
                names = [f.path for f in self.model.shared.free for _ in range(f.size)]
                # given in the units of `prior_sd`; the map has identity coordinates relative to their start
                scale = self.model.shared.prior_units()
                density = [settings.drift.get(name, 0.0) / s for name, s in zip(names, scale, strict=True)]
                drift = Drift(np.concatenate([density, np.zeros(own)]))
            model, z = WithParameters(model, len(z), drift), np.zeros(0)
        gate = np.inf if settings.gate is None else gate_of(self._readings(), settings.gate)
        if settings.rule == "ensemble":
            return EnsembleFilter(model, z, self.noise, settings.members, gate=gate)
        rule = Extended(settings.iterations) if settings.rule == "extended" else Unscented()
        return Filter(model, z, self.noise, rule, gate)

    def _readings(self) -> int:
        """Readings of a step that has as many as any."""
        return max(int((np.asarray(s.seen) > 0).sum(axis=(1, 2)).max()) for s in self.setup.problem.samples)

    def _first(self, path: StatePath) -> tuple[Any, np.ndarray]:
        """The first state and a factor of its covariance, the parameters' with it: rows (x, z)."""
        own, settings = self.model.own.size, self.study.recursive
        z = np.concatenate([self.z, np.zeros(own)])
        x0 = jax.tree.map(lambda a: np.asarray(a)[0], path.x)
        x, P0, Y0 = first_state(self.model, z, x0, np.asarray(settings.initial_sd))
        value, vector = np.linalg.eigh(np.asarray(P0))
        S = vector * np.sqrt(np.maximum(value, 0.0))
        if self.held:
            return x, S
        Z = np.zeros((len(z), len(z)))
        count = len(self.z)
        Z[:count, :count] = self.z_factor
        Z[count:, count:] = np.diag(1 / self.setup.problem.own_weight) if own else 0.0
        return Joint(x, jnp.asarray(z)), np.block([[S, np.asarray(Y0) @ Z], [np.zeros((len(z), len(S))), Z]])

    def _through(self, samples: Samples, path: StatePath) -> tuple[Recursion, Any, np.ndarray, np.ndarray, np.ndarray]:
        """A recording filtered: states, their factors, parameters and their standard deviations, a row a step."""
        f, (x0, factor) = self._filter(), self._first(path)
        if isinstance(f, EnsembleFilter):
            found = f.run(f.init(x0, factor, jax.random.key(0)), samples)
            x, S = found.x, np.asarray(found.sd)[:, :, None] * np.eye(found.sd.shape[1])
        else:
            found = f.run(f.init(x0, factor), samples, trail=True)
            assert found.rows is not None
            x, S = found.x, np.asarray(found.rows.filtered)
            if self.smooth:
                smoothed = f.smooth(found)
                x, S = jax.tree.map(lambda a: a[:-1], smoothed.x), np.asarray(smoothed.factor)[:-1]
        n, steps = self.model.tangent_size, len(S)
        if self.held:
            z = np.concatenate([self.z, np.zeros(self.model.own.size)])
            return found, x, S, np.broadcast_to(z, (steps, len(z))), np.zeros((steps, len(z), 1))
        if not isinstance(f, EnsembleFilter):  # what the end of the recording knows of the shared parameters
            end, count = found.last, len(self.z)
            self.z = np.asarray(end.x.z + end.mean[n : n + len(end.x.z)])[:count]
            self.z_factor = np.asarray(lower(end.factor[n : n + count]))
        else:
            self.z = np.asarray(x.z)[-1, : len(self.z)]
            self.z_factor = np.diag(np.asarray(found.sd)[-1, n : n + len(self.z)])
        return found, x.x, S[:, :n], np.asarray(x.z), S[:, n:]

    # --- all of them

    def run(self) -> Tracking:
        """Through all recordings."""
        setup, runs, states = self.setup, {}, {}
        start = np.asarray(natural_values(self.model.shared, jnp.asarray(self.z))[0])
        for i, (path, _) in enumerate(setup.plans()):
            if self.report:
                self.report(setup.recordings[i].name)
            run, arrays = self._contents(i, *self._through(setup.problem.samples[i], path))
            runs[setup.recordings[i].name] = run
            states |= arrays
        value, jac = map(np.asarray, natural_values(self.model.shared, jnp.asarray(self.z)))
        sd = np.zeros(len(value)) if self.held else np.linalg.norm(jac @ self.z_factor, axis=1)
        paths = self.model.shared.paths
        parameters = {
            path: {"value": float(v), "sd": float(s), "start": float(b), "unit": unit_of(setup.scene, path)}
            for path, v, s, b in zip(paths, value, sd, start, strict=True)
        }
        message, scene = "", setup.scene
        try:
            scene = with_numbers(scene, {p: float(v) for p, v in zip(paths, value, strict=True)})
        except SceneError as error:
            message = f"The parameters are not a possible body or joint: {error} Use `transform: inertia` or a prior."
        content = {
            "spookax": importlib.metadata.version("spookax"),
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "study": Path(self.study.located.file).stem,
            "kind": "smoothed" if self.smooth else "filtered",
            "message": message,
            "settings": self.study.recursive.model_dump() | {"parameters": "held" if self.held else "estimated"},
            "step": float(setup.scene.step),
            "log_likelihood": float(sum(run["log_likelihood"] for run in runs.values())),
            "parameters": parameters,
            "runs": runs,
            "versions": versions(),
            "hashes": hashes_of(setup, self.study),
        }
        return Tracking(content, states, scene)

    def _contents(
        self, i: int, found: Recursion, x: Any, S: np.ndarray, z: np.ndarray, Z: np.ndarray
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        setup, model = self.setup, self.model
        recording, grid, samples = setup.recordings[i], setup.grids[i], setup.problem.samples[i]
        name, innovation, count = recording.name, found.innovation, int(grid.step_of[-1]) + 1
        states: dict[str, np.ndarray] = {f"{name}/time": recording.time, f"{name}/state_time": grid.times[:count]}
        path = StatePath(_closed(x), np.zeros((len(S), 0)), np.zeros((len(S), 0)))
        shape = samples.y.shape[1:]
        residual, white = (
            np.asarray(a).reshape(-1, *shape)[grid.step_of, grid.slot_of]
            for a in (innovation.residual, innovation.whitened)
        )
        along = predictions(model, z[-1], path, samples)[grid.step_of, grid.slot_of]
        weight = np.asarray(samples.seen)[grid.step_of, grid.slot_of]
        signals, column = {}, 0
        level = np.asarray(self.noise.sensor)
        for sensor in setup.sensors:
            size = setup.system.sensors[setup.system.sensor_index(sensor)].size
            part = slice(column, column + size)
            column += size
            measured = recording.sensors[sensor]
            if not np.isfinite(measured).any():
                continue
            there = np.isfinite(measured) & (weight[:, part] > 0)
            error = residual[:, part] * level[part] / np.where(there, weight[:, part], 1.0)
            states[f"{name}/measured/{sensor}"] = measured
            if self.smooth:
                states[f"{name}/estimated/{sensor}"] = as_read(measured, along[:, part])
            else:
                states[f"{name}/estimated/{sensor}"] = np.where(there, measured - error, np.nan)
            states[f"{name}/innovation/{sensor}"] = np.where(there, white[:, part], np.nan)
            signals[sensor] = {
                "unit": ", ".join(recording.sensor_units.get(sensor, ("",))),
                "rms_ahead": float(np.sqrt(np.mean(error[there] ** 2))),
                "rms_innovation": float(np.sqrt(np.mean(white[:, part][there] ** 2))),
            }
        joint_sd = axis_sd(model, z[-1], path, jnp.asarray(S @ np.swapaxes(S, 1, 2)))
        position, rate, com = axis_readings(model, z[-1], path.x)
        for a, axis in enumerate(setup.system.axis_names()):
            for key, value, sd in (("position", position, joint_sd[:, 0]), ("rate", rate, joint_sd[:, 1])):
                states[f"{name}/{key}/{axis}"] = value[:count, a]
                states[f"{name}/{key}_sd/{axis}"] = sd[:count, a]
        if not self.held:
            states |= self._parameters(name, z[:count], Z[:count])
        states |= poses(name, grid.times[:count], jax.tree.map(lambda a: np.asarray(a)[:count], x), com)
        states[f"{name}/nis"], states[f"{name}/nis_size"] = (
            np.asarray(a)[:count] for a in (innovation.nis, innovation.size)
        )
        at = np.flatnonzero(faults(innovation))
        skip = min(100, len(S) // 4)
        tests = innovation_tests(innovation, skip=skip)
        run = {
            "file": recording.path.name,
            "samples": int(np.sum(np.asarray(samples.seen) > 0)),
            "duration": float(recording.time[-1] - recording.time[0]),
            "log_likelihood": float(found.log_likelihood),
            "nis": tests.nis,
            "nis_p": tests.nis_p,
            "whiteness_p": [float(p) for p in tests.whiteness_p],
            "refused": int(np.sum(np.asarray(innovation.accepted) == 0)),
            "faults": [float(t) for t in grid.times[at[at < count]]],
            "signals": signals,
        }
        return run, states

    def _parameters(self, name: str, z: np.ndarray, Z: np.ndarray) -> dict[str, np.ndarray]:
        """Natural values and standard deviations of the shared parameters over a recording."""
        shared, count = self.model.shared, len(self.z)
        if not count:
            return {}
        value, jac = _natural_over_time(shared, jnp.asarray(z[:, :count]))
        sd = np.linalg.norm(np.asarray(jac) @ Z[:, :count], axis=2)
        states = {f"{name}/parameter/{p}": np.asarray(value)[:, j] for j, p in enumerate(shared.paths)}
        return states | {f"{name}/parameter_sd/{p}": sd[:, j] for j, p in enumerate(shared.paths)}


@eqx.filter_jit
def _natural_over_time(shared: Any, z: AnyArray) -> tuple[AnyArray, AnyArray]:
    return jax.vmap(shared.values)(z), jax.vmap(jax.jacfwd(shared.values))(z)


def _closed(x: Any) -> Any:
    """States with the last one repeated: pairs for every step."""
    return jax.tree.map(lambda a: np.concatenate([a, np.asarray(a)[-1:]]), x)
