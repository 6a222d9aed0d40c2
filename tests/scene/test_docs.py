"""The page about scene files names every key, and its examples work."""

import os
import re
from pathlib import Path

import pytest

from spookax.scene import SceneError, json_schema, read_scene

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scene.md").read_text()


def block(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return text


def test_the_example_is_read_and_its_report_is_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    good = block("yaml")
    Path("pendulum.yaml").write_text(good)
    assert read_scene("pendulum.yaml").joints["pivot"].child == "rod"
    bad = good.replace("mass: 0.2", "mass: -0.2").replace("child: rod", "child: rood")
    Path("pendulum.yaml").write_text(bad)
    with pytest.raises(SceneError) as refused:
        read_scene("pendulum.yaml")
    assert str(refused.value) == block("text").strip()


def test_the_python_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    os.symlink(ROOT / "scenes", "scenes")
    exec(block("python"), {})
    assert "bodies.rod.mass 0.2 kg" in capsys.readouterr().out
    assert read_scene("heavier.yaml").bodies["rod"].mass == 0.25


def test_every_key_is_named():
    schema = json_schema()
    parts = [schema, *schema["$defs"].values()]
    keys = {key for part in parts for key in part.get("properties", {})}
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`\n]+`", PAGE))))
    assert len(keys) > 40
    assert keys <= words
