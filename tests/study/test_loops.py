"""A closed loop whose crank turns fully is identified from its encoders."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import yaml

import spookax as sx

SCENE = Path(__file__).parents[2] / "scenes/four_bar.yaml"
SECONDS, SD, APART, FINER = 2.0, 1e-3, 0.004, 16


def driven(folder: Path, sensors: dict[str, str]) -> Path:
    """The shipped four-bar turned about by its motor for 2 s, read at 250 Hz, in fine steps; starts a third off."""
    scene = yaml.safe_load(SCENE.read_text())
    scene["bodies"]["rocker"] = {"mass": 0.6, "com": [0.15, 0, 0], "inertia": [5e-5, 5e-3, 5e-3]}
    step, scene["step"] = scene["step"], APART / FINER
    scene["joints"]["drive"]["friction"] = {"viscous": 0.02}
    scene["joints"]["ground"]["friction"] = {"coulomb": 0.03}
    (folder / "truth.yaml").write_text(yaml.safe_dump(scene))
    system, params, state = sx.load(folder / "truth.yaml")
    time = APART * np.arange(round(SECONDS / APART))
    u = 0.7 * np.sin(2 * np.pi * 0.9 * time) + 0.1  # held from reading to reading
    run = sx.rollout(system, params, state, jnp.asarray(np.repeat(u, FINER))[:, None])
    angles = np.stack([np.asarray(run.joint(name)[0]) for name in ("drive", "ground")], axis=1)[:-1:FINER]
    assert np.ptp(angles[:, 0]) > 2 * np.pi
    table = np.column_stack([time, u, angles + SD * np.random.default_rng(4).normal(size=angles.shape)])
    np.savetxt(folder / "run.csv", table, "%.9g", ",", header="t [s],u [N m],crank [rad],rocker [rad]", comments="")
    scene["step"] = step
    for joint, friction in (("drive", {"viscous": 0.03}), ("ground", {"coulomb": 0.04})):
        scene["joints"][joint]["friction"] = friction
    scene["bodies"]["rocker"]["mass"] = 0.8
    (folder / "scene.yaml").write_text(yaml.safe_dump(scene))
    study = {
        "spookax": 1,
        "scene": "scene.yaml",
        "recordings": [{"file": "run.csv", "time": "t", "inputs": {"drive": "u"}, "sensors": sensors}],
        "parameters": {path: {} for path in TRUTH},
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    return folder / "study.yaml"


TRUTH = {"bodies.rocker.mass": 0.6, "joints.drive.friction.viscous": 0.02, "joints.ground.friction.coulomb": 0.03}
READ = {"crank": {"crank_encoder": "crank"}, "both": {"crank_encoder": "crank", "rocker_encoder": "rocker"}}


@pytest.mark.slow
@pytest.mark.parametrize("read", READ)
def test_a_crank_that_turns_fully_is_identified(tmp_path, read):
    """By its own encoder, and by those of both sides of the loop; with defaults."""
    found = sx.identify(driven(tmp_path, READ[read]))
    assert found.status == "converged", found.message
    assert found.content["trust"]["grade"] != "bad", found.content["trust"]
    for path, true in TRUTH.items():
        low, high = found.parameters[path]["interval"]
        assert low - (high - low) / 2 < true < high + (high - low) / 2, (path, found.parameters[path])
    for path in ("bodies.rocker.mass", "joints.drive.friction.viscous"):
        assert found.value(path) == pytest.approx(TRUTH[path], rel=0.05)
    assert found.content["runs"]["run"]["signals"]["crank_encoder"]["rms_open_loop"] < 0.05
