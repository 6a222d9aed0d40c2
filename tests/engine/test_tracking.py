"""Mechanisms with loops along readings: each state from the one before it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.test_loops import COUPLER, PARAMS, SYSTEM, distance_of_pins

from spookax.constraints import axes, frames, prepare
from spookax.scene import Scene
from spookax.stepping import tracking
from spookax.stepping.start import assembly_error
from spookax.system import System, build

CRANK, ELBOW, WRIST, ROCKER = range(4)
TURNS = np.linspace(-0.3, 15.0, 300)  # of the crank: more than two
RATE = 8.0


@functools.partial(jax.jit, static_argnums=(0, 5))
def along(system: System, params, rest: dict[str, float], position, rate, given: tuple[int, ...]):
    """States with these positions of the given axes, the rates of all axes, and what is violated."""
    prepared = prepare(system, params)
    first = tracking.begun(system, prepared, rest, position[0], given)
    tries = jnp.full(len(position), tracking.LATER).at[0].set(tracking.FIRST)

    def one(state, now):
        state = tracking.followed(system, prepared, state, *now[:2], given, now[2])
        kin = frames.kinematics(system, state.r, state.e, prepared.geometry)
        rates = axes.rates(system, *axes.rate_rows(system, kin), jnp.concatenate([state.v, state.w], axis=1))
        return state, (state.near, rates, assembly_error(system, params, state))

    return jax.lax.scan(one, first, (position, rate, tries))[1]


def turned(rest: dict[str, float], angles: np.ndarray = TURNS):
    """The four-bar turned by its crank, from where joints are."""
    rest = dict.fromkeys(SYSTEM.axis_names(), 0.0) | rest
    found = along(SYSTEM, PARAMS, rest, angles[:, None], np.full((len(angles), 1), RATE), (CRANK,))
    return tuple(map(np.asarray, found))


@pytest.fixture(scope="module")
def turning():
    return turned({})


def test_a_crank_turns_on_and_no_link_changes_its_branch(turning):
    """Angles are those of the crank, turns counted; the others close the loop, and go on as they did."""
    near, _, off = turning
    assert np.max(off) < 1e-13
    np.testing.assert_allclose(near[:, CRANK], TURNS, atol=1e-12)
    np.testing.assert_allclose(distance_of_pins(near[:, CRANK], near[:, ROCKER]), COUPLER, atol=1e-12)
    assert np.max(np.abs(np.diff(near, axis=0))) < 2 * (TURNS[1] - TURNS[0])


def test_rates_are_those_of_the_motion(turning):
    """The crank's, and the rocker's by differences of its angle; the latter to second order in the step."""
    near, rates, _ = turning
    slope = np.gradient(near[:, ROCKER], TURNS)
    np.testing.assert_allclose(rates[:, CRANK], RATE, atol=1e-4)
    np.testing.assert_allclose(rates[1:-1, ROCKER], RATE * slope[1:-1], atol=2e-3 * RATE)


SLIDER = {
    "spookax": 1,
    "bodies": {
        "crank": {"mass": 0.25, "com": [0.03, 0, 0], "inertia": [2e-4, 2e-4, 2e-4]},
        "rod": {"mass": 0.18, "com": [0.1, 0, 0], "inertia": [1e-5, 7e-4, 7e-4]},
        "piston": {"mass": 0.6, "inertia": [1e-3, 1e-3, 1e-3]},
    },
    "joints": {
        "shaft": {"type": "hinge", "child": "crank", "axis": [0, -1, 0]},
        "pin": {"type": "hinge", "parent": "crank", "child": "rod", "at": [0.06, 0, 0], "axis": [0, -1, 0]},
        "wrist": {"type": "hinge", "parent": "rod", "child": "piston", "at": [0.2, 0, 0], "axis": [0, -1, 0]},
        "rail": {"type": "prismatic", "child": "piston", "at": [0.26, 0, 0], "axis": [1, 0, 0]},
    },
}


def piston(crank: np.ndarray) -> np.ndarray:
    return 0.06 * np.cos(crank) + np.sqrt(0.2**2 - (0.06 * np.sin(crank)) ** 2) - 0.26


@pytest.mark.slow
def test_two_sensors_of_one_freedom_and_dead_centres(rng):
    """Readings contradict each other by their noise: both are met about as well as that lets them be. At its dead
    centres a piston tells nothing of the crank, and as read it is farther out than it can be: the crank hardly minds.
    """
    system, params = build(Scene.model_validate(SLIDER))
    read = piston(TURNS) + 5e-5 * rng.normal(size=len(TURNS))
    position = np.stack([TURNS, read], axis=1)
    rate = np.stack([np.full(len(TURNS), RATE), RATE * np.gradient(piston(TURNS), TURNS)], axis=1)
    names, rest = system.axis_names(), dict.fromkeys(system.axis_names(), 0.0)
    crank, rail = names.index("shaft"), names.index("rail")
    near, _, off = map(np.asarray, along(system, params, rest, position, rate, (crank, rail)))
    assert np.max(off) < 1e-10
    np.testing.assert_allclose(near[:, crank], TURNS, atol=5e-3)
    np.testing.assert_allclose(near[:, rail], piston(near[:, crank]), atol=1e-10)
    assert np.sqrt(np.mean((near[:, rail] - read) ** 2)) < 1e-4


def test_the_loop_closes_from_where_the_scene_has_it():
    """Of two branches that which is nearer to the start; angles that do not fit are only where it begins."""
    still = np.full(len(TURNS), 0.5)
    ways = turned({"elbow": -1.0, "ground": -1.0}, still), turned({"elbow": 2.5, "wrist": 1.5, "ground": 1.5}, still)
    rockers = []
    for near, _, off in ways:
        assert np.max(off) < 1e-13
        assert near[-1, CRANK] == pytest.approx(0.5, abs=1e-9)
        assert distance_of_pins(0.5, near[-1, ROCKER]) == pytest.approx(COUPLER, abs=1e-9)
        rockers.append(np.exp(1j * near[-1, ROCKER]))
    assert np.abs(rockers[1] - rockers[0]) > 0.1
