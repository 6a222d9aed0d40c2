"""Noisy recordings for the coverage of intervals: the noise is what it is said to be."""

import numpy as np
import pytest
from coverage_set import TRUTH, make

SHORT = {"count": 4, "duration": 0.5, "step": 1e-4}


def test_shapes_seeds_and_truth():
    a, b, other = make(**SHORT), make(**SHORT), make(**SHORT, seed=1)
    assert a.readings.shape == a.angles.shape == a.rates.shape == (4, 101, 2)
    assert a.u.shape == (4, 101)
    assert a.time[-1] == pytest.approx(0.5)
    np.testing.assert_array_equal(a.readings, b.readings)
    assert np.abs(a.readings - other.readings).max() > 0.01
    assert len({tuple(u) for u in a.u}) == 4
    assert a.truth["motors.drive.gain"] == TRUTH.gain
    assert len(a.truth) == 12


def test_encoder_noise():
    data = make(**SHORT, sensor_sd=3e-3)
    assert (data.readings - data.angles).std() == pytest.approx(3e-3, rel=0.08)


@pytest.mark.parametrize("interval", [5e-3, 1e-3])
def test_impulse_of_the_torques_does_not_depend_on_their_interval(interval):
    """Without forces, impulses of density σ give the generalised momenta M q' the variance σ² T."""
    free = TRUTH._replace(
        arm_length=0.0,  # M is constant at a hanging pendulum that carries no weight
        com=0.0,
        transverse_inertia=TRUTH.axial_inertia,
        arm_viscous=0.0,
        pendulum_viscous=0.0,
        arm_coulomb=0.0,
        pendulum_coulomb=0.0,
        gain=0.0,
        stiffness=0.0,
    )
    data = make(400, duration=0.1, density=1e-3, interval=interval, step=1e-3, machine=free)
    gained = data.rates[:, -1] - data.rates[:, 0]
    momentum = gained * [TRUTH.arm_inertia + TRUTH.axial_inertia, TRUTH.swing_inertia]
    np.testing.assert_allclose(momentum.std(axis=0), 1e-3 * np.sqrt(0.1), rtol=0.1)
