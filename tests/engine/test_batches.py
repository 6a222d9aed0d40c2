"""Many environments at once: each moves as it does alone, however they are cut into pieces and shared among cores."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import mechanism

import spookax as sx
from spookax.stepping import state_from_joints

STEPS = 6


@pytest.fixture(scope="module")
def swing():
    """A pendulum with a motor and dry friction."""
    return mechanism(
        0.005,
        (0, 0, -9.81),
        bodies={"bob": {"mass": 1.0, "com": (0, 0, -0.5), "inertia": (0.1, 0.1, 0.1)}},
        joints={"pivot": {"type": "hinge", "child": "bob", "axis": (0, 1, 0), "friction": {"coulomb": 0.02}}},
        motors={"drive": {"type": "torque", "joint": "pivot"}},
    )


def _batch(swing, size: int):
    system, params = swing
    angles = jnp.linspace(-2.0, 2.0, size)
    place = sx.jit(jax.vmap(lambda a: state_from_joints(system, params, {system.axes[0].name: a})))
    controls = jnp.asarray(np.random.default_rng(size).normal(size=(size, STEPS, len(system.motors))))
    return place(angles), controls


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 19])  # less than a piece; shares to fill up
def test_every_environment_moves_as_alone(swing, size):
    system, params = swing
    states, controls = _batch(swing, size)
    together = sx.rollouts(system, params, states, controls)
    assert together.position.shape == (size, STEPS + 1, len(system.axes))
    for k in {0, size // 2, size - 1}:
        alone = sx.rollout(system, params, jax.tree.map(lambda a, k=k: a[k], states), controls[k])
        np.testing.assert_allclose(together.position[k], alone.position, rtol=0, atol=1e-13)
        np.testing.assert_allclose(together.state.v[k], alone.state.v, rtol=0, atol=1e-12)


def _own(params, mass):
    return eqx.tree_at(lambda p: p.mass, params, mass[None])


def test_mechanisms_of_their_own(swing):
    """Masses that differ, as domain randomisation has them, in a program of the user's: pieces and a rest."""
    system, params = swing
    states, controls = _batch(swing, 10)
    masses = jnp.linspace(0.5, 2.0, 10)
    many = jax.vmap(functools.partial(_own, params))(masses)
    found = sx.jit(sx.rollouts)(system, many, states, controls)
    for k in (3, 9):
        alone = sx.rollout(system, _own(params, masses[k]), jax.tree.map(lambda a, k=k: a[k], states), controls[k])
        np.testing.assert_allclose(found.position[k], alone.position, rtol=0, atol=1e-13)


@pytest.mark.slow
def test_gradients_of_batches(swing):
    """Of every environment with respect to its own mass, against differences."""
    system, params = swing
    states, controls = _batch(swing, 16)
    masses = jnp.linspace(0.5, 2.0, 16)

    def last(masses):
        many = jax.vmap(functools.partial(_own, params))(masses)
        return jnp.sum(sx.rollouts(system, many, states, controls).position[:, -1])

    slopes, value, h = sx.jit(jax.grad(last))(masses), sx.jit(last), 1e-5
    differences = [(value(masses.at[k].add(h)) - value(masses.at[k].add(-h))) / (2 * h) for k in (0, 9)]
    np.testing.assert_allclose(slopes[jnp.array([0, 9])], differences, rtol=1e-6)


def test_axes_that_differ_are_refused(swing):
    system, params = swing
    states, controls = _batch(swing, 4)
    with pytest.raises(ValueError, match=r"same leading axis.*3, 4"):
        sx.rollouts(system, params, states, controls[:3])
    with pytest.raises(ValueError, match="one entry at least; got 0"):
        sx.rollouts(system, params, jax.tree.map(lambda a: a[:0], states), controls[:0])


def test_jit_takes_mechanisms_as_they_are(swing):
    """What is no array is part of the program, and a call inside another program is part of that."""
    system, params = swing
    states, controls = _batch(swing, 2)
    state = jax.tree.map(lambda a: a[0], states)
    run = sx.jit(lambda system, params, state, throw: sx.rollout(system, params, state, controls[0], throw=throw))
    plain = sx.rollout(system, params, state, controls[0])
    np.testing.assert_allclose(run(system, params, state, False).position, plain.position, rtol=0, atol=1e-13)
    nested = jax.jit(lambda p: run(system, p, state, False).position)(params)
    np.testing.assert_allclose(nested, plain.position, rtol=0, atol=1e-13)
