"""`spookax check`, and that it and the help need no JAX."""

import subprocess
import sys
from pathlib import Path

import pytest
from cli.scenes import ROOT, RUN, SLIDER, STUDY, refused, run, study_folder, write


def test_a_scene_is_summed_up_in_one_line(tmp_path: Path):
    scene = write(tmp_path, slider_yaml=SLIDER) / "slider.yaml"
    result = run("check", scene)
    assert result.exit_code == 0
    assert result.stdout == f"{scene}: scene 'slider', 1 body, 1 joint, 1 motor, 4 sensors: ok\n"


def test_a_study_is_checked_with_its_scene_and_recordings(tmp_path: Path):
    study = study_folder(tmp_path) / "study.yaml"
    result = run("check", study)
    assert result.exit_code == 0
    assert "study of scene 'slider', 1 unknown parameter, 1 recording with 3 samples: ok" in result.stdout


DAMAGED = {
    "missing": (None, "no such file. Did you mean"),
    "empty": ("", ":1: the file is empty"),
    "cut": (SLIDER[: SLIDER.index("{type: prismatic") + 10], "broken YAML"),
    "tab": (SLIDER.replace("  cart", "\tcart"), "a tab"),
    "negative mass": (SLIDER.replace("mass: 2.0", "mass: -2.0"), ":5: bodies.cart.mass"),
    "NaN": (SLIDER.replace("mass: 2.0", "mass: .nan"), ":5: bodies.cart.mass"),
    "unknown key": (SLIDER.replace("joints:", "joint:"), "`joints`"),
    "missing body": (SLIDER.replace("child: cart", "child: card"), ":7: joints.rail.child"),
    "binary": ("spookax: \0", "not allowed in YAML"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_scene_is_refused(tmp_path: Path, kind: str):
    text, said = DAMAGED[kind]
    write(tmp_path, slider_yaml=SLIDER)
    if text is not None:
        write(tmp_path, slider2_yaml=text)
    report = refused("check", tmp_path / "slider2.yaml")
    assert report.startswith(str(tmp_path / "slider2.yaml"))
    assert said in report


def test_a_folder_is_no_file(tmp_path: Path):
    assert refused("check", tmp_path).startswith(f"{tmp_path}: cannot be read")


RECORDINGS = {
    "missing column": (RUN.replace("x [mm]", "y [mm]"), ":1: x: no column 'x'"),
    "no unit": (RUN.replace("x [mm]", "x"), "has no unit"),
    "time goes back": (RUN.replace("0.02,", "0.005,"), ":4: "),
    "text": (RUN.replace("500.1", "much"), ":3: "),
    "empty": ("", "the file is empty"),
}


@pytest.mark.parametrize("kind", RECORDINGS)
def test_a_study_with_a_damaged_recording_is_refused(tmp_path: Path, kind: str):
    text, said = RECORDINGS[kind]
    study_folder(tmp_path)
    report = refused("check", write(tmp_path, run_csv=text) / "study.yaml")
    assert report.startswith(str(tmp_path / "run.csv"))
    assert said in report


def test_one_report_has_the_problems_of_all_files_of_a_study(tmp_path: Path):
    study_folder(tmp_path)
    write(tmp_path, run_csv=RECORDINGS["text"][0], study_yaml=STUDY.replace("cart.mass", "card.mass"))
    report = refused("check", tmp_path / "study.yaml")
    assert f"{tmp_path / 'study.yaml'}:6: parameters.bodies.card.mass" in report
    assert f"{tmp_path / 'run.csv'}:3: " in report
    write(tmp_path, slider_yaml=DAMAGED["negative mass"][0])
    report = refused("check", tmp_path / "study.yaml")
    assert f"{tmp_path / 'slider.yaml'}:5: bodies.cart.mass" in report
    assert f"{tmp_path / 'run.csv'}:3: " in report


def test_every_file_is_checked(tmp_path: Path):
    write(tmp_path, good_yaml=SLIDER, bad_yaml="", worse_yaml="a: [")
    result = run("check", tmp_path / "bad.yaml", tmp_path / "good.yaml", tmp_path / "worse.yaml")
    assert result.exit_code == 2
    assert result.stdout.count("ok") == 1
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == [
        str(tmp_path / "bad.yaml"),
        str(tmp_path / "worse.yaml"),
    ]


def test_a_loop_that_cannot_be_assembled_is_refused(tmp_path: Path):
    text = (ROOT / "scenes/four_bar.yaml").read_text()
    assert "at: [0.4, 0, 0]" in text
    scene = write(tmp_path, loop_yaml=text.replace("at: [0.4, 0, 0]", "at: [1.4, 0, 0]")) / "loop.yaml"
    report = refused("check", scene)
    line = next(i for i, row in enumerate(text.splitlines(), 1) if row.startswith("  ground:") and i < 32)
    assert f"{scene}:{line}: joints.ground: the loop of the joints" in report


def test_help_and_checks_do_not_start_jax(tmp_path: Path):
    study = study_folder(tmp_path) / "study.yaml"
    program = f"""
import sys
from spookax.cli import app
for arguments in (["--help"], ["identify", "--help"], ["check", {str(study)!r}]):
    try:
        app(arguments)
    except SystemExit as end:
        assert end.code == 0
assert "jax" not in sys.modules
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "study of scene" in result.stdout
