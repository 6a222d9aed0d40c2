"""The readings that an estimate has set aside as outliers."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..._typing import Float
from ...estimation.batch.problem import Fit
from ...estimation.batch.reading_weights import KEPT
from ..recordings.recording import Recording
from ..running.setup import Setup


def weights(setup: Setup, fit: Fit, i: int) -> dict[str, Float[np.ndarray, "samples d"]]:
    """Sensor -> weights of its readings in a recording; NaN where there is no reading or it was not used."""
    grid, column, found = setup.grids[i], 0, {}
    seen = np.asarray(setup.problem.samples[i].weight)
    inside = grid.places(seen.shape[2])[0] >= 0  # what was seen before the first step is not used
    weight, seen = grid.taken(fit.root_weights[i]) ** 2, np.where(inside, grid.taken(seen), 0.0)
    for name in setup.sensors:
        size = setup.recordings[i].sensors[name].shape[1]
        part = slice(column, column + size)
        column += size
        found[name] = np.where(seen[:, part] > 0, weight[:, part], np.nan)
    return found


def kept(setup: Setup, fit: Fit, i: int) -> Recording:
    """A recording without readings that were set aside; of those that were not used, without gross outliers."""
    recording, clean = setup.recordings[i], setup.clean[i].sensors
    sensors = {
        name: np.where(np.isnan(weight), clean[name], np.where(weight < KEPT, np.nan, recording.sensors[name]))
        for name, weight in weights(setup, fit, i).items()
    }
    return dataclasses.replace(recording, sensors=sensors)


def used(recording: Recording, setup: Setup, fit: Fit, i: int) -> Recording:
    """Those samples of a recording that have a reading which was used."""
    at = np.any(np.isfinite(np.column_stack(list(weights(setup, fit, i).values()))), axis=1)
    return dataclasses.replace(
        recording,
        time=recording.time[at],
        inputs={name: values[at] for name, values in recording.inputs.items()},
        sensors={name: values[at] for name, values in recording.sensors.items()},
    )


def outliers(setup: Setup, fit: Fit, states: Mapping[str, np.ndarray]) -> dict[str, Any] | None:
    """The `outliers` of `estimate.json`; None where the study allows for none.

    **Returns:** `share` as in the study; `sensors`: how many readings of each were `set_aside`, and `of` how many;
    `readings`: those set aside, farthest off first, each with `recording`, `sensor`, `component` (of a sensor with
    several numbers, from 0), `time` [s], `value` and `predicted` in the unit of the sensor, `off`, their difference in
    standard deviations of the sensor, and `weight`.
    """
    if not setup.outliers:
        return None
    sensors = {name: {"set_aside": 0, "of": 0} for name in setup.sensors}
    for i in range(len(setup.recordings)):
        for name, weight in weights(setup, fit, i).items():
            sensors[name]["set_aside"] += int(np.sum(weight < KEPT))
            sensors[name]["of"] += int(np.sum(np.isfinite(weight)))
    readings = sorted(_readings(setup, fit, states), key=lambda reading: -abs(reading["off"]))
    return {"share": setup.outliers, "sensors": sensors, "readings": readings}


def _readings(setup: Setup, fit: Fit, states: Mapping[str, np.ndarray]) -> Iterator[dict[str, Any]]:
    levels, channels = np.asarray(fit.noise.sensor), setup.channels
    for i, recording in enumerate(setup.recordings):
        for name, weight in weights(setup, fit, i).items():
            first = channels.index(name)
            for k, c in np.argwhere(weight < KEPT):
                value, predicted = (
                    float(states[f"{recording.name}/{s}/{name}"][k, c]) for s in ("measured", "estimated")
                )
                yield {
                    "recording": recording.name,
                    "sensor": name,
                    "component": int(c),
                    "time": float(recording.time[k]),
                    "value": value,
                    "predicted": predicted,
                    "off": (value - predicted) / float(levels[first + c]),
                    "weight": float(weight[k, c]),
                }
