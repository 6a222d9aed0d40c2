"""Contact problems with known answers, of bodies that joints guide: what slides, what rolls, what jams."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import DOWN, compiled, mechanism, place

from spookax._results import STEP_RESULTS
from spookax.constraints import prepare
from spookax.stepping import rollout
from spookax.stepping.march import march

G, MU = 9.81, 0.5


@functools.partial(compiled, static_argnums=0)
def _speed_after_a_second(system, params, state):
    return rollout(system, params, state, jnp.zeros((200, 0))).rate[-1, :2]


@pytest.mark.parametrize("turned", [0.0, 11.0, 30.0, 45.0])
@pytest.mark.parametrize("part", [0.99, 1.01, 1.3])
def test_friction_of_a_plane_is_a_disc(turned, part):
    """A block on a slope of `part` mu, with `x_axis` turned from the slope: below mu it creeps, above it slides
    straight down, with g (sin - mu cos).
    """
    slope, turn = np.arctan(part * MU), np.radians(turned)
    friction = {"friction": {"bearing": MU}}
    system, params = mechanism(
        0.005,
        (G * np.sin(slope) * np.cos(turn), G * np.sin(slope) * np.sin(turn), -G * np.cos(slope)),
        bodies={"block": {"mass": 1.0, "inertia": (0.01, 0.01, 0.01)}},
        joints={"slope": {"type": "planar", "child": "block", "axes": {"x": friction, "y": friction}}},
    )
    speed = _speed_after_a_second(system, params, place(system, params))
    along = np.array([np.cos(turn), np.sin(turn)])
    down = G * max(np.sin(slope) - MU * np.cos(slope), 0.0)
    # after one second; what is held creeps, and a disc lets what slides be faster by that at most
    np.testing.assert_allclose(speed, down * along, rtol=1e-9, atol=1.001e-6)


@pytest.mark.slow
def test_a_sphere_slips_until_it_rolls():
    """On a light plate that may slide: at u / (7/2 a) it rolls on with 5/7 of its speed u, slowed down by a before,
    which is mu g but for what the plate takes of it.
    """
    r, u, plate, step = 0.1, 2.0, 0.01, 0.001
    system, params = mechanism(
        step,
        DOWN,
        bodies={
            "ball": {"mass": 1.0, "inertia": (0.4 * r**2,) * 3},
            "plate": {"mass": plate, "inertia": (plate * r**2,) * 3},
        },
        joints={
            "skid": {"type": "prismatic", "child": "plate", "axis": (1, 0, 0), "friction": {"bearing": MU}},
            "rolls": {"type": "rolling_sphere", "parent": "plate", "child": "ball", "radius": r, "x_axis": (1, 0, 0)},
        },
    )
    start = place(system, params, {"skid": {"rate": u}})
    trajectory = compiled(lambda p, s: rollout(system, p, s, jnp.zeros((200, 0))))(params, start)
    speed, slip = np.asarray(trajectory.v)[:, 0, 0], np.asarray(trajectory.joint("skid")[1])
    a = MU * G * (1 + plate) / (1 + 3.5 * plate)
    assert (speed[0] - speed[100]) / (100 * step) == pytest.approx(a, rel=1e-6)
    assert np.argmax(np.abs(slip) < 1e-4) * step == pytest.approx(u / (3.5 * a), abs=1.5 * step)
    assert speed[-1] == pytest.approx(5 / 7 * u, rel=1e-5)
    assert np.asarray(trajectory.w)[-1, 0, 1] == pytest.approx(5 / 7 * u / r, rel=1e-5)


@pytest.mark.slow  # a loop of five bodies is compiled
def test_a_box_that_is_pushed_rolls_on_balls():
    """SimBenchmark's rolling test: it goes where it is pushed, F / (M + n m 7/20), the balls half as far. (Published
    for ODE and DART: a constant error of 3.14, the box does not move in the direction of the push.)
    """
    r, box, ball, force = 0.1, 10.0, 1.0, 20.0 * np.array([np.cos(0.6), np.sin(0.6)])
    corners = {f"ball_{i}": (0.3 * x, 0.3 * y) for i, (x, y) in enumerate([(1, 1), (1, -1), (-1, 1), (-1, -1)])}
    rolls = {"type": "rolling_sphere", "radius": r, "x_axis": (1, 0, 0)}
    system, params = mechanism(
        0.005,
        DOWN,
        bodies={"box": {"mass": box, "inertia": (1.0, 1.0, 1.0)}}
        | {name: {"mass": ball, "inertia": (0.4 * ball * r**2,) * 3} for name in corners},
        joints={f"ground_{name}": {**rolls, "child": name, "at": (*at, 0)} for name, at in corners.items()}
        | {
            f"box_{name}": {**rolls, "parent": "box", "child": name, "axis": (0, 0, -1), "at": (*at, -0.1)}
            for name, at in corners.items()
        },
    )
    push = jnp.zeros((400, 5, 6)).at[:, 0, :2].set(force)
    run = compiled(lambda p, s: rollout(system, p, s, jnp.zeros((400, 0)), wrenches=push))
    trajectory = run(params, place(system, params))
    r_W, t = np.asarray(trajectory.r), np.asarray(trajectory.time)[:, None]
    way = force / (box + 4 * ball * 7 / 20) * t**2 / 2  # 3.5 m
    np.testing.assert_allclose(r_W[:, 0, :2], way, rtol=0, atol=1e-6)
    np.testing.assert_allclose(r_W[:, 1:, :2] - r_W[0, 1:, :2], np.repeat(way[:, None] / 2, 4, 1), rtol=0, atol=1e-6)
    np.testing.assert_allclose(r_W[:, 0, 2], 0.3, rtol=0, atol=2e-6)


def test_the_rod_of_painleve():
    """A rod whose end is guided along a floor, mu = 1.5: dragged one way, its end presses on the guide with
    m g / (1 + 3 c (c + mu s)); pushed the other way with m g / (1 + 3 c (c - mu s)), which from 50.7 to 73 degrees is
    no solution, and there it jams at once. Always: a step that succeeds, mu |N| of friction, and no energy gained.
    """
    lever, mu, step, count = 0.5, 1.5, 0.001, 300
    inertia = lever**2 / 3
    system, params = mechanism(
        step,
        DOWN,
        bodies={"rod": {"mass": 1.0, "com": (lever, 0, 0), "inertia": (1e-3, inertia, inertia)}},
        joints={
            "tip": {
                "type": "generic",
                "locked": ["y", "z", "rx", "rz"],
                "child": "rod",
                "axes": {"x": {"friction": {"bearing": mu}}},
            }
        },
    )

    @compiled
    def run(params, state):
        prepared, none = prepare(system, params), jnp.zeros((count, 0))
        return rollout(system, params, state, none, throw=False), march(system, prepared, state, none).info

    for degrees in (30.0, 45.0, 50.8, 55.0, 65.0, 72.9, 80.0):
        for way in (1.0, -1.0):
            case = f"{degrees} degrees, {way:+} m/s"
            angle = np.radians(degrees)
            given = {"tip.x": {"rate": way}, "tip.ry": {"position": -angle}}
            trajectory, info = run(params, place(system, params, given))
            assert trajectory.result == STEP_RESULTS.successful, case
            v, w, r = (np.asarray(a)[:, 0] for a in (trajectory.v, trajectory.w, trajectory.r))
            energy = 0.5 * np.sum(v**2, axis=1) + 0.5 * inertia * w[:, 1] ** 2 + G * r[:, 2]
            assert np.max(energy) - energy[0] < 1e-9, case
            pressing = np.linalg.norm(info.joint_impulses[:, 0, :2], axis=1)
            rubbing = np.asarray(info.levels)[:, 0] * mu * pressing
            np.testing.assert_allclose(info.box_impulses[:, 0], rubbing, rtol=1e-10, atol=1e-14, err_msg=case)
            share = 1 + 3 * np.cos(angle) * (np.cos(angle) + way * mu * np.sin(angle))
            if share > 0:
                assert pressing[0] / step == pytest.approx(G / share, rel=3e-3), case
            else:
                assert 50.7 < degrees < 73, case
                assert np.abs(np.asarray(trajectory.joint("tip.x")[1])[5:]).max() < 1e-2, case
