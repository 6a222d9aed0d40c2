"""Where surfaces touch along a motion: the forces at these places are those that move the bodies."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import compiled

import spookax as sx
from spookax.constraints import prepare
from spookax.math import rotation
from spookax.scene import Scene
from spookax.stepping import step

pytestmark = pytest.mark.quick
MASS, MOMENT, STEP, SIZE = 0.8, 2e-3, 0.004, 0.1
G = np.array([0.0, 0.0, -9.81])


def heap(slots: int | None = None) -> Scene:
    """A cube that is thrown onto a floor and into a ball; a wall is far away."""
    cube = {
        "position": (0, 0, 0.16),
        "rotation": (0.5, 0.3, 0.2),
        "velocity": (1.5, 0, 0),
        "angular_velocity": (2, 9, 1),
    }
    bodies = {
        "cube": {"mass": MASS, "inertia": [MOMENT] * 3, "initial": cube},
        "ball": {"mass": 0.5, "inertia": [5e-4] * 3, "initial": {"position": (0.2, 0.01, 0.05)}},
    }
    surfaces = {
        "floor": {"type": "plane"},
        "wall": {"type": "plane", "at": [5, 0, 0], "rotation": [0, -np.pi / 2, 0]},
        "cube": {"type": "box", "body": "cube", "size": [SIZE] * 3},
        "ball": {"type": "sphere", "body": "ball", "radius": 0.05},
    }
    return Scene(spookax=1, step=STEP, gravity=tuple(G), bodies=bodies, contacts={"surfaces": surfaces, "slots": slots})


@pytest.fixture(scope="module")
def tossed():
    system, params, state = sx.load(heap())
    run = sx.rollout(system, params, state, np.zeros((200, 0)))
    return system, params, run, sx.contact_points(system, params, run)


def test_forces_at_their_places_move_the_bodies(tossed):
    """m dv and J dw of every step are what weight and these forces say, with their arms; those of the cube, whose
    moments of inertia are equal, so that turning adds nothing."""
    _, _, run, found = tossed
    r, e = np.asarray(run.r), run.e
    sides = np.array([[1.0 if pair[0] == "cube" else -1.0 if pair[1] == "cube" else 0.0 for pair in found.names]])
    force = np.take_along_axis(sides, found.pair, axis=1)[..., None] * found.force
    change = (r[2:, 0] - 2 * r[1:-1, 0] + r[:-2, 0]) / STEP**2
    np.testing.assert_allclose(MASS * (change - G), np.sum(force, axis=1)[1:], atol=1e-6)

    w = np.asarray(jax.vmap(rotation.minus)(e[1:, 0], e[:-1, 0])) / STEP
    torque = np.sum(np.cross(found.point - r[:-1, 0][:, None], force), axis=1)
    in_body = np.einsum("kji,kj->ki", rotation.matrix(e[:-1, 0]), torque)
    np.testing.assert_allclose(MOMENT * (w[1:] - w[:-1]) / STEP, in_body[1:], atol=1e-6)
    assert np.max(np.abs(torque)) > 0.1, "nothing hits the cube off its centre"


@pytest.mark.parametrize("slots", [None, 4])
def test_forces_of_impacts_with_restitution_are_among_them(slots):
    """A ball that hits a row of balls: m dv of every step and ball is h times its weight and forces."""
    start = {"b0": [0.0, 0, 0.06], "b1": [0.2, 0, 0.0500001], "b2": [0.3001, 0, 0.0500001], "b3": [1, 0, 0.05]}
    bodies = {n: {"mass": MASS, "inertia": [MOMENT] * 3, "initial": {"position": at}} for n, at in start.items()}
    bodies["b0"]["initial"]["velocity"] = [1.5, 0, 0]
    surfaces = {"floor": {"type": "plane"}, **{n: {"type": "sphere", "body": n, "radius": 0.05} for n in start}}
    contacts = {"surfaces": surfaces, "slots": slots, "materials": {"default": {"friction": 0.3, "restitution": 0.8}}}
    scene = Scene(spookax=1, step=STEP, gravity=tuple(G), bodies=bodies, contacts=contacts)
    system, params, state = sx.load(scene)
    v, each, slots_of = map(np.asarray, _velocities(system, params, state))
    assert bool(system.contacts.slots) == bool(slots)
    ends = np.array([[system.contacts.surfaces[i].body for i in pair] for pair in system.contacts.ends])
    of_places = ends[system.contacts.places(slots_of)]
    sign = [(of_places == body) @ [1.0, -1.0] for body in range(len(start))]
    given = np.einsum("bkp,kpi->kbi", sign, each)
    np.testing.assert_allclose(MASS * (np.diff(v, axis=0) - STEP * G), given[1:], atol=1e-8)
    assert np.max(given) > 10 * MASS * 9.81 * STEP, "no impact"


@functools.partial(compiled, static_argnums=0)
def _velocities(system, params, state):
    """Those after each of a hundred steps, the impulses of contacts and the pairs in slots."""
    prepared = prepare(system, params)

    def once(state, _):
        after, info = step(system, prepared, state, jnp.zeros(0))
        return after, (after.v, info.contact_impulses, info.contact_pairs)

    return jax.lax.scan(once, state, length=100)[1]


def test_places_lie_on_both_surfaces(tossed):
    _, _, run, found = tossed
    here = found.touches
    floor = np.array([second == "floor" for _, second in found.names])[found.pair]
    assert np.max(np.abs(found.gap[here])) < 0.02
    np.testing.assert_allclose(found.normal[here & floor], np.tile([0, 0, 1.0], (np.sum(here & floor), 1)), atol=1e-12)
    pair = found.names.index(("ball", "floor"))
    lowest = np.asarray(run.r)[:-1, 1] - [0, 0, 0.05]
    mine = np.argmax(found.pair[0] == pair)
    np.testing.assert_allclose(found.point[:, mine, :2], lowest[:, :2], atol=1e-12)
    np.testing.assert_allclose(found.gap[:, mine], lowest[:, 2], atol=1e-12)


def test_pairs_have_the_forces_that_a_trajectory_tells_by_their_names(tossed):
    system, _, run, found = tossed
    pairs = found.by_pair()
    assert set(pairs) == {("cube", "floor"), ("ball", "floor"), ("ball", "cube")}
    normal, friction = pairs["cube", "floor"].T
    force = np.asarray(run.contact_force(system, "cube", "floor"))
    np.testing.assert_allclose(normal, force[:, 2], atol=1e-9)
    np.testing.assert_allclose(friction, np.linalg.norm(force[:, :2], axis=1), atol=1e-9)
    assert np.all(friction <= 0.5 * normal * (1 + 1e-6) + 1e-9)
    hardest = [float(forces[:, 0].max()) for forces in pairs.values()]
    assert hardest == sorted(hardest, reverse=True)


def test_pairs_in_slots_have_the_same_forces(tossed):
    *_, found = tossed
    system, params, state = sx.load(heap(slots=1))
    assert system.contacts.slots
    again = sx.contact_points(system, params, sx.rollout(system, params, state, np.zeros((200, 0))))
    for pair, forces in found.by_pair().items():
        np.testing.assert_allclose(again.by_pair()[pair], forces, atol=1e-4)


def test_a_file_keeps_the_places_that_touch(tossed):
    *_, found = tossed
    kept = sx.ContactPoints.from_arrays(found.arrays())
    assert kept.force.shape[1] == np.sum(found.touches.any(axis=0)) < found.force.shape[1]
    for pair, forces in found.by_pair().items():
        np.testing.assert_allclose(kept.by_pair()[pair], forces, atol=1e-12)


def test_nothing_follows_a_failed_step(tossed):
    system, params, run, found = tossed
    failed = dataclasses.replace(run, failed_step=jnp.array(50))
    np.testing.assert_array_equal(sx.contact_points(system, params, failed).force, found.force[:50])


def test_what_has_no_contacts_is_refused(tossed):
    system, params, run, _ = tossed
    with pytest.raises(ValueError, match="there is nothing to show"):
        sx.contact_points(system, params, dataclasses.replace(run, failed_step=jnp.array(0)))
    with pytest.raises(ValueError, match=r"takes one trajectory, got a batch of shape \(2,\)"):
        sx.contact_points(system, params, jax.tree.map(lambda a: jnp.stack([a, a]), run))
    bare, params, _ = sx.load("scenes/pendulum.yaml")
    with pytest.raises(ValueError, match="names no pairs of surfaces in `contacts`"):
        sx.contact_points(bare, params, run)
