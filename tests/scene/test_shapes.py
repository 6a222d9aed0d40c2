"""Volume, centroid and inertia of shapes, against fine meshes and the parallel axis theorem."""

import math
from pathlib import Path

import numpy as np
import pytest
import trimesh

from spookax.scene import SceneError, read_scene
from spookax.scene.shapes import Box, Capsule, Cylinder, Mesh, Sphere, combine, rotation_matrix, solid

AT, ROTATION = (0.3, -0.1, 0.2), (0.4, -0.9, 0.5)
# (shape, the same as a fine mesh around the origin, relative error of the mesh)
SHAPES = [
    (
        Box(type="box", size=(0.1, 0.2, 0.4), at=AT, rotation=ROTATION),
        trimesh.creation.box((0.1, 0.2, 0.4)),
        1e-12,
    ),
    (
        Cylinder(type="cylinder", radius=0.1, length=0.5, at=AT, rotation=ROTATION),
        trimesh.creation.cylinder(radius=0.1, height=0.5, sections=800),
        1e-4,
    ),
    (
        Capsule(type="capsule", radius=0.1, length=0.5, at=AT, rotation=ROTATION),
        trimesh.creation.capsule(radius=0.1, height=0.5, count=(200, 200)),
        1e-3,
    ),
    (Sphere(type="sphere", radius=0.3, at=AT, rotation=ROTATION), trimesh.creation.icosphere(5, 0.3), 3e-3),
]


def ids(values):
    return [value[0].type for value in values]


@pytest.mark.parametrize(("shape", "mesh", "error"), SHAPES, ids=ids(SHAPES))
def test_primitives_agree_with_meshes(shape, mesh, error):
    found = solid(shape)
    R = rotation_matrix(ROTATION)
    assert found.volume == pytest.approx(mesh.volume, rel=error)
    assert np.allclose(found.centroid, AT, rtol=0, atol=1e-15)
    inertia = R @ mesh.moment_inertia @ R.T
    assert np.allclose(found.inertia, inertia, rtol=0, atol=error * np.abs(inertia).max())


def test_a_mesh_file_is_placed_and_scaled(tmp_path):
    box = trimesh.creation.box((100, 200, 400))
    box.apply_translation((50, 0, 0))
    box.export(tmp_path / "box.stl")
    found = solid(Mesh(type="mesh", file=str(tmp_path / "box.stl"), scale=1e-3, at=AT, rotation=ROTATION))
    expected = solid(SHAPES[0][0])
    R = rotation_matrix(ROTATION)
    assert found.volume == pytest.approx(expected.volume, rel=1e-6)
    assert np.allclose(found.centroid, R @ [0.05, 0, 0] + AT, atol=1e-7)
    assert np.allclose(found.inertia, expected.inertia, atol=1e-6 * np.abs(expected.inertia).max())


def test_two_halves_are_the_whole():
    halves = [solid(Box(type="box", size=(0.1, 0.2, 0.2), at=(0, 0, z), colour="#000000")) for z in (0.1, 0.3)]
    whole = solid(Box(type="box", size=(0.1, 0.2, 0.4), at=(0, 0, 0.2)))
    found = combine(halves)
    assert found.volume == pytest.approx(whole.volume)
    assert np.allclose(found.centroid, whole.centroid)
    assert np.allclose(found.inertia, whole.inertia)


def test_a_capsule_without_length_is_nearly_a_sphere():
    capsule = solid(Capsule(type="capsule", radius=0.2, length=1e-12))
    sphere = solid(Sphere(type="sphere", radius=0.2))
    assert capsule.volume == pytest.approx(sphere.volume)
    assert np.allclose(capsule.inertia, sphere.inertia, rtol=1e-9)


def test_rotation_matrix():
    assert np.array_equal(rotation_matrix((0, 0, 0)), np.eye(3))
    assert np.allclose(rotation_matrix((0, 0, math.pi / 2)), [[0, -1, 0], [1, 0, 0], [0, 0, 1]])
    R = rotation_matrix((0.3, -2.0, 1.1))
    assert np.allclose(R @ R.T, np.eye(3))
    assert np.allclose(R @ [0.3, -2.0, 1.1], [0.3, -2.0, 1.1])


def open_mesh(path: Path) -> None:
    box = trimesh.creation.box((1, 1, 1))
    trimesh.Trimesh(box.vertices, box.faces[:-1]).export(path)


def inside_out(path: Path) -> None:
    box = trimesh.creation.box((1, 1, 1))
    trimesh.Trimesh(box.vertices, box.faces[:, ::-1], process=False).export(path)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (open_mesh, "does not enclose a volume"),
        (inside_out, "does not enclose a volume"),
        (lambda path: path.write_text("no mesh"), "cannot be read as a mesh"),
        (lambda path: path.write_bytes(b""), "cannot be read as a mesh"),
    ],
)
def test_meshes_that_cannot_have_a_mass(tmp_path, make, words):
    make(tmp_path / "part.stl")
    text = "spookax: 1\nbodies:\n  a:\n    density: 1\n    shapes:\n      - {type: mesh, file: part.stl}\n"
    (tmp_path / "scene.yaml").write_text(text)
    with pytest.raises(SceneError) as caught:
        read_scene(tmp_path / "scene.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.path) == (6, "bodies.a.shapes[0]")
    assert words in problem.message
