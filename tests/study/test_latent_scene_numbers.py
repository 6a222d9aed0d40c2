"""Unknown friction at joints of a scene whose numbers are guesses, or whose base moves."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from spookax.cli import app
from spookax.models import jonswap, multisine
from spookax.scene import read_scene, with_numbers
from spookax.study.latent.correction import correction
from spookax.study.latent.mechanism import Mechanism, Oscillator
from spookax.study.latent.of_scene import OfScene
from spookax.study.latent.record import Record
from spookax.study.latent.run import pull_on, without_zeros
from spookax.study.latent.scene_correction import scene_correction
from spookax.study.latent.switching_model import Force

DEMO = Path(__file__).parents[2] / "demo/friction"
H = 0.002
FRAME = """
spookax: 1
name: frame
step: 0.0005
bodies: {plate: {mass: 3.0, inertia: [0.01, 0.01, 0.01]}}
joints: {slide: {type: prismatic, child: plate, axis: [1, 0, 0]}}
motors: {legs: {type: position, joint: slide, stiffness: 1200.0, damping: 4.0}}
sensors: {top: {type: joint_position, joint: slide, sd: 1.0e-5}}
"""
STUDY = """
spookax: 1
scene: frame.yaml
recordings: [{file: run.csv, time: t, inputs: {legs: base}, sensors: {top: z}}]
latent: {joints: [slide], bases: [legs], correct: [motors.legs.stiffness], law: coulomb}
"""


def moves(count: int, rng) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Smooth coordinates of some joints with rates and accelerations."""
    omega = 0.5 * np.arange(1, 61)
    time = H * np.arange(3000)
    z = np.stack([multisine(time, omega, jonswap(omega, period=0.6), rng) * 1e-3 for _ in range(count)], axis=1)
    v = np.gradient(z, H, axis=0)
    return z, v, np.gradient(v, H, axis=0)


def sliding(*columns: np.ndarray, contacts: int) -> Force:
    """Forces of contacts that slide all the time, known exactly."""
    x = np.column_stack(columns)
    p = np.zeros((len(x), 3**contacts))
    p[:, 0] = 1.0
    return Force(x[10:-10], np.full_like(x, 1e-12)[10:-10], p[10:-10], 0.0)


def record(y: np.ndarray, u: np.ndarray) -> Record:
    time = H * np.arange(len(y) - 20)
    return Record("run", time, H, y[10:-10], u[10:-10], ("a",) * y.shape[1], "")


def test_wrong_numbers_of_two_contacts_are_corrected(rng):
    """Forces at the sledges with what wrong masses, springs, dampers and a wrong motor leave in them."""
    true = {
        "bodies.lower.mass": 1.0,
        "bodies.upper.mass": 0.8,
        "joints.ground.spring.stiffness": 600.0,
        "joints.deck.spring.stiffness": 300.0,
        "joints.ground.friction.viscous": 2.0,
        "motors.pull.gain": 1.0,
    }
    wrong = dict(zip(true, (1.3, 0.7, 690.0, 250.0, 0.5, 1.2), strict=True))
    z, v, a = moves(2, rng)
    T = np.array([[1.0, 0.0], [1.0, 1.0]])

    def held(n: dict[str, float]) -> np.ndarray:
        """What all but loads and friction does to the joints."""
        m1, m2, k1, k2, c1, _ = n.values()
        return a @ (T.T @ np.diag([m1, m2]) @ T) + v * [c1, 1.0] + z * [k1, k2]

    load = held(true) + np.sign(v) * [1.0, 0.7]
    found = np.array([1.0, wrong["motors.pull.gain"]]) * load - held(wrong)
    known = OfScene(
        with_numbers(read_scene(DEMO / "sledges.yaml"), wrong),
        ["ground", "deck"],
        ["lower", "upper"],
        ["push", "pull"],
        guesses=tuple(true),
    )
    seen = known.seen(record(z, load))
    fix = scene_correction([seen], [sliding(z, v, found, contacts=2)], known)
    for path, value in true.items():
        np.testing.assert_allclose(wrong[path] + fix.change[path], value, rtol=1e-6, err_msg=path)
        assert known.with_changes(fix.change).numbers[path][0] == pytest.approx(value, rel=1e-6)
    none = OfScene(read_scene(DEMO / "sledges.yaml"), ["ground", "deck"], ["lower", "upper"], ["push", "pull"])
    untouched = scene_correction([none.seen(record(z, load))], [sliding(z, v, found, contacts=2)], none)
    assert (untouched.change, untouched.zeros) == ({}, ())


def test_a_base_in_a_scene_is_that_of_the_oscillator(tmp_path, rng):
    """A motor that holds a position stands for spring and damper to a base: one linear model, one load of the engine,
    and one correction, with the zero of the base's sensor."""
    (tmp_path / "frame.yaml").write_text(FRAME, encoding="utf-8")
    guesses = ["motors.legs.damping", "motors.legs.stiffness"]
    scene = OfScene(read_scene(tmp_path / "frame.yaml"), ["slide"], ["top"], ["legs"], ["legs"], guesses)
    numbers = Oscillator(Mechanism(3.0, 4.0, 1200.0), base=True)
    one, other = scene.linear(), numbers.linear()
    for name in ("F", "E", "C", "L", "slip"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-8, atol=1e-8, err_msg=name)
    np.testing.assert_allclose(one.B[:, :2], other.B, rtol=1e-8, atol=1e-8)
    (z, v, a), (b, rate, _) = moves(1, rng), moves(1, rng)
    friction = 1.5 * np.sign(v)
    # a truth of 1000 N/m and 6 N s/m, in which a base reads 0.2 mm too much
    load = 3.0 * a + 6.0 * v + 1000.0 * z + friction
    b = b - np.mean(b) + 2e-4
    rate = (load - 1000.0 * (b - 2e-4)) / 6.0  # whatever it takes
    found = 1200.0 * (b - z) + 4.0 * (rate - v) - 3.0 * a
    whole = sliding(z, v, found, contacts=1)
    by_numbers = record(z, np.column_stack([b, rate]))
    by_scene = record(z, np.column_stack([b, rate, np.ones(len(z))]))
    fix = scene_correction([by_scene], [whole], scene)
    np.testing.assert_allclose(fix.change["motors.legs.stiffness"], -200.0, rtol=1e-6)
    np.testing.assert_allclose(fix.change["motors.legs.damping"], 2.0, rtol=1e-6)
    at = np.arange(len(whole.x))
    same = correction([by_numbers], [whole], [at], [at], numbers.m, ["damping", "stiffness"], base=True)
    np.testing.assert_allclose(list(fix.change.values()), list(same.change.values()), rtol=1e-5)
    np.testing.assert_allclose(fix.zeros, same.zeros, rtol=1e-5)
    np.testing.assert_allclose(
        scene.loads(scene.from_zeros(by_scene, fix.zeros))[:, 0],
        numbers.loads(numbers.from_zeros(by_numbers, fix.zeros))[:, 0] / 1200.0,
        rtol=1e-9,
    )
    for known, seen in ((scene, by_scene), (numbers, by_numbers)):  # the zero adds a constant force and as much pull
        force, moved = without_zeros(whole, known, seen, fix), known.from_zeros(seen, fix.zeros)
        np.testing.assert_allclose(whole.x[:, 2] - force.x[:, 2], 1200.0 * fix.zeros[0], rtol=1e-6)
        left = [pull_on(0, known.linear(), r.u, f.x)[1] - f.x[:, 2] for r, f in ((seen, whole), (moved, force))]
        np.testing.assert_allclose(*left, atol=1e-8)


def shaken(count: int, rng) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Time, displacement of a base, and of the plate on it, which rubs on the world with 1.5 N; legs of 1000 N/m."""
    fine, omega = 20, 0.1 * np.arange(1, 601)
    density = jonswap(omega, period=0.4)
    density *= 4e-3**2 / (np.sum(density) * 0.1)
    seed = int(rng.integers(2**31))
    b = multisine(H / fine * (np.arange(count * fine) + 0.5), omega, density, np.random.default_rng(seed))
    force = 1000.0 * b + 4.0 * np.gradient(b, H / fine)
    z, v, places, h = 0.0, 0.0, [], H / fine
    for i, push in enumerate(force):
        if i % fine == 0:
            places.append(z)
        z += h / 2 * v
        free = v + h / 3.0 * (push - 4.0 * v - 1000.0 * z)
        v = free - h / 3.0 * np.clip(free * 3.0 / h, -1.5, 1.5)
        z += h / 2 * v
    time = H * np.arange(count)
    return time, multisine(time, omega, density, np.random.default_rng(seed)), np.array(places)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_base_and_a_wrong_stiffness_through_the_shell(tmp_path, rng):
    """Given 1200 N/m in place of 1000: the stiffness, the level of the friction, and a scene that predicts."""
    time, base, z = shaken(1000, rng)
    rows = np.column_stack([time, base + 5e-6 * rng.normal(size=1000), z + 5e-6 * rng.normal(size=1000)])
    text = "t [s],base [m],z [m]\n" + "\n".join(",".join(f"{x:.9f}" for x in row) for row in rows) + "\n"
    (tmp_path / "run.csv").write_text(text, encoding="utf-8")
    (tmp_path / "frame.yaml").write_text(FRAME, encoding="utf-8")
    (tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")
    out = tmp_path / "out"
    told = CliRunner().invoke(app, ["latent", str(tmp_path / "study.yaml"), "--out", str(out), "--quiet"])
    assert told.exit_code == 0, told.output
    content = json.loads((out / "latent.json").read_text(encoding="utf-8"))
    stiffness = content["mechanism"]["numbers"]["motors.legs.stiffness"]
    assert (stiffness["given"], stiffness["unit"]) == (1200.0, "N/m")
    assert stiffness["used"] == pytest.approx(1000.0, abs=4 * stiffness["sd"] + 5.0)
    law = content["contacts"]["slide"]["law"]
    assert law["parameters"]["force"] == pytest.approx(1.5, abs=4 * law["sd"]["force"] + 0.02)
    assert content["runs"]["run"]["prediction_nmse"] < 1.0
    assert re.search(r"motors.legs.stiffness: given 1200, corrected to (9\d\d|10\d\d)", told.output)
    assert "motors.legs.stiffness" in (out / "latent.html").read_text(encoding="utf-8")
    legs = read_scene(out / "scene.yaml").model_dump()["motors"]["legs"]
    assert legs["stiffness"] == pytest.approx(stiffness["used"])
    driven = ["--input", str(out / "run_load.csv"), "--motor", "legs=legs"]
    done = CliRunner().invoke(app, ["simulate", str(out), *driven, "--out", str(tmp_path / "again.csv")])
    assert done.exit_code == 0, done.output
    again = np.genfromtxt(tmp_path / "again.csv", delimiter=",", skip_header=1)
    with np.load(out / "states.npz") as states:
        np.testing.assert_allclose(again[::4, 2], states["run/top/predicted"], atol=1e-9)
