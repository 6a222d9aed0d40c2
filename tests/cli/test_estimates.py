"""Folders of estimates: those whose numbers are no possible scene, and those of bodies that touch."""

import json

import numpy as np
import pytest
from cli.scenes import run

from spookax import ContactPoints
from spookax.scene import Scene, get_number
from spookax.study.identifying.estimate import Estimate, identified_scene

SCENE = Scene.model_validate({"spookax": 1, "bodies": {"arm": {"mass": 1.0, "inertia": [0.2, 0.3, 0.4]}}})


def estimate(numbers: dict[str, float]) -> Estimate:
    scene, message = identified_scene(SCENE, numbers)
    return Estimate("converged" if scene else "unphysical", message, {}, {"x": np.zeros(1)}, scene, {"z": np.zeros(1)})


def test_a_possible_scene_has_the_numbers():
    found = estimate({"bodies.arm.inertia.zz": 0.45}).scene
    assert found is not None
    assert get_number(found, "bodies.arm.inertia.zz") == 0.45


@pytest.mark.parametrize("command", ["simulate", "view"])
def test_an_impossible_scene_is_not_written_and_the_folder_says_why(tmp_path, command):
    estimate({}).save(tmp_path)
    assert (tmp_path / "scene.yaml").is_file()
    found = estimate({"bodies.arm.inertia.zz": 0.6})
    assert found.scene is None
    found.save(tmp_path)
    assert not (tmp_path / "scene.yaml").exists()  # nor that of the earlier run
    assert "0.6 > 0.2 + 0.3" in json.loads((tmp_path / "estimate.json").read_text())["message"]
    options = ["--time", "1"] if command == "simulate" else []
    result = run(command, str(tmp_path), *options)
    assert result.exit_code == 2
    for text in ("holds no identified scene: unphysical", "bodies.arm.inertia violates the triangle inequality"):
        assert text in result.stderr


def test_the_motion_of_an_estimate_is_shown_with_its_contacts(tmp_path):
    found = estimate({})
    time, up = np.array([0.0, 0.5, 1.0]), np.tile([0.0, 0.0, 1.0], (2, 1, 1))
    pair, names = np.zeros((2, 1), dtype=int), (("arm", "floor"),)
    touching = ContactPoints(time[:2], 0 * up, up, np.zeros((2, 1)), 4 * up, pair, names)
    states = {"state_time": time, "r": np.zeros((3, 1, 3)), "e": np.tile([1.0, 0, 0, 0], (3, 1, 1))}
    states |= {f"contacts/{key}": array for key, array in touching.arrays().items()}
    found.states |= {f"toss/{key}": array for key, array in states.items()}
    found.save(tmp_path)
    page = tmp_path / "page.html"
    assert run("view", str(tmp_path), "--html", str(page)).exit_code == 0
    assert "arm on floor" in page.read_text(encoding="utf-8")
    del found.states["toss/contacts/force"]
    found.save(tmp_path)
    result = run("view", str(tmp_path), "--html", str(page))
    assert result.exit_code == 2
    assert "cannot be used" in result.stderr
