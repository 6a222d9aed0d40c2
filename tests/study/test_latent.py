"""Studies of an unknown friction force: files, laws, corrections, and the whole chain through the shell."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from spookax.cli import app
from spookax.models import jonswap, multisine
from spookax.report.charts import band_chart, share_chart
from spookax.report.svg import svg
from spookax.scene import FileError
from spookax.study.file.read import StudyError, read_study
from spookax.study.latent import laws
from spookax.study.latent.base import base_motion
from spookax.study.latent.correction import correction
from spookax.study.latent.evidence import laplace, maximum
from spookax.study.latent.mechanism import Mechanism
from spookax.study.latent.outcome import stops_of
from spookax.study.latent.record import Record, read_latent, read_records
from spookax.study.latent.sliding import Points
from spookax.study.latent.static import Read, Slip, static_friction, static_of
from spookax.study.latent.switching_model import Force

ROOT = Path(__file__).parents[2]
STUDY = """
spookax: 1
recordings:
  - {file: run.csv, time: t, inputs: {force: u}, sensors: {displacement: y}}
latent: {mass: 1.0, damping: 5.0, stiffness: 500.0}
"""


@pytest.fixture
def written(tmp_path):
    def write(text: str = STUDY, time: np.ndarray | None = None, header: str = "t [s],u [N],y [m]") -> Path:
        time = 0.01 * np.arange(60) if time is None else time
        rows = "\n".join(f"{t:.6f},{np.sin(t):.6f},{np.cos(t):.6f}" for t in time)
        (tmp_path / "run.csv").write_text(f"{header}\n{rows}\n", encoding="utf-8")
        (tmp_path / "study.yaml").write_text(text, encoding="utf-8")
        return tmp_path / "study.yaml"

    return write


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("mass: 1.0", "mass: -1.0", 5, "latent.mass"),
        ("mass: 1.0", "weight: 1.0", 5, "latent.weight"),
        ("stiffness: 500.0", "stiffness: 500.0, components: 12", 5, "latent.components"),
        ("stiffness: 500.0", "stiffness: 500.0, law: hooke", 5, "latent.law"),
        ("stiffness: 500.0", "stiffness: 500.0, correct: [stifness]", 5, "must be one of mass, damping, stiffness"),
        ("stiffness: 500.0", "stiffness: 500.0, bases: [legs]", 5, "bases are those of a scene"),
        ("displacement: y", "position: y", 4, "recordings[0].sensors.position"),
        ("force: u", "voltage: u", 4, "recordings[0].inputs.voltage"),
        ("inputs: {force: u}, ", "", 4, "must name one of force or base"),
    ],
)
def test_mistakes_are_told_with_line_and_path(written, old, new, line, said):
    path = written(STUDY.replace(old, new))
    with pytest.raises(StudyError, match=re.escape(f"{path}:{line}: ")) as refused:
        read_latent(path)
    assert said in str(refused.value)


def test_a_base_does_not_tell_the_mass(written):
    text = STUDY.replace("force: u", "base: u").replace("500.0}", "500.0, correct: [mass]}")
    with pytest.raises(StudyError, match="never the mass itself"):
        read_latent(written(text))


def test_the_other_kinds_of_studies_are_told_apart(written):
    with pytest.raises(StudyError, match=r"unknown force.*spookax latent"):
        read_study(written())
    with pytest.raises(StudyError, match="latent"):
        read_latent(ROOT / "demo/furuta_study.yaml")


def test_check_reads_it_with_its_recordings(written):
    told = CliRunner().invoke(app, ["check", str(written())])
    assert told.exit_code == 0
    assert "study of an unknown force, 1 recording with 60 samples" in told.output
    told = CliRunner().invoke(app, ["check", str(written(header="t [s],u [m],y [m]"))])
    assert told.exit_code == 2
    assert "must be a force" in told.output


def test_a_gap_in_equal_steps_is_missing_readings(written):
    path = written(time=np.delete(0.01 * np.arange(60), [20, 21]))
    [record] = read_records(read_latent(path))
    assert record.even
    assert len(record.y) == 60
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(record.y[:, 0])), [20, 21])
    np.testing.assert_allclose(record.u[:, 0], np.sin(record.time), atol=2e-4)
    assert "59 steps of 0.01 s, 2 without a reading" in CliRunner().invoke(app, ["check", str(path)]).output


def test_a_gap_in_which_the_load_is_not_known_is_refused(written):
    """A straight line over ten seconds is no sine; two windows are."""
    time = np.delete(0.01 * np.arange(3000), np.arange(1000, 2000))
    with pytest.raises(
        FileError, match=r"the force is not known between 9\.99 and 20 s.*off a straight line by 0\.7"
    ) as e:
        read_records(read_latent(written(time=time)))
    windows = re.search(r"windows: [\[\]., 0-9]+", str(e.value))
    assert windows
    path = written(STUDY.replace("time: t", f"{windows[0].rstrip(', ')}, time: t"), time=time)
    assert [len(record.y) for record in read_records(read_latent(path))] == [1000, 1000]
    text = (path.parent / "run.csv").read_text().splitlines()
    held = [",".join([row.split(",")[0], "2", row.split(",")[2]]) for row in text[1:]]
    written(time=time)
    (path.parent / "run.csv").write_text("\n".join([text[0], *held]) + "\n", encoding="utf-8")
    [record] = read_records(read_latent(path))  # a load that does not change is known
    assert len(record.y) == 3000


def test_stops_in_a_gap_are_not_told():
    read, sticks = np.ones(100, dtype=bool), np.zeros(100)
    read[30:80] = False
    for a, b in ((5, 8), (28, 60), (70, 79), (85, 90)):
        sticks[a : b + 1] = 0.6
    probability = np.stack([0.9 - sticks, sticks, np.full(100, 0.1)], axis=1)
    assert stops_of(probability, read) == [(5, 8), (85, 90)]


def test_stamps_are_kept_and_long_steps_are_cut(written, rng):
    """Stamps as they come, to a third of a step; a gap of twelve steps has parts no longer than one and a half."""
    time = np.round(0.01 * (np.arange(80) + rng.uniform(-0.33, 0.33, 80)), 6)
    time = np.delete(time, np.arange(30, 41))
    path = written(time=time)
    [record] = read_records(read_latent(path))
    seen = np.isfinite(record.y[:, 0])
    assert not record.even
    np.testing.assert_array_equal(record.time[seen], time)
    np.testing.assert_allclose(record.y[seen, 0], np.cos(time), atol=1e-6)
    np.testing.assert_allclose(record.u[seen, 0], np.sin(time), atol=1e-6)
    assert np.max(np.diff(record.time)) <= 1.5 * np.median(np.diff(time)) + 1e-12
    assert np.sum(~seen) > 5
    lengths, number = record.lengths
    np.testing.assert_array_equal(lengths[number], record.steps)
    assert "s on average, " in CliRunner().invoke(app, ["check", str(path)]).output


def test_a_record_that_is_too_short_is_refused(written):
    with pytest.raises(FileError, match="has 20 samples, and at least 50"):
        read_records(read_latent(written(time=0.01 * np.arange(20))))


def test_a_mass_that_never_moves_is_refused(written):
    path = written()
    (path.parent / "run.csv").write_text("t [s],u [N],y [m]\n" + "".join(f"{0.01 * k},1,2\n" for k in range(60)))
    with pytest.raises(FileError, match="the displacement is the same in every sample"):
        read_records(read_latent(path))


def test_the_schema_is_that_of_the_package():
    command = [sys.executable, "-W", "error", "-m", "spookax.study.schema", "latent"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads((ROOT / "docs/schema/latent.schema.json").read_text(encoding="utf-8")) == json.loads(told)


def test_a_multisine_has_its_spectrum(rng):
    omega = 0.5 * np.arange(1, 81)
    density = jonswap(omega)
    assert omega[np.argmax(density)] == 12.5  # next to 2 pi / 0.5 s
    time = np.arange(4096) * (2 * np.pi / 0.5) / 4096  # a whole period
    load = multisine(time, omega, density, rng)
    np.testing.assert_allclose(np.mean(load**2), np.sum(density) * 0.5, rtol=1e-6)
    power = np.abs(np.fft.rfft(load)[1:81]) ** 2 / 4096**2 * 2 / 0.5
    np.testing.assert_allclose(power[20:40], density[20:40], rtol=1e-6)


@pytest.mark.slow
def test_base_motion_is_that_of_a_smooth_base(rng):
    h, turn = 0.004, 2 * np.pi
    time = h * np.arange(300)
    u = 1.8e-3 * np.sin(turn * time) + 0.5e-3
    record = Record("run", time, h, np.zeros((300, 1)), np.zeros((300, 1)), ("displacement",), "")
    found, _, noise = base_motion(u + 1e-6 * rng.normal(size=300), record)
    inside = slice(25, -25)
    assert noise == pytest.approx(1e-6, rel=0.15)  # 4 standard deviations of 300 readings
    assert np.max(np.abs(found[:, 0] - u)[inside]) < 3e-6
    assert np.max(np.abs(found[:, 1] - 1.8e-3 * turn * np.cos(turn * time))[inside]) < 5e-3 * 1.8e-3 * turn


def points(level, rng) -> Points:
    """Ten phases of sliding of 60 samples, noise of 0.01 N."""
    speed = np.concatenate(
        [0.4 * rng.uniform(0.5, 1.0) * np.sin(np.linspace(0.02, np.pi - 0.02, 60)) for _ in range(10)]
    )
    force = level(speed) + 0.01 * rng.normal(size=600)
    return Points(speed, force, np.full(600, 0.01), np.repeat(np.arange(10), 60))


def test_the_law_that_made_the_points_is_found(rng):
    static = static_of([1.4, 1.41, 1.39], [0.01] * 3, [0.1, 0.2, 0.3])
    made = {
        "coulomb": lambda v: 1.2 + 0 * v,
        "stribeck": lambda v: 1.0 + 0.4 * np.exp(-((v / 0.08) ** 2)) + 0.3 * v,
        "dieterich-ruina": lambda v: 1.0 + 0.02 * np.log((v + 1e-5) / 0.01) + 0.06 * np.log(0.02 + 0.01 / (v + 1e-5)),
    }
    for kind, level in made.items():
        found = points(level, rng)
        best, *_ = laws.fit_laws(laws.KINDS, found, None if kind == "coulomb" else static)
        assert best.kind == kind
        grid = np.linspace(0.05, 0.3, 20)
        np.testing.assert_allclose(best.level(grid), level(grid), atol=0.01)
        in_scene = laws.for_scene(best, found, static)
        level_there = in_scene.coulomb + in_scene.viscous * grid
        level_there = level_there + in_scene.excess * np.exp(-((grid / in_scene.speed) ** in_scene.exponent))
        np.testing.assert_allclose(level_there, best.level(grid), atol=in_scene.off + 1e-3)
        assert kind != "dieterich-ruina" or abs(best.level(np.zeros(1))[0] - static.mean) < 0.1


def broken_away(law, h: float = 0.002) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Time, pull, states: held by 1.5 N, then braked by a law of the speed; the pull grows by 4 N/s. When it breaks
    away.
    """
    mass, damping, stiffness, fine = 0.7, 2.0, 300.0, 200
    z, v, at, rows = 0.0, 0.0, np.nan, []
    for i in range(300 * fine):
        time = h / fine * i
        pull = 4.0 * time - stiffness * z
        if i % fine == 0:
            rows.append((time, pull - damping * v, z, v, law(v) if v > 0 else min(pull, 1.5)))
        if v > 0 or pull > 1.5:
            at = time if np.isnan(at) else at
            v += h / fine / mass * (pull - damping * v - law(v))
            z += h / fine * v
    time, pull, *x = np.array(rows[: round(at / h) + 60]).T
    return time, pull, np.stack(x, axis=1), at


LAWS = {  # with the power of the speed by which each falls, down to where sliding is sure
    "at once": (lambda v: 1.5 if v == 0 else 1.2, 0.0),
    "root": (lambda v: max(1.5 - 0.3 * np.sqrt(v / 0.014), 1.2), 0.5),
    "even": (lambda v: max(1.5 - 0.3 * v / 0.014, 1.2), 1.0),
    "flat": (lambda v: 1.5, 1.0),
}


@pytest.mark.parametrize("kind", LAWS)
def test_static_friction_is_what_the_readings_tell(kind, rng):
    """Sticking is believed in for 20 samples too long, in which what would hold the mass goes on growing to 1.66 N."""
    law, power = LAWS[kind]
    time, pull, x, at = broken_away(law)
    late, probability = round(at / 0.002) + 20, np.tile([0.0, 1.0, 0.0], (len(time), 1))
    probability[late:] = [1.0, 0.0, 0.0]
    sd = np.tile([1e-6, 1e-5, 1e-3], (len(time), 1))
    read = Read("displacement", x[:, 0] + 1e-6 * rng.normal(size=len(time)), 1e-6)
    read.y[late - 10] = np.nan
    found = static_friction(time, pull, x, sd, probability, 0.7, read)
    assert found is not None
    assert 4.0 * time[late] > 1.65
    first, last = max(late - 40, 0), late + 5
    own = Read(read.kind, read.y[first : last + 1], read.noise)
    v, level, of = float(x[late, 1]), float(x[late, 2]), slice(first, last + 1)
    slip = Slip(time[of], pull[of], own, 0.7, v, level, 0.05 * level, late - first)
    right = slip.broke_away(power)
    assert abs(right.held - 1.5) < min(3 * right.sd, 0.015)  # a tenth of what the largest force is too high
    assert 4.0 * right.time == pytest.approx(right.held, abs=1e-3)
    assert abs(found.mean - 1.5) < 3 * found.sd
    assert found.sd < 0.1
    assert static_friction(time, pull, x, sd, np.tile([1.0, 0.0, 0.0], (len(time), 1)), 0.7, read) is None
    untold = np.tile([1e-6, 1e-5, 3.0], (len(time), 1))  # as in a gap of the readings
    assert static_friction(time, pull, x, untold, probability, 0.7, read) is None
    other = read._replace(y=read.y + 1e-4 * np.sin(300 * time))  # it does not rest
    assert static_friction(time, pull, x, sd, probability, 0.7, other) is None


def test_a_turn_that_may_have_no_rest_tells_no_static_friction(rng):
    """A mass that turned at once would be read at the same places, to 0.1 mm: 12 samples of sticking tell nothing."""
    time, pull, x, at = broken_away(LAWS["even"][0])
    late, sd = round(at / 0.002) + 6, np.tile([1e-6, 1e-5, 1e-3], (len(time), 1))
    found = {}
    for rest in (12, 150):
        probability = np.tile([1.0, 0.0, 0.0], (len(time), 1))
        probability[late - rest : late] = [0.0, 1.0, 0.0]
        for noise in (1e-6, 1e-4):
            read = Read("displacement", x[:, 0] + noise * rng.normal(size=len(time)), noise)
            found[rest, noise] = static_friction(time, pull, x, sd, probability, 0.7, read)
    assert [key for key, static in found.items() if static is None] == [(12, 1e-4)]


@pytest.mark.parametrize("kind", ["velocity", "acceleration"])
def test_static_friction_by_other_sensors(kind, rng):
    time, pull, x, at = broken_away(LAWS["at once"][0])
    late, probability = round(at / 0.002) + 20, np.tile([0.0, 1.0, 0.0], (len(time), 1))
    probability[late:] = [1.0, 0.0, 0.0]
    sd = np.tile([1e-6, 1e-5, 1e-3], (len(time), 1))
    v = x[:, 1]
    clean = v if kind == "velocity" else np.where(v > 0, (pull - 1.2) / 0.7, 0.0)
    noise = {"velocity": 1e-4, "acceleration": 0.02}[kind]
    read = Read(kind, clean + noise * rng.normal(size=len(time)), noise)
    found = static_friction(time, pull, x, sd, probability, 0.7, read)
    assert found is not None
    assert abs(found.mean - 1.5) < 3 * found.sd < 0.3


def test_wrong_numbers_are_corrected(rng):
    """(28) backwards: a force with what wrong mass, damping and stiffness leave in it, without errors."""
    true, guess = Mechanism(1.0, 5.0, 500.0), Mechanism(1.3, 3.0, 620.0)
    time = 0.002 * np.arange(3000)
    omega = 0.5 * np.arange(1, 61)
    z = multisine(time, omega, jonswap(omega, period=0.6), rng) * 1e-3
    v, a = np.gradient(z, time), np.gradient(np.gradient(z, time), time)
    at = np.arange(10, 2990)
    friction = (1.0 + 0.3 * np.exp(-((v / (0.4 * np.sqrt(np.mean(v[at] ** 2)))) ** 2))) * np.sign(v)
    u = true.mass * a + true.damping * v + true.stiffness * z + friction
    latent = u - guess.mass * a - guess.damping * v - guess.stiffness * z
    phase = np.cumsum(np.diff(np.sign(v[at]), prepend=0) != 0)
    force = Force(np.column_stack([z, v, latent]), np.ones((3000, 3)), np.ones((3000, 3)), 0.0)
    record = Record("run", time, 0.002, z[:, None], u[:, None], ("displacement",), "")
    found = correction([record], [force], [at], [phase], guess, ["mass", "damping", "stiffness"], base=False)
    for name in found.change:
        np.testing.assert_allclose(getattr(guess, name) + found.change[name], getattr(true, name), rtol=1e-6)


def test_a_base_with_wrong_zeros(rng):
    """(37): stiffness and damping of a base, and what a zero of the mass's sensor adds."""
    true, guess, zero = Mechanism(2.0, 4.0, 900.0), Mechanism(2.0, 2.5, 990.0), 3e-5
    time = 0.002 * np.arange(3000)
    omega = 0.5 * np.arange(1, 61)
    z, b = (multisine(time, omega, jonswap(omega, period=0.6), rng) * 1e-4 for _ in range(2))
    (v, rate), a = (np.gradient(q, time) for q in (z, b)), np.gradient(np.gradient(z, time), time)
    friction = true.stiffness * (b - z) + true.damping * (rate - v) - true.mass * a
    z = z + zero
    level = friction - 1.5 * np.sign(v)  # what remains is forced to be none, so that the truth is known
    latent = guess.stiffness * (b - z) + guess.damping * (rate - v) - guess.mass * a - level
    at = np.arange(10, 2990)
    phase = np.cumsum(np.diff(np.sign(v[at]), prepend=0) != 0)
    force = Force(np.column_stack([z, v, latent]), np.ones((3000, 3)), np.ones((3000, 3)), 0.0)
    record = Record("run", time, 0.002, z[:, None], np.column_stack([b, rate]), ("displacement",), "")
    found = correction([record], [force], [at], [phase], guess, ["damping", "stiffness"], base=True)
    np.testing.assert_allclose(guess.stiffness + found.change["stiffness"], true.stiffness, rtol=1e-6)
    np.testing.assert_allclose(guess.damping + found.change["damping"], true.damping, rtol=1e-6)
    np.testing.assert_allclose(found.offset, -zero * true.stiffness / guess.stiffness, rtol=1e-6)


def test_a_maximum_and_its_curvature():
    """Of a normal density, and no wider than its prior where nothing is told."""
    H = np.array([[4.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 0.0]]) + np.diag([0.0, 0.0, 1e-9])
    centre = np.array([1.0, -2.0, 0.5])

    def gradient(x):
        away = np.asarray(x) - centre
        return np.asarray(0.5 * away @ H @ away), H @ away

    found = maximum(None, np.array([0.0, 0.0, 0.5]), gradient)
    assert found.converged
    np.testing.assert_allclose(found.at, centre, atol=1e-2)
    covariance = laplace(gradient, found.at, np.full(3, 2.0))
    np.testing.assert_allclose(covariance[:2, :2], np.linalg.inv(H[:2, :2]), rtol=1e-6)
    np.testing.assert_allclose(covariance[2, 2], 4.0)


def test_charts_as_svg():
    time = np.linspace(0.0, 1.0, 50)
    areas = share_chart("regimes", time, {"slides": time, "sticks": 1 - time})
    for figure in (band_chart("force & more", "N", time, np.sin(time), 0.1 * time), areas):
        root = ET.fromstring(svg(figure))
        paths = [path.get("d") or "" for path in root.iter("{http://www.w3.org/2000/svg}path")]
        assert paths
        assert not any("nan" in path for path in paths)


TRUTH = {"mass": 0.8, "damping": 2.0, "stiffness": 400.0, "kinetic": 1.3, "static": 1.6}


def simulated(length: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Time, load and displacement of a mass that sticks and slides; kinetic friction from 2 mm/s on."""
    h, parts, m, c, k, kinetic, static = 0.0025, 50, *TRUTH.values()
    omega = 0.1 * np.arange(1, 601)
    density = jonswap(omega, period=0.45)
    density *= 2.5**2 / (np.sum(density) * 0.1)
    fine = (np.arange(length * parts) + 0.5) * h / parts
    load = multisine(fine, omega, density, np.random.default_rng(seed))
    z = v = 0.0
    places = []
    for i, push in enumerate(load):
        if i % parts == 0:
            places.append(z)
        z += h / parts / 2 * v
        free = v + h / parts / m * (push - c * v - k * z)
        bound = kinetic + (static - kinetic) * np.exp(-((v / 0.002) ** 2))
        v = free - h / parts / m * np.clip(free * m / (h / parts), -bound, bound)
        z += h / parts / 2 * v
    time = h * np.arange(length)
    return time, multisine(time, omega, density, np.random.default_rng(seed)), np.array(places)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_whole_chain_through_the_shell(tmp_path):
    """From two files to the force, a law, a scene; stiffness and damping given 10 % and 40 % wrong are corrected. The
    first has a gap of a thousand readings."""
    truth = {}
    for name, length, seed, gap in (("seen", 2200, 6, slice(700, 1700)), ("kept", 600, 5, slice(0))):
        time, load, z = simulated(length, seed)
        truth[name] = z
        y = [f"{c * 1e3:.7f}" for c in z + 4e-6 * np.random.default_rng(seed).normal(size=length)]
        y[gap] = [""] * len(y[gap])
        rows = "\n".join(f"{a:.5f},{b:.7f},{c}" for a, b, c in zip(time, load, y, strict=True))
        (tmp_path / f"{name}.csv").write_text(f"t [s],F [N],x [mm]\n{rows}\n", encoding="utf-8")
    (tmp_path / "study.yaml").write_text(
        """
spookax: 1
defaults: {time: t, inputs: {force: F}, sensors: {displacement: x}}
recordings: [{file: seen.csv}]
validate: [{file: kept.csv}]
latent: {mass: 0.8, damping: 2.8, stiffness: 440.0, correct: [damping, stiffness]}
""",
        encoding="utf-8",
    )
    out = tmp_path / "out"
    told = CliRunner().invoke(app, ["latent", str(tmp_path / "study.yaml"), "--out", str(out), "--quiet"])
    assert told.exit_code == 0, told.output
    content = json.loads((out / "latent.json").read_text(encoding="utf-8"))
    numbers = content["mechanism"]["numbers"]
    assert numbers["stiffness"]["used"] == pytest.approx(400.0, abs=4 * numbers["stiffness"]["sd"] + 2.0)
    assert numbers["damping"]["used"] == pytest.approx(2.0, abs=4 * numbers["damping"]["sd"] + 0.1)
    static = content["contacts"]["mass"]["static_friction"]
    assert static["mean"] == pytest.approx(1.6, abs=2 * static["sd"])
    seen = content["runs"]["seen"]
    assert seen["missing"] == 1000
    gap = slice(710, 1690)
    begin, end = 0.0025 * gap.start, 0.0025 * gap.stop
    assert not any(begin < a < b < end for a, b in seen["contacts"]["mass"]["stops"])
    assert seen["prediction_nmse"] < 1.0
    assert content["runs"]["kept"]["prediction_nmse"] < 1.0
    force = np.genfromtxt(out / "seen_force.csv", delimiter=",", names=True)
    fast = np.abs(force["velocity_ms"]) > 0.1
    against = force["force_N"] * np.sign(force["velocity_ms"])
    assert np.mean(np.abs(against[fast] - 1.3) < 1.645 * force["force_sd_N"][fast] + 0.02) > 0.8
    for name in ("latent.html", "law.svg", "seen_force.svg", "seen_regimes.svg", "kept_prediction.svg", "scene.yaml"):
        assert (out / name).stat().st_size > 1000 or name == "scene.yaml"
    page = (out / "latent.html").read_text(encoding="utf-8").split("<script", 1)[0]
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(set(ids)) == len(ids)  # a chart goes where the first element of its name is
    driven = ["--input", str(out / "seen_load.csv"), "--motor", "load=load"]
    done = CliRunner().invoke(app, ["simulate", str(out), *driven, "--out", str(tmp_path / "again.csv")])
    assert done.exit_code == 0, done.output
    again = np.genfromtxt(tmp_path / "again.csv", delimiter=",", skip_header=1)
    with np.load(out / "states.npz") as states:
        off = (states["seen/mass/displacement"] - truth["seen"]) / states["seen/mass/displacement_sd"]
        assert np.mean(np.abs(off[gap]) < 1.645) > 0.8
        np.testing.assert_allclose(again[::4, 2], states["seen/displacement/predicted"], atol=1e-9)
