"""Air that resists the motion of bodies: exact motions, order in the step size, equal motion by other means, and
derivatives."""

import jax
import numpy as np
import pytest
from engine.mechanisms import DOWN, compiled, engine_states, mechanism, missing, place, pushed, simulate

from spookax.constraints import prepare
from spookax.scene import Scene
from spookax.stepping import state_from_joints
from spookax.stepping.acceleration import accelerations
from spookax.study.file.key_rules import default_transform
from spookax.system import build, locate
from spookax.system.params import AIR, paths

MASS, J = 2.0, (0.02, 0.05, 0.04)
V, W = (3.0, -1.0, 2.0), (1.0, 6.0, -2.0)
AIRY = {"viscous": 0.3, "drag": 0.4, "turning": {"viscous": 0.004, "drag": 0.002}}


def thrown(h, air, gravity=(0, 0, 0), v=V, w=W, inertia=J):
    """Times and states of a free body."""
    body = {"mass": MASS, "inertia": inertia, "air": air, "initial": {"velocity": v, "angular_velocity": w}}
    system, params = mechanism(h, gravity, bodies={"body": body})
    states = engine_states(system, params, place(system, params, bodies={"body": _start(v, w)}))
    return states.time, states


def _start(v, w):
    return {"velocity": v, "angular_velocity": w}


def order(of, reference, steps=(0.004, 0.002)):
    """Halving the step quarters the largest error."""
    errors = [np.abs(of(h) - reference(h)).max() for h in steps]
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.15)
    return errors[-1]


def test_a_throw_under_linear_resistance():
    """v = g T + (v0 - g T) exp(-t / T) with T = m / c, in three directions at once."""
    T, g = MASS / 0.3, np.array(DOWN)

    def found(h):
        return thrown(h, {"viscous": 0.3}, DOWN)[1].r[: int(4 / h), 0]

    def exact(h):
        t = h * np.arange(int(4 / h))[:, None]
        return g * T * t + (np.array(V) - g * T) * T * (1 - np.exp(-t / T))

    assert order(found, exact) < 1e-4


def test_a_fall_and_a_spin_under_quadratic_resistance():
    """v = u tanh(g t / u) with u^2 = m g / C; w = w0 / (1 + K w0 t / J)."""
    C, K, spin = 0.4, 0.01, 6.0
    u = np.sqrt(MASS * 9.81 / C)

    def states(h):
        return thrown(h, {"drag": C, "turning": {"drag": K}}, DOWN, (0, 0, 0), (0, spin, 0))[1]

    def exact_fall(h):
        t = h * np.arange(int(4 / h))
        return -(u**2) / 9.81 * np.log(np.cosh(9.81 * t / u))

    def turned(h):
        e = states(h).e[: int(2 / h), 0]
        return np.unwrap(2 * np.arctan2(e[:, 2], e[:, 0]), period=2 * np.pi)

    def exact_turn(h):
        t, rate = h * np.arange(int(2 / h)), K * spin / J[1]
        return J[1] / K * np.log1p(rate * t)

    assert order(lambda h: states(h).r[: int(4 / h), 0, 2], exact_fall) < 1e-4
    assert order(turned, exact_turn) < 1e-4


def test_a_tumbling_body_loses_energy_to_second_order():
    """Both laws at once, on a body of three different moments: against a step eight times as small."""

    def pose(h):
        _, states = thrown(h, AIRY, DOWN)
        return np.concatenate([states.r[:, 0], states.e[:, 0]], axis=1)[:: round(0.004 / h)][:200]

    fine = pose(0.0005)
    assert order(pose, lambda h: fine) < 1e-3
    _, states = thrown(0.004, AIRY)
    energy = MASS / 2 * (states.v**2).sum((1, 2)) + (np.array(J) * states.w[:, 0] ** 2).sum(1) / 2
    assert np.all(np.diff(energy) < 0)


@pytest.mark.parametrize("drag", [40.0, 4e6])
def test_it_never_turns_a_velocity_round(drag):
    """However large, at any step."""
    air = {"viscous": drag, "drag": drag, "turning": {"viscous": drag, "drag": drag}}
    _, states = thrown(0.005, {key: air[key] for key in ("drag", "turning")} | {"turning": {"drag": drag}})
    v, w = states.v[1:, 0] @ np.array(V), states.w[1:, 0]
    assert np.all(v > 0)
    assert np.all(np.diff(v) <= 0)
    assert np.all(np.diff((w**2).sum(1)) <= 0)
    _, states = thrown(0.005, air)
    assert np.linalg.norm(states.v[-1]) < 1e-3


BOB = {"mass": 1.0, "com": (0, 0, -0.5), "inertia": (0.1,) * 3}


def swing(h, air, friction):
    """A pendulum with its air or friction, and its angle from a wide start."""
    system, params = mechanism(
        h,
        DOWN,
        bodies={"bob": BOB | {"air": air}},
        joints={"pivot": {"type": "hinge", "child": "bob", "axis": (0, 1, 0), "friction": friction}},
    )
    return system, params, simulate(system, params, place(system, params, {"pivot": {"position": 2.0}})).position[:, 0]


def test_on_a_pendulum_it_is_friction_of_the_joint():
    """About a fixed axis: turning as it is, but for the weights of strong damping (1e-5 of it); on the centre of mass
    with its lever squared, and cubed, to second order."""
    law = {"viscous": 0.03, "drag": 0.02}
    system, params, found = swing(0.005, {"turning": law}, {})
    np.testing.assert_allclose(found, swing(0.005, {}, law)[2], atol=1e-5)
    assert np.abs(found - swing(0.005, {}, {})[2]).max() > 0.1
    moving = place(system, params, {"pivot": {"position": 2.0, "rate": 3.0}})
    np.testing.assert_allclose(missing(system, params, moving), 0, atol=1e-9)

    of_centre = {"viscous": 0.03 / 0.5**2, "drag": 0.02 / 0.5**3}
    assert order(lambda h: swing(h, of_centre, {})[2], lambda h: swing(h, {}, law)[2]) < 1e-4


def test_accelerations_are_slowed():
    """v' = g - (c + C |v|) v / m, and the same of the moments that turn."""
    system, params = mechanism(0.005, DOWN, bodies={"body": {"mass": MASS, "inertia": (0.02,) * 3, "air": AIRY}})
    state = place(system, params, bodies={"body": _start(V, W)})
    found, _ = compiled(accelerations, static_argnums=0)(
        system, prepare(system, params), state, np.zeros(0), np.zeros(0)
    )
    v, w = np.array(V), np.array(W)
    wanted = (
        np.array(DOWN) - (0.3 + 0.4 * np.linalg.norm(v)) * v / MASS,
        -(0.004 + 0.002 * np.linalg.norm(w)) * w / 0.02,
    )
    np.testing.assert_allclose(found[0], np.concatenate(wanted), rtol=1e-12)


def end(x):
    """A number of the last state of a throw, by the four numbers of air and the first velocity."""
    body = {"mass": MASS, "inertia": J, "air": AIRY}
    system, params = mechanism(0.01, DOWN, bodies={"body": body})
    for i, key in enumerate(AIR):
        params = locate(system, f"bodies.body.air.{key}").set(params, x[i])
    start = {"body": _start(tuple(x[4:7]), tuple(x[7:]))}
    state = state_from_joints(system, params, bodies=start)
    last = pushed(system, prepare(system, params), state, 40)
    return last.r[0].sum() + 0.3 * last.w[0].sum()


def test_derivatives():
    """Both modes against differences, thrown; at rest they are finite."""
    value, reverse, forward = compiled(end), compiled(jax.grad(end)), compiled(jax.jacfwd(end))
    x, small = np.array([0.3, 0.4, 0.004, 0.002, *V, *W]), 1e-5
    differences = [(value(x + d) - value(x - d)) / (2 * small) for d in small * np.eye(len(x))]
    found = np.asarray(reverse(x))
    np.testing.assert_allclose(found, differences, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(forward(x)), found, rtol=0, atol=1e-12 * np.linalg.norm(found))
    assert np.all(np.isfinite(reverse(np.array([0.0] * 10))))


def test_only_bodies_that_need_it_have_it():
    """Given in the scene, or unknown in a study; its paths are there then, searched as what may be zero."""
    body = {"mass": 1.0, "inertia": (0.1, 0.1, 0.1)}
    scene = Scene.model_validate({"spookax": 1, "bodies": {"a": body, "b": body | {"air": {"turning": {"drag": 0.3}}}}})
    unknown = "bodies.a.air.viscous"
    for also, names in (((), "b"), ((unknown,), "ab")):
        system, params = build(scene, unknown=frozenset(also))
        assert [path for path in paths(system) if ".air." in path] == [
            f"bodies.{name}.air.{key}" for name in names for key in AIR
        ]
        assert params.air[-1].tolist() == [0, 0, 0, 0.3]
        assert default_transform(unknown) == default_transform("bodies.b.air.turning.drag") == "sinh"
