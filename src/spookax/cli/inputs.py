"""Motor inputs of a simulation, from the command line and from a recording."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import typer
from jaxtyping import Float

from ..scene import FileProblem, Scene
from ..scene.explain import nearest
from ..scene.parts import PositionMotor
from ..study.file.against_scene import input_dimensions
from ..study.file.study import Column, RecordingSpec
from ..study.file.table import Report, read_table
from ..study.file.units import split_header
from ..study.recordings.doubts import stamp_doubts
from ..study.recordings.recording import read_recording
from .errors import doubt

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


@dataclass(frozen=True)
class Inputs:
    """What the motors get in every step, the unit of each motor's input, and what looks like a slip of units."""

    values: Float[np.ndarray, "steps motors"]
    units: dict[str, str]
    doubts: list[FileProblem]


def read_inputs(scene: Scene, settings: Sequence[str], file: Path | None, time: float | None) -> Inputs:
    """Motor inputs over the steps of a simulation.

    **Arguments:**

    - `settings`: `MOTOR=NUMBER`, or `MOTOR=COLUMN` of the file.
    - `file`: a recording whose first column is the time. A motor without a setting reads the column of its
      own name, which has to be there if there are no settings at all. Values hold until the next stamp, and the
      last one to the end.
    - `time`: duration [s]; that of the recording when None.

    **Returns:** the mean of each input over each step; a motor that nothing drives gets 0, a servo of a position the
    position at which its axis starts.

    **Raises:** `typer.BadParameter` for settings that do not fit the scene; `RecordingError` for the file.
    """
    constants, columns = _settings(scene, settings)
    if columns and file is None:
        motor, text = next(iter(columns.items()))
        raise typer.BadParameter(
            f"'{text}' is no number. Give --input FILE to read it as a column.", param_hint=f"--motor {motor}"
        )
    own = [motor for motor in scene.motors if motor not in constants and motor not in columns]
    stamps, held, units = np.zeros(1), {}, {}
    if file is not None:  # with settings for some of the motors the others need no column
        stamps, held, units = _read(file, scene, columns, own, needed=not settings)
    if time is None:
        if file is None:
            raise typer.BadParameter("give it, or a recording with --input", param_hint="--time")
        time = float(stamps[-1] - stamps[0])
    if not 0 < time < math.inf:
        raise typer.BadParameter(f"must be a positive number of seconds, got {time:g}", param_hint="--time")
    steps = max(1, round(time / scene.step))
    values = np.zeros((steps, len(scene.motors)))
    for i, motor in enumerate(scene.motors):
        if motor in held:
            values[:, i] = step_means(stamps - stamps[0], held[motor], scene.step, steps)
        else:
            values[:, i] = constants.get(motor, _held(scene, motor))
    turns = {name: axis.rotational for name, axis in scene.free_axes().items()}
    position = {motor: "rad" if turns[spec.joint] else "m" for motor, spec in scene.motors.items()}
    default = {
        motor: {"dc": "V", "velocity": f"{position[motor]}/s", "position": position[motor]}.get(spec.type, "1")
        for motor, spec in scene.motors.items()
    }
    slips = [] if file is None else [doubt(file, *slip) for slip in stamp_doubts(stamps, scene.step)]
    return Inputs(values, default | units, slips)


def _held(scene: Scene, motor: str) -> float:
    """What a motor is told that nothing drives: a servo of a position to stay where it starts, any other nothing."""
    spec = scene.motors[motor]
    starts = isinstance(spec, PositionMotor) and spec.joint in scene.initial
    return float(scene.initial[spec.joint].position) if starts else 0.0


def step_means(
    time: Float[np.ndarray, " n"], value: Float[np.ndarray, " n"], h: float, steps: int
) -> Float[np.ndarray, " steps"]:
    """Means over steps of length h [s] of a value that holds from each stamp to the next."""
    edges = h * np.arange(steps + 1)
    end = max(edges[-1], time[-1]) + h
    corners = np.append(time, end)
    area = np.concatenate([[0.0], np.cumsum(value * np.diff(corners))])
    return np.diff(np.interp(edges, corners, area)) / h


def _settings(scene: Scene, settings: Sequence[str]) -> tuple[dict[str, float], dict[str, str]]:
    """Motors with a constant, and motors with the name of a column."""
    constants: dict[str, float] = {}
    columns: dict[str, str] = {}
    for setting in settings:
        motor, equals, text = (part.strip() for part in setting.partition("="))
        if not equals or not text:
            raise typer.BadParameter(f"'{setting}' is not MOTOR=NUMBER or MOTOR=COLUMN", param_hint="--motor")
        if motor not in scene.motors:
            message = f"the scene has no motor '{motor}'. {nearest(motor, scene.motors)}"
            raise typer.BadParameter(message, param_hint="--motor")
        if motor in constants or motor in columns:
            raise typer.BadParameter(f"'{motor}' is set twice", param_hint="--motor")
        if _NUMBER.fullmatch(text):
            constants[motor] = float(text)
        else:
            columns[motor] = text
    return constants, columns


def _read(
    file: Path, scene: Scene, columns: Mapping[str, str], own: Sequence[str], *, needed: bool
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, str]]:
    """Stamps, and values and unit of each motor's input. `own`: motors that read the column of their own name; where
    these are not `needed`, those that there are.
    """
    report = Report(str(file))
    header = read_table(file, report).header
    report.refuse()
    there = {split_header(cell)[0] for cell in header}
    columns = dict(columns) | {motor: motor for motor in own if needed or motor in there}
    spec = RecordingSpec.model_construct(
        name=file.stem,
        time=Column(column=split_header(header[0])[0]),
        inputs={motor: Column.model_validate(column) for motor, column in columns.items()},
        sensors={},
    )
    recording = read_recording(file, spec, inputs=input_dimensions(scene))
    return recording.time, recording.inputs, recording.input_units
