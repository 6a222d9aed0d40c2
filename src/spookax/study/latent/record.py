"""Recordings of a mechanism that rubs: stamps, loads at the samples and over the steps, readings."""

import dataclasses
import os

import numpy as np

from spookax.scene import Scene
from spookax.scene.located import FileError, load_located
from spookax.study.file.against_scene import input_dimensions, sensor_dimensions
from spookax.study.file.read import StudyError, read_as
from spookax.study.file.table import RecordingError, Report
from spookax.study.file.windows import RecordingList
from spookax.study.latent.section import INPUTS, SENSORS, LatentStudy
from spookax.study.recordings.recording import Recording, read_recordings

_FEWEST = 50  # samples
_JITTER = 0.02  # of a step, that stamps may be off a grid
_ROUNDING = 1e-6  # of a step
_LONGEST = 1.5  # of the usual step: regimes last from step to step, so a longer one is cut into equal parts
_OFF = 0.1  # of the spread of an input, that it may be off within a gap


@dataclasses.dataclass(frozen=True)
class Record:
    """A recording, at equal steps or not.

    - `time`: from its first sample on; `h`: the mean step [s].
    - `y`: readings, a column for each of `sensors`, NaN where there is none, as in a gap. [SI]
    - `u`: inputs at the samples, a column for each of `inputs` (with its unit): of an oscillator the force [N], or the
      displacement of the base as read [m], which `base.smoothed` replaces by its displacement and velocity [m, m/s].
    - `held`: the inputs of every step, the mean of those at both its ends. A load that is held from its first sample
      on comes half a step late, and a latent force would have to make up for it.
    """

    name: str
    time: np.ndarray
    h: float
    y: np.ndarray
    u: np.ndarray
    sensors: tuple[str, ...]
    sha256: str
    inputs: tuple[tuple[str, str], ...] = (("load", "N"),)

    @property
    def steps(self) -> np.ndarray:
        """Length of the step after each sample [s]; after the last one, the mean."""
        return np.append(np.diff(self.time), self.h)

    @property
    def even(self) -> bool:
        """Whether all steps have one length."""
        return bool(np.all(np.abs(self.steps - self.h) < _ROUNDING * self.h + 1e-9))

    @property
    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """The different lengths of steps [s], and the number of that of each step."""
        return np.unique(self.steps, return_inverse=True)

    @property
    def held(self) -> np.ndarray:
        return np.concatenate([(self.u[1:] + self.u[:-1]) / 2.0, self.u[-1:]])


def read_latent(path: str | os.PathLike[str]) -> LatentStudy:
    """A study of an unknown force, from its file.

    **Raises:** `StudyError` with every problem of the file, each with line, path, value and cure.
    """
    return read_as(LatentStudy, load_located(path, error=StudyError))


def read_records(study: LatentStudy, key: RecordingList = "recordings", scene: Scene | None = None) -> list[Record]:
    """Its recordings, those under `validate` when asked for; `scene`: that of the study, if it names one.

    **Raises:** `FileError` with the problems of all files.
    """
    dimensions, inputs = (SENSORS, INPUTS) if scene is None else (sensor_dimensions(scene), input_dimensions(scene))
    records, refused = [], []
    for recording in read_recordings(study, dimensions, key, inputs=inputs):
        try:
            records.append(_record(recording))
        except RecordingError as error:
            refused.append(error)
    if refused:
        raise FileError(problem for error in refused for problem in error.problems)
    return records


def _record(recording: Recording) -> Record:
    """As a record; of a sample that is left out the reading is missing, and its input is between those beside it."""
    report, stamps = Report(str(recording.path)), recording.time
    if len(stamps) < _FEWEST:
        report.add(f"has {len(stamps)} samples, and at least {_FEWEST} are needed", "Take a longer window.")
    for sensor, readings in recording.sensors.items():
        if np.ptp(readings[np.isfinite(readings)]) == 0:
            report.add(f"the {sensor} is the same in every sample", "Name the column of something that moves.")
    report.refuse()
    time, place = _grid(stamps)
    y = np.full((len(time), len(recording.sensors)), np.nan)
    y[place] = np.column_stack(list(recording.sensors.values()))
    for name, driven in recording.inputs.items():
        _check_gaps(name, driven, stamps, place, report)
    report.refuse()
    u = np.column_stack([np.interp(time, time[place], driven) for driven in recording.inputs.values()])
    h = float((time[-1] - time[0]) / (len(time) - 1))
    sensors, inputs = tuple(recording.sensors), tuple(recording.input_units.items())
    return Record(recording.name, time, h, y, u, sensors, recording.sha256, inputs)


def _check_gaps(name: str, driven: np.ndarray, stamps: np.ndarray, place: np.ndarray, report: Report) -> None:
    """An input between the ends of a gap is taken from a straight line: how far samples are from lines of that length
    elsewhere tells whether that is knowledge.
    """
    spread = float(np.std(driven))
    gaps = np.diff(place)
    for length in np.unique(gaps[gaps > 1]):
        ends = np.arange(place[-1] + 1 - length)
        row = np.full(place[-1] + 1, np.nan)
        row[place] = driven
        off = row[ends + length // 2] - (row[ends] + row[ends + length]) / 2.0
        off = off[np.isfinite(off)]
        error = float(np.sqrt(np.mean(off**2))) if len(off) else spread
        if error > _OFF * spread:
            at = int(np.flatnonzero(gaps == length)[0])
            begin, end, first, last = (f"{t:.6g}" for t in (stamps[at], stamps[at + 1], stamps[0], stamps[-1]))
            message = (
                f"the {name} is not known between {begin} and {end} s, where there are no samples: over as long a "
            )
            message += f"time it is off a straight line by {error:.2g}, and varies by {spread:.2g} in all"
            cure = f"Make two recordings of it, `windows: [[{first}, {begin}], [{end}, {last}]]`, or write the rows of "
            report.add(message, cure + "the gap with their input, and leave their readings empty.")


def _grid(stamps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Times of a record [s], and which of them have samples: multiples of one step if the stamps are next to such, else
    the stamps themselves; a step much longer than most is cut.
    """
    step = np.diff(stamps)
    usual = float(np.median(step))
    place = np.concatenate([[0], np.cumsum(np.rint(step / usual).astype(int))])
    h = float((stamps[-1] - stamps[0]) / place[-1])
    even = stamps[0] + h * np.arange(place[-1] + 1)
    if np.all(np.diff(place) > 0) and np.all(np.abs(stamps - even[place]) <= max(_JITTER * h, 1e-9)):
        return even, place
    parts = np.maximum(np.ceil(step / (_LONGEST * usual)).astype(int), 1)
    place = np.concatenate([[0], np.cumsum(parts)])
    return np.interp(np.arange(place[-1] + 1), place, stamps), place
