"""Rolling without slip: closed forms of spheres and discs, and what a turntable does to a ball."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import compiled, engine_states, mechanism, place, quaternion_matrix, simulate

from spookax.stepping import rollout, state_from_joints
from spookax.system import locate

R = 0.1  # m
SLOPE = (0.3, -1.0, -9.81)  # gravity seen from the plane


def roller(kind, gravity, step=0.002, **body):
    return mechanism(
        step,
        gravity,
        bodies={"roller": {"mass": 2.0, "inertia": (8e-3, 8e-3, 8e-3)} | body},
        joints={"ground": {"type": kind, "child": "roller", "radius": R, "x_axis": (1, 0, 0)}},
    )


def test_a_sphere_rolls_down_a_slope():
    """It accelerates by g / (1 + J / m r^2) across and down, and turns as far as it comes."""
    system, params = roller("rolling_sphere", SLOPE)
    trajectory = simulate(system, params, place(system, params, {"ground.x": {"position": -0.4, "rate": -0.5}}))
    share = 1 / (1 + 8e-3 / (2.0 * R**2))
    t = trajectory.time
    np.testing.assert_allclose(trajectory.joint("ground.x")[0], -0.4 - 0.5 * t + SLOPE[0] * share * t**2 / 2, atol=1e-9)
    np.testing.assert_allclose(trajectory.joint("ground.y")[0], SLOPE[1] * share * t**2 / 2, rtol=0, atol=1e-9)
    np.testing.assert_allclose(trajectory.r[:, 0, 2], R, rtol=0, atol=1e-9)


@pytest.mark.parametrize("heading", [0.0, 0.7])
def test_a_disc_leans_as_it_is_told(heading):
    """Its height follows from the lean, not the lean from the height that it had upright."""
    system, params = roller("rolling_disc", (0, 0, -9.81))
    lean, turn = 0.5, np.array([0.0, np.cos(heading), np.sin(heading)])
    given = {f"ground.{axis}": lean * c for axis, c in zip(("rx", "ry", "rz"), turn, strict=True)}
    state = place(system, params, given | {"ground.x": 0.3})
    np.testing.assert_allclose(state.e[0], [np.cos(lean / 2), *(np.sin(lean / 2) * turn)], rtol=0, atol=1e-8)
    axle = quaternion_matrix(np.asarray(state.e))[0, :, 0]
    np.testing.assert_allclose(state.r[0, 2], R * np.sqrt(1 - axle[2] ** 2), rtol=0, atol=1e-10)


def test_a_disc_rolls_down_a_slope_and_not_along_its_axle():
    system, params = roller("rolling_disc", (0.0, -1.0, -9.81))
    trajectory = simulate(system, params, place(system, params))
    share = 1 / (1 + 8e-3 / (2.0 * R**2))
    np.testing.assert_allclose(trajectory.joint("ground.y")[0], -share * trajectory.time**2 / 2, rtol=0, atol=1e-9)
    assert np.abs(trajectory.joint("ground.x")[0]).max() < 1e-9


def test_a_ball_on_a_turntable_goes_in_circles():
    """At 2/7 of its speed if it is solid, wherever it starts (Earnshaw 1844): the plane moves, too."""
    speed, mass = 6.0, 0.2
    system, params = mechanism(
        0.002,
        (0, 0, -9.81),
        bodies={
            "table": {"mass": 1e6, "inertia": (1e6, 1e6, 1e6)},
            "ball": {"mass": mass, "inertia": (0.4 * mass * R**2,) * 3},
        },
        joints={
            "shaft": {"type": "hinge", "child": "table"},
            "rolls": {"type": "rolling_sphere", "parent": "table", "child": "ball", "radius": R, "x_axis": (1, 0, 0)},
        },
    )
    start = {"shaft": {"rate": speed}, "rolls.x": {"position": 0.3, "rate": 0.2}}
    trajectory = simulate(system, params, place(system, params, start))
    xy, t = trajectory.r[:, 1, :2], trajectory.time
    # the velocity turns at 2/7 of the table's speed: its angle is that of a straight line
    velocity = np.gradient(xy, t, axis=0)[2:-2]
    angle = np.unwrap(np.arctan2(velocity[:, 1], velocity[:, 0]))
    assert np.polyfit(t[2:-2], angle, 1)[0] == pytest.approx(2 / 7 * speed, rel=1e-4)
    size = np.linalg.norm(velocity, axis=1)
    assert size.max() / size.min() - 1 < 2e-3


def read(states, params, count):
    """Energy, what the height is off, and the speed of the point that touches the plane, of a disc at every pose."""
    mean = [(a[1 : count + 1, 0] + a[:count, 0]) / 2 for a in (states.v, states.w)]
    R_W = quaternion_matrix(states.e[:count, 0])
    axle, up, height = R_W[:, :, 0], np.array([0.0, 0.0, 1.0]), states.r[:count, 0, 2]
    down = -up + (axle @ up)[:, None] * axle
    contact = R * down / np.linalg.norm(down, axis=1, keepdims=True)
    slip = mean[0] + np.cross(np.einsum("kij,kj->ki", R_W, mean[1]), contact)
    J = np.asarray(params.inertia)[0, :3]
    energy = 0.5 * 2.0 * np.sum(mean[0] ** 2, axis=1) + 0.5 * np.sum(J * mean[1] ** 2, axis=1) + 2.0 * 9.81 * height
    return energy, height + contact[:, 2], np.linalg.norm(slip, axis=1)


def test_a_wobbling_disc_keeps_its_energy_and_does_not_slip():
    """Leaning and turning at once; energy and slip to second order at least, height to third."""
    errors = []
    for h in (0.002, 0.001):
        system, params = roller("rolling_disc", (0, 0, -9.81), h, inertia=(1e-2, 5e-3, 5e-3))
        states = engine_states(system, params, place(system, params, {"ground.y": {"rate": 0.8}, "ground.ry": 0.5}))
        count = round(1.5 / h)
        energy, gap, slip = read(states, params, count)
        assert np.ptp(states.r[:count, 0, 2]) > 0.2 * R, "it wobbles"
        errors.append([np.ptp(energy) / (2.0 * 9.81 * R), np.abs(gap).max() / R, slip.max() / 0.8])
    assert np.all(np.array(errors[0]) < 2e-3), errors
    energy, gap, slip = np.array(errors[0]) / errors[1]
    assert energy > 3.5
    np.testing.assert_allclose(gap, 8, rtol=0.15)
    np.testing.assert_allclose(slip, 4, rtol=0.15)


@pytest.mark.slow
def test_rolling_resistance_grows_with_the_weight():
    """`bearing` on x and y: the ball slows down by mu g / (1 + J / m r^2) and then rests on the slope."""
    mu = 0.02
    system, params = mechanism(
        0.002,
        (0.0, -0.1, -9.81),
        bodies={"ball": {"mass": 2.0, "inertia": (8e-3, 8e-3, 8e-3)}},
        joints={
            "ground": {
                "type": "rolling_sphere",
                "child": "ball",
                "radius": R,
                "axes": {c: {"friction": {"bearing": mu}} for c in "xy"},
            }
        },
    )
    trajectory = simulate(system, params, place(system, params, {"ground.y": {"rate": 0.5}}))
    t, rate = trajectory.time, trajectory.joint("ground.y")[1]
    brake = (mu * 9.81 + 0.1) / (1 + 8e-3 / (2.0 * R**2))
    moving = t < 0.5 / brake - 0.01
    np.testing.assert_allclose(rate[moving][1:], 0.5 - brake * t[moving][1:], rtol=0, atol=1e-4)
    assert np.abs(rate[t > 0.5 / brake + 0.01]).max() < 1e-6


@pytest.mark.slow
def test_the_radius_is_a_parameter_with_a_derivative():
    """d y / d r of the closed form of the slope, through `Params`."""
    system, params = roller("rolling_sphere", SLOPE)
    place_of = locate(system, "joints.ground.radius")

    def end(r):
        changed = place_of.set(params, r)
        state = state_from_joints(system, changed)
        return rollout(system, changed, state, np.zeros((100, 0)), throw=False).position[-1, 1]

    t = 0.2
    J, m = 8e-3, 2.0
    expected = SLOPE[1] * t**2 / 2 * (2 * J / (m * R**3)) / (1 + J / (m * R**2)) ** 2
    assert compiled(jax.grad(end))(jnp.asarray(R)) == pytest.approx(expected, rel=1e-6)
