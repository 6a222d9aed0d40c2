"""Derivatives of a rollout in both modes, as ratios to the rollout itself."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import spookax as sx
from spookax.system.params import locate

from .measure import MIB, ROOT, Row, compile_now, row, timed
from .simulation import sines

STEPS = 100
CASES = {  # scene, joints whose initial angles are inputs, mass that is an input, amplitude of the motor's input
    "furuta": ("demo/furuta.yaml", {"shoulder": 0.3, "elbow": 1.0}, "bodies.pendulum.mass", 2.0),
    "four_bar": ("scenes/four_bar.yaml", {"drive": -1.5}, "bodies.coupler.mass", 0.3),
}


def run() -> list[Row]:
    """Rows of all cases."""
    return [line for name, case in CASES.items() for line in _case(name, *case)]


def _case(name: str, file: str, angles: dict[str, float], mass: str, amplitude: float) -> list[Row]:
    scene = sx.read_scene(ROOT / file)
    system, params, _ = sx.load(scene)
    place = locate(system, mass)
    controls = jnp.asarray(sines(1, STEPS, len(system.motors), scene.step, amplitude)[0])

    def loss(x: Any) -> Any:
        there = {joint: {"position": x[i]} for i, joint in enumerate(angles)}
        changed = place.set(params, x[-1])
        state = sx.state_from_joints(system, changed, there)
        trajectory = sx.rollout(system, changed, state, controls, throw=False)
        return jnp.sum(trajectory.position[-1] ** 2) + 0.01 * jnp.sum(trajectory.rate[-1] ** 2)

    x = jnp.array([*angles.values(), float(place.get(params))])
    value, forward, reverse = (compile_now(f, x) for f in (loss, jax.jacfwd(loss), jax.grad(loss)))
    base = timed(lambda: value.call(x))
    inputs = f"{len(x)} inputs"
    rows = [
        row(name, "rollout with its start", base.best * 1e3, "ms", median=base.median * 1e3),
        row(name, "compile rollout with its start", value.seconds, "s"),
    ]
    for mode, compiled in (("forward", forward), ("reverse", reverse)):
        times = timed(lambda compiled=compiled: compiled.call(x))
        milli = {"median": times.median * 1e3, "over": base.best * 1e3, "to": "rollout"}
        rows += [
            row(name, f"{mode} mode, {inputs}", times.best * 1e3, "ms", **milli),
            row(name, f"compile {mode} mode", compiled.seconds, "s", over=value.seconds, to="compile rollout"),
        ]
        if compiled.temporary is not None:
            rows.append(row(name, f"temporary memory of {mode} mode", compiled.temporary / MIB, "MiB"))
    a, b = np.asarray(forward.call(x)), np.asarray(reverse.call(x))
    rows.append(row(name, "difference of the modes, relative", float(np.max(np.abs(a - b)) / np.max(np.abs(a))), ""))
    return rows
