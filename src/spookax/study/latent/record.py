"""Recordings of a mass on a spring, at equal steps: load at the samples and over the steps, readings."""

import dataclasses
import os

import numpy as np

from spookax.scene.located import FileError, load_located
from spookax.study.file.read import StudyError, read_as
from spookax.study.file.table import RecordingError, Report
from spookax.study.file.windows import RecordingList
from spookax.study.latent.spec import INPUTS, SENSORS, LatentStudy
from spookax.study.recordings.recording import Recording, read_recordings

_FEWEST = 50  # samples
_JITTER = 0.02  # of a step, that stamps may be off


@dataclasses.dataclass(frozen=True)
class Record:
    """A recording at equal steps.

    - `time`: from its first sample on; `h`: the step [s].
    - `y`: readings, NaN where there is none. [m, m/s or m/s^2]
    - `u`: inputs at the samples: the force [N], or the displacement of the base as read [m], which `base.smoothed`
      replaces by its displacement and velocity [m, m/s].
    - `held`: the inputs of every step, the mean of those at both its ends. A load that is held from its first sample
      on comes half a step late, and a latent force would have to make up for it.
    """

    name: str
    time: np.ndarray
    h: float
    y: np.ndarray
    u: np.ndarray
    sensor: str
    sha256: str

    def head(self, count: int) -> "Record":
        """Its first samples."""
        return dataclasses.replace(self, time=self.time[:count], y=self.y[:count], u=self.u[:count])

    @property
    def held(self) -> np.ndarray:
        return np.concatenate([(self.u[1:] + self.u[:-1]) / 2.0, self.u[-1:]])


def read_latent(path: str | os.PathLike[str]) -> LatentStudy:
    """A study of an unknown force, from its file.

    **Raises:** `StudyError` with every problem of the file, each with line, path, value and cure.
    """
    return read_as(LatentStudy, load_located(path, error=StudyError))


def read_records(study: LatentStudy, key: RecordingList = "recordings") -> list[Record]:
    """Its recordings, those under `validate` when asked for.

    **Raises:** `RecordingError` with the problems of all files; also for steps that are not equal.
    """
    records, refused = [], []
    for recording in read_recordings(study, SENSORS, key, inputs=INPUTS):
        try:
            records.append(_equal_steps(recording))
        except RecordingError as error:
            refused.append(error)
    if refused:
        raise FileError(problem for error in refused for problem in error.problems)
    return records


def _equal_steps(recording: Recording) -> Record:
    """At multiples of one step; a sample that is left out is a missing reading, its input between those beside it."""
    report, time = Report(str(recording.path)), recording.time
    step = np.diff(time)
    h = float(np.median(step))
    place = np.concatenate([[0], np.cumsum(np.rint(step / h).astype(int))])
    h = float((time[-1] - time[0]) / place[-1])
    off = np.abs(time - time[0] - place * h)
    worst = int(np.argmax(off))
    if np.any(np.diff(place) < 1) or off[worst] > max(_JITTER * h, 1e-9):
        message = (
            f"the samples are not at equal steps: {time[worst]:.9g} s is {off[worst]:.2g} s off a step of {h:.6g} s"
        )
        report.add(message, "Resample the recording, inputs and sensors alike, at equal steps.")
    if len(time) < _FEWEST:
        report.add(f"has {len(time)} samples, and at least {_FEWEST} are needed", "Take a longer window.")
    (sensor, readings), driven = next(iter(recording.sensors.items())), next(iter(recording.inputs.values()))
    if np.ptp(readings[np.isfinite(readings)]) == 0:
        report.add(f"the {sensor} is the same in every sample", "Name the column of a mass that moves.")
    report.refuse()
    y = np.full(place[-1] + 1, np.nan)
    y[place] = readings[:, 0]
    u = np.interp(np.arange(len(y)), place, driven)[:, None]
    return Record(recording.name, time[0] + h * np.arange(len(y)), h, y, u, sensor, recording.sha256)
