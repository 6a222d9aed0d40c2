"""The exact one-degree-of-freedom sampler against laws and the other integrator."""

import numpy as np
import pytest
from furuta import Furuta
from furuta import simulate as simulate_furuta
from one_dof import OneDof, advance, simulate, white_forces
from scipy.linalg import expm

SYSTEMS = [OneDof(2.0, 0.7, 0.4), OneDof(2.0, 0.0, 0.4), OneDof(2.0, 0.7, 0.0), OneDof(1.3, 1e-9, 0.3)]


@pytest.mark.parametrize("system", SYSTEMS)
def test_two_intervals_are_one(system, rng):
    """Motion under a constant force does not depend on where it is cut, stops and reversals included."""
    x, v, force = rng.normal(size=(3, 4000))
    v[:500] = 0
    whole = advance(system, x, v, force, 1.0)
    parts = advance(system, *advance(system, x, v, force, 0.37), force, 0.63)
    np.testing.assert_allclose(parts, whole, atol=1e-13)
    if system.coulomb:
        stuck, reversed_ = whole[1] == 0, whole[1] * v < 0
        assert min(stuck.sum(), reversed_.sum()) > 100


def test_linear_system_is_sampled_exactly(rng):
    system = OneDof(1.7, 0.9, 0.0, 2.5)
    u = rng.normal(size=50)
    A = np.array([[0, 1, 0], [0, -system.viscous / system.mass, system.gain / system.mass], [0, 0, 0]])
    step = expm(0.02 * A)
    state, expected = np.zeros(2), []
    for value in u:
        expected.append(state)
        state = (step @ np.append(state, value))[:2]
    x, v = simulate(system, u, 0.02)
    np.testing.assert_allclose(np.stack([x[0], v[0]], axis=1), expected, atol=1e-14)


def test_agrees_with_the_other_integrator(rng):
    """An arm without pendulum is the same system."""
    u = 2 * np.sin(0.05 * np.arange(400)) + rng.normal(size=400)
    arm = Furuta(1.2, 0.0, 1.0, 0.0, 1.0, 0.0, arm_viscous=0.5, arm_coulomb=1.0, gain=1.5, gravity=0.0)
    angles, rates = simulate_furuta(arm, u, sample_time=0.05, step=1e-3)
    x, v = simulate(OneDof(1.2, 0.5, 1.0, 1.5), u, 0.05)
    assert (v == 0).sum() > 3
    np.testing.assert_allclose(x[0], angles[:, 0], atol=1e-8)
    np.testing.assert_allclose(v[0], rates[:, 0], atol=1e-8)


@pytest.mark.parametrize("held", [1, 5])
def test_noise_has_the_stated_impulse(held, rng):
    """A free mass: after n samples of length T the rate has the variance density² n T / m²."""
    forces = white_forces(rng, (4000, 21, held), 0.3, 0.1)
    _, v = simulate(OneDof(2.0, 0.0, 0.0, 0.0), np.zeros(21), 0.1, noise=forces)
    assert v[:, -1].std() == pytest.approx(0.3 * np.sqrt(20 * 0.1) / 2, rel=0.04)
