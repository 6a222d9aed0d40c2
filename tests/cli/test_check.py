"""`spookax check`, and that it and the help need no JAX."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cli.scenes import ROOT, RUN, SLIDER, STUDY, refused, run, study_folder, write


def test_a_scene_is_summed_up_in_one_line(tmp_path: Path):
    scene = write(tmp_path, slider_yaml=SLIDER) / "slider.yaml"
    result = run("check", scene)
    assert result.exit_code == 0
    assert result.stdout == f"{scene}: scene 'slider', 1 body, 1 joint, 1 motor, 4 sensors, step 0.01 s: ok\n"


def test_a_study_is_checked_with_its_scene_and_recordings(tmp_path: Path):
    study = study_folder(tmp_path) / "study.yaml"
    result = run("check", study)
    assert result.exit_code == 0
    first, second = result.stdout.splitlines()
    assert first == f"{study}: study of scene 'slider', 1 unknown parameter, 1 recording with 3 samples: ok"
    assert second == "  run: 0.02 s, 2 steps of 0.01 s"
    assert result.stderr == ""


@pytest.mark.parametrize("name", ["study.json", "study.yaml"])
def test_a_study_may_stand_on_one_line(tmp_path: Path, name: str):
    """It begins like a table whose headers have units, and is none."""
    data = yaml.safe_load(STUDY)
    text = yaml.safe_dump(data, default_flow_style=True, width=1000)
    (study_folder(tmp_path) / name).write_text(text if name.endswith("yaml") else json.dumps(data))
    result = run("check", tmp_path / name)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "study of scene 'slider'" in result.stdout


TURNING = SLIDER.replace("prismatic", "hinge")
FAST = "t [s],u [V],x [rad]\n" + "".join(f"{0.01 * k:g},1,{1.2 * k % 6.283185:g}\n" for k in range(20))
DOUBTFUL = {
    "long step": ({"slider_yaml": SLIDER.replace("step: 0.01", "step: 10")}, "slider.yaml:3: step", "write 0.01."),
    "degrees for a limit": (
        {"slider_yaml": TURNING.replace("axis: [1, 0, 0]", "axis: [1, 0, 0], limits: {lower: -90}")}
        | {"run_csv": RUN.replace("mm", "mrad")},
        *("slider.yaml:7: joints.rail.limits.lower", "-90 rad are 14.3 turns. If degrees are meant, write -1.5708."),
    ),
    "long step of the study": ({"study_yaml": STUDY + "  step: 5\n"}, "study.yaml:9: estimator.step", "write 0.005."),
    "long step, in which it turns far": (
        {"slider_yaml": TURNING.replace("step: 0.01", "step: 0.2"), "run_csv": FAST},
        *("slider.yaml:3: step", "write 0.0002."),
    ),
    "milliseconds as seconds": (
        {"run_csv": "t [s],u [V],x [mm]\n0,1,500\n10,1,500.1\n20,1,500.4\n"},
        *("study.yaml:4: recordings[0].time", "1e+03 steps of 0.01 s from one sample to the next, 10 s"),
    ),
    "turns far": (
        {"slider_yaml": TURNING, "run_csv": FAST},
        *("study.yaml:4: recordings[0].sensors.scale", "turns 1.2 rad in a step of 0.01 s"),
    ),
    "turns fast": (
        {"slider_yaml": TURNING, "run_csv": FAST.replace("x [rad]", "x [rad/s]").replace(",1,", ",1,200")}
        | {"study_yaml": STUDY.replace("scale: x", "tacho: x")},
        *("study.yaml:4: recordings[0].sensors.tacho", "rad in a step of 0.01 s"),
    ),
}


@pytest.mark.parametrize("kind", DOUBTFUL)
def test_what_looks_like_a_slip_of_units_is_a_warning(tmp_path: Path, kind: str):
    changed, where, said = DOUBTFUL[kind]
    result = run("check", write(study_folder(tmp_path), **changed) / "study.yaml")
    assert result.exit_code == 0, result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"warning: {tmp_path}/{where}: ")
    assert said in line


def test_what_is_usual_is_no_slip(tmp_path: Path):
    """An encoder that begins anew after a turn, stamps that jump once, and the shipped study."""
    text = "t [s],u [V],x [rad]\n" + "".join(f"{0.01 * k + (k > 9):g},1,{0.9 * k % 6.283185:g}\n" for k in range(20))
    folder = write(study_folder(tmp_path), slider_yaml=TURNING, run_csv=text)
    result = run("check", folder / "study.yaml", ROOT / "demo/furuta_study.yaml")
    assert (result.exit_code, result.stderr) == (0, "")
    said = "  train: 10 s, 4000 steps of 0.0025 s, 0.015 rad in one at the fastest, 5.98 rad/s"
    assert result.stdout.splitlines()[-1] == said


def test_readings_that_may_be_wild_are_no_fast_turn(tmp_path: Path):
    value = [2.5 if k % 40 == 20 else 0.01 * k for k in range(200)]
    text = "t [s],u [V],x [rad]\n" + "".join(f"{0.01 * k:g},1,{x:g}\n" for k, x in enumerate(value))
    folder = write(study_folder(tmp_path), slider_yaml=TURNING, run_csv=text)
    assert "a body turns" in run("check", folder / "study.yaml").stderr
    write(folder, study_yaml=STUDY + "  outliers: 0.03\n")
    result = run("check", folder / "study.yaml")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "0.01 rad in one at the fastest" in result.stdout


WRONG_KIND = {
    "simulate": ("study.yaml", "this is a study, not a scene. Give its scene, slider.yaml, or use `spookax identify "),
    "view": ("study.yaml", "this is a study, not a scene. Give its scene, slider.yaml, or use `spookax identify "),
    "identify": ("slider.yaml", "this is a scene, not a study. Give a study, which names it as its `scene`, or use "),
    "filter": ("slider.yaml", "this is a scene, not a study. Give a study, which names it as its `scene`, or use "),
}


@pytest.mark.parametrize("command", WRONG_KIND)
def test_a_file_of_the_wrong_kind_is_called_by_its_name(tmp_path: Path, command: str):
    name, said = WRONG_KIND[command]
    file = study_folder(tmp_path) / name
    out = ["--out", tmp_path / "out"] if command in ("identify", "filter") else []
    (line,) = refused(command, file, *out).splitlines()
    assert line.startswith(f"{file}:1: {said}")
    assert not (tmp_path / "out").exists()


OTHERS = {
    "a recording": ("run.csv", RUN, "give the study or its scene"),
    "a URDF file": ("arm.urdf", "<?xml version='1.0'?>\n<!-- <a> -->\n<robot name='arm'/>\n", "spookax import-mjcf"),
    "an MJCF file": ("arm.xml", "<mujoco model='arm'/>\n", "spookax import-mjcf"),
    "a file of an estimate": (
        "estimate.json",
        '{\n  "status": "converged",\n  "parameters": {}\n}\n',
        "Give its folder",
    ),
    "a file of arrays": ("states.npz", "PK\x03\x04...", "Give a scene or a study"),
}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("command", ["check", "simulate", "identify"])
def test_a_file_that_is_neither_scene_nor_study_is_named(tmp_path: Path, kind: str, command: str):
    name, text, cure = OTHERS[kind]
    (tmp_path / name).write_text(text)
    more = {"simulate": ["--time", 1], "identify": ["--out", tmp_path / "out"]}.get(command, [])
    (line,) = refused(command, tmp_path / name, *more).splitlines()
    assert line.startswith(f"{tmp_path / name}: this is {kind}, not a scene or a study. ")
    assert cure in line


@pytest.mark.parametrize(
    ("name", "kind"),
    [("slider.yaml", "a scene"), ("study.yaml", "a study"), ("estimate.json", "a file of an estimate")],
)
def test_scenes_and_studies_are_neither_recordings_nor_estimates(tmp_path: Path, name: str, kind: str):
    file = write(study_folder(tmp_path), estimate_json='{\n  "status": "converged"\n}\n') / name
    (line,) = refused("predict", file).splitlines()
    assert line.startswith(f"{file}: this is {kind}, not the folder of an estimate. ")
    (line,) = refused("simulate", tmp_path / "slider.yaml", "--input", file).splitlines()
    assert line.startswith(f"{file}: this is {kind}, not a recording (CSV, NPZ or Parquet). ")
    (line,) = refused("import-mjcf", file, "--out", tmp_path / "x.yaml").splitlines()
    assert line.startswith(f"{file}: this is {kind}, not an MJCF or URDF file. ")


DAMAGED = {
    "missing": (None, "no such file. Did you mean"),
    "empty": ("", ":1: the file is empty"),
    "cut": (SLIDER[: SLIDER.index("{type: prismatic") + 10], "broken YAML"),
    "tab": (SLIDER.replace("  cart", "\tcart"), "a tab"),
    "negative mass": (SLIDER.replace("mass: 2.0", "mass: -2.0"), ":5: bodies.cart.mass"),
    "NaN": (SLIDER.replace("mass: 2.0", "mass: .nan"), ":5: bodies.cart.mass"),
    "unknown key": (SLIDER.replace("joints:", "joint:"), "`joints`"),
    "missing body": (SLIDER.replace("child: cart", "child: card"), ":7: joints.rail.child"),
    "decimal comma": (SLIDER.replace("mass: 2.0", "mass: 2,0"), ":5: bodies.cart.0: unknown key. A comma ends a value"),
    "degrees": (
        SLIDER.replace("offset: 0.5", "offset: 90 deg"),
        ":11: sensors.scale.offset: must be a number, got '90 deg'. Write 1.5708, in radians.",
    ),
    "number for a mapping": (
        SLIDER.replace("inertia: [0.1, 0.1, 0.1]", "inertia: 0.1"),
        "with keys such as `xx`, `yy`",
    ),
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
    assert refused("check", tmp_path).startswith(f"{tmp_path}: this is a folder, not a scene or a study.")


RECORDINGS = {
    "missing column": (RUN.replace("x [mm]", "y [mm]"), ":1: x: no column 'x'"),
    "no unit": (RUN.replace("x [mm]", "x"), "has no unit"),
    "time goes back": (RUN.replace("0.02,", "0.005,"), ":4: "),
    "text": (RUN.replace("500.1", "much"), ":3: "),
    "empty": ("", "the file is empty"),
    "comment first": ("# Tuesday\n" + RUN, ":1: the first line is a comment. Delete it"),
    "units in a line": (
        "t,u,x\ns,V,mm\n" + RUN.partition("\n")[2],
        ":2: the units stand in a line of their own. Write them into the header, `t [s],u [V],x [mm]`",
    ),
    "round brackets": (RUN.replace("[mm]", "(mm)"), ":1: x: no column 'x' for the sensor 'scale' (named in"),
    "dates": (
        RUN.replace("0.01,", "2026-01-01T00:00:01,"),
        "got '2026-01-01T00:00:01' (line 3). Write times in seconds",
    ),
    "semicolons": (RUN.replace(",", ";").replace(".", ","), ":1: the cells are separated by semicolons"),
    "decimal commas": (RUN.replace(".", ","), ":3: has 5 cells where the header has 3"),
}


@pytest.mark.parametrize("kind", RECORDINGS)
def test_a_study_with_a_damaged_recording_is_refused(tmp_path: Path, kind: str):
    text, said = RECORDINGS[kind]
    study_folder(tmp_path)
    report = refused("check", write(tmp_path, run_csv=text) / "study.yaml")
    assert report.startswith(str(tmp_path / "run.csv"))
    assert said in report
    assert len(report.splitlines()) == 1


def test_what_spreadsheets_and_loggers_do_to_a_recording_does_no_harm(tmp_path: Path):
    """A byte order mark, line ends of Windows, and a clock that does not begin at zero."""
    study = study_folder(tmp_path) / "study.yaml"
    text = RUN.replace("\n0", "\n170000000").replace("\n", "\r\n")
    (tmp_path / "run.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    result = run("check", study)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[1] == "  run: 0.02 s, 2 steps of 0.01 s"


def test_units_in_round_brackets_are_told_where_they_belong(tmp_path: Path):
    report = refused("check", write(study_folder(tmp_path), run_csv=RECORDINGS["round brackets"][0]) / "study.yaml")
    assert "Write `x [mm]` in the header for `x (mm)`" in report


MISSING = {
    "time": (STUDY.replace("time: t,", "time: tt,"), "no column 'tt' for the time"),
    "input": (STUDY.replace("drive: u}", "drive: v}"), "no column 'v' for the input 'drive'"),
    "sensor": (STUDY.replace("scale: x}", "scale: y}"), "no column 'y' for the sensor 'scale'"),
}


@pytest.mark.parametrize("kind", MISSING)
def test_a_column_that_is_missing_is_traced_to_the_line_that_names_it(tmp_path: Path, kind: str):
    text, said = MISSING[kind]
    text = text.replace("inputs:", "\n     inputs:").replace("sensors:", "\n     sensors:")
    study = write(study_folder(tmp_path), study_yaml=text) / "study.yaml"
    line = {"time": 4, "input": 5, "sensor": 6}[kind]
    assert f"{tmp_path / 'run.csv'}:1: " in (report := refused("check", study))
    assert f"{said} (named in {study}:{line})" in report


def test_two_windows_of_a_damaged_recording_report_it_once(tmp_path: Path):
    study_folder(tmp_path)
    entry = STUDY.splitlines()[3]
    both = "\n".join(entry.replace("}}", f"}}, name: {name}}}") for name in ("first", "second"))
    write(tmp_path, study_yaml=STUDY.replace(entry, both), run_csv=RECORDINGS["time goes back"][0])
    (line,) = refused("check", tmp_path / "study.yaml").splitlines()
    assert "time goes back: 0.005 s after 0.01 s" in line


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
    assert "to the world" not in report


def test_bodies_that_hang_on_each_other_alone(tmp_path: Path):
    """Two hinges back and forth, and none to the world; where they fit, `check` says that the bodies float."""
    body = "{mass: 1, inertia: [1, 1, 1]}"
    bodies = f"spookax: 1\nbodies:\n  a: {body}\n  b: {body}\n  c: {body}\njoints:\n  c: {{type: hinge, child: c}}\n"
    joints = "  p: {type: hinge, parent: a, child: b, at: [0, 0, -1]}\n  q: {type: hinge, parent: b, child: a}\n"
    report = refused("check", write(tmp_path, pair_yaml=bodies + joints) / "pair.yaml")
    assert f"{tmp_path / 'pair.yaml'}:9: joints.q: the loop of the joints p, q cannot be assembled" in report
    assert (
        "no joint holds its bodies to the world. If one of these joints is meant to, give it `parent: world`" in report
    )
    fitting = write(tmp_path, pair_yaml=bodies + joints.replace("child: a}", "child: a, at: [0, 0, 1]}")) / "pair.yaml"
    result = run("check", fitting)
    assert result.stdout.splitlines()[1:] == ["  no joint holds to the world: a, b"]


def test_help_and_checks_do_not_start_jax(tmp_path: Path):
    study = study_folder(tmp_path) / "study.yaml"
    program = f"""
import sys
from spookax.cli import app
assert "numpy" not in sys.modules and "pydantic" not in sys.modules  # nor what takes long to import
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


def test_a_reader_that_has_read_enough_ends_it_silently():
    """`spookax check ... | head -1`, where the pipe is closed before anything was written."""
    shell = "from spookax.cli import app; app()"
    command = [sys.executable, "-c", shell, "check", str(ROOT / "scenes/pendulum.yaml")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert said == ""
    assert process.returncode == 141
