"""The signals of a run: what was measured, and what the estimate says it should have been."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

AXES = {1: ("",), 3: ("x", "y", "z"), 6: ("x", "y", "z", "turn about x", "turn about y", "turn about z")}


@dataclass(frozen=True)
class Signal:
    """One number of one sensor over a run; NaN where there is no sample."""

    sensor: str
    component: str  # empty for sensors with one number
    unit: str
    time: np.ndarray  # (n,) [s]
    measured: np.ndarray  # (n,)
    estimated: np.ndarray | None  # (n,)
    open_loop: np.ndarray | None  # (n,)
    innovation: np.ndarray | None  # (n,) in units of the sensor's noise
    weight: np.ndarray | None = None  # (n,) where some readings may have been set aside as outliers
    open_loop_sd: np.ndarray | None = None  # (n,) of the open loop, by what is not known of the parameters

    @property
    def label(self) -> str:
        """Sensor and component."""
        return f"{self.sensor} {self.component}".strip()


def signals(
    run: str, runs: Mapping[str, Any], states: Mapping[str, np.ndarray], along: str = "estimated"
) -> Iterator[Signal]:
    """Every number of every sensor of one of `runs` that the states hold, in their order; `along`: the arrays that
    count as estimated.
    """
    units = runs.get(run, {}).get("signals") or {}
    prefix = f"{run}/measured/"
    for key in [key for key in states if key.startswith(prefix)]:
        sensor = key.removeprefix(prefix)
        measured = _columns(states[key])
        others = [
            _columns(states[other]) if (other := f"{run}/{kind}/{sensor}") in states else None
            for kind in (along, "open_loop", "innovation", "weight", "open_loop_sd")
        ]
        size = measured.shape[1]
        for i, component in enumerate(AXES.get(size, tuple(map(str, range(size))))):
            columns = [None if other is None else other[:, i] for other in others]
            unit = _component_unit((units.get(sensor) or {}).get("unit"), i)
            time = np.asarray(states[f"{run}/time"], dtype=float)
            yield Signal(sensor, component, unit, time, measured[:, i], *columns)


def _component_unit(text: Any, i: int) -> str:
    """The unit of one component; sensors of several may list theirs, `m, m, m`."""
    listed = str(text or "").split(", ")
    return listed[i if i < len(listed) else -1]


def _columns(values: Any) -> np.ndarray:
    values = np.asarray(values, dtype=float)
    return values.reshape(len(values), -1)
