"""Random motions with contacts: how many end early, how deep bodies lie in each other, and whether a step gains energy.

75 motions in each scene, of free bodies that start near each other with random velocities between walls: by the default
law of friction, by Coulomb's (`passes: settled`), and in 32 bits at two compliances.

A step takes v to v+. Contacts and joints may take energy but not give it: with gravity's kick, the kinetic energy of v+
is at most that of v + h g, and what contacts give that lead an overlap back, at most the normal impulse times the
speed at which it is led back. What a step gives beyond that is its gain.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import spookax as sx
from spookax import load
from spookax.math import rotation
from spookax.scene import Scene
from spookax.stepping import Trajectory, rollouts
from spookax.stepping.contact_points import places_at
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
    """Of all bodies together, (motions, steps). [J]"""
    mass, moment = (np.asarray(x, dtype=float) for x in (params.mass, params.inertia[:, :3]))
    r, v, w = (np.asarray(x, dtype=float) for x in (found.r, found.v, found.w))
    return kinetic(mass, moment, v, w) + 9.81 * np.sum(mass * r[..., 2], axis=2)


class Steps(NamedTuple):
    """What contacts did in every step of all motions, (motions, steps), over the energy at the start."""

    rise: np.ndarray  # of kinetic energy beside gravity's kick
    gain: np.ndarray  # of it what is beyond the most that leading overlaps back may give
    deepest: float  # smallest gap before a step that was solved [m]


def steps(system: System, params: Params, found: Trajectory) -> Steps:
    """The gains of all steps that were solved; velocities are differences of the poses."""
    poses = found.r[:, :-1], found.e[:, :-1], found.contact_pairs

    @sx.jit
    def placed(poses: Any, e: jax.Array) -> Any:
        def one(pose: Any) -> Any:
            return jax.vmap(lambda r, e, pairs: places_at(system, params, r, e, pairs)[1:])(*pose)

        turn = rotation.multiply(rotation.conjugate(e[:, :-1]), e[:, 1:])
        return *jax.lax.map(one, poses), rotation.log(turn)

    normal, gap, turned = map(np.asarray, placed(poses, found.e))
    h, mass, moment = float(params.step), np.asarray(params.mass), np.asarray(params.inertia[:, :3])
    v, w = np.diff(np.asarray(found.r), axis=1) / h, turned / h
    weight = h * np.asarray(params.gravity)
    before = kinetic(mass, moment, v[:, :-1] + weight, w[:, :-1])
    failed = np.asarray(found.failed_step)[:, None]
    solved = (failed < 0) | (np.arange(1, v.shape[1])[None] < failed)
    gamma = 1 / (1 + 4 * float(params.contact_relaxation))
    overlap = np.maximum(-gap, 0.0)
    speed = np.minimum(4 * gamma / h * overlap, float(params.recovery))
    led_back = h * np.sum(np.sum(np.asarray(found.contact_forces) * normal, axis=-1) * speed, axis=-1)[:, 1:]
    whole = energies(params, found)[:, :1]
    rise = np.where(solved, kinetic(mass, moment, v[:, 1:], w[:, 1:]) - before, 0.0)
    gain = np.where(solved, rise - led_back, 0.0)
    met = (failed < 0) | (np.arange(v.shape[1])[None] <= failed)
    deepest = float(np.min(gap, where=met[..., None], initial=np.inf))
    return Steps(rise / whole, gain / whole, deepest)


def kinetic(mass: np.ndarray, moment: np.ndarray, v: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Of all bodies together; those on joints have moments of inertia that are alike. [J]"""
    return (np.sum(mass * np.sum(v**2, axis=-1), axis=-1) + np.sum(moment * w**2, axis=(-2, -1))) / 2


def run(name: str) -> list[Row]:
    """One scene, by both laws in 64 bits and at two compliances in 32."""
    rows: list[Row] = []
    cases = [(64, {}), (64, {"passes": "settled"}), (32, {}), (32, {"relative_compliance": 1e-2})]
    for bits, changed in cases:
        jax.config.update("jax_enable_x64", bits == 64)
        contacts = SCENES[name].contacts
        assert contacts is not None
        system, params, found = motions(
            SCENES[name].model_copy(update={"contacts": contacts.model_copy(update=changed)})
        )
        energy, made = energies(params, found), steps(system, params, found)
        case = ", ".join([name, f"{bits} bits", *(f"{key} {value}" for key, value in changed.items())])
        rows += [
            row(case, "motions", STARTS, ""),
            row(case, "end early", int(np.sum(np.asarray(found.failed_step) >= 0)), ""),
            row(case, "with numbers that are not finite", int(not is_finite(found)) * STARTS, ""),
            row(case, "most energy over that at the start", float(np.max(energy / energy[:, :1])), ""),
            row(case, "deepest overlap", -made.deepest, "m"),
        ]
        if bits == 64:  # in 32 the differences of poses tell no such small numbers
            rows += [
                row(case, "largest rise of energy in a step, over that at the start", float(np.max(made.rise)), ""),
                row(case, "largest beyond what leading overlaps back may give", float(np.max(made.gain)), ""),
            ]
    return rows
