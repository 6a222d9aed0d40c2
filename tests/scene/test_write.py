"""What is written reads back to the same scene, to the last digit."""

from pathlib import Path

import pytest
import trimesh
from hypothesis import given
from hypothesis import strategies as st

from spookax.scene import Scene, read_scene, write_scene
from spookax.scene.shapes import Mesh

FULL = Path(__file__).with_name("full.yaml")
SCENES = sorted((Path(__file__).parents[2] / "scenes").glob("*.yaml"))


@pytest.mark.parametrize("path", [FULL, *SCENES], ids=lambda path: path.stem)
def test_round_trip(tmp_path, path):
    scene = read_scene(path)
    write_scene(scene, tmp_path / "copy.yaml")
    assert read_scene(tmp_path / "copy.yaml") == scene


def test_different_scenes_are_not_equal():
    scene = read_scene(FULL)
    assert Scene.model_validate({**scene.plain(), "step": 0.0040000000000000001}) == scene
    assert Scene.model_validate({**scene.plain(), "step": 0.004000000000000001}) != scene


finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False)


@given(
    numbers=st.tuples(finite, finite, finite),
    axis=st.tuples(finite, finite, finite).filter(any),
    mass=positive,
    name=st.text(min_size=1),
    body=st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]*", fullmatch=True).filter(lambda name: name != "world"),
)
def test_any_numbers_and_words_survive(tmp_path_factory, numbers, axis, mass, name, body):
    data = {
        "spookax": 1,
        "name": name,
        "gravity": numbers,
        "bodies": {body: {"mass": mass, "com": numbers, "inertia": [1, 1, 1]}},
        "joints": {body: {"type": "hinge", "child": body, "axis": axis}},
    }
    scene = Scene.model_validate(data)
    path = tmp_path_factory.mktemp("scene") / "scene.yaml"
    write_scene(scene, path)
    assert read_scene(path) == scene


def test_meshes_are_found_from_another_folder(tmp_path):
    (tmp_path / "parts").mkdir()
    trimesh.creation.box((0.1, 0.2, 0.3)).export(tmp_path / "parts" / "block.stl")
    text = "spookax: 1\nbodies:\n  a: {density: 1000, shapes: [{type: mesh, file: parts/block.stl}]}\n"
    (tmp_path / "scene.yaml").write_text(text)
    scene = read_scene(tmp_path / "scene.yaml")
    (tmp_path / "out").mkdir()
    write_scene(scene, tmp_path / "out" / "scene.yaml")
    assert "file: ../parts/block.stl" in (tmp_path / "out" / "scene.yaml").read_text()
    assert read_scene(tmp_path / "out" / "scene.yaml") == scene
    (shape,) = scene.bodies["a"].shapes
    assert isinstance(shape, Mesh)
    assert shape.file == str(tmp_path / "parts" / "block.stl")
