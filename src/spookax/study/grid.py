"""A recording on the grid of the steps: samples in their steps, inputs averaged over the kicks, planned motion."""

import dataclasses

import numpy as np

from .._compiled import on_device
from ..protocol import Samples
from ..scene import Scene
from .recording import Recording

_WINDOW = 11  # samples of the local cubic fits
_DEFAULT_SD = {"joint_position": 1e-3, "joint_rate": 1e-2, "body_pose": 1e-3, "point_position": 1e-3}


@dataclasses.dataclass(frozen=True)
class Grid:
    """Steps of length `h` from the first stamp `t0`; `place` gives (step, slot) of every stamp."""

    t0: float
    h: float
    steps: int
    step_of: np.ndarray
    slot_of: np.ndarray
    fraction: np.ndarray

    @property
    def times(self) -> np.ndarray:
        """t_0 ... t_K on the recording's clock [s]."""
        return self.t0 + self.h * np.arange(self.steps + 1)

    def extended(self, multiple: int) -> "Grid":
        """The same with a number of steps that is a multiple of this one."""
        return dataclasses.replace(self, steps=-(-self.steps // multiple) * multiple)


def grid_of(time: np.ndarray, h: float) -> Grid:
    """Grid that covers all stamps. The number of steps is a multiple of 64 (compiled code works on chunks of them)."""
    position = (time - time[0]) / h
    step_of = np.floor(position + 1e-6).astype(int)
    fraction = np.clip(position - step_of, 0.0, None)
    slot_of = np.arange(len(time)) - np.searchsorted(step_of, step_of)
    return Grid(float(time[0]), h, int(step_of[-1]) + 1, step_of, slot_of, fraction).extended(64)


def sensor_sd(scene: Scene, name: str) -> float:
    """Standard deviation of a sensor: the scene's, or a default of its kind."""
    sensor = scene.sensors[name]
    sd = getattr(sensor, "sd", None)
    return float(sd) if sd else _DEFAULT_SD[sensor.type]


def kick_means(grid: Grid, time: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Mean of a zero-order-hold signal over each leap-frog kick, from t_k - h/2 to t_k + h/2."""
    edges = grid.t0 + grid.h * (np.arange(grid.steps + 1) - 0.5)
    area = np.concatenate([[0.0], np.cumsum(value[:-1] * np.diff(time))])

    def integral(t: np.ndarray) -> np.ndarray:
        i = np.clip(np.searchsorted(time, t, side="right") - 1, 0, len(time) - 1)
        return area[i] + value[i] * (t - time[i])

    return np.diff(integral(edges)) / grid.h


def samples_of(
    grid: Grid,
    recording: Recording,
    motors: tuple[str, ...],
    sensors: tuple[str, ...],
    slots: int,
    sd: np.ndarray,
    time_sd: float | None = None,
    every: int = 1,
    clean: Recording | None = None,
) -> Samples:
    """Readings and inputs of a recording on its grid.

    `sd`: of the channels; `time_sd`: of the time stamps [s], which adds (rate time_sd)^2 to their variance;
    `every`: only each n-th sample is seen; `clean`: the recording that rates are computed from, if it is another.
    """
    readings = np.concatenate([recording.sensors[s] for s in sensors], axis=1)
    channels = readings.shape[1]
    y = np.zeros((grid.steps, slots, channels))
    seen = np.zeros((grid.steps, slots, channels))
    s = np.zeros((grid.steps, slots))
    there = ~np.isnan(readings)
    y[grid.step_of, grid.slot_of] = np.where(there, readings, 0.0)
    weight = there.astype(float)
    weight[np.arange(len(weight)) % every > 0] = 0.0
    if time_sd is not None:
        calm = np.concatenate([(clean or recording).sensors[s] for s in sensors], axis=1)
        for i, value in enumerate(calm.T):
            if np.isfinite(value).any():
                rate = smooth(recording.time, recording.time, value)[1]
                weight[:, i] /= np.sqrt(1 + (rate * time_sd / sd[i]) ** 2)
    seen[grid.step_of, grid.slot_of] = weight
    s[grid.step_of, grid.slot_of] = grid.fraction
    u = np.zeros((grid.steps, len(motors)))
    for m, motor in enumerate(motors):
        if motor in recording.inputs:
            u[:, m] = kick_means(grid, recording.time, recording.inputs[motor])
    return Samples(*map(on_device, (u, y, s, seen)))


def smooth(at: np.ndarray, time: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Value and derivative at the times `at` from local cubic fits to the nearest samples (gaps are bridged)."""
    there = ~np.isnan(value)
    time, value = time[there], value[there]
    width = min(_WINDOW, len(time))
    first = np.clip(np.searchsorted(time, at) - width // 2, 0, len(time) - width)
    index = first[:, None] + np.arange(width)
    t = time[index] - np.clip(at, time[0], time[-1])[:, None]
    scale = np.maximum(np.abs(t).max(axis=1, keepdims=True), 1e-12)
    powers = (t / scale)[..., None] ** np.arange(min(4, width))
    normal = np.einsum("kip,kiq->kpq", powers, powers) + 1e-12 * np.eye(powers.shape[-1])
    right = np.einsum("kip,ki->kp", powers, value[index])
    fit = np.linalg.solve(normal, right[..., None])[..., 0]
    rate = fit[:, 1] / scale[:, 0]
    return fit[:, 0], np.where((at < time[0]) | (at > time[-1]), 0.0, rate)
