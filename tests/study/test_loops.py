"""A closed loop whose crank turns fully is identified from its encoders."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

import spookax as sx

SCENE = Path(__file__).parents[2] / "scenes/four_bar.yaml"
SECONDS, SD = 2.0, 1e-3


def driven(folder: Path, sensors: dict[str, str]) -> Path:
    """The shipped four-bar turned about by its motor for 2 s, read at 250 Hz, as a study with starts a third off."""
    scene = yaml.safe_load(SCENE.read_text())
    scene["bodies"]["rocker"] = {"mass": 0.6, "com": [0.15, 0, 0], "inertia": [5e-5, 5e-3, 5e-3]}
    (folder / "truth.yaml").write_text(yaml.safe_dump(scene))
    system, params, state = sx.load(folder / "truth.yaml")
    steps = round(SECONDS / scene["step"])
    time = scene["step"] * np.arange(steps + 1)
    u = 0.6 * np.sin(2 * np.pi * 0.9 * time[:-1]) + 0.25
    run = sx.rollout(system, params, state, jnp.asarray(u)[:, None])
    both = np.stack([np.asarray(run.joint(name)[0]) for name in ("drive", "ground")], axis=1)
    assert np.ptp(both[:, 0]) > 2 * np.pi
    rng = np.random.default_rng(4)
    angles = both[:-1] + SD * rng.normal(size=(steps, 2))
    table = np.column_stack([time[:-1], u, angles])[::2]
    np.savetxt(folder / "run.csv", table, "%.9g", ",", header="t [s],u [N m],crank [rad],rocker [rad]", comments="")
    for joint, friction in (("drive", {"viscous": 1.5e-3}), ("ground", {"coulomb": 1.5e-3})):
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


TRUTH = {"bodies.rocker.mass": 0.6, "joints.drive.friction.viscous": 1e-3, "joints.ground.friction.coulomb": 1e-3}
READ = {"crank": {"crank_encoder": "crank"}, "both": {"crank_encoder": "crank", "rocker_encoder": "rocker"}}


@pytest.mark.slow
@pytest.mark.parametrize("read", READ)
def test_a_crank_that_turns_fully_is_identified(tmp_path, read):
    """By its own encoder, and by those of both sides of the loop; with defaults."""
    found = sx.identify(driven(tmp_path, READ[read]))
    assert found.status == "converged", found.message
    assert found.content["trust"]["grade"] == "good"
    for path, true in TRUTH.items():
        low, high = found.parameters[path]["interval"]
        assert low - (high - low) < true < high + (high - low)
        assert high - low < 0.3 * true
    jax.clear_caches()
