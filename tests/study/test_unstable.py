"""A pendulum that feedback holds upright: no simulation follows it for long, and yet it tells its parameters."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import spookax as sx

H, SAMPLES, FINER, SD = 0.01, 400, 100, 1e-3
TRUTH = {
    "bodies.rod.inertia.xx": 0.012,
    "joints.pin.friction.viscous": 0.03,
    "joints.pin.friction.coulomb": 0.02,
    "sensors.angle.offset": -0.015,
}
MASS, COM = 0.8, 0.25


def held_upright(seed: int) -> np.ndarray:
    """Time, torque and reading: leap-frog with the exact proximal step of dry friction, 100 steps to a sample."""
    rng = np.random.default_rng(seed)
    inertia, viscous, coulomb, offset = TRUTH.values()
    inertia, h = inertia + MASS * COM**2, H / FINER
    q, v, before, rate = np.pi + rng.uniform(-0.03, 0.03), 0.0, np.pi, 0.0
    dither = 0.3 * np.repeat(rng.choice([-1.0, 1.0], SAMPLES // 10), 10)
    rows = []
    for k in range(SAMPLES):
        reading = q + offset + SD * rng.standard_normal()
        rate = 0.7 * rate + 0.3 * (reading - before) / H
        torque, before = -6.0 * (reading - np.pi) - 0.8 * rate + dither[k], reading
        rows.append((k * H, torque, reading))
        for _ in range(FINER):
            q += h / 2 * v
            v = (v + h * (torque - MASS * 9.81 * COM * np.sin(q)) / inertia) / (1 + h * viscous / inertia)
            v = np.sign(v) * max(abs(v) - h * coulomb / inertia, 0.0)
            q += h / 2 * v
    return np.array(rows)


def identified(folder: Path, seed: int, samples: int = SAMPLES, held_back: int | None = None) -> sx.Estimate:
    """The first samples with the default settings, from starts 30 % off; `held_back`: seed of what it predicts."""
    scene: dict[str, Any] = {
        "spookax": 1,
        "bodies": {"rod": {"mass": MASS, "com": [0, 0, -COM], "inertia": [0.012, 0.012, 0.012]}},
        "joints": {
            "pin": {"type": "hinge", "child": "rod", "axis": [1, 0, 0], "friction": {"viscous": 0.03, "coulomb": 0.02}}
        },
        "motors": {"drive": {"type": "torque", "joint": "pin", "gain": 1.0}},
        "sensors": {"angle": {"type": "joint_position", "joint": "pin", "sd": SD}},
    }
    starts = {path: 0.0 if path.endswith("offset") else 1.3 * value for path, value in TRUTH.items()}
    study = {
        "spookax": 1,
        "scene": "scene.yaml",
        "recordings": [{"file": "run.csv", "time": "t", "inputs": {"drive": "u"}, "sensors": {"angle": "angle"}}],
        "parameters": {path: {"start": start} for path, start in starts.items()},
    }
    header = "t [s],u [N m],angle [rad]"
    np.savetxt(folder / "run.csv", held_upright(seed)[:samples], "%.9g", ",", header=header, comments="")
    if held_back is not None:
        np.savetxt(folder / "late.csv", held_upright(held_back), "%.9g", ",", header=header, comments="")
        study["validate"] = [study["recordings"][0] | {"file": "late.csv"}]
    for name, content in (("scene", scene), ("study", study)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return sx.identify(sx.load_study(folder / "study.yaml"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_pendulum_held_upright_is_identified(tmp_path):
    for seed in range(3):
        estimate = identified(tmp_path, seed, held_back=seed + 10)
        assert estimate.status == "converged", (seed, estimate.content["trust"])
        for path, truth in TRUTH.items():
            found = estimate.parameters[path]
            assert abs(found["value"] - truth) < 4 * found["sd"], (seed, path, found)
        assert estimate.content["trust"]["grade"] != "bad", (seed, estimate.content["trust"])
        (run,) = estimate.content["runs"].values()
        assert run["signals"]["angle"]["foretold"] < run["duration"]
        # no simulation follows to the end what was held back; over what the posterior can tell it does
        (seen,) = estimate.content["validation"].values()
        assert seen["signals"]["angle"]["nrmse"] > 1
        assert seen["stretches"]["seconds"] < seen["horizon"] / 2
        assert seen["stretches"]["signals"]["angle"]["nrmse"] < 0.2
        assert "as an unstable motion is" in " ".join(estimate.content["trust"]["reasons"])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_intervals_take_at_most_half_as_many_iterations_as_the_identification(tmp_path):
    """A second and a half of it tells frictions badly, so that profiles are asked for."""
    estimate = identified(tmp_path, 3, 150)
    phases = [line["phase"] for line in estimate.content["convergence"]]
    looked = phases.count("intervals")
    assert 0 < looked <= max(30, (len(phases) - looked) // 2)
    kinds = {path: parameter["interval_kind"] for path, parameter in estimate.parameters.items()}
    assert {"profile", "unchecked"} & set(kinds.values()), kinds
