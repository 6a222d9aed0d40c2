"""Least squares of the simulation error beside linear algebra: a pushed cart is linear in 1 / mass and its start."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from cli.scenes import SLIDER

import spookax as sx
from spookax.study import read_recordings
from spookax.study.comparing.simulation_error import simulation_error
from spookax.study.file.against_scene import sensor_dimensions

H, GAIN, NOISE = 0.01, 4.0, 1e-3
MASS = "bodies.cart.mass"


def path_of_unit_mass(u: np.ndarray) -> np.ndarray:
    """Leap-frog from rest at u = 0: the kick at t_k is the mean of the input over t_k - h/2 to t_k + h/2."""
    kick = np.concatenate([[u[0]], (u[:-2] + u[1:-1]) / 2]) * GAIN
    rate = np.cumsum(H * kick) - H * kick[0] / 2  # the rate at t = 0 is zero, half a kick back
    return np.concatenate([[0.0], H * np.cumsum(rate)])


def recording(steps: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Input, path of a unit mass, and readings [m] of 2 kg that starts at 0.1 m with 0.3 m/s."""
    u, t = np.where(np.arange(steps + 1) % 80 < 40, 1.0, -1.0), H * np.arange(steps + 1)
    unit = path_of_unit_mass(u)
    return u, unit, 0.6 + 0.3 * t + unit / 2.0 + NOISE * rng.normal(size=steps + 1)


@pytest.mark.slow  # simulations of two recordings with their derivatives are compiled
@pytest.mark.timeout(400)
def test_it_is_linear_least_squares_where_the_motion_is_linear(tmp_path: Path, rng: np.random.Generator):
    made = [recording(steps, rng) for steps in (200, 150)]
    columns, readings = [], []
    for i, (u, unit, x) in enumerate(made):
        lines = [f"{H * k:.2f},{u[k]:g},{1000 * x[k]:.9f}" for k in range(len(x))]
        (tmp_path / f"run{i}.csv").write_text("t [s],u [V],x [mm]\n" + "\n".join(lines) + "\n")
        own = np.zeros((len(x), 4))
        own[:, 2 * i : 2 * i + 2] = np.stack([np.ones(len(x)), H * np.arange(len(x))], axis=1)
        columns.append(np.column_stack([own, unit]))
        readings.append(x)
    wanted = 1 / np.linalg.lstsq(np.concatenate(columns), np.concatenate(readings), rcond=None)[0][4]
    assert abs(wanted - 2.0) > 1e-4  # the noise has an effect, which both must have

    entry = {"time": "t", "inputs": {"drive": "u"}, "sensors": {"scale": "x"}}
    content = {"spookax": 1, "scene": "slider.yaml", "defaults": entry, "parameters": {MASS: {"start": 1.0}}}
    content["recordings"] = [{"file": "run0.csv"}, {"file": "run1.csv"}]
    (tmp_path / "slider.yaml").write_text(SLIDER)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(content))
    study = sx.load_study(tmp_path / "study.yaml")
    scene = sx.read_scene(study.scene_path)
    z = simulation_error(study, scene, read_recordings(study, sensor_dimensions(scene)))
    assert z is not None
    assert np.exp(z[0]) == pytest.approx(wanted, rel=2e-6)  # settled to 1e-6; joints give way by less
