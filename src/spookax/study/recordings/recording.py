"""Recordings: sampled inputs and sensor readings of one run, in SI units, with missing samples as NaN."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from spookax.study.file import units as u
from spookax.study.file.columns import Picked, Picker
from spookax.study.file.study import Recorded, RecordingSpec
from spookax.study.file.table import RecordingError, Report, Table, read_table
from spookax.study.file.windows import RecordingList
from spookax.study.recordings import shifted

Dimensions = Mapping[str, Sequence[str]]
"""Sensor -> the dimension of each number that it reads."""

Values = Float[np.ndarray, " n"]

_OF_INPUTS = (u.VOLTAGE, u.CURRENT, u.TORQUE, u.FORCE, u.NUMBER)
_OF_SENSORS = (u.ANGLE, u.ANGULAR_RATE, u.LENGTH, u.SPEED)
_FEWEST = 3


@dataclass(frozen=True)
class Recording:
    """One run, as recorded, within its window.

    - `time`: strictly increasing stamps on the recording's own clock, not uniform in general. [s]
    - `inputs`: motor -> the value that holds from each stamp to the next.
    - `sensors`: sensor -> a row of d numbers for each stamp, NaN where there is no sample.
    - `input_units`, `sensor_units`: their SI units, of each column for a sensor.
    - `sha256`: of the whole file, as hexadecimal digits.
    - `shifts`: motor or sensor -> what was added to the time of its (first) column, where that is not zero. [s]
    """

    name: str
    path: Path
    time: Values
    inputs: dict[str, Values]
    sensors: dict[str, Float[np.ndarray, "n d"]]
    input_units: dict[str, str] = field(repr=False)
    sensor_units: dict[str, tuple[str, ...]] = field(repr=False)
    sha256: str = field(repr=False)
    shifts: dict[str, float] = field(default_factory=dict, repr=False)

    def part(self, here: Bool[np.ndarray, " n"]) -> "Recording":
        """The samples that are there."""
        inputs = {name: values[here] for name, values in self.inputs.items()}
        sensors = {name: values[here] for name, values in self.sensors.items()}
        return replace(self, time=self.time[here], inputs=inputs, sensors=sensors)


def read_recordings(
    study: Recorded,
    dimensions: Dimensions | None = None,
    key: RecordingList = "recordings",
    beside: Sequence[Recording] = (),
    inputs: Dimensions | None = None,
) -> list[Recording]:
    """Reads all recordings of a study, or those under its key `validate`; see `read_recording`.

    `beside`: others whose inputs have the same dimensions; `inputs`: those that inputs may have, by name.

    **Raises:** `RecordingError` with the problems of all files, and where two recordings give a motor inputs
    of different dimensions; `DatasetMissing` if a public data set is not on this machine.
    """
    recordings: list[Recording] = []
    latest: dict[Path, Picker] = {}
    refused: list[RecordingError] = []
    for index, spec in enumerate(study.listed(key)):

        def named(*keys: str, index: int = index) -> str:
            line = study.located.line_of((key, index, *keys))
            return f" (named in {study.located.file}:{line})" if line else ""

        try:
            recordings.append(read_recording(study.recording_path(spec), spec, dimensions, named, latest, inputs))
        except RecordingError as error:
            refused.append(error)
    if refused:  # two windows of a file have the same problems
        raise RecordingError(dict.fromkeys(problem for error in refused for problem in error.problems))
    first: dict[str, Recording] = {}
    for recording in (*beside, *recordings):
        report = Report(str(recording.path))
        for motor, unit in recording.input_units.items():
            other = first.setdefault(motor, recording)
            if other.input_units[motor] != unit:
                message = f"the input '{motor}' is in {unit}, but in {other.path} it is in "
                cure = "A motor has one gain; convert one of the columns."
                report.add(message + other.input_units[motor], cure)
        report.refuse()
    return recordings


def read_recording(
    path: str | os.PathLike[str],
    spec: RecordingSpec,
    dimensions: Dimensions | None = None,
    named: Callable[..., str] = lambda *_: "",
    latest: dict[Path, Picker] | None = None,
    inputs: Dimensions | None = None,
) -> Recording:
    """Reads the columns that `spec` names from a CSV, NPZ or Parquet file.

    **Arguments:**

    - `path`: the file; the ending of its name says which kind it is.
    - `spec`: its entry in the study file.
    - `dimensions`: what each sensor reads, from `sensor_dimensions(scene)`; without it a sensor may read
        angles, lengths and their rates.
    - `named`: where `spec` names a column, as text for messages, by the keys that lead to it.
    - `latest`: what a call before this one has read, kept for the next one: windows of a file read it once.
    - `inputs`: the dimensions that an input may have, by its name; without it those of motors.

    **Returns:** the samples from `spec.start` to `spec.stop`. An empty cell (NaN in NPZ and Parquet) is a
    missing sample of a sensor; in an input it holds the value before.

    **Raises:** `RecordingError` with every problem found, each with file, line, column, value and cure.
    """
    report = Report(os.fspath(path))
    path = Path(path)
    pick = (latest or {}).get(path)
    if pick is None:
        pick = Picker(read_table(path, report), report)
    table, pick.report = pick.table, report
    time = pick(spec.time, "the time", (u.TIME,), named("time"))
    driven = {
        motor: pick(column, f"the input '{motor}'", (inputs or {}).get(motor, _OF_INPUTS), named("inputs", motor))
        for motor, column in spec.inputs.items()
    }
    sensors: dict[str, list[Picked]] = {}
    for sensor, columns in spec.sensors.items():
        expected = (dimensions or {}).get(sensor)
        allowed = [_OF_SENSORS] * len(columns) if expected is None else [(one,) for one in expected]
        if len(allowed) != len(columns):
            message = f"the sensor '{sensor}' reads {len(allowed)} numbers, the study names {len(columns)} columns"
            report.add(message, "List one column for each number.")
        sensors[sensor] = [
            pick(column, f"the sensor '{sensor}'", dimension, named("sensors", sensor))
            for column, dimension in zip(columns, allowed, strict=False)
        ]
    _check_time(time, table, report)
    report.refuse()
    window = _window(time.values, spec, report)
    report.refuse()
    clock, held = time.values, {}
    for (motor, column), picked in zip(spec.inputs.items(), driven.values(), strict=True):
        held[motor] = _held(picked.values)
        if column.shift:
            held[motor] = shifted.held(held[motor], clock, column.shift)
            window &= np.isfinite(held[motor])
        else:
            _check_first(picked, held[motor], window, f"the input '{motor}'", table, report)
    if not report.problems and window.sum() < _FEWEST:
        report.add("has no value of every input at a time", "Make `shift` shorter than the recording.")
    read = {
        sensor: np.column_stack(
            [
                shifted.read(picked.values, clock, column.shift) if column.shift else picked.values
                for column, picked in zip(spec.sensors[sensor], columns, strict=True)
            ]
        )
        for sensor, columns in sensors.items()
    }
    for sensor, values in read.items():
        if window.any() and np.isnan(values[window]).all():
            message = f"the sensor '{sensor}' has no sample between start and stop"
            report.add(message, "Widen the window, or take the sensor out of this recording.")
    report.refuse()
    if latest is not None:  # only what is sound: the problems of a file stand in the first report
        latest.clear()
        latest[path] = pick
    firsts = spec.inputs | {sensor: columns[0] for sensor, columns in spec.sensors.items()}
    return Recording(
        name=spec.name,
        path=path,
        time=time.values[window],
        inputs={motor: values[window] for motor, values in held.items()},
        sensors={sensor: values[window] for sensor, values in read.items()},
        input_units={motor: picked.unit for motor, picked in driven.items()},
        sensor_units={sensor: tuple(picked.unit for picked in columns) for sensor, columns in sensors.items()},
        sha256=table.sha256,
        shifts={name: column.shift for name, column in firsts.items() if column.shift},
    )


def _check_time(time: Picked, table: Table, report: Report) -> None:
    """Each stamp is later than the one before."""
    stamped = np.flatnonzero(np.isfinite(time.values))
    step = np.diff(time.values[stamped])
    sort = "Repair a stray stamp, sort the samples by time, or cut the file where the clock was set."
    for wrong, verb, cure in (
        (step == 0, "repeats", "Delete the samples that stand for the same time."),
        (step < 0, "goes back", sort),
    ):
        if wrong.any():
            before, rows = stamped[:-1][wrong], stamped[1:][wrong]
            from_, to = time.values[before[0]], time.values[rows[0]]
            message = f"time {verb}: {to:.9g} s after {from_:.9g} s ({table.places(rows.tolist())})"
            report.add(message, cure, line=table.line(rows[0]), column=time.label, value=to)


def _window(time: Values, spec: RecordingSpec, report: Report) -> Bool[np.ndarray, " n"]:
    """The samples between start and stop."""
    start = -np.inf if spec.start is None else spec.start
    stop = np.inf if spec.stop is None else spec.stop
    window = (time >= start) & (time <= stop)
    if (count := int(window.sum())) < _FEWEST:
        between = f" between start {start:g} s and stop {stop:g} s" if count < time.size else ""
        message = f"has {count} samples{between}, and at least {_FEWEST} are needed"
        report.add(message, f"The recording runs from {time[0]:g} s to {time[-1]:g} s.")
    return window


def _held(values: Values) -> Values:
    """Zero-order hold over missing samples; NaN before the first."""
    given = np.isfinite(values)
    latest = np.maximum.accumulate(np.where(given, np.arange(given.size), -1))
    return np.where(latest < 0, np.nan, values[np.maximum(latest, 0)])


def _check_first(
    picked: Picked, held: Values, window: Bool[np.ndarray, " n"], use: str, table: Table, report: Report
) -> None:
    """An input has a value from the first sample on."""
    unknown = np.flatnonzero(np.isnan(held) & window).tolist()
    if unknown:
        message = f"{use} has no value at its first sample ({table.place(unknown[0])})"
        cure = "Write the value that holds there, or let the window start later."
        report.add(message, cure, line=table.line(unknown[0]), column=picked.label)
