"""`filter_recordings` and `smooth_recordings`: once through the recordings of a study."""

import dataclasses
import datetime
import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._compiled import on_device
from ..._typing import Array
from ...estimation import (
    IMM,
    AugmentedState,
    Drift,
    EnsembleFilter,
    Extended,
    Filter,
    Unscented,
    WithParameters,
    gate_of,
)
from ...estimation.batch.one_recording import first_state
from ...estimation.linearise import Path as StatePath
from ...estimation.recursive.filter import lower_factor
from ...models import Multibody
from ...models.parameters import natural_values
from ...protocol import AbstractModel, Noise, Samples
from ...scene import Scene, read_scene
from ...scene.explain import Finding
from ..file.against_scene import check_against_scene, input_dimensions, sensor_dimensions
from ..file.modes import described, first_probability, in_mode, transition
from ..file.read import StudyError, read_study
from ..file.study import Study
from ..identifying.estimate import finite_json, identified_scene, save_scene
from ..identifying.identify import hashes_of, versions
from ..recordings.recording import Recording, read_recordings
from ..running.checkpoint import load_levels
from ..running.passes import by_bank, by_ensemble, by_filter
from ..running.setup import Setup, set_up
from .track import Track, along, mode_contents, parameter_states, run_contents


@dataclasses.dataclass(frozen=True)
class Tracking:
    """States and parameters over the recordings of a study, and what the innovations say of the model.

    `content` is what `tracking.json` holds, `states` what `states.npz` does: arrays by `RUN/quantity`.
    """

    content: dict[str, Any]
    states: dict[str, np.ndarray]
    scene: Scene | None  # with these parameters; None where they are no possible bodies or joints

    @property
    def parameters(self) -> dict[str, dict[str, Any]]:
        """path -> value and sd after the last recording, unit, start."""
        return self.content["parameters"]

    def save(self, folder: str | Path) -> Path:
        """Write `tracking.json`, `states.npz` and, if there is a scene, `scene.yaml`; returns the folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tracking.json").write_text(finite_json(self.content), encoding="utf-8")
        np.savez_compressed(folder / "states.npz", **self.states)  # pyright: ignore[reportArgumentType]
        save_scene(self.scene, folder)
        return folder


def filter_recordings(
    study: Study | str | Path,
    *,
    estimate: str | Path | None = None,
    report: Callable[[str], None] | None = None,
    recordings: list[Recording] | None = None,
    scene: Scene | None = None,
) -> Tracking:
    """Filter the recordings of a study: every state from the readings up to its time.

    Parameters of the study are states, too (`recursive.parameters: estimated`), constant or drifting; what one
    recording has taught of them is the prior of the next. With `recursive.modes` a bank of filters also tells which
    mode holds: arrays `RUN/probability/MODE` and `RUN/mode` of the states.

    **Arguments:**

    - `estimate`: folder of an estimate of the same study, whose noise levels and parameters are taken; these are held.
    - `report`: called with the name of every recording that is begun.
    - `recordings`, `scene`: instead of the files that the study names.

    **Raises:** `FileError` for files that cannot be read; `RuntimeError` without 64-bit floats.
    """
    return _Tracker(study, False, estimate, report, recordings, scene).run()


def smooth_recordings(
    study: Study | str | Path,
    *,
    estimate: str | Path | None = None,
    report: Callable[[str], None] | None = None,
    recordings: list[Recording] | None = None,
    scene: Scene | None = None,
) -> Tracking:
    """Filter and smooth the recordings of a study: every state from all readings of its recording.

    Arguments as for `filter_recordings`; `StudyError` for the rule ensemble.
    """
    return _Tracker(study, True, estimate, report, recordings, scene).run()


class _Tracker:
    def __init__(
        self,
        study: Study | str | Path,
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
            recordings = read_recordings(study, sensor_dimensions(scene), inputs=input_dimensions(scene))
        self.held = estimate is not None or study.recursive.parameters == "held"
        changing = frozenset(path for mode in study.recursive.modes.values() for path in mode.set)
        self.setup: Setup = set_up(study, scene, recordings, changing=changing, bounded=self.held)
        stage = self.setup.stages[-1]
        assert isinstance(stage.model, Multibody)
        self.model, self.noise = stage.model, stage.noise
        self.z = np.array(self.setup.problem.z0)
        if estimate is not None:
            self.z, process, sensor = load_levels(Path(estimate), self.setup)
            self.noise = Noise(on_device(process), on_device(sensor))
        weight = self.setup.problem.weight
        given = np.array([f.prior_sd is not None for f in self.model.shared.free for _ in range(f.size)], dtype=bool)
        self.z_factor = np.diag(np.where(given, 1 / weight, study.recursive.parameter_sd))
        modes = study.recursive.modes.values()
        self.models = [in_mode(self.model, mode, self.z if self.held else None) for mode in modes] or [self.model]

    # --- one recording

    def _filter(self, of: Multibody) -> Filter | EnsembleFilter:
        settings, own = self.study.recursive, of.own.size
        model: AbstractModel = of
        z = np.concatenate([self.z[: of.shared.size], np.zeros(own)])
        if not self.held:
            drift = None
            if settings.drift:
                names = [f.path for f in self.model.shared.free for _ in range(f.size)]
                # given in the units of `prior_sd`; the map has identity coordinates relative to their start
                scale = self.model.shared.prior_units()
                density = [settings.drift.get(name, 0.0) / s for name, s in zip(names, scale, strict=True)]
                drift = Drift(np.concatenate([density, np.zeros(own)]))
            model, z = WithParameters(model, len(z), drift), np.zeros(0)
        if settings.rule == "ensemble":
            return EnsembleFilter(model, z, self.noise, settings.members, gate=self._gate())
        rule = Extended(settings.iterations) if settings.rule == "extended" else Unscented()
        return Filter(model, z, self.noise, rule, jnp.inf if settings.modes else self._gate())

    def _gate(self) -> Array:
        """That of a step with as many readings as any; an array, so that all gates share what is compiled."""
        if self.study.recursive.gate is None:
            return on_device(np.inf)
        readings = max(int((np.asarray(s.weight) > 0).sum(axis=(1, 2)).max()) for s in self.setup.problem.samples)
        return on_device(gate_of(readings, self.study.recursive.gate))

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
        return AugmentedState(x, on_device(z)), np.block([[S, np.asarray(Y0) @ Z], [np.zeros((len(z), len(S))), Z]])

    def _through(self, samples: Samples, path: StatePath) -> Track:
        """A recording gone through, states and parameters apart from each other."""
        settings, (x0, factor) = self.study.recursive, self._first(path)
        filters = [self._filter(model) for model in self.models]
        if settings.modes:
            bank = [f for f in filters if isinstance(f, Filter)]
            imm = IMM(bank, transition(settings, self.setup.scene.step), gate=self._gate())
            found = by_bank(imm, imm.init(x0, factor, first_probability(settings)), samples, self.smooth)
        elif isinstance(filters[0], EnsembleFilter):
            found = by_ensemble(filters[0], x0, factor, samples)
        else:
            found = by_filter(filters[0], filters[0].init(x0, factor), samples, self.smooth)
        n, S, count = self.model.tangent_size, found.factor, len(self.z)
        if self.held:
            z = np.tile(np.concatenate([self.z, np.zeros(self.model.own.size)]), (len(S), 1))
            return Track(found.innovation, found.x, S, z, np.zeros((*z.shape, 1)), found.probability, found.result)
        end = found.end  # what it knows of the shared parameters goes on to the next recording
        self.z = np.asarray(end.x.z + end.mean[n : n + len(end.x.z)])[:count]
        self.z_factor = np.asarray(lower_factor(end.factor[n : n + count]))
        states, parameters = (found.x.x, S[:, :n]), (np.asarray(found.x.z), S[:, n:])
        return Track(found.innovation, *states, *parameters, found.probability, found.result)

    # --- all of them

    def run(self) -> Tracking:
        """Through all recordings."""
        setup, runs, states = self.setup, {}, {}
        start = np.asarray(natural_values(self.model.shared, on_device(self.z))[0])
        for i, (path, _) in enumerate(setup.plans()):
            if self.report:
                self.report(setup.recordings[i].name)
            name, track = setup.recordings[i].name, self._through(setup.problem.samples[i], path)
            smoothed = along(setup, self.models, i, track) if self.smooth else None
            runs[name], arrays = run_contents(setup, i, track, np.asarray(self.noise.sensor), smoothed)
            states |= arrays
            time = arrays[f"{name}/state_time"]
            if track.probability is not None:
                told, arrays = mode_contents(list(self.study.recursive.modes), name, time, track.probability)
                runs[name] |= told
                states |= arrays
            if not self.held:
                states |= parameter_states(name, self.model.shared, track, len(time))
        value, jac = map(np.asarray, natural_values(self.model.shared, on_device(self.z)))
        sd = np.zeros(len(value)) if self.held else np.linalg.norm(jac @ self.z_factor, axis=1)
        paths = self.model.shared.paths
        parameters: dict[str, dict[str, Any]] = {
            path: {"value": float(v), "sd": float(s), "start": float(b), "unit": setup.unit_of(path)}
            for path, v, s, b in zip(paths, value, sd, start, strict=True)
        }
        for tie in self.model.shared.ties:
            parameters[tie.path]["tied"] = tie.expression.text
        scene, message = identified_scene(setup.scene, {p: float(v) for p, v in zip(paths, value, strict=True)})
        unsolved = [run["unsolved"] for run in runs.values() if run["unsolved"]]
        content = {
            "status": "step_failed" if unsolved else "successful",
            "spookax": importlib.metadata.version("spookax"),
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "study": Path(self.study.located.file).stem,
            "kind": "smoothed" if self.smooth else "filtered",
            "message": " ".join([*unsolved, message]).strip(),
            "settings": self.study.recursive.model_dump(exclude={"modes", "switching"})
            | {"parameters": "held" if self.held else "estimated"},
            "modes": described(self.study.recursive),
            "step": float(setup.scene.step),
            "log_likelihood": float(sum(run["log_likelihood"] for run in runs.values())),
            "axes": {n: "rad" if axis.rotational else "m" for n, axis in setup.scene.free_axes().items()},
            "parameters": parameters,
            "runs": runs,
            "versions": versions(),
            "hashes": hashes_of(setup, self.study),
        }
        return Tracking(content, states, scene)
