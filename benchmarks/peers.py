"""The package beside MuJoCo, MJX and, on chains, Pinocchio, Drake and exudyn in one run: speed, compile times,
gradients, accuracy.
"""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import spookax as sx

from . import peer, peers_accuracy, peers_gradients
from .measure import Row, Times, beside, compile_now, row, timed
from .mechanisms import Mechanism, four_bar, furuta, repeated, swinging
from .peers_engines import ENGINES, engines

BATCHES = {"furuta": ((256, 100), (4096, 20))}  # environments, steps
WITH_MJX = ("furuta", "four_bar", "chain of 4")
WITH_ENGINES = ("chain of 4", "chain of 16", "chain of 64")
BUDGET = 1.5  # for the repetitions of one call [s]


def run(part: str = "") -> list[Row]:
    """Rows of all comparisons, or of one of `PARTS`; for a peer that is not installed one that says so."""
    rows: list[Row] = [{"case": "all", "quantity": f"beside {label}", "unit": "not installed"} for label in absent()]
    return [*rows, *(line for name, rows_of in PARTS.items() if part in ("", name) for line in rows_of())]


def speed() -> list[Row]:
    """Rows of all mechanisms."""
    mechanisms = (furuta(), four_bar(), *(swinging(links) for links in (4, 16, 64, 256)))
    return [line for mechanism in mechanisms for line in _speed(mechanism)]


PARTS = {"speed": speed, "gradients": peers_gradients.run, "accuracy": peers_accuracy.run}


def absent() -> list[str]:
    """The peers that are not installed."""
    there = {"MuJoCo": peer.mujoco(), "MJX": peer.mjx()} | {x: peer.module(name) for x, (name, _) in ENGINES.items()}
    return [label for label, module in there.items() if not module]


def _speed(mechanism: Mechanism) -> list[Row]:
    """Rows of one mechanism: a rollout alone, the time to compile it, batches."""
    name, (system, params, state) = mechanism.name, mechanism.load()

    def rollout(params: sx.Params, state: sx.State, controls: Any) -> sx.Trajectory:
        return sx.rollout(system, params, state, controls, throw=False)

    mujoco = peer.Mujoco.of(mechanism) if peer.mujoco() else None
    mjx = peer.Mjx.of(mujoco) if mujoco and peer.mjx() and name in WITH_MJX else None
    controls = jnp.asarray(mechanism.controls(1, mechanism.steps)[0])
    compiled = compile_now(rollout, params, state, controls)
    trajectory = compiled.call(params, state, controls)
    assert int(trajectory.failed_step) < 0, f"{name}: a step failed"
    ours = timed(lambda: compiled.call(params, state, controls), BUDGET).best
    theirs: dict[str, float] = {}
    their_compile: dict[str, float] = {}
    others: list[Row] = []
    if mujoco:
        theirs[mujoco.label] = timed(lambda: mujoco.rollout(np.asarray(controls)[None]), BUDGET).best
        others.append(_apart(mechanism, trajectory, mujoco))
    if mjx:
        other = compile_now(mjx.rollout, mjx.model, mjx.data, controls)
        theirs[mjx.label] = timed(lambda: other.call(mjx.model, mjx.data, controls), BUDGET).best
        their_compile[mjx.label] = other.seconds
    elif peer.mjx():
        others.append({"case": name, "quantity": "step in a rollout, MJX", "unit": "left out: long to compile"})
    if name in WITH_ENGINES:
        for engine in engines(mechanism):
            theirs[engine.label] = timed(lambda engine=engine: engine.run(mechanism.steps), BUDGET).best
    return [
        *beside(name, "step in a rollout", "µs", ours, theirs, 1e6 / mechanism.steps),
        *beside(name, "compile the rollout", "s", compiled.seconds, their_compile),
        *others,
        *(line for n, steps in BATCHES.get(name, ()) for line in _batch(mechanism, n, steps, mujoco, mjx)),
    ]


def _batch(mechanism: Mechanism, size: int, steps: int, mujoco: peer.Mujoco | None, mjx: peer.Mjx | None) -> list[Row]:
    """Rows of `size` environments at once on all threads of the computer."""
    system, params, state = mechanism.load()
    states, controls = repeated(state, size), jnp.asarray(mechanism.controls(size, steps))
    began = time.perf_counter()
    jax.block_until_ready(sx.rollouts(system, params, states, controls, throw=False))
    first = time.perf_counter() - began
    ours = timed(lambda: sx.rollouts(system, params, states, controls, throw=False), BUDGET)
    theirs: dict[str, Times] = {}
    their_compile: dict[str, float] = {}
    if mujoco:
        inputs = np.asarray(controls)
        theirs[mujoco.label] = timed(lambda: mujoco.rollout(inputs, peer.all_threads()), BUDGET)
    if mjx:
        data = repeated(mjx.data, size)
        other = compile_now(jax.vmap(mjx.rollout, in_axes=(None, 0, 0)), mjx.model, data, controls)
        theirs[mjx.label] = timed(lambda: other.call(mjx.model, data, controls), BUDGET)
        their_compile[mjx.label] = other.seconds
    case, done = f"{mechanism.name}, batch of {size}", size * steps
    processor = {label: times.processor for label, times in theirs.items()}
    return [
        *beside(case, "throughput", "steps/s", done / ours.best, {k: done / t.best for k, t in theirs.items()}),
        *beside(case, "step, processor time of all threads", "µs", ours.processor, processor, 1e6 / done),
        *beside(case, "compile", "s", first - ours.best, their_compile),
    ]


def _apart(mechanism: Mechanism, trajectory: sx.Trajectory, mujoco: peer.Mujoco) -> Row:
    """RMS difference of the angles from MuJoCo's over the first second, or what is simulated of it."""
    h = mechanism.scene.step
    steps = min(mechanism.steps, round(1 / h))
    theirs = mujoco.rollout(mechanism.controls(1, steps))[0][0]
    ours = np.stack([trajectory.joint(joint)[0][1 : steps + 1] for joint in mujoco.joints()], axis=1)
    rms = float(np.sqrt(np.mean((ours - theirs) ** 2)))
    return row(mechanism.name, f"RMS difference of angles, first {steps * h:g} s", rms, "rad")
