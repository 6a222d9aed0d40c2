"""Motors, rotor inertia, springs and a tilted base, on axes that turn and slide, against closed forms."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import BENCH, DOWN, bench, mechanism, place, simulate

from spookax.constraints import assemble, prepare
from spookax.scene import Scene
from spookax.stepping import state_from_joints
from spookax.system import build

G = 9.81
INERTIA = {"hinge": 0.2, "prismatic": 2.0}  # kg m^2, kg: of the bench


def axes(step=0.005, *, joints=None, **options):
    """The bench without dry friction; `joints`: keys of both of its joints."""
    joints = {"friction": {}} | (joints or {})
    return bench(step, hinge=joints, prismatic=joints, **options)


@pytest.mark.parametrize("axis", BENCH)
@pytest.mark.parametrize(("gain", "bias"), [(1.0, 0.0), (0.3, -0.5), (-2.0, 0.1)])
def test_a_torque_motor_accelerates_by_its_torque_over_the_inertia(axis, gain, bias):
    """(gain u + bias) / J from the first instant on."""
    system, params = axes(motor={"gain": gain, "bias": bias})
    trajectory = simulate(system, params, place(system, params), [0.7, 0.7])
    _, rate = trajectory.joint(axis)
    expected = (gain * 0.7 + bias) / INERTIA[axis] * trajectory.time
    np.testing.assert_allclose(rate, expected, rtol=1e-8, atol=1e-9)


def test_a_motor_pushes_back_on_its_parent():
    """Between two free bodies: u / J_1 and -u / J_2 about the axis; with rotor inertia J_r the relative acceleration
    is u / (J_r + J_1 J_2 / (J_1 + J_2)), and the angular momentum stays zero."""
    J_1, J_2, u = 0.3, 0.1, 0.02
    for J_r in (0.0, 0.05):
        scene = Scene(
            spookax=1,
            step=0.005,
            gravity=(0, 0, 0),
            bodies={"one": {"mass": 1.0, "inertia": (J_1,) * 3}, "two": {"mass": 0.5, "inertia": (J_2,) * 3}},
            joints={"shaft": {"type": "hinge", "parent": "one", "child": "two", "axis": (0, 1, 0), "armature": J_r}},
            motors={"drive": {"type": "torque", "joint": "shaft"}},
        )
        system, params = build(scene)
        trajectory = simulate(system, params, place(system, params), [u])
        acceleration = u / (J_r + J_1 * J_2 / (J_1 + J_2))
        np.testing.assert_allclose(trajectory.joint("shaft")[1], acceleration * trajectory.time, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(J_1 * trajectory.w[:, 0] + J_2 * trajectory.w[:, 1], 0.0, rtol=0, atol=1e-12)


@pytest.mark.parametrize("axis", BENCH)
def test_rotor_inertia_slows_the_acceleration(axis):
    """By J / (J + J_r)."""
    rates = []
    for J_r in (0.0, 0.3):
        system, params = axes(joints={"armature": J_r})
        rates.append(simulate(system, params, place(system, params), [1.0, 1.0]).joint(axis)[1])
    ratio = INERTIA[axis] / (INERTIA[axis] + 0.3)
    np.testing.assert_allclose(rates[1], ratio * rates[0], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("kind", ["torque", "dc", "position", "bounded"])
def test_many_motors_are_no_more_equations(kind):
    """What is traced for a step does not grow with the number of motors."""
    own = {
        "torque": {"gain": 0.1},
        "dc": {"gain": 0.1, "back_emf": 0.1},
        "position": {"stiffness": 2.0, "damping": 0.1},
    }
    keys = (
        {"type": "position", **own["position"], "max_force": 1.0} if kind == "bounded" else {"type": kind, **own[kind]}
    )

    def equations(count):
        hinge = {"type": "hinge", "axis": (0, 1, 0)}
        system, params = mechanism(
            0.005,
            DOWN,
            bodies={f"b{i}": {"mass": 1.0, "inertia": (0.1, 0.1, 0.1)} for i in range(count)},
            joints={f"j{i}": {**hinge, "child": f"b{i}", "at": (i, 0, 0)} for i in range(count)},
            motors={f"m{i}": {**keys, "joint": f"j{i}"} for i in range(count)},
        )
        prepared = jax.eval_shape(functools.partial(prepare, system), params)
        state = jax.eval_shape(lambda p: state_from_joints(system, p), params)
        given = prepared, state, jnp.zeros(count), jnp.zeros((count, 6))
        return str(jax.make_jaxpr(functools.partial(assemble, system))(*given)).count(" = ")

    assert equations(12) <= equations(3)


@pytest.mark.parametrize("axis", BENCH)
@pytest.mark.parametrize("viscous", [0.0, 0.1])
def test_a_dc_motor_runs_up_to_its_speed(axis, viscous):
    """K_t = 1.2, K_e = 1, R = 4 at u: K_t u / (K_t K_e + R c), or u / K_e without friction, with the time constant
    T = J / (c + K_t K_e / R), to second order in h / T."""
    u, h = 2.0, 0.005
    motor = {"type": "dc", "torque_constant": 1.2, "back_emf_constant": 1.0, "resistance": 4.0}
    system, params = axes(h, cart={"mass": 0.5}, motor=motor, joints={"friction": {"viscous": viscous}})
    trajectory = simulate(system, params, place(system, params), [u, u])
    _, rate = trajectory.joint(axis)
    speed, T = 1.2 * u / (1.2 + 4 * viscous), {"hinge": 0.2, "prismatic": 0.5}[axis] / (viscous + 0.3)
    assert rate[-1] == pytest.approx(speed, rel=2 * np.exp(-12 / T) + 1e-9)
    expected = speed * (1 - np.exp(-trajectory.time / T))
    np.testing.assert_allclose(rate, expected, rtol=0, atol=0.5 * speed * (h / T) ** 2)


@pytest.mark.parametrize("axis", BENCH)
def test_cogging_holds_at_its_own_period(axis):
    """F sin(phase) with phase = 3 q, or 6 pi q on a prismatic joint, pushes towards phase pi; against a motor's push u
    it rests at sin(phase) = -u / F, wherever on the joint it begins."""
    F, u, turn, viscous = 0.5, 0.2, *{"hinge": (3, 1.0), "prismatic": (6 * np.pi, 6.0)}[axis]
    cogging = {"cogging": [{"order": 3, "sin": F}]}
    system, params = axes(motor=cogging, joints={"friction": {"viscous": viscous}})
    for k in (0, 5):
        start = (2 * np.pi * k + np.pi - 0.3) / turn
        at = turn * simulate(system, params, place(system, params, {axis: start}), [u, u]).joint(axis)[0][-1]
        assert at == pytest.approx(2 * np.pi * k + np.pi + np.arcsin(u / F), abs=1e-6)


def period(trajectory, axis, rest=0.0):
    """Mean time between passages through `rest` in one direction [s]."""
    x = trajectory.joint(axis)[0] - rest
    before = np.flatnonzero((x[:-1] > 0) & (x[1:] <= 0))
    at = trajectory.time[before] + np.diff(trajectory.time)[before] * x[before] / (x[before] - x[before + 1])
    assert len(at) > 4
    return np.mean(np.diff(at))


@pytest.mark.parametrize("axis", BENCH)
def test_a_spring_swings_with_its_period(axis):
    """2 pi sqrt(J / k), lengthened by the warp of the implicit midpoint rule, tan(W / 2) = h omega / 2, and by
    nothing else: the spring neither damps nor drives."""
    h, k, rest = 0.01, 20.0, 0.2
    system, params = axes(h, joints={"spring": {"stiffness": k, "rest": rest}})
    trajectory = simulate(system, params, place(system, params, {axis: rest + 0.1}))
    omega = np.sqrt(k / INERTIA[axis])
    assert period(trajectory, axis, rest) == pytest.approx(np.pi * h / np.arctan(h * omega / 2), rel=1e-6)
    last = trajectory.joint(axis)[0][-400:] - rest
    np.testing.assert_allclose([last.min(), last.max()], [-0.1, 0.1], rtol=2e-3)


def test_a_spring_and_gravity_swing_a_pendulum_together():
    """Small swings: 2 pi sqrt((J + m l^2) / (k + m g l)), to second order in h."""
    l, k = 0.5, 3.0
    expected = 2 * np.pi * np.sqrt((INERTIA["hinge"] + l**2) / (k + G * l))
    errors = []
    for h in (0.01, 0.005):
        system, params = axes(h, gravity=(0, 0, -G), rotor={"com": (0, 0, -l)}, joints={"spring": {"stiffness": k}})
        trajectory = simulate(system, params, place(system, params, {"hinge": 1e-3}))
        errors.append(period(trajectory, "hinge") / expected - 1)
    assert abs(errors[0]) < 2e-5
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.02)


@pytest.mark.parametrize("tilt", [(0.0, 0.2), (0.5, 0.0), (0.4, -0.3)])
def test_a_tilted_base_moves_the_equilibrium(tilt):
    """Tilted about x, then y: a pendulum about y hangs at tan(angle) = -tan(y) / cos(x), and a cart along x slides down
    with the force m g sin(y)."""
    x, y = tilt
    friction = {"viscous": 3.0}
    system, params = axes(gravity=(0, 0, -G), rotor={"com": (0, 0, -0.5)}, tilt=tilt, joints={"friction": friction})
    trajectory = simulate(system, params, place(system, params, {"hinge": 0.3}))
    assert trajectory.joint("hinge")[0][-1] == pytest.approx(-np.arctan2(np.sin(y), np.cos(y) * np.cos(x)), abs=1e-9)
    assert trajectory.joint("prismatic")[1][-1] == pytest.approx(2.0 * G * np.sin(y) / 3.0, rel=1e-7)


def test_a_motor_holds_a_pendulum_at_its_angle():
    """sin(angle) = u / (m g l)."""
    system, params = axes(gravity=(0, 0, -G), rotor={"com": (0, 0, -0.5)}, joints={"friction": {"viscous": 3.0}})
    trajectory = simulate(system, params, place(system, params), [-2.0, 0.0])
    assert np.sin(trajectory.joint("hinge")[0][-1]) == pytest.approx(-2.0 / (G * 0.5), abs=1e-9)
