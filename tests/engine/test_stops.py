"""Stops of an axis: nothing passes them, they only push, and impacts keep what Newton's law says."""

import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import U, compiled, driven, mechanism, missing, moved, place, rack, simulate, turns

from spookax.complementarity import Replay
from spookax.constraints import prepare
from spookax.stepping import rollout, step
from spookax.system import BoxKind

RANGE = 0.2  # rad, m
H = 0.001


def stops(restitution=0.0):
    return {"limits": {"lower": -RANGE, "upper": RANGE, "restitution": restitution}}


def force_on(system, trajectory, name):
    """Force of both stops of an axis over time."""
    boxes = [system.boxes[i] for i in system.boxes_of(BoxKind.lower, BoxKind.upper)]
    mine = [i for i, row in enumerate(boxes) if row.line == system.axis_of(name)]
    return trajectory.stop_forces[:, mine].sum(axis=1)


def with_stops(system):
    """The sets of `turns` without directions, which have no angle that could be limited."""
    limited = [[name for name in names if system.axes[system.axis_of(name)].stops] for names in turns()]
    return [names for names in limited if names]


@pytest.mark.parametrize("side", [-1, 1])
def test_every_axis_ends_at_its_stop_and_rests_there(side):
    """Against a motor that pushes on, whose force the stop then carries; it has pushed back only."""
    system, params = rack(along=stops())
    for names in with_stops(system):
        found, trajectory = moved(system, params, names, driven(names, side * U))
        for name, (position, rate) in found.items():
            force = force_on(system, trajectory, name)
            assert np.max(side * position) <= RANGE + 1e-6, name
            assert np.all(side * force <= 1e-9), name
            if name != "screw":  # its slide reaches its own stop, too
                assert side * position[-1] == pytest.approx(RANGE, abs=1e-6), name
                assert abs(rate[-1]) < 1e-9, name
                assert side * force[-1] == pytest.approx(-U, rel=1e-6), name


@pytest.mark.slow
@pytest.mark.parametrize("restitution", [0.3, 1.0])
def test_every_axis_bounces_as_its_restitution_says(restitution):
    """Free motion between stops: the speed is multiplied by the restitution at every impact, and nowhere else."""
    system, params = rack(H, along=stops(restitution))
    for names in with_stops(system):
        start = {name: {"position": 0.0, "rate": 1.0} for name in names}
        trajectory = simulate(system, params, place(system, params, start))
        for name in names:
            rate = trajectory.joint(name)[1]
            back = np.flatnonzero(rate[:-1] * rate[1:] < 0)
            assert len(back) >= 2, name
            for bounces, k in enumerate(back, 1):
                speed = (-restitution) ** bounces
                np.testing.assert_allclose(rate[k + 2 : k + 9], speed, rtol=1e-4, err_msg=name)
            position = trajectory.joint(name)[0]
            assert np.abs(position).max() <= RANGE + 1.1 * H, name  # an impact is seen when the stop is passed


BALL = {"bodies": {"ball": {"mass": 1.0, "inertia": (0.1, 0.1, 0.1)}}}
# Event-driven: fall from 1 m, speed after the n-th impact 0.8^n sqrt(2 g), g = 9.81
IMPACTS = np.array([1, *(1 + 2 * np.cumsum(0.8 ** np.arange(1, 6)))]) * np.sqrt(2 / 9.81)
ZENO = np.sqrt(2 / 9.81) * (1 + 0.8) / (1 - 0.8)


def ball(h, restitution):
    floor = {"type": "prismatic", "child": "ball", "limits": {"lower": 0.0, "restitution": restitution}}
    return mechanism(h, (0, 0, -9.81), joints={"z": floor}, **BALL)


def fall(h, restitution):
    system, params = ball(h, restitution)
    trajectory = simulate(system, params, place(system, params, {"z": 1.0}))
    return trajectory.time, *trajectory.joint("z")


def test_a_bouncing_ball_hits_when_it_must_and_comes_to_rest():
    for h in (2e-3, 1e-3, 5e-4):
        time, _, rate = fall(h, 0.8)
        at = time[np.flatnonzero((rate[:-1] < 0) & (rate[1:] > 0))]
        due = IMPACTS[time[-1] - 0.01 > IMPACTS]
        assert len(due) > 1
        late = np.abs(at[: len(due)] - due)
        assert np.all(late < h * (np.arange(len(due)) + 1.5)), "each impact is seen up to a step late, to half a step"
    time, position, rate = fall(2e-3, 0.8)
    rest = time > ZENO + 0.1
    assert np.abs(position[rest]).max() < 1e-4
    assert np.abs(rate[rest]).max() < 1e-9


def test_an_elastic_ball_keeps_its_energy():
    """Energies of the bounces scatter with the phase of the step, by less than m g h |v| / 2; there is no drift."""
    h = 2e-3
    _, position, rate = fall(h, 1.0)
    energy = 9.81 * position + rate**2 / 2
    between = np.abs(np.diff(rate)) < 2 * 9.81 * h  # not the mean of the rates before and after an impact
    drift = energy[1:][between] - 9.81
    assert np.abs(drift).max() < 9.81 * h * np.sqrt(2 * 9.81) / 2


def test_a_rod_that_hits_a_stop_keeps_the_square_of_the_restitution():
    """All of its joint's rates stay zero, the rate of its axis is turned round exactly, whatever the lever."""
    system, params = mechanism(
        H,
        (0, 0, 0),
        bodies={"rod": {"mass": 1.3, "com": (0.4, 0.1, 0), "inertia": (0.01, 0.1, 0.1)}},
        joints={"pin": {"type": "hinge", "child": "rod", "limits": {"upper": 0.5, "restitution": 0.5}}},
        relaxation_steps=1,
    )
    trajectory = simulate(system, params, place(system, params, {"pin": {"position": 0.0, "rate": 2.0}}))
    rate = trajectory.joint("pin")[1]
    hit = np.flatnonzero(rate < 0)[0]
    assert rate[hit + 5] / rate[hit - 5] == pytest.approx(-0.5, rel=1e-4)


@pytest.mark.slow
def test_a_bounce_is_found_again_backwards_and_in_a_replay():
    """Inverse dynamics of a step with an impact asks for nothing, and a solver that repeats levels repeats the step."""
    system, params = ball(H, 0.5)
    state = place(system, params, {"z": {"position": -1e-3, "rate": -2.0}})

    @compiled
    def twice(state):
        prepared, none = prepare(system, params), jnp.zeros(0)
        after, info = step(system, prepared, state, none)
        return after, step(system, prepared, state, none, solver=Replay(), guess=info.levels)[0]

    after, again = twice(state)
    assert float(after.v[0, 2]) == pytest.approx(1.0, rel=1e-5)
    assert np.abs(missing(system, params, state)).max() < 1e-9
    np.testing.assert_allclose(again.v, after.v, rtol=0, atol=1e-12)


def test_a_rope_is_a_line_with_an_upper_stop():
    """Slack it does nothing; taut, the bob moves as on a rod of the same length."""
    body = {"bob": {"mass": 0.5, "inertia": (1e-3,) * 3}}
    rope = {"r": {"type": "line", "child": "bob", "axis": (1, 0, 0), "limits": {"upper": 1.0}}}
    rod = {"r": {"type": "distance", "child": "bob", "axis": (1, 0, 0), "length": 1.0}}
    down = (0, 0, -9.81)
    system, params = mechanism(H, down, bodies=body, joints=rope)
    slack = simulate(system, params, place(system, params, {"r": 0.5}))
    early = slack.time < 0.35
    np.testing.assert_allclose(slack.r[early, 0, 2], -9.81 / 2 * slack.time[early] ** 2, rtol=0, atol=1e-9)
    assert slack.joint("r")[0].max() < 1 + 1e-5
    taut = simulate(system, params, place(system, params, {"r": 1.0}))
    reference = mechanism(H, down, bodies=body, joints=rod)
    swing = simulate(*reference, place(*reference, {}))
    np.testing.assert_allclose(taut.r[:1000], swing.r[:1000], rtol=0, atol=1e-4)


def test_a_spring_line_pulls_with_stiffness_and_damping():
    """Two bodies on a line swing about their centre of mass with the reduced mass."""
    h, k, c, masses = 0.002, 50.0, 0.3, (1.0, 3.0)
    bodies = {name: {"mass": m, "inertia": (0.1,) * 3} for name, m in zip("ab", masses, strict=True)}
    line = {"type": "line", "parent": "a", "child": "b", "axis": (1, 2, 2)}
    line |= {"spring": {"stiffness": k, "rest": 1.0}, "friction": {"viscous": c}}
    system, params = mechanism(h, (0, 0, 0), bodies=bodies, joints={"l": line})
    trajectory = simulate(system, params, place(system, params, {"l": 1.2}))
    reduced = masses[0] * masses[1] / sum(masses)
    decay, omega = c / (2 * reduced), np.sqrt(k / reduced - (c / (2 * reduced)) ** 2)
    t = trajectory.time
    expected = 1 + 0.2 * np.exp(-decay * t) * (np.cos(omega * t) + decay / omega * np.sin(omega * t))
    np.testing.assert_allclose(trajectory.joint("l")[0], expected, rtol=0, atol=2e-3)
    centre = np.einsum("b,tbi->ti", masses, trajectory.r) / sum(masses)
    np.testing.assert_allclose(centre, centre[:1].repeat(len(centre), 0), rtol=0, atol=1e-12)


def test_wrenches_from_outside_push_bodies():
    """A constant force and torque on a free body: the closed form, from the first instant on."""
    system, params = mechanism(0.01, (0, 0, 0), bodies={"b": {"mass": 2.0, "inertia": (0.1, 0.2, 0.3)}}, joints={})
    wrench = jnp.tile(jnp.array([1.0, -2.0, 0.5, 0.0, 0.0, 0.3]), (100, 1, 1))
    run = compiled(lambda s: rollout(system, params, s, jnp.zeros((100, 0)), wrenches=wrench))
    trajectory = run(place(system, params, {}))
    np.testing.assert_allclose(trajectory.v[:, 0], np.outer(trajectory.time, [0.5, -1.0, 0.25]), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(trajectory.w[:, 0, 2], trajectory.time * 1.0, rtol=1e-9, atol=1e-12)
