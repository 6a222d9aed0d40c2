"""Contact problems with known answers, of bodies that joints guide: slopes, bouncing balls, Newton's cradle."""

import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import DOWN, compiled, mechanism, place, simulate

from spookax.constraints import prepare
from spookax.stepping import rollout
from spookax.stepping.march import march

MU = 0.5


@pytest.mark.parametrize(
    ("slope", "acceleration"),
    [(1.0, 0.0), (1.001, 9.81 * 0.5 * 0.001 / np.sqrt(1 + 0.5005**2)), (1.3, 9.81 * 0.15 / np.sqrt(1 + 0.65**2))],
)
def test_a_block_on_a_slope_sticks_up_to_the_coefficient_of_friction(slope, acceleration):
    """Tangent of the slope in units of mu = 0.5: friction is mu times the force of the guide, g cos here. The
    accelerations 4.38629e-3 and 1.23377 m/s^2 are those of the rigid body.
    """
    angle = np.arctan(MU * slope)
    axis = (float(np.cos(angle)), 0.0, -float(np.sin(angle)))
    system, params = mechanism(
        0.005,
        DOWN,
        bodies={"block": {"mass": 1.0, "inertia": (0.01, 0.01, 0.01)}},
        joints={"slope": {"type": "prismatic", "child": "block", "axis": axis, "friction": {"bearing": MU}}},
    )
    rate = simulate(system, params, place(system, params)).joint("slope")[1]
    np.testing.assert_allclose(rate[200], acceleration, rtol=1e-10, atol=1.001e-6)  # after one second; it creeps


HEIGHT, MASS, BALLS = 5.0, 10.0, 49  # of SimBenchmark's bouncing test


@pytest.mark.parametrize("h", [0.01, 0.004, 0.001])
def test_bouncing_balls_keep_their_energy(h):
    """Mean square of the energy's error over 20 s, restitution 1: that of a symplectic step, in which velocities belong
    to half a step before the poses, (N m g h / 2)^2 2 g H / 3 = 1.89e4, 3.02e3, 189 J^2. Published for ODE 1.88e4,
    2.98e3, 185, for DART 7.38e6, 1.19e6, 7.23e4.
    """
    system, params = mechanism(
        h,
        DOWN,
        bodies={"ball": {"mass": MASS, "inertia": (1.0, 1.0, 1.0)}},
        joints={"z": {"type": "prismatic", "child": "ball", "limits": {"lower": 0.0, "restitution": 1.0}}},
    )
    start, none = place(system, params, {"z": HEIGHT}), jnp.zeros((round(20 / h), 0))
    states = compiled(lambda p, s: march(system, prepare(system, p), s, none).states)(params, start)
    z, v = np.asarray(states.r)[:, 0, 2], np.asarray(states.v)[:, 0, 2]
    error = BALLS * MASS * (9.81 * (z - HEIGHT) + v**2 / 2)
    floor = (BALLS * MASS * 9.81 * h / 2) ** 2 * 2 * 9.81 * HEIGHT / 3
    assert np.mean(error**2) == pytest.approx(floor, rel=0.03)  # of the prototype 1.94e4, 3.05e3, 191
    fall, count = np.sqrt(2 * HEIGHT / 9.81), np.sum((v[:-1] < 0) & (v[1:] > 0))
    assert abs(count - (20 / fall + 1) / 2) <= 1


@pytest.mark.slow  # five bodies and nine joints are compiled
def test_newtons_cradle_shares_the_blow():
    """Five balls that touch, restitution 1: all impacts at once are one problem, and its answer (-0.6, 4 times 0.4)."""
    diameter, count = 0.1, 5
    at = [-0.02, *(diameter * i - 1e-9 * i for i in range(1, count))]
    system, params = mechanism(
        0.001,
        (0, 0, 0),
        bodies={f"ball_{i}": {"mass": 1.0, "inertia": (0.01, 0.01, 0.01)} for i in range(count)},
        joints={f"x_{i}": {"type": "prismatic", "child": f"ball_{i}", "axis": (1, 0, 0)} for i in range(count)}
        | {
            f"contact_{i}": {
                "type": "line",
                "parent": f"ball_{i}",
                "child": f"ball_{i + 1}",
                "axis": (1, 0, 0),
                "limits": {"lower": diameter, "restitution": 1.0},
            }
            for i in range(count - 1)
        },
    )
    given = {f"x_{i}": {"position": x, "rate": float(i == 0)} for i, x in enumerate(at)}
    start = place(system, params, given)
    last = compiled(lambda p, s: rollout(system, p, s, jnp.zeros((60, 0))).rate[-1])(params, start)
    rates = [float(last[system.axis_of(f"x_{i}")]) for i in range(count)]
    np.testing.assert_allclose(rates, [-0.6, 0.4, 0.4, 0.4, 0.4], rtol=0, atol=1e-5)
