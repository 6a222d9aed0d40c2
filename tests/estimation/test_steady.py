"""Jacobians that leave out what the parameters do to the noise's part of a step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spookax as sx
from spookax.estimation import linearise
from spookax.estimation.batch.one_recording import Plan, follow
from spookax.models import Free, Multibody, ParameterMap, ProcessNoise
from spookax.protocol import FreeDirections, Noise, Samples
from spookax.scene import Scene

pytestmark = pytest.mark.timeout(300)

STEPS = 24
SCENE = Scene.model_validate(
    {
        "spookax": 1,
        "step": 5e-3,
        "bodies": {
            "arm": {"mass": 0.5, "com": [0.1, 0, 0], "inertia": [0.01, 0.02, 0.02]},
            "bob": {"mass": 0.3, "com": [0, 0, -0.2], "inertia": [0.005, 0.006, 0.002]},
        },
        "joints": {
            "shoulder": {"type": "hinge", "child": "arm", "axis": [0, 0, 1], "friction": {"viscous": 0.02}},
            "elbow": {
                "type": "hinge",
                "parent": "arm",
                "child": "bob",
                "at": [0.3, 0, 0],
                "axis": [1, 0, 0],
                "armature": 1e-3,
                "friction": {"viscous": 0.01, "elements": [{"stiffness": 2.0, "reach": 0.04}]},  # slips after a while
            },
        },
        "motors": {"drive": {"type": "torque", "joint": "shoulder", "gain": 0.5}},
        "sensors": {"angle": {"type": "joint_position", "joint": "elbow", "sd": 1e-3}},
    }
)
SCALING = ["bodies.arm.inertia.zz", "bodies.bob.inertia.xx", "joints.elbow.friction.viscous"]
OTHERS = ["motors.drive.gain", "gravity.z"]


class InAllDirections(Multibody):
    """A scene whose derivatives leave nothing out; those along its joints: tests/models/test_joint_tangent.py."""

    def offers(self, capability):
        return None if capability is FreeDirections else super().offers(capability)


@pytest.fixture(scope="module")
def swing():
    """Model, parameters, noise, a noisy trajectory and its samples."""
    system, params = sx.build(SCENE)
    numbers = {"bodies.arm.inertia.zz": 0.02, "bodies.bob.inertia.xx": 0.005, "joints.elbow.friction.viscous": 0.01}
    numbers |= {"motors.drive.gain": 0.5, "gravity.z": -9.81}
    shared = ParameterMap(system, tuple(Free(path, numbers[path], transform="identity") for path in SCALING + OTHERS))
    model = InAllDirections(system, params, shared, ParameterMap(system, ()), ProcessNoise("joints", 1.0), (0,))
    z, noise, rng = jnp.asarray(shared.start()), Noise(jnp.asarray(1.0), jnp.array([1e-3])), np.random.default_rng(0)
    u = jnp.asarray(rng.normal(size=(STEPS, 1)))
    state = sx.state_from_joints(system, params, {"elbow": {"position": 0.7, "rate": 2.0}})
    x0 = model.body_state(state, params.com)
    x = jax.tree.map(lambda a: jnp.broadcast_to(a, (STEPS, *a.shape)), x0)
    plan = Plan(x, jnp.asarray(rng.normal(size=(STEPS, 2))), [jnp.zeros((STEPS, 2, model.tangent_size))])
    path = jax.tree.map(jnp.asarray, follow(model, z, noise, plan, u, model.first_guess()))
    one = jnp.ones((STEPS, 1, 1))
    return model, z, noise, path, Samples(u, one, jnp.zeros((STEPS, 1)), one)


@pytest.mark.slow
def test_only_the_noises_part_is_left_out(swing):
    """C - C_kept = d(B w)/dz, by differences of B; nothing else changes."""
    model, z, noise, path, samples = swing
    full = jax.jit(linearise)(model, z, noise, path, samples)
    kept = jax.jit(linearise)(model, z, noise, path, samples, jnp.asarray(1.0))
    for name in ("A", "B", "H", "J", "e"):
        np.testing.assert_allclose(getattr(kept, name), getattr(full, name), rtol=1e-12, atol=1e-12)

    def part(z: jax.Array) -> np.ndarray:
        return np.einsum("kij,kj->ki", jax.jit(linearise)(model, z, noise, path, samples).B, path.w)

    # angular velocities; linear ones are those of the frames' origins, whose levers turn with the step
    angular = slice(-6, None)
    for i, name in enumerate(SCALING + OTHERS):
        step = jnp.zeros_like(z).at[i].set(1e-5 * abs(z[i]))
        expected = (part(z + step) - part(z - step)) / (2 * step[i])
        left_out = np.asarray(full.C - kept.C)[:, :, i]
        scale = np.max(np.abs(full.C[:, :, i]))
        np.testing.assert_allclose(left_out[:, angular], expected[:, angular], rtol=0, atol=1e-5 * scale)
        if name in SCALING:
            assert np.max(np.abs(left_out)) > 0.1 * scale
        else:
            assert np.all(left_out == 0)


@pytest.mark.slow
def test_without_noise_nothing_is_left_out(swing):
    model, z, noise, path, samples = swing
    quiet = path._replace(w=jnp.zeros_like(path.w))
    kept = jax.jit(linearise)(model, z, noise, quiet, samples, jnp.asarray(1.0))
    full = jax.jit(linearise)(model, z, noise, quiet, samples)
    np.testing.assert_allclose(kept.C, full.C, rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_jacobians_are_those_of_the_step(swing):
    """Backwards from velocities and readings, the rest by `carry`: the same as forwards through the whole step."""
    model, z, noise, path, samples = swing
    assert 0 < int(jnp.sum(jnp.abs(path.guess) == 1)) < STEPS, "the element sticks and slips"
    lin = jax.jit(linearise)(model, z, noise, path, samples)

    def step(d: jax.Array, w: jax.Array, z: jax.Array, k: int) -> jax.Array:
        x, x1 = (jax.tree.map(lambda a, i=i: a[i], path.x) for i in (k, k + 1))
        end = model.replay(model.retract(x, d), model.prepare(z), samples.u[k], w, noise, path.guess[k])
        return model.local(end, x1)

    forwards = jax.jit(jax.vmap(jax.jacfwd(step, (0, 1, 2)), (None, 0, None, 0)))
    expected = forwards(jnp.zeros(model.tangent_size), path.w, z, jnp.arange(STEPS))
    for found, wanted in zip((lin.A, lin.B, lin.C), expected, strict=True):
        poses_and_velocities = (np.split(jacobian, [12, 13], axis=1) for jacobian in (found, wanted))
        for one, other in zip(*poses_and_velocities, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * np.max(np.abs(other)))
