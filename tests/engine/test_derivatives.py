"""Derivatives of a rollout through sticking and sliding, in both modes, against central differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import compiled, furuta

from spookax.stepping import rollout, state_from_joints
from spookax.system import locate

NUM_STEPS = 200
CHANGE = 1e-6  # of every number in the differences, relative
SYSTEM, PARAMS = furuta(
    shoulder={"coulomb": 0.05, "viscous": 2e-3},
    elbow={"coulomb": 0.004, "viscous": 5e-4, "stribeck": {"excess": 2e-3, "speed": 0.5}},
)
PATHS = (
    "joints.shoulder.friction.viscous",
    "joints.elbow.friction.viscous",
    "joints.shoulder.friction.coulomb",
    "joints.elbow.friction.coulomb",
    "joints.elbow.friction.stribeck.excess",
    "bodies.pendulum.mass",
    "joints.elbow.at.x",
    "bodies.pendulum.com.z",
)
NAMES = ("q shoulder", "q elbow", "rate shoulder", "rate elbow", *PATHS)
START = [0.3, 2.2, 2.0, -1.0]
VALUES = np.array([*START, *(locate(SYSTEM, path).get(PARAMS) for path in PATHS)])
WEIGHTS = np.random.default_rng(5).normal(size=(2, 4, 2))  # of positions and rates, at four times, on both axes


def run(z):
    """A number into which positions and rates all along a rollout enter, and what its friction does.

    `z`: the numbers called `NAMES`, relative to `VALUES`, so that their derivatives can be compared.
    """
    values = VALUES * z
    params = PARAMS
    for path, value in zip(PATHS, values[4:], strict=True):
        params = locate(SYSTEM, path).set(params, value)
    joints = {n: {"position": values[i], "rate": values[2 + i]} for i, n in enumerate(("shoulder", "elbow"))}
    state = state_from_joints(SYSTEM, params, joints)
    trajectory = rollout(SYSTEM, params, state, jnp.zeros((NUM_STEPS, 1)), throw=False)
    position, rate = trajectory.position[50::50], trajectory.rate[50::50]
    return jnp.sum(WEIGHTS[0] * position + 0.2 * WEIGHTS[1] * rate), (trajectory.friction, trajectory.rate)


number = compiled(run)
forward = compiled(jax.jacfwd(run, has_aux=True))
reverse = compiled(jax.vmap(jax.grad(run, has_aux=True)))  # one compiled program shows jit and vmap, too

MOVING = np.ones(len(NAMES))
STUCK = np.array([100.0 if "shoulder.friction.coulomb" in n else 0.0 if n == "rate shoulder" else 1.0 for n in NAMES])


def differences(z):
    """Central differences, and whether no step's friction switched between sticking and either direction of sliding."""
    pattern = np.trunc(number(z)[1][0])
    slopes, same = [], True
    for direction in np.eye(len(z)):
        (ahead, (x_ahead, _)), (back, (x_back, _)) = number(z + CHANGE * direction), number(z - CHANGE * direction)
        same = same and np.all(np.trunc(x_ahead) == pattern) and np.all(np.trunc(x_back) == pattern)
        slopes.append((ahead - back) / (2 * CHANGE))
    return np.array(slopes), same


@pytest.fixture(scope="module")
def gradients():
    """The same derivative by differences, forward and reverse mode, of the moving run."""
    expected, same = differences(MOVING)
    assert same, "degenerate draw: a step switches between sticking and sliding within the differences"
    return expected, forward(MOVING)[0], reverse(np.stack([MOVING, STUCK]))[0]


def test_the_draw_sticks_and_slides_away_from_ties():
    """Otherwise the tests below would not show what they say."""
    level, rate = (np.asarray(x) for x in number(MOVING)[1])
    sticks = np.abs(level) < 1
    assert 20 < sticks[:, 0].sum() < 100, "the shoulder sticks for part of the time"
    assert sticks[120:, 0].sum() < 20
    assert np.all(sticks[:, 0] | (np.abs(level[:, 0]) == 1))
    assert {-1, 1} <= set(level[:, 1]), "the elbow slides both ways"
    assert (1 - np.abs(level[sticks])).min() > 1e-2
    assert np.abs(rate[1:][~sticks]).min() > 1e-4
    assert np.all(np.abs(number(STUCK)[1][0][:, 0]) < 0.9), "the second run's shoulder always sticks"


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_gradient_of_a_rollout(mode, gradients):
    """Through state_from_joints and 200 steps, to 1e-6 of the gradient's norm; no entry is NaN or lost."""
    expected, by_forward, by_reverse = gradients
    found = by_forward if mode == "forward" else by_reverse[0]
    assert np.all(np.isfinite(found))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.linalg.norm(expected))
    small = np.abs(expected) < 1e-4 * np.linalg.norm(expected)
    assert not small.any(), f"nothing to see of {np.array(NAMES)[small]}"


def test_both_modes_agree_to_rounding(gradients):
    _, by_forward, by_reverse = gradients
    np.testing.assert_allclose(by_forward, by_reverse[0], rtol=0, atol=1e-12 * np.linalg.norm(by_forward))


def test_what_cannot_matter_has_no_derivative(gradients):
    """A shoulder that sticks all the time shows nothing of its friction or of the arm's length: only its creep, 1e-6
    rad/s, could. The elbow shows everything as before."""
    _, _, by_reverse = gradients
    found = dict(zip(NAMES, by_reverse[1], strict=True))
    silent = ("joints.shoulder.friction.viscous", "joints.shoulder.friction.coulomb", "joints.elbow.at.x")
    for name in silent:
        assert abs(found[name]) < 2e-6 * np.linalg.norm(by_reverse[1]), name
    for name in NAMES:
        if name not in (*silent, "rate shoulder"):
            assert abs(found[name]) > 1e-3, name
    expected, same = differences(STUCK)
    assert same
    np.testing.assert_allclose(by_reverse[1], expected, rtol=0, atol=1e-6 * np.linalg.norm(expected))
