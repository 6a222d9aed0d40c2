"""Friction of a joint that no formula says, identified from recordings: a network, and elasto-slide elements."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from study.test_identify import GAIN, SD, entry, pendulum, write_csv

import spookax as sx
from spookax.constraints import boxes
from spookax.scene import Scene

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

WEIGHTS = "joints.pin.friction.learned.weights"
TRUE = {"viscous": 0.02, "coulomb": 0.1, "stribeck": {"excess": 0.1, "speed": 1.0, "exponent": 1.0}}
SPEEDS = np.linspace(0.05, 5.0, 100)
TIME = 5e-3 * np.arange(1000)


def scene(friction: dict) -> dict:
    made = pendulum()
    made["joints"]["pin"]["friction"] = friction
    return made


def levels(of: Scene, speeds: np.ndarray = SPEEDS) -> np.ndarray:
    """Dry friction of the pin [N m]."""
    system, params = sx.build(of)
    zero = jnp.zeros(1)
    return np.asarray(
        jax.vmap(lambda v: boxes.dry_friction(system, params, zero, v[None], zero)[0])(jnp.asarray(speeds))
    )


def recorded(folder: Path, rng: np.random.Generator) -> Path:
    """Five seconds, pushed so that the pin turns at all speeds up to 6 rad/s."""
    u = 6.0 * np.sin(2 * np.pi * 0.4 * TIME) * np.sin(2 * np.pi * 0.07 * TIME) + 1.0 * np.sin(9 * TIME)
    system, params = sx.build(Scene.model_validate(scene(TRUE)))
    state = sx.state_from_joints(system, params, {"pin": {"position": 0.5}})
    angle = np.asarray(jax.jit(sx.rollout, static_argnums=0)(system, params, state, u[:, None]).position[:-1, 0])
    write_csv(folder / "run.csv", angle + SD * rng.normal(size=len(angle)), TIME, u)
    (folder / "scene.yaml").write_text(yaml.safe_dump(scene({"viscous": 0.02, "learned": {"force": 0.2}})))
    run = entry("run.csv")
    del run["offsets"]
    text = {"spookax": 1, "scene": "scene.yaml", "recordings": [run], "parameters": {WEIGHTS: {}, GAIN: {}}}
    text["estimator"] = {"process_noise": {"density": 1e-4, "estimate": False}, "max_iterations": 40}
    (folder / "study.yaml").write_text(yaml.safe_dump(text))
    return folder / "study.yaml"


def test_a_network_finds_the_law(tmp_path, rng):
    """The curve to a tenth of what it varies by, and the gain beside it; the scene that is written says the same."""
    found = sx.identify(recorded(tmp_path, rng))
    assert found.status in ("converged", "local_minimum", "iteration_limit")
    truth = levels(Scene.model_validate(scene(TRUE)))
    error = levels(found.scene) - truth
    assert np.sqrt(np.mean(error**2)) < 0.1 * np.ptp(truth)
    assert found.parameters[GAIN]["value"] == pytest.approx(0.5, rel=2e-3)
    assert sum(path.startswith(WEIGHTS) for path in found.parameters) == 61
    curve = {key: np.array(found.content["friction"]["pin"][key]) for key in ("speed", "level", "sd")}
    expected = levels(found.scene, curve["speed"]) + TRUE["viscous"] * curve["speed"]
    np.testing.assert_allclose(curve["level"], expected, rtol=1e-9)
    assert np.all(curve["sd"][1:] > 0)
    assert not any("weights" in group["message"] for group in found.content["checks"]["gauge"])
    found.save(tmp_path / "out")
    np.testing.assert_array_equal(levels(sx.read_scene(tmp_path / "out" / "scene.yaml")), levels(found.scene))


ELEMENTS = [{"stiffness": 8.0, "reach": 0.02}, {"stiffness": 3.0, "reach": 0.08}]
OF_ELEMENTS = [f"joints.pin.friction.elements.{i}.{key}" for i in (0, 1) for key in ("stiffness", "reach")]


def test_elements_are_found_beside_the_states(tmp_path, rng):
    """Both elements from one swing that turns many times, started half as large again; smoothed blocks replay."""
    u = 4.0 * np.sin(6 * TIME) * np.sin(1.3 * TIME) + 1.5 * np.sin(17 * TIME)
    truth = scene({"viscous": 0.02, "elements": ELEMENTS})
    system, params = sx.build(Scene.model_validate(truth))
    state = sx.state_from_joints(system, params, {"pin": {"position": 0.2}})
    angle = np.asarray(jax.jit(sx.rollout, static_argnums=0)(system, params, state, u[:, None]).position[:-1, 0])
    write_csv(tmp_path / "run.csv", angle + SD * rng.normal(size=len(angle)), TIME, u)
    (tmp_path / "scene.yaml").write_text(yaml.safe_dump(truth))
    values = [element[key] for element in ELEMENTS for key in ("stiffness", "reach")]
    run = entry("run.csv")
    del run["offsets"]
    text = {"spookax": 1, "scene": "scene.yaml", "recordings": [run]}
    text["parameters"] = {path: {"start": 1.5 * value} for path, value in zip(OF_ELEMENTS, values, strict=True)}
    text["estimator"] = {"process_noise": {"density": 1e-4, "estimate": False}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(text))
    found = sx.identify(tmp_path / "study.yaml")
    assert found.status == "converged"
    for path, value in zip(OF_ELEMENTS, values, strict=True):
        one = found.parameters[path]
        assert abs(one["value"] - value) < 3 * one["sd"]
        assert one["sd"] < 0.1 * value


LEVELS = [f"joints.pin.friction.{key}" for key in ("coulomb", "backward")]


def test_both_levels_are_found_of_friction_that_depends_on_the_sense(tmp_path, rng):
    """From one level for both senses, beside the viscous part and the gain, each within 3 sd; the bias of the motor,
    which a constant push would be, is known."""
    u = 4.0 * np.sin(6 * TIME) * np.sin(1.3 * TIME) + 1.5 * np.sin(17 * TIME)
    truth = {"viscous": 0.02, "coulomb": 0.1, "backward": 1.6}
    system, params = sx.build(Scene.model_validate(scene(truth)))
    state = sx.state_from_joints(system, params, {"pin": {"position": 0.2}})
    angle = np.asarray(jax.jit(sx.rollout, static_argnums=0)(system, params, state, u[:, None]).position[:-1, 0])
    write_csv(tmp_path / "run.csv", angle + SD * rng.normal(size=len(angle)), TIME, u)
    (tmp_path / "scene.yaml").write_text(yaml.safe_dump(scene({"viscous": 0.03, "coulomb": 0.15})))
    run = entry("run.csv")
    del run["offsets"]
    text = {"spookax": 1, "scene": "scene.yaml", "recordings": [run]}
    text["parameters"] = {path: {} for path in (*LEVELS, "joints.pin.friction.viscous", GAIN)}
    text["estimator"] = {"process_noise": {"density": 1e-4, "estimate": False}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(text))
    found = sx.identify(tmp_path / "study.yaml")
    assert found.status == "converged"
    value, sd = (np.array([found.parameters[path][key] for path in LEVELS]) for key in ("value", "sd"))
    at = [found.content["correlation"]["paths"].index(path) for path in LEVELS]
    matrix = np.array(found.content["correlation"]["matrix"])[np.ix_(at, at)]
    back = value[::-1] @ (matrix * np.outer(sd, sd)) @ value[::-1]  # variance of their product, the backward level
    assert abs(value[0] - 0.1) < 3 * sd[0] < 0.02
    assert abs(value[0] * value[1] - 0.16) < 3 * np.sqrt(back) < 0.03
