"""The statistics are right: estimates scatter about the truth as their standard deviations say."""

import dataclasses
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from coverage_set import make
from one_dof import OneDof, advance

from spookax._results import ESTIMATE_RESULTS
from spookax.estimation import Settings, fit
from spookax.estimation.batch.simulator_form import Estimator
from spookax.scene import Scene, read_scene
from spookax.study.file.read import read_study
from spookax.study.file.study import Study
from spookax.study.judging.error_bars import natural
from spookax.study.recordings.recording import Recording
from spookax.study.running.setup import Setup, set_up

pytestmark = pytest.mark.slow
DEMO = Path(__file__).parents[2] / "demo/furuta_study.yaml"
SLIDE = OneDof(mass=1.0, viscous=0.3, coulomb=0.0, gain=1.0)
H, SD, RUNS = 5e-3, 1e-4, 30


def slide_scene() -> Scene:
    return Scene.model_validate(
        {
            "spookax": 1,
            "step": H,
            "gravity": [0, 0, 0],
            "bodies": {"mass": {"mass": SLIDE.mass, "inertia": [1.0, 1.0, 1.0]}},
            "joints": {
                "slide": {
                    "type": "prismatic",
                    "child": "mass",
                    "axis": [1, 0, 0],
                    "friction": {"viscous": SLIDE.viscous},
                }
            },
            "motors": {"drive": {"type": "torque", "joint": "slide", "gain": SLIDE.gain}},
            "sensors": {"encoder": {"type": "joint_position", "joint": "slide", "sd": SD}},
        }
    )


def slide_runs() -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """(time, input, readings of every run, density of the noise): noise of 30 % of the input, new in every kick."""
    rng = np.random.default_rng(3)
    steps = 640
    time = H * np.arange(steps)
    u = np.repeat(rng.choice([-1.0, 1.0], (RUNS, steps // 20)), 20, axis=1)
    density = 0.3 * np.sqrt(H)  # an impulse of 0.3 N h per step
    noise = rng.normal(0.0, density / np.sqrt(H), (RUNS, steps + 1))  # from t_k - h/2 to t_k + h/2
    x, v = np.zeros(RUNS), np.zeros(RUNS)
    y = np.empty((RUNS, steps))
    for k in range(steps):
        y[:, k] = x
        for half in (0, 1):
            x, v = advance(SLIDE, x, v, SLIDE.gain * u[:, k] + noise[:, k + half], H / 2)
    return time, u, y + rng.normal(0.0, SD, y.shape), density


def slide_setup(paths: tuple[str, ...]) -> tuple[Setup, list[Recording], Study]:
    """A study of the first run with these unknowns, and the recordings of all runs."""
    time, u, y, density = slide_runs()
    recordings = [
        dataclasses.replace(_recording(f"run{i}", time), inputs={"drive": u[i]}, sensors={"encoder": y[i][:, None]})
        for i in range(RUNS)
    ]
    study = Study.model_validate(
        {
            "spookax": 1,
            "scene": "none",
            "recordings": [
                {"name": "run", "file": "none.csv", "time": "t", "inputs": {"drive": "u"}, "sensors": {"encoder": "y"}}
            ],
            "parameters": {path: {"transform": "log"} for path in paths},
            "estimator": {"process_noise": {"kind": "joints", "density": density, "estimate": False}},
        }
    )
    return set_up(study, slide_scene(), recordings[:1]), recordings, study


def _recording(name: str, time: np.ndarray) -> Recording:
    return Recording(name, Path(name), time, {}, {}, {}, {}, "")


def test_a_mass_under_strong_impulse_noise_is_unbiased():
    """Thirty runs with impulse noise of 30 % of the input: the joint cost without determinants finds 0.9 (R small)."""
    first, recordings, study = slide_setup(("bodies.mass.mass",))
    errors, sds = [], []
    for recording in recordings:
        setup = set_up(study, first.scene, [recording])
        found = fit(setup.problem, [first.stages[-1]], setup.start(), Settings(tolerance=1e-9))
        assert found.result == ESTIMATE_RESULTS.successful
        errors.append(float(found.iterate.z[0]) - np.log(SLIDE.mass))
        sds.append(float(np.sqrt(found.covariance[0, 0])))
    standard_error = np.std(errors, ddof=1) / np.sqrt(RUNS)
    assert abs(np.mean(errors)) < 2 * standard_error
    assert 0.7 < np.std(errors, ddof=1) / np.mean(sds) < 1.35  # 99 % band of 30 runs: 0.69 ... 1.34


def test_the_common_scale_of_mass_friction_and_gain_has_its_optimum_at_the_truth():
    """The noise level is known absolutely, so the scale is too; without determinants the cost falls with the scale."""
    paths = ("bodies.mass.mass", "joints.slide.friction.viscous", "motors.drive.gain")
    first, recordings, study = slide_setup(paths)
    stage = first.stages[-1]
    scales = np.array([0.9, 0.95, 1.0, 1.05, 1.1])
    plain, marginal = np.zeros(len(scales)), np.zeros(len(scales))
    for recording in recordings[:20]:
        setup = set_up(study, first.scene, [recording])
        start = setup.start()
        for i, scale in enumerate(scales):
            z = np.asarray(setup.problem.z0) + np.log(scale)
            held = dataclasses.replace(setup.problem, lower=z - 1e-12, upper=z + 1e-12, z0=z, prior=z)
            estimator = Estimator(held, Settings(tolerance=1e-9))
            found = estimator.run(start._replace(z=jnp.asarray(z)), [stage])
            plain[i] += found.cost
            marginal[i] += found.cost + found.log_det / 2
    assert np.all(np.diff(plain) > 0)  # what the paper minimises prefers everything smaller
    curve = np.polyfit(np.log(scales), marginal, 2)
    sd = 1 / np.sqrt(2 * curve[0])
    assert abs(-curve[1] / (2 * curve[0])) < 2 * sd
    assert sd < 0.03


@pytest.mark.timeout(1500)
def test_intervals_of_the_demo_machine_cover_the_truth():
    """Fifty recordings by the fine minimal-coordinate integration, with torque noise and Gaussian encoder noise."""
    density, kept = 2e-5, 1.6448536269514722  # 90 %
    data = make(50, duration=2.5, density=density, seed=1)
    demo = read_study(DEMO)
    paths = [path for path in demo.parameters if path in data.truth]  # without the encoder's offset, which is 0 here
    study = Study.model_validate(
        {
            "spookax": 1,
            "scene": "none",
            "recordings": [
                {
                    "name": "run",
                    "file": "none.csv",
                    "time": "t",
                    "inputs": {"drive": "u"},
                    "sensors": {"arm_encoder": "a", "pend_encoder": "b"},
                }
            ],
            "parameters": {
                path: {"start": 1.1 * data.truth[path], "transform": demo.parameters[path].transform} for path in paths
            },
            "estimator": {
                "process_noise": {"kind": "joints", "density": density, "estimate": False},
                "friction_speed": [0.02, 0.002],
            },
        }
    )
    scene = read_scene(demo.scene_path)
    sensors = {k: v.model_copy(update={"offset": 0.0, "sd": data.sensor_sd}) for k, v in scene.sensors.items()}
    scene = scene.model_copy(update={"sensors": sensors})
    stages, scores, found_paths = None, [], ()
    for u, readings in zip(data.u, data.readings, strict=True):
        seen = {"arm_encoder": readings[:, :1], "pend_encoder": readings[:, 1:]}
        recording = dataclasses.replace(_recording("run", data.time), inputs={"drive": u}, sensors=seen)
        setup = set_up(study, scene, [recording])
        stages = stages or setup.stages  # the same objects: nothing is compiled twice
        found = fit(setup.problem, stages, setup.start(), Settings())
        value, sd = natural(setup, found)
        found_paths = setup.model.shared.paths
        scores.append((value - np.array([data.truth[path] for path in found_paths])) / sd)
    covered = np.abs(np.array(scores)) < kept
    each = dict(zip(found_paths, np.mean(covered, axis=0), strict=True))
    assert 0.85 <= np.mean(covered) <= 0.95, each
    assert min(each.values()) >= 0.76, each
