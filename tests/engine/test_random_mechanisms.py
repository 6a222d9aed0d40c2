"""300 random mechanisms: twelve random trees of joints of every type, half of them with a loop, each with 25 sets of
random numbers.

All float freely without gravity, with dry and viscous friction, springs, stops and rotors: momentum is kept, energy
only falls, and every step says that it was solved.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import JOINT_KINDS, JOINT_TYPES, JOINTS, acted_on, compiled, inertia_matrices

from spookax.math import rotation
from spookax.scene import Scene
from spookax.scene.parts import Joint
from spookax.stepping import rollout, state_from_joints
from spookax.system import build

TOPOLOGIES, SETS = 12, 25
CLOSING = ("ball", "hinge", "universal", "inline", "distance", "cylindrical")
STEPS, H = 200, 0.002


def topology(rng):
    """(parent, child, type) of random joints: a tree of 2 to 5 bodies."""
    count = int(rng.integers(2, 6))
    return [(int(rng.integers(child)), child, str(rng.choice(JOINT_TYPES))) for child in range(1, count)]


def along(rng):
    """What acts on an axis; always of the same kinds, so that all sets of a topology share their rows."""
    return {
        "friction": {"viscous": float(rng.uniform(0, 0.1)), "coulomb": float(rng.uniform(1e-3, 0.1))},
        "spring": {"stiffness": float(rng.uniform(0, 5)), "rest": float(rng.uniform(0.2, 0.6))},
        "armature": float(rng.uniform(0, 0.01)),
        "limits": {"lower": float(rng.uniform(-2, -0.5)), "upper": float(rng.uniform(1.5, 3))},
    }


def scene(rng, links):
    """Numbers: masses over three decades, bodies as boxes, joint points within them."""
    bodies, joints = {}, {}
    for i in range(len(links) + 1):
        mass, size = float(10 ** rng.uniform(-1.5, 1.5)), rng.uniform(0.1, 0.6, 3)
        square = mass / 12 * size**2
        bodies[f"b{i}"] = {
            "mass": mass,
            "com": tuple(rng.uniform(-0.1, 0.1, 3).tolist()),
            "inertia": tuple((np.sum(square) - square).tolist()),
        }
    for parent, child, kind in links:
        joint = JOINTS[kind] | {"parent": f"b{parent}", "child": f"b{child}"}
        joint |= {key: tuple(rng.uniform(-0.3, 0.3, 3).tolist()) for key in ("at", "child_at", "rotation")}
        if "axis" in JOINT_KINDS[kind].keys and "x_axis" not in JOINT_KINDS[kind].keys:
            joint["axis"] = tuple(rng.normal(size=3).tolist())
        joints[f"j{child}"] = joint | acted_on(kind, along(rng))
    return Scene(spookax=1, step=H, gravity=(0, 0, 0), bodies=bodies, joints=joints)


def closed(rng, tree, kind):
    """A joint more, from the last body to the first, where both are when the axes of the tree stand as they start."""
    system, params = build(tree)
    state, last = start(rng, system, params), system.num_bodies - 1
    R = quaternion_matrices(np.asarray(state.e))
    origin = np.asarray(state.r) - np.einsum("bij,bj->bi", R, params.com)
    point = rng.uniform(-0.3, 0.3, 3)
    at = R[0].T @ (origin[last] + R[last] @ point - origin[0])
    if kind == "distance":
        away = rng.normal(size=3)
        at = at + JOINTS[kind]["length"] * away / np.linalg.norm(away)
    joint = JOINTS[kind] | {"parent": "b0", "child": f"b{last}", "at": tuple(at.tolist())}
    turn = np.asarray(compiled(rotation.minus)(state.e[last], state.e[0]))
    joint |= {"child_at": tuple(point.tolist()), "rotation": tuple(turn.tolist())} | acted_on(kind, along(rng))
    return tree.model_copy(update={"joints": {**tree.joints, "closing": Joint.model_validate(joint)}})


def start(rng, system, params):
    follows = {coupling.driven for coupling in system.couplings}
    follows |= {i for i, axis in enumerate(system.axes) if axis.name.startswith("closing")}
    position = {
        axis.name: {"position": 0.4, "rate": float(rng.normal())}
        for i, axis in enumerate(system.axes)
        if i not in follows
    }
    motion = {"velocity": rng.normal(size=3), "angular_velocity": rng.normal(size=3)}
    return compiled(state_from_joints, static_argnums=0)(system, params, position, {"b0": motion})


def quaternion_matrices(e):
    w, x, y, z = np.moveaxis(e, -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(TOPOLOGIES))
def test_random_mechanisms_keep_momentum_and_lose_energy(seed):
    rng = np.random.default_rng(seed)
    links = topology(rng)
    scenes = [scene(rng, links) for _ in range(SETS)]
    if seed % 2:
        kind = str(rng.choice(CLOSING))
        scenes = [closed(rng, tree, kind) for tree in scenes]
    built = [build(each) for each in scenes]
    system = built[0][0]
    assert all(other == system for other, _ in built), "one program for all sets of a topology"
    starts = [start(rng, system, params) for _, params in built]
    params, state = (jax.tree.map(lambda *x: jnp.stack(x), *parts) for parts in ([p for _, p in built], starts))
    run = compiled(jax.vmap(functools.partial(rollout, throw=False), in_axes=(None, 0, 0, None)), static_argnums=0)
    found = jax.tree.map(np.asarray, run(system, params, state, jnp.zeros((STEPS, 0))))
    assert np.all(found.failed_step == -1)

    mass, J = np.asarray(params.mass), np.stack([inertia_matrices(p) for _, p in built])
    for array in (found.r, found.v, found.w, found.position, found.joint_forces):
        assert np.all(np.isfinite(array))
    p = mass[:, None, :, None] * found.v
    total, size = p.sum(axis=2), np.abs(p).sum(axis=(2, 3)).max(axis=1)
    assert np.all(np.abs(total[:, :-1] - total[:, :1]).max(axis=(1, 2)) < 1e-9 * size)
    spin = np.einsum("stbij,sbjk,stbk->stbi", quaternion_matrices(found.e), J, found.w)
    L = (np.cross(found.r, p) + spin).sum(axis=2)
    turning = (np.abs(np.cross(found.r, p)) + np.abs(spin)).sum(axis=(2, 3)).max(axis=1)
    assert np.all(np.abs(L[:, :-1] - L[:, :1]).max(axis=(1, 2)) < 0.02 * turning)
    kinetic = 0.5 * np.sum(p * found.v, axis=(2, 3)) + 0.5 * np.einsum("stbi,sbij,stbj->st", found.w, J, found.w)
    stretch = found.position - np.asarray(params.rest)[:, None]
    stored = 0.5 * np.einsum("sa,sta->st", np.asarray(params.stiffness), stretch**2)
    rotors = 0.5 * np.einsum("sa,sta->st", np.asarray(params.armature), found.rate**2)
    energy = (kinetic + stored + rotors)[:, :-1]
    assert np.all(energy.max(axis=1) <= 1.02 * energy[:, 0])
