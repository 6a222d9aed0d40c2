"""Friction of a planar joint: a step where both slides share a disc, beside rows with bounds of their own as before.

A `backward` level, here nearly the same, keeps the slides apart: then each has a box, whose axes turn what slides
askew.
"""

import jax.numpy as jnp

import spookax as sx

from .measure import Row, compile_now, row, timed

STEPS, ROUNDS = 400, 5
SLIDES = {"rate": 0.3}


def scene(**friction: float) -> sx.Scene:
    """A block that slides on a table and turns, pushed by two motors."""
    axes = {name: {"friction": {"coulomb": 1.0, **friction}} for name in ("x", "y")}
    data = {
        "spookax": 1,
        "step": 0.005,
        "bodies": {"block": {"mass": 2.0, "inertia": (0.02, 0.02, 0.03)}},
        "joints": {"table": {"type": "planar", "child": "block", "axes": axes}},
        "motors": {f"push_{name}": {"type": "torque", "joint": f"table.{name}"} for name in ("x", "y")},
        "initial": {"table.x": SLIDES, "table.y": SLIDES},
    }
    return sx.Scene.model_validate(data)


def run() -> list[Row]:
    """Time of a step and of compiling, the two in turn."""
    cases = {"two rows with bounds": scene(backward=1.0001), "one disc": scene()}
    calls, compiled = {}, {}
    for name, made in cases.items():
        system, params, state = sx.load(made)
        controls = 1.5 * jnp.sin(jnp.arange(STEPS) * 0.02)[:, None] * jnp.array([[1.0, 0.7]])
        program = compile_now(lambda s, u, x=system, p=params: sx.rollout(x, p, s, u), state, controls)
        calls[name], compiled[name] = (lambda c=program, s=state, u=controls: c.call(s, u)), program.seconds
    rounds = [{name: timed(call, 0.3).processor for name, call in calls.items()} for _ in range(ROUNDS)]
    best = {name: min(found[name] for found in rounds) for name in calls}
    first = best["two rows with bounds"]
    rows = [row(name, "step", 1e6 * best[name] / STEPS, "µs", over=1e6 * first / STEPS, to="rows") for name in calls]
    return rows + [row(name, "compile a rollout", compiled[name], "s") for name in calls]
