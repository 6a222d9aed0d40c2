"""Cylinders on boxes, meshes, capsules and each other: how deep, how they lie, stand, roll and hit."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trimesh
from engine.mechanisms import compiled, pushed
from scipy.spatial import ConvexHull

from spookax import load
from spookax.collision import Posed, touches
from spookax.constraints import prepare
from spookax.constraints.placed_surfaces import meshes
from spookax.math import rotation
from spookax.scene import Scene
from spookax.scene.hulls import hull_of
from spookax.scene.shapes import Mesh
from spookax.stepping import rollout

DRAWS, SIDES = 150, 96
RADIUS, HALF = 0.25, 0.15
SIZE = {"capsule": (0.1, 0.3, 0.0), "cylinder": (RADIUS, HALF, 0.0), "box": (0.3, 0.2, 0.1), "mesh": (0.3, 0.2, 0.1)}
KINDS = [("cylinder", "cylinder"), ("cylinder", "box"), ("cylinder", "mesh")]
WAYS = np.random.default_rng(2).normal(size=(3, 400))  # directions along which two may be apart
BODY = {"mass": 1.0, "inertia": (0.005, 0.005, 0.005)}
CAN = {"type": "cylinder", "radius": 0.1, "length": 0.2}


@pytest.fixture(scope="module")
def brick(tmp_path_factory):
    file = tmp_path_factory.mktemp("meshes") / "brick.ply"
    trimesh.creation.box(2 * np.array(SIZE["mesh"])).export(file)
    return str(file)


def corners(shape):
    """Of a shape; of a cylinder those of a prism in it."""
    if shape == "cylinder":
        turn = np.linspace(0, 2 * np.pi, SIDES, endpoint=False)
        ring = RADIUS * np.stack([np.cos(turn), np.sin(turn)], axis=1)
        return np.concatenate([np.insert(ring, 2, z, axis=1) for z in (-HALF, HALF)])
    return np.array([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)]) * SIZE[shape]


def touch(kind, file):
    solids = meshes([hull_of(Mesh(type="mesh", file=file))] * 2, float) if "mesh" in kind else None

    def one(r, turn):
        R = jax.vmap(lambda t: rotation.matrix(rotation.exp(t)))(turn)
        return R, touches(kind, Posed(r, R, jnp.array([SIZE[shape] for shape in kind]), solids), [0], [1])

    return one


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_they_overlap_as_deeply_as_their_difference_says(kind, brick):
    """The depth is how far the origin lies inside of the hull of all differences. Its derivative is the normal."""
    rng = np.random.default_rng(0)
    r = np.stack([rng.uniform(-0.5, 0.5, (DRAWS, 3)), np.zeros((DRAWS, 3))], axis=1)
    turn = rng.normal(size=(DRAWS, 2, 3)) * rng.choice([0.02, 1.0], size=(DRAWS, 1, 1))
    R, found = jax.tree.map(np.asarray, compiled(jax.vmap(touch(kind, brick)))(r, turn))
    gap = np.where(found.live, found.gap, np.inf).min(axis=1)
    prism = RADIUS * (1 - np.cos(np.pi / SIDES)) * kind.count("cylinder")
    octagon, preferred = RADIUS * (1 - np.cos(np.pi / 8)), 2e-3 * 0.1
    shallower = []
    for i in range(DRAWS):
        first, second = (corners(shape) @ R[i, k].T + r[i, k] for k, shape in enumerate(kind))
        if np.any(np.min(first @ WAYS, axis=0) > np.max(second @ WAYS, axis=0)):  # a plane is between them
            assert gap[i] > -prism
            continue
        depth = -np.max(ConvexHull((first[:, None] - second[None]).reshape(-1, 3)).equations[:, 3])
        if 0 < depth < HALF:  # what is deeper comes out anywhere
            shallower.append(gap[i] + depth)
        elif depth <= 0:
            assert gap[i] > -prism
    assert 40 < len(shallower) < DRAWS - 20
    assert np.min(shallower) > -prism - preferred
    assert np.max(shallower) < octagon + preferred
    assert np.mean(np.array(shallower) < preferred) > 0.9, "where caps meet edges they are octagons"


@pytest.mark.parametrize("kind", [("capsule", "cylinder"), *KINDS[:2]], ids="-".join)
def test_places_have_the_derivatives_of_differences(kind):
    """Points, normals and gaps, along a motion of both, of the places that there are before and after."""
    rng = np.random.default_rng(1)
    r = np.stack([rng.uniform(-0.35, 0.35, (60, 3)), np.zeros((60, 3))], axis=1)
    turn, dr, dt = rng.normal(size=(3, 60, 2, 3))
    one = touch(kind, "")

    def moved(s, r, turn, dr, dt):
        found = one(r + s * dr, turn + s * dt)[1]
        return jnp.concatenate([found.point, found.normal, found.gap[:, None]], axis=1), found.live

    at = compiled(jax.vmap(moved, in_axes=(None, 0, 0, 0, 0)))

    def rate(*motion):
        return jax.jvp(lambda s: moved(s, *motion)[0], (0.0,), (1.0,))[1]

    eps, slope = 1e-6, np.asarray(compiled(jax.vmap(rate))(r, turn, dr, dt))
    sides = (map(np.asarray, at(s, r, turn, dr, dt)) for s in (eps, -eps, 0.0))
    (after, live), (before, lives), (now, here) = sides
    smooth = np.abs(after - 2 * now + before).max(axis=2) < 1e-9  # or two corners of a cut become one, or another one
    live = live & lives & here & (now[..., 6] > -0.1) & smooth
    differences = (after - before) / (2 * eps)
    assert np.sum(np.any(live, axis=1)) > 25
    assert np.abs(slope[live]).max() > 1
    np.testing.assert_allclose(slope[live], differences[live], rtol=0, atol=1e-6)


def test_nothing_is_nan_where_axes_and_faces_coincide(brick):
    """Coaxial, concentric, edge on edge: numbers and derivatives are finite."""
    r = jnp.array([[[0.0, 0, 0.3], [0, 0, 0]], [[0.5, 0, 0], [0, 0, 0]], [[0.0, 0, 0], [0, 0, 0]]])
    turn = jnp.zeros((3, 2, 3)).at[1, 0, 1].set(np.pi / 2)
    for kind in KINDS:
        one = touch(kind, brick)

        def numbers(r, turn, one=one):
            _, found = one(r, turn)
            return found.point, found.normal, found.gap

        for leaf in jax.tree.leaves(compiled(jax.vmap(jax.jacfwd(numbers, argnums=(0, 1))))(r, turn)):
            assert jnp.all(jnp.isfinite(leaf))


def run(bodies, surfaces, steps, **more):
    contacts = {"surfaces": surfaces, "materials": {"default": {"friction": 0.5}}, **more}
    system, params, state = load(Scene(spookax=1, bodies=bodies, contacts=contacts))
    return system, params, state, rollout(system, params, state, jnp.zeros((steps, 0)))


SLOPE = 0.2
STARTS = {  # turned by so much, its middle so high above the slope; compared for so many steps
    "rolls": ((np.pi / 2, 0, 0), 0.1, 160),
    "tilts": ((0, SLOPE + 0.5, 0), 0.1 * (np.cos(0.5) + np.sin(0.5)), 40),
    "stands": ((0, SLOPE, 0), 0.1, 160),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STARTS)
def test_on_a_box_or_a_brick_it_moves_as_on_a_plane(name, brick):
    """Down a slope: lying, on its rim, and upright. The places are halfway in gaps, which are nothing here."""
    turn, height, steps = STARTS[name]
    out, at = np.array([np.sin(SLOPE), 0, np.cos(SLOPE)]), {"rotation": (0, SLOPE, 0)}
    below = tuple(-out)
    grounds = {
        "plane": {"type": "plane", **at},
        "box": {"type": "box", "size": (6.0, 4.0, 2.0), "at": below, **at},
        "mesh": {"type": "mesh", "file": brick, "scale": 10.0, "at": below, **at},
    }
    start = {"position": tuple((height - 1e-7) * out), "rotation": turn, "velocity": (0.3 * out[2], 0, -0.3 * out[0])}
    ends = []
    for ground in grounds.values():
        surfaces = {"ground": ground, "can": {**CAN, "body": "can"}}
        ends.append(np.asarray(run({"can": {**BODY, "initial": start}}, surfaces, steps)[-1].r[:, 0]))
    assert np.ptp(ends[0], axis=0).max() > 0.005
    for found in ends[1:]:
        np.testing.assert_allclose(found, ends[0], rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_cans_stand_and_lie_on_each_other():
    """A tower of three, the uppermost lying."""
    places = {
        "low": {"position": (0, 0, 0.1)},
        "middle": {"position": (0.02, 0.01, 0.3)},
        "high": {"position": (0.0, 0.02, 0.5), "rotation": (np.pi / 2, 0, 0)},
    }
    bodies = {name: {**BODY, "initial": start} for name, start in places.items()}
    surfaces = {"floor": {"type": "plane"}, **{name: {**CAN, "body": name} for name in places}}
    system, *_, found = run(bodies, surfaces, 400)
    np.testing.assert_allclose(found.r[-1], [start["position"] for start in places.values()], atol=1e-3)
    weights = [found.contact_force(system, *pair)[-1, 2] for pair in (("low", "floor"), ("middle", "low"))]
    np.testing.assert_allclose(weights, [3 * 9.81, 2 * 9.81], rtol=1e-3)


PAIRS = {
    "box": {"type": "box", "size": (0.2, 0.16, 0.12)},
    "can": CAN,
    "capsule": {"type": "capsule", "radius": 0.07, "length": 0.2},
    "brick": {"type": "mesh"},
}


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("other", PAIRS)
def test_impacts_keep_momentum_and_gain_no_energy(other, brick):
    """Forty that meet anyhow. An overlap that is led back may give what its step has taken, and no more than before."""
    shape = PAIRS[other] | ({"file": brick, "scale": 0.4} if other == "brick" else {})
    surfaces = {"a": {**CAN, "body": "a"}, "b": {**shape, "body": "b"}}
    rng, count = np.random.default_rng(0), 40
    bodies = {name: {**BODY, "initial": {"position": (0, 0, 0.5 * i)}} for i, name in enumerate("ab")}
    contacts = {"surfaces": surfaces, "materials": {"default": {"friction": 0.5}}}
    scene = Scene(spookax=1, gravity=(0, 0, 0), bodies=bodies, contacts=contacts)
    swapped = Scene(spookax=1, gravity=(0, 0, 0), bodies=bodies, contacts={**contacts, "pairs": [("b", "a")]})
    system, params, state = load(scene)
    assert load(swapped)[0].contacts.groups == system.contacts.groups
    e = jnp.asarray(rotation.exp(jnp.asarray(rng.normal(size=(count, 2, 3)))))
    v = np.zeros((count, 2, 3))
    v[:, 1] = (0, 0, -1.5) + 0.2 * rng.normal(size=(count, 3))
    w = rng.normal(size=(count, 2, 3))
    prepared = prepare(system, params)

    def states(e, v, w):
        def once(now, _):
            after = pushed(system, prepared, now, 1)
            return after, (after.r, after.e, after.v, after.w)

        first = eqx.tree_at(lambda s: (s.e, s.v, s.w), state, (e, v, w))
        return jax.lax.scan(once, first, length=70)[1]

    moved = jax.jit(jax.vmap(states))(e, jnp.asarray(v), jnp.asarray(w))
    _, _, v, w = map(np.asarray, moved)
    energy = 0.5 * np.sum(v**2 + 0.005 * w**2, axis=(2, 3))
    assert np.mean(np.ptp(v[:, :, 0, 2], axis=1) > 0.05) > 0.8, "they meet"
    assert np.all(energy <= (1 + 1e-6) * energy[:, :1])
    momentum = np.sum(v, axis=2)
    np.testing.assert_allclose(momentum, np.broadcast_to(momentum[:, :1], momentum.shape), atol=1e-9)
    if other == "can":  # most of what is looked for, rims among them; the others as these (`cylinder`)
        hits = np.argwhere(np.abs(np.diff(v, axis=1)).max(axis=(2, 3)) > 1e-3)[::4]
        chosen = [x[hits[:, 0], hits[:, 1]] for x in moved]
        derivatives_of_a_step(system, prepared, state, chosen, rng)


def derivatives_of_a_step(system, prepared, state, chosen, rng):
    """Of steps in which bodies hit each other, along a random change of pose and velocity.

    What Newton's method leaves, 1e-10 of a speed, is in differences over their length: the best of two lengths counts.
    """
    count = len(chosen[0])
    way = jnp.asarray(rng.normal(size=(count, 2, 2, 6)) * np.array([0.01, 1.0])[None, :, None, None])

    def after(s, r, e, v, w, way):
        e = rotation.multiply(e, rotation.exp(s * way[0, :, 3:]))
        now = r + s * way[0, :, :3], e, v + s * way[1, :, :3], w + s * way[1, :, 3:]
        now = pushed(system, prepared, eqx.tree_at(lambda s: (s.r, s.e, s.v, s.w), state, now), 1)
        return jnp.concatenate([now.r, now.v, now.w], axis=-1)

    slope = np.asarray(jax.jit(jax.vmap(lambda *x: jax.jvp(lambda s: after(s, *x), (0.0,), (1.0,))[1]))(*chosen, way))
    at = jax.jit(jax.vmap(after, in_axes=(None, *[0] * 5)))
    off = []
    for eps in (1e-5, 1e-6):
        differences = np.asarray(at(eps, *chosen, way) - at(-eps, *chosen, way)) / (2 * eps)
        scale = np.maximum(1.0, np.abs(differences).max(axis=(1, 2)))
        off.append(np.abs(slope - differences).max(axis=(1, 2)) / scale)
    assert np.abs(slope).max() > 10
    assert np.max(np.min(off, axis=0)) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("other", ["box", "can"])
def test_steps_have_the_derivatives_of_differences(other):
    """A can that rolls and slips on a box, and along one that lies: three steps, by pose, velocity and friction.

    Away from ties: with its end right above the edge of the box differences mean both sides.
    """
    lies = (np.pi / 2, 0, 0)
    below = {
        **PAIRS[other],
        "at": (0, 0, -0.06 if other == "box" else -0.1),
        "rotation": lies if other == "can" else (0, 0, 0),
    }
    start = {
        "position": (0.01, 0.023, 0.0999),
        "rotation": lies,
        "velocity": (0.3, 0.1, 0),
        "angular_velocity": (0.1, 0, 0.4),
    }
    contacts = {"surfaces": {"below": below, "can": {**CAN, "body": "can"}}}
    system, params, state = load(Scene(spookax=1, bodies={"can": {**BODY, "initial": start}}, contacts=contacts))

    def after(x):
        moved = (state.r + x[None, :3], state.v + x[None, 3:6], state.w + x[None, 6:9])
        p = eqx.tree_at(lambda p: p.material_friction, params, params.material_friction + x[9])
        now = eqx.tree_at(lambda s: (s.r, s.v, s.w), state, moved)
        now = pushed(system, prepare(system, p), now, 3)
        return jnp.concatenate([now.r[0], now.v[0], now.w[0]])

    value, zero, eps = compiled(after), jnp.zeros(10), 1e-6
    forward = np.asarray(compiled(jax.jacfwd(after))(zero))
    sides = [value(eps * row) - value(-eps * row) for row in jnp.eye(10)]
    differences = np.stack(sides, axis=1) / (2 * eps)
    scale = np.maximum(1.0, np.abs(differences).max(axis=0))
    assert np.abs(forward).max() > 10
    np.testing.assert_allclose(forward / scale, differences / scale, rtol=0, atol=1e-6)
