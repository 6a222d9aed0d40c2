"""Fast free rotation: half transport keeps the spatial angular momentum to rounding and the energy in bounds."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import (
    engine_states,
    inertia_matrices,
    place,
    quaternion_matrix,
    rotation_quaternion,
    simulate,
    tops,
)

from spookax.constraints import gyro

INTERMEDIATE = (0.15, 15.0, 0.1)  # rad/s: mostly about the middle axis, where rotation is unstable


def tumble(h, duration):
    """Spatial angular momentum [N m s] and energy [J] of the free body after every kick, and its rates."""
    system, params = tops(h)
    state = place(system, params, {}, {"racket": {"angular_velocity": INTERMEDIATE}})
    states = engine_states(system, params, state)
    steps = round(duration / h)
    w, e, J = states.w[1 : steps + 1, 0], states.e[:steps, 0], inertia_matrices(params)[0]
    turned = quaternion_matrix(e) @ quaternion_matrix(rotation_quaternion(h / 2 * w))
    return np.einsum("kij,jl,kl->ki", turned, J, w), np.einsum("ki,ij,kj->k", w, J, w) / 2, w


def test_the_intermediate_axis_turns_over_without_loss():
    """J = diag(1, 2, 3)e-2, 15 rad/s, h = 10 ms, 4 s. Measured: energy within 9.4e-4, momentum within 5e-15.

    The energy error is O(h^2).
    """
    momentum, energy, w = tumble(0.01, 4.0)
    assert np.sum(np.diff(np.sign(w[:, 1])) != 0) >= 2, "the body turns over"
    assert np.abs(momentum - momentum[0]).max() < 1e-12 * np.linalg.norm(momentum[0])
    error = np.abs(energy / energy[0] - 1).max()
    assert error < 2e-3
    _, finer, _ = tumble(0.005, 4.0)
    assert np.abs(finer / finer[0] - 1).max() < error / 3.5


def test_a_heavy_top_is_second_order():
    """150 rad/s about its axis under gravity: the error falls by four, or more, when the step is halved."""
    ends = []
    for h in (1e-3, 5e-4, 2.5e-4):
        system, params = tops(h)
        state = place(system, params, {"pivot": {"position": (0.5, 0.0, 0.0), "rate": (0.0, 0.0, 150.0)}})
        ends.append(simulate(system, params, state).r[round(0.25 / h), 1])
    assert np.linalg.norm(ends[0] - (0, -0.1 * np.sin(0.5), 0.1 * np.cos(0.5))) > 0.05, "it precesses"
    coarse, fine = np.linalg.norm(ends[0] - ends[1]), np.linalg.norm(ends[1] - ends[2])
    assert coarse < 1e-3
    assert coarse / fine > 4


def stumpff(u: float, derivative: int = 0) -> list[float]:
    """The first three of Stumpff's functions after the cosine, from their series in exact numbers."""

    def term(k: int, i: int) -> Fraction:
        falling = math.prod(range(i - derivative + 1, i + 1))
        return falling * (-1) ** i * Fraction(u) ** (i - derivative) / math.factorial(k + 2 * i)

    return [float(sum(term(k, i) for i in range(derivative, 30))) for k in (1, 2, 3)]


@pytest.mark.parametrize("u", [0.0, 1e-12, 1e-4, 0.0199, 0.0201, 0.3, 4.0])  # on both sides of where the series ends
def test_the_series_of_half_a_turn_and_their_derivatives(u):
    """To rounding, and what the differences above the series leave of it: 1e-16 / u, and / u again each time."""
    slope, at = jax.jacfwd(gyro._stumpff), jnp.asarray(u)
    np.testing.assert_allclose(gyro._stumpff(at), stumpff(u), rtol=1e-13)
    np.testing.assert_allclose(slope(at), stumpff(u, 1), rtol=1e-10)
    np.testing.assert_allclose(jax.jacrev(slope)(at), stumpff(u, 2), rtol=1e-6)
