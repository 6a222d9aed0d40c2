"""What a scene with the friction that was found predicts of a recording."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from spookax._typing import Float
from spookax.scene import Scene
from spookax.stepping import rollout, state_from_joints
from spookax.study.latent.mechanism import Reading
from spookax.study.latent.record import Record
from spookax.system import build

SUBSTEPS = 4
"""Steps of the engine in a mean step of the recordings, at least."""


class Forward(NamedTuple):
    """A recording simulated from its first state with its loads alone."""

    z: Float[np.ndarray, "k q"]  # coordinates at the samples [m or rad]
    v: Float[np.ndarray, "k q"]
    reading: Float[np.ndarray, "k channels"]  # what the sensors would have read
    nmse: Float[np.ndarray, " channels"]  # of the readings [%], (24)
    load: Float[np.ndarray, "steps motors"]  # of every step of the engine
    step: float  # of the engine [s]


def forward(
    scene: Scene,
    readings: Sequence[Reading],
    record: Record,
    load: Float[np.ndarray, "k motors"],
    start: Float[np.ndarray, " n"],
) -> Forward:
    """Simulate a recording; NaN from a step on that fails.

    **Arguments:** `load`: of every motor at the samples, a straight line between them; `start`: coordinates and rates
    there.
    """
    h, time = scene.step, record.time - record.time[0]
    count = math.ceil(time[-1] / h * (1.0 - 1e-9))
    middle = (np.arange(count) + 0.5) * h
    pushed = np.column_stack([np.interp(middle, time, column) for column in load.T])
    system, params = build(scene)
    names = system.axis_names()
    joints = {
        name: {"position": float(z), "rate": float(v)}
        for name, z, v in zip(names, start[: len(names)], start[len(names) :], strict=True)
    }
    found = rollout(system, params, state_from_joints(system, params, joints), jnp.asarray(pushed), throw=False)
    z, v = (np.array(a) for a in (found.position, found.rate))
    if (failed := int(found.failed_step)) >= 0:
        z[failed:] = v[failed:] = np.nan
    z, v = _between(time / h, z, v, h)
    read = np.column_stack([_read(reading, z, v, time) for reading in readings])
    return Forward(z, v, read, nmse(read, record.y), pushed, h)


def nmse(read: Float[np.ndarray, "k channels"], y: Float[np.ndarray, "k channels"]) -> Float[np.ndarray, " channels"]:
    """Of every channel, where it was read [%], (24); NaN where a simulation failed."""
    each = []
    for a, b in zip(read.T, y.T, strict=True):
        there = np.isfinite(b)
        each.append(100.0 * np.mean((a[there] - b[there]) ** 2) / np.var(b[there]))
    return np.array(each)


def _read(
    reading: Reading, z: Float[np.ndarray, "k q"], v: Float[np.ndarray, "k q"], time: Float[np.ndarray, " k"]
) -> Float[np.ndarray, " k"]:
    z, v = z[:, reading.coordinate], v[:, reading.coordinate]
    own = {"displacement": z, "velocity": v, "acceleration": np.gradient(v, time)}[reading.kind]
    return own + reading.offset


def _between(
    place: Float[np.ndarray, " k"], z: Float[np.ndarray, "n q"], v: Float[np.ndarray, "n q"], h: float
) -> tuple[Float[np.ndarray, "k q"], Float[np.ndarray, "k q"]]:
    """Coordinates by cubics, rates by straight lines, `place` steps after the first of equal steps."""
    k = np.minimum(np.maximum(np.rint(place), 0), len(z) - 1).astype(int)
    at = np.abs(place - k) < 1e-6  # a sample of the simulation itself, whatever happened after it
    k = np.where(at, k, np.clip(np.floor(place), 0, len(z) - 2)).astype(int)
    s, k1 = np.where(at, 0.0, place - k)[:, None], np.where(at, k, np.minimum(k + 1, len(z) - 1))
    rise = h * s * (1.0 - s) * ((1.0 - s) * v[k] - s * v[k1])
    return z[k] + s * s * (3.0 - 2.0 * s) * (z[k1] - z[k]) + rise, v[k] + s * (v[k1] - v[k])
