"""Joints push both bodies equally and oppositely, and no direction of space is special.

Linear momentum is kept to rounding. The angular momentum that the scheme carries from kick to kick is
r_k x m v_k1 + R_k exp(h w_k1 / 2) J w_k1: both bodies of a joint are pushed at the same point, so that the pushes
cancel in it exactly; what is left is that the step takes the last term as linear in w about the free motion. That
is a loss of O(h^2); nothing is lost where nothing pushes (test_gyro.py).
"""

import equinox as eqx
import numpy as np
import pytest
from engine.mechanisms import (
    JOINT_TYPES,
    engine_states,
    furuta,
    inertia_matrices,
    pairs,
    place,
    placed_pairs,
    quaternion_matrix,
    rotation_quaternion,
    simulate,
)

from spookax.math import rotation

STEP_SIZES = (0.005, 0.0025)
DURATION = 2.0


def initial(system, params, rng):
    """Pairs that tumble, each with its joint in motion."""
    bodies = {
        f"{kind}_a": {
            "position": rng.normal(size=3),
            "rotation": rng.normal(size=3),
            "velocity": rng.normal(size=3),
            "angular_velocity": 3 * rng.normal(size=3),
        }
        for kind in JOINT_TYPES
    }
    joints = {
        "hinge": {"position": 0.5, "rate": 4.0},
        "prismatic": {"position": 0.1, "rate": 2.0},
        "line": 0.8,
        "ball": {"position": (0.3, 0.2, -0.4), "rate": (2.0, -3.0, 1.0)},
    }
    return placed_pairs(system, params, joints, bodies)


@pytest.fixture(scope="module")
def momenta():
    """Step size -> momenta p [N s] and L [N m s] of every body after every kick."""
    found = {}
    for h in STEP_SIZES:
        system, params = pairs(h)
        states = engine_states(system, params, initial(system, params, np.random.default_rng(0)))
        v, w = states.v[1:], states.w[1:]
        p = np.asarray(params.mass)[:, None] * v
        turned = quaternion_matrix(states.e[:-1]) @ quaternion_matrix(rotation_quaternion(h / 2 * w))
        spin = np.einsum("kbij,bjl,kbl->kbi", turned, inertia_matrices(params), w)
        steps = round(DURATION / h)
        found[h] = p[:steps], (np.cross(states.r[:-1], p) + spin)[:steps]
    return found


def of_pair(momentum, kind):
    i = 2 * JOINT_TYPES.index(kind)
    return momentum[:, i : i + 2]


@pytest.mark.parametrize("kind", JOINT_TYPES)
def test_linear_momentum_is_kept_to_rounding(kind, momenta):
    for p, _ in momenta.values():
        each = of_pair(p, kind)
        total = each.sum(axis=1)
        assert np.abs(each - each[0]).max() > 0.01, "the joint pushes; otherwise there is nothing to keep"
        assert np.abs(total - total[0]).max() < 1e-12 * np.abs(each).max()


@pytest.mark.parametrize("kind", JOINT_TYPES)
def test_angular_momentum_is_kept_to_second_order(kind, momenta):
    """Measured at h = 5 ms: 6e-6 of its size at most, 2.7e-5 with a spring between points; a quarter at 2.5 ms."""
    drift, size = [], 0.0
    for _, L in momenta.values():
        each = of_pair(L, kind)
        total = each.sum(axis=1)
        drift.append(np.abs(total - total[0]).max())
        size = np.abs(each).max()
    assert drift[0] < 5e-5 * size
    assert 3.5 < drift[0] / drift[1] < 4.5


TURN = np.array([0.5, -0.7, 1.1])  # rotation vector of the turned scene [rad]


def turned(values, e):
    return quaternion_matrix(e) @ np.asarray(values)


def test_turned_pairs_move_as_before():
    """Turning positions, velocities and gravity turns the trajectory."""
    system, params = pairs(0.005, gravity=(0.3, -0.4, -9.0))
    state = initial(system, params, np.random.default_rng(0))
    e = rotation_quaternion(TURN)
    q = quaternion_matrix(e)
    there = eqx.tree_at(
        lambda s: (s.r, s.e, s.v), state, (state.r @ q.T, rotation.multiply(e[None], state.e), state.v @ q.T)
    )
    before = engine_states(system, params, state)
    after = engine_states(system, eqx.tree_at(lambda p: p.gravity, params, q @ params.gravity), there)
    n = 400
    np.testing.assert_allclose(after.r[:n], before.r[:n] @ q.T, rtol=0, atol=1e-9)
    np.testing.assert_allclose(after.w[:n], before.w[:n], rtol=0, atol=1e-9)


@pytest.mark.slow
def test_a_turned_furuta_pendulum_moves_as_before():
    """The same with a joint to the world, dry friction and a motor: joint motion does not see the turn."""
    system, params = furuta(shoulder={"coulomb": 0.01}, elbow={"coulomb": 0.002, "viscous": 1e-4})
    e = rotation_quaternion(TURN)
    q = quaternion_matrix(e)
    shoulder = system.joint_index("shoulder")
    there = eqx.tree_at(
        lambda p: (p.gravity, p.at, p.parent_frame),
        params,
        (
            q @ params.gravity,
            params.at.at[shoulder].set(q @ params.at[shoulder]),
            params.parent_frame.at[shoulder].set(rotation.multiply(e, params.parent_frame[shoulder])),
        ),
    )
    joints = {"shoulder": 0.3, "elbow": {"position": 2.0, "rate": 1.0}}
    before = simulate(system, params, place(system, params, joints), [0.02])
    after = simulate(system, there, place(system, there, joints), [0.02])
    n = 400
    np.testing.assert_allclose(after.position[:n], before.position[:n], rtol=0, atol=1e-9)
    np.testing.assert_allclose(after.r[:n], before.r[:n] @ q.T, rtol=0, atol=1e-9)
