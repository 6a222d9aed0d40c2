"""Contacts of many pairs in slots: the same motion as with places for every pair, in whatever uses contacts."""

import os
import subprocess
import sys
import textwrap

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import compiled, missing, pushed

from spookax import Simulator, load
from spookax._results import STEP_RESULTS
from spookax.constraints import prepare
from spookax.scene import Scene
from spookax.stepping import inverse_dynamics, rollout, step

pytestmark = pytest.mark.quick

ALL, FEW = 100, 5
BODY = {"mass": 1.0, "inertia": (0.0067, 0.006, 0.005)}
FLOOR = {"type": "plane"}


def balls(slots):
    """Five that roll on a floor into each other, and one on a pendulum with dry friction that hits them."""
    rng = np.random.default_rng(1)
    names = [f"b{i}" for i in range(5)]
    bodies = {"bob": {**BODY, "com": (0, 0, -0.3)}}
    for i, name in enumerate(names):
        start = {"position": (0.201 * i, 0.02 * (i % 2), 0.0999), "velocity": rng.normal(scale=0.3, size=3).tolist()}
        bodies[name] = {**BODY, "initial": start}
    surfaces = {name: {"type": "sphere", "body": name, "radius": 0.1} for name in names}
    surfaces["bob"] = {"type": "sphere", "body": "bob", "radius": 0.1, "at": (0, 0, -0.3)}
    hinge = {"type": "hinge", "child": "bob", "axis": (0, 1, 0), "at": (-0.2, 0, 0.41), "friction": {"coulomb": 0.1}}
    contacts = {"surfaces": {"floor": FLOOR, **surfaces}, "slots": slots}
    return Scene(spookax=1, step=0.005, bodies=bodies, joints={"hinge": hinge}, contacts=contacts)


def mixed(slots, restitution=0.0, passes=3):
    """Boxes that land on each other, on a block and against a ball, of two materials."""
    starts = {
        "a": {"position": (0, 0, 0.12)},
        "b": {"position": (0.02, 0.01, 0.34), "rotation": (0.1, 0.05, 0.3)},
        "c": {"position": (0.5, 0, 0.11), "velocity": (-2.0, 0, 0)},
        "ball": {"position": (0.3, 0.25, 0.12), "velocity": (0, -1.5, 0)},
    }
    surfaces = {"floor": FLOOR, "block": {"type": "box", "size": (0.2, 0.2, 0.2), "at": (-0.25, 0, 0.1)}}
    surfaces |= {name: {"type": "box", "body": name, "size": (0.2, 0.2, 0.2)} for name in "abc"}
    surfaces |= {"ball": {"type": "sphere", "body": "ball", "radius": 0.1, "material": "ice"}}
    materials = {"default": {"friction": 0.5, "restitution": restitution}, "ice": {"friction": 0.1}}
    contacts = {"surfaces": surfaces, "materials": materials, "slots": slots, "passes": passes}
    bodies = {name: {**BODY, "initial": start} for name, start in starts.items()}
    return Scene(spookax=1, step=0.005, bodies=bodies, contacts=contacts)


def run(scene, steps=100):
    system, params, state = load(scene)
    return system, params, state, rollout(system, params, state, jnp.zeros((steps, 0)))


def test_a_motion_with_slots_is_that_without():
    """Of contacts that roll, slip and hit, with a joint and its friction in the same matrix; and the forces by name."""
    (of_all, _, _, every), (of_few, _, _, few) = run(balls(ALL)), run(balls(FEW))
    assert not of_all.contacts.slots
    assert of_few.contacts.slots == (FEW, FEW)
    assert np.ptp(np.asarray(every.v[:, 1:, 0]), axis=0).max() > 0.05, "they meet"
    for name, atol in (("r", 1e-10), ("v", 1e-9), ("position", 1e-10), ("joint_forces", 1e-6)):
        np.testing.assert_allclose(getattr(few, name), getattr(every, name), rtol=0, atol=atol)
    for pair in (("floor", "b2"), ("b0", "bob"), ("bob", "b0"), ("b1", "b2"), ("b3",)):
        mine, theirs = few.contact_force(of_few, *pair), every.contact_force(of_all, *pair)
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-6)
    assert float(jnp.abs(few.contact_force(of_few, "b0", "bob")).max()) > 1
    with pytest.raises(KeyError, match="no surface called 'ball'; known: floor, b0"):
        few.contact_force(of_few, "ball")


@pytest.mark.slow
def test_too_few_slots_are_a_result():
    system, params, state = load(balls(2))

    @compiled
    def both(state):
        prepared = prepare(system, params)
        v, none = jnp.concatenate([state.v, state.w], axis=-1), jnp.zeros(0)
        return step(system, prepared, state, none)[1].result, inverse_dynamics(system, prepared, state, v, none)

    result, impulse = both(state)
    assert result == STEP_RESULTS.contact_slots
    assert jnp.isnan(impulse).all()


@pytest.mark.slow
@pytest.mark.parametrize("restitution", [0.0, 0.6])
def test_boxes_in_slots_move_as_without(restitution):
    (_, _, _, every), (_, _, _, few) = (run(mixed(slots, restitution)) for slots in (ALL, 4))
    np.testing.assert_allclose(few.r, every.r, rtol=0, atol=1e-9)
    np.testing.assert_allclose(few.e, every.e, rtol=0, atol=1e-8)
    np.testing.assert_allclose(
        jnp.sum(few.contact_forces, axis=1), jnp.sum(every.contact_forces, axis=1), rtol=0, atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_derivatives_and_batches_know_slots():
    """Both modes against each other, against central differences and against those without slots; three at once."""
    found = []
    for slots in (ALL, 4):
        system, params, _, ahead = run(mixed(slots))
        landing = ahead.r[12], ahead.e[12], ahead.v[12], ahead.w[12]
        start = eqx.tree_at(lambda s: (s.r, s.e, s.v, s.w), ahead.state, landing)

        @jax.jit
        def after(x, system=system, params=params, state=start):
            moved = eqx.tree_at(lambda s: (s.r, s.v), state, (state.r + x[0], state.v + x[None, 1:4]))
            p = eqx.tree_at(
                lambda p: (p.material_friction, p.mass), params, (params.material_friction + x[4], 1 + x[5:9])
            )
            moved = pushed(system, prepare(system, p), moved, 2)
            return jnp.concatenate([moved.r, moved.v, moved.w], axis=-1).ravel()

        found.append((after, np.asarray(compiled(jax.jacfwd(after))(jnp.zeros(9)))))
    (_, expected), (after, forward) = found
    scale = np.maximum(1.0, np.abs(expected).max(axis=0))
    np.testing.assert_allclose(forward / scale, expected / scale, rtol=0, atol=1e-7)
    reverse = np.asarray(compiled(jax.jacrev(after))(jnp.zeros(9)))
    np.testing.assert_allclose(reverse / scale, forward / scale, rtol=0, atol=1e-8)
    points = 1e-6 * np.concatenate([np.eye(9), -np.eye(9)])
    values = np.asarray(jax.jit(jax.vmap(after))(points))
    differences = (values[:9] - values[9:]).T / 2e-6
    np.testing.assert_allclose(forward / scale, differences / scale, rtol=0, atol=1e-5)
    np.testing.assert_allclose(values[3], after(points[3]), rtol=0, atol=1e-9)


@pytest.mark.slow
def test_a_simulator_steps_slots():
    system, params, state, found = run(mixed(4))
    simulator = Simulator(system, params, state)
    for _ in range(60):
        simulator.step([])
    np.testing.assert_allclose(simulator.state.r, found.r[60], rtol=0, atol=1e-9)


@pytest.mark.slow
def test_inverse_dynamics_of_a_step_with_slots_is_zero():
    system, params, _, found = run(mixed(4, passes=1), 20)
    assert np.abs(missing(system, params, found.state)).max() < 1e-9


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_order_of_many_bodies_does_not_matter():
    """Forty-eight balls in a heap, numbered in two ways: the matrix has a band in one, after they are put in order."""
    rng = np.random.default_rng(3)
    at = np.array([(0.21 * i, 0.21 * j, 0.1 + 0.2 * k) for i in range(12) for j in range(2) for k in range(2)])
    at = at + 0.01 * rng.uniform(-1, 1, at.shape) * (1, 1, 0)
    ends = []
    for order in (np.arange(len(at)), rng.permutation(len(at))):
        bodies = {f"b{i}": {**BODY, "initial": {"position": at[i].tolist()}} for i in order}
        surfaces = {"floor": FLOOR, **{n: {"type": "sphere", "body": n, "radius": 0.1} for n in bodies}}
        system, _, _, found = run(Scene(spookax=1, step=0.005, bodies=bodies, contacts={"surfaces": surfaces}), 40)
        assert system.contacts.slots
        ends.append(np.asarray(found.r[-1])[np.argsort(order)])
    assert np.abs(ends[0] - at).max() > 1e-3, "they give way"
    np.testing.assert_allclose(ends[0], ends[1], rtol=0, atol=1e-8)


@pytest.mark.slow
def test_in_32_bits_a_pile_settles_too(tmp_path):
    code = """
        import jax.numpy as jnp
        from spookax import load, rollout
        from spookax.scene import Scene
        body = {"mass": 1.0, "inertia": (0.0067, 0.0067, 0.0067)}
        bodies = {f"b{i}": {**body, "initial": {"position": (0.02 * i, 0, 0.11 + 0.22 * i)}} for i in range(4)}
        surfaces = {"floor": {"type": "plane"}, **{n: {"type": "box", "body": n, "size": (0.2,) * 3} for n in bodies}}
        system, params, state = load(Scene(spookax=1, bodies=bodies, contacts={"surfaces": surfaces, "slots": 4}))
        found = rollout(system, params, state, jnp.zeros((600, 0)))
        stands = jnp.abs(found.r[-1, :, 2] - (0.1 + 0.2 * jnp.arange(4.0))) < 1e-3
        print(found.r.dtype, system.contacts.slots, bool(jnp.all(stands)))
    """
    environment = os.environ | {"JAX_ENABLE_X64": "0", "SPOOKAX_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "float32 (4, 4) True\n"
