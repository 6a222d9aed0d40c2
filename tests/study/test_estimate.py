"""An estimate that is saved and loaded again."""

from pathlib import Path

import numpy as np
import pytest
from cli.scenes import SLIDER, write
from report import synthetic

import spookax as sx


@pytest.fixture
def estimate(tmp_path: Path) -> sx.Estimate:
    content = synthetic.estimate()
    status, message = content.pop("status"), content.pop("message")
    content["parameters"]["made.up"] = {"value": 1.0, "sd": float("inf"), "lower": -np.inf, "prior_sd": None}
    content["study_file"] = "/home/someone/study.yaml"
    scene = sx.read_scene(write(tmp_path, slider_yaml=SLIDER) / "slider.yaml")
    states = {"train/time": np.linspace(0.0, 1.0, 5), "train/measured/scale": np.array([[1.0], [np.nan]])}
    return sx.Estimate(status, message, content, states, scene, {"z": np.arange(3.0), "stage": np.asarray(1)})


def test_a_saved_estimate_is_loaded_as_it_was(estimate: sx.Estimate, tmp_path: Path):
    loaded = sx.load_estimate(estimate.save(tmp_path / "out"))
    np.testing.assert_equal(loaded.to_json(), estimate.to_json())  # NaN equals NaN here
    assert loaded.parameters["made.up"] == estimate.parameters["made.up"]
    for mine, other in ((loaded.states, estimate.states), (loaded.checkpoint, estimate.checkpoint)):
        assert list(mine) == list(other)
        np.testing.assert_equal(mine, other)
    assert loaded.scene == estimate.scene


def test_a_folder_without_an_estimate_is_refused_with_one_sentence(estimate: sx.Estimate, tmp_path: Path):
    with pytest.raises(sx.FileError, match=r"holds no estimate: it has no estimate.json. Give the --out") as caught:
        sx.load_estimate(tmp_path / "nowhere")
    assert len(caught.value.problems) == 1
    folder = estimate.save(tmp_path / "out")
    for name in ("estimate.json", "states.npz", "checkpoint.npz"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(sx.FileError, match=rf"{name}: cannot be read as a part of an estimate"):
            sx.load_estimate(folder)
        (folder / name).write_bytes(whole)
    (folder / "estimate.json").write_text("[1]")
    with pytest.raises(sx.FileError, match="cannot be read as a part"):
        sx.load_estimate(folder)
