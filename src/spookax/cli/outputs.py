"""What a simulation leaves: columns with units, as a recording that a study can read."""

import csv
import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._contact_points import ContactPoints
from .._typing import AnyArray, Array
from ..constraints import axes
from ..math import rotation
from ..scene import Scene
from ..stepping import Trajectory
from ..stepping.felt import forces_read
from ..study.file.against_scene import sensor_dimensions
from ..study.file.units import SI_UNIT
from ..system import Params, Sensor, System
from .check import length
from .inputs import Inputs

if TYPE_CHECKING:
    from ..study.identifying.predict import Prediction

Table = dict[str, Float[np.ndarray, " n"]]
"""Column name with its unit in brackets -> values."""


def table(
    scene: Scene,
    system: System,
    params: Params,
    trajectory: Trajectory,
    inputs: Inputs,
    contacts: ContactPoints | None = None,
) -> Table:
    """Time, motor inputs, joint positions and rates, poses of bodies that no joints hold to the world, readings without
    noise and forces of contacts, at every step.

    Columns are called after the paths of the scene: `joints.elbow.rate [rad/s]`, `sensors.encoder [rad]`; those of
    surfaces after both, `contacts.ball.floor.normal [N]` and `.friction`. Inputs and forces are those of the step that
    begins at their time; at the last time of the one before. Nothing follows after a failed step.
    """
    # on the host: every piece of an array of JAX would be compiled
    trajectory, params = jax.tree.map(np.asarray, (trajectory, params))
    position, rate = np.asarray(trajectory.position), np.asarray(trajectory.rate)
    failed = int(trajectory.failed_step)
    count = failed + 1 if failed >= 0 else trajectory.time.shape[0]
    columns: Table = {"t [s]": np.asarray(trajectory.time, dtype=float)}
    held = np.concatenate([inputs.values, inputs.values[-1:]])
    for i, motor in enumerate(scene.motors):
        columns[f"motors.{motor}.input [{inputs.units[motor]}]"] = held[:, i]
    for i, axis in enumerate(system.axes):
        unit = "rad" if axis.rotational else "m"
        columns[f"joints.{axis.name}.position [{unit}]"] = position[:, i]
        columns[f"joints.{axis.name}.rate [{unit}/s]"] = rate[:, i]
    for name in scene.adrift():
        for suffix, unit, values in zip(
            _SUFFIXES[6], 3 * ["m"] + 3 * ["rad"], np.asarray(_pose(params, trajectory, name)).T, strict=True
        ):
            columns[f"bodies.{name}{suffix} [{unit}]"] = values
    dimensions = sensor_dimensions(scene)
    for sensor in system.sensors:
        read = np.asarray(readings(system, params, trajectory, sensor))
        for suffix, dimension, values in zip(_SUFFIXES[sensor.size], dimensions[sensor.name], read.T, strict=True):
            columns[f"sensors.{sensor.name}{suffix} [{SI_UNIT[dimension]}]"] = values
    for (first, second), forces in contacts.by_pair().items() if contacts else ():
        held = np.concatenate([forces, forces[-1:]])
        columns |= {
            f"contacts.{first}.{second}.{kind} [N]": held[:, i] for i, kind in enumerate(("normal", "friction"))
        }
    return {name: values[:count] for name, values in columns.items()}


def readings(system: System, params: Params, trajectory: Trajectory, sensor: Sensor) -> Float[Array, "n size"]:
    """What a sensor without noise reads along a trajectory, in its SI units. A delayed one reads the start at first."""
    if sensor.type == "contact_force":
        return _forces(system, params, trajectory, sensor)
    if sensor.delayed:
        trajectory = _earlier(trajectory, float(params.age[system.sensor_index(sensor.name)]))
    e, target = trajectory.e, sensor.target
    if sensor.type == "joint_position":
        number = system.sensor_index(sensor.name)
        seen = functools.partial(axes.encoders, system, params.cyclic, [number])
        value = jax.vmap(seen)(trajectory.position[:, target, None])
    elif sensor.type == "joint_rate":
        value = trajectory.rate[:, target, None]
    else:
        value = _pose(params, trajectory, system.bodies[target])
        if sensor.type == "point_position":
            value = value[:, :3] + rotation.matrix(e[:, target]) @ params.point[system.sensor_index(sensor.name)]
    return value + params.offset[None, system.sensor_index(sensor.name), : sensor.size]


def _forces(system: System, params: Params, trajectory: Trajectory, sensor: Sensor) -> Float[Array, "n 3"]:
    """Those of the step that begins at every time, at the last time of the one before; a delay is one of whole steps.
    [N]"""
    number = system.sensor_index(sensor.name)
    late, count = round(float(params.age[number] / params.step)), trajectory.contact_forces.shape[0]
    step = np.clip(np.arange(count + 1) - late, 0, count - 1)
    read = jax.vmap(lambda *step: forces_read(system, [number], *step)[0])
    found = (trajectory.e, trajectory.contact_forces, trajectory.contact_pairs)
    return read(*(jnp.asarray(a)[:count] for a in found))[step]


def _pose(params: Params, trajectory: Trajectory, body: str) -> Float[Array, "n 6"]:
    """Origin [m] and rotation vector [rad] of a body's frame in the world."""
    target = trajectory.body_names.index(body)
    turned = jax.vmap(rotation.log)(jnp.asarray(trajectory.e)[:, target])
    return jnp.concatenate([jnp.asarray(trajectory.origins(params))[:, target], turned], axis=-1)


def _earlier(trajectory: Trajectory, age: float) -> Trajectory:
    """The motion that was a time `age` [s] ago: on the parabola through three steps, as estimators read it."""
    time, last = np.asarray(trajectory.time), trajectory.time.shape[0] - 1
    at = np.maximum(time - age, time[0])
    k = np.clip(np.searchsorted(time, at, side="right") - 1, min(1, last - 1), last - 1)
    s = (at - time[k]) / (time[k + 1] - time[k])
    bend = np.where(k > 0, s * (s - 1) / 2, 0.0)

    def between(now: AnyArray, ahead: AnyArray, back: AnyArray) -> AnyArray:
        s_, bend_ = (a.reshape(-1, *[1] * (np.ndim(ahead) - 1)) for a in (s, bend))
        return now + s_ * ahead + bend_ * (ahead - back)

    def moved(a: AnyArray) -> AnyArray:
        return between(a[k], a[k + 1] - a[k], a[k] - a[k - 1])

    turn, e = jax.vmap(jax.vmap(rotation.minus)), jnp.asarray(trajectory.e)
    turned = jnp.asarray(between(np.zeros((1, 1, 3)), turn(e[k + 1], e[k]), turn(e[k], e[k - 1])))
    e = jax.vmap(jax.vmap(rotation.plus))(e[k], turned)
    parts = {name: moved(np.asarray(getattr(trajectory, name))) for name in ("r", "position", "rate")}
    return dataclasses.replace(trajectory, e=e, **parts)


def prediction_table(prediction: "Prediction") -> Table:
    """Time, and what was measured and predicted of every number of every sensor; NaN where there is nothing.

    Columns are called `sensors.encoder.measured [rad]`, `.predicted` (without feedback) and, where asked for, `.ahead`.
    """
    recording = prediction.recording
    kinds = {"measured": recording.sensors, "predicted": prediction.simulated}
    if prediction.ahead is not None:
        kinds["ahead"] = prediction.ahead.readings
    columns: Table = {"t [s]": recording.time}
    for sensor in prediction.simulated:
        units = recording.sensor_units[sensor]
        for i, (suffix, unit) in enumerate(zip(_SUFFIXES[len(units)], units, strict=True)):
            for kind, values in kinds.items():
                columns[f"sensors.{sensor}{suffix}.{kind} [{unit}]"] = values[sensor][:, i]
    return columns


_SUFFIXES = {1: ("",), 3: (".x", ".y", ".z"), 6: (".x", ".y", ".z", ".rx", ".ry", ".rz")}


def write_table(columns: Table, file: Path) -> None:
    """Write a CSV file, or an NPZ file if its name says so; its folder is made if there is none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix.lower() == ".npz":
        np.savez_compressed(file, **columns)  # pyright: ignore[reportArgumentType]
        return
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        for row in zip(*columns.values(), strict=True):  # what is missing is an empty cell
            writer.writerow(["" if np.isnan(value) else f"{value:.12g}" for value in row])


def pace(columns: Table, step: float) -> tuple[str, float]:
    """Duration, number of steps and the fastest turn of a joint in words; and how far that goes in a step [rad]."""
    rates = {name: float(np.abs(v).max()) for name, v in columns.items() if name.endswith(".rate [rad/s]")}
    text = length(float(columns["t [s]"][-1]), step)
    if not rates:
        return text, 0.0
    fastest = max(rates, key=lambda name: rates[name])
    joint, turned = fastest.removeprefix("joints.").removesuffix(".rate [rad/s]"), rates[fastest] * step
    return f"{text}, {turned:.2g} rad in one at the fastest, {rates[fastest]:.3g} rad/s of {joint}", turned


def summary(columns: Table) -> str:
    """Least, largest and last value of every column, as text."""
    width = max(map(len, columns))
    lines = [f"{'':{width}} {'least':>12} {'largest':>12} {'last':>12}"]
    for name, values in columns.items():
        lines.append(f"{name:{width}} {values.min():12.5g} {values.max():12.5g} {values[-1]:12.5g}")
    return "\n".join(lines)
