"""Dry friction of the two slides of a plane: an ellipse, a disc where both levels are one."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import DOWN, compiled, mechanism, missing, place, pushed

from spookax.constraints import prepare
from spookax.stepping import rollout

pytestmark = pytest.mark.quick
STEP, MASS, CREEP = 0.005, 2.0, 1e-6
BODY = {"mass": MASS, "inertia": (0.02, 0.02, 0.03)}


def block(x=None, y=None, gravity=(0.0, 0.0, 0.0), **more):
    """A body on a plane whose slides have friction `x` and `y`."""
    axes = {name: {"friction": keys} for name, keys in (("x", x), ("y", y)) if keys}
    joint = {"type": "planar", "child": "block", "axes": axes}
    return mechanism(STEP, gravity, bodies={"block": BODY}, joints={"table": joint}, **more)


LEVELS = np.array([3.0, 1.0])
ELLIPSE = block({"coulomb": LEVELS[0]}, {"coulomb": LEVELS[1]})
DISC = block(
    {"coulomb": 1.5, "stribeck": {"excess": 0.5, "speed": 0.3}},
    {"coulomb": 1.5, "stribeck": {"excess": 0.5, "speed": 0.3}},
)
_states = compiled(lambda s, p, x: rollout(s, p, x, jnp.zeros((100, 0))), static_argnums=0)


@pytest.mark.parametrize("angle", [0.0, 0.4, 1.2, np.pi / 2, 2.5])
def test_friction_takes_the_most_energy_that_its_ellipse_allows(angle):
    """m dv = -h F^2 v / |F v| at the velocity after the step, until it rests."""
    system, params = ELLIPSE
    start = {"table.x": {"rate": 0.2 * np.cos(angle)}, "table.y": {"rate": 0.2 * np.sin(angle)}}
    found = _states(system, params, place(system, params, start))
    v = np.diff(np.asarray(found.r)[:, 0, :2], axis=0) / STEP
    for before, after in itertools.pairwise(v[5:25]):
        force = -(LEVELS**2) * after / np.linalg.norm(LEVELS * after)
        np.testing.assert_allclose(MASS * (after - before), STEP * force, atol=1e-10)
    assert np.max(np.abs(np.asarray(found.friction))) <= 1 + 1e-12
    assert np.linalg.norm(v[-1]) < CREEP


@pytest.mark.parametrize("angle", [0.0, 0.7, np.pi / 2])
def test_it_holds_up_to_its_level_in_every_direction(angle):
    """Levels of 2 N at rest, as the Stribeck excess is of the speed whatever its direction."""
    system, params = DISC
    way = np.array([np.cos(angle), np.sin(angle), 0.0])
    for part in (0.99, 1.01):
        pulled = eqx.tree_at(lambda p: p.gravity, params, jnp.asarray(part * 2.0 / MASS * way))
        v = np.asarray(_states(system, pulled, place(system, pulled)).v)[-1, 0]
        if part < 1:
            assert np.linalg.norm(v) <= CREEP
        else:
            assert v @ way > 0.005
            np.testing.assert_allclose(v / np.linalg.norm(v), way, atol=1e-3)


def test_which_frictions_are_one():
    """Both slides have one, neither another one backward, and both or none grow with the joint's force."""
    one, other = {"coulomb": 1.0}, {"coulomb": 1.0, "bearing": 0.1}
    assert block(one, one)[0].discs == block(other, other)[0].discs == ((0, 1),)
    for x, y in ((one, None), (one, {"coulomb": 1.0, "backward": 2.0}), (one, other)):
        assert block(x, y)[0].discs == ()


def pushed_cart(**friction):
    """A body on a plane with an arm on it, whose axis is not upright."""
    axes = {name: {"friction": keys} for name, keys in friction.items()}
    return mechanism(
        STEP,
        DOWN,
        bodies={"cart": BODY, "arm": {"mass": 0.7, "inertia": (0.01, 0.02, 0.02), "com": (0.3, 0.1, 0)}},
        joints={
            "table": {"type": "planar", "child": "cart", "axes": axes},
            "pin": {
                "type": "hinge",
                "parent": "cart",
                "child": "arm",
                "axis": (0.2, 0, 1),
                "friction": {"coulomb": 0.01},
            },
        },
    )


CASES = {
    "ellipse": pushed_cart(x={"coulomb": 2.0, "viscous": 0.3}, y={"coulomb": 1.0, "viscous": 0.1}),
    "growing ellipse": pushed_cart(x={"coulomb": 0.5, "bearing": 0.3}, y={"coulomb": 0.7, "bearing": 0.1}),
    "bearing": pushed_cart(x={"coulomb": 0.5, "bearing": 0.2}, y={"coulomb": 0.5, "bearing": 0.2}),
}
RATES = {"slides": (0.3, -0.2, 1.0), "sticks": (0.0, 0.0, 0.0)}
NUMBERS = ("coulomb", "bearing", "viscous", "mass", "v_creep")


def after(system, params, state, values):
    """Velocities after three steps, by the friction's numbers and the velocity."""
    p = eqx.tree_at(lambda p: [getattr(p, n) for n in NUMBERS], params, [values[n] for n in NUMBERS])
    s = pushed(system, prepare(system, p), eqx.tree_at(lambda s: s.v, state, values["v"]), 3)
    return jnp.concatenate([s.v, s.w]).reshape(-1)


@functools.partial(compiled, static_argnums=0)
def along(system, params, state, values, way):
    return jax.jvp(lambda a: after(system, params, state, a), (values,), (way,))[1]


@functools.partial(compiled, static_argnums=0)
def weighted(system, params, state, values, weights):
    return jax.grad(lambda a: weights @ after(system, params, state, a))(values)


moved = compiled(after, static_argnums=0)


@pytest.mark.parametrize("motion", RATES)
@pytest.mark.parametrize("case", CASES)
def test_derivatives_of_three_steps_are_those_of_differences(case, motion):
    """Forward and reverse, of the friction's numbers and of the velocity."""
    system, params = CASES[case]
    x, y, turn = RATES[motion]
    state = place(system, params, {"table.x": {"rate": x}, "table.y": {"rate": y}, "pin": {"rate": turn}})
    if motion == "sticks":  # away from the tie of no load at all
        state = eqx.tree_at(lambda s: s.v, state, state.v + 1e-8)
    values = {n: getattr(params, n) for n in NUMBERS} | {"v": state.v}
    rng = np.random.default_rng(4)
    way = {n: jnp.asarray(rng.normal(size=np.shape(a)) * (1e-6 if n == "v_creep" else 1.0)) for n, a in values.items()}
    here = system, params, state
    forward = along(*here, values, way)
    size = 1e-6 if motion == "slides" else 1e-9
    ends = (moved(*here, jax.tree.map(lambda a, b, s=s: a + s * size * b, values, way)) for s in (1, -1))
    differences = (next(ends) - next(ends)) / (2 * size)
    scale = float(jnp.max(jnp.abs(differences)))
    np.testing.assert_allclose(forward, differences, atol=(1e-6 if motion == "slides" else 1e-4) * scale)

    weights = jnp.asarray(rng.normal(size=forward.shape))
    back = weighted(*here, values, weights)
    total = sum(float(jnp.sum(back[n] * way[n])) for n in values)
    np.testing.assert_allclose(total, float(weights @ forward), rtol=1e-8)


@pytest.mark.parametrize("case", CASES)
def test_inverse_dynamics_misses_nothing(case):
    system, params = CASES[case]
    for x, y, turn in RATES.values():
        state = place(system, params, {"table.x": {"rate": x}, "table.y": {"rate": y}, "pin": {"rate": turn}})
        assert np.max(np.abs(missing(system, params, state))) < 1e-8
