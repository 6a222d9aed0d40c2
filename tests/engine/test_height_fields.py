"""Height fields: what touches them and where, their files, and what is drawn and exchanged of them."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trimesh
from engine.mechanisms import compiled, pushed

from spookax import load
from spookax.collision import Grid, Posed, touches
from spookax.constraints import prepare
from spookax.constraints.contact_rows import gaps
from spookax.math import rotation
from spookax.scene import Scene, SceneError, read_scene, write_scene
from spookax.scene.height_fields import HeightField, heights_of, triangles
from spookax.stepping import rollout
from spookax.viewer.drawing import parts_of

DRAWS, COUNT = 150, 3000  # COUNT is what programs are compiled for
HALF = np.array([1.0, 0.8])
ROUGH = np.random.default_rng(0).uniform(0, 0.25, (6, 7))
BODY = {"mass": 1.0, "inertia": (0.004, 0.004, 0.004)}
SHAPES = {
    "ball": {"type": "sphere", "radius": 0.1},
    "capsule": {"type": "capsule", "radius": 0.1, "length": 0.3, "rotation": (0, np.pi / 2, 0)},
    "box": {"type": "box", "size": (0.2, 0.2, 0.2)},
    "cylinder": {"type": "cylinder", "radius": 0.1, "length": 0.2, "rotation": (np.pi / 2, 0, 0)},
}


def field(heights, size=None):
    return {"type": "height_field", "size": size or (2 * HALF).tolist(), "heights": np.asarray(heights).tolist()}


def nearest(q, corners, faces):
    """Distances of points (n, 3) from a surface of triangles: inside of these or to their sides."""
    a, b, c = np.moveaxis(corners[faces], 1, 0)
    normal = np.cross(b - a, c - a)
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    height = np.einsum("fi,nfi->nf", normal, q[:, None] - a)
    foot = q[:, None] - height[..., None] * normal
    found, inside = [], np.ones(height.shape, dtype=bool)
    for p, e in ((a, b - a), (b, c - b), (c, a - c)):
        inside &= np.einsum("fi,nfi->nf", np.cross(normal, e), foot - p) >= 0
        part = np.clip(np.einsum("fi,nfi->nf", e, q[:, None] - p) / np.sum(e * e, axis=1), 0, 1)
        found.append(np.linalg.norm(q[:, None] - p - part[..., None] * e, axis=2))
    return np.min(np.where(inside, np.abs(height), np.min(found, axis=0)), axis=1)


CELLS = np.array([[ROUGH.shape[1] - 1, ROUGH.shape[0] - 1]] * 2)


def ball_gap(q, z):
    """Gaps (places) of a ball with its centre at q over a field at the origin, and their normals."""
    grid = Grid(z[None], jnp.zeros(2, dtype=int), jnp.asarray(CELLS), (1, 1))
    at, sizes = jnp.stack([q, jnp.zeros(3)]), jnp.array([[0.15, 0, 0], [*HALF, 0]])
    found = touches(("sphere", "height_field"), Posed(at, jnp.stack([jnp.eye(3)] * 2), sizes, None, grid), [0], [1])
    return jnp.where(found.live, found.gap, jnp.inf), found.normal


_ball_gaps = compiled(jax.vmap(ball_gap, in_axes=(0, None)))


def ball_gaps(q):
    """`ball_gap` of many over the rough field."""
    return [np.asarray(a)[: len(q)] for a in _ball_gaps(np.resize(q, (COUNT, 3)), ROUGH)]


@functools.partial(compiled, static_argnums=0)
def _least_gaps(name, q, turn, size):
    def one(q, turn):
        R = rotation.matrix(rotation.exp(turn))
        grid = Grid(jnp.asarray(ROUGH)[None], jnp.zeros(2, dtype=int), jnp.asarray(CELLS), (1, 1))
        sizes = jnp.stack([size, jnp.array([*HALF, 0])])
        posed = Posed(jnp.stack([q, jnp.zeros(3)]), jnp.stack([R, jnp.eye(3)]), sizes, None, grid)
        found = touches((name, "height_field"), posed, [0], [1])
        return jnp.min(jnp.where(found.live, found.gap, jnp.inf)), R[:, 2]

    return jax.vmap(one)(q, turn)


def least_gaps(name, q, turn, size):
    """Of what lies at q, turned by `turn`, over the rough field, and its axis."""
    q, turn = (np.resize(a, (COUNT, 3)) for a in (q, turn))
    return map(np.asarray, _least_gaps(name, q, turn, np.array(size)))


def shape():
    return HeightField.model_validate(field(ROUGH))


def test_a_ball_is_as_far_away_as_the_triangles_are():
    """Also beyond the border, of which it rolls down."""
    rng = np.random.default_rng(1)
    q = np.stack([*(rng.uniform(-1.05, 1.05, (2, DRAWS)) * HALF[:, None]), np.zeros(DRAWS)], axis=1)
    corners, faces = triangles(shape())
    q[:, 2] = np.interp(rng.uniform(size=DRAWS), [0, 1], [0.1, 0.4])
    distance = nearest(q, corners, faces)
    gap, normal = ball_gaps(q)
    least = np.min(gap, axis=1)
    inside = np.all(np.abs(q[:, :2]) < HALF, axis=1)
    assert np.all(np.isfinite(least[~inside & (distance < 0.15)])), "the border holds what is beside it"
    near = (least > -0.15 + 1e-9) & (distance < 0.2) & (inside | (q[:, 2] > ROUGH.max()))
    assert np.sum(near) > 40
    assert np.sum(np.sum(np.isfinite(gap), axis=1) > 1) > 20, "several places at a time"
    np.testing.assert_allclose(least[near], distance[near] - 0.15, rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(normal[near], axis=-1), 1, rtol=1e-12)


def test_the_gap_of_a_ball_that_moves_has_no_jump():
    """It changes by no more than the ball moves, over faces, edges and the border."""
    start, end = np.array([-0.9, -0.7, 0.33]), np.array([1.1, 0.6, 0.24])
    q = start + np.linspace(0, 1, COUNT)[:, None] * (end - start)
    gap, _ = ball_gaps(q)
    least = np.min(gap, axis=1)
    assert np.sum(least < 0.05) > 300
    assert np.max(np.abs(np.diff(least))) < np.linalg.norm(end - start) / (COUNT - 1) * (1 + 1e-9)


SIZES = {"capsule": (0.1, 0.15, 0), "box": (0.1, 0.1, 0.1), "cylinder": (0.1, 0.1, 0)}


@pytest.mark.parametrize("name", SIZES)
def test_nothing_jumps_at_ridges_and_edges_of_cells_but_what_is_off_the_surface(name):
    """The gap of a corner or rim is its height times n_z of the triangle below it: of what touches it changes by no
    more than the body moves, and off the surface at an edge by what n_z changes there. That of a capsule never does.
    """
    turn = {"capsule": (0.2, np.pi / 2, 0.1), "box": (0.2, 0.3, 0.1), "cylinder": (np.pi / 2 + 0.1, 0.2, 0.1)}[name]
    start, end = np.array([-0.7, -0.55, 0.3]), np.array([0.7, 0.5, 0.25])
    gap, _ = least_gaps(name, start + np.linspace(0, 1, COUNT)[:, None] * (end - start), turn, SIZES[name])
    corners, faces = triangles(shape())
    a, b, c = np.moveaxis(corners[faces], 1, 0)
    normal = np.cross(b - a, c - a)
    n_z = np.abs(normal[:, 2]) / np.linalg.norm(normal, axis=1)
    moved = np.linalg.norm(end - start) / (COUNT - 1) * (1 + 1e-9)
    spread = 0.0 if name == "capsule" else np.ptp(n_z)
    off = np.maximum(np.abs(gap[1:]), np.abs(gap[:-1]))
    assert np.sum(np.abs(gap) < 0.02) > 300
    assert np.ptp(np.sign(gap)) == 2, "it dips into ridges"
    assert np.all(np.abs(np.diff(gap)) < moved + spread * off)


def test_gaps_have_the_derivatives_of_differences():
    """By the place of a ball and by the heights."""
    rng = np.random.default_rng(5)
    q = np.array([[0.13, 0.07, 0.22], [-0.31, 0.2, 0.2], [0.52, -0.43, 0.23]])
    dq, dz, eps = rng.normal(size=q.shape), rng.normal(size=ROUGH.shape), 1e-6

    def least(s, q, dq):
        return jnp.min(ball_gap(q + s * dq, ROUGH + s * dz)[0])

    value = compiled(jax.vmap(least, in_axes=(None, 0, 0)))
    slope = compiled(jax.vmap(lambda q, dq: jax.jvp(lambda s: least(s, q, dq), (0.0,), (1.0,))[1]))(q, dq)
    differences = np.asarray(value(eps, q, dq) - value(-eps, q, dq)) / (2 * eps)
    assert np.all(np.abs(slope) > 0.1)
    np.testing.assert_allclose(slope, differences, rtol=0, atol=1e-8)


def test_a_capsule_is_as_far_away_as_the_triangles_are():
    """The least distance along its axis, by many points of it."""
    rng = np.random.default_rng(2)
    q = np.stack([*(rng.uniform(-0.7, 0.7, (2, DRAWS)) * HALF[:, None]), rng.uniform(0.25, 0.4, DRAWS)], axis=1)
    turn = np.stack([np.zeros(DRAWS), np.full(DRAWS, np.pi / 2), np.zeros(DRAWS)], axis=1)
    turn += 0.2 * rng.normal(size=turn.shape)
    gap, along = (a[:DRAWS] for a in least_gaps("capsule", q, turn, (0.05, 0.2, 0.0)))
    t = np.linspace(-0.2, 0.2, 401)
    points = q[:, None] + t[:, None] * along[:, None]
    corners, faces = triangles(shape())
    inner = np.array([nearest(p, corners, faces) for p in points])
    distance, between = inner.min(axis=1), (inner.argmin(axis=1) % 400) > 0
    near = (gap > -0.04) & (distance < 0.15)
    assert np.sum(near) > 40
    assert np.sum(near & between) > 5, "not at an end"
    np.testing.assert_allclose(gap[near], distance[near] - 0.05, rtol=0, atol=1e-5)


def sliding(ground, shapes, steps=120, **more):
    bodies = {n: {**BODY, "initial": {"position": (0.03, 0.4 * i - 0.6, 0.25)}} for i, n in enumerate(shapes)}
    surfaces = {n: {**s, "body": n, "group": "movers"} for n, s in shapes.items()}
    contacts = {"surfaces": {"ground": ground, **surfaces}, "materials": {"default": {"friction": 0.3}}, **more}
    system, params, state = load(Scene(spookax=1, bodies=bodies, contacts=contacts))
    return system, rollout(system, params, state, jnp.zeros((steps, 0)))


@pytest.mark.parametrize("slope", [0.15, 0.5], ids=["rests", "slides"])
def test_a_flat_field_that_is_tilted_is_a_tilted_plane(slope):
    """By its heights and by its rotation: what lies, slides or rolls on it moves as on the plane."""
    x = np.linspace(-1, 1, 6)
    by_heights = field(np.broadcast_to(slope / 2 * x, (5, 6)), [2.0, 2.0])
    rest = np.arctan(slope) - np.arctan(slope / 2)
    _, run = sliding(by_heights | {"rotation": (0, -rest, 0)}, SHAPES)
    _, plane = sliding({"type": "plane", "rotation": (0, -np.arctan(slope), 0)}, SHAPES)
    slid = plane.r[-1, :, 0] - plane.r[0, :, 0]
    assert np.all(np.abs(slid[np.array([0, 3])]) > 0.1), "what is round rolls"
    assert (np.linalg.norm(plane.v[-1, 2]) < 1e-3) == (slope < 0.3), "the box rests or slides"
    np.testing.assert_allclose(run.r, plane.r, rtol=0, atol=1e-9)
    np.testing.assert_allclose(run.w, plane.w, rtol=0, atol=1e-7)


def test_slots_make_no_difference():
    shapes = {name: SHAPES[name] for name in ("ball", "box")}
    ends = [sliding(field(ROUGH / 3), shapes, 60, slots=count)[1].r for count in (None, 1)]
    np.testing.assert_allclose(ends[0], ends[1], rtol=0, atol=1e-12)


def test_a_ball_in_a_hollow_rests_on_its_sides():
    """On the two steepest of the six triangles in it, at the height that they say, with half of the weight on both."""
    heights = np.array([[0.4, 0.4, 0.4], [0.4, 0.0, 0.4], [0.4, 0.4, 0.4]])
    start = {"position": (0, 0, 0.14)}
    surfaces = {"ground": field(heights, [2.0, 2.0]), "ball": {"type": "sphere", "radius": 0.1, "body": "ball"}}
    scene = Scene(spookax=1, bodies={"ball": {**BODY, "initial": start}}, contacts={"surfaces": surfaces})
    system, params, state = load(scene)
    run = rollout(system, params, state, jnp.zeros((200, 0)))
    force = np.asarray(run.contact_forces[-1])
    np.testing.assert_allclose(run.r[-1, 0], [0, 0, 0.1 * np.hypot(1, np.hypot(0.4, 0.4))], atol=1e-5)
    np.testing.assert_allclose(force[np.linalg.norm(force, axis=1) > 1e-3][:, 2], [9.81 / 2] * 2, atol=1e-5)
    np.testing.assert_allclose(np.sum(run.contact_forces[-1], axis=0), [0, 0, 9.81], atol=1e-5)


def test_nothing_touches_it_beyond_the_border():
    _, run = sliding(field(np.zeros((2, 2)), [0.02, 4.0]), {"box": SHAPES["box"], "ball": SHAPES["ball"]}, 100)
    assert run.r[-1, 0, 2] < -0.5, "all corners of the box are beside it"
    fields = {"low": field(np.zeros((2, 2)), [0.02, 4.0]), "high": field(np.full((3, 4), 0.05), [2.0, 2.0])}
    surfaces = {**fields, "box": {**SHAPES["box"], "body": "box"}}
    start = {**BODY, "initial": {"position": (0, 0, 0.2)}}
    system, params, state = load(Scene(spookax=1, bodies={"box": start}, contacts={"surfaces": surfaces}))
    np.testing.assert_allclose(np.unique(gaps(system, params, state.r, state.e)), [0.05, 0.25, np.inf], atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_steps_have_the_derivatives_of_differences(name):
    """Of three steps on rough ground, by place, velocity and all heights together."""
    start = {"position": (0.21, -0.12, 0.28), "rotation": (0.2, 0.1, 0.3), "velocity": (0.7, 0.2, -1.0)}
    surfaces = {"ground": field(ROUGH), "b": {**SHAPES[name], "body": "b"}}
    system, params, state = load(
        Scene(spookax=1, bodies={"b": {**BODY, "initial": start}}, contacts={"surfaces": surfaces})
    )
    run = rollout(system, params, state, jnp.zeros((60, 0)))
    pressed = np.linalg.norm(np.sum(run.contact_forces, axis=1), axis=1) > 1
    first = int(np.argmax(pressed))
    assert pressed[first]
    state = eqx.tree_at(lambda s: (s.r, s.e, s.v, s.w), state, (run.r[first], run.e[first], run.v[first], run.w[first]))

    def after(x):
        moved = eqx.tree_at(lambda s: (s.r, s.v), state, (state.r + x[None, :3], state.v + x[None, 3:6]))
        p = eqx.tree_at(lambda p: p.heights, params, params.heights * (1 + x[6]))
        moved = pushed(system, prepare(system, p), moved, 3)
        return jnp.concatenate([moved.r[0], moved.v[0], moved.w[0]])

    forward, value = np.asarray(compiled(jax.jacfwd(after))(jnp.zeros(7))), compiled(after)
    eps = 1e-7
    sides = [value(eps * row) - value(-eps * row) for row in np.eye(7)]
    differences = np.stack(sides, axis=1) / (2 * eps)
    scale = np.maximum(1.0, np.abs(forward).max(axis=0))
    assert np.abs(forward).max() > 1
    np.testing.assert_allclose(forward / scale, differences / scale, rtol=0, atol=1e-5)


TEXT = """spookax: 1
bodies: {b: {mass: 1, inertia: [1, 1, 1]}}
contacts:
  surfaces:
    b: {type: sphere, radius: 0.1, body: b, at: [0, 0, 3]}
    ground: {type: height_field, size: [2, 1.6], GROUND}
"""


def save(folder, ground):
    (folder / "scene.yaml").write_text(TEXT.replace("GROUND", ground))
    return folder / "scene.yaml"


@pytest.mark.parametrize("kind", ["npy", "csv", "png"])
def test_heights_come_from_a_file(kind, tmp_path):
    """Of numbers, or a picture that is seen from above; also when the scene is written to another folder."""
    grey = (65535 * ROUGH / ROUGH.max()).round().astype(np.uint16)
    match kind:
        case "npy":
            np.save(tmp_path / "ground.npy", grey)
        case "csv":
            np.savetxt(tmp_path / "ground.csv", grey, delimiter=",", fmt="%d")
        case "png":
            pytest.importorskip("PIL.Image").fromarray(grey[::-1].copy()).save(tmp_path / "ground.png")
    scale = 0.5 if kind == "png" else 0.5 / 65535
    scene = read_scene(save(tmp_path, f"file: ground.{kind}, scale: {scale!r}"))
    (tmp_path / "other").mkdir()
    write_scene(scene, tmp_path / "other" / "scene.yaml")
    assert f"file: ../ground.{kind}" in (tmp_path / "other" / "scene.yaml").read_text()
    for found in (scene, read_scene(tmp_path / "other" / "scene.yaml")):
        assert found.contacts is not None
        np.testing.assert_allclose(heights_of(found.contacts.surfaces["ground"]), grey * 0.5 / 65535, rtol=1e-12)


@pytest.mark.parametrize(
    ("ground", "message"),
    [
        ("heights: [[0, 1], [0, 1, 2]]", r"scene.yaml:6: contacts.surfaces.ground.heights: .*rows have 2, 3 heights"),
        ("heights: [[0], [0]]", r"contacts.surfaces.ground.heights: .*rows have 1 heights"),
        ("colour: '#000000'", r"scene.yaml:6: contacts.surfaces.ground: .*neither of `heights` and `file`"),
        ("file: gone.npy", r"scene.yaml:6: contacts.surfaces.ground.file: .*no such file"),
        ("file: flat.csv", r"file: .*heights of shape \(1, 3\), not of two rows"),
        ("file: nan.csv", r"file: .*no finite numbers"),
        ("file: scene.yaml", r"file: .*files that are read are .npy, .csv and .png"),
        ("file: wrong.png", r"file: .*it is no PNG"),
        ("heights: [[0, 1], [0, 1]], body: b", r"body: .*a height field belongs to the world"),
    ],
)
def test_what_is_no_height_field_is_refused(ground, message, tmp_path):
    (tmp_path / "flat.csv").write_text("1,2,3\n")
    (tmp_path / "nan.csv").write_text("1,2\n3,nan\n")
    (tmp_path / "wrong.png").write_text("no picture")
    with pytest.raises(SceneError, match=message):
        read_scene(save(tmp_path, ground))


def test_it_is_drawn_where_it_is(tmp_path):
    scene = read_scene(save(tmp_path, f"heights: {ROUGH.tolist()}, at: [1, 2, 3]"))
    (part,) = (part for part in parts_of(scene)["world"] if part.name.startswith("height_field"))
    data = part.geometry["data"]
    drawn = trimesh.Trimesh(
        np.asarray(data["attributes"]["position"]["array"]).reshape(-1, 3), data["index"]["array"].reshape(-1, 3)
    )
    assert np.all(drawn.face_normals[:, 2] > 0), "they look up"
    np.testing.assert_allclose(drawn.vertices[:, 2], ROUGH.ravel(), atol=1e-6)
    np.testing.assert_allclose(part.corners.max(axis=0), [2, 2.8, 3 + ROUGH.max()])
