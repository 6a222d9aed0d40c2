"""Open-loop prediction of recordings that an identification has not seen, and how well it meets them."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ..._compiled import on_device
from ..._contact_points import ContactPoints
from ..._typing import AnyArray
from ...estimation import Settings, Stage, fit
from ...estimation.batch import step_blocks
from ...estimation.batch.problem import Fit, Iterate, Problem
from ...estimation.batch.uncertainty import state_uncertainty
from ...estimation.linearise import Path
from ...models import Multibody
from ...protocol import Noise
from ...scene import Scene, read_scene
from ..file.study import RecordingSpec, Study
from ..judging.bands import drawn, spread
from ..judging.output import as_read
from ..judging.posterior import without
from ..recordings.recording import Recording
from ..running.ahead import Ahead, steps_ahead
from ..running.setup import Setup, set_up
from ..running.simulate import open_loop, predictions
from ..running.touching import touching
from .estimate import Estimate

HEAD = 0.3
"""The first seconds of a recording, which tell the state that its prediction starts from."""

_FALL = (0.1, 0.01, 1e-3)  # of the estimate's process noise, until a simulation is to meet readings

_SHARE = 1 / 3  # of a short recording that is used for this at most


@dataclasses.dataclass(frozen=True)
class Prediction:
    """A recording, and what its sensors read in a simulation with its inputs.

    `clean`: the recording without gross outliers, where the study allows for some; errors are those of it.
    `head`: the seconds at its start that told the initial state and its own offsets; nothing later was looked at.
    `simulated`: sensor -> a row of numbers for each stamp; `sd`: how far simulations from the estimate's posterior are
    from it, where that is known; `ahead`: readings some steps ahead, where asked for; `contacts`: of the simulation, in
    a scene with contacts.
    """

    recording: Recording
    clean: Recording
    head: float
    simulated: dict[str, np.ndarray]
    sd: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    ahead: Ahead | None = None
    contacts: ContactPoints | None = None

    def content(self) -> dict[str, Any]:
        """Its entry in `estimate.json` and `prediction.json`."""
        recording, signals = self.clean, {}
        early = recording.time <= recording.time[0] + self.head
        for sensor, simulated in self.simulated.items():
            measured = recording.sensors[sensor]
            signals[sensor] = {
                "unit": ", ".join(recording.sensor_units[sensor]),
                **errors(measured, simulated),
                "rms_held": errors(measured, _last(measured[early]))["rms"],
            }
            if self.ahead is not None:
                told = errors(self.ahead.judged(measured, recording.time), self.ahead.readings[sensor])
                signals[sensor] |= {f"{key}_ahead": value for key, value in told.items()}
        return {
            "file": recording.path.name,
            "sha256": recording.sha256,
            "samples": int(sum(np.isfinite(recording.sensors[sensor]).sum() for sensor in self.simulated)),
            "horizon": float(recording.time[-1] - recording.time[0]),
            "head": self.head,
            "signals": signals,
        }

    def states(self) -> dict[str, np.ndarray]:
        """Its arrays in `states.npz`."""
        name, arrays = self.recording.name, {f"{self.recording.name}/time": self.recording.time}
        for sensor, simulated in self.simulated.items():
            arrays[f"{name}/measured/{sensor}"] = self.recording.sensors[sensor]
            arrays[f"{name}/open_loop/{sensor}"] = simulated
            if sensor in self.sd:
                arrays[f"{name}/open_loop_sd/{sensor}"] = self.sd[sensor]
            if self.ahead is not None:
                arrays[f"{name}/ahead/{sensor}"] = self.ahead.readings[sensor]
        if self.contacts is not None:
            arrays |= {f"{name}/contacts/{key}": array for key, array in self.contacts.arrays().items()}
        return arrays


def errors(measured: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """How well a prediction meets readings, each a row of numbers; NaN where nothing was read.

    **Returns:** `rms` of the error, in the readings' unit; `nrmse`, the same over the root mean square of the readings
    about their mean; `fit` = 100 (1 - nrmse), in per cent: 100 for a perfect prediction, 0 for that of the mean.
    """
    there = np.isfinite(measured)
    with np.errstate(over="ignore", invalid="ignore"):  # a simulation may diverge
        error, about = measured - predicted, measured - np.nanmean(measured, axis=0)
        rms, moves = (float(np.sqrt(np.mean(a[there] ** 2))) for a in (error, about))
    nrmse = rms / moves if moves > 0 else np.nan
    return {"rms": rms, "nrmse": nrmse, "fit": 100 * (1 - nrmse)}


def _last(readings: np.ndarray) -> np.ndarray:
    """The last reading of every column; its NaN if there is none."""
    found = [column[np.isfinite(column)] for column in readings.T]
    return np.array([column[-1] if column.size else np.nan for column in found])


@dataclasses.dataclass(frozen=True)
class Identified:
    """What a prediction takes from an identification, whatever the method."""

    z: AnyArray  # parameters in the coordinates of the search
    process: AnyArray  # factor on the study's process noise
    sensors: Mapping[str, Sequence[float]]  # standard deviations of the channels of every sensor
    step: float  # [s]
    friction_speed: float  # [rad/s or m/s]
    posterior: Mapping[str, Any] | None = None  # of z, as in `estimate.json`; nothing where a method tells none

    @classmethod
    def by(cls, estimate: Estimate) -> "Identified":
        """What an estimate found."""
        content, kept = estimate.content, estimate.checkpoint
        levels = content["noise"]["sensors"]
        numbers = kept["z"], kept["process"], levels, content["step"], content["friction_speed"]
        return cls(*numbers, content.get("posterior"))


def predict_recording(
    study: Study,
    estimate: Estimate | Identified,
    recording: Recording,
    spec: RecordingSpec,
    *,
    scene: Scene | None = None,
    fit_seconds: float | None = None,
    z: AnyArray | None = None,
    steps: int | None = None,
) -> Prediction:
    """Simulate a recording from its first `fit_seconds` on, without feedback.

    The initial state and the offsets that `spec` frees are fitted on the first `fit_seconds` only (when left out 0.3 s,
    of short recordings a third), with the parameters, noise levels, step and friction speed of the estimate, and once
    more with next to no process noise: what simulates these seconds better is kept. Then the recorded inputs are
    simulated. What the identification has compiled is used again.

    **Arguments:**

    - `study`, `scene`: those of the identification (the scene that the study names, unless it was another).
    - `spec`: what the columns of the recording mean; all samples count (`every` is for identification).
    - `z`: other parameters than the estimate's, in the coordinates of its search.
    - `steps`: predict every reading this many steps ahead, too (`study.ahead`).
    """
    scene = scene or read_scene(study.scene_path)
    if isinstance(estimate, Estimate):
        estimate = Identified.by(estimate)
    settings = {"friction_speed": (estimate.friction_speed,), "step": estimate.step}
    alone = study.model_copy(
        update={
            "recordings": [spec.model_copy(update={"every": 1})],
            "estimator": study.estimator.model_copy(update=settings),
        }
    )
    known = estimate.posterior if z is None else None
    z = np.asarray(estimate.z if z is None else z)
    whole = set_up(alone, scene, [recording]).replaced(z)
    (samples,), (grid,) = whole.problem.samples, whole.grids
    # the readings of the first seconds, in as many steps as the identification's programs work on at a time
    head = fit_seconds or min(HEAD, _SHARE * float(recording.time[-1] - recording.time[0]))
    here = recording.time <= recording.time[0] + head
    first = recording.part(here)
    begun = set_up(alone, scene, [first], least=step_blocks.spans(grid.steps)[0][1]).replaced(z)
    levels = Noise(on_device(estimate.process), on_device(_sensor_levels(estimate, begun)))
    stage, usual = Stage(begun.stages[-1].model, levels), begun.stages[0].noise
    # with less process noise than either, trajectories do not follow the readings
    most = np.maximum(np.asarray(usual.process), estimate.process)
    stages = (Stage(stage.model, Noise(on_device(most), usual.sensor)), stage)
    held = dataclasses.replace(begun.problem, z0=z, prior=z, lower=z, upper=z)
    begun = dataclasses.replace(begun, problem=held, stages=stages)
    start = begun.start()
    found, states = _starts(held, stages, start)
    model, shared = whole.stages[-1].model, z
    assert isinstance(model, Multibody)

    def simulate(state: Iterate) -> tuple[float, np.ndarray, Any, Path, np.ndarray]:
        """How far a simulation is from the first readings, as `_misfit`; its z, first state, path, readings."""
        z = np.concatenate([shared, np.asarray(state.own[0])])
        x0 = jax.tree.map(lambda a: np.asarray(a)[0], state.paths[0].x)
        path = open_loop(model, z, levels, x0, samples)
        told = predictions(model, z, path, samples)
        return _misfit(read(told), first, here, estimate, begun), z, x0, path, told

    def read(told: np.ndarray) -> dict[str, np.ndarray]:
        return by_sensor(whole, recording, grid.taken(told))

    tried = [simulate(state) for state in states]
    _, z, x0, path, told = min(tried, key=lambda found: found[0])
    clean, simulated = whole.clean[0], read(told)
    sd: dict[str, np.ndarray] = {}
    if known and np.isfinite(found.cost) and found.parts:
        bounds, own = begun.model.shared.bounds(), np.asarray(found.iterate.own[0])
        more = len(own) + model.tangent_size
        free = np.asarray(known.get("undetermined", ())).reshape(-1, len(shared))  # an earlier version wrote none
        covariance = functools.reduce(without, free, np.asarray(known["covariance"]))
        draws = drawn(shared, covariance, np.asarray(known["reach"]), bounds, more)
        part, begin, of_fit = found.parts[0], found.iterate.paths[0], tried[0][-1]
        state = state_uncertainty(part.lin, part.f, np.zeros((len(z), len(z)))).first
        rms = spread(model, levels, part, state, begin, own, held.own_weight, shared, draws, samples, of_fit)
        sd = {name: columns for name, columns in whole.by_sensor(grid.taken(rms)) if name in simulated}
    touch = touching(model, z, levels, path, samples.u, grid.times[: int(grid.step_of[-1]) + 1])
    if steps is None:
        return Prediction(recording, clean, head, simulated, sd, contacts=touch)
    found = grid.taken(steps_ahead(model, z, levels, x0, study.recursive.initial_sd, samples, steps))
    begin = grid.t0 + max(head, steps * grid.h)
    return Prediction(recording, clean, head, simulated, sd, Ahead(begin, by_sensor(whole, recording, found)), touch)


def _starts(problem: Problem, stages: tuple[Stage, ...], start: Iterate) -> tuple[Fit, list[Iterate]]:
    """The fit of the first readings, and what a simulation may start from: what that found, and what is found with next
    to no process noise, which explains part of the readings in place of the state.

    Where the fit fails the smoothed readings tell the state, and nothing how well.
    """
    settings, stage = Settings(20, determinant=False), stages[-1]
    found = fit(problem, stages, start, settings)
    states = [found.iterate if np.isfinite(found.cost) else start]
    falling = (Noise(on_device(share * np.asarray(stage.noise.process)), stage.noise.sensor) for share in _FALL)
    still = fit(problem, (stage, *(Stage(stage.model, noise) for noise in falling)), states[0], settings)
    return found, states + ([still.iterate] if np.isfinite(still.cost) else [])


def by_sensor(setup: Setup, recording: Recording, readings: np.ndarray) -> dict[str, np.ndarray]:
    """Predicted readings (samples, channels) of the sensors that a recording has."""
    measured = recording.sensors
    return {name: as_read(measured[name], part) for name, part in setup.by_sensor(readings) if name in measured}


def predict_open_loop(
    study: Study, estimate: Estimate, recording: Recording, spec: RecordingSpec, **options: Any
) -> dict[str, dict[str, float]]:
    """The `errors` of `predict_recording`, by sensor, over the whole recording."""
    predicted = predict_recording(study, estimate, recording, spec, **options)
    return {sensor: errors(predicted.clean.sensors[sensor], y) for sensor, y in predicted.simulated.items()}


def _misfit(
    simulated: Mapping[str, np.ndarray], first: Recording, here: np.ndarray, estimate: Identified, setup: Setup
) -> float:
    """Sum of squares of the first readings' errors over the sensors' noise; infinite for a simulation that diverged."""
    sd = dict(setup.by_sensor(_sensor_levels(estimate, setup)[None]))
    with np.errstate(over="ignore", invalid="ignore"):
        parts = [np.nansum(((first.sensors[name] - y[here]) / sd[name]) ** 2) for name, y in simulated.items()]
    whole = all(np.all(np.isfinite(y)) for y in simulated.values())
    return float(np.sum(parts)) if whole else np.inf


def _sensor_levels(estimate: Identified, setup: Setup) -> np.ndarray:
    """Standard deviations of the channels as the estimate has them, else as given."""
    found, levels, column = estimate.sensors, [], 0
    for name in setup.sensors:
        size = setup.system.sensors[setup.system.sensor_index(name)].size
        levels += found.get(name, setup.sensor_sd[column : column + size])
        column += size
    return np.array(levels)
