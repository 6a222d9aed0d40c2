"""Convex meshes that touch: where, against boxes; what is refused; hulls with few vertices."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trimesh
from engine.mechanisms import compiled
from scipy.spatial import ConvexHull

from spookax import load
from spookax.collision import Posed, touches
from spookax.collision.polyhedron import FACES_FIRST
from spookax.constraints import prepare
from spookax.constraints.placed_surfaces import meshes
from spookax.math import rotation
from spookax.scene import Scene, SceneError
from spookax.scene.hulls import MOST_VERTICES, hull_of
from spookax.scene.shapes import Mesh as Shape
from spookax.stepping import rollout, step

SIZE = np.array([0.6, 0.4, 0.2])
DRAWS = 200


@pytest.fixture
def brick(tmp_path):
    return str(save(tmp_path, trimesh.creation.box(SIZE)))


def save(folder, mesh):
    mesh.export(folder / "part.stl")
    return folder / "part.stl"


def test_a_ball_touches_a_mesh_where_it_touches_the_same_box(brick):
    """Outside and inside; the gap closes as fast as they approach."""
    of_both = meshes([hull_of(Shape(type="mesh", file=brick))] * 2, float)
    rng = np.random.default_rng(0)
    at, turn, velocity = SIZE * rng.uniform(-0.8, 0.8, (DRAWS, 3)), *rng.normal(size=(2, DRAWS, 3))

    def both(at, turn, velocity):
        R = jnp.stack([jnp.eye(3), rotation.matrix(rotation.exp(turn))])
        sizes = jnp.array([[0.1, 0, 0], SIZE / 2])

        def place(kind, t):
            posed = Posed(jnp.stack([at + t * velocity, jnp.zeros(3)]), R, sizes, of_both)
            found = touches(("sphere", kind), posed, [0], [1])
            return found.gap[0], found

        _, rate, found = jax.jvp(lambda t: place("mesh", t), (0.0,), (1.0,), has_aux=True)
        return found, rate, jnp.sum(found.normal[0] * velocity), place("box", 0.0)[1]

    found, rate, speed, expected = compiled(jax.vmap(both))(at, turn, velocity)
    assert 20 < np.sum(expected.gap < -0.1) < DRAWS - 20, "some centres are inside"
    np.testing.assert_allclose(found.gap, expected.gap, rtol=0, atol=1e-7)  # STL has 32 bits
    np.testing.assert_allclose(rate, speed, rtol=0, atol=1e-12)
    near_tie = np.abs(np.asarray(found.normal) - np.asarray(expected.normal)).max(axis=(1, 2)) > 1e-5
    assert near_tie.mean() < 0.02
    np.testing.assert_allclose(found.point[~near_tie], expected.point[~near_tie], rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", [("box", "mesh"), ("mesh", "mesh")], ids="-".join)
def test_bricks_touch_where_boxes_do(kind, brick):
    """Faces and edges, apart and within each other; and how all of it changes as they move."""
    hulls = meshes([hull_of(Shape(type="mesh", file=brick))] * 2, float)
    rng = np.random.default_rng(0)
    at = SIZE * rng.uniform(-1.1, 1.1, (DRAWS, 3))
    turn = rng.normal(size=(DRAWS, 2, 3)) * rng.choice([0.1, 1.0], size=(DRAWS, 1, 1))
    v, w = rng.normal(size=(2, DRAWS, 3))

    def both(at, turn, v, w):
        def place(kind, t):
            moved = rotation.multiply(rotation.exp(t * w), rotation.exp(turn[0]))
            R = jnp.stack([rotation.matrix(moved), rotation.matrix(rotation.exp(turn[1]))])
            posed = Posed(jnp.stack([at + t * v, jnp.zeros(3)]), R, jnp.array([SIZE / 2] * 2), hulls)
            found = touches(kind, posed, [0], [1])
            return (found.point, found.normal, found.gap), found.live

        return [jax.jvp(lambda t, k=k: place(k, t), (0.0,), (1.0,), has_aux=True) for k in (kind, ("box", "box"))]

    mine, boxes = (jax.tree.map(np.asarray, found) for found in compiled(jax.vmap(both))(at, turn, v, w))
    by_edges = boxes[2][:, -1]
    assert 20 < by_edges.sum() < DRAWS - 20
    touching = 0
    for i in range(DRAWS):
        rows = []
        for place, change, live in (mine, boxes):
            numbers = np.concatenate([a[i].reshape(len(live[i]), -1) for a in (*place, *change)], axis=1)[live[i]]
            rows.append(numbers[np.lexsort(np.round(numbers[:, :3], 4).T)])
        np.testing.assert_allclose(rows[0], rows[1], rtol=0, atol=2e-5)  # STL has 32 bits
        touching += len(rows[0]) > 0
    assert touching > DRAWS / 3


def test_polyhedra_overlap_as_deeply_as_their_difference_says(tmp_path):
    """The depth is how far the origin lies inside of the hull of all differences of vertices."""
    rng = np.random.default_rng(4)
    made = [trimesh.convex.convex_hull(0.3 * rng.normal(size=(n, 3))) for n in (4, 7, 25)]
    made.append(trimesh.creation.cylinder(0.3, 0.4, sections=7))
    hulls = [hull_of(Shape(type="mesh", file=str(save(tmp_path, mesh)))) for mesh in made]
    solids, sizes = meshes(hulls, float), jnp.array([np.ptp(np.array(hull.vertices), axis=0) / 2 for hull in hulls])
    first, second = (list(which) for which in zip(*itertools.combinations(range(len(hulls)), 2), strict=True))
    at, turn = 0.3 * rng.normal(size=(20, len(hulls), 3)), rng.normal(size=(20, len(hulls), 3))

    def all_pairs(at, turn):
        R = jax.vmap(lambda t: rotation.matrix(rotation.exp(t)))(turn)
        return R, touches(("mesh", "mesh"), Posed(at, R, sizes, solids), first, second)

    R, found = jax.tree.map(np.asarray, compiled(jax.vmap(all_pairs))(at, turn))
    gap = np.where(found.live, found.gap, np.inf).reshape(len(at), len(first), -1).min(axis=2)
    overlapping = 0
    for i in range(len(at)):
        corners = [np.array(hull.vertices) @ R[i, k].T + at[i, k] for k, hull in enumerate(hulls)]
        for pair, (a, b) in enumerate(zip(first, second, strict=True)):
            differences = ConvexHull((corners[a][:, None] - corners[b][None]).reshape(-1, 3))
            depth = -np.max(differences.equations[:, 3])
            if depth > 0:
                overlapping += 1
                preferred = FACES_FIRST * float(jnp.minimum(sizes[a].min(), sizes[b].min()))
                assert -depth - 1e-6 - 2 * preferred <= gap[i, pair] <= -depth + 1e-6
            else:
                assert gap[i, pair] > 0
    assert 40 < overlapping < 100


def scene(file, **more):
    body = {"mass": 1.0, "inertia": (0.02, 0.03, 0.04)}
    start = {"position": (0, 0, 0.4), "rotation": (0.5, 0.2, 0.1), "velocity": (0.8, 0, 0)}
    surface = {"type": "mesh", "file": file, **more} if file else {"type": "box", "size": SIZE.tolist()}
    contacts = {"surfaces": {"floor": {"type": "plane"}, "b": {"body": "b", **surface}}}
    return Scene(spookax=1, step=0.005, bodies={"b": {**body, "initial": start}}, contacts=contacts)


@pytest.mark.slow
def test_a_brick_from_a_file_falls_like_a_box(brick):
    ends = []
    for file in (brick, None):
        system, params, state = load(scene(file))
        ends.append(rollout(system, params, state, jnp.zeros((200, 0))))
    assert np.ptp(np.asarray(ends[1].w), axis=0).max() > 1, "it tumbles"
    np.testing.assert_allclose(ends[0].r, ends[1].r, rtol=0, atol=1e-5)
    np.testing.assert_allclose(ends[0].r[-1, 0, 2], SIZE[2] / 2, atol=1e-5)


def heap(*files):
    """Two bricks, of a file each or boxes: the second falls askew onto the first, which lies on the floor."""
    starts = (
        {"position": (0, 0, SIZE[2] / 2 - 1e-6)},
        {"position": (0.2, 0.1, 0.42), "rotation": (0.2, -0.1, 0.4), "velocity": (-0.5, 0, -0.2)},
    )
    body = {"mass": 1.0, "inertia": (0.02, 0.03, 0.04)}
    bodies = {f"b{i}": {**body, "initial": start} for i, start in enumerate(starts)}
    shapes = [{"type": "mesh", "file": f} if f else {"type": "box", "size": SIZE.tolist()} for f in files]
    surfaces = {"floor": {"type": "plane"}, **{f"b{i}": {"body": f"b{i}", **shape} for i, shape in enumerate(shapes)}}
    return Scene(spookax=1, step=0.005, bodies=bodies, contacts={"surfaces": surfaces})


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_bricks_from_files_heap_like_boxes(brick):
    """Mesh on mesh, box on mesh and box on box: one motion; and the derivative of its steps against differences."""
    ends = []
    for files in ((brick, brick), (None, brick), (None, None)):
        system, params, state = load(heap(*files))
        ends.append(rollout(system, params, state, jnp.zeros((200, 0))))
        if files == (brick, brick):
            _check_derivative(system, params, ends[0])
    assert np.ptp(np.asarray(ends[2].w[:, 1]), axis=0).max() > 1, "it tumbles"
    assert np.asarray(ends[2].r[-1, 1, 2]) > SIZE[2], "and rests on the other"
    for found in ends[:2]:
        np.testing.assert_allclose(found.r, ends[2].r, rtol=0, atol=1e-4)


def _check_derivative(system, params, run):
    """Of some steps in which they touch, with respect to places, velocities and friction."""
    contact = np.abs(np.asarray(run.contact_force(system, "b0", "b1"))).max(axis=1) > 1
    first = int(np.argmax(contact))
    assert contact[first + 1]
    state = eqx.tree_at(
        lambda s: (s.r, s.e, s.v, s.w), run.state, (run.r[first], run.e[first], run.v[first], run.w[first])
    )

    @jax.jit
    def after(x):
        moved = eqx.tree_at(lambda s: (s.r, s.v), state, (state.r.at[1].add(x[:3]), state.v.at[1].add(x[3:6])))
        p = eqx.tree_at(lambda p: p.material_friction, params, params.material_friction + x[6])
        prepared = prepare(system, p)
        for _ in range(2):
            moved, _ = step(system, prepared, moved, jnp.zeros(0))
        return jnp.concatenate([moved.r, moved.v, moved.w], axis=-1).ravel()

    forward = np.asarray(compiled(jax.jacfwd(after))(jnp.zeros(7)))
    points = 1e-7 * np.concatenate([np.eye(7), -np.eye(7)])
    values = np.asarray(jax.jit(jax.vmap(after))(points))
    differences = (values[:7] - values[7:]).T / 2e-7
    scale = np.maximum(1.0, np.abs(forward).max(axis=0))
    assert np.abs(forward).max() > 10
    np.testing.assert_allclose(forward / scale, differences / scale, rtol=0, atol=1e-5)


def cross():
    return trimesh.util.concatenate([trimesh.creation.box((0.2, 0.2, 0.2)), trimesh.creation.box((0.1, 0.1, 0.5))])


def open_box():
    whole = trimesh.creation.box(SIZE)
    return trimesh.Trimesh(whole.vertices, whole.faces[:-1])


def flat():
    return trimesh.Trimesh([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]], [[0, 1, 2], [1, 3, 2]])


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (cross, r"is not convex: its convex hull has 15.4 % more volume. Write `hull: true`"),
        (open_box, "has holes, so that nothing says whether it is convex. Close them"),
        (flat, "encloses no volume: its vertices lie in a plane"),
    ],
)
def test_what_cannot_touch_is_refused(made, message, tmp_path):
    save(tmp_path, made())
    body, floor = "bodies: {b: {mass: 1, inertia: [1, 1, 1]}}", "contacts:\n  surfaces:\n    floor: {type: plane}"
    lines = f"spookax: 1\n{body}\n{floor}\n    b: {{type: mesh, body: b, file: part.stl}}\n"
    (tmp_path / "scene.yaml").write_text(lines)
    with pytest.raises(SceneError, match=rf"scene.yaml:6: contacts.surfaces.b.file: .*{message}"):
        load(tmp_path / "scene.yaml")


def test_a_hull_is_taken_on_request(tmp_path):
    file = str(save(tmp_path, cross()))
    assert scene(file, hull=True).contacts is not None
    hull = np.array(hull_of(Shape(type="mesh", file=file)).vertices)
    assert len(hull) == 16
    np.testing.assert_allclose(np.abs(hull[:, 2]).max(), 0.25, atol=1e-7)


def test_a_round_mesh_keeps_the_vertices_that_matter_most(tmp_path):
    """Thirty-two of a ball's 642; nothing of the ball sticks out by more than a seventh of its radius."""
    ball = trimesh.creation.icosphere(3, 0.5)
    hull = hull_of(Shape(type="mesh", file=str(save(tmp_path, ball))))
    vertices = np.array(hull.vertices)
    assert len(vertices) == MOST_VERTICES
    assert len(vertices) - len(hull.edges) + len(hull.facets) == 2, "Euler's formula"
    np.testing.assert_allclose(np.linalg.norm(vertices, axis=1), 0.5, atol=1e-6)
    a, b, c = np.moveaxis(vertices[np.array([facet[:3] for facet in hull.facets])], 1, 0)
    normal = np.cross(b - a, c - a)
    height = np.sum(a * normal, axis=1) / np.linalg.norm(normal, axis=1)
    assert np.all(height > 0.5 * 6 / 7), "they look outwards, and lie near the surface"
