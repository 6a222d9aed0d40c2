"""Policies trained on what recordings of a real rig say, tried on what other recordings of it say.

The driven recordings of `studies/furuta_odrive.yaml` are split in two, a sine and a step in each part, and both
parts are identified. Policies learn the swing-up (`benchmarks/learning.py`) on the estimate of the first part: on its
numbers alone, on its posterior, and evenly within 30 % around its numbers. They are tried on the numbers of the second
part, which no training has seen, on mechanisms drawn from its posterior and from that of the first, and on the scene as
it ships.

Estimates and policies are kept under build/benchmarks/transfer and not made again while they are there; a training that
was interrupted goes on.
"""

import dataclasses
from collections.abc import Iterator

import jax
import numpy as np
from scipy.stats import binomtest

import spookax as sx
from spookax.study.file.against_scene import sensor_dimensions
from spookax.study.identifying.estimate import Estimate

from .furuta import STUDY, without
from .learning import LAST, SCHEDULE, TRAINED, TRIED
from .measure import OUT, Row, row

PARTS = {  # the recording of another year is in neither: it commands another motor, and torque
    "first": ("sin_1V", "step_4V"),
    "second": ("sin_4V", "step_2V"),
}
ELSEWHERE = "drive_2023"
EPISODES, SEEDS = 200, 3
SHARE = 0.3
LONGER = dataclasses.replace(SCHEDULE, iterations=4 * SCHEDULE.iterations)  # a lighter arm than the shipped one's
KEPT = OUT / "transfer"


def run() -> list[Row]:
    """How far the two estimates disagree, and the part of the episodes in which each policy succeeds."""
    found = {part: _estimate(part) for part in PARTS}
    rows = list(_disagreement(found["first"], found["second"]))
    jax.config.update("jax_enable_x64", False)  # as trainings are by default
    return rows + list(_tried(found))


def _estimate(part: str) -> Estimate:
    """What a part of the recordings says, from its folder or identified."""
    if (KEPT / part / "estimate.json").exists():
        return sx.load_estimate(KEPT / part)
    study = sx.load_study(STUDY)
    scene = sx.read_scene(study.scene_path)
    recordings = sx.read_recordings(study, sensor_dimensions(scene))
    chosen = [i for i, recording in enumerate(recordings) if recording.name in PARTS[part]]
    known = study.model_copy(
        update={
            "recordings": [study.recordings[i] for i in chosen],
            "parameters": without(study.parameters, ELSEWHERE),
        }
    )
    estimate = sx.identify(known, recordings=[recordings[i] for i in chosen], scene=scene)
    if estimate.status != "converged":
        raise RuntimeError(f"{part} part: {estimate.status}. {estimate.message}")
    estimate.save(KEPT / part)
    return estimate


def _disagreement(first: Estimate, second: Estimate) -> Iterator[Row]:
    """How far apart the parts find each parameter, over the standard deviation of the difference."""
    for path, here in first.parameters.items():
        there = second.parameters[path]
        told = ", ".join(f"{found['value']:.4g} ± {found['sd']:.1g}" for found in (here, there))
        apart = (there["value"] - here["value"]) / float(np.hypot(here["sd"], there["sd"]))
        yield row(path, f"{told}: apart, over their sd", apart, "")


def _tried(found: dict[str, Estimate]) -> Iterator[Row]:
    """Part of the episodes that end upright, for every policy and every set of mechanisms."""
    first, second = found["first"], found["second"]
    assert first.scene is not None
    assert second.scene is not None
    trainings = {
        "numbers": sx.envs.Posterior(first, factor=0),  # one program with the next
        "posterior": sx.envs.Posterior(first),
        "uniform": sx.envs.Uniform(dict.fromkeys(first.parameters, SHARE)),
    }
    trials = {
        "numbers of the second part": sx.envs.make(
            TRIED, scene=second.scene, randomise=sx.envs.Posterior(second, factor=0)
        ),
        "posterior of the second part": sx.envs.make(TRIED, scene=second.scene, randomise=second),
        "posterior of the first part": sx.envs.make(TRIED, scene=first.scene, randomise=first),
        "scene as it ships": sx.envs.make(TRIED),
    }
    envs = {name: sx.envs.make(TRAINED, scene=first.scene, randomise=how) for name, how in trainings.items()}
    for seed in range(SEEDS):
        for name, env in envs.items():
            policy = _policy(env, name, seed)
            for mechanisms, trial in trials.items():
                played = sx.envs.play(trial, policy, jax.random.split(jax.random.PRNGKey(1000), EPISODES))
                good = int(sx.envs.steady_success(played, round(LAST / trial.control_period)).sum())
                low, high = binomtest(good, EPISODES).proportion_ci()  # Clopper and Pearson's, 95 %
                quantity = f"{mechanisms} ({100 * low:.1f} to {100 * high:.1f})"
                told = row(f"{name}, seed {seed}", quantity, 100 * good / EPISODES, "%")
                print(told, flush=True)
                yield told


def _policy(env: sx.envs.Environment, name: str, seed: int) -> sx.envs.Policy:
    """A policy from its file, or learned."""
    file = KEPT / f"{name}-{seed}.policy"
    if not file.exists():
        learned = sx.envs.learn(env, LONGER, key=jax.random.PRNGKey(seed), keep=file.with_suffix(".training"))
        if learned.ended == "interrupted":  # to go on another time
            raise KeyboardInterrupt
        learned.policy.save(file, env)
    return sx.envs.load_policy(file, env)
