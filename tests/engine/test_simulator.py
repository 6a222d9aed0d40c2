"""A simulator steps as `rollout` does, alone and in company; what goes wrong has a name."""

import functools
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import DOWN, compiled, mechanism, place

import spookax as sx
from spookax._compiled import PLAIN
from spookax._results import STEP_RESULTS
from spookax.math.written_out import written_out

pytestmark = pytest.mark.quick
ROOT = Path(__file__).parents[2]
SCENES = [*sorted((ROOT / "scenes").glob("*.yaml")), ROOT / "demo/furuta.yaml"]
STEPS = 40


@pytest.fixture(scope="module")
def rig():
    """A slider-crank with dry friction, a motor with a largest force and a stop of the slider."""
    bar = {"mass": 0.4, "com": (0.1, 0, 0), "inertia": (1e-3, 2e-3, 2e-3)}
    hinge = {"type": "hinge", "axis": (0, 1, 0)}
    return mechanism(
        0.002,
        DOWN,
        bodies={"crank": bar, "rod": bar, "slider": {"mass": 0.5, "inertia": (0.01,) * 3}},
        joints={
            "base": {**hinge, "child": "crank", "friction": {"coulomb": 0.01, "viscous": 1e-3}},
            "knee": {**hinge, "parent": "crank", "child": "rod", "at": (0.15, 0, 0)},
            "rail": {"type": "prismatic", "child": "slider", "axis": (1, 0, 0), "limits": {"upper": 0.44}},
            "pin": {**hinge, "parent": "rod", "child": "slider", "at": (0.3, 0, 0)},
        },
        motors={
            "drive": {"type": "torque", "joint": "base", "gain": 2.0},
            "pull": {"type": "velocity", "joint": "rail", "damping": 20.0, "max_force": 5.0},
        },
    )


@pytest.fixture(scope="module")
def five(rig):
    """Five environments with masses of their own: parameters, states, controls."""
    system, params = rig
    given = [
        {"base": {"position": q, "rate": v}}
        for q, v in zip((-0.5, -0.4, -0.3, -0.6, 0.5), (0.5, 1, 3, 5, 0), strict=True)
    ]
    states = _together([place(system, params, joints) for joints in given])
    own = eqx.tree_at(lambda p: p.mass, _together([params] * 5), np.outer(np.linspace(0.8, 1.2, 5), params.mass))
    controls = np.random.default_rng(0).normal(size=(5, STEPS, 2))
    return own, states, controls


@pytest.fixture(scope="module")
def moved(rig, five):
    """What `rollout` makes of each of them."""
    run = compiled(functools.partial(sx.rollout, rig[0]))
    return _together([run(*(_of(part, k) for part in five)) for k in range(5)])


@pytest.fixture(scope="module")
def alone(rig, five):
    own, states, _ = five
    return sx.Simulator(rig[0], _of(own, 3), _of(states, 3))


@pytest.fixture(scope="module")
def together(rig, five):
    return sx.Simulator(rig[0], *five[:2])


def _together(trees):
    return jax.tree.map(lambda *a: np.stack(a), *trees)


def _of(tree, k):
    return jax.tree.map(lambda a: a[k], tree)


def _close(found, expected, dtype=np.float64, digits=2 / 3):
    """Equal to such a part of the digits of the largest."""
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=np.finfo(dtype).eps ** digits * (1 + np.max(np.abs(expected), initial=0))
    )


def _follow(simulator, trajectory, controls, dtype=np.float64, digits=2 / 3):
    """Steps under all of the controls; positions as in the trajectory, the last rate, too."""
    _close(simulator.reset().position, trajectory.position[0], dtype, digits)
    for k, control in enumerate(controls, 1):
        _close(simulator.step(control).position, trajectory.position[k], dtype, digits)
    _close(simulator.rate, trajectory.rate[-1], dtype, digits)
    _close(simulator.state.v, trajectory.state.v, dtype, digits)
    assert np.isclose(simulator.time, trajectory.time[-1])


def test_one_moves_as_in_a_rollout(alone, moved, five):
    assert np.max(np.abs(_of(moved, 3).stop_forces)) > 0, "no stop is touched: nothing is tested there"
    assert np.max(np.abs(_of(moved, 3).friction)) > 0.99, "nothing slides"
    _follow(alone, _of(moved, 3), five[2][3])


def test_many_move_as_in_rollouts(together, moved, five):
    _close(together.reset().position, moved.position[:, 0])
    for k in range(STEPS):
        _close(together.step(five[2][:, k]).position, moved.position[:, k + 1])
    _close(together.rate, moved.rate[:, -1])
    _close(together.state.w, moved.state.w)


def test_repeated_steps_are_steps(alone):
    alone.reset()
    one_by_one = [alone.step([0.2, 0.1]) for _ in range(7)][-1]
    alone.reset()
    at_once = alone.step([0.2, 0.1], repeat=7)
    _close(at_once.position, one_by_one.position)
    _close(at_once.rate, one_by_one.rate)


def test_a_state_goes_on(alone):
    """Under the same command, from its leap-frog state."""
    alone.reset()
    alone.step([0.2, 0.1], repeat=5)
    between = alone.state
    there = alone.step([0.2, 0.1], repeat=5)
    again = alone.reset(between, half_kick=False)
    _close(again.position, alone.position)
    _close(alone.step([0.2, 0.1], repeat=5).position, there.position)


def test_some_are_reset(together):
    start = together.reset()
    moved = together.step(repeat=9)
    which = np.array([True, False, False, True, False])
    mixed = together.reset(which=which)
    _close(mixed.position, np.where(which[:, None], start.position, moved.position))
    _close(mixed.time, np.where(which, 0.0, moved.time))
    later = together.step(repeat=9)
    _close(later.position[which], moved.position[which])
    with pytest.raises(ValueError, match="mask of environments"):
        together.reset(which=[0, 3])


def test_other_parameters_compile_nothing(rig, five, alone, moved):
    own, states, controls = five
    alone.set_parameters(_of(own, 1))
    alone.reset(_of(states, 1))
    for control in controls[1]:
        alone.step(control)
    _close(alone.position, moved.position[1, -1])
    with pytest.raises(ValueError, match="other shapes"):
        alone.set_parameters(own)
    alone.set_parameters(_of(own, 3))
    alone.reset(_of(states, 3))


def test_controls_that_are_wrong(five, alone, together):
    alone.reset(_of(five[1], 3))  # whatever another test gave
    before = alone.step([0.1, 0.0])
    with pytest.raises(ValueError, match=r"shape \(2,\) \(motors: drive, pull\), got \(3,\)"):
        alone.step([0.1, 0.0, 0.0])
    with pytest.raises(RuntimeError, match=r"at 0\.002 s failed: the command of `drive` is not a finite number"):
        alone.step([np.nan, 0.0])
    assert alone.result != STEP_RESULTS.successful
    _close(alone.position, before.position)  # the step is not taken
    assert np.all(np.isfinite(alone.step([0.1, 0.0]).rate))
    assert alone.result == STEP_RESULTS.successful
    controls = np.zeros((5, 2))
    controls[2, 1] = np.inf
    together.reset()
    with pytest.raises(RuntimeError, match="environment 2 at 0 s failed: the command of `pull`"):
        together.step(controls)
    assert np.array_equal(np.asarray(together.time) > 0, [True, True, False, True, True])


def test_a_failure_is_a_value(rig, five):
    own, states, _ = five
    heavy = eqx.tree_at(lambda p: p.mass, _of(own, 0), jnp.full(3, jnp.nan))
    simulator = sx.Simulator(rig[0], heavy, _of(states, 0), throw=False)
    reading = simulator.step()
    assert reading.time == 0
    assert "Look for a zero mass" in STEP_RESULTS[simulator.result] or "Check masses" in STEP_RESULTS[simulator.result]


def test_leading_axes_that_differ(rig, five):
    own, states, _ = five
    with pytest.raises(ValueError, match="parameters of 5 mechanisms and states of 4 environments"):
        sx.Simulator(rig[0], own, jax.tree.map(lambda a: a[:4], states))


def test_reductions_are_written_out():
    """None is left in loops and branches, and the numbers are the same."""

    def sums(x):
        def body(k, x):
            return jax.lax.cond(jnp.all(x > 0), lambda x: x / jnp.sum(x), lambda x: x + jnp.max(x), x)

        return jax.lax.fori_loop(0, 3, body, x)

    x = jnp.array([0.3, -0.2, 0.7])
    plain = jax.jit(written_out(sums))
    assert "reduce" in jax.jit(sums).lower(x).as_text()
    assert "reduce" not in plain.lower(x).as_text()
    _close(plain(x), sums(x))


@pytest.mark.slow
@pytest.mark.parametrize("bits", [64, 32])
@pytest.mark.parametrize("path", SCENES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_scene(path, bits, monkeypatch):
    if path.parent.name == "demo":  # one of them with all of XLA's passes
        monkeypatch.setitem(PLAIN, "xla_backend_optimization_level", 3)
    with jax.enable_x64(bits == 64):
        dtype = np.float64 if bits == 64 else np.float32
        system, params, state = sx.load(path)
        controls = np.random.default_rng(0).normal(size=(STEPS, len(system.motors))).astype(dtype)
        trajectory = sx.rollout(system, params, state, controls)
        # joints of a plane loop say some things twice; in 32 bits only their compliance, of the size of rounding, keeps
        # these rows apart, and solving for them costs half of the digits
        digits = 1 / 2 if bits == 32 and len(system.joints) > system.num_bodies else 2 / 3
        _follow(sx.Simulator(system, params, state), trajectory, controls, dtype, digits)
        states = jax.tree.map(lambda a: jnp.stack([a] * 3), state)
        many = sx.Simulator(system, params, states)
        for control in controls:
            many.step(np.tile(control, (3, 1)))
        _close(many.position, np.tile(trajectory.position[-1], (3, 1)), dtype, digits)


def test_inline_calls_come_before_the_first_array():
    jnp.zeros(1)
    with pytest.raises(RuntimeError, match="before the first array"):
        sx.enable_inline_calls()
