"""The error falls with the step size as the scheme promises."""

import numpy as np
import pytest
from engine.mechanisms import ARM, bench, furuta, pendulum, place, simulate
from scipy.integrate import solve_ivp

STEP_SIZES = np.array([4e-3, 2e-3, 1e-3, 5e-4])
TIMES = np.array([0.1, 0.2, 0.4, 0.6])
G = 9.81


def reference(acceleration, start):
    """Positions at `TIMES` to 1e-12, from another integrator and the textbook's equation of motion."""

    def rate(_, y):
        q, v = np.split(y, 2)
        return np.concatenate([v, acceleration(q, v)])

    y = solve_ivp(rate, (0, TIMES[-1]), start, "DOP853", rtol=1e-12, atol=1e-12, t_eval=TIMES).y
    return y[: len(start) // 2].T


def at_times(trajectory, h):
    return trajectory.position[np.rint(TIMES / h).astype(int)]


def order(errors):
    """Slope of the error against h over all step sizes, and the smallest between two of them."""
    slope = np.polyfit(np.log(STEP_SIZES), np.log(errors), 1)[0]
    return slope, np.min(np.log2(np.array(errors[:-1]) / errors[1:]))


def pendulum_errors(**options):
    truth = reference(lambda q, v: -G * 0.5 / 0.35 * np.sin(q), [1.0, 0.0])
    errors = []
    for h in STEP_SIZES:
        system, params = pendulum(h)
        trajectory = simulate(system, params, place(system, params, {"pivot": 1.0}), **options)
        errors.append(np.abs(at_times(trajectory, h) - truth).max())
    return errors


def test_smooth_motion_is_second_order():
    slope, smallest = order(pendulum_errors())
    assert slope == pytest.approx(2, abs=0.1)
    assert smallest > 1.85


def test_without_the_half_kick_it_is_first_order():
    slope, smallest = order(pendulum_errors(half_kick=False))
    assert slope == pytest.approx(1, abs=0.1)
    assert smallest > 0.9


def furuta_acceleration(torque):
    """Lagrange's equations of the rotary pendulum of `mechanisms.furuta` without friction."""
    a, m, L, l = ARM, ARM["m"], ARM["L"], ARM["l"]

    def acceleration(q, v):
        sin, cos = np.sin(q[1]), np.cos(q[1])
        across = m * l**2 + a["Jy"]
        M11 = a["J"] + m * L**2 + across * sin**2 + a["Jz"] * cos**2
        M12, M22 = m * L * l * cos, m * l**2 + a["Jx"]
        dM11, dM12 = 2 * sin * cos * (across - a["Jz"]), -m * L * l * sin
        force = [torque - dM11 * v[0] * v[1] - dM12 * v[1] ** 2, dM11 * v[0] ** 2 / 2 - m * G * l * sin]
        return np.linalg.solve([[M11, M12], [M12, M22]], force)

    return acceleration


def test_a_rotary_pendulum_is_second_order():
    """Both axes, under a constant torque, against the equations of motion in joint coordinates."""
    truth = reference(furuta_acceleration(0.02), [0.3, 0.8, 1.0, -2.0])
    errors = []
    for h in STEP_SIZES:
        system, params = furuta(h)
        joints = {"shoulder": {"position": 0.3, "rate": 1.0}, "elbow": {"position": 0.8, "rate": -2.0}}
        trajectory = simulate(system, params, place(system, params, joints), [0.02])
        errors.append(np.abs(at_times(trajectory, h) - truth).max())
    slope, smallest = order(errors)
    assert slope == pytest.approx(2, abs=0.1)
    assert smallest > 1.85
    assert errors[-1] < 1e-4


def coulomb_oscillation(t, omega, shift):
    """Position of a mass on a spring with dry friction f / k = `shift`, released at 1 m: half swings of a cosine about
    +-shift, each 2 shift smaller than the last."""
    half = np.floor(omega * t / np.pi)
    return (-1.0) ** half * ((1 - 2 * shift * half - shift) * np.cos(omega * t - np.pi * half) + shift)


def test_with_dry_friction_it_is_first_order():
    """Three reversals, and the step in which one falls sees its friction on one side only. How much that costs depends
    on where in the step it falls, so that the mean square over some frequencies is looked at, not single runs."""
    t = 5e-3 * np.arange(240)
    errors = []
    for h in STEP_SIZES:
        squares = []
        for omega in np.linspace(9.0, 10.0, 8):
            spring = {"stiffness": omega**2}
            system, params = bench(
                h, cart={"mass": 1.0}, prismatic={"friction": {"coulomb": 7.0}, "spring": spring}, v_creep=1e-9
            )
            trajectory = simulate(system, params, place(system, params, {"prismatic": 1.0}))
            x, _ = trajectory.joint("prismatic")
            truth = coulomb_oscillation(t, omega, 7.0 / omega**2)
            squares.append(np.mean((np.interp(t, trajectory.time, x) - truth) ** 2))
        errors.append(np.sqrt(np.mean(squares)))
    slope, smallest = order(errors)
    assert slope == pytest.approx(1, abs=0.15), errors
    assert smallest > 0.7, errors
