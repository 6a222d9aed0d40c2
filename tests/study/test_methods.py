"""Methods side by side on one study: names, rows of those that cannot serve it, table and page, and a whole run."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from cli.scenes import SLIDER, run

import spookax as sx
from spookax.cli.progress import methods_text
from spookax.report import write_comparison
from spookax.study.comparing.method_names import NAMES, known_methods
from spookax.study.comparing.methods import compare_methods
from spookax.study.comparing.networks import jumps

pytestmark = pytest.mark.quick
MASS = "bodies.cart.mass"
VISCOUS = "joints.rail.friction.viscous"


def study_of(folder: Path, scene: str, rng: np.random.Generator) -> Path:
    """A cart of 2 kg that is pushed: a recording for the methods, and one that is held back."""
    (folder / "slider.yaml").write_text(scene)
    for name, seconds in (("train", 1.5), ("test", 1.0)):
        t = 0.01 * np.arange(round(100 * seconds) + 1)
        u = np.where(t % 0.8 < 0.4, 1.0, -1.0)
        v = 0.0
        x = [0.5]
        for push in u[:-1]:
            v += 0.01 * (4.0 * push - 1.5 * v) / 2.0
            x.append(x[-1] + 0.01 * v)
        read = np.array(x) + 1e-3 * rng.normal(size=len(t))
        np.savetxt(
            folder / f"{name}.csv", np.column_stack([t, u, read]), "%.8f", ",", header="t [s],u [V],x [m]", comments=""
        )
    content: dict[str, Any] = {"spookax": 1, "scene": "slider.yaml"}
    content["defaults"] = {"time": "t", "inputs": {"drive": "u"}, "sensors": {"scale": "x"}}
    content |= {"recordings": [{"file": "train.csv"}], "validate": [{"file": "test.csv"}]}
    content |= {"parameters": {MASS: {"start": 1.0}, VISCOUS: {"start": 1.0}}, "comparison": {"iterations": 1000}}
    (folder / "study.yaml").write_text(yaml.safe_dump(content))
    return folder / "study.yaml"


WITH_DRAG = SLIDER.replace("axis: [1, 0, 0]}", "axis: [1, 0, 0], friction: {viscous: 0.5}}").replace(
    "offset: 0.5}", "offset: 0.0, sd: 1e-3}"
)


def test_names_are_known_and_told_in_one_order():
    assert known_methods(["equation", "batch", "equation"]) == ["batch", "equation"]
    with pytest.raises(sx.FileError, match=r"--methods: there is no method 'fliter'.*`filter`"):
        known_methods(["batch", "fliter"])
    with pytest.raises(sx.FileError, match="names no method"):
        known_methods([])
    done = run("compare", "--help")
    assert all(name in done.stdout for name in NAMES)


def test_a_method_that_cannot_serve_a_study_says_why_in_its_row(tmp_path: Path, rng: np.random.Generator):
    dry = WITH_DRAG.replace("viscous: 0.5}", "viscous: 0.5, coulomb: 0.1}")
    content = yaml.safe_load(study_of(tmp_path, dry, rng).read_text())
    content["recursive"] = {"parameters": "held"}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(content))
    found = compare_methods(tmp_path / "study.yaml", ["network", "filter"])
    rows = found.content["methods"]
    assert list(rows) == ["filter", "network"]
    assert {row["status"] for row in rows.values()} == {"not possible"}
    assert "dry friction" in rows["network"]["message"]
    assert "held" in rows["filter"]["message"]
    assert found.content["runs"] == {}
    said = methods_text(found.content)
    assert "2 of 2 methods failed or cannot serve this study" in said
    assert "network: not possible: the scene has no drift" in said


def test_a_note_of_a_filter_that_came_to_its_end_is_no_failure(tmp_path: Path, rng: np.random.Generator, monkeypatch):
    note = "scene.yaml has other numbers, which have no effect"
    parameters = {path: {"value": 1.0, "sd": 0.1} for path in (MASS, VISCOUS)}

    def done(*_: Any, **__: Any) -> SimpleNamespace:
        return SimpleNamespace(parameters=parameters, content={"status": "successful", "message": note})

    monkeypatch.setattr("spookax.study.comparing.methods.filter_recordings", done)
    row = compare_methods(study_of(tmp_path, WITH_DRAG, rng), ["filter"]).content["methods"]["filter"]
    assert (row["status"], row["message"]) == ("done", note)


def test_without_the_extra_the_network_names_it(tmp_path: Path, rng: np.random.Generator, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optax", None)
    found = compare_methods(study_of(tmp_path, WITH_DRAG, rng), ["network"])
    assert "`pip install .[continuous]`" in found.content["methods"]["network"]["message"]


def test_inputs_that_jump_are_known():
    t = 0.01 * np.arange(150)
    assert jumps(np.where(t % 0.8 < 0.4, 1.0, -1.0))
    assert not jumps(np.sin(7 * t))
    assert not jumps(np.zeros(150))


def told(value: float, sd: float | None) -> dict[str, Any]:
    return {"value": value, "sd": sd, "interval": None if sd is None else [value - 2 * sd, value + 2 * sd]}


def test_the_table_and_the_page_mark_the_best_and_count_what_failed(tmp_path: Path):
    rows = {
        "batch": {"status": "done", "parameters": {MASS: told(2.0, 0.01)}, "diverged": 0},
        "simulation": {"status": "failed", "parameters": {MASS: told(9.0, None)}, "diverged": 1},
        "network": {"status": "not possible", "parameters": {}, "diverged": None},
    }
    rows = {name: row | {"message": "", "seconds": 1.5, "compiling": 0.5} for name, row in rows.items()}
    rows["network"]["message"], rows["batch"]["message"] = "no drift", "a note"
    rms = {"batch": 0.001, "simulation": np.inf}
    signal = {"unit": "m", "rms_held": 0.5, "rms": rms, "best": "batch"}
    content = {"study": "s", "created": "now", "spookax": "0", "recordings": ["train"], "held_back": True}
    content |= {"parameters": {MASS: {"start": 1.0, "unit": "kg"}}, "methods": rows}
    content |= {"runs": {"test": {"file": "test.csv", "horizon": 1.0, "head": 0.3, "signals": {"scale": signal}}}}
    content |= {"mean": {"scale": {"unit": "m", "mean": rms, "median": rms, "best": "batch"}}}
    lines = methods_text(content).splitlines()
    assert lines[1].split() == [MASS, "[kg]", "1", "2", "±", "0.01", "9", "–"]
    assert any(line.split()[:2] == ["batch", "0.001*"] for line in lines)
    assert any(line.split()[:5] == ["simulation", "inf", "1", "of", "1"] for line in lines)
    assert "2 of 3 methods failed or cannot serve this study" in lines
    assert "batch: a note" in lines
    assert "network: not possible: no drift" in lines
    time = np.linspace(0, 1, 20)
    states = {"test/time": time, "test/measured/scale": time, "test/batch/scale": time + 0.1}
    page = write_comparison(tmp_path, content, states | {"test/simulation/scale": np.full(20, np.nan)})
    text = page.read_text(encoding="utf-8")
    assert "<strong>0.001</strong>" in text
    assert "1.98 to 2.02" in text
    assert "not possible: no drift" in text
    assert "test, scale: measured, and predicted by every method." in text


@pytest.mark.slow  # every method is compiled
@pytest.mark.timeout(1800)
def test_every_method_finds_the_cart(tmp_path: Path, rng: np.random.Generator):
    out = tmp_path / "out"
    methods = [name for name in NAMES if name != "network"]  # which trains for many minutes
    done = run("compare", "--methods", ",".join(methods), study_of(tmp_path, WITH_DRAG, rng), "--out", out)
    assert done.exit_code == 0, done.output
    content = json.loads((out / "comparison.json").read_text())
    assert [row["status"] for row in content["methods"].values()] == ["done"] * len(methods)
    for name, row in content["methods"].items():
        mass = row["parameters"][MASS]
        assert abs(mass["value"] - 2.0) < 4 * mass["sd"], name
        assert content["mean"]["scale"]["mean"][name] < 0.01, name
        assert sx.read_scene(out / name / "scene.yaml").bodies["cart"].mass == pytest.approx(mass["value"])
    assert (out / "comparison.html").is_file()
