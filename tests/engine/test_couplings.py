"""Gears, racks and screws, and joints whose motion is known in closed form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import DOWN, mechanism, place, simulate

from spookax.stepping import rollout
from spookax.stepping.start import assembly_error

RATIO = -3.0


def gears(step=0.005, *, ratio=RATIO, offset=0.2, kind="hinge", **options):
    """A wheel that a motor turns, and a second wheel (or a rack) that it is geared to."""
    return mechanism(
        step,
        (0, 0, 0),
        bodies={
            "wheel": {"mass": 1.0, "inertia": (0.02, 0.02, 0.03)},
            "other": {"mass": 0.5, "inertia": (0.01, 0.01, 0.01)},
        },
        joints={
            "wheel": {"type": "hinge", "child": "wheel", "axis": (0, 0, 1)},
            "other": {"type": kind, "child": "other", "axis": (1, 0, 0), "at": (0.4, 0, 0)},
        },
        couplings={"gear": {"driver": "wheel", "driven": "other", "ratio": ratio, "offset": offset}},
        motors={"drive": {"type": "torque", "joint": "wheel"}},
        **options,
    )


@pytest.mark.parametrize(("kind", "ratio", "load"), [("hinge", RATIO, 0.01), ("prismatic", 0.05, 0.5)])
def test_a_coupling_carries_load_and_position(kind, ratio, load):
    """The motor feels J + ratio^2 J_other, and both turn together over many turns."""
    system, params = gears(kind=kind, ratio=ratio)
    trajectory = simulate(system, params, place(system, params, {"wheel": 2.5}), [0.3])
    wheel, other = trajectory.joint("wheel"), trajectory.joint("other")
    np.testing.assert_allclose(wheel[1], 0.3 / (0.03 + ratio**2 * load) * trajectory.time, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(other[0], ratio * wheel[0] + 0.2, rtol=0, atol=1e-4 * abs(ratio))
    assert wheel[0][-1] > 100


@pytest.mark.slow
def test_a_geared_state_is_assembled():
    """The axis that is not given is found, beyond a turn, with its rate; a given pair that clashes shows."""
    system, params = gears()
    state = place(system, params, {"wheel": {"position": 2.5, "rate": 1.2}})
    np.testing.assert_allclose(state.near, [2.5, RATIO * 2.5 + 0.2], rtol=0, atol=1e-9)
    assert state.w[1, 0] == pytest.approx(RATIO * 1.2, rel=1e-6)
    assert assembly_error(system, params, state) < 1e-9
    clash = place(system, params, {"wheel": 2.5, "other": 0.0})
    assert assembly_error(system, params, clash) > 0.01


def test_a_shaft_with_a_universal_joint_turns_unevenly():
    """Between shafts at an angle b, bearings in the world: tan(out) = tan(in) cos(b) (Cardan), a closed loop with three
    rows more than it needs (14 rows, 12 coordinates, one freedom)."""
    b = 0.6
    along = (0.0, -np.sin(b), np.cos(b))
    system, params = mechanism(
        0.002,
        (0, 0, 0),
        bodies={
            "in": {"mass": 1.0, "com": (0, 0, -0.1), "inertia": (0.02, 0.02, 0.03)},
            "out": {"mass": 1.0, "com": tuple(0.1 * x for x in along), "inertia": (0.02, 0.02, 0.02)},
        },
        joints={
            "in": {"type": "hinge", "child": "in", "axis": (0, 0, 1)},
            # at the start the cross lies along x, held by the first shaft, and across x and the second shaft
            "cross": {
                "type": "universal",
                "parent": "in",
                "child": "out",
                "axis": (1, 0, 0),
                "x_axis": (0, np.cos(b), np.sin(b)),
            },
            "out": {"type": "hinge", "child": "out", "axis": along},
        },
        motors={"drive": {"type": "torque", "joint": "in"}},
        relaxation_steps=1.0,
    )
    trajectory = simulate(system, params, place(system, params, {"in": {"position": 0.0, "rate": 3.0}}), [0.02])
    first, out = trajectory.joint("in")[0], trajectory.joint("out")[0]
    assert first[-1] > 4 * np.pi
    expected = np.unwrap(np.arctan2(np.sin(first) * np.cos(b), np.cos(first)))
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-4)
    lead = np.arctan((1 - np.cos(b)) / (2 * np.sqrt(np.cos(b))))
    assert np.abs(out - first).max() == pytest.approx(lead, rel=2e-3)


def test_a_point_on_a_rod_swings_like_a_pendulum():
    """A ball on a massless rod of L = 0.5 m (distance), beside a body on a hinge with J + m l^2 = m l L: the same angle
    over time, and the ball does not begin to spin."""
    l = (0.5 + np.sqrt(0.25 - 4e-3)) / 2
    body = {"mass": 1.0, "inertia": (1e-3,) * 3}
    system, params = mechanism(
        0.0025,
        DOWN,
        bodies={"ball": body, "bob": body | {"com": (l, 0, 0)}},
        joints={
            "rod": {"type": "distance", "child": "ball", "axis": (1, 0, 0), "length": 0.5},
            "pivot": {"type": "hinge", "child": "bob", "axis": (0, 1, 0)},
        },
    )
    trajectory = simulate(system, params, place(system, params))
    n = 800  # two seconds, a swing and a half
    angle = np.unwrap(-np.arctan2(trajectory.r[:n, 0, 2], trajectory.r[:n, 0, 0]))
    np.testing.assert_allclose(angle, trajectory.joint("pivot")[0][:n], rtol=0, atol=2e-3)
    np.testing.assert_allclose(np.linalg.norm(trajectory.r[:, 0], axis=1), 0.5, rtol=0, atol=1e-3)
    np.testing.assert_allclose(trajectory.w[:, 0], 0.0, rtol=0, atol=1e-12)
    assert angle.max() > 3.1


def test_a_bead_slides_down_its_wire():
    """g sin(30 deg) along a line, free to turn: it spins on as it did."""
    down = (np.cos(np.pi / 6), 0.0, -np.sin(np.pi / 6))
    system, params = mechanism(
        0.005,
        DOWN,
        bodies={"bead": {"mass": 0.1, "inertia": (1e-4,) * 3}},
        joints={"wire": {"type": "inline", "child": "bead", "axis": down}},
    )
    state = place(system, params, {"wire": {"rate": 0.5}})
    trajectory = simulate(system, params, state)
    t = trajectory.time
    np.testing.assert_allclose(trajectory.joint("wire")[1], 0.5 + 9.81 / 2 * t, rtol=1e-8)
    np.testing.assert_allclose(trajectory.w, 0.0, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_a_gear_ratio_has_its_gradient():
    """Final angle of the wheel under a constant torque: T^2 u / 2 / (J + n^2 J_2), differentiated in n."""
    system, params = gears()
    state = place(system, params, {"wheel": 0.0, "other": {"position": 0.2}})

    def last(ratio):
        changed = eqx.tree_at(lambda p: p.ratio, params, ratio[None])
        return rollout(system, changed, state, jnp.full((200, 1), 0.3), throw=False).joint("wheel")[1][-1]

    forward = float(jax.jit(jax.jacfwd(last))(RATIO))
    reverse = float(jax.jit(jax.grad(last))(RATIO))
    inertia = 0.03 + RATIO**2 * 0.01
    expected = -0.3 * 1.0 / inertia**2 * 2 * RATIO * 0.01
    assert forward == pytest.approx(expected, rel=2e-3)
    assert reverse == pytest.approx(forward, rel=1e-9)
