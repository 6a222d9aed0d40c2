"""What breaks engines: redundant joints, masses five decades apart, gradients of what sticks, slides or touches a stop.

Nothing here sets anything but the mechanism.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import DOWN, JOINT_TYPES, NAMES, U, compiled, mechanism, pairs, rack

from spookax.complementarity import BlockPivoting
from spookax.stepping import rollout, state_from_joints
from spookax.system import BoxKind, locate

pytestmark = pytest.mark.timeout(600)  # derivatives of all joints at once take long to compile

STEPS = 300


def door(hinges):
    """A door of 1 m by 2 m, its axis tilted, on this many hinges in a line: each but one is redundant."""
    axis = (0.0, 0.2, 1.0)
    places = np.linspace(0.0, 1.8, hinges)[:, None] * np.array(axis)
    return mechanism(
        0.005,
        DOWN,
        bodies={"door": {"mass": 20.0, "com": (0.5, 0.2, 1.0), "inertia": (8.0, 8.0, 1.8)}},
        joints={
            f"hinge_{i}": {"type": "hinge", "child": "door", "at": tuple(p), "child_at": tuple(p), "axis": axis}
            for i, p in enumerate(places.tolist())
        },
    )


def heavy_end():
    """A link of 10 g carries one of 1 t: mass ratio 1e5."""
    rod = {"com": (0.0, 0.0, -0.5)}
    light, heavy = 0.01, 1000.0
    return mechanism(
        0.005,
        DOWN,
        bodies={
            "light": rod | {"mass": light, "inertia": (light / 12, light / 12, light / 600)},
            "heavy": rod | {"mass": heavy, "inertia": (heavy / 12, heavy / 12, heavy / 600)},
        },
        joints={
            "top": {"type": "hinge", "child": "light", "axis": (0, 1, 0)},
            "low": {"type": "hinge", "parent": "light", "child": "heavy", "at": (0, 0, -1), "axis": (0, 1, 0)},
        },
    )


def swing(system, params, name, angle, rate):
    state = state_from_joints(system, params, {name: {"position": angle, "rate": rate}})
    trajectory = rollout(system, params, state, jnp.zeros((STEPS, 0)), throw=False)
    return trajectory.position[:, 0], trajectory.failed_step, trajectory.r


def slope_and_values(loss):
    """Of a loss: its gradient, and its values at many points, one after another, which compiles in half the time."""
    value = compiled(loss)
    return compiled(jax.grad(loss)), lambda points: np.array([value(x) for x in points])


def gradient_matches(slope, values, x, tolerance=1e-6, step=1e-6):
    """Reverse mode against central differences, relative to the norm of the gradient."""
    gradient = np.asarray(slope(x))
    directions = step * np.maximum(1.0, np.abs(x))[:, None] * np.eye(len(x))
    ends = values(np.concatenate([x + directions, x - directions]))
    differences = (ends[: len(x)] - ends[len(x) :]) / (2 * np.diagonal(directions))
    assert np.all(np.isfinite(gradient))
    error = np.abs(gradient - differences).max() / np.linalg.norm(gradient)
    assert error < tolerance, (gradient, differences)
    return gradient


def test_a_door_on_three_hinges_is_one_on_one():
    """The same motion to the compliance of the joints, and the weight shared without a jump."""
    paths = []
    for hinges in (1, 3):
        system, params = door(hinges)
        position, failed, _ = compiled(lambda q, s=system, p=params: swing(s, p, "hinge_0", q, 0.5))(1.0)
        assert int(failed) == -1
        paths.append(np.asarray(position))
    np.testing.assert_allclose(paths[1], paths[0], rtol=0, atol=2e-4)
    assert np.abs(paths[0] - 1).max() > 0.3, "it swings"


@pytest.mark.slow
def test_a_door_on_three_hinges_differentiates():
    system, params = door(3)
    mass = locate(system, "bodies.door.com.x")

    def loss(x):
        return swing(system, mass.set(params, x[2]), "hinge_0", x[0], x[1])[0][-1]

    gradient = gradient_matches(*slope_and_values(loss), np.array([1.0, 0.5, 0.5]))
    assert np.all(np.abs(gradient) > 1e-3)


@pytest.mark.slow
def test_masses_five_decades_apart():
    """The heavy link swings below the light one: its energy stays, the joints hold, and gradients are right."""
    system, params = heavy_end()
    position, failed, r = compiled(lambda: swing(system, params, "top", 0.5, 0.0))()
    assert int(failed) == -1
    assert np.all(np.isfinite(position))
    assert np.max(r[:, 1, 2]) <= np.max(r[:1, 1, 2]) + 1e-3, "it does not rise above its start"
    assert np.abs(np.asarray(r)[:, 1]).max() < 1.51, "the joints hold a tonne"
    light = locate(system, "bodies.light.com.z")

    def loss(x):
        angle, _, place = swing(system, light.set(params, x[2]), "top", x[0], x[1])
        return angle[-1] + place[-1, 1, 0]

    gradient_matches(*slope_and_values(loss), np.array([0.5, 0.1, -0.5]), tolerance=1e-5)


@pytest.mark.slow
def test_gradients_of_every_joint():
    """Two tumbling bodies on each type of joint: by how both start, by masses, and by an inertia, all at once."""
    system, params = pairs()
    rng = np.random.default_rng(8)
    follow = ("screw.slide", "rolling_disc.x", "rolling_disc.r", "rolling_sphere.r")  # other axes of their joints
    moving = {
        axis.name: {"position": 0.1, "rate": rng.normal()} for axis in system.axes if not axis.name.startswith(follow)
    }
    moving["line"] = {"position": 0.5, "rate": 1.0}
    twists = rng.normal(size=(2, system.num_bodies // 2, 3))
    weights = rng.normal(size=(system.num_bodies, 3))

    def loss(x):
        start = {name: {**value, "rate": value["rate"] * x[0]} for name, value in moving.items()}
        bodies = {
            f"{joint}_a": {"velocity": x[1] * v, "angular_velocity": x[2] * w, "rotation": x[3] * v}
            for joint, v, w in zip(JOINT_TYPES, *twists, strict=True)
        }
        changed = eqx.tree_at(lambda p: (p.mass, p.inertia), params, (x[4] * params.mass, x[5] * params.inertia))
        state = state_from_joints(system, changed, start, bodies)
        end = rollout(system, changed, state, jnp.zeros((60, 0)), throw=False)
        return jnp.sum(weights * end.v[-2]) + jnp.sum(weights * end.w[-2])

    gradient_matches(*slope_and_values(loss), np.ones(6))


LIMIT = 0.2
ALONG = {"friction": {"coulomb": 1.0, "viscous": 0.1}, "limits": {"lower": -LIMIT, "upper": LIMIT}}
SYSTEM, PARAMS = rack(along=ALONG)
FREE = [i for i, name in enumerate(NAMES) if name != "screw.slide"]
REGIMES = {  # level of dry friction; position, rate and load of every axis
    "at rest": (0.0, 0.0, 0.0, 0.0),
    "sticking": (2 * U, 0.05, 0.0, U),
    "sliding": (0.1, 0.02, 0.4, 0.2 * U),
    "at a stop": (0.1, 0.17, 0.8, 2 * U),
}


RNG = np.random.default_rng(5)
SPREAD = 1 + 0.1 * RNG.normal(size=(3, len(FREE)))
WEIGHTS = RNG.normal(size=(2, len(NAMES)))
OF_STOPS = RNG.normal(size=len(SYSTEM.boxes_of(BoxKind.lower, BoxKind.upper)))


def end_of_every_axis(x):
    """A number that all axes move, from position, rate and load of each and the level of friction of all."""
    driven = np.zeros((len(FREE), len(NAMES)))
    driven[np.arange(len(FREE)), FREE] = 1
    position, rate, load = x[:-1].reshape(3, len(FREE))
    start = {NAMES[i]: {"position": position[k], "rate": rate[k]} for k, i in enumerate(FREE)}
    params = PARAMS
    for axis in SYSTEM.axes:
        place = SYSTEM.joints[axis.joint].place(axis.name)
        params = locate(SYSTEM, f"{place}.friction.coulomb").set(params, x[-1])
    controls = jnp.broadcast_to(load @ driven, (60, len(NAMES)))
    state = state_from_joints(SYSTEM, params, start)
    end = rollout(SYSTEM, params, state, controls, solver=BlockPivoting(), throw=False)
    return WEIGHTS[0] @ end.position[-1] + 0.2 * WEIGHTS[1] @ end.rate[-1] + OF_STOPS @ end.stop_forces[-1]


@pytest.fixture(scope="module")
def every_axis():
    """Gradient and values, compiled once for all regimes; of so many points all at once."""
    return compiled(jax.grad(end_of_every_axis)), compiled(jax.vmap(end_of_every_axis))


@pytest.mark.slow
@pytest.mark.parametrize("regime", REGIMES)
def test_gradients_of_every_axis(regime, every_axis):
    """With respect to position, rate, load and level of friction of every axis of every joint, all at once."""
    level, *given = REGIMES[regime]
    x = np.concatenate([(np.array(given)[:, None] * SPREAD).ravel(), [level]])

    # the force on a stop is what remains of a rate over its compliance: differences of it need a long step
    gradient = gradient_matches(*every_axis, x, step=1e-3 if regime == "at a stop" else 1e-6)
    by_position = np.abs(gradient[: len(FREE)])
    if regime in ("at rest", "sticking", "sliding"):
        assert np.all(by_position > 1e-3), "where it starts says where it ends"
    if regime == "at a stop":
        limited = [bool(SYSTEM.axes[SYSTEM.axis_of(NAMES[i])].stops) for i in FREE]
        assert np.all(by_position[limited] < 1e-3), "the stop says where it ends"
        assert np.linalg.norm(gradient) > 1e-2, "the load says how hard it presses"
