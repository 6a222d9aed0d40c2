"""Elasto-slide elements of a joint: elastic before they slip, with a memory, and the model of them in `models`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import BENCH, U, bench, driven, inertia, moved, place, rack, simulate, turns
from engine.test_hard_cases import gradient_matches, slope_and_values

from spookax.models.hysteresis import Blocks, ElastoSlide, recording
from spookax.stepping import rollout, state_from_joints
from spookax.system import locate
from spookax.system.params import paths

ELEMENTS = ({"stiffness": 200.0, "reach": 0.01}, {"stiffness": 100.0, "reach": 0.03}, {"stiffness": 50.0, "reach": 0.1})
STIFFNESS, REACH = (np.array([e[key] for e in ELEMENTS]) for key in ("stiffness", "reach"))


def both(h=0.005, elements=ELEMENTS, **friction):
    """A turning and a sliding axis, each with these elements."""
    keys = {"friction": {"elements": elements, **friction}}
    return bench(h, **dict.fromkeys(BENCH, keys))


def test_before_they_slip_they_are_springs():
    """The same motion as with a spring of their stiffness together."""
    far = [{**e, "reach": 100.0} for e in ELEMENTS]
    springs = {"friction": {}, "spring": {"stiffness": float(STIFFNESS.sum())}}
    runs = []
    for system, params in (both(elements=far), bench(**dict.fromkeys(BENCH, springs))):
        runs.append(simulate(system, params, place(system, params, {}), 3.0))
    np.testing.assert_allclose(runs[0].position, runs[1].position, rtol=1e-9, atol=1e-12)
    assert np.ptp(runs[0].position[-1200:]) > 0.005, "no damping of their own"


def test_slipping_they_are_dry_friction():
    """Drawn along one way, W = sum of stiffness times reach is what they take from the load."""
    system, params = both()
    level = float(STIFFNESS @ REACH)
    run = simulate(system, params, place(system, params, {}), level + 1.0)
    slips = run.position[:, 1] > 1.5 * REACH.max()
    mass = 2.0
    rate = run.rate[slips, 1]
    np.testing.assert_allclose(np.diff(rate)[:-1] / 0.005, 1.0 / mass, rtol=1e-6)


def test_they_hold_what_is_below():
    """Under less than W the axis comes to rest where the springs carry the load, and stays."""
    system, params = both(viscous=8.0)
    run = simulate(system, params, place(system, params, {}), 3.0)
    assert np.abs(run.rate[-100:]).max() < 1e-9
    forces = run.element_forces[-1].reshape(2, 3)
    np.testing.assert_allclose(forces.sum(axis=1), -3.0, rtol=1e-9)
    assert np.all(np.abs(forces) <= STIFFNESS * REACH * (1 + 1e-9))


def force_error(h: float) -> float:
    """Largest difference of the forces on both axes to those of `models.ElastoSlide` along the same displacements."""
    system, params = both(h)
    t = h * np.arange(2400)
    load = 6.0 * np.sin(3.0 * t) * np.sin(0.7 * t + 0.5)
    run = simulate(system, params, place(system, params, {}), np.stack([load, load], axis=1))
    errors = []
    for axis, mine in ((0, [0, 1, 2]), (1, [3, 4, 5])):
        model = ElastoSlide(STIFFNESS, REACH, h)
        x0, samples = recording(run.position[1:-1, axis], np.zeros(len(t) - 1))
        states = model.simulate(np.zeros(0), Blocks(jnp.zeros(3), x0.u), samples)
        p = model.prepare(jnp.zeros(0))
        forces = np.asarray(jax.vmap(lambda x, p=p, model=model: model.force(x, p))(states))
        there = t[1:-1] < 4.5  # the same motion at both steps
        errors.append(np.abs(forces[:-1] + run.element_forces[1:-1, mine].sum(axis=1))[there[: len(forces) - 1]].max())
    return max(errors)


def test_forces_are_those_of_the_model():
    """To second order in the step, along a motion that turns many times."""
    coarse, fine = force_error(0.004), force_error(0.002)
    # the mean of three deflections differs from the one between by h^2 / 4 times the acceleration, at most 6 / 0.2
    assert coarse < STIFFNESS.sum() * 0.004**2 / 4 * (6.0 / 0.2)
    assert coarse / fine > 3


def test_they_only_take_energy():
    """Of a body thrown against them: kinetic energy and that of the springs never rise, and end in the springs."""
    system, params = both(0.002)
    run = simulate(system, params, place(system, params, {key: {"rate": 3.0} for key in BENCH}))
    springs = (run.element_forces**2).reshape(-1, 2, 3) / (2 * STIFFNESS)
    energy = np.array([0.2, 2.0]) / 2 * run.rate[:-1] ** 2 + springs.sum(axis=2)
    assert np.max(np.diff(energy[1:], axis=0)) < 1e-3 * energy[1].max()
    assert np.all(energy[-1] < (STIFFNESS * REACH**2 / 2).sum())


@pytest.mark.slow
def test_every_axis_of_every_joint_has_them():
    """Their force on each is what slips there; those of a ball joint share their numbers."""
    element = {"stiffness": 10.0, "reach": 0.5 * U / 10.0}
    system, params = rack(along={"friction": {"elements": [element]}})
    for names in turns():
        found, _ = moved(system, params, names, driven(names, 2 * U))
        for name, (x, rate) in found.items():
            if name != "screw":
                late = slice(200, 300)
                expected = 1.5 * U / inertia(system, name)
                np.testing.assert_allclose(np.diff(rate[late]) / 0.005, expected, rtol=1e-4, err_msg=name)
                assert x[200] > 2 * element["reach"]
    places = [path for path in paths(system) if path.startswith("joints.ball.") and "elements" in path]
    assert places == [f"joints.ball.friction.elements.0.{key}" for key in ("stiffness", "reach")]
    changed = locate(system, places[1]).set(params, jnp.asarray(7.0))
    assert int(np.sum(np.asarray(changed.element_reach) == 7.0)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("load", [1.0, 3.0])
def test_gradients(load):
    """By stiffness, reach, start and load: all stick, some slip."""
    system, params = both(coulomb=0.1)

    def loss(x):
        changed = eqx.tree_at(lambda p: (p.element_stiffness, p.element_reach), params, (x[:6], x[6:12]))
        q, v, u = x[12:].reshape(3, 2)
        start = {name: {"position": q[i], "rate": v[i]} for i, name in enumerate(BENCH)}
        state = state_from_joints(system, changed, start)
        end = rollout(system, changed, state, jnp.broadcast_to(u, (40, 2)), throw=False)
        return jnp.array([1.0, 0.7]) @ end.position[-1] + jnp.array([0.3, 0.5]) @ end.rate[-1]

    x = np.concatenate([np.tile(STIFFNESS, 2), np.tile(REACH, 2), [0.1, 0.2], [0.3, -0.2], [load, 1.1 * load]])
    gradient_matches(*slope_and_values(loss), x)
