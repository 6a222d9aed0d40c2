"""Equations of programs for larger and larger mechanisms: what there is to trace and compile should not grow with them.

A chain of links, alone, and with a motor on every joint, a coupling for every second one, a row of one's own between
every two neighbours. `python -m benchmarks primitives.sizes` prints them.
"""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp

import spookax as sx
from spookax.constraints import AbstractHolonomic, AbstractUnilateral, prepare
from spookax.models import Free, ParameterMap
from spookax.sensors import readings
from spookax.stepping import step

from .equations import equations
from .measure import Row
from .mechanisms import swinging

LINKS = (4, 16, 64)
DRIVES: dict[str, dict[str, float]] = {
    "torque": {"max_force": 3.0},
    "dc": {"gain": 0.1, "back_emf": 0.1},
    "position": {"stiffness": 2.0, "damping": 0.1},
}


def _apart(poses: Any) -> jax.Array:
    d = poses[1].point(jnp.zeros(3)) - poses[0].point(jnp.zeros(3))
    return jnp.sqrt(d @ d)


@dataclasses.dataclass(frozen=True)
class Rod(AbstractHolonomic):
    """Keeps the distance of two bodies."""

    name: str
    bodies: tuple[str, ...]
    num_rows: int = 1

    def defaults(self) -> dict[str, float]:
        return {"length": 1.0}

    def gap(self, poses: Any, values: Any) -> jax.Array:
        return (_apart(poses) - values["length"])[None]


@dataclasses.dataclass(frozen=True)
class Rope(AbstractUnilateral):
    """Lets two bodies come closer, but not go apart."""

    name: str
    bodies: tuple[str, ...]
    num_rows: int = 1

    def defaults(self) -> dict[str, float]:
        return {"length": 1.0}

    def gap(self, poses: Any, values: Any) -> jax.Array:
        return (values["length"] - _apart(poses))[None]


ROWS = {"rods": Rod, "ropes": Rope}


def run() -> list[Row]:
    """A row for every size, and everything that a chain may have."""
    return [_row(links, more) for links in LINKS for more in ("", *DRIVES, "couplings", *ROWS)]


def _row(links: int, more: str) -> Row:
    """Equations, functions counted as often as they are called: of a step; of what is prepared for all steps; of the
    readings of a sensor of every type on every joint and body; of the numbers of the mechanism from as many unknowns.
    """
    chain = swinging(links).scene
    joints, bodies = list(chain.joints), list(chain.bodies)
    sensors = {f"{of}_{kind}": {"type": kind, "joint": of, "sd": 1e-3} for of in joints for kind in _OF_JOINTS}
    sensors |= {f"{of}_{kind}": {"type": kind, "body": of, "sd": 1e-3} for of in bodies for kind in _OF_BODIES}
    parts = chain.plain() | {"sensors": sensors}
    if more in DRIVES:
        parts |= {"motors": {f"m_{name}": {"type": more, "joint": name, **DRIVES[more]} for name in joints}}
    if more == "couplings":
        pairs = zip(joints[::2], joints[1::2], strict=True)
        parts |= {"couplings": {f"c_{b}": {"driver": a, "driven": b, "ratio": 1.0} for a, b in pairs}}
    neighbours = itertools.pairwise(bodies) if more in ROWS else ()
    own = tuple(ROWS[more](f"r_{b}", (a, b)) for a, b in neighbours)
    system, params = sx.build(sx.Scene.model_validate(parts), own)
    state = jax.eval_shape(lambda p: sx.state_from_joints(system, p), params)
    prepared = jax.eval_shape(functools.partial(prepare, system), params)
    unknown = ParameterMap(system, tuple(Free(f"joints.{name}.friction.viscous", 0.1) for name in joints))
    programs = {
        "step": (functools.partial(step, system), (prepared, state, jnp.zeros(len(system.motors)))),
        "prepared": (functools.partial(prepare, system), (params,)),
        "readings": (_read(system), (prepared, state)),
        "parameters": (unknown.apply, (params, jnp.zeros(unknown.size))),
    }
    counts = {n: sum(1 for _ in equations(jax.make_jaxpr(f)(*args).jaxpr)) for n, (f, args) in programs.items()}
    return {"links": links, "with": more or "nothing more", **counts}


_OF_JOINTS = "joint_position", "joint_rate"
_OF_BODIES = "body_pose", "point_position"


def _read(system: sx.System) -> Any:
    every = tuple(range(len(system.sensors)))
    return lambda engine, now: readings(system, engine, every, now, now, jnp.asarray(0.5))
