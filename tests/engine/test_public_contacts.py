"""Derivatives through contact that users of other engines reported to be NaN or zero, by number of the public thread.

The mechanisms of `test_public_cases` have joints as guides; here the shapes themselves touch, with friction.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import compiled

from spookax import load
from spookax.scene import Scene
from spookax.stepping import rollout

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STEPS, LIFTED, ALOFT = 100, slice(40, 56), 65  # the capsule is in the air after `ALOFT` steps
EPS = 1e-5  # of the differences, in `units`
ROUND = {"mass": 1.0, "inertia": (0.004,) * 3}
BALL = {"type": "sphere", "radius": 0.1, "material": "rubber"}
LIES = 0.1 - 1e-6  # a little in the floor: whether what is just at it touches is a tie
PLACES = {  # of the centres, and velocities
    "box": ((0, 0, LIES), (0, 0, 0)),
    "falls": ((0.03, 0.02, 0.4), (0.1, 0.2, -2.0)),
    "first": ((2, 0, LIES), (0, 0, 0)),
    "second": ((2.3, 0.03, LIES), (0, 0, 0)),
    "capsule": ((4, 0, 0.19), (0.3, 0, -0.5)),
}
NAMES = list(PLACES)
PAIRS = [("box", "floor"), ("falls", "box"), ("first", "floor"), ("second", "floor"), ("first", "second")]


def scene():
    bodies = {n: {**ROUND, "initial": {"position": at, "velocity": v}} for n, (at, v) in PLACES.items()}
    bodies["capsule"]["initial"]["rotation"] = (0.2, 1.2, 0)
    surfaces = {n: {**BALL, "body": n} for n in ("falls", "first", "second")} | {
        "floor": {"type": "plane"},
        "box": {"type": "box", "size": (0.4, 0.4, 0.2), "body": "box"},
        "capsule": {"type": "capsule", "radius": 0.07, "length": 0.2, "body": "capsule"},
    }
    materials = {"default": {"friction": 0.4}, "rubber": {"friction": 0.4, "restitution": 0.7}}
    contacts = {"surfaces": surfaces, "materials": materials, "pairs": [*PAIRS, ("capsule", "floor")]}
    return Scene(spookax=1, bodies=bodies, contacts={**contacts, "combine": "mean"})


def test_what_falls_is_pushed_or_leaves_the_ground_has_its_derivatives():
    """mujoco#2841: a ball falls on a box, by its speed. mujoco#2237: one is pushed against another, by the force.
    mujoco#1517: a capsule drops, is lifted off the ground and lands again, by the force that lifts it. And all by
    friction, restitution and the height of the floor."""
    system, params, state = load(scene())
    falls, first, capsule = (NAMES.index(n) for n in ("falls", "first", "capsule"))
    floor = [surface.name for surface in system.contacts.surfaces].index("floor")

    def run(x):
        start = eqx.tree_at(lambda s: s.v, state, state.v.at[falls, 2].set(x[0]))
        values = params.material_friction + x[3], params.material_restitution * (1 + x[4])
        p = eqx.tree_at(lambda p: (p.material_friction, p.material_restitution), params, values)
        p = eqx.tree_at(lambda p: p.surface_at, p, p.surface_at.at[floor, 2].add(x[5]))
        pushes = jnp.zeros((STEPS, len(NAMES), 6)).at[0, first, 0].set(x[1]).at[LIFTED, capsule, 2].set(x[2])
        return rollout(system, p, start, jnp.zeros((STEPS, 0)), wrenches=pushes, throw=False)

    def ends(x):
        found = run(x)
        return jnp.stack([jnp.concatenate([found.r[k], found.v[k], found.w[k]], axis=1) for k in (ALOFT, STEPS)])

    x, units = np.array([-2.0, 400.0, 20.0, 0.0, 0.0, 0.0]), np.array([1.0, 100.0, 10.0, 0.1, 0.1, 1e-2])
    found = compiled(run)(x)
    assert np.ptp(found.v[:, falls, 2]) > 2, "it bounces"
    assert found.r[-1, first + 1, 0] > 2.35, "it is hit"
    heights = np.asarray(found.r)[:, capsule, 2]
    assert heights[39] < 0.09 < 0.12 < heights.max(), "it lies, and is lifted"
    forward, reverse, value = (compiled(f) for f in (jax.jacfwd(ends), jax.jacrev(ends), ends))
    sides = [np.asarray(value(x + EPS * row) - value(x - EPS * row)) / (2 * EPS) for row in np.diag(units)]
    differences = np.stack(sides, axis=-1)
    scale = np.sqrt(np.sum(differences**2, axis=(0, 1, 2)))
    assert np.all(scale > 0.01), "each of the six changes what comes out"
    for slope in (forward, reverse):
        error = np.sum((np.asarray(slope(x)) * units - differences) ** 2, axis=(0, 1, 2))
        np.testing.assert_allclose(np.sqrt(error) / scale, 0, atol=1e-5)
