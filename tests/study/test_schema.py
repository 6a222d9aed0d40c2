"""Study files: defaults, one clear report for every kind of mistake, and the check against the scene."""

import copy
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from spookax.scene import read_scene
from spookax.study import (
    Study,
    StudyError,
    check_against_scene,
    json_schema,
    read_recordings,
    read_study,
    sensor_dimensions,
)

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "docs" / "schema" / "study.schema.json"
SHIPPED = sorted((ROOT / "studies").glob("*.yaml"))

SCENE = """
spookax: 1
bodies:
  arm: {mass: 1, inertia: [0.01, 0.01, 0.01]}
  rod: {mass: 0.1, inertia: [0.01, 0.01, 0.01]}
  cart: {mass: 1, inertia: [1, 1, 1]}
  lamp: {mass: 1, inertia: [1, 1, 1]}
joints:
  shoulder: {type: hinge, child: arm, friction: {viscous: 0.1}}
  elbow: {type: hinge, parent: arm, child: rod, axis: [1, 0, 0]}
  rail: {type: prismatic, child: cart}
  mount: {type: fixed, parent: cart, child: lamp}
motors:
  drive: {type: torque, joint: shoulder, gain: 0.5}
sensors:
  arm_encoder: {type: joint_position, joint: shoulder}
  rod_rate: {type: joint_rate, joint: elbow}
  cart_encoder: {type: joint_position, joint: rail}
  cart_rate: {type: joint_rate, joint: rail}
  camera: {type: body_pose, body: rod}
  marker: {type: point_position, body: rod}
"""

FULL = """
spookax: 1
scene: scene.yaml
recordings:
  - name: train
    file: train.csv
    time: {column: t, unit: ms}
    inputs: {drive: u}
    sensors:
      arm_encoder: "q [deg]"
      marker: [x, y, {column: z, unit: mm}]
    start: 1
    stop: 2.5
    offsets: {arm_encoder: 0.05}
    initial: {elbow: {position: 3.14}}
  - file: second.run.csv
    time: t
    sensors: {arm_encoder: q}
  - dataset: emps/emps_periods_1to3.csv
    time: t
    sensors: {arm_encoder: q}
parameters:
  bodies.arm.mass: {start: 2, lower: 0, upper: 10, prior_sd: 0.5}
  bodies.arm.inertia.zz: {}
  bodies.rod.inertia: {transform: inertia}
  joints.shoulder.friction.viscous: {}
  motors.drive.gain: {transform: box, lower: 0, upper: 1}
  tilt.x: {lower: -0.1}
estimator:
  form: residual
  objective: joint
  step: 0.0025
  process_noise: {kind: bodies, density: 1.0e-3, estimate: false}
  sensor_noise: {estimate: true}
  friction_speed: [0.5, 0.1, 0.1]
  noise_scale: [1]
  max_iterations: 5
  tolerance: 1.0e-4
  restarts: 3
  check_half_step: true
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with the scene, the study and (empty) recordings that the texts above name."""
    monkeypatch.setenv("SPOOKAX_DATA", str(tmp_path / "data"))
    (tmp_path / "data/emps").mkdir(parents=True)
    for name in ("train.csv", "second.run.csv", "other.csv", "data/emps/emps_periods_1to3.csv"):
        (tmp_path / name).touch()
    (tmp_path / "scene.yaml").write_text(SCENE)
    (tmp_path / "study.yaml").write_text(FULL)
    return tmp_path


def refusal(path: Path, content: str) -> StudyError:
    path.write_text(content)
    with pytest.raises(StudyError) as caught:
        read_study(path)
    for problem in caught.value.problems:
        assert problem.file == str(path)
        assert problem.line >= 1
        assert problem.cure
    assert len(str(caught.value).splitlines()) == len(caught.value.problems)
    return caught.value


def changed(where: tuple[Any, ...], value: Any) -> str:
    """The full study with another value in one place, or without the key if the value is `...`."""
    data = copy.deepcopy(yaml.safe_load(FULL))
    part = data
    for key in where[:-1]:
        part = part[key]
    if value is ...:
        del part[where[-1]]
    else:
        part[where[-1]] = value
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


# Reading


def test_a_study_is_read(folder):
    study = read_study(folder / "study.yaml")
    first, second, third = study.recordings
    assert [recording.name for recording in study.recordings] == ["train", "second.run", "emps_periods_1to3"]
    assert (first.time.column, first.time.unit) == ("t", "ms")
    assert [(c.column, c.unit) for c in first.sensors["arm_encoder"]] == [("q", "deg")]
    assert [c.column for c in first.sensors["marker"]] == ["x", "y", "z"]
    assert first.initial["elbow"].position == 3.14
    assert first.initial["elbow"].rate is None
    assert study.scene_path == folder / "scene.yaml"
    assert study.recording_path(first) == folder / "train.csv"
    assert study.recording_path(third) == folder / "data/emps/emps_periods_1to3.csv"
    transforms = {path: spec.transform for path, spec in study.parameters.items()}
    assert transforms == {
        "bodies.arm.mass": "log",
        "bodies.arm.inertia.zz": "log",
        "bodies.rod.inertia": "inertia",
        "joints.shoulder.friction.viscous": "sinh",
        "motors.drive.gain": "box",
        "tilt.x": "identity",
    }
    assert study.estimator.friction_speed == (0.5, 0.1, 0.1)
    assert second.inputs == {}
    check_against_scene(study, study.located, read_scene(study.scene_path))


def test_defaults_are_those_of_the_documented_format():
    data = yaml.safe_load(FULL)
    del data["estimator"]
    estimator = Study.model_validate(data).estimator
    assert estimator.model_dump() == {
        "form": "simulator",
        "objective": "marginal",
        "step": None,
        "process_noise": {"kind": None, "density": 1e-5, "estimate": "prediction"},
        "sensor_noise": {"estimate": None},
        "outliers": None,
        "friction_speed": None,
        "noise_scale": (1.0,),
        "max_iterations": 60,
        "tolerance": 1e-6,
        "restarts": 6,
        "check_half_step": True,
    }


def test_a_study_made_in_python_is_relative_to_the_current_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    study = Study.model_validate(yaml.safe_load(FULL))
    assert study.scene_path.read_text() == SCENE
    assert study.recording_path(study.recordings[0]).is_file()


def test_without_locate_the_files_need_not_exist(tmp_path):
    (tmp_path / "study.yaml").write_text(FULL)
    assert len(read_study(tmp_path / "study.yaml", locate=False).recordings) == 3
    error = refusal(tmp_path / "study.yaml", FULL.replace("emps/", "empps/"))
    assert [problem.path for problem in error.problems] == [
        "scene",
        "recordings[0].file",
        "recordings[1].file",
        "recordings[2].dataset",
    ]
    assert "Did you mean `emps`" in error.problems[3].cure


def test_where_to_get_a_data_set_is_said_once(folder):
    furuta = [f"  - {{dataset: furuta_odrive/step_{n}V.csv, time: t, sensors: {{arm_encoder: q}}}}\n" for n in (2, 4)]
    study = FULL.replace("parameters:\n", "".join(furuta) + "parameters:\n")
    first, second = refusal(folder / "study.yaml", study).problems
    assert "Get it from GitHub" in first.cure
    assert second.cure == "As above."


# Mistakes: 20 of each kind, each giving one problem that names the place

PLACES: list[tuple[Any, ...]] = [
    ("scene",), ("recordings",), ("recordings", 0, "file"), ("recordings", 0, "inputs"),
    ("recordings", 0, "sensors"), ("recordings", 0, "sensors", "arm_encoder"), ("recordings", 0, "start"),
    ("recordings", 0, "offsets"), ("recordings", 0, "initial", "elbow"),
    ("parameters",), ("parameters", "bodies.arm.mass"), ("parameters", "tilt.x", "lower"),
    ("parameters", "motors.drive.gain", "transform"),
    ("estimator",), ("estimator", "form"), ("estimator", "step"), ("estimator", "process_noise", "density"),
    ("estimator", "max_iterations"), ("estimator", "check_half_step"), ("estimator", "friction_speed"),
]  # fmt: skip
NUMBERS: list[tuple[Any, ...]] = [
    ("recordings", 0, "offsets", "arm_encoder"),
    ("parameters", "bodies.arm.mass", "start"), ("parameters", "bodies.arm.mass", "prior_sd"),
    ("estimator", "step"), ("estimator", "process_noise", "density"), ("estimator", "tolerance"),
    ("estimator", "max_iterations"), ("estimator", "restarts"),
    ("estimator", "friction_speed", 0), ("estimator", "noise_scale", 0),
]  # fmt: skip
MAPPINGS: list[tuple[Any, ...]] = [
    (), ("recordings", 0), ("recordings", 1), ("recordings", 0, "time"),
    ("recordings", 0, "initial", "elbow"),
    ("parameters", "bodies.arm.mass"), ("parameters", "tilt.x"),
    ("estimator",), ("estimator", "process_noise"), ("estimator", "sensor_noise"),
]  # fmt: skip


def dotted(where: tuple[Any, ...]) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in where).lstrip(".")


@pytest.mark.parametrize("where", PLACES, ids=dotted)
@pytest.mark.parametrize("value", [17.5, ["nonsense"]], ids=["number", "list"])
def test_a_wrong_type_is_refused(folder, where, value):
    if where[-1] in ("start", "lower", "step", "density", "mass") and value == 17.5:
        value = "text"
    if where == ("recordings", 0, "sensors", "arm_encoder") and value != 17.5:
        value = [17.5]
    error = refusal(folder / "study.yaml", changed(where, value))
    assert len(error.problems) <= 2, str(error)
    assert any(problem.path.startswith(dotted(where)) for problem in error.problems), str(error)


@pytest.mark.parametrize("where", NUMBERS, ids=dotted)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -3, -1e-9, "0.1"], ids=str)
def test_nan_and_negative_numbers_are_refused(folder, where, value):
    error = refusal(folder / "study.yaml", changed(where, value))
    assert [problem.path for problem in error.problems] == [dotted(where)], str(error)


@pytest.mark.parametrize("where", MAPPINGS, ids=dotted)
@pytest.mark.parametrize("key", ["unti", "offset"])
def test_an_unknown_key_is_refused_and_the_nearest_named(folder, where, key):
    error = refusal(folder / "study.yaml", changed((*where, key), 1))
    assert [problem.path for problem in error.problems] == [dotted((*where, key))], str(error)
    assert "unknown key" in str(error)
    assert "Known here: `" in str(error)


@pytest.mark.parametrize(
    "where",
    [
        ("spookax",), ("scene",), ("recordings",), ("parameters",), ("recordings", 0, "file"),
        ("recordings", 0, "time"),
        ("recordings", 0, "sensors"), ("recordings", 1, "file"), ("recordings", 1, "time"),
        ("recordings", 1, "sensors"), ("recordings", 2, "dataset"), ("recordings", 2, "time"),
        ("recordings", 2, "sensors"), ("recordings", 0, "time", "column"),
        ("recordings", 0, "sensors", "marker", 2, "column"), ("parameters", "motors.drive.gain", "lower"),
        ("parameters", "motors.drive.gain", "upper"),
    ],
    ids=dotted,
)  # fmt: skip
def test_a_missing_key_is_named(folder, where):
    error = refusal(folder / "study.yaml", changed(where, ...))
    assert where[-1] in str(error)
    assert re.search("is missing|has neither|needs `lower` and `upper`|is not read", str(error))


@pytest.mark.parametrize("k", range(20))
def test_a_file_that_is_cut_off_is_one_report(folder, k):
    cut = int(len(FULL) * (0.02 + 0.048 * k))
    path = folder / "study.yaml"
    path.write_text(FULL[:cut])
    try:
        read_study(path)
    except StudyError as error:
        assert error.problems  # noqa: PT017
        assert all(problem.message and problem.cure for problem in error.problems)  # noqa: PT017
    else:
        assert cut > FULL.index("bodies.arm.mass")  # a file cut between two lines below is a study, too


@pytest.mark.parametrize("k", range(100))
def test_changed_characters_never_raise_anything_else(folder, k):
    rng = np.random.default_rng(k)
    broken = list(FULL)
    for place in rng.integers(len(broken), size=1 + k % 4):
        broken[place] = "\t:{}[]-#&*!|>'\"%@`?,\n\0é9a"[int(rng.integers(25))]
    path = folder / "study.yaml"
    path.write_text("".join(broken))
    try:
        read_study(path)
    except StudyError as error:
        assert all(problem.message and problem.cure for problem in error.problems)  # noqa: PT017


@pytest.mark.parametrize(
    ("where", "value", "expected"),
    [
        (("scene",), "scen.yaml", r"no such file: .*scen\.yaml\. Did you mean `scene\.yaml`"),
        (("recordings", 0, "file"), "nowhere/train.csv", "Check the folder"),
        (("recordings", 0, "file"), "trian.csv", r"Did you mean `train\.csv`"),
        (("recordings", 2, "dataset"), "emps/none.csv", r"Did you mean|Known here: `emps_periods_1to3\.csv`"),
        (("recordings", 2, "dataset"), "panda_exciting/panda_exciting_0_13s.csv", "Get it from GitHub"),
        (("recordings", 2, "dataset"), "emps", "must name a data set and a file"),
        (("recordings", 2, "file"), "other.csv", "has both `file` and `dataset`"),
        (("recordings", 1, "name"), "train",
         r"recordings\[1\]\.name: the name 'train' is taken by recordings\[0\]"),
        (("recordings", 1, "name"), "a/b", "must have no slash"),
        (("recordings", 0, "time", "unit"), "counts", r"recordings\[0\]\.time\.unit: .*2 pi"),
        (("recordings", 0, "inputs", "drive"), "u [furlong]", r"unknown unit 'furlong'"),
        (("recordings", 1, "sensors", "arm_encoder"), "q [furlong]",
         r"sensors\.arm_encoder: unknown unit 'furlong'"),
        (("recordings", 0, "stop"), 1, r"stop: must be later than start 1 s"),
        (("recordings", 0, "offsets", "elbow"), 1, r"offsets\.elbow: the sensor 'elbow' is not read"),
        (("recordings", 0, "sensors", "marker"), [], r"sensors\.marker"),
        (("recordings",), [], "recordings"),
        (("parameters",), {}, "parameters"),
        (("parameters", "bodies.arm.mass", "upper"), 0, r"upper: must be > lower 0, got 0"),
        (("parameters", "bodies.arm.mass", "start"), 10, r"must lie inside the bounds \(0, 10\), got 10"),
        (("parameters", "bodies.arm.mass", "start"), 0, r"must be > 0 for the transform log"),
        (("parameters", "bodies.arm.mass", "lower"), -1, r"must be >= 0 for the transform log, got -1"),
        (("parameters", "tilt.x", "transform"), "inertia", "is for bodies.NAME.inertia"),
        (("parameters", "tilt.x", "transform"), "network", "is for joints.NAME.friction.learned.weights"),
        (("parameters", "tilt.x", "transform"), "logg", r"Did you mean `log`"),
        (("parameters", "bodies.rod.inertia", "transform"), "log", "needs the transform inertia"),
        (("parameters", "bodies.rod.inertia", "start"), 1, "is not one number"),
        (("parameters", "bodies.rod.inertia.xx"), {}, r"is part of bodies\.rod\.inertia"),
        (("estimator", "form"), "simulater", r"Did you mean `simulator`"),
        (("estimator", "friction_speed"), [0.1, 0.2], "must not rise"),
        (("estimator", "max_iterations"), 1.5, "whole number"),
        (("recursive",), {"rule": "unscented", "iterations": 2},
         r"recursive\.iterations: is a setting of the rule extended, and the rule is unscented\. Delete"),
        (("recursive",), {"rule": "ensemble", "iterations": 1}, "and the rule is ensemble"),
        (("recursive",), {"members": 300},
         r"recursive\.members: is a setting of the rule ensemble, and the rule is extended\. .*`rule: ensemble`"),
        (("recursive",), {"rule": "unscentd", "iterations": 2}, r"rule: .*Did you mean `unscented`"),
        (("ties",), {"tilt.y": "2 *"}, r"ties\.tilt\.y: the expression '2 \*' cannot be read .*\. Write numbers"),
        (("ties",), {"tilt.y": "open('x')"}, "holds something else than numbers, paths"),
        (("ties",), {"tilt.y": "tilt + 1"}, "'tilt' is neither a number nor a path"),
        (("ties",), {"tilt.y": 2.0}, r"ties\.tilt\.y"),
        (("ties",), {"tilt.x": "bodies.arm.mass"}, "is one of the study's parameters, and tied to others as well"),
        (("ties",), {"bodies.rod.inertia.xx": "tilt.x"}, "is one of the study's parameters, and tied"),
        (("ties",), {"tilt.y": "gravity.x + tilt.x", "gravity.x": "tilt.y"}, "in a circle: (tilt.y|gravity.x) needs"),
        (("ties",), {"tilt.y": "tilt.y + tilt.x"}, "goes round in a circle: tilt.y needs tilt.y"),
        (("spookax",), 2, "spookax: must be 1"),
    ],
    ids=str,
)  # fmt: skip
def test_every_other_mistake_is_explained(folder, where, value, expected):
    error = refusal(folder / "study.yaml", changed(where, value))
    assert len(error.problems) == 1, str(error)
    assert re.search(expected, str(error)), str(error)


def test_all_problems_are_in_one_report_in_the_order_of_the_file(folder):
    broken = (
        FULL.replace("scene.yaml", "none.yaml")
        .replace("stop: 2.5", "stop: 0")
        .replace("start: 2,", "start: 20,")
        .replace("form: residual", "fomr: residual")
        .replace("[0.5, 0.1, 0.1]", "[0.1, 0.5]")
    )
    error = refusal(folder / "study.yaml", broken)
    assert [problem.path for problem in error.problems] == [
        "scene",
        "recordings[0].stop",
        "parameters.bodies.arm.mass.start",
        "estimator.fomr",
        "estimator.friction_speed",
    ]
    for problem in error.problems:
        key = problem.path.rpartition(".")[2]
        assert key in broken.splitlines()[problem.line - 1]


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        ({"process_noise": {"kind": "bodies", "density": {"elbow": 1.0}}}, "noise on bodies has one level"),
        ({"form": "residual"}, "the residual form needs noise on every body"),
    ],
)
def test_noise_that_the_form_cannot_use_is_refused(folder, estimator, expected):
    data = yaml.safe_load(FULL)
    data["estimator"] = estimator
    (folder / "study.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(StudyError, match=expected):
        read_study(folder / "study.yaml")


# Against the scene


@pytest.mark.parametrize(
    ("where", "value", "expected"),
    [
        (("recordings", 0, "inputs"), {"drve": "u"},
         r"inputs\.drve: the scene has no motor 'drve'\. Did you mean `drive`"),
        (("recordings", 1, "sensors"), {"arm_encodr": "q"},
         r"no sensor 'arm_encodr'\. Did you mean `arm_encoder`"),
        (("recordings", 0, "initial"), {"elbo": {}}, r"no axis 'elbo'\. Did you mean `elbow`"),
        (("recordings", 0, "initial"), {"mount": {}}, r"initial\.mount: the scene has no axis 'mount'"),
        (("recordings", 0, "sensors", "marker"), ["x", "y"], r"'marker' reads 3 numbers, got 2 columns"),
        (("recordings", 0, "sensors", "camera"), "x", r"'camera' reads 6 numbers, got 1 columns"),
        (("recordings", 0, "offsets"), {"marker": 0.1},
         r"offsets\.marker: the sensor 'marker' has no zero offset"),
        (("parameters", "bodies.arm.mas"), {}, r"no such number\. Nearest: bodies\.arm\.mass"),
        (("parameters", "bodies.ram.inertia"), {}, r"Nearest: bodies\.arm\.inertia"),
        (("parameters", "zzz"), {}, r"Write a path such as"),
        (("parameters", "tilt.x", "lower"), 0.0,
         r"parameters\.tilt\.x: the start must lie inside the bounds \(0, inf\)"),
        (("parameters", "joints.elbow.friction.coulomb"), {},
         r"the start must be > 0 for the transform sinh, got 0"),
    ],
    ids=str,
)  # fmt: skip
def test_what_the_scene_does_not_have_is_refused(folder, where, value, expected):
    path = folder / "study.yaml"
    path.write_text(changed(where, value))
    study = read_study(path)
    with pytest.raises(StudyError, match=expected) as caught:
        check_against_scene(study, study.located, read_scene(study.scene_path))
    (problem,) = caught.value.problems
    assert str(where[1] if where[0] == "parameters" else where[2]) in path.read_text().splitlines()[
        problem.line - 1
    ] or (problem.line > 1)


@pytest.mark.parametrize(
    ("density", "expected"),
    [
        ({"shoulder": 1e-3, "elbow": 1e-5}, r"density: the axis 'rail' has no density\. Add a line for 'rail'"),
        ({"shoulder": 1.0, "elbow": 1.0, "rail": 1.0, "mount": 1.0}, r"no axis 'mount'"),
    ],
)
def test_levels_of_their_own_are_for_every_joint_with_an_axis(folder, density, expected):
    path = folder / "study.yaml"
    path.write_text(changed(("estimator",), {"process_noise": {"density": density}}))
    study = read_study(path)
    with pytest.raises(StudyError, match=expected):
        check_against_scene(study, study.located, read_scene(study.scene_path))


def test_dimensions_follow_from_the_kind_of_joint(folder):
    assert sensor_dimensions(read_scene(folder / "scene.yaml")) == {
        "arm_encoder": ("angle",),
        "rod_rate": ("angular rate",),
        "cart_encoder": ("length",),
        "cart_rate": ("speed",),
        "camera": ("length",) * 3 + ("angle",) * 3,
        "marker": ("length",) * 3,
    }


# What is shipped


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_studies_fit_their_scenes(path):
    study = read_study(path, locate=False)
    check_against_scene(study, study.located, read_scene(study.scene_path))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_recordings_of_shipped_studies_can_be_read(path):
    try:
        study = read_study(path)
    except StudyError as error:
        pytest.skip(str(error.problems[0]))
    runs = read_recordings(study, sensor_dimensions(read_scene(study.scene_path)))
    assert [run.name for run in runs] == [recording.name for recording in study.recordings]
    assert all(run.time.size > 1000 for run in runs)


def test_the_published_json_schema_is_that_of_the_code():
    assert json.loads(PUBLISHED.read_text()) == json_schema()
    command = [sys.executable, "-W", "error", "-m", "spookax.study.schema"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == PUBLISHED.read_text()


def test_every_key_is_described():
    schema = json_schema()
    parts = [*schema["$defs"].values(), schema, schema["$defs"]["Column"]["anyOf"][1]]
    named = [(name, field) for part in parts for name, field in part.get("properties", {}).items()]
    assert len(named) > 30
    assert [name for name, field in named if not (field.get("description") or "$ref" in field)] == []
    page = (ROOT / "docs" / "study.md").read_text()
    assert [name for name, _ in named if f"`{name}`" not in page] == []


# Ties


@pytest.mark.parametrize(
    ("ties", "expected"),
    [
        ({"bodies.lamp.mas": "bodies.arm.mass"}, r"no number 'bodies\.lamp\.mas'\. Nearest: .*bodies\.lamp\.mass"),
        ({"bodies.lamp.mass": "1 - bodies.arm.mas"}, r"no number 'bodies\.arm\.mas'\. Nearest: .*bodies\.arm\.mass"),
        ({"bodies.lamp.mass": "1 -bodies.arm.mass-1"}, r"no number 'bodies\.arm\.mass-1'"),
        (
            {"bodies.lamp.mass": "1.2 - bodies.arm.mass"},
            r"no possible scene at the start: bodies\.lamp\.mass must",
        ),
        ({"tilt.y": "2 * gravity.z"}, r"nothing in the expression '2 \* gravity\.z' is unknown"),
        ({"tilt.y": "1 / (bodies.arm.mass - 2)"}, "cannot be worked out at the start: .*division by zero"),
        ({"tilt.y": "sqrt(1 - bodies.arm.mass)"}, "cannot be worked out at the start: a root of a negative number"),
    ],
)
def test_ties_are_checked_against_the_scene(folder, ties, expected):
    (folder / "study.yaml").write_text(changed(("ties",), ties))
    study = read_study(folder / "study.yaml")
    with pytest.raises(StudyError, match=expected) as caught:
        check_against_scene(study, study.located, read_scene(study.scene_path))
    (problem,) = caught.value.problems
    assert problem.line > 1
    assert problem.cure


def test_a_mode_does_not_set_what_a_tie_needs(folder):
    data = yaml.safe_load(changed(("ties",), {"bodies.lamp.mass": "bodies.arm.mass - bodies.cart.mass"}))
    modes = {"free": {}, "loaded": {"set": {"bodies.cart.mass": 2.0}}}
    data["recursive"] = {"modes": modes, "switching": {"dwell_time": 1.0}}
    error = refusal(folder / "study.yaml", yaml.safe_dump(data))
    assert "takes part in one of the `ties`" in str(error)
