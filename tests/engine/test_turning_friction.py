"""Friction against spinning and rolling: closed forms, what it holds, both kinds of pairs, and derivatives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import compiled, missing, pushed

from spookax import load
from spookax.constraints import prepare
from spookax.scene import Scene
from spookax.stepping import rollout

pytestmark = pytest.mark.quick

RADIUS, MASS, ROLLING, SPINNING, G = 0.1, 2.0, 0.004, 0.006, 9.81
INERTIA = 0.4 * MASS * RADIUS**2
H = 0.002


def balls(*starts, tilt=0.0, slots=None, passes=3, **material):
    """Balls on a floor with friction against turning, of which any two may touch."""
    body = {"mass": MASS, "inertia": (INERTIA,) * 3}
    bodies = {
        f"b{i}": {**body, "initial": {"position": (0, 0.5 * i, RADIUS), **start}} for i, start in enumerate(starts)
    }
    surfaces = {name: {"type": "sphere", "body": name, "radius": RADIUS} for name in bodies}
    numbers = {"spinning_friction": SPINNING, "rolling_friction": ROLLING, **material}
    contacts = {"surfaces": {"floor": {"type": "plane"}, **surfaces}, "materials": {"default": numbers}}
    contacts |= {"slots": slots, "passes": passes}
    gravity = (G * np.sin(tilt), 0, -G * np.cos(tilt))
    return Scene(spookax=1, step=H, gravity=gravity, bodies=bodies, contacts=contacts)


def run(scene, steps):
    system, params, state = load(scene)
    return system, params, rollout(system, params, state, jnp.zeros((steps, 0)))


ROLLS = {"velocity": (0.5, 0, 0), "angular_velocity": (0, 0.5 / RADIUS, 0)}
SPINS = {"angular_velocity": (0, 0, 8.0)}


@pytest.mark.parametrize("slots", [None, pytest.param(4, marks=pytest.mark.slow)])
def test_a_ball_rolls_out_and_a_top_runs_down(slots):
    """Both lose speed as the closed forms say; in slots, too."""
    system, _, found = run(balls(ROLLS, SPINS, {}, {}, slots=slots), 200)
    assert bool(system.contacts.slots) == (slots is not None)
    rolling = 5 / 7 * ROLLING * G / RADIUS
    time = H * np.arange(201)
    middle = slice(20, 201)
    slope = np.polyfit(time[middle], np.asarray(found.v[middle, 0, 0]), 1)[0]
    np.testing.assert_allclose(slope, -rolling, rtol=2e-3)
    slope = np.polyfit(time[middle], np.asarray(found.w[middle, 1, 2]), 1)[0]
    np.testing.assert_allclose(slope, -SPINNING * MASS * G / INERTIA, rtol=2e-3)
    heights = np.asarray(found.r[:, :, 2])
    assert np.abs(heights - RADIUS).max() < 2e-5, "what turns does not rise"
    np.testing.assert_allclose(found.v[:, 2:, :2], 0, atol=1e-9)


@pytest.mark.slow
def test_it_stops_and_holds_on_a_slope_below_its_limit():
    """Rolling friction holds a ball where the slope is less than its coefficient over the radius."""
    ends = []
    for part in (0.95, 1.1):
        _, _, found = run(balls({}, tilt=np.arctan(part * ROLLING / RADIUS)), 500)
        ends.append(float(found.v[-1, 0, 0]))
    expected = 5 / 7 * G * (np.sin(np.arctan(1.1 * ROLLING / RADIUS)) - ROLLING / RADIUS)
    assert abs(ends[0]) < 1e-3 * expected
    np.testing.assert_allclose(ends[1], 500 * H * expected, rtol=0.02)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_derivatives_and_inverse_dynamics_know_it():
    """Of a ball that rolls and spins, one that slips and one that is held; both modes against central differences."""
    both = {"velocity": (0.5, 0.1, 0), "angular_velocity": (-1.0, 5.0, 3.0)}
    slips = {"velocity": (1.0, 0, 0), "angular_velocity": (0, 2.0, 4.0)}
    system, params, ahead = run(balls(both, slips, {"velocity": (1e-4, 0, 0)}, passes=1), 10)
    state = ahead.state

    @jax.jit
    def after(x):
        moved = eqx.tree_at(lambda s: (s.v, s.w), state, (state.v + x[None, :3], state.w + x[None, 3:6]))
        p = eqx.tree_at(
            lambda p: (p.material_friction, p.material_rolling, p.material_spinning),
            params,
            (params.material_friction + x[6], params.material_rolling + x[7], params.material_spinning + x[8]),
        )
        moved = pushed(system, prepare(system, p), moved, 2)
        return jnp.concatenate([moved.r, moved.v, moved.w], axis=-1).ravel()

    forward = np.asarray(compiled(jax.jacfwd(after))(jnp.zeros(9)))
    points = 3e-6 * np.concatenate([np.eye(9), -np.eye(9)])
    values = np.asarray(jax.jit(jax.vmap(after))(points))
    differences = (values[:9] - values[9:]).T / 6e-6
    scale = np.maximum(1.0, np.abs(forward).max(axis=0))
    assert np.all(np.abs(forward[:, 6:]).max(axis=0) > 1e-3)
    np.testing.assert_allclose(forward / scale, differences / scale, rtol=0, atol=1e-6)
    reverse = np.asarray(compiled(jax.jacrev(after))(jnp.zeros(9)))
    np.testing.assert_allclose(reverse / scale, forward / scale, rtol=0, atol=1e-9)
    assert np.abs(missing(system, params, state)).max() < 1e-9


def test_a_negative_one_is_refused():
    with pytest.raises(ValueError, match=r"contacts.materials.default.rolling_friction\s+Input should be greater"):
        balls({}, rolling_friction=-0.1)
