"""Quadratic drag of a joint: what it does to a rate, its order in the step size, and its derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import BENCH, bench, compiled, mechanism, place, simulate

from spookax.scene import Scene
from spookax.stepping import rollout, state_from_joints
from spookax.study.file.key_rules import default_transform
from spookax.system import build, locate
from spookax.system.params import paths

DRAG, MASS = 0.4, np.array([0.2, 2.0])  # of the axes of `bench` [kg m^2, kg]


def started(h, start, load=0.0, **friction):
    """Time and rates of both axes, thrown alike."""
    system, params = bench(h, **{name: {"friction": {"drag": DRAG} | friction} for name in BENCH})
    state = place(system, params, {name: {"rate": start} for name in BENCH})
    run = simulate(system, params, state, load * MASS)
    return run.time[:-1], run.rate[:-1]


@pytest.mark.parametrize("start", [3.0, -3.0])
def test_a_rate_decays_as_one_over_time(start):
    """w = w0 / (1 + C / J |w0| t), to second order in the step."""
    errors = []
    for h in (0.004, 0.002):
        t, rate = started(h, start)
        exact = start / (1 + DRAG / MASS * abs(start) * t[:, None])
        errors.append(np.abs(rate - exact)[t < 4].max(axis=0))
    assert np.all(errors[0] < (DRAG / MASS * 3.0 * 0.004) ** 2 * 3.0)
    assert np.all(errors[0] / errors[1] > 3.5)


@pytest.mark.parametrize("start", [0.0, -3.0])
def test_under_a_load_it_settles(start):
    """w' = a - (C / J) |w| w through rest: second order, and sqrt(a J / C) in the
    end."""
    load = 2.0
    errors = []
    for h in (0.004, 0.002):
        t, rate = started(h, start, load)
        errors.append(np.abs(rate - _settling(t[:, None], start, load))[t < 4].max(axis=0))
    assert np.all(errors[0] < 1e-3)
    assert np.all(errors[0] / errors[1] > 3.5)
    np.testing.assert_allclose(rate[-1, 0], np.sqrt(load * MASS[0] / DRAG), rtol=1e-3)


def _settling(t, start, load):
    """The exact rate: a tangent while it is slowed down and driven back, then tanh."""
    k = DRAG / MASS
    end, pace = np.sqrt(load / k), np.sqrt(load * k)
    turn = np.arctan(-start / end) / pace  # the time of rest
    return np.where(t < turn, end * np.tan(pace * (t - turn)), end * np.tanh(pace * (t - turn)))


@pytest.mark.parametrize("drag", [0.4, 4e4])
def test_it_never_turns_a_rate_round_nor_adds_energy(drag):
    _, rate = started(0.005, 3.0, drag=drag)
    assert np.all(rate > 0)
    assert np.all(np.diff(rate, axis=0) < 0)


@pytest.mark.parametrize("drag", [4.0, 4e4])
def test_beside_viscous_friction_and_a_load_it_settles_at_any_step(drag):
    """Without ringing, however large: C w^2 + c w = u."""
    _, rate = started(0.005, 0.0, 2.0, drag=drag, viscous=0.5)
    u = 2.0 * MASS
    np.testing.assert_allclose(rate[-5:], np.tile((np.sqrt(0.25 + 4 * drag * u) - 0.5) / (2 * drag), (5, 1)), rtol=1e-6)


def end(x):
    """A number of the last state of a slide, by drag, first rate and load."""
    system, params = mechanism(
        0.01,
        (0, 0, 0),
        bodies={"cart": {"mass": 2.0, "inertia": (0.1, 0.1, 0.1)}},
        joints={"rail": {"type": "prismatic", "child": "cart", "friction": {"drag": 1.0}}},
        motors={"push": {"type": "torque", "joint": "rail"}},
    )
    params = locate(system, "joints.rail.friction.drag").set(params, x[0])
    state = state_from_joints(system, params, {"rail": {"rate": x[1]}})
    run = rollout(system, params, state, jnp.broadcast_to(x[2], (60, 1)), throw=False)
    return run.position[-1, 0] + 0.3 * run.rate[-1, 0]


def test_derivatives():
    """By drag, first rate and load, through a turn: both modes against differences; at rest finite."""
    value, reverse, forward = compiled(end), compiled(jax.grad(end)), compiled(jax.jacfwd(end))
    x, small = np.array([4.0, -0.5, 5.0]), 1e-5
    differences = [(value(x + d) - value(x - d)) / (2 * small) for d in small * np.eye(3)]
    found = np.asarray(reverse(x))
    np.testing.assert_allclose(found, differences, rtol=1e-7)
    np.testing.assert_allclose(np.asarray(forward(x)), found, rtol=0, atol=1e-12 * np.linalg.norm(found))
    for derivative in (reverse, forward):
        still = np.asarray(derivative(np.array([4.0, 0.0, 0.0])))
        assert still[0] == 0
        assert np.all(still[1:] > 0.1)


def test_only_axes_that_need_it_have_it():
    """Given in the scene, or unknown in a study; its path is there then, searched as what may be zero."""
    scene = {
        "spookax": 1,
        "bodies": {"a": {"mass": 1.0, "inertia": (0.1, 0.1, 0.1)}, "b": {"mass": 1.0, "inertia": (0.1, 0.1, 0.1)}},
        "joints": {
            "neck": {"type": "ball", "child": "a", "friction": {"drag": 0.3}},
            "shaft": {"type": "cylindrical", "child": "b"},
        },
    }
    slide = "joints.shaft.axes.slide.friction.drag"
    for unknown in (frozenset[str](), frozenset([slide])):
        system, params = build(Scene.model_validate(scene), unknown=unknown)
        assert [path for path in paths(system) if path.endswith("drag")] == ["joints.neck.friction.drag", *unknown]
        assert [axis.drags for axis in system.axes] == [True] * 3 + [False, bool(unknown)]
    np.testing.assert_array_equal(locate(system, "joints.neck.friction.drag").set(params, 0.5).drag[:3], 0.5)
    assert default_transform(slide) == default_transform("joints.neck.friction.drag") == "sinh"
