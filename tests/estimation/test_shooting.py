"""Single and multiple shooting: linear least squares where the problem is linear, and what segments are good for."""

import jax.numpy as jnp
import numpy as np
import pytest

from spookax.estimation.batch.shooting import segmented, shoot, shots
from spookax.models import Equations, Free
from spookax.protocol import Noise
from spookax.study.identifying.own_equations import StampGrid, shoot_equations

SD, H, STEPS = 0.01, 0.05, 256  # steps: as many as `StampGrid` compiles for


def pushed(x, u, p):
    """A point that moves freely but for an unknown constant acceleration."""
    return jnp.stack([x[1], p.a + 0.0 * x[0]])


def test_both_are_linear_least_squares_where_the_motion_is_linear(rng):
    model = Equations(pushed, [Free("a", 1.0, transform="identity")], step=H, density=[0.0, 1.0], read=[0])
    t = H * np.arange(STEPS)
    y = 0.3 - 0.2 * t + 0.5 * 0.7 * t**2 + SD * rng.normal(size=STEPS)
    A = np.stack([t**0, t, t**2 / 2], axis=1)
    wanted, left = np.linalg.lstsq(A, y, rcond=None)[:2]
    sd = np.sqrt(left[0] / (STEPS - 3) * np.linalg.inv(A.T @ A)[2, 2])
    for segment in (None, 32 * H):
        found = shoot_equations(model, t, y[:, None], sd=[SD], segment=segment)["a"]
        # the weak prior of every unknown (1e-3) and gaps of 1e-6 shift it by far less than its standard deviation
        assert found["value"] == pytest.approx(wanted[2], abs=1e-2 * sd)
        assert found["sd"] == pytest.approx(sd, rel=1e-2)


def turning(x, u, p):
    return jnp.stack([x[1], -p.k * x[0]])


@pytest.mark.slow  # a filter, its smoother and the simulations of both are compiled
def test_segments_spare_an_oscillation_its_local_minima(rng):
    k = 30.0
    t = H * np.arange(STEPS)  # eleven turns; from a frequency 40 % off single shooting ends between them
    y = np.stack([np.cos(k**0.5 * t), -(k**0.5) * np.sin(k**0.5 * t)], axis=1) + SD * rng.normal(size=(STEPS, 2))
    model = Equations(turning, [Free("k", k / 2)], step=H, density=[0.0, 1.0], read=[0, 1])
    one, many = (shoot_equations(model, t, y, sd=[SD, SD], segment=s)["k"] for s in (None, 8 * H))
    assert abs(many["value"] - k) < max(4 * many["sd"], 1e-3 * k)  # Runge and Kutta's method at this step: 4e-4
    assert abs(one["value"] - k) > 0.1 * k


def test_recordings_are_cut_in_pieces_and_filled_up_with_what_says_nothing():
    grid = StampGrid(H * np.arange(64), H)
    samples = grid.samples(np.ones((64, 1)), np.zeros((64, 0)), np.array([SD]))
    x = np.arange(65.0)[:, None]
    pieces, first, recording = segmented([samples, samples], [x, -x], 24)
    np.testing.assert_array_equal(recording, [0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(first[:, 0], [0, 24, 48, 0, -24, -48])
    assert np.sum(pieces.weight) == 2 * 64
    np.testing.assert_allclose(pieces.u, H, rtol=1e-12)  # steps keep a length, also those that only fill up


def test_nothing_is_found_where_every_simulation_diverges():
    def runs_away(x, u, p):
        return p.a * x**3

    model = Equations(runs_away, [Free("a", 5.0)], step=H, density=[1.0], read=[0])
    samples = StampGrid(H * np.arange(64), H).samples(np.ones((64, 1)), np.zeros((64, 0)), np.array([SD]))
    pieces, z = segmented([samples], [np.ones((65, 1))], None), model.unknown.start()
    given = shots(
        model,
        Noise(jnp.ones(()), jnp.array([SD])),
        pieces,
        z,
        (z, np.full(1, 1e-3)),
        model.unknown.bounds(),
        np.zeros(0),
    )
    found = shoot(given, [z])
    assert found.cost > 1e6  # what is not reached counts much, and is no NaN
