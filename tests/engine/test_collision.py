"""Where surfaces touch: gaps against distances of convex sets, and against how fast the bodies approach."""

import functools
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trimesh
from engine.mechanisms import compiled

from spookax.collision import KINDS, Grid, Posed, broad, touches
from spookax.constraints.placed_surfaces import meshes
from spookax.math import rotation
from spookax.scene import contacts
from spookax.scene.hulls import hull_of
from spookax.scene.shapes import Mesh

DRAWS = 100
CUT = {"box", "mesh", "cylinder"}  # their places slide along the cut of two faces
FIXED = [kind for kind in KINDS if not set(kind) <= CUT]
OVER_RIDGES = ("cylinder", "height_field")  # its lowest point slides along the rim there
OF_WORLD = ("plane", "height_field")
ROUND = [kind for kind in FIXED if kind[1] not in OF_WORLD]
SIZE = {
    "sphere": (0.2, 0.0, 0.0),
    "capsule": (0.1, 0.3, 0.0),
    "cylinder": (0.25, 0.15, 0.0),
    "box": (0.3, 0.2, 0.1),
    "mesh": (0.3, 0.2, 0.1),  # a brick
    "plane": (0.0, 0.0, 0.0),
    "height_field": (1.4, 1.2, 0.0),
}
HEIGHTS = np.random.default_rng(3).uniform(0, 0.3, (1, 6, 8))


def nearest(shape, q):
    """The points of a shape at the origin that are nearest to q (draws, 3)."""
    a, b, c = SIZE[shape]
    if shape in ("box", "mesh"):
        return np.clip(q, (-a, -b, -c), (a, b, c))
    if shape == "sphere":
        return q * np.minimum(1, a / np.linalg.norm(q, axis=1, keepdims=True))
    z = np.clip(q[:, 2:], -b, b)
    if shape == "cylinder":
        away = np.linalg.norm(q[:, :2], axis=1, keepdims=True)
        return np.concatenate([q[:, :2] * np.minimum(1, a / away), z], axis=1)
    core = np.concatenate([0 * q[:, :2], z], axis=1)
    d = q - core
    return core + d * np.minimum(1, a / np.linalg.norm(d, axis=1, keepdims=True))


def distances(kind, r, R, iterations=3000):
    """Of two convex sets, by projections in turn (Cheney and Goldstein (1959)): they end at the nearest points."""
    p = before = r[:, 0]
    for _ in range(iterations):
        for side, shape in ((1, kind[1]), (0, kind[0])):
            local = np.einsum("nji,nj->ni", R[:, side], p - r[:, side])
            p, before = r[:, side] + np.einsum("nij,nj->ni", R[:, side], nearest(shape, local)), p
    return np.linalg.norm(p - before, axis=1)


def draws(kind, seed=0):
    """Places (draws, 2, 3) and rotation vectors of two surfaces, near each other but apart."""
    rng = np.random.default_rng(seed)
    r = np.stack([rng.uniform(-0.9, 0.9, (DRAWS, 3)), np.zeros((DRAWS, 3))], axis=1)
    turn = rng.normal(size=(DRAWS, 2, 3))
    if kind[1] in OF_WORLD:
        turn[:, 1] = 0
        r[:, 0, 2] = rng.uniform(0.5, 0.8, DRAWS)
    return r, turn


def posed(kind, r, R):
    """Both surfaces; the brick is the mesh of either and the grid its heights, which others do not look at."""
    cells = np.array([[HEIGHTS.shape[2] - 1, HEIGHTS.shape[1] - 1]] * 2)
    grid = Grid(jnp.asarray(HEIGHTS), jnp.zeros(2, dtype=int), jnp.asarray(cells), (1, 2))
    return Posed(r, R, jnp.array([SIZE[shape] for shape in kind]), meshes([brick()] * 2, float), grid)


@functools.cache
def brick():
    with tempfile.TemporaryDirectory() as folder:
        trimesh.creation.box(2 * np.array(SIZE["mesh"])).export(f"{folder}/brick.ply")
        return hull_of(Mesh(type="mesh", file=f"{folder}/brick.ply"))


@functools.cache
def program(kind):
    """For many places and motions of both: rotations, where they touch, the lower bound of the broad phase, how fast
    gaps grow, and the normal's part of the relative velocity at the places. One program for all tests."""

    def one(r, turn, v, w):
        def at(t):
            R = jax.vmap(lambda a, b: rotation.matrix(rotation.multiply(rotation.exp(t * b), rotation.exp(a))))(turn, w)
            return R, posed(kind, r + t * v, R)

        R, here = at(0.0)
        touch = touches(kind, here, [0], [1])
        bound = KINDS[kind].apart(kind, here, np.array([0]), np.array([1]))[0]
        rate = jax.jvp(lambda t: touches(kind, at(t)[1], [0], [1]).gap, (0.0,), (1.0,))[1]
        speed = v[:, None] + jnp.cross(w[:, None], touch.point[None] - r[:, None])
        return R, touch, bound, rate, jnp.sum(touch.normal * (speed[0] - speed[1]), axis=-1)

    return compiled(jax.vmap(one))


def found(kind, r, turn, v=None, w=None):
    """What `program` says; of what does not move if no motion is given."""
    still = np.zeros_like(r)
    return jax.tree.map(np.asarray, program(kind)(r, turn, *(still if a is None else a for a in (v, w))))


@pytest.mark.parametrize("kind", ROUND, ids="-".join)
def test_the_smallest_gap_is_the_distance(kind):
    r, turn = draws(kind)
    R, touch, *_ = found(kind, r, turn)
    expected = distances(kind, r, R)
    apart = expected > 1e-3
    gap = np.where(touch.live, touch.gap, np.inf).min(axis=1)
    assert np.mean(apart) > 0.5
    np.testing.assert_allclose(gap[apart], expected[apart], rtol=0, atol=2e-6)
    assert np.all(gap[~apart] < 2e-3)


@pytest.mark.parametrize("kind", [kind for kind in FIXED if kind != OVER_RIDGES], ids="-".join)
def test_a_gap_closes_as_fast_as_the_bodies_approach(kind):
    """Its derivative along a motion of both is the normal's part of their relative velocity at the place."""
    r, turn = draws(kind, 1)
    rng = np.random.default_rng(2)
    v, w = rng.normal(size=(2, DRAWS, 2, 3))
    if kind[1] in OF_WORLD:
        v[:, 1], w[:, 1] = 0, 0

    _, touch, _, rate, expected = found(kind, r, turn, v, w)
    gap = np.where(touch.live, touch.gap, np.inf)
    place = np.arange(DRAWS), gap.argmin(axis=1)
    apart = gap.min(axis=1) > 0
    assert np.mean(apart) > 0.3
    np.testing.assert_allclose(np.linalg.norm(touch.normal[place], axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(rate[place][apart], expected[place][apart], rtol=0, atol=1e-8)


@pytest.mark.parametrize("kind", FIXED, ids="-".join)
def test_no_pair_is_farther_apart_than_the_broad_phase_says(kind):
    """It is a bound from below on the gap, and the gap above a plane."""
    _, touch, bound, *_ = found(kind, *draws(kind))
    gap = np.where(touch.live, touch.gap, np.inf).min(axis=1)
    assert np.all(bound <= gap + 1e-12)
    if kind[1] == "plane":
        np.testing.assert_allclose(bound, gap, atol=1e-12)
    else:
        assert np.mean(bound > 0) > 0.3 * np.mean(gap > 0)


@pytest.mark.parametrize("shape", ["box", "mesh"])
def test_a_capsule_lies_across_what_is_narrower(shape):
    """Its ends are beyond the face: it touches where its axis passes the sides, as deep as it is."""
    kind, turn = ("capsule", shape), jnp.array([[0.0, np.pi / 2, 0.0], [0.0, 0.0, 0.0]])
    r = jnp.array([[0.02, 0.0, 0.195], [0.0, 0.0, 0.0]])
    sizes = jnp.array([[0.1, 0.5, 0.0], SIZE[shape]])

    def both(r, turn):
        R = jax.vmap(lambda t: rotation.matrix(rotation.exp(t)))(turn)
        return touches(kind, Posed(r, R, sizes, meshes([brick()] * 2, float)), [0], [1])

    touch = jax.tree.map(np.asarray, compiled(both)(r, turn))
    presses = np.asarray(touch.live & (touch.gap < 0))
    np.testing.assert_allclose(np.unique(np.round(touch.point[presses, 0], 6)), [-0.3, 0.3])
    np.testing.assert_allclose(touch.gap[presses], -0.005, atol=1e-6)
    np.testing.assert_allclose(touch.normal[presses][:, 2], 1, atol=1e-12)


def test_pairs_that_are_near_come_first_in_the_slots():
    near = jnp.array([False, True, False, True, True])
    for count, overflow in ((4, False), (3, False), (2, True)):
        number, filled, too_many = broad.slots(near, count)
        expected = [1, 3, 4][:count]
        assert number[filled].tolist() == expected
        assert bool(too_many) == overflow


def test_scenes_know_all_kinds():
    assert tuple(KINDS) == contacts.KINDS
