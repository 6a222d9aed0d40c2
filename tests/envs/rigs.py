"""A driven pendulum that is quick to compile, and environments of it."""

import numpy as np

from spookax import envs
from spookax.scene import Scene

STEP, SUBSTEPS = 0.01, 2
DELAY = 0.025  # s, of the late encoder: two and a half steps


def scene(**changes) -> Scene:
    """A rod on a hinge with a motor, no dry friction; its angle is read at once and late, without noise to speak of."""
    parts = {
        "spookax": 1,
        "name": "driven",
        "step": STEP,
        "bodies": {"rod": {"mass": 1.0, "com": (0, 0, -0.5), "inertia": (0.1, 0.1, 0.1)}},
        "joints": {
            "pivot": {"type": "hinge", "child": "rod", "axis": (0, 1, 0), "friction": {"viscous": 0.05}},
        },
        "motors": {"drive": {"type": "torque", "joint": "pivot"}},
        "sensors": {
            "now": {"type": "joint_position", "joint": "pivot", "sd": 1e-12},
            "late": {"type": "joint_position", "joint": "pivot", "sd": 1e-12, "delay": DELAY},
        },
        "initial": {"pivot": {"position": 0.3}},
    }
    return Scene.model_validate(parts | changes)


def task(**changes) -> envs.Configuration:
    """Upright, from near the scene's own start."""
    given = {"goal": {"pivot": np.pi}, "start": {"pivot": 0.2}, "start_rate": {"pivot": 0.5}}
    return envs.Configuration(**(given | changes))


def environment(**changes) -> envs.Environment:
    options = {"actions": {"drive": 4.0}, "control_period": SUBSTEPS * STEP, "time_limit": 0.5}
    given = {"scene": scene(), "task": task()} | options | changes
    return envs.Environment(given.pop("scene"), given.pop("task"), **given)
