"""Random motions with contacts in 32 bits: how many end early, and whether any explodes.

75 motions in each scene, of free bodies that start near each other with random velocities between walls. The same are
stepped in 64 bits by `tests/engine/test_random_contacts.py`.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spookax import load
from spookax.constraints import contact_rows
from spookax.scene import Scene
from spookax.stepping import Trajectory, rollouts
from spookax.system import Params, System

from .measure import Row, row

STARTS, STEPS = 75, 120
SHAPES = {
    "sphere": {"type": "sphere", "radius": 0.1},
    "capsule": {"type": "capsule", "radius": 0.07, "length": 0.12},
    "box": {"type": "box", "size": (0.2, 0.16, 0.12)},
    "cylinder": {"type": "cylinder", "radius": 0.09, "length": 0.14},
}
ROUGH = np.random.default_rng(5).uniform(0, 0.08, (9, 9)).tolist()
FLOOR = {"type": "plane"}
WALLS = {
    "east": {"type": "plane", "at": (0.5, 0, 0), "rotation": (0, -np.pi / 2, 0)},
    "north": {"type": "plane", "at": (0, 0.5, 0), "rotation": (np.pi / 2, 0, 0)},
}


def drawn(seed: int, kinds: list[str], joints: Any = None, floor: Any = FLOOR, **more: Any) -> Scene:
    """Free bodies of these kinds over a floor and between two walls."""
    rng, bodies, surfaces = np.random.default_rng(seed), {}, {"floor": floor, **WALLS}
    for i, kind in enumerate(kinds):
        mass = float(10 ** rng.uniform(-0.5, 0.5))
        place = {"position": (0.3 * (i % 3) - 0.35, 0.3 * (i // 3 % 3) - 0.35, 0.2 + 0.3 * (i // 9))}
        bodies[f"b{i}"] = {"mass": mass, "inertia": (0.004 * mass,) * 3, "initial": place}
        surfaces[f"b{i}"] = {**SHAPES[kind], "body": f"b{i}"}
    materials = {"default": {"friction": float(rng.uniform(0, 1))}}
    found = {"surfaces": surfaces, "materials": materials, **more}
    links = {
        name: {"mass": 0.4, "inertia": (0.002,) * 3, "com": (0.1, 0, 0)}
        for name in {joint["child"] for joint in (joints or {}).values()}
    }
    for name in links:
        surfaces[name] = {"type": "sphere", "radius": 0.06, "at": (0.2, 0, 0), "body": name, "group": "links"}
    return Scene(spookax=1, step=0.005, bodies={**links, **bodies}, joints=joints or {}, contacts=found)  # pyright: ignore


def hinge(parent: str | None, child: str, at: Any, **more: Any) -> dict[str, Any]:
    ends = {"child": child} if parent is None else {"parent": parent, "child": child}
    return {"type": "hinge", "axis": (0, 1, 0), "at": at, "friction": {"viscous": 1e-3}, **ends, **more}


ARM = {"upper": hinge(None, "upper", (-0.2, 0, 0.7)), "lower": hinge("upper", "lower", (0.2, 0, 0))}
LOOP = {
    "left": hinge(None, "left", (-0.2, 0.3, 0.8)),
    "right": hinge(None, "right", (0.0, 0.3, 0.8)),
    "bar": hinge("left", "bar", (0.2, 0, 0)),
    "close": {**hinge("right", "bar", (0.2, 0, 0)), "child_at": (0.2, 0, 0)},
}
SCENES = {
    "few": drawn(0, ["box", "sphere", "capsule", "box"]),
    "slots": drawn(1, ["box", "sphere", "capsule"] * 4, slots=40),
    "arm": drawn(2, ["box", "sphere", "box", "capsule"], ARM),
    "loop": drawn(3, ["sphere", "box", "capsule"], LOOP, slots=6),
    "cylinders": drawn(4, ["cylinder", "box", "capsule", "cylinder"]),
    "rough": drawn(5, list(SHAPES), floor={"type": "height_field", "size": (4.0, 4.0), "heights": ROUGH}),
}


def motions(scene: Scene) -> tuple[System, Params, Trajectory]:
    """All motions of a scene, whose free bodies start moved, with random velocities."""
    system, params, state = load(scene)
    rng = np.random.default_rng(4)
    free = np.array([body.initial is not None for body in scene.bodies.values()])[:, None]
    shift = free * rng.uniform(-0.02, 0.02, (STARTS, system.num_bodies, 3))
    v, w = free * rng.normal(size=(2, STARTS, system.num_bodies, 3)) * np.array([0.7, 3.0])[:, None, None, None]
    states = jax.tree.map(lambda a: jnp.broadcast_to(a, (STARTS, *a.shape)), state)
    shift, v, w = (jnp.asarray(x, dtype=state.r.dtype) for x in (shift, v, w))
    states = dataclasses.replace(states, r=states.r + shift, v=states.v + v, w=states.w + w)
    return system, params, rollouts(system, params, states, jnp.zeros((STARTS, STEPS, 0)), throw=False)


def is_finite(found: Any) -> bool:
    """Whether all numbers are."""
    leaves = (x for x in jax.tree.leaves(found) if jnp.issubdtype(x.dtype, jnp.floating))
    return all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in leaves)


def energies(params: Params, found: Trajectory) -> np.ndarray:
    """Of all bodies together, (motions, steps); those on joints have moments of inertia that are alike."""
    mass, moment = (np.asarray(x, dtype=float) for x in (params.mass, params.inertia[:, :3]))
    r, v, w = (np.asarray(x, dtype=float) for x in (found.r, found.v, found.w))
    moving = np.sum(mass * np.sum(v**2, axis=3), axis=2) + np.sum(moment * w**2, axis=(2, 3))
    return moving / 2 + 9.81 * np.sum(mass * r[..., 2], axis=2)


def deepest(system: System, params: Params, found: Trajectory) -> float:
    """The smallest gap of all steps. [m]"""
    least = jax.vmap(jax.vmap(lambda r, e: jnp.min(contact_rows.gaps(system, params, r, e))))
    return float(jnp.min(jax.jit(least)(found.r, found.e)))


def run(name: str) -> list[Row]:
    """One scene, at two compliances."""
    jax.config.update("jax_enable_x64", False)
    rows: list[Row] = []
    for compliance in (1e-3, 1e-2):
        contacts = SCENES[name].contacts
        assert contacts is not None
        softer = contacts.model_copy(update={"relative_compliance": compliance})
        system, params, found = motions(SCENES[name].model_copy(update={"contacts": softer}))
        energy, case = energies(params, found), f"{name}, relative_compliance {compliance:g}"
        rows += [
            row(case, "motions", STARTS, ""),
            row(case, "end early", int(np.sum(np.asarray(found.failed_step) >= 0)), ""),
            row(case, "with numbers that are not finite", int(not is_finite(found)) * STARTS, ""),
            row(case, "most energy over that at the start", float(np.max(energy / energy[:, :1])), ""),
            row(case, "deepest overlap", -deepest(system, params, found), "m"),
        ]
    return rows
