"""Laws of friction judged by recordings held back: the studies that are made, the rule, and the command."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from cli.scenes import refused, run
from study.test_identify import SD, SWING, TIME, VISCOUS, angles, entry, pendulum, write_csv

import spookax as sx
from spookax.scene import Scene, numeric_paths
from spookax.study import read_study
from spookax.study.comparing import choose
from spookax.study.comparing.choose import choose_friction
from spookax.study.comparing.friction_laws import LAWS, places, suits, variant
from spookax.study.identifying.estimate import load_estimate

pytestmark = pytest.mark.quick
COULOMB = "joints.pin.friction.coulomb"
DRIVE = np.where(TIME % 0.6 < 0.3, 3.0, -3.0)


RUNS = dict(zip(("run", "late", "later"), (*SWING, {"position": 2.0}), strict=True))


def written(folder: Path, friction: dict, parameters: dict) -> Path:
    """A study of a pendulum with this friction: one recording, and two that are held back; all of them zeros."""
    scene = pendulum()
    scene["joints"]["pin"]["friction"] = friction
    for name in RUNS:
        write_csv(folder / f"{name}.csv", np.zeros(len(TIME)), TIME, DRIVE)
    (folder / "scene.yaml").write_text(yaml.safe_dump(scene))
    text = {"spookax": 1, "scene": "scene.yaml", "recordings": [entry("run.csv")], "parameters": parameters}
    text |= {"validate": [entry("late.csv"), entry("later.csv")]}
    text |= {"estimator": {"process_noise": {"density": 1e-4, "estimate": False}}}
    (folder / "study.yaml").write_text(yaml.safe_dump(text))
    return folder / "study.yaml"


GAIN = {"motors.drive.gain": {"transform": "log"}}


def variants(path: Path) -> dict[str, tuple[Scene, dict]]:
    study = read_study(path)
    scene = sx.read_scene(study.scene_path)
    chosen = places(study, scene)
    laws = [law for law in LAWS if suits(law, chosen)]
    return {law: variant(study, scene, law, chosen, {"pin": 2.0}, 10.0) for law in laws}


def test_every_law_has_its_numbers_and_no_others(tmp_path):
    """All friction that a law does not have is gone from the scene; what it has is unknown and starts above zero."""
    friction = {"viscous": 0.05, "coulomb": 0.1, "drag": 0.01, "stribeck": {"excess": 0.02, "exponent": 1.5}}
    made = variants(written(tmp_path, friction, {VISCOUS: {"upper": 3.0, "start": 0.3}, **GAIN}))
    for law, (scene, unknown) in made.items():
        numbers = numeric_paths(scene)
        assert set(unknown) == {f"joints.pin.friction.{key}" for key in LAWS[law]} | set(GAIN)
        assert all(numbers[path] > 0 and unknown[path].start is None for path in unknown)
        for key in ("viscous", "coulomb", "drag", "bearing", "stribeck.excess"):
            assert (numbers[f"joints.pin.friction.{key}"] > 0) == (key in LAWS[law])
        assert numbers["joints.pin.friction.stribeck.exponent"] == 1.5
    scene, unknown = made["viscous"]
    assert numeric_paths(scene)[VISCOUS] == 0.3, "the study's start"
    assert unknown[VISCOUS].upper == 3.0
    assert numeric_paths(made["drag"][0])[COULOMB] == 0.1, "the scene's"


def test_starts_follow_from_what_is_known_of_the_friction(tmp_path):
    """0.2 N m s/rad at 2 rad/s are 0.4 N m; from nothing, what stops the pendulum in the time of a recording."""
    made = variants(written(tmp_path, {"viscous": 0.2}, {VISCOUS: {}, **GAIN}))
    assert numeric_paths(made["Coulomb"][0])[COULOMB] == pytest.approx(0.4)
    drag = numeric_paths(made["drag"][0])
    assert drag["joints.pin.friction.drag"] * 2.0**2 == pytest.approx(0.4 / 4)
    made = variants(written(tmp_path, {}, GAIN))
    about = (0.02 + 1 + 1) / 3 + 0.3**2
    assert numeric_paths(made["Coulomb"][0])[COULOMB] == pytest.approx(about * 2.0 / 10.0, rel=1e-2)


def test_laws_that_an_axis_cannot_have(tmp_path):
    """A direction has no backward; a distance presses on nothing; air resists what the world carries like drag."""
    scene = Scene.model_validate(
        {
            "spookax": 1,
            "bodies": {name: {"mass": 1, "inertia": [1, 1, 1]} for name in "ab"},
            "joints": {"neck": {"type": "ball", "child": "a"}, "rope": {"type": "line", "child": "b"}},
        }
    )
    study = read_study(written(tmp_path, {}, GAIN))
    neck, rope = places(study, scene, ("neck",))[:1], places(study, scene, ("rope",))[:1]
    assert not suits("asymmetric", neck)
    assert not suits("bearing", rope)
    assert suits("drag", neck)
    assert suits("asymmetric", rope)
    assert not suits("air", [*neck, *rope])


def test_air_resists_bodies_and_not_joints(tmp_path):
    """Their centre where the joint moves that, else their turning; the first link, on the world, has drag."""
    link, arm = {"mass": 1, "inertia": [1, 1, 1]}, {"mass": 1, "inertia": [1, 1, 1], "com": [0.5, 0, 0.7]}
    scene = Scene.model_validate(
        {
            "spookax": 1,
            "bodies": {**dict.fromkeys("abc", link), "d": arm},
            "joints": {
                "pin": {"type": "hinge", "child": "a", "friction": {"viscous": 0.2}},
                "elbow": {"type": "hinge", "parent": "a", "child": "b", "friction": {"viscous": 0.2}},
                "slide": {"type": "prismatic", "parent": "b", "child": "c", "friction": {"viscous": 0.2}},
                "wrist": {"type": "hinge", "parent": "c", "child": "d", "friction": {"viscous": 0.2}},
            },
        }
    )
    study = read_study(written(tmp_path, {"viscous": 0.2}, GAIN))
    chosen = places(study, scene, ("pin", "elbow", "slide", "wrist"))
    assert suits("air", chosen)
    changed, unknown = variant(study, scene, "air", chosen, dict.fromkeys(scene.joints, 2.0), 10.0)
    assert set(unknown) == {
        *GAIN,
        *(f"joints.{name}.friction.coulomb" for name in scene.joints),
        *(f"joints.pin.friction.{key}" for key in ("viscous", "drag")),
        *(f"bodies.b.air.turning.{key}" for key in ("viscous", "drag")),
        *(f"bodies.{name}.air.{key}" for name in "cd" for key in ("viscous", "drag")),
    }
    numbers = numeric_paths(changed)
    assert numbers["bodies.b.air.turning.viscous"] == pytest.approx(0.2)
    assert numbers["bodies.c.air.drag"] * 2.0**2 == pytest.approx(0.4 / 4)
    assert numbers["bodies.d.air.drag"] * 0.5**3 * 2.0**2 == pytest.approx(0.4 / 4), "0.5 m from the axis"
    assert numbers["joints.elbow.friction.viscous"] == 0


def entry_of(law: str, unknowns: int, nrmse: list[float], status: str = "converged") -> dict:
    of = {f"late_{i}": value for i, value in enumerate(nrmse)}
    return {
        "law": law,
        "unknowns": unknowns,
        "nrmse_of": of,
        "nrmse": float(np.sqrt(np.mean(np.square(nrmse)))),
        "status": status,
    }


@pytest.mark.parametrize(
    ("simple", "chosen"),
    [
        ([0.2, 0.1, 0.29, 0.205], "simple"),  # now better, now worse
        ([0.25, 0.25, 0.25, 0.25], "rich"),  # worse in every recording
        ([0.25, float("nan"), 0.25, 0.25], "rich"),
    ],
)
def test_the_simplest_within_the_noise_of_the_best_is_chosen(simple, chosen):
    """The best of all fits worse than any is one that did not converge: it has no say."""
    rich = [0.2, 0.11, 0.28, 0.2]
    found = {"rich": entry_of("rich", 5, rich), "simple": entry_of("simple", 2, simple)}
    found["astray"] = entry_of("astray", 1, [0.01] * 4, "iteration_limit")
    judged = choose._judged(found)
    assert judged["best"] == "rich"
    assert judged["chosen"] == chosen
    assert judged["laws"][0]["law"] == "astray", "it is listed where it belongs"


def test_a_single_recording_tells_no_noise():
    found = {"rich": entry_of("rich", 5, [0.2]), "simple": entry_of("simple", 2, [0.2001])}
    assert choose._judged(found)["chosen"] == "rich"


def test_what_is_missing_or_wrong_is_said_in_one_line(tmp_path):
    path = written(tmp_path, {"viscous": 0.05}, {VISCOUS: {}, **GAIN})
    out = ("--out", str(tmp_path / "out"))
    text = yaml.safe_load(path.read_text())
    told = refused("choose-friction", str(path), *out, "--joint", "pni")
    assert "the scene has no joint 'pni'" in told
    assert "pin" in told
    path.write_text(yaml.safe_dump(text | {"ties": {COULOMB: f"2 * {VISCOUS}"}}))
    told = refused("choose-friction", str(path), *out)
    assert f"ties.{COULOMB}" in told
    assert "--joint" in told
    path.write_text(yaml.safe_dump({key: value for key, value in text.items() if key != "validate"}))
    told = refused("choose-friction", str(path), *out)
    assert "validate" in told
    assert "Write `validate:" in told


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_law_of_the_recording_is_chosen_and_what_is_finished_stays(tmp_path, monkeypatch):
    """Dry friction with drag, from a study of viscous friction alone; broken off once, and gone on with."""
    path = written(tmp_path, {"viscous": 0.05}, {VISCOUS: {}, **GAIN})
    scene, rng = pendulum(), np.random.default_rng(3)
    scene["joints"]["pin"]["friction"] = {"coulomb": 0.1, "drag": 0.04}
    for name, start in RUNS.items():
        read = angles(scene, start, DRIVE)[:-1] + SD * rng.normal(size=len(TIME))
        write_csv(tmp_path / f"{name}.csv", read, TIME, DRIVE)
    monkeypatch.setattr(
        "spookax.study.comparing.choose.LAWS", {law: LAWS[law] for law in ("viscous", "Coulomb", "drag")}
    )
    out, finished = tmp_path / "out", []

    def stop_after_the_first(law: str) -> None:
        if law == "Coulomb":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        choose_friction(path, out, begin=stop_after_the_first)
    written_at = (out / "viscous" / "estimate.json").stat().st_mtime_ns
    found = choose_friction(path, out, resume=True, begin=finished.append)
    assert finished == ["Coulomb", "drag"]
    assert (out / "viscous" / "estimate.json").stat().st_mtime_ns == written_at
    assert not found.interrupted
    assert found.content["chosen"] == found.content["laws"][0]["law"] == "drag"
    assert json.loads((out / "choice.json").read_text())["chosen"] == "drag"
    shown = run("choose-friction", str(path), "--out", str(out), "--resume", "--quiet")  # all of it is there
    assert shown.exit_code == 0
    assert [line.split()[0] for line in shown.stdout.splitlines()[2:5]] == [
        f"{one['law']}{'*' * (one['law'] == 'drag')}" for one in found.content["laws"]
    ]
    own = load_estimate(out / "drag").parameters["joints.pin.friction.drag"]
    assert abs(own["value"] - 0.04) < 3 * own["sd"]
    again = sx.load_study(out / "study.yaml")
    assert again.recording_path(again.recordings[0]).samefile(tmp_path / "run.csv")
    assert again.recordings[0].offsets == {"angle": 0.1}
    assert again.estimator == sx.load_study(path).estimator
    assert run("check", str(out / "study.yaml")).exit_code == 0
    assert run("predict", str(out / "drag")).exit_code == 0
