"""What a filter or smoother says of a recording: its entry in `tracking.json`, its arrays in `states.npz`."""

from typing import Any, NamedTuple

import jax
import numpy as np

from ..._compiled import compiled, on_device
from ..._results import STEP_RESULTS
from ..._typing import Array, Float
from ...estimation import Innovation, faults, innovation_tests
from ...estimation.linearise import Path
from ...models import Multibody, ParameterMap
from ..file.modes import changes
from ..judging.judge import unsolved
from ..judging.output import as_read, axis_readings, axis_sd, poses
from ..running.setup import Setup
from ..running.simulate import predictions

States = dict[str, np.ndarray]


class Track(NamedTuple):
    """States and parameters of a recording; leading axis: steps."""

    innovation: Innovation
    x: Any
    factor: Float[np.ndarray, "steps n k"]
    z: Float[np.ndarray, "steps p"]
    z_factor: Float[np.ndarray, "steps p k"]
    probability: Float[np.ndarray, "steps modes"] | None  # of every mode, where there are some
    result: STEP_RESULTS  # how every step ended

    @property
    def path(self) -> Path:
        """The states as pairs for every step, the last one repeated."""
        x = jax.tree.map(lambda a: np.concatenate([a, np.asarray(a)[-1:]]), self.x)
        none = np.zeros((len(self.factor), 0))
        return Path(x, none, none, self.result)


def along(setup: Setup, models: list[Multibody], i: int, track: Track) -> Float[np.ndarray, "samples channels"]:
    """Readings at the states of recording i, of several modes weighted by their probabilities."""
    samples, grid, weight = setup.problem.samples[i], setup.grids[i], track.probability
    total = 0.0
    for j, model in enumerate(models):
        z = track.z[-1][len(track.z[-1]) - model.shared.size - model.own.size :]  # without those that a mode holds
        part = predictions(model, z, track.path, samples)
        total = total + (part if weight is None else weight[:, j, None, None] * part)
    return grid.taken(np.asarray(total))


def run_contents(
    setup: Setup, i: int, track: Track, level: np.ndarray, smoothed: np.ndarray | None
) -> tuple[dict[str, Any], States]:
    """Entry and arrays of recording i.

    **Arguments:** `level`: standard deviations of the channels; `smoothed`: readings at the smoothed states. Without
    them the arrays `estimated` are what was expected of each reading.
    """
    model = setup.stages[-1].model
    assert isinstance(model, Multibody)
    recording, grid, samples = setup.recordings[i], setup.grids[i], setup.problem.samples[i]
    name, innovation, count = recording.name, track.innovation, int(grid.step_of[-1]) + 1
    time, z, path = grid.times[:count], track.z[-1], track.path
    states: States = {f"{name}/time": recording.time, f"{name}/state_time": time}
    shape = samples.y.shape[1:]
    residual, white = (
        grid.taken(np.asarray(a).reshape(-1, *shape)) for a in (innovation.residual, innovation.whitened)
    )
    weight = grid.taken(np.asarray(samples.weight))
    signals, column = {}, 0
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
        if smoothed is not None:
            states[f"{name}/estimated/{sensor}"] = as_read(measured, smoothed[:, part])
        else:
            states[f"{name}/estimated/{sensor}"] = np.where(there, measured - error, np.nan)
        states[f"{name}/innovation/{sensor}"] = np.where(there, white[:, part], np.nan)
        signals[sensor] = {
            "unit": ", ".join(recording.sensor_units.get(sensor, ("",))),
            "rms_ahead": float(np.sqrt(np.mean(error[there] ** 2))),
            "rms_innovation": float(np.sqrt(np.mean(white[:, part][there] ** 2))),
        }
    joint_sd = axis_sd(model, z, path, on_device(track.factor @ np.swapaxes(track.factor, 1, 2)))
    position, rate, com = axis_readings(model, z, path.x)
    for a, axis in enumerate(setup.system.axis_names()):
        for key, value, sd in (("position", position, joint_sd[:, 0]), ("rate", rate, joint_sd[:, 1])):
            states[f"{name}/{key}/{axis}"] = value[:count, a]
            states[f"{name}/{key}_sd/{axis}"] = sd[:count, a]
    states |= poses(name, time, jax.tree.map(lambda a: np.asarray(a)[:count], track.x), com)
    states[f"{name}/nis"], states[f"{name}/nis_size"] = (
        np.asarray(a)[:count] for a in (innovation.nis, innovation.size)
    )
    at = np.flatnonzero(faults(innovation))
    tests = innovation_tests(innovation, skip=min(100, len(track.factor) // 4))
    run = {
        "file": recording.path.name,
        "samples": int(np.sum(np.asarray(samples.weight) > 0)),
        "duration": float(recording.time[-1] - recording.time[0]),
        "unsolved": unsolved(name, grid, track.result),
        "log_likelihood": float(np.sum(innovation.log_likelihood)),
        "nis": tests.nis,
        "nis_p": tests.nis_p,
        "whiteness_p": [float(p) for p in tests.whiteness_p],
        "refused": int(np.sum(np.asarray(innovation.accepted) == 0)),
        "faults": [float(t) for t in grid.times[at[at < count]]],
        "signals": signals,
    }
    return run, states


def mode_contents(
    names: list[str], name: str, time: np.ndarray, probability: Float[np.ndarray, "steps modes"]
) -> tuple[dict[str, Any], States]:
    """What a run says of its modes: how long each was the most probable, what each is at the end, and changes."""
    probability = probability[: len(time)]
    likeliest = np.argmax(probability, axis=1)
    states: States = {f"{name}/probability/{mode}": probability[:, j] for j, mode in enumerate(names)}
    states[f"{name}/mode"] = np.array(names)[likeliest]
    modes = {
        mode: {"share": float(np.mean(likeliest == j)), "last": float(probability[-1, j])}
        for j, mode in enumerate(names)
    }
    return {"modes": modes, "changes": changes(names, time, probability)}, states


def parameter_states(name: str, shared: ParameterMap, track: Track, count: int) -> States:
    """Natural values and standard deviations of the shared parameters over the first `count` steps of a recording."""
    z, Z = track.z[:count, : shared.size], track.z_factor[:count, : shared.size]
    value, jac = _natural_over_time(shared, on_device(z))
    sd = np.linalg.norm(np.asarray(jac) @ Z, axis=2)
    states = {f"{name}/parameter/{p}": np.asarray(value)[:, j] for j, p in enumerate(shared.paths)}
    return states | {f"{name}/parameter_sd/{p}": sd[:, j] for j, p in enumerate(shared.paths)}


@compiled
def _natural_over_time(shared: ParameterMap, z: Array) -> tuple[Array, Array]:
    return jax.vmap(shared.values)(z), jax.vmap(jax.jacfwd(shared.values))(z)
