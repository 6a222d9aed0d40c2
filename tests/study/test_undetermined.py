"""A pendulum that swings out with no known torque: masses and frictions may all be larger by a factor."""

from pathlib import Path

import numpy as np
import pytest
import yaml

import spookax as sx

H, SAMPLES, FINER, SD = 0.01, 500, 100, 5e-4
MASS, COM, INERTIA, VISCOUS, COULOMB = 0.6, 0.22, 0.015, 0.02, 0.06
SCALED = {
    "bodies.rod.inertia.xx": INERTIA,
    "bodies.rod.com.z": -COM,
    "joints.pin.friction.viscous": VISCOUS,
    "joints.pin.friction.coulomb": COULOMB,
}


def swung_out(seed: int) -> np.ndarray:
    """Time and reading: leap-frog with the exact proximal step of dry friction, 100 steps to a sample."""
    rng = np.random.default_rng(seed)
    inertia, h = INERTIA + MASS * COM**2, H / FINER
    q, v, rows = rng.uniform(0.8, 1.3), 0.0, []
    for k in range(SAMPLES):
        rows.append((k * H, q + SD * rng.standard_normal()))
        for _ in range(FINER):
            q += h / 2 * v
            v = (v - h * MASS * 9.81 * COM * np.sin(q) / inertia) / (1 + h * VISCOUS / inertia)
            v = np.sign(v) * max(abs(v) - h * COULOMB / inertia, 0.0)
            q += h / 2 * v
    return np.array(rows)


def identified(folder: Path, seed: int) -> sx.Estimate:
    """With the default settings, from starts 30 % off."""
    rng = np.random.default_rng([1, seed])
    friction = {"viscous": VISCOUS, "coulomb": COULOMB}
    scene = {
        "spookax": 1,
        "bodies": {"rod": {"mass": MASS, "com": [0, 0, -COM], "inertia": [INERTIA] * 3}},
        "joints": {"pin": {"type": "hinge", "child": "rod", "axis": [1, 0, 0], "friction": friction}},
        "sensors": {"angle": {"type": "joint_position", "joint": "pin", "sd": SD}},
    }
    study = {
        "spookax": 1,
        "scene": "scene.yaml",
        "recordings": [{"file": "run.csv", "time": "t", "sensors": {"angle": "angle"}}],
        "parameters": {path: {"start": float(value * rng.choice([0.7, 1.3]))} for path, value in SCALED.items()},
    }
    np.savetxt(folder / "run.csv", swung_out(seed), "%.9g", ",", header="t [s],angle [rad]", comments="")
    for name, content in (("scene", scene), ("study", study)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return sx.identify(sx.load_study(folder / "study.yaml"))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(3))
def test_the_scale_of_a_ring_down_is_named(tmp_path, seed):
    estimate = identified(tmp_path, seed)
    told = [set(group["paths"]) for group in estimate.content["checks"]["gauge"]]
    assert any(set(SCALED) <= paths for paths in told), told
    assert estimate.status == "converged"
    assert estimate.content["trust"]["grade"] == "fair"
    for path, truth in SCALED.items():
        low, high = estimate.parameters[path]["interval"]
        assert low <= truth <= high, (path, low, high)
