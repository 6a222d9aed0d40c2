"""States from joint coordinates and back: one convention for angles and rates, and forces that can be trusted."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import (
    bench,
    compiled,
    furuta,
    pairs,
    pendulum,
    place,
    placed_pairs,
    quaternion_matrix,
    rotation_quaternion,
    simulate,
)

from spookax._results import STEP_RESULTS
from spookax.stepping import rollout, state_from_joints

FRICTION = {"shoulder": {"coulomb": 0.01}, "elbow": {"coulomb": 0.002, "viscous": 1e-2}}
START = {"shoulder": {"position": 0.3, "rate": 2.0}, "elbow": {"position": 2.0, "rate": -1.0}}


def read(trajectory, k=0):
    """What a user reads of every joint at step k, as `state_from_joints` takes it."""
    names = trajectory.axis_names
    return {n: {"position": trajectory.position[k, i], "rate": trajectory.rate[k, i]} for i, n in enumerate(names)}


def test_rates_read_back_are_the_given_ones():
    """The mean of the leap-frog velocities around t_0, under gravity, centrifugal forces, friction and a motor."""
    system, params = furuta(**FRICTION)
    trajectory = simulate(system, params, place(system, params, START), [0.03])
    np.testing.assert_allclose(trajectory.position[0], [0.3, 2.0], rtol=0, atol=1e-14)
    np.testing.assert_allclose(trajectory.rate[0], [2.0, -1.0], rtol=0, atol=1e-6)


def test_an_initial_state_read_back_replays():
    """The same trajectory, within the error of reading."""
    system, params = furuta(**FRICTION)
    trajectory = simulate(system, params, place(system, params, START))
    again = simulate(system, params, place(system, params, read(trajectory)))
    n = 200
    np.testing.assert_allclose(again.position[:n], trajectory.position[:n], rtol=0, atol=1e-6)
    np.testing.assert_allclose(again.rate[:n], trajectory.rate[:n], rtol=0, atol=1e-5)


def test_angles_are_unwrapped_over_five_turns():
    """A rotor at constant rate: no jump of 2 pi anywhere, forwards and backwards, from any start."""
    system, params = bench(hinge={"friction": {"coulomb": 1e-9}})
    for rate in (3.0, -3.0):
        start = {"hinge": {"position": 4.0, "rate": rate}}
        angle, _ = simulate(system, params, place(system, params, start)).joint("hinge")
        assert abs(angle[-1] - angle[0]) > 10 * np.pi
        np.testing.assert_allclose(angle, 4.0 + rate * params.step * np.arange(float(len(angle))), rtol=0, atol=1e-5)


def test_a_pendulum_that_goes_over_the_top_keeps_counting():
    system, params = pendulum()
    angle, rate = simulate(system, params, place(system, params, {"pivot": {"rate": 12.0}})).joint("pivot")
    assert np.all(rate > 0)
    assert angle[-1] > 10 * np.pi
    np.testing.assert_allclose(np.diff(angle), params.step * (rate[1:] + rate[:-1]) / 2, rtol=0, atol=2e-3)


def force_on_child(system, params, trajectory, name, k=-1):
    """World force of a joint on its child [N]: the first three rows of hinges and balls are translations along the
    columns of the parent's joint frame; the parent is the world."""
    j = system.joint_index(name)
    return quaternion_matrix(np.asarray(params.parent_frame[j])) @ trajectory.joint_forces[k, j, :3]


def test_the_joint_of_a_hanging_pendulum_carries_its_weight():
    """From the first step on; the compliance of the joint shows at 1e-5."""
    system, params = pendulum(mass=2.0)
    trajectory = simulate(system, params, place(system, params))
    for k in (0, -1):
        np.testing.assert_allclose(
            force_on_child(system, params, trajectory, "pivot", k), [0, 0, 2 * 9.81], rtol=0, atol=2e-4
        )
    np.testing.assert_allclose(trajectory.joint_forces[-1, 0, 3:], 0, atol=1e-9)


def test_the_joint_of_a_turning_rotor_carries_the_centrifugal_force():
    """A bob at 0.5 m and 12 rad/s without gravity: m r w^2, within 2 (h w)^2."""
    system, params = bench(rotor={"com": (0, 0, -0.5)}, hinge={"friction": {"coulomb": 1e-9}})
    trajectory = simulate(system, params, place(system, params, {"hinge": {"rate": 12.0}}))
    rate = trajectory.rate[200, 0]
    size = np.linalg.norm(force_on_child(system, params, trajectory, "hinge", 200))
    assert size == pytest.approx(0.5 * rate**2, rel=2 * (12 * 0.005) ** 2)


@pytest.fixture(scope="module")
def assembled():
    """Pairs on moving free bodies, every joint in motion."""
    system, params = pairs()
    base = {
        "position": (1, 2, 3),
        "rotation": (0.3, -2.0, 1.0),
        "velocity": (0.1, 0.2, 0.3),
        "angular_velocity": (1.0, -2.0, 0.5),
    }
    bodies = {f"{kind}_a": base for kind in ("hinge", "prismatic", "ball")}
    joints = {
        "hinge": {"position": 9.0, "rate": 4.0},
        "prismatic": {"position": -0.4, "rate": 0.5},
        "ball": {"position": (0.3, 0.2, -0.4), "rate": (2.0, -3.0, 1.0)},
    }
    return system, params, placed_pairs(system, params, joints, bodies)


def test_given_coordinates_are_those_of_the_state(assembled):
    """Hinge (beyond one turn), slider and ball: positions and rates by hand, and the origin where it was put."""
    system, params, state = assembled
    state = jax.tree.map(np.asarray, state)
    R = quaternion_matrix(state.e)
    origin = state.r - np.einsum("bij,bj->bi", R, params.com)
    velocity = state.v - np.einsum("bij,bj->bi", R, np.cross(state.w, params.com))
    number = {name: i for i, name in enumerate(system.bodies)}
    for kind in ("hinge", "prismatic", "ball"):
        a = number[f"{kind}_a"]
        np.testing.assert_allclose(origin[a], (1, 2, 3), rtol=0, atol=1e-14)
        np.testing.assert_allclose(velocity[a], (0.1, 0.2, 0.3), rtol=0, atol=1e-14)
        np.testing.assert_allclose(state.w[a], (1.0, -2.0, 0.5), rtol=0, atol=1e-14)
    assert state.near[system.axis_of("hinge")] == 9.0
    axis = np.array([1, 2, -0.5]) / np.linalg.norm([1, 2, -0.5])  # in the axes of the parent
    A, B = number["hinge_a"], number["hinge_b"]
    spin = R[A].T @ R[B] @ state.w[B] - state.w[A]
    np.testing.assert_allclose(spin, 4.0 * axis, rtol=0, atol=1e-13)
    A, B = number["prismatic_a"], number["prismatic_b"]
    p_B = origin[B] + R[B] @ (-0.1, 0.05, -0.2) - origin[A]
    np.testing.assert_allclose(R[A].T @ p_B - (0.2, 0.1, 0.3), -0.4 * axis, rtol=0, atol=1e-14)
    A, B = number["ball_a"], number["ball_b"]
    C_B = quaternion_matrix(np.asarray(params.child_frame[system.joint_index("ball")]))
    spin = state.w[B] - R[B].T @ R[A] @ state.w[A]
    np.testing.assert_allclose(C_B.T @ spin, (2.0, -3.0, 1.0), rtol=0, atol=1e-13)
    turn = quaternion_matrix(rotation_quaternion(np.array([0.3, 0.2, -0.4])))
    np.testing.assert_allclose(R[A].T @ R[B] @ C_B, turn, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("arguments", "problem", "says"),
    [
        (({"elbw": 1.0},), KeyError, "elbow"),
        (({"elbow": {"angle": 1.0}},), ValueError, "position"),
        (({}, {"arn": {}}), KeyError, "arm"),
    ],
)
def test_a_wrong_name_is_told_with_the_right_ones(arguments, problem, says):
    system, params = furuta()
    with pytest.raises(problem, match=says):
        state_from_joints(system, params, *arguments)


def test_a_failed_step_is_reported_and_raised():
    """A mass that is no number: the first step says so, as a value or, by default, as an error."""
    system, params = pendulum()
    state = place(system, params, {"pivot": 1.0})
    broken = eqx.tree_at(lambda p: p.mass, params, jnp.asarray([np.nan]))
    short = compiled(rollout, static_argnums=0, static_argnames="throw")
    told = short(system, broken, state, np.zeros((3, 0)), throw=False)
    assert told.result == STEP_RESULTS.nonfinite_velocity
    assert told.failed_step == 0
    with pytest.raises(Exception, match="velocity that is not finite"):
        jax.block_until_ready(short(system, broken, state, np.zeros((3, 0)), throw=True))
