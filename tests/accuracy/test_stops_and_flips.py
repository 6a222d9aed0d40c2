"""Motions with known events: where friction stops a body, when a free body turns over, what energy a chain keeps."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import spookax as sx
from benchmarks.measure import ROOT

SCENES = ROOT / "scenes/reference"


def motion(name, h, duration, state=None, **changes):
    """Trajectory of a scene of `scenes/reference` over `duration` [s] in steps of h."""
    system, params, start = sx.load(SCENES / f"{name}.yaml")
    params = dataclasses.replace(params, step=jnp.asarray(h), **changes)
    controls = np.zeros((round(duration / h), 0))
    return sx.rollout(system, params, start if state is None else state, controls)


# Event-driven integration with set-valued friction: I = 1/3, m g a = 4.905, 0.5 N m
STOP_TIME, STOP_ANGLE = 4.18470102210172, 0.07465080054920618
REVERSALS = (0.8639449747558489, 1.708192506984514, 2.5395963642132124, 3.3635468695492237)


@pytest.mark.parametrize(("h", "most"), [(0.01, 3.05e-4), (0.005, 4.35e-5)])
def test_a_pendulum_stops_where_dry_friction_holds_it(h, most):
    """`most`: the errors of a plain prototype at the same steps, 3.0e-4 and 4.3e-5 rad as printed."""
    trajectory = motion("friction_pendulum", h, 5.0)
    position, rate = trajectory.joint("pivot")
    time = np.asarray(trajectory.time)
    assert abs(float(position[-1]) - STOP_ANGLE) <= most
    turns = time[np.flatnonzero(np.asarray(rate[:-1] * rate[1:]) < 0)]
    turns = turns[turns > 0.1]  # it starts at rest
    np.testing.assert_allclose(turns[: len(REVERSALS)], REVERSALS, rtol=0, atol=1.5 * h)
    still = time > STOP_TIME + 2 * h
    assert np.abs(np.asarray(rate)[still]).max() <= 1e-6, "it creeps, and never chatters"
    assert np.all(np.abs(np.asarray(trajectory.friction)[still[1:]]) < 1)


@pytest.mark.parametrize(("load", "slips"), [(0.99, False), (1.01, True)])
def test_it_lets_go_above_the_level_alone(load, slips):
    """Held at an angle where its weight is this part of 0.5 N m."""
    system, params, _ = sx.load(SCENES / "friction_pendulum.yaml")
    angle = np.arcsin(load * 0.5 / 4.905)
    state = sx.state_from_joints(system, params, {"pivot": angle})
    rate = motion("friction_pendulum", 0.005, 5.0, state).joint("pivot")[1][:201]  # a second; one program for all
    assert (np.abs(np.asarray(rate)).max() > 1e-3) == slips


def test_a_spring_and_friction_stop_at_a_known_place():
    """Amplitudes 1, 0.86, ... lose 2 f / k a swing: seven half periods, then -0.02 m."""
    trajectory = motion("coulomb_oscillator", 0.002, 3.0)
    position, rate = trajectory.joint("slide")
    assert float(position[-1]) == pytest.approx(-0.02, abs=1e-4)
    moving = np.flatnonzero(np.abs(np.asarray(rate)) > 1e-6)[-1]
    assert float(trajectory.time[moving]) == pytest.approx(2.199114857512855, abs=0.004)


FLIPS = (1.0405487759175582, 2.969577151563991)  # elliptic functions: J = 1, 2, 3e-2, w0 = (0.01, 15, 0.01)


def test_a_free_body_turns_over_when_it_must():
    """To a step of 10 ms; its energy moves by 3e-3 and comes back, over 100 s."""
    system, params, _ = sx.load(SCENES / "free_body.yaml")
    state = sx.state_from_joints(system, params, {}, {"body": {"angular_velocity": (0.01, 15.0, 0.01)}})
    trajectory = motion("free_body", 0.01, 100.0, state)
    w, time = np.asarray(trajectory.w[:, 0]), np.asarray(trajectory.time)
    flips = time[np.flatnonzero(w[:-1, 1] * w[1:, 1] < 0)][:2]
    np.testing.assert_allclose(flips, FLIPS, rtol=0, atol=0.01)
    energy = np.sum(w**2 * np.array([0.01, 0.02, 0.03]), axis=1) / 2
    assert np.abs(energy / energy[0] - 1)[1:-1].max() < 5e-3


@pytest.mark.parametrize("relaxation", [2.0, 1.0])
def test_a_chain_without_friction_keeps_its_energy(relaxation):
    """Four links of 1 m, released level, whip about for 10 s at h = 5 ms: the energy stays within half a percent of the
    height that the chain falls, and never exceeds that at the start."""
    trajectory = motion("chain", 0.005, 10.0, relaxation=jnp.full((4, 6), relaxation))
    v, w, r = (np.asarray(x) for x in (trajectory.v, trajectory.w, trajectory.r))
    kinetic = 0.5 * np.sum(v**2, axis=(1, 2)) + 0.5 * np.sum(w**2 * np.array([1e-3, 1 / 12, 1 / 12]), axis=(1, 2))
    energy = kinetic + 9.81 * np.sum(r[:, :, 2], axis=1)
    scale = 4 * 9.81 * 2
    assert np.abs(energy[:-1] - energy[0]).max() < 0.005 * scale
    assert np.all(energy[1:-1] < energy[0])
