"""The recordings that the demo ships: reproducible, informative, and inside the range they were meant for."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import make_demo
import numpy as np
import pytest
import yaml
from make_demo import DEMO, QUANTUM, SAMPLE_TIME, TRUTH, parameters

import spookax as sx
from spookax.scene import with_numbers

TABLES = {name: np.genfromtxt(DEMO / f"{name}.csv", delimiter=",", skip_header=1) for name in make_demo.SEEDS}


@pytest.fixture(scope="module")
def recordings():
    return {name: make_demo.recording(name, step=1e-4) for name in make_demo.SEEDS}


@pytest.mark.parametrize("name", make_demo.SEEDS)
def test_the_script_makes_the_shipped_file(name, recordings):
    """At a coarser step, which moves a reading by one count now and then."""
    u, readings, _ = recordings[name]
    time, shipped_u, *shipped = TABLES[name].T
    np.testing.assert_allclose(time, SAMPLE_TIME * np.arange(len(time)), atol=1e-12)
    np.testing.assert_array_equal(shipped_u, u)
    counts = np.abs(readings - np.stack(shipped, axis=1)) / QUANTUM
    assert counts.max() < 1.01
    assert (counts > 0.01).mean() < 1e-3


@pytest.mark.parametrize("name", make_demo.SEEDS)
def test_noise_is_as_stated(name, recordings):
    _, _, angles = recordings[name]
    error = TABLES[name][:, 2:] - angles - [0.0, make_demo.OFFSET]
    stated = np.hypot(make_demo.SENSOR_SD, QUANTUM / np.sqrt(12))
    np.testing.assert_allclose(error.std(axis=0), stated, rtol=0.06)
    assert np.abs(error.mean(axis=0)).max() < 4 * stated / np.sqrt(len(error))


@pytest.mark.parametrize("name", make_demo.SEEDS)
def test_motion_is_moderate_and_the_arm_sticks(name, recordings):
    u, _, angles = recordings[name]
    rates = np.asarray(make_demo.simulate(TRUTH, u, step=1e-4)[1])
    assert np.abs(rates).max() < 12
    assert np.abs(angles[:, 1]).max() < np.pi / 2
    assert np.abs(angles[:, 0]).max() > np.pi  # shows whether angles are unwrapped
    assert (rates[:, 0] == 0).mean() > 0.04


def test_truth_and_study_name_the_same_thirteen():
    truth = json.loads((DEMO / "truth.json").read_text(encoding="utf-8"))
    assert truth["parameters"] == parameters()
    study = yaml.safe_load((DEMO / "furuta_study.yaml").read_text(encoding="utf-8"))["parameters"]
    assert set(study) == set(parameters())
    assert len(study) == 13
    factors = [study[path]["start"] / parameters()[path] for path in study]
    np.testing.assert_allclose(factors, [1.5, 0.5] * 6 + [1.5], rtol=1e-12)


def test_every_unknown_can_be_found():
    """At best to 0.5 % of its value, so that errors of 5 % are out of reach of the noise."""
    sd = make_demo.information(make_demo.training_input(), step=2e-4)
    for path, value in parameters().items():
        assert 0 < sd[path] < 0.005 * abs(value), path


def test_the_scene_is_the_same_machine(recordings):
    """With the true numbers the package approaches the reference as its step shrinks: same signs and axes."""
    u, _, angles = recordings["train"]
    scene = with_numbers(sx.read_scene(DEMO / "furuta.yaml"), parameters())
    system, params = sx.build(scene)

    @jax.jit
    def run(h, controls):
        p = eqx.tree_at(lambda p: p.step, params, h)
        motion = sx.rollout(system, p, sx.state_from_joints(system, p), controls[:, None])
        return jnp.stack([motion.joint(name)[0] for name in ("shoulder", "elbow")], axis=1)

    def errors(per_sample):  # at the samples that 4000 steps reach
        controls = np.repeat(u, per_sample)[:4000]
        simulated = run(SAMPLE_TIME / per_sample, controls)[::per_sample]
        return np.abs(simulated - angles[: len(simulated)])

    coarse, fine = errors(2), errors(8)
    assert (coarse.max(axis=0) < [0.03, 0.01]).all()
    assert (fine.max(axis=0) < 0.4 * coarse[: len(fine)].max(axis=0)).all()
