"""Modes of a study: a pendulum that takes up a load at a known time, simulated in two parts, filtered and smoothed."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from cli.scenes import refused, run
from study.test_identify import GAIN, SD, SWING, H, entry, pendulum, write_csv

import spookax as sx
from spookax.estimation import IMM
from spookax.scene import Scene
from spookax.study.file.modes import changes, first_probability, transition
from spookax.study.file.read import read_study
from spookax.study.file.study import Recursive
from spookax.study.running.passes import by_bank, by_filter
from spookax.study.tracking.filter_recordings import Tracking, _Tracker, filter_recordings, smooth_recordings

pytestmark = [pytest.mark.timeout(400), pytest.mark.quick]

STEPS, TAKEN_UP, TORQUE, DWELL = 512, 256, 0.01, 1.0  # steps, step of the change, [N m sqrt(s)], [s]
TIME = H * np.arange(STEPS)
DRIVE = np.where(TIME % 0.4 < 0.2, 2.0, -2.0)
MASS = "bodies.bob.mass"
MODES = {
    "modes": {"free": {}, "loaded": {"set": {MASS: 1.2}}},
    "switching": {"dwell_time": DWELL},
    "parameters": "held",
}
SAME = {
    "modes": {"one": {}, "other": {}},
    "switching": {"dwell_time": {"one": 1.0, "other": 3.0}, "initial": {"one": 0.25, "other": 0.75}},
    "parameters": "held",
}


def moved(mass: float, start: dict[str, float], u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Angles and rates of a swing with this mass."""
    bob = {"mass": mass, "com": [0, 0, -0.3], "inertia": [0.02, 1, 1]}
    system, params = sx.build(Scene.model_validate(pendulum(bodies={"bob": bob})))
    state = sx.state_from_joints(system, params, {"pin": start})
    swing = jax.jit(lambda params, state, u: sx.rollout(system, params, state, u[:, None]).joint("pin"))
    angle, rate = swing(params, state, jnp.asarray(u))
    return np.asarray(angle), np.asarray(rate)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half of the recording with a mass of 1 kg, the rest with 1.2 kg; the true angles beside it."""
    folder, rng = tmp_path_factory.mktemp("modes"), np.random.default_rng(4)
    u = DRIVE + TORQUE / np.sqrt(H) / 0.5 * rng.normal(size=STEPS)
    first, rate = moved(1.0, SWING[0], u[:TAKEN_UP])
    second, _ = moved(1.2, {"position": float(first[-1]), "rate": float(rate[-1])}, u[TAKEN_UP:])
    truth = np.concatenate([first[:-1], second[:-1]])
    np.save(folder / "truth.npy", truth)
    write_csv(folder / "run.csv", truth + SD * rng.normal(size=STEPS), TIME, DRIVE)
    (folder / "scene.yaml").write_text(yaml.safe_dump(pendulum()))
    return folder


def study(folder: Path, name: str, recursive: dict[str, Any], **parameters: Any) -> Path:
    noise = {"process_noise": {"density": TORQUE, "estimate": False}}
    text = {"spookax": 1, "scene": "scene.yaml", "estimator": noise, "recursive": recursive}
    text["recordings"] = [entry("run.csv", offsets={})]
    text["parameters"] = parameters or {GAIN: {"start": 0.5, "prior_sd": 0.05}}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(text))
    return folder / f"{name}.yaml"


@pytest.fixture(scope="module")
def filtered(folder: Path) -> Tracking:
    return filter_recordings(study(folder, "filtered", MODES))


@pytest.fixture(scope="module")
def smoothed(folder: Path) -> Tracking:
    return smooth_recordings(study(folder, "smoothed", MODES))


@pytest.fixture(scope="module")
def decided(folder: Path) -> int:
    """Steps after which the readings must have told the modes apart, from the likelihood ratio.

    With the load, the innovations of a filter of the free mode have means n_k beside their unit variance, and the log
    of the ratio has mean m = sum n_k^2 / 2 and variance 2 m: in 99 of 100 recordings it exceeds m - 2.33 sqrt(2 m). It
    has to bring odds of h / T, those of a change in the step, to 9 : 1. The means are those of a recording without
    noise.
    """
    first, rate = moved(1.0, SWING[0], DRIVE[:TAKEN_UP])
    second, _ = moved(1.2, {"position": float(first[-1]), "rate": float(rate[-1])}, DRIVE[TAKEN_UP:])
    write_csv(folder / "run_clean.csv", np.concatenate([first[:-1], second[:-1]]), TIME, DRIVE)
    text = yaml.safe_load(study(folder, "clean", {"parameters": "held"}).read_text())
    text["recordings"][0] |= {"file": "run_clean.csv", "name": "run"}
    (folder / "clean.yaml").write_text(yaml.safe_dump(text))
    mean = filter_recordings(folder / "clean.yaml").states["run/innovation/angle"][TAKEN_UP:, 0]
    m = np.cumsum(mean**2) / 2
    return int(np.argmax(m - 2.33 * np.sqrt(2 * m) > np.log(9 * DWELL / H)))


@pytest.mark.slow  # compiles a bank and its smoother
def test_the_filter_finds_the_load(filtered: Tracking, folder: Path, decided: int):
    assert decided < (STEPS - TAKEN_UP) / 3  # a recording that tells
    states, told = filtered.states, filtered.content["runs"]["run"]
    loaded = states["run/probability/loaded"]
    assert np.max(loaded[TAKEN_UP : TAKEN_UP + decided + 1]) > 0.9
    np.testing.assert_allclose(loaded + states["run/probability/free"], 1.0, atol=1e-12)
    assert list(states["run/mode"][[TAKEN_UP - 1, -1]]) == ["free", "loaded"]
    (change,) = [c for c in told["changes"] if c["mode"] == "loaded" and c["time"] > 1.0]
    assert 0 < change["time"] - H * TAKEN_UP <= decided * H
    assert told["modes"]["loaded"]["last"] == loaded[-1]
    # states and innovations are those of the right model in the mean
    error = states["run/position/pin"] - np.load(folder / "truth.npy")
    assert 0.8 < np.sqrt(np.mean((error / states["run/position_sd/pin"]) ** 2)) < 1.2
    assert told["nis_p"] > 0.01


@pytest.mark.slow  # compiles a bank and its smoother
def test_the_smoother_knows_both_sides(filtered: Tracking, smoothed: Tracking, folder: Path, decided: int):
    states, truth = smoothed.states, np.load(folder / "truth.npy")
    loaded = states["run/probability/loaded"]
    assert np.argmax(loaded > 0.5) in range(TAKEN_UP - decided, TAKEN_UP + decided + 1)
    assert np.all(loaded[TAKEN_UP - 3 * decided : TAKEN_UP - decided] < 0.1)
    assert np.all(loaded[TAKEN_UP + decided : TAKEN_UP + 3 * decided] > 0.9)
    error, before = (s["run/position/pin"] - truth for s in (states, filtered.states))
    assert np.std(error) < np.std(before)
    assert np.mean(np.abs(error) < 2.5 * states["run/position_sd/pin"]) > 0.95


@pytest.mark.slow  # compiles a bank and its smoother
def test_the_numbers_of_the_documentation(filtered: Tracking, smoothed: Tracking, folder: Path):
    """docs/filtering.md, to the digits printed there."""
    found, back = (t.states["run/probability/loaded"][TAKEN_UP:] for t in (filtered, smoothed))
    assert [int(np.argmax(p)) for p in (found > 0.9, back > 0.5, back > 0.9)] == [19, 5, 7]
    truth = np.load(folder / "truth.npy")
    error = [np.sqrt(np.mean((t.states["run/position/pin"] - truth) ** 2)) for t in (filtered, smoothed)]
    assert [f"{1e3 * e:.2f}" for e in error] == ["0.52", "0.20"]


@pytest.mark.slow  # compiles a filter and a smoother of its own
def test_one_mode_is_the_filter(folder: Path):
    """The smoothers make their steps in charts that are a reading's noise apart: states differ by its square,
    covariances by its size.
    """
    tracker = _Tracker(study(folder, "plain", {"parameters": "held"}), smooth=False)
    ((path, _),), samples = tracker.setup.plans(), tracker.setup.problem.samples[0]
    f, start = tracker._filter(tracker.model), tracker._first(path)
    imm = IMM([f], np.eye(1))
    for smooth, of_states, of_covariances in ((False, 1e-10, 1e-10), (True, SD**2, SD)):
        plain = by_filter(f, f.init(*start), samples, smooth)
        bank = by_bank(imm, imm.init(*start), samples, smooth)
        np.testing.assert_allclose(bank.x.e, plain.x.e, atol=of_states)
        np.testing.assert_allclose(bank.x.w, plain.x.w, atol=10 * of_states)  # some rad/s for each rad
        P, P0 = (p.factor @ np.swapaxes(p.factor, 1, 2) for p in (bank, plain))
        np.testing.assert_allclose(P, P0, atol=of_covariances * np.max(P0))
        np.testing.assert_allclose(bank.innovation.whitened, plain.innovation.whitened, atol=1e-10)
        np.testing.assert_array_equal(bank.probability, 1.0)


@pytest.mark.slow  # compiles a bank and its smoother
def test_equal_modes_keep_their_probabilities(folder: Path):
    """The first ones are those of the chain in the long run, which no reading changes."""
    found, plain = (filter_recordings(study(folder, *s)) for s in (("same", SAME), ("plain", {"parameters": "held"})))
    np.testing.assert_allclose(found.states["run/probability/one"], 0.25, atol=1e-10)
    for key in ("position", "position_sd", "rate"):
        np.testing.assert_allclose(found.states[f"run/{key}/pin"], plain.states[f"run/{key}/pin"], atol=1e-10)
    assert found.content["log_likelihood"] == pytest.approx(plain.content["log_likelihood"], abs=1e-8)


@pytest.mark.slow  # compiles a bank and its smoother
def test_a_gate_keeps_a_jump_of_the_sensor_from_the_modes(folder: Path, filtered: Tracking):
    angle, at = np.loadtxt(folder / "run.csv", delimiter=",", skiprows=1)[:, 2], 100
    write_csv(folder / "jumped.csv", angle + np.where(np.arange(STEPS) == at, 500 * SD, 0.0), TIME, DRIVE)
    text = yaml.safe_load(study(folder, "gated", MODES | {"gate": 1e-9}).read_text())
    text["recordings"][0] |= {"file": "jumped.csv", "name": "run"}
    (folder / "gated.yaml").write_text(yaml.safe_dump(text))
    found = filter_recordings(folder / "gated.yaml")
    assert found.content["runs"]["run"]["refused"] == 1
    key = "run/probability/loaded"
    apart = np.abs(found.states[key] - filtered.states[key])
    assert np.max(apart[at + 20 :]) < 0.05


@pytest.mark.slow  # parameters as states are another program
def test_modes_beside_a_parameter(folder: Path, decided: int):
    found = smooth_recordings(study(folder, "estimated", MODES | {"parameters": "estimated"}))
    gain = found.parameters[GAIN]
    assert abs(gain["value"] - 0.5) < 3 * gain["sd"] < 0.03
    loaded = found.states["run/probability/loaded"]
    assert np.all(loaded[TAKEN_UP + decided : TAKEN_UP + 3 * decided] > 0.9)


@pytest.mark.slow  # compiles a bank and its smoother
def test_a_mode_may_set_a_parameter_that_is_held(folder: Path, filtered: Tracking):
    """The same modes, the mass being an unknown of the study."""
    found = filter_recordings(study(folder, "unknown", MODES, **{MASS: {"start": 1.0}}))
    key = "run/probability/loaded"
    np.testing.assert_allclose(found.states[key], filtered.states[key], atol=1e-9)


@pytest.mark.slow  # compiles a bank and its smoother
def test_shell(folder: Path, tmp_path: Path):
    result = run("smooth", study(folder, "shell", MODES), "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "at the end loaded" in result.stdout
    page = (tmp_path / "out/tracking.html").read_text(encoding="utf-8")
    for text in ('id="run-0-modes"', '"name":"loaded"', '"stackgroup":"shares"', MASS, "loaded from 1."):
        assert text in page
    content = json.loads((tmp_path / "out/tracking.json").read_text())
    assert content["modes"]["loaded"] == {"set": {MASS: 1.2}, "dwell_time": DWELL, "initial": 0.5}
    with np.load(tmp_path / "out/states.npz") as states:
        assert states["run/mode"][-1] == "loaded"


def test_transitions_do_not_depend_on_the_step():
    given = {"modes": {"a": {}, "b": {}, "c": {}}, "switching": {"dwell_time": {"a": 0.5, "b": 2.0, "c": 9.0}}}
    settings = Recursive.model_validate(given)
    whole, half = transition(settings, 0.02), transition(settings, 0.01)
    np.testing.assert_allclose(half @ half, whole, rtol=1e-13)
    np.testing.assert_allclose(transition(settings, 1e-7)[0], [1 - 2e-7, 1e-7, 1e-7], rtol=1e-6)
    np.testing.assert_allclose(first_probability(settings), 1 / 3)
    two = Recursive.model_validate({"modes": {"a": {}, "b": {}}, "switching": {"dwell_time": 2.0}})
    stays = (1 + np.exp(-2 * 0.3 / 2.0)) / 2
    np.testing.assert_allclose(transition(two, 0.3), [[stays, 1 - stays], [1 - stays, stays]], rtol=1e-13)


def test_a_change_is_told_when_it_is_sure():
    p = np.array([0.5, 0.2, 0.05, 0.6, 0.3, 0.95, 0.92, 0.4, 0.01])
    found = changes(["a", "b"], np.arange(9.0), np.column_stack([p, 1 - p]))
    assert found == [{"time": 2.0, "mode": "b"}, {"time": 5.0, "mode": "a"}, {"time": 8.0, "mode": "b"}]


@pytest.mark.parametrize(
    ("recursive", "place", "cure"),
    [
        ({"modes": {"free": {}}}, "recursive.modes: needs two modes or more, got 1", "Write at least two"),
        ({"switching": None}, "recursive.modes: nothing says how", "Add `switching"),
        ({"modes": None}, "recursive.switching: there are no `modes`", "Add them"),
        ({"rule": "ensemble"}, "recursive.rule: modes are told apart by the likelihood", "Write extended"),
        ({"parameters": "estimated", "modes": {"a": {}, "b": {"set": {GAIN: 1.0}}}},
         f"recursive.modes.b.set.{GAIN}: is one of the study's parameters", "Write `parameters: held`"),
        ({"modes": {"a": {}, "b": {"set": {"bodies.bob.mas": 1.0}}}},
         "recursive.modes.b.set.bodies.bob.mas: the scene has no such number", "Nearest: bodies.bob.mass"),
        ({"modes": {"a": {}, "b": {"set": {MASS: -1.0}}}}, "recursive.modes.b.set: no possible scene", ""),
        ({"switching": {"dwell_time": 0}}, "recursive.switching.dwell_time: must be > 0", ""),
        ({"switching": {"dwell_time": {"free": 1.0, "loaded": -1.0}}}, "dwell_time.loaded: must be > 0", ""),
        ({"switching": {"dwell_time": {"free": 1.0, "laoded": 1.0, "loaded": 1.0}}},
         "dwell_time.laoded: there is no mode 'laoded'", "Did you mean `loaded`"),
        ({"switching": {"dwell_time": {"free": 1.0}}},
         "recursive.switching.dwell_time: the mode 'loaded' has no number here", "Add a line"),
        ({"switching": {"dwell_time": 1.0, "initial": {"free": 0.5, "loaded": 0.4}}},
         "recursive.switching.initial: the probabilities must sum to 1, got 0.9", "Change one"),
        ({"switching": {"dwell_time": 1.0, "initial": {"free": 2.0, "loaded": -1.0}}}, "initial.loaded: must be", ""),
    ],
    ids=str,
)  # fmt: skip
def test_mistakes_are_named(folder: Path, recursive: dict[str, Any], place: str, cure: str):
    given = {key: value for key, value in (MODES | recursive).items() if value is not None}
    path = study(folder, "bad", given)
    message = refused("filter", path, "--out", folder / "none")
    assert place in message
    assert cure in message
    (problem,) = message.strip().splitlines()
    line = int(problem.removeprefix(f"{path}:").partition(":")[0])
    assert path.read_text().splitlines()[line - 1].strip().partition(":")[0] in place


def test_a_mode_twice_is_refused(folder: Path):
    path = study(folder, "twice", MODES)
    path.write_text(path.read_text().replace("    free: {}\n", "    free: {}\n    loaded: {}\n"))
    assert "loaded" in refused("filter", path, "--out", folder / "none")
    assert read_study(study(folder, "once", MODES)).recursive.modes["loaded"].set == {MASS: 1.2}
