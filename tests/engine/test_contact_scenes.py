"""The scenes with contacts that ship do what their comments say."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import spookax as sx

SCENES = Path(__file__).parents[2] / "scenes" / "contacts"
pytestmark = pytest.mark.slow


def run(name, seconds, *commands):
    system, params, state = sx.load(SCENES / f"{name}.yaml")
    controls = jnp.broadcast_to(jnp.array(commands, dtype=float), (round(seconds / float(params.step)), len(commands)))
    return params, sx.rollout(system, params, state, controls)


def test_there_is_a_test_for_each():
    here, of_tasks = {"gripper", "stack", "toss", "wheel"}, {"hopper", "push", "quadruped"}
    assert {file.stem for file in SCENES.glob("*.yaml")} == here | of_tasks  # `tests/envs/test_touching_tasks.py`


def test_the_stack_stands():
    _, found = run("stack", 10)
    r = np.asarray(found.r)
    assert np.abs(r - r[0]).max() < 1e-3
    assert np.abs(found.v[-1]).max() < 1e-6


def test_the_toss_ends_on_a_face():
    _, found = run("toss", 2)
    assert found.r[-1, 0, 2] == pytest.approx(0.05, abs=2e-4)
    assert np.abs(found.v[-1]).max() < 1e-6
    assert found.r[-1, 0, 0] > 0, "it has slid on"


def test_the_wheels_roll():
    """Acceleration 2 tau / r / (m + 2 J / r^2) without slip; with too much torque they slip at mu times their load."""
    params, found = run("wheel", 0.5, 0.05, 0.05)
    mass, radius = np.asarray(params.mass), 0.05
    J = 0.5 * mass[1] * radius**2
    expected = 2 * 0.05 / radius / (mass.sum() + 2 * J / radius**2)
    speed = np.asarray(found.v[:, 1, 0])
    assert (speed[-2] - speed[10]) / (found.time[-2] - found.time[10]) == pytest.approx(expected, rel=1e-3)
    np.testing.assert_allclose(speed, radius * found.rate[:, 0], atol=1e-4)
    _, slipping = run("wheel", 0.5, 0.2, 0.2)
    assert slipping.v[-2, 1, 0] < 0.8 * radius * slipping.rate[-2, 0]
    forces = np.asarray(slipping.contact_forces[-1])
    forces = forces[forces[:, 2] > 1e-3]
    ratio = np.linalg.norm(forces[:, :2], axis=1) / forces[:, 2]
    np.testing.assert_allclose(np.sort(ratio), [0, 0.8, 0.8, 0.8, 0.8], atol=1e-6, err_msg="the castor does not rub")


def test_the_gripper_lifts_the_cube():
    params, found = run("gripper", 1.5, 0, 0, 0)
    lift, cube = np.asarray(found.position[:, 0]), np.asarray(found.r[:, 3, 2])
    weight = 9.81 * float(params.mass[3])
    assert cube[-1] - cube[0] == pytest.approx(lift[-1] - lift[0], abs=1e-3)
    assert lift[-1] - lift[0] > 0.03
    assert np.abs(found.v[-1]).max() < 1e-3
    up = np.asarray(found.contact_forces[-1])[:, 2]
    assert np.abs(up).sum() == pytest.approx(weight, rel=1e-2)
