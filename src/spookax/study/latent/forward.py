"""A scene of the mass on its spring with the friction that was found, and what it predicts."""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from spookax._typing import Float
from spookax.scene import Scene, SceneError
from spookax.scene.located import Located, validate
from spookax.scene.rules import scene_rules
from spookax.stepping import rollout, state_from_joints
from spookax.study.latent.laws import SceneLaw
from spookax.study.latent.record import Record
from spookax.study.latent.switching_model import Mechanism
from spookax.system import build

SUBSTEPS = 4
"""Steps of the engine in a mean step of the recordings."""


class Forward(NamedTuple):
    """A recording simulated from its first state with its load alone."""

    z: Float[np.ndarray, " k"]  # at the samples [m]
    v: Float[np.ndarray, " k"]
    reading: Float[np.ndarray, " k"]  # what the sensor would have read
    nmse: float  # of the readings [%], (24)
    load: Float[np.ndarray, " steps"]  # of every step of the engine [N]
    step: float  # of the engine [s]


def scene_of(name: str, m: Mechanism, law: SceneLaw, h: float, start: Float[np.ndarray, " 2"]) -> Scene:
    """The scene: a body that slides along x, with a spring, viscous and set-valued dry friction, pushed by the motor
    `load` whose input is the force [N].

    **Arguments:** `h`: step of the engine [s]; `start`: displacement and velocity [m, m/s].
    """
    mass = float(m.mass)
    friction: dict[str, Any] = {"viscous": float(m.damping) + law.viscous, "coulomb": law.coulomb}
    if law.excess > 0:
        friction["stribeck"] = {"excess": law.excess, "speed": law.speed, "exponent": law.exponent}
    side = (mass / 7800.0) ** (1 / 3)
    data = {
        "spookax": 1,
        "name": name,
        "step": h,
        "initial": {"slide": {"position": float(start[0]), "rate": float(start[1])}},
        "bodies": {
            "mass": {
                "mass": mass,
                "inertia": [mass * side**2 / 6.0] * 3,
                "shapes": [{"type": "box", "size": [side, side, side], "colour": "#4477aa"}],
            }
        },
        "joints": {
            "slide": {
                "type": "prismatic",
                "child": "mass",
                "axis": [1, 0, 0],
                "spring": {"stiffness": float(m.stiffness)},
                "friction": friction,
            }
        },
        "motors": {"load": {"type": "torque", "joint": "slide", "gain": 1.0}},
        "sensors": {"displacement": {"type": "joint_position", "joint": "slide", "sd": 1e-6}},
    }
    return validate(Located(f"scene '{name}'", data), Scene, SceneError, also=scene_rules)


def load_on(record: Record, m: Mechanism, base: bool, offset: float) -> Float[np.ndarray, " k"]:
    """The force that drives the mass at every sample [N]; of a base k u + c u', and what wrong zeros add."""
    if not base:
        return record.u[:, 0]
    return float(m.stiffness) * (record.u[:, 0] - offset) + float(m.damping) * record.u[:, 1]


def forward(scene: Scene, record: Record, load: Float[np.ndarray, " k"], start: Float[np.ndarray, " 2"]) -> Forward:
    """Simulate a recording; NaN from a step on that fails.

    **Arguments:** `load`: at the samples [N], a straight line between them; `start`: displacement and velocity there.
    """
    h, time = scene.step, record.time - record.time[0]
    count = math.ceil(time[-1] / h * (1.0 - 1e-9))
    pushed = np.interp((np.arange(count) + 0.5) * h, time, load)
    system, params = build(scene)
    state = state_from_joints(system, params, {"slide": {"position": float(start[0]), "rate": float(start[1])}})
    found = rollout(system, params, state, jnp.asarray(pushed)[:, None], throw=False)
    z, v = (np.array(a)[:, 0] for a in (found.position, found.rate))
    if (failed := int(found.failed_step)) >= 0:
        z[failed:] = v[failed:] = np.nan
    z, v = _between(time / h, z, v, h)
    read = {"displacement": z, "velocity": v, "acceleration": np.gradient(v, time)}[record.sensor]
    there = np.isfinite(record.y)
    error = read[there] - record.y[there]
    return Forward(z, v, read, float(100.0 * np.mean(error**2) / np.var(record.y[there])), pushed, h)


def _between(
    place: Float[np.ndarray, " k"], z: Float[np.ndarray, " n"], v: Float[np.ndarray, " n"], h: float
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Displacement by cubics, velocity by straight lines, `place` steps after the first of equal steps."""
    k = np.minimum(np.maximum(np.rint(place), 0), len(z) - 1).astype(int)
    at = np.abs(place - k) < 1e-6  # a sample of the simulation itself, whatever happened after it
    k = np.where(at, k, np.clip(np.floor(place), 0, len(z) - 2)).astype(int)
    s, k1 = np.where(at, 0.0, place - k), np.where(at, k, np.minimum(k + 1, len(z) - 1))
    rise = h * s * (1.0 - s) * ((1.0 - s) * v[k] - s * v[k1])
    return z[k] + s * s * (3.0 - 2.0 * s) * (z[k1] - z[k]) + rise, v[k] + s * (v[k1] - v[k])
