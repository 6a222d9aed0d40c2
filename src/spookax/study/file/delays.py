"""Delays of motors and sensors in a study: their default bound, the commands they need, where late readings belong."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from ...models import Free
from ...scene import Scene
from ...system import System
from .study import Study

LONGEST = 0.1
"""Upper bound of a delay where the study gives none, or twice its start if that is more [s]."""

_DELAY = re.compile(r"(motors|sensors)\.[^.]+\.delay")


def is_delay(path: str) -> bool:
    """Whether this is a motor's or a sensor's."""
    return _DELAY.fullmatch(path) is not None


def default_upper(path: str, start: float) -> float:
    """The upper bound of a parameter that the study gives none."""
    return max(LONGEST, 2 * start) if is_delay(path) else np.inf


def longest_delays(study: Study, numbers: Mapping[str, float], free: Sequence[Free]) -> dict[str, float]:
    """Path -> what a delay may come to: its upper bound, what a tie may make of it, or what a mode sets [s]."""
    found = {path: default_upper(path, numbers[path]) for path in study.ties if is_delay(path)}
    found |= {f.path: f.upper for f in free if is_delay(f.path)}
    for mode in study.recursive.modes.values():
        for path, value in mode.set.items():
            found[path] = max(found.get(path, 0.0), value)
    return found


def steps_earlier(
    scene: Scene, system: System, sensors: Sequence[str], numbers: Mapping[str, float]
) -> np.ndarray | None:
    """By how many steps the readings of every channel are placed earlier; none if no sensor has a delay.

    A pair of states reads a parabola about the first, which is right to third order in h near it. So a reading lies
    where its delay says, rounded to steps; what is beyond that may change while it is estimated.
    """
    read = [system.sensors[system.sensor_index(name)] for name in sensors]
    if not any(sensor.delayed for sensor in read):
        return None
    late = {f"sensors.{name}.delay": sensor.delay for name, sensor in scene.sensors.items()} | dict(numbers)
    steps = [round(late[f"sensors.{sensor.name}.delay"] / scene.step) for sensor in read]
    return np.repeat(steps, [sensor.size for sensor in read])
