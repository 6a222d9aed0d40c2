"""A closed loop with redundant rows: four hinges in space keep a plane mechanism, 17 independent rows of 20."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import STEPS, compiled, place, simulate

from spookax.scene import read_scene
from spookax.stepping import rollout, state_from_joints
from spookax.stepping.start import assembly_error
from spookax.system import State, build, locate
from spookax.system.cycles import on_cycles

SCENES = Path(__file__).parents[2] / "scenes"
SYSTEM, PARAMS = build(read_scene(SCENES / "four_bar.yaml"))
CRANK, COUPLER, ROCKER, GROUND = 0.1, 0.35, 0.3, 0.4  # m
START = {"drive": {"position": 0.5, "rate": 30.0}}

error = compiled(assembly_error, static_argnums=0)
errors = compiled(jax.vmap(assembly_error, in_axes=(None, None, 0)), static_argnums=0)


def distance_of_pins(crank, rocker):
    """Between the ends of crank and rocker, from their angles about y [m]."""
    end = GROUND + ROCKER * np.exp(-1j * np.asarray(rocker)) - CRANK * np.exp(-1j * np.asarray(crank))
    return np.abs(end)


@pytest.mark.parametrize("angle", [-1.57, 0.5, 2.0, 3.1])
def test_the_loop_is_assembled_from_one_angle(angle):
    """The other three are found; rates are consistent with the geometry's derivative."""
    state = place(SYSTEM, PARAMS, {"drive": {"position": angle, "rate": 2.0}})
    assert error(SYSTEM, PARAMS, state) < 1e-14
    crank, _, _, rocker = state.near
    assert crank == pytest.approx(angle, abs=1e-14)
    assert distance_of_pins(crank, rocker) == pytest.approx(COUPLER, abs=1e-14)
    assert error(SYSTEM, PARAMS, state.moved(1e-5)) < 1e-8, "moves along the constraints: error O(dt^2)"


def test_a_loop_that_cannot_close_is_seen():
    """A crank of 2 m reaches past everything."""
    long_crank = locate(SYSTEM, "joints.elbow.at.x").set(PARAMS, jnp.asarray(2.0))
    state = place(SYSTEM, long_crank, START)
    assert error(SYSTEM, long_crank, state) > 0.1


def gaps(h):
    """Largest gap of every step, and the trajectory, over 2 s."""
    params = eqx.tree_at(lambda p: p.step, PARAMS, jnp.asarray(h))
    t = simulate(SYSTEM, params, place(SYSTEM, params, START))
    states = State(t.r, t.e, t.v, t.w, t.position, t.time, jnp.zeros((len(t.time), 0)))
    steps = min(round(2 / h), STEPS)
    return np.asarray(errors(SYSTEM, params, states))[:steps], t, steps


def test_the_gap_stays_small_and_is_third_order():
    """A crank at 30 rad/s turns over in 2 s. Where a body is forced along a curve with half the acceleration c, rows
    for G v leave a gap of c h^2 (1 + gamma) / (4 gamma) = 2.5 c h^2 at two steps of relaxation, with c = r w^2 / 2 at
    most here; rows for the mean rate leave a small part of it, of order three and, from what keeps loops regular, four.
    """
    h = 2e-3
    coarse, trajectory, steps = gaps(h)
    crank, _, _, rocker = trajectory.position[:steps].T
    assert np.ptp(crank) > 2 * np.pi, "it turns over"
    assert coarse.max() < 0.1 * 2.5 * CRANK * np.abs(trajectory.rate[:, 0]).max() ** 2 / 2 * h**2
    assert np.abs(distance_of_pins(crank, rocker) - COUPLER).max() < 4 * coarse.max(), "the angles fit the links"
    fine, _, _ = gaps(h / 2)
    assert coarse.max() / fine.max() > 7


NUMBERS = ("joints.elbow.at.x", "joints.wrist.at.x", "bodies.rocker.mass", "joints.drive.friction.viscous")
VALUES = np.array([0.5, 6.0, *(locate(SYSTEM, path).get(PARAMS) for path in NUMBERS)])
WEIGHTS = jnp.arange(1.0, 5.0)


def assembled(z):
    """State and parameters of the numbers `z`, relative to `VALUES`."""
    values, params = VALUES * z, PARAMS
    for path, value in zip(NUMBERS, values[2:], strict=True):
        params = locate(SYSTEM, path).set(params, value)
    return params, state_from_joints(SYSTEM, params, {"drive": {"position": values[0], "rate": values[1]}})


def at_start(z):
    """A number into which all of an assembled state enters; no friction."""
    _, state = assembled(z)
    return jnp.sum(state.r) + jnp.sum(state.e * WEIGHTS[None]) + 0.1 * jnp.sum(state.v + state.w), jnp.zeros(0)


def after_steps(z):
    """A number from 100 steps, and their friction levels."""
    params, state = assembled(z)
    trajectory = rollout(SYSTEM, params, state, jnp.full((100, 1), 0.01), throw=False)
    return WEIGHTS @ (trajectory.position[-1] + 0.1 * trajectory.rate[-1]), trajectory.friction


def differences(run, step=1e-6):
    """Central differences of `run`, away from changes between sticking and sliding."""
    number = compiled(run)
    slopes, levels = [], []
    for direction in np.eye(len(VALUES)):
        (ahead, x), (back, y) = number(1 + step * direction), number(1 - step * direction)
        slopes.append((ahead - back) / (2 * step))
        levels += [np.trunc(x), np.trunc(y)]
    assert all(np.array_equal(level, levels[0]) for level in levels), "degenerate draw: friction switches"
    return np.array(slopes)


ALL = ("angle", "rate", *NUMBERS)
SLOW = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("run", "mode", "seen"),
    [
        pytest.param(at_start, jax.grad, ALL[:4], marks=SLOW),
        pytest.param(at_start, jax.jacfwd, ALL[:4], marks=SLOW),
        pytest.param(after_steps, jax.grad, ALL, marks=SLOW),
        pytest.param(after_steps, jax.jacfwd, ALL, marks=SLOW),
    ],
)
def test_gradient_through_the_assembly_of_a_loop(run, mode, seen):
    """To 1e-6 of the gradient's norm, in the given angle and rate, two lengths, mass, friction."""
    expected = differences(run)
    large = np.abs(expected) > 1e-4 * np.linalg.norm(expected)
    assert tuple(name for name, is_large in zip(ALL, large, strict=True) if is_large) == seen
    found, _ = compiled(mode(run, has_aux=True))(np.ones(len(VALUES)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.linalg.norm(expected))


# Which constraints are on loops


def connected_without(groups, i):
    """Whether two members of group i are connected by the other groups: the definition, by merging sets."""
    parts = [{member} for member in set().union(*groups)]
    for group in groups[:i] + groups[i + 1 :]:
        touched = [part for part in parts if part & group]
        parts = [part for part in parts if not part & group] + [set().union(*touched)]
    return any(len(part & groups[i]) > 1 for part in parts)


@pytest.mark.parametrize("size", [2, 4], ids=["joints", "joints, couplings and own rows"])
def test_loops_are_found_by_their_definition(rng, size):
    """On 400 random graphs; the world is one of the numbers, parallel joints are among them."""
    seen = set()
    for _ in range(400):
        bodies = int(rng.integers(2, 12))
        groups = [
            set(rng.integers(-1, bodies, size=2 if size == 2 else rng.integers(1, size + 1)).tolist())
            for _ in range(rng.integers(1, 14))
        ]
        found = on_cycles(groups)
        assert found == [connected_without(groups, i) for i in range(len(groups))]
        seen |= set(found)
    assert seen == {False, True}


def test_loops_of_a_few_mechanisms():
    chain = [{i - 1, i} for i in range(3000)]  # deeper than Python recurses
    assert not any(on_cycles(chain))
    assert all(on_cycles([*chain, {-1, 2999}]))
    assert on_cycles([{-1, 0}, {0, 1}, {0, 1}]) == [False, True, True]  # parallel joints are a loop
    assert on_cycles([]) == []


@pytest.mark.parametrize("path", sorted(SCENES.rglob("*.yaml")), ids=lambda path: path.stem)
def test_loops_of_the_shipped_scenes(path):
    system, _ = build(read_scene(path))
    groups = [{joint.parent, joint.child} for joint in system.joints]
    groups += [{*system.ends(x.driver), *system.ends(x.driven)} for x in system.couplings]
    assert system.in_loops.tolist() == [connected_without(groups, i) for i in range(len(groups))]
