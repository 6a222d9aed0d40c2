"""Dry friction is set-valued: it holds up to its level, lets a joint creep no faster than v_creep, and stops it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import BENCH, DOWN, bench, compiled, mechanism, place, simulate

from spookax.complementarity import BlockPivoting
from spookax.stepping import rollout, state_from_joints
from spookax.system import locate

LEVEL = 1.0  # N m, N: of both axes of the bench
INERTIA = {"hinge": 0.2, "prismatic": 2.0}  # kg m^2, kg


def both(u):
    """Opposite commands for the two motors."""
    return [u, -u]


@pytest.mark.parametrize("v_creep", [1e-6, 1e-4])
@pytest.mark.parametrize("load", [0.0, 0.5, 0.99, 1.0])
def test_a_stuck_joint_creeps_at_most_at_v_creep(v_creep, load):
    """The creep is v_creep times the part of the level that is used, after 12 s still."""
    system, params = bench(v_creep=v_creep)
    trajectory = simulate(system, params, place(system, params), both(load * LEVEL))
    assert np.abs(trajectory.rate[1:]).max() <= v_creep * (1 + 1e-9)
    np.testing.assert_allclose(trajectory.rate[-1], both(load * v_creep), rtol=0, atol=1e-9 * v_creep)
    np.testing.assert_allclose(trajectory.friction[-1], both(-load), rtol=0, atol=1e-9)


@pytest.mark.parametrize("axis", BENCH)
def test_a_load_just_above_the_level_slips(axis):
    """At 1.01 of the level the joint accelerates with what is left, exactly."""
    system, params = bench()
    trajectory = simulate(system, params, place(system, params), both(1.01 * LEVEL))
    _, rate = trajectory.joint(axis)
    expected = 0.01 * LEVEL / INERTIA[axis] * trajectory.time[1:]
    np.testing.assert_allclose(np.abs(rate[1:]), expected, rtol=1e-8, atol=2e-6)


@pytest.mark.parametrize("axis", BENCH)
def test_a_released_joint_starts_and_stops_as_the_load_passes_the_level(axis):
    """Load up and down through the level: it holds until 0.5 s, slips, and is caught when the impulse above the
    level (0.05 N s by 1.5 s) is used up by the load below it: 0.025 N s by 2 s and the rest in 0.25 s more."""
    system, params = bench()
    t = params.step * np.arange(2400.0)
    load = np.interp(t, [0, 1, 2, 12], [0.9, 1.1, 0.9, 0.9]) * LEVEL
    trajectory = simulate(system, params, place(system, params), np.stack(both(load), axis=-1))
    _, rate = trajectory.joint(axis)
    slips = np.abs(rate) > 2e-6
    start, stop = trajectory.time[np.flatnonzero(slips)[[0, -1]]]
    assert start == pytest.approx(0.5, abs=0.02)
    assert stop == pytest.approx(2.25, abs=0.02)
    assert np.all(slips[np.flatnonzero(slips)[0] : np.flatnonzero(slips)[-1]]), "one slip, no chatter"


@pytest.mark.parametrize(("h", "error"), [(0.004, 3.2e-5), (0.002, 8e-6), (0.001, 2e-6)])
def test_a_coulomb_oscillator_stops_where_it_must(h, error):
    """m = 1 kg, k = 100 N/m, 7 N, released at 1 m: each half swing loses 0.14 m, so that after seven it stands still
    at x = -0.02 m, at 7 pi / 10 s. The bound is 2 h^2 x0 omega^2 / 100."""
    system, params = bench(
        h,
        cart={"mass": 1.0},
        prismatic={"friction": {"coulomb": 7.0}, "spring": {"stiffness": 100.0}},
        v_creep=1e-9,
    )
    trajectory = simulate(system, params, place(system, params, {"prismatic": 1.0}))
    x, v = trajectory.joint("prismatic")
    last = np.flatnonzero(np.abs(v) > 1e-8)[-1]
    assert abs(trajectory.time[last] - 0.7 * np.pi) < 2 * h
    assert np.abs(x[last + 1 :] + 0.02).max() < error


@pytest.mark.parametrize("h", [0.01, 0.005, 0.0025])
def test_a_friction_pendulum_stops_at_its_angle(h):
    """I = 1/3 kg m^2 about the pivot, m g a = 4.905 N m, 0.5 N m, released at 1 rad: by integration between the
    reversals, in closed form for the energy, it stops at 0.0746508 rad after 4.1847010 s, and never moves again.

    A step in which the motion reverses has friction on one side only: it may end (h^2/2) 2 f / I off, where in the step
    the reversal falls says by how much."""
    system, params = bench(
        h,
        gravity=(0, 0, -9.81),
        rotor={"com": (0, 0, -0.5), "inertia": (1 / 12,) * 3},
        hinge={"friction": {"coulomb": 0.5}},
        v_creep=1e-9,
    )
    trajectory = simulate(system, params, place(system, params, {"hinge": 1.0}))
    angle, rate = trajectory.joint("hinge")
    last = np.flatnonzero(np.abs(rate) > 1e-7)[-1]
    assert abs(trajectory.time[last] - 4.1847010) < 2 * h
    assert np.abs(angle[last + 1 :] - 0.0746508).max() < h**2 * 0.5 * 3


def test_stribeck_friction_breaks_away_late_and_then_drops():
    """Static level 1.5 times the sliding one: 1.4 holds; 1.6 slips, and soon accelerates with 0.6."""
    friction = {"coulomb": LEVEL, "stribeck": {"excess": 0.5 * LEVEL, "speed": 0.01, "exponent": 2.0}}
    system, params = bench(hinge={"friction": friction}, prismatic={"friction": friction})
    held = simulate(system, params, place(system, params), both(1.4 * LEVEL))
    assert np.abs(held.rate).max() <= 1e-6
    loose = simulate(system, params, place(system, params), both(1.6 * LEVEL))
    acceleration = np.diff(loose.rate[-3:], axis=0)[0] / params.step
    np.testing.assert_allclose(acceleration, [0.6 / 0.2, -0.6 / 2.0], rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("solver", [None, BlockPivoting()], ids=["condensed", "sparse"])
def test_friction_that_the_reaction_follows_has_its_derivatives(solver):
    """A rod dragged and pushed along a guide at 45 degrees, mu = 1.5: friction changes the reaction by 1.4 times itself
    one way and takes three quarters of what holds it up the other. By both solvers, against differences.
    """
    mu, lever = 1.5, 0.5
    system, params = mechanism(
        0.001,
        DOWN,
        bodies={"rod": {"mass": 1.0, "com": (lever, 0, 0), "inertia": (1e-3, lever**2 / 3, lever**2 / 3)}},
        joints={
            "tip": {
                "type": "generic",
                "locked": ["y", "z", "rx", "rz"],
                "child": "rod",
                "axes": {"x": {"friction": {"bearing": mu, "coulomb": 0.1}}},
            }
        },
    )
    of_mu, of_lever = locate(system, "joints.tip.axes.x.friction.bearing"), locate(system, "bodies.rod.com.x")

    def slid(z):
        changed = of_lever.set(of_mu.set(params, z[0]), z[1])
        state = state_from_joints(system, changed, {"tip.x": {"rate": z[2]}, "tip.ry": {"position": z[3]}})
        trajectory = rollout(system, changed, state, jnp.zeros((12, 0)), solver=solver)
        return trajectory.position[-1] @ jnp.array([1.0, 0.1]), trajectory.friction

    value, gradient = compiled(slid), compiled(jax.jacfwd(lambda z: slid(z)[0]))
    for rate in (1.0, -3.0):
        z = np.array([mu, lever, rate, -np.pi / 4])
        assert np.all(value(z)[1] == -np.sign(rate)), "it slides all along"
        around = [[value(z + s * 1e-5 * np.eye(4)[i])[0] for i in range(4)] for s in (-2, -1, 1, 2)]
        a, b, c, d = (np.asarray(x) for x in around)
        differences = (a - 8 * b + 8 * c - d) / 12e-5
        found = gradient(z)
        np.testing.assert_allclose(found, differences, rtol=1e-6, atol=1e-6 * np.abs(found).max())
