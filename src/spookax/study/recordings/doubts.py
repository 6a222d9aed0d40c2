"""What can be computed with, but looks like a slip of units: seconds where milliseconds were meant, and the reverse."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from spookax.scene.explain import Finding, Loc
from spookax.scene.joint_types import free_axes
from spookax.scene.located import FileProblem, Located
from spookax.scene.model import Scene
from spookax.scene.parts import JointPosition, JointRate
from spookax.study.file.study import Study
from spookax.study.file.windows import RecordingList
from spookax.study.recordings.recording import Recording

_LONG_STEP = 0.1  # [s]
_TURNS = 3  # of a joint: more are degrees as a rule
_FAR = 1.0  # turned in a step [rad]
_MANY = 100  # steps from one sample to the next
_FEW = 0.01  # of the samples, which may be outliers


def step_doubts(step: float, located: Located, path: tuple[str, ...] = ("step",)) -> Iterator[FileProblem]:
    """A step that is longer than mechanisms allow; `path` in the file that gives it."""
    if step > _LONG_STEP:
        message = f"a step of {step:g} s is long for a mechanism"
        yield located.problem(Finding(path, step, message, f"It is in seconds; for milliseconds write {step / 1e3:g}."))


def angle_doubts(scene: Scene, located: Located) -> Iterator[FileProblem]:
    """Limits and starts of many turns, which are degrees as a rule."""
    given: list[tuple[Loc, float | None]] = []
    for path, name, axis in free_axes({n: joint.kind for n, joint in scene.joints.items()}):
        if axis.rotational:
            limits = scene.joints[name].along(axis.name).limits
            here: Loc = ("joints", name, *(("axes", axis.name) if "." in path else ()), "limits")
            given += [((*here, "lower"), limits.lower), ((*here, "upper"), limits.upper)]
            if path in scene.initial:
                given.append((("initial", path, "position"), scene.initial[path].position))
    for loc, angle in given:
        if angle is not None and abs(angle) > _TURNS * 2 * math.pi:
            message = f"{angle:g} rad are {abs(angle) / (2 * math.pi):.3g} turns"
            cure = f"If degrees are meant, write {math.radians(angle):.6g}."
            yield located.problem(Finding(loc, angle, message, cure))


def recording_doubts(
    study: Study, scene: Scene, step: float, recordings: Sequence[Recording], key: RecordingList = "recordings"
) -> Iterator[FileProblem]:
    """Recordings under a key of the study that do not suit the step: bodies that turn far in one, or many steps from
    sample to sample.
    """
    for index, recording in enumerate(recordings):
        here, apart = (key, index), np.diff(recording.time)
        for name, values in recording.sensors.items():
            turned = _turned(scene, name, apart, values, study.estimator.outliers or 0.0) * step
            if far_in_a_step(turned):
                message = f"as recorded, a body turns {turned:.3g} rad in a step of {step:g} s"
                cure = "Check the units of time and reading; if they are right, give a smaller `step`."
                yield study.located.problem(Finding((*here, "sensors", name), None, message, cure))
        for message, cure in stamp_doubts(recording.time, step):
            yield study.located.problem(Finding((*here, "time"), None, message, cure))


def stamp_doubts(time: np.ndarray, step: float) -> Iterator[tuple[str, str]]:
    """Message and cure where many steps go from stamp to stamp: milliseconds that are declared as seconds."""
    if (usual := float(np.median(np.diff(time)))) > _MANY * step:
        message = f"there are {usual / step:.3g} steps of {step:g} s from one sample to the next, {usual:g} s"
        yield message, "Check the unit of the time, or give a larger `step`."


def fastest_turn(scene: Scene, recording: Recording, wild: float = 0.0, over: float = 0.0) -> float:
    """Nearly the largest rate at which the axis of a sensor turns, as recorded [rad/s]; zero where none does.

    `wild`: share of the readings that are no part of the motion. `over`: time for which angles are compared, so that
    the steps of an encoder are small beside how far it turns [s]; from one sample to the next if that is longer.
    """
    later = max(1, round(over / float(np.median(np.diff(recording.time)))))
    apart = recording.time[later:] - recording.time[:-later]
    found = (_turned(scene, n, apart, values, wild, later) for n, values in recording.sensors.items())
    return max(found, default=0.0)


def far_in_a_step(turned: float) -> bool:
    """Whether an angle [rad] is more than a body should turn in a step."""
    return turned > _FAR


def _turned(scene: Scene, name: str, apart: np.ndarray, values: np.ndarray, wild: float, later: int = 1) -> float:
    """Nearly the largest rate of the axis of a sensor [rad/s]; zero where it does not turn.

    `apart`: time from every sample to the one that is `later` [s].
    """
    sensor = scene.sensors[name]
    if not isinstance(sensor, JointPosition | JointRate) or not scene.free_axes()[sensor.joint].rotational:
        return 0.0
    rate = np.abs(values[:, 0])
    if isinstance(sensor, JointPosition):
        difference = values[later:, 0] - values[:-later, 0]
        rate = np.abs((difference + np.pi) % (2 * np.pi) - np.pi) / apart  # an encoder may begin anew after a turn
    rate = rate[np.isfinite(rate)]
    few = min(_FEW + 2 * wild, 0.5)  # a wild reading is the end of two differences
    return float(np.quantile(rate, 1 - few)) if rate.size else 0.0
