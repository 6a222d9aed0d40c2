"""Random motions with contacts, 75 in each scene: bodies of all shapes, slots, joints, a loop, rough ground."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spookax import load
from spookax.constraints import contact_rows
from spookax.scene import Scene
from spookax.stepping import rollouts

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
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def drawn(seed, kinds, joints=None, floor=FLOOR, **more):
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
    return Scene(spookax=1, step=0.005, bodies={**links, **bodies}, joints=joints or {}, contacts=found)


def hinge(parent, child, at, **more):
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


@pytest.mark.parametrize("name", SCENES)
def test_nothing_explodes(name):
    """No NaN, no step that fails, no more energy than at the start, and no surface deep in another."""
    scene = SCENES[name]
    system, params, state = load(scene)
    rng = np.random.default_rng(4)
    free = np.array([body.initial is not None for body in scene.bodies.values()])[:, None]
    shift = free * rng.uniform(-0.02, 0.02, (STARTS, system.num_bodies, 3))
    v, w = free * rng.normal(size=(2, STARTS, system.num_bodies, 3)) * np.array([0.7, 3.0])[:, None, None, None]
    states = jax.tree.map(lambda a: jnp.broadcast_to(a, (STARTS, *a.shape)), state)
    states = dataclasses.replace(states, r=states.r + shift, v=states.v + v, w=states.w + w)
    found = rollouts(system, params, states, jnp.zeros((STARTS, STEPS, 0)), throw=False)
    for leaf in jax.tree.leaves(found):
        assert jnp.all(jnp.isfinite(leaf)) or not jnp.issubdtype(leaf.dtype, jnp.floating)
    assert np.all(np.asarray(found.failed_step) < 0)

    moment = np.asarray(params.inertia)[:, :3]
    energy = 0.5 * np.sum(np.asarray(params.mass) * np.sum(np.asarray(found.v) ** 2, axis=3), axis=2)
    energy += 0.5 * np.sum(moment * np.asarray(found.w) ** 2, axis=(2, 3))
    energy += 9.81 * np.sum(np.asarray(params.mass) * np.asarray(found.r[..., 2]), axis=2)
    assert np.all(energy <= (1 + 1e-3) * energy[:, :1])
    assert np.mean(energy[:, -1] < 0.95 * energy[:, 0]) > 0.9, "they touch"
    depths = jax.jit(jax.vmap(jax.vmap(lambda r, e: jnp.min(contact_rows.gaps(system, params, r, e)))))(
        found.r, found.e
    )
    assert float(jnp.min(depths)) > -0.02
