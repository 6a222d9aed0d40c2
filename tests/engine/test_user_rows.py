"""The user's own rows: a rod (holonomic), a gear and a knife edge (nonholonomic), against closed forms."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import compiled, place, simulate

from spookax.constraints import AbstractHolonomic, AbstractNonholonomic
from spookax.scene import Scene
from spookax.stepping import rollout, state_from_joints
from spookax.stepping.start import assembly_error
from spookax.system import build, locate

G = 9.81


@dataclasses.dataclass(frozen=True)
class Rod(AbstractHolonomic):
    """A massless rod from the world's origin to the body's frame origin."""

    name: str = "rod"
    bodies: tuple[str, ...] = ("world", "bob")
    num_rows: int = 1

    def defaults(self):
        return {"length": 0.4}

    def gap(self, poses, values):
        d = poses[1].point(jnp.zeros(3)) - poses[0].point(jnp.zeros(3))
        return (jnp.sum(d * d)[None] - values["length"] ** 2) / (2 * values["length"])


@dataclasses.dataclass(frozen=True)
class Gear(AbstractNonholonomic):
    """w_one = ratio * w_two + offset along z."""

    name: str = "gear"
    bodies: tuple[str, ...] = ("one", "two")
    num_rows: int = 1

    def defaults(self):
        return {"ratio": 3.0, "offset": 0.0}

    def speed(self, poses, velocities, values):
        return (velocities[0][5] - values["ratio"] * velocities[1][5])[None]

    def target(self, time, values):
        return values["offset"][None]


@dataclasses.dataclass(frozen=True)
class KnifeEdge(AbstractNonholonomic):
    """A skate under the centre of mass: no velocity along its own y axis."""

    name: str = "edge"
    bodies: tuple[str, ...] = ("skate",)
    num_rows: int = 1

    def speed(self, poses, velocities, values):
        return (poses[0].direction(jnp.array([0.0, 1.0, 0.0])) @ velocities[0][:3])[None]


J_ONE, J_TWO = 0.02, 0.3


def mechanism(step=0.005, gravity=(0.0, 0.0, -G)):
    """A bob on a rod, two rotors in gear with a motor on the first, and a free skate."""
    inertia = (0.01, 0.01, 0.01)
    scene = Scene(
        spookax=1,
        step=step,
        gravity=gravity,
        bodies={
            "bob": {"mass": 0.5, "inertia": inertia},
            "one": {"mass": 1.0, "inertia": (J_ONE,) * 3},
            "two": {"mass": 1.0, "inertia": (J_TWO,) * 3},
            "skate": {"mass": 2.0, "inertia": inertia},
        },
        joints={"first": {"type": "hinge", "child": "one"}, "second": {"type": "hinge", "child": "two"}},
        motors={"drive": {"type": "torque", "joint": "first"}},
    )
    return build(scene, (Rod(), Gear(), KnifeEdge()))


def start(angle=0.5, length=0.4, spin=2.0):
    bob = {"position": (length * np.sin(angle), 0.0, -length * np.cos(angle))}
    return {}, {"bob": bob, "skate": {"angular_velocity": (0.0, 0.0, spin)}}


def test_a_rod_makes_a_pendulum():
    """Period of a swing of 0.5 rad: that of 2 pi sqrt(l / g) / agm(1, cos(a / 2)), and the rod keeps its length."""
    system, params = mechanism(0.0025)
    trajectory = simulate(system, params, place(system, params, *start()))
    r = trajectory.r[:, 0]
    crossings = np.flatnonzero((r[:-1, 0] > 0) & (r[1:, 0] <= 0))
    at = crossings + r[crossings, 0] / (r[crossings, 0] - r[crossings + 1, 0])
    period = np.mean(np.diff(at)) * float(params.step)
    a, b = 1.0, np.cos(0.25)
    for _ in range(5):
        a, b = (a + b) / 2, np.sqrt(a * b)
    assert len(crossings) >= 4
    assert period == pytest.approx(2 * np.pi * np.sqrt(0.4 / G) / a, rel=1e-4)
    assert np.abs(np.linalg.norm(r, axis=1) - 0.4).max() < 2e-5


def test_gears_turn_together():
    """Under a torque u: acceleration u / (J_1 + J_2 / N^2) from the first step; a target in time adds to it."""
    system, params = mechanism()
    trajectory = simulate(system, params, place(system, params, *start()), [0.1])
    _, first = trajectory.joint("first")
    _, second = trajectory.joint("second")
    np.testing.assert_allclose(first, 3 * second, rtol=0, atol=1e-5)
    np.testing.assert_allclose(first, 0.1 / (J_ONE + J_TWO / 9) * trajectory.time, rtol=1e-5, atol=1e-5)
    offset = locate(system, "rows.gear.offset").set(params, jnp.asarray(0.5))
    state = place(system, offset, *start())
    w = np.asarray(state.w)
    assert w[1, 2] - 3 * w[2, 2] == pytest.approx(0.5, abs=1e-9), "the start obeys the row"


def test_a_skate_on_a_slope_goes_sideways():
    """A spinning knife edge on a slope does not go down: with gravity g along x, spin w and from rest it runs along a
    cycloid, x = g sin^2(w t) / (2 w^2), y = g (w t - sin(w t) cos(w t)) / (2 w^2).

    Second order in h: the row has the direction that its body will have at t_k + h/2, where the velocity belongs.
    """
    spin, g, time = 2.0, 1.5, 0.005 * np.arange(1001)
    t = spin * time
    cycloid = g / (2 * spin**2) * np.stack([np.sin(t) ** 2, t - np.sin(t) * np.cos(t)], axis=-1)
    runs = []
    for h, every in ((0.005, 1), (0.0025, 2)):
        system, params = mechanism(h, gravity=(g, 0.0, 0.0))
        trajectory = simulate(system, params, place(system, params, *start(spin=spin)))
        np.testing.assert_allclose(trajectory.time[::every][:1001], time, rtol=0, atol=1e-9)
        runs.append(trajectory.r[::every, 3, :2][:1001])
    errors = [np.abs(run - cycloid).max() for run in runs]
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.01)
    assert errors[1] < 1e-4


@pytest.mark.slow
def test_rows_take_part_in_the_assembly():
    """A bob put beside the rod's end is moved onto it, and speeds obey the nonholonomic rows."""
    system, params = mechanism()
    state = place(system, params, {"first": {"rate": 1.0}}, {"bob": {"position": (0.3, 0.1, -0.5)}})
    assert assembly_error(system, params, state) < 1e-13
    assert np.linalg.norm(state.r[0]) == pytest.approx(0.4, abs=1e-12)
    assert state.w[2, 2] == pytest.approx(1 / 3, abs=1e-8)


SYSTEM, PARAMS = mechanism()


def run(z):
    """A number of bob, gears and skate after 100 steps, from the rod's length, the gear's ratio, the skate's start."""
    params = locate(SYSTEM, "rows.rod.length").set(PARAMS, 0.4 * z[0])
    params = locate(SYSTEM, "rows.gear.ratio").set(params, 3.0 * z[1])
    joints, bodies = start(spin=2.0 * z[2])
    bodies["skate"]["position"] = z[3] * jnp.array([0.3, 0.2, 0.1])
    state = state_from_joints(SYSTEM, params, joints, bodies)
    trajectory = rollout(SYSTEM, params, state, jnp.full((100, 1), 0.1), throw=False)
    bob, skate = trajectory.r[-1, 0], trajectory.r[-1, 3] + trajectory.e[-1, 3, 1:]
    return bob[0] + 2 * bob[2] + 0.5 * trajectory.position[-1, 0] + skate @ jnp.array([0.3, -0.2, 0.5])


@pytest.mark.slow
def test_numbers_of_rows_and_starts_of_free_bodies_have_derivatives():
    """rows.rod.length, rows.gear.ratio, spin and position of a free body, forward, against central differences."""
    number, h = compiled(run), 1e-6
    expected = np.array([(number(1 + h * d) - number(1 - h * d)) / (2 * h) for d in np.eye(4)])
    found = compiled(jax.jacfwd(run))(np.ones(4))
    assert np.all(np.abs(expected) > 0.01)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.linalg.norm(expected))
