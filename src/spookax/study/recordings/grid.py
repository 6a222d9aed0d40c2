"""A recording on the grid of the steps: samples in their steps, inputs averaged over the kicks, planned motion."""

import dataclasses

import numpy as np

from ..._compiled import on_device
from ...protocol import Samples
from ...scene import Scene
from .recording import Recording

_WINDOW = 11  # samples of the local cubic fits


@dataclasses.dataclass(frozen=True)
class Grid:
    """Steps of length `h` from the first stamp `t0`; `step_of` and `slot_of` say where every stamp lies.

    Readings of a sensor with a delay show an earlier time and belong into an earlier step: those of a channel are
    placed as many steps `earlier` as its delay has, rounded. What was seen before the first step has no place.
    """

    t0: float
    h: float
    steps: int
    step_of: np.ndarray
    slot_of: np.ndarray
    fraction: np.ndarray
    earlier: np.ndarray | None = None  # of every channel, if one belongs to a sensor with a delay

    @property
    def times(self) -> np.ndarray:
        """t_0 ... t_K on the recording's clock [s]."""
        return self.t0 + self.h * np.arange(self.steps + 1)

    def extended(self, multiple: int) -> "Grid":
        """The same with a number of steps that is a multiple of this one."""
        return dataclasses.replace(self, steps=-(-self.steps // multiple) * multiple)

    def places(self, channels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Step, slot and channel of all readings, (stamps, channels); negative steps: before the first."""
        found = (
            self.step_of[:, None] - (0 if self.earlier is None else self.earlier),
            self.slot_of[:, None],
            np.arange(channels),
        )
        return tuple(np.broadcast_arrays(*found))  # pyright: ignore[reportReturnType]

    def placed(self, values: np.ndarray, slots: int, default: np.ndarray | float = 0.0) -> np.ndarray:
        """Numbers of all readings (stamps, channels) where they belong, (steps, slots, channels)."""
        step, slot, channel = self.places(values.shape[1])
        out, inside = np.empty((self.steps, slots, values.shape[1])), step >= 0
        out[...] = default
        out[step[inside], slot[inside], channel[inside]] = values[inside]
        return out

    def taken(self, placed: np.ndarray) -> np.ndarray:
        """What `placed` has put there; before the first step what there is in it."""
        step, slot, channel = self.places(placed.shape[2])
        return np.asarray(placed)[np.maximum(step, 0), slot, channel]

    def replaced(self, samples: Samples, earlier: np.ndarray) -> "tuple[Grid, Samples]":
        """The same readings as many other steps earlier."""
        y, s, weight = map(np.asarray, (samples.y, samples.s, samples.weight))
        there = np.where(self.places(y.shape[2])[0] >= 0, self.taken(weight), 0.0)
        grid = dataclasses.replace(self, earlier=earlier)
        s, y, weight = (
            grid.placed(values, s.shape[1], default)
            for values, default in ((self.fraction[:, None] + earlier, earlier), (self.taken(y), 0.0), (there, 0.0))
        )
        return grid, samples._replace(y=on_device(y), s=on_device(s), weight=on_device(weight))


def grid_of(time: np.ndarray, h: float) -> Grid:
    """Grid that covers all stamps. The number of steps is a multiple of 64 (compiled code works on chunks of them)."""
    position = (time - time[0]) / h
    step_of = np.floor(position + 1e-6).astype(int)
    fraction = np.clip(position - step_of, 0.0, None)
    slot_of = np.arange(len(time)) - np.searchsorted(step_of, step_of)
    return Grid(float(time[0]), h, int(step_of[-1]) + 1, step_of, slot_of, fraction).extended(64)


def sensor_sd(scene: Scene, name: str) -> float:
    """Standard deviation of a sensor, as the scene has it."""
    return float(scene.sensors[name].sd)


def kick_means(grid: Grid, time: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Mean of a zero-order-hold signal over each leap-frog kick, from t_k - h/2 to t_k + h/2."""
    return _means(grid, time, value, np.arange(grid.steps + 1) - 0.5)


def step_means(grid: Grid, time: np.ndarray, value: np.ndarray, before: int) -> np.ndarray:
    """Mean of a zero-order-hold signal over each step, the first `before` of which lie before t_0."""
    return _means(grid, time, value, np.arange(-before, grid.steps + 1))


def _means(grid: Grid, time: np.ndarray, value: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Between edges in steps from t_0. Before its first stamp the signal has its first value."""
    edges = grid.t0 + grid.h * edges
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
    history: int = 0,
) -> Samples:
    """Readings and inputs of a recording on its grid.

    `sd`: of the channels; `time_sd`: of the time stamps [s], which adds (rate time_sd)^2 to their variance;
    `every`: only each n-th sample is seen; `clean`: the recording that rates are computed from, if it is another;
    `history`: as many earlier commands beside each.
    """
    readings = np.concatenate([recording.sensors[s] for s in sensors], axis=1)
    there = ~np.isnan(readings)
    y = grid.placed(np.where(there, readings, 0.0), slots)
    weight = there.astype(float)
    weight[np.arange(len(weight)) % every > 0] = 0.0
    if time_sd is not None:
        calm = np.concatenate([(clean or recording).sensors[s] for s in sensors], axis=1)
        for i, value in enumerate(calm.T):
            if np.isfinite(value).any():
                rate = smooth(recording.time, recording.time, value)[1]
                weight[:, i] /= np.sqrt(1 + (rate * time_sd / sd[i]) ** 2)
    weight = grid.placed(weight, slots)
    if grid.earlier is not None:
        s = grid.placed(grid.fraction[:, None] + grid.earlier, slots, grid.earlier)
    else:
        s = np.zeros((grid.steps, slots))
        s[grid.step_of, grid.slot_of] = grid.fraction
    u = np.zeros((history + grid.steps, len(motors)))
    for m, motor in enumerate(motors):
        if motor in recording.inputs:
            given = grid, recording.time, recording.inputs[motor]
            u[:, m] = step_means(*given, history) if history else kick_means(*given)
    if history:
        u = u[np.arange(history, history + grid.steps)[:, None] - np.arange(history + 1)]
    return Samples(*map(on_device, (u, y, s, weight)))


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
