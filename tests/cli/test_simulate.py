"""`spookax simulate` and `spookax.load`."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest
from cli.scenes import ROOT, SLIDER, refused, run, study_folder, write

import spookax as sx
from spookax.cli.inputs import read_inputs, step_means
from spookax.scene import Scene, SceneError
from spookax.stepping.rollout import kick_inputs
from spookax.study.file.study import Column, RecordingSpec
from spookax.study.recordings.grid import grid_of, kick_means
from spookax.study.recordings.recording import read_recording


@pytest.fixture
def slider(tmp_path: Path) -> Path:
    return write(tmp_path, slider_yaml=SLIDER) / "slider.yaml"


def columns(file: Path) -> dict[str, np.ndarray]:
    header, *rows = (line.split(",") for line in file.read_text().splitlines())
    return dict(zip(header, np.array(rows, dtype=float).T, strict=True))


def test_a_constant_force_and_every_kind_of_sensor(slider: Path, tmp_path: Path):
    out, page = tmp_path / "new/run.csv", tmp_path / "run.html"
    slider.write_text(SLIDER.replace("offset: 0.5", "offset: 0.5, cyclic_error: [{order: 2, cos: 0.1}]"))
    result = run("simulate", slider, "--time", 1, "--motor", "drive=1.5", "--out", out, "--html", page)
    assert result.exit_code == 0, result.output
    assert str(out) in result.stdout
    assert "meshcat" in page.read_text(encoding="utf-8").lower()
    found = columns(out)
    t = found["t [s]"]
    x = 1.5 * 4.0 / 2.0 * t**2 / 2
    np.testing.assert_allclose(t, 0.01 * np.arange(101), atol=1e-12)
    expected = {
        "motors.drive.input [1]": np.full_like(t, 1.5),
        "joints.rail.position [m]": x,
        "joints.rail.rate [m/s]": 3.0 * t,
        "sensors.scale [m]": x + 0.5 + 0.1 * np.cos(4 * np.pi * x),
        "sensors.tacho [m/s]": 3.0 * t,
        "sensors.marker.x [m]": x,
        "sensors.marker.y [m]": np.full_like(t, 0.2),
        "sensors.marker.z [m]": np.ones_like(t),
        "sensors.camera.x [m]": x,
        "sensors.camera.y [m]": np.zeros_like(t),
        "sensors.camera.z [m]": np.ones_like(t),
        "sensors.camera.rx [rad]": np.zeros_like(t),
        "sensors.camera.ry [rad]": np.zeros_like(t),
        "sensors.camera.rz [rad]": np.zeros_like(t),
    }
    assert set(found) == {"t [s]", *expected}
    for name, values in expected.items():  # off by the compliance of the joint and what the file rounds
        np.testing.assert_allclose(found[name], values, atol=1e-5, err_msg=name)


def test_a_servo_that_nothing_drives_holds_where_it_starts():
    joints = {name: {"type": "hinge", "child": name} for name in ("a", "b", "c")}
    motors = {n: {"type": "position", "joint": n, "stiffness": 1} for n in joints} | {
        "push": {"type": "torque", "joint": "a"}
    }
    bodies = {name: {"mass": 1, "inertia": [1, 1, 1]} for name in joints}
    starts = {"a": {"position": 0.5}, "b": {"position": -0.4}}
    scene = Scene.model_validate(
        {"spookax": 1, "bodies": bodies, "joints": joints, "motors": motors, "initial": starts}
    )
    found = read_inputs(scene, ["b=0.1"], None, 2 * scene.step)
    np.testing.assert_array_equal(found.values, [[0.5, 0.1, 0.0, 0.0]] * 2)


def test_surfaces_that_touch_have_their_forces_in_the_table_and_on_the_page(tmp_path: Path):
    """A ball that lies on a slope of 0.1 rad slides down without friction, and presses with m g cos."""
    scene, out, page = tmp_path / "ball.yaml", tmp_path / "run.csv", tmp_path / "run.html"
    scene.write_text(BALL_ON_SLOPE)
    result = run("simulate", scene, "--time", 0.2, "--out", out, "--html", page)
    assert result.exit_code == 0, result.output
    found = columns(out)
    normal, friction = (found[f"contacts.ball.slope.{kind} [N]"] for kind in ("normal", "friction"))
    np.testing.assert_allclose(normal[10:], 2.0 * 9.81 * np.cos(0.1), rtol=1e-4)
    np.testing.assert_allclose(friction, 0.0, atol=1e-9)
    assert "ball on slope" in page.read_text(encoding="utf-8")


BALL_ON_SLOPE = """
spookax: 1
name: ball
step: 0.005
bodies:
  ball: {mass: 2.0, inertia: [0.01, 0.01, 0.01], initial: {position: [0.009983, 0, 0.0995]}}
contacts:
  materials: {default: {friction: 0.0}}
  surfaces:
    slope: {type: plane, rotation: [0, 0.1, 0]}
    ball: {type: sphere, body: ball, radius: 0.1}
"""


def test_a_recording_drives_a_simulation_and_the_result_is_a_recording(slider: Path, tmp_path: Path):
    inputs = write(tmp_path, inputs_csv="t [ms],u [mV]\n5000,1500\n5333,\n6000,1500\n") / "inputs.csv"
    out = tmp_path / "out.npz"
    result = run("simulate", slider, "--input", inputs, "--motor", "drive=u", "--out", out)
    assert result.exit_code == 0, result.output
    spec = RecordingSpec(
        name="out",
        time=Column(column="t"),
        inputs={"drive": Column(column="motors.drive.input")},
        sensors={"scale": [Column(column="sensors.scale")]},
    )
    recording = read_recording(out, spec)
    assert recording.input_units == {"drive": "V"}
    np.testing.assert_allclose(recording.inputs["drive"], 1.5, rtol=1e-12)
    np.testing.assert_allclose(recording.sensors["scale"][-1], 1.5 + 0.5, atol=1e-5)


def test_without_a_file_the_ends_are_printed(slider: Path):
    result = run("simulate", slider, "--time", 1, "--motor", "drive=1.5")
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("joints.rail.position [m]")]
    assert line.split()[-3:] == ["0", "1.5", "1.5"]


def test_the_pace_of_a_simulation_is_told_and_doubted(tmp_path: Path):
    """Stamps in milliseconds that are declared as seconds, and a hinge that turns 1.5 rad in a step."""
    text = SLIDER.replace("prismatic", "hinge").replace("com: [0.1, 0, 0]", "com: [0, 0, 0]")
    folder = write(
        tmp_path, slider_yaml=text + "initial:\n  rail: {rate: 150}\n", u_csv="t [s],u [1]\n0,0\n5,0\n10,0\n"
    )
    scene, inputs = folder / "slider.yaml", folder / "u.csv"
    result = run("simulate", scene, "--input", inputs, "--motor", "drive=u", "--time", 0.02)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0] == (
        "slider: 0.02 s, 2 steps of 0.01 s, 1.5 rad in one at the fastest, 150 rad/s of rail"
    )
    first, second = result.stderr.splitlines()
    assert first.startswith(f"warning: {inputs}: there are 500 steps of 0.01 s from one sample to the next, 5 s.")
    assert second.startswith(f"warning: {scene}: a joint turns 1.5 rad in a step of 0.01 s.")


def test_means_over_steps_keep_the_area(rng: np.random.Generator):
    time = np.cumsum(rng.uniform(0.001, 0.03, 50)) - 0.001
    time -= time[0]
    value, h, steps = rng.standard_normal(50), 0.01, 100
    means = step_means(time, value, h, steps)
    fine = np.linspace(0, h * steps, 1_000_001)[:-1] + h * steps / 2e6
    held = value[np.searchsorted(time, fine, side="right") - 1]
    np.testing.assert_allclose(means, held.reshape(steps, -1).mean(axis=1), atol=1e-3)
    aligned = np.arange(5) * h
    np.testing.assert_allclose(step_means(aligned, np.arange(5.0), h, 7), [0, 1, 2, 3, 4, 4, 4], atol=1e-12)


def test_inputs_act_when_they_act_in_an_identification(tmp_path: Path):
    """From half a step before to half a step after the beginning of each, where they are given at whole steps."""
    scene = sx.read_scene(write(tmp_path, slider_yaml=SLIDER) / "slider.yaml")
    time = 2 * scene.step * np.arange(30)
    rows = [f"{t:.17g},{u:.17g}" for t, u in zip(time, np.sin(7 * time), strict=True)]
    (tmp_path / "u.csv").write_text("\n".join(["t [s],u [V]", *rows]) + "\n")
    (motor,) = scene.motors
    found = kick_inputs(read_inputs(scene, [f"{motor}=u"], tmp_path / "u.csv", None).values)[:, 0]
    wanted = kick_means(grid_of(time, scene.step), time, np.sin(7 * time))[: len(found)]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--time", "1", "--motor", "driv=1"], "Did you mean `drive`?"),
        (["--time", "1", "--motor", "drive"], "not MOTOR=NUMBER"),
        (["--time", "1", "--motor", "drive=u"], "--input"),
        (["--time", "1", "--motor", "drive=1", "--motor", "drive=2"], "twice"),
        (["--time", "1", "--out", "run.txt"], ".csv or .npz"),
        (["--time", "-1"], "got -1"),
        (["--time", "nan"], "got nan"),
        ([], "--time"),
    ],
)
def test_options_that_do_not_fit_are_refused(slider: Path, arguments: list[str], said: str):
    assert said in refused("simulate", slider, *arguments)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read"),
        ("", "the file is empty"),
        ("t [s],u [V]\n0,1\n0.1,one\n0.2,1\n", ":3: "),
        ("u [V],t [s]\n0,1\n1,1\n2,1\n", "the time must be a time"),
        ("t [s],v [V]\n0,1\n1,1\n2,1\n", "no column 'u'"),
        ("t [s],u [V]\n0,1\n1,1\n1,1\n", "time repeats"),
    ],
)
def test_inputs_that_cannot_be_read_are_refused(slider: Path, tmp_path: Path, text: str | None, said: str):
    if text is not None:
        write(tmp_path, inputs_csv=text)
    report = refused("simulate", slider, "--input", tmp_path / "inputs.csv", "--motor", "drive=u")
    assert report.startswith(str(tmp_path / "inputs.csv"))
    assert said in report


def test_a_place_that_cannot_be_written_is_named(slider: Path, tmp_path: Path):
    (tmp_path / "file").touch()
    report = refused("simulate", slider, "--time", 1, "--out", tmp_path / "file/run.csv")
    assert str(tmp_path / "file") in report


FOUR_BAR = (ROOT / "scenes/four_bar.yaml").read_text()


def test_a_loop_is_assembled(tmp_path: Path):
    system, _, state = sx.load(ROOT / "scenes/four_bar.yaml")
    scene = sx.read_scene(ROOT / "scenes/four_bar.yaml")
    wanted = [scene.initial[name].position for name in system.axis_names()]
    np.testing.assert_allclose(state.near, wanted, atol=1e-12)
    tip = state.r[2] + (state.r[2] - np.array([0.4, 0, 0]))  # the rocker's far end, opposite to its pivot
    crank_tip = np.array([0.0, 0, 0.1])
    np.testing.assert_allclose(np.linalg.norm(tip - crank_tip), 0.35, atol=1e-9)


def test_a_loop_that_is_too_long_names_its_joints_and_the_gap(tmp_path: Path):
    scene = write(tmp_path, loop_yaml=FOUR_BAR.replace("at: [0.4, 0, 0]", "at: [1.4, 0, 0]")) / "loop.yaml"
    with pytest.raises(SceneError) as caught:
        sx.load(scene)
    (problem,) = caught.value.problems
    assert problem.path == "joints.ground"
    assert FOUR_BAR.splitlines()[problem.line - 1].startswith("  ground:")
    assert "drive, elbow, wrist, ground" in problem.message
    assert " m" in problem.message
    assert "initial" in problem.cure


def test_rates_that_a_loop_does_not_allow_are_refused(tmp_path: Path):
    text = FOUR_BAR.replace("drive: {position: -1.5707963267948966}", "drive: {position: -1.5707963267948966, rate: 1}")
    with pytest.raises(SceneError, match=r"initial.*rates of its loop do not fit together"):
        sx.load(write(tmp_path, loop_yaml=text) / "loop.yaml")


OUT_OF_REACH = {
    "one": ("{wrist: {position: 0.0}}", "wrist"),
    "one of two": ("{ground: {position: -3}, drive: {position: -1.57}}", "ground"),
}


@pytest.mark.parametrize("kind", ["one", pytest.param("one of two", marks=pytest.mark.slow)])
def test_a_position_that_a_loop_cannot_reach_is_blamed(tmp_path: Path, kind: str):
    """And what the cure says can be assembled."""
    initial, blamed = OUT_OF_REACH[kind]
    text = FOUR_BAR[: FOUR_BAR.index("initial:")] + f"initial: {initial}\n"
    scene = write(tmp_path, loop_yaml=text) / "loop.yaml"
    with pytest.raises(SceneError) as caught:
        sx.load(scene)
    (problem,) = caught.value.problems
    assert (problem.line, problem.path) == (len(text.splitlines()), f"initial.{blamed}.position")
    assert "the loop of the joints drive, elbow, wrist, ground cannot be assembled" in problem.message
    found = re.search(rf"{blamed} at (\S+) rad", problem.cure)
    assert found
    write(tmp_path, loop_yaml=text.replace(initial, f"{{{blamed}: {{position: {found[1]}}}}}"))
    sx.load(scene)


def test_a_position_outside_a_loop_is_not_blamed(tmp_path: Path):
    """All others at zero, where this loop is stretched and does not close."""
    text = FOUR_BAR[: FOUR_BAR.index("initial:")] + "initial: {apart: {position: 0.3}}\n"
    text = text.replace("bodies:\n", "bodies:\n  bob: {mass: 1, inertia: [1, 1, 1]}\n")
    text = text.replace("joints:\n", "joints:\n  apart: {type: hinge, child: bob}\n")
    with pytest.raises(SceneError, match=r"loop.yaml:\d+: joints\.ground: the loop of the joints drive"):
        sx.load(write(tmp_path, loop_yaml=text) / "loop.yaml")


@pytest.mark.slow
def test_a_coupling_that_positions_do_not_meet_blames_a_position(tmp_path: Path):
    rails = "  rail: {type: prismatic, child: cart}\n  ride: {type: prismatic, parent: cart, child: rider}\n"
    body = "{mass: 1, inertia: [1, 1, 1]}"
    text = f"spookax: 1\nbodies:\n  cart: {body}\n  rider: {body}\njoints:\n{rails}"
    text += "couplings:\n  belt: {driver: rail, driven: ride, ratio: 2}\ninitial:\n  ride: {position: 0.5}\n"
    scene = write(tmp_path, belt_yaml=text) / "belt.yaml"
    sx.load(scene)
    write(tmp_path, belt_yaml=text + "  rail: {position: 0.1}\n")
    with pytest.raises(SceneError, match=r"belt.yaml:\d+: initial\.\w+\.position: .* couplings.belt: cannot be met"):
        sx.load(scene)


def limited(limits: str, initial: str = "") -> str:
    text = SLIDER.replace("axis: [1, 0, 0]}", f"axis: [1, 0, 0], limits: {limits}}}")
    assert text != SLIDER
    return text + initial


BEYOND = {
    "given": ("{upper: 0.5}", "initial:\n  rail: {position: 0.6}\n", 16, "initial.rail.position", "0.6 m", "upper"),
    "below": ("{lower: 0.5}", "initial:\n  rail: {position: 0.4}\n", 16, "initial.rail.position", "0.4 m", "lower"),
    "zero": ("{lower: 0.1}", "", 7, "joints.rail.limits.lower", "0 m", "lower limit 0.1 m"),
    "just": ("{lower: 0.1}", "initial: {rail: {position: 0.099998}}\n", 15, "initial.rail.position", "0.099998", "0.1"),
}


@pytest.mark.parametrize("kind", BEYOND)
def test_a_start_beyond_a_limit_is_refused(tmp_path: Path, kind: str):
    limits, initial, line, path, *said = BEYOND[kind]
    scene = write(tmp_path, slider_yaml=limited(limits, initial)) / "slider.yaml"
    for command in (["check", scene], ["simulate", scene, "--time", 1]):
        report = refused(*command)
        assert report.startswith(f"{scene}:{line}: {path}: rail starts at {said[0]}")
        assert said[1] in report


def test_a_start_at_a_limit_is_none_beyond(tmp_path: Path):
    """To what assembling a loop leaves."""
    at = "initial: {rail: {position: 0.0999995}}\n"
    scene = write(tmp_path, slider_yaml=limited("{lower: 0.1}", at)) / "slider.yaml"
    sx.load(scene)
    text = FOUR_BAR.replace("child: rocker, at: [0.4, 0, 0]", "child: rocker, limits: {lower: LOWER}, at: [0.4, 0, 0]")
    text = text[: text.index("  elbow: {position")]  # of four positions the crank's alone is given
    sx.load(write(tmp_path, loop_yaml=text.replace("LOWER", "-1.9151557")) / "loop.yaml")
    with pytest.raises(SceneError, match=r"joints.ground.limits.lower: ground starts at -1.91516 rad"):
        sx.load(write(tmp_path, loop_yaml=text.replace("LOWER", "-1.91515")) / "loop.yaml")


def test_states_that_a_study_reads_need_no_start_within_the_limits(tmp_path: Path):
    study_folder(tmp_path)
    write(tmp_path, slider_yaml=limited("{lower: 0.1}"))
    assert run("check", tmp_path / "study.yaml").exit_code == 0


def test_rows_without_a_class_are_refused(tmp_path: Path):
    scene = write(tmp_path, slider_yaml=SLIDER + "rows:\n  gear: {type: gear}\n") / "slider.yaml"
    with pytest.raises(SceneError, match=rf"{len(SLIDER.splitlines()) + 2}: rows.gear"):
        sx.load(scene)


def test_load_follows_the_precision_that_is_set(slider: Path):
    with jax.enable_x64(False):
        _, params, state = sx.load(slider)
        assert params.mass.dtype == state.r.dtype == np.float32
    _, params, state = sx.load(slider)
    assert params.mass.dtype == state.r.dtype == np.float64


def test_a_simulation_that_fails_says_when_and_why(slider: Path, tmp_path: Path):
    out, page = tmp_path / "run.csv", tmp_path / "run.html"
    result = run("simulate", slider, "--time", 1, "--motor", "drive=1e308", "--out", out, "--html", page)
    assert result.exit_code == 1
    assert "the simulation failed in step 1, at 0 s. " in result.stderr
    assert "not finite" in result.stderr
    assert len(out.read_text().splitlines()) == 2  # the header and the state before
    assert page.is_file()
