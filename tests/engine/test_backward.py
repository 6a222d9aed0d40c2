"""Dry friction that is another one backward than forward: where it holds, what it brakes, and its derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import BENCH, bench, compiled, mechanism, place, simulate

from spookax.complementarity import BlockPivoting
from spookax.constraints import prepare
from spookax.scene import Scene
from spookax.stepping import inverse_dynamics, rollout, state_from_joints, step
from spookax.study.file.key_rules import default_transform
from spookax.system import build, locate
from spookax.system.params import paths

LEVEL = np.array([0.3, 2.0])  # forward, of both axes of `bench` [N m, N]
BACKWARD = np.array([1.5, 0.4])
INERTIA = np.array([0.2, 2.0])  # [kg m^2, kg]
FRICTION = {
    name: {"friction": {"coulomb": float(c), "backward": float(b)}}
    for name, c, b in zip(BENCH, LEVEL, BACKWARD, strict=True)
}


def run(command=0.0, rate=0.0, **options):
    system, params = bench(0.002, **FRICTION, **options)
    state = place(system, params, {name: {"rate": rate} for name in BENCH})
    return simulate(system, params, state, command)


@pytest.mark.parametrize("rate", [2.0, -2.0])
def test_what_slides_is_braked_by_the_level_of_its_sense(rate):
    """v falls by level / inertia in a second until it is zero, and the kinetic energy never grows."""
    found = run(rate=rate)
    level = LEVEL if rate > 0 else LEVEL * BACKWARD
    expected = np.sign(rate) * np.maximum(abs(rate) - level / INERTIA * found.time[:, None], 0.0)
    np.testing.assert_allclose(found.rate, expected, rtol=0, atol=0.002 * np.max(LEVEL / INERTIA))
    energy = 0.5 * INERTIA * found.rate**2
    assert np.all(np.diff(energy, axis=0) <= 1e-12)


@pytest.mark.parametrize("part", [0.99, -0.99, 1.01, -1.01])
def test_it_sticks_between_its_two_levels(part):
    """Up to the level of the sense in which the load pushes it creeps, by less than v_creep times what it gives."""
    level = LEVEL if part > 0 else LEVEL * BACKWARD
    found = run(part * level)
    if abs(part) < 1:
        assert np.all(np.abs(found.rate) <= 1e-6 * np.maximum(1.0, BACKWARD) * (1 + 1e-9))
    else:
        expected = np.sign(part) * 0.01 * level / INERTIA * found.time[1:, None]
        np.testing.assert_allclose(found.rate[1:], expected, rtol=1e-8, atol=2e-6)


def test_what_it_takes_from_one_body_it_gives_to_the_other():
    """Two carts on one slide that spring together: momentum stays, and the spring's work all goes in the end."""
    system, params = mechanism(
        0.002,
        (0, 0, 0),
        bodies={name: {"mass": m, "inertia": (0.1,) * 3} for name, m in (("left", 1.0), ("right", 3.0))},
        joints={
            "floor": {"type": "prismatic", "child": "left", "axis": (1, 0, 0)},
            "between": {
                "type": "prismatic",
                "parent": "left",
                "child": "right",
                "axis": (1, 0, 0),
                "friction": {"coulomb": 0.5, "backward": 3.0},
                "spring": {"stiffness": 40.0},
            },
        },
    )
    found = simulate(system, params, place(system, params, {"between": {"position": 0.3}}))
    rates = found.rate[1:]
    momentum = 1.0 * rates[:, 0] + 3.0 * (rates[:, 0] + rates[:, 1])
    assert np.abs(momentum).max() < 1e-9
    assert np.abs(rates[-1]).max() < 1e-6
    stuck = 40.0 * found.position[-1, 1]
    assert -0.5 <= stuck <= 1.5, "between the two levels"


_step = compiled(step, static_argnums=0, static_argnames="solver")
_inverse = compiled(inverse_dynamics, static_argnums=0)


@pytest.mark.parametrize(
    ("bearing", "solver"),
    [
        (0.0, None),
        pytest.param(0.05, None, marks=pytest.mark.slow),
        pytest.param(0.05, BlockPivoting(), marks=pytest.mark.slow),
    ],
    ids=["condensed", "condensed, bearing", "sparse, bearing"],
)
def test_derivatives(bearing, solver):
    """By both levels and what else a slope needs, sliding both ways and holding: both modes against differences."""
    bodies = {"sledge": {"mass": 2.0, "inertia": (0.1,) * 3}}
    friction = {"coulomb": 2.0, "backward": 2.0, "bearing": bearing, "stribeck": {"excess": 0.2, "speed": 0.5}}
    joints = {"rail": {"type": "prismatic", "child": "sledge", "axis": (1, 0, 0), "friction": friction}}
    if bearing:
        bodies["arm"] = {"mass": 0.3, "com": (0, 0, -0.2), "inertia": (0.01,) * 3}
        joints["pin"] = {"type": "hinge", "parent": "sledge", "child": "arm", "axis": (0, 1, 0)}
        joints["pin"] |= {"friction": {"coulomb": 0.01}}
    motors = {"push": {"type": "torque", "joint": "rail"}}
    system, params = mechanism(0.01, (0, 0, -9.81), bodies=bodies, joints=joints, motors=motors)
    numbers = [locate(system, f"joints.rail.friction.{key}") for key in ("coulomb", "backward", "bearing")]
    push = np.interp(np.arange(60), [0, 10, 12, 38, 42, 60], [3.0, 3.0, -3.0, -3.0, -12.0, -12.0])

    def slid(z):
        changed = params
        for number, value in zip(numbers, z[:3], strict=True):
            changed = number.set(changed, value)
        state = state_from_joints(system, changed, {"rail": {"rate": z[3]}} | ({"pin": 0.3} if bearing else {}))
        found = rollout(system, changed, state, z[4] * jnp.asarray(push)[:, None], solver=solver, throw=False)
        return found.position[-1, 0], found.friction[:, 0]

    def where(z):
        return slid(z)[0]

    value, forward, reverse = compiled(slid), compiled(jax.jacfwd(where)), compiled(jax.grad(where))
    z = np.array([2.0, 2.0, bearing, 0.4, 1.0])
    x = np.asarray(value(z)[1])
    assert np.any(x == -1), "it slides forward"
    assert np.any(x == 2), "and backward"
    assert np.any((x > -1) & (x < 2)), "and holds"
    differences = [(value(z + d)[0] - value(z - d)[0]) / 2e-6 for d in 1e-6 * np.eye(5)]
    found = np.asarray(forward(z))
    np.testing.assert_allclose(found, differences, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(np.asarray(reverse(z)), found, rtol=0, atol=1e-10 * np.linalg.norm(found))


def test_both_solvers_and_the_inverse_agree():
    """One step in each sense and one that holds: the same rates by both solvers, and no impulse is left over."""
    system, params = bench(0.002, **FRICTION)
    prepared = compiled(prepare, static_argnums=0)(system, params)
    for rate, load in ((1.0, 0.0), (-1.0, 0.0), (0.0, 0.2), (0.0, -0.6)):
        state, command = place(system, params, {name: {"rate": rate} for name in BENCH}), jnp.full(2, load)
        one, told = _step(system, prepared, state, command)
        other, _ = _step(system, prepared, state, command, solver=BlockPivoting())
        v1 = jnp.concatenate([one.v, one.w], axis=-1)
        np.testing.assert_allclose(jnp.concatenate([other.v, other.w], axis=-1), v1, rtol=0, atol=1e-13)
        np.testing.assert_allclose(_inverse(system, prepared, state, v1, command), 0.0, rtol=0, atol=1e-8)
        np.testing.assert_array_equal(told.levels[1] == BACKWARD[1], rate < 0 or load < -0.8)


def test_only_axes_that_need_it_have_it():
    """Given in the scene, or unknown in a study, which makes a friction row; searched as what is positive."""
    scene = {
        "spookax": 1,
        "bodies": {"a": {"mass": 1.0, "inertia": (0.1,) * 3}, "b": {"mass": 1.0, "inertia": (0.1,) * 3}},
        "joints": {
            "elbow": {"type": "hinge", "child": "a", "friction": {"coulomb": 0.3, "backward": 1.2}},
            "shaft": {"type": "cylindrical", "child": "b", "axes": {"turn": {"friction": {"coulomb": 0.1}}}},
        },
    }
    slide = "joints.shaft.axes.slide.friction.backward"
    for unknown in (frozenset[str](), frozenset([slide])):
        system, params = build(Scene.model_validate(scene), unknown=unknown)
        assert [path for path in paths(system) if path.endswith("backward")] == [
            "joints.elbow.friction.backward",
            *unknown,
        ]
        assert [axis.friction for axis in system.axes] == [True, True, bool(unknown)]
        np.testing.assert_array_equal(params.backward, [1.2, 1.0][: 1 + len(unknown)])
    np.testing.assert_array_equal(locate(system, slide).set(params, 0.5).backward, [1.2, 0.5])
    assert default_transform(slide) == "log"
