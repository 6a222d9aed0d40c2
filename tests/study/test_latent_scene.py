"""Unknown friction at joints of a scene: its linear model against the textbook's, files, and two contacts at once."""

import json
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.interpolate
from typer.testing import CliRunner

import spookax as sx
from spookax.cli import app
from spookax.models import second_order
from spookax.scene import read_scene
from spookax.study.file.read import StudyError
from spookax.study.latent.known import known_of
from spookax.study.latent.laws import SceneLaw
from spookax.study.latent.mechanism import Mechanism, Oscillator
from spookax.study.latent.of_scene import OfScene
from spookax.study.latent.record import read_latent, read_records
from spookax.study.latent.switching_model import Data, force_of_regimes, scales_of

DEMO = Path(__file__).parents[2] / "demo/friction"
SLEDGES = (DEMO / "sledges_study.yaml").read_text(encoding="utf-8")
PENDULUM = """
spookax: 1
name: pendulum
step: 0.001
initial: {pin: {position: 0.5}}
bodies: {rod: {mass: 2.0, com: [0, 0, -0.3], inertia: [0.05, 0.05, 0.01]}}
joints: {pin: {type: hinge, child: rod, axis: [0, 1, 0], friction: {viscous: 0.1, coulomb: 0.3}}}
motors: {drive: {type: torque, joint: pin, gain: 2.0}}
sensors:
  angle: {type: joint_position, joint: pin, offset: 0.02, sd: 1.0e-4}
  rate: {type: joint_rate, joint: pin, sd: 1.0e-2}
"""


@pytest.fixture
def sledges(tmp_path):
    """The demo's study in another folder, with something else in its files."""

    def write(old: str = "", new: str = "", scene: tuple[str, str] = ("", "")) -> Path:
        text = (DEMO / "sledges.yaml").read_text(encoding="utf-8")
        (tmp_path / "sledges.yaml").write_text(text.replace(*scene), encoding="utf-8")
        (tmp_path / "sledges.csv").write_text((DEMO / "sledges.csv").read_text(encoding="utf-8"), encoding="utf-8")
        assert old in SLEDGES
        (tmp_path / "study.yaml").write_text(SLEDGES.replace(old, new), encoding="utf-8")
        return tmp_path / "study.yaml"

    return write


def same(one, other) -> None:
    for name in ("F", "E", "C", "L", "slip"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-8, atol=1e-8, err_msg=name)
    inputs = other.B.shape[1]
    np.testing.assert_allclose(one.B[:, :inputs], other.B, rtol=1e-8, atol=1e-8)


def test_one_joint_is_the_oscillator():
    """The scene of the demo and the numbers that its study says: two roads to one model, but for what is written of
    the joint's dry friction, which takes no part."""
    known = OfScene(read_scene(DEMO / "oscillator.yaml"), ["slide"], ["displacement"], ["load"])
    linear = known.linear()
    same(linear, Oscillator(Mechanism(2.0, 4.0, 900.0)).linear())
    np.testing.assert_allclose(linear.B[:, 1], 0.0, atol=1e-12)  # nothing pulls at the point
    assert known.setting(3) == Oscillator(Mechanism(2.0, 4.0, 900.0)).setting(3)


def test_two_joints_are_the_textbooks_chain():
    """Coordinates of the joints: the second one's is relative to the first body."""
    known = OfScene(read_scene(DEMO / "sledges.yaml"), ["ground", "deck"], ["lower", "upper"], ["push", "pull"])
    T = np.array([[1.0, 0.0], [1.0, 1.0]])  # places of the bodies
    M, C, K = T.T @ np.diag([1.0, 0.8]) @ T, np.diag([2.0, 1.0]), np.diag([600.0, 300.0])
    same(known.linear(), second_order(M, C, K, np.eye(2), np.eye(2), [("displacement", 0), ("displacement", 1)]))
    assert [contact.units["force"] for contact in known.contacts] == ["N", "N"]


def test_a_pendulum_is_linear_about_where_it_starts(tmp_path):
    """m g l of its weight there, as stiffness and as a load; an offset of its sensor; how far it bends."""
    (tmp_path / "pendulum.yaml").write_text(PENDULUM, encoding="utf-8")
    known = OfScene(read_scene(tmp_path / "pendulum.yaml"), ["pin"], ["angle", "rate"], ["drive"])
    linear, inertia, weight = known.linear(), 0.05 + 2.0 * 0.3**2, 2.0 * 9.81 * 0.3
    np.testing.assert_allclose(linear.F, [[0, 1], [-weight * np.cos(0.5) / inertia, -0.1 / inertia]], rtol=1e-4)
    np.testing.assert_allclose(linear.B[1], [2.0 / inertia, -weight * np.sin(0.5) / inertia], rtol=1e-4)
    np.testing.assert_allclose(linear.E[1], [-1.0 / inertia], rtol=1e-6)
    assert known.contacts[0].units == {"displacement": "rad", "velocity": "rad/s", "force": "N m"}
    assert [reading.unit for reading in known.readings] == ["rad", "rad/s"]
    rows = "\n".join(f"{0.01 * k},1,{0.52 + 0.1 * np.sin(k)},{np.cos(k)}" for k in range(60))
    (tmp_path / "run.csv").write_text(f"t [s],u [V],a [rad],w [rad/s]\n{rows}\n", encoding="utf-8")
    study = tmp_path / "study.yaml"
    study.write_text(
        """
spookax: 1
scene: pendulum.yaml
recordings: [{file: run.csv, time: t, inputs: {drive: u}, sensors: {angle: a, rate: w}}]
latent: {joints: [pin]}
""",
        encoding="utf-8",
    )
    [record] = read_records(read_latent(study), scene=known.given)
    seen = known.seen(record)
    np.testing.assert_allclose(seen.y[:, 0], 0.1 * np.sin(np.arange(60)), atol=1e-12)
    np.testing.assert_allclose(seen.u, np.ones((60, 2)))
    swing = np.column_stack([np.linspace(-0.6, 0.6, 60), np.zeros(60), np.full(60, 0.2)])
    angle = swing[:, 0]
    left = weight * (np.sin(0.5) + np.cos(0.5) * angle - np.sin(0.5 + angle))
    np.testing.assert_allclose(known.bend(swing, seen), np.sqrt(np.mean(left**2)), rtol=1e-4)
    law = SceneLaw(0.4, 0.1, 0.02, 1.5, 0.05, 0.0)
    scene = known.scene("found", [law], 0.1, np.array([0.6, 0.1]))
    friction = scene.joints["pin"].friction
    assert (friction.coulomb, friction.viscous, friction.stribeck.excess) == (0.4, pytest.approx(0.15), 0.1)
    assert scene.step == 0.001  # that of the file, which is short enough
    assert scene.initial["pin"].position == 0.6


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("joints: [ground, deck]", "joints: [ground, dec]", "the scene has no joint 'dec'"),
        ("joints: [ground, deck]", "joints: [ground, ground]", "a joint is named twice"),
        ("joints: [ground, deck]", "mass: 1.0", "the scene says it already"),
        ("joints: [ground, deck]", "joints: [ground, deck]\n  correct: [mass]", "the scene has no number 'mass'"),
        (
            "joints: [ground, deck]",
            "joints: [ground, deck]\n  correct: [joints.deck.friction.coulomb]",
            "dry friction is what is sought",
        ),
        ("joints: [ground, deck]", "joints: [ground, deck]\n  correct: [tilt.x]", "has no effect on the accelerations"),
        ("joints: [ground, deck]", "joints: [ground, deck]\n  bases: [push]", "'push' is no spring to a base"),
        ("joints: [ground, deck]", "joints: [ground, deck]\n  bases: [pus]", "no recording has an input 'pus'"),
        ("joints: [ground, deck]", "joints: [ground, deck]\n  noise: 1.0e-6", "one number for the noise of several"),
        ("joints: [ground, deck]", "components: 3", "no joint is named"),
        ("scene: sledges.yaml\n", "", "joints are those of a scene, and none is named"),
        ("pull: pull", "pul: pull", "the scene has no motor 'pul'"),
        ("lower: lower, upper: upper", "lower: lower", "no sensor reads the position of deck"),
        ("inputs: {push: push, pull: pull}, ", "", "a recording needs inputs"),
    ],
)
def test_mistakes_in_the_study_are_told(sledges, old, new, said):
    path = sledges(old, new)
    told = CliRunner().invoke(app, ["check", str(path)])
    assert told.exit_code == 2
    assert said in re.sub(r"\s+", " ", told.output)


@pytest.mark.parametrize(
    ("scene", "said"),
    [
        (("viscous: 1.0, coulomb: 0.7", "viscous: 1.0, elements: [{stiffness: 5, reach: 0.1}]"), None),
        (("joint: deck, gain: 1.0", "joint: deck, gain: 1.0, delay: 0.01"), "a motor has a delay"),
        (("joint: deck, sd: 5.0e-6", "joint: deck, sd: 5.0e-6, delay: 0.01"), "has a delay or a cyclic error"),
        (("child: upper", "child: upper\n    limits: {lower: -0.1, upper: 0.1}"), "a stop"),
    ],
)
def test_scenes_that_are_not_linear_are_told(sledges, scene, said):
    """Whatever dry friction the scene says of a joint that is sought is left out."""
    path = sledges(scene=scene)
    if said is None:
        assert known_of(read_latent(path)).linear().E.shape == (4, 2)
        return
    with pytest.raises(StudyError, match=said):
        known_of(read_latent(path))


def test_numbers_that_no_contact_tells_are_told(sledges):
    """The upper sledge's mass acts on a joint whose friction is not sought, the lower one's spring does not."""
    smooth = "viscous: 1.0, coulomb: 0.7", "viscous: 1.0"
    for path, said in (("bodies.upper.mass", "acts on deck"), ("joints.ground.spring.stiffness", None)):
        study = read_latent(sledges("joints: [ground, deck]", f"joints: [ground]\n  correct: [{path}]", smooth))
        if said is None:
            assert list(known_of(study).numbers) == [path]
            continue
        with pytest.raises(StudyError, match=said):
            known_of(study)


def test_dry_friction_that_is_not_sought_is_told(sledges):
    path = sledges("joints: [ground, deck]", "joints: [ground]")
    with pytest.raises(StudyError, match="'deck' has dry friction"):
        known_of(read_latent(path))


def sledges_truth() -> np.ndarray:
    """Friction of both joints at the samples, from the motion of the simulation that made the demo's record [N]."""
    system, params, state = sx.load(DEMO / "sledges.yaml")
    time, *loads = np.genfromtxt(DEMO / "sledges.csv", delimiter=",", skip_header=1).T[:3]
    h, steps = float(params.step), round(time[-1] / float(params.step))
    middle, ends = (np.arange(steps) + 0.5) * h, np.arange(steps + 1) * h
    between = scipy.interpolate.CubicSpline(time, np.column_stack(loads))
    found = sx.rollout(system, params, state, jnp.asarray(between(middle)))
    z, v = np.asarray(found.position), np.asarray(found.rate)
    T = np.array([[1.0, 0.0], [1.0, 1.0]])
    forces = (
        between(ends) - v * [2.0, 1.0] - z * [600.0, 300.0] - np.gradient(v, h, axis=0) @ T.T @ np.diag([1.0, 0.8]) @ T
    )
    return forces[:: round((time[1] - time[0]) / h)]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_scene_and_the_numbers_of_its_oscillator_find_one_force():
    """The demo's record by both, at the same hyperparameters."""
    study = read_latent(DEMO / "study.yaml")
    by_numbers = known_of(study)
    scene = OfScene(read_scene(DEMO / "oscillator.yaml"), ["slide"], ["displacement"], ["load"])
    [record] = read_records(study)
    forces = []
    for known in (by_numbers, scene):
        linear, seen, setting = known.linear(), known.seen(record), known.setting(2)
        scales, _ = scales_of(seen, linear, setting)
        log = jnp.log(jnp.array([2.0, 2.0 * 0.005 / np.sqrt(0.002), 5e-6, 0.06]))
        forces.append(force_of_regimes(log, linear, Data.of(seen), scales, setting))
    np.testing.assert_allclose(forces[0].x[:, 2], forces[1].x[:, 2], atol=1e-5 * np.max(np.abs(forces[0].x[:, 2])))
    assert abs(forces[0].evidence - forces[1].evidence) < 1e-3


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_two_contacts_through_the_shell(tmp_path):
    """Both forces, when each sticks, laws and a scene with them, which predicts the readings."""
    out = tmp_path / "out"
    told = CliRunner().invoke(app, ["latent", str(DEMO / "sledges_study.yaml"), "--out", str(out), "--quiet"])
    assert told.exit_code == 0, told.output
    content = json.loads((out / "latent.json").read_text(encoding="utf-8"))
    force = np.genfromtxt(out / "sledges_force.csv", delimiter=",", names=True)
    truth = sledges_truth()
    for number, (name, level) in enumerate((("ground", 1.0), ("deck", 0.7))):
        contact = content["contacts"][name]
        assert f"{name} law: {contact['law']['kind']}" in told.output
        assert contact["law"]["in_scene"]["coulomb"] == pytest.approx(level, rel=0.1)
        v, f = force[f"{name}_velocity_ms"], force[f"{name}_force_N"]
        assert 100 * np.mean((f - truth[:, number]) ** 2) / np.var(truth[:, number]) < 1.95  # the source's, one contact
        fast = np.abs(v) > 0.05
        assert np.mean(np.abs(f[fast] * np.sign(v[fast]) - level) < 1.645 * force[f"{name}_force_sd_N"][fast]) > 0.8
        assert 0.0 < content["runs"]["sledges"]["contacts"][name]["sticking"] < 0.2
        assert content["mechanism"]["linearisation"][name] < 1e-6
    assert content["runs"]["sledges"]["prediction_nmse"] < 1.0
    for name in ("ground_law", "deck_law", "sledges_ground_force", "sledges_deck_regimes", "sledges_upper_prediction"):
        assert (out / f"{name}.svg").stat().st_size > 1000
    driven = ["--input", str(out / "sledges_load.csv"), "--motor", "push=push", "--motor", "pull=pull"]
    done = CliRunner().invoke(app, ["simulate", str(out), *driven, "--out", str(tmp_path / "again.csv")])
    assert done.exit_code == 0, done.output
