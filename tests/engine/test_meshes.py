"""Convex meshes that touch: where, against boxes; what is refused; hulls with few vertices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trimesh
from engine.mechanisms import compiled

from spookax import load
from spookax.collision import Mesh, Posed, touches
from spookax.math import rotation
from spookax.scene import Scene, SceneError
from spookax.scene.hulls import MOST_TRIANGLES, MOST_VERTICES, hull_of
from spookax.scene.shapes import Mesh as Shape
from spookax.stepping import rollout

SIZE = np.array([0.6, 0.4, 0.2])
DRAWS = 200


@pytest.fixture
def brick(tmp_path):
    return str(save(tmp_path, trimesh.creation.box(SIZE)))


def save(folder, mesh):
    mesh.export(folder / "part.stl")
    return folder / "part.stl"


def filled_up(hull):
    """The arrays of one mesh."""
    own = np.array(hull.vertices)
    sides = own[np.array([*hull.triangles, *[hull.triangles[0]] * (MOST_TRIANGLES - len(hull.triangles))])]
    vertices = own[[*range(len(own)), *[0] * (MOST_VERTICES - len(own))]]
    return Mesh(jnp.asarray(vertices), jnp.arange(MOST_VERTICES) < len(own), jnp.asarray(sides))


def test_a_ball_touches_a_mesh_where_it_touches_the_same_box(brick):
    """Outside and inside; the gap closes as fast as they approach."""
    mesh = filled_up(hull_of(Shape(type="mesh", file=brick)))
    rng = np.random.default_rng(0)
    at, turn, velocity = SIZE * rng.uniform(-0.8, 0.8, (DRAWS, 3)), *rng.normal(size=(2, DRAWS, 3))

    def both(at, turn, velocity):
        R = jnp.stack([jnp.eye(3), rotation.matrix(rotation.exp(turn))])
        sizes = jnp.array([[0.1, 0, 0], SIZE / 2])
        of_both = jax.tree.map(lambda a: jnp.stack([a, a]), mesh)

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
    assert len(hull.triangles) == MOST_TRIANGLES
    np.testing.assert_allclose(np.linalg.norm(vertices, axis=1), 0.5, atol=1e-6)
    a, b, c = np.moveaxis(vertices[np.array(hull.triangles)], 1, 0)
    normal = np.cross(b - a, c - a)
    height = np.sum(a * normal, axis=1) / np.linalg.norm(normal, axis=1)
    assert np.all(height > 0.5 * 6 / 7), "they look outwards, and lie near the surface"
