"""Single steps called from Python by `sx.Simulator`, one by one, beside MuJoCo's `mj_step`: mean, median, 99.9th
percentile and worst time, the time to compile, the most pivots of a step.
"""

import time

import numpy as np

import spookax as sx

from . import peer
from .measure import Row, beside, row
from .mechanisms import Mechanism, four_bar, furuta, repeated, swinging

PERCENT = 99.9
WARM = 500  # steps before those that count
BATCH, BATCH_STEPS = 256, 2000
QUANTITIES = {
    "mean": np.mean,
    "median": np.median,
    f"{PERCENT} %": lambda times: np.percentile(times, PERCENT),
    "worst": np.max,
}


def run() -> list[Row]:
    """Rows of the three mechanisms, and of a batch."""
    sx.enable_inline_calls()
    cases = ((furuta(), 20_000), (four_bar(), 20_000), (swinging(64, coulomb=1e-3), 4000))
    return [*(line for mechanism, steps in cases for line in _rows(mechanism, steps)), *_batch(furuta())]


def _rows(mechanism: Mechanism, steps: int) -> list[Row]:
    case, controls = f"{mechanism.name}, single steps", mechanism.controls(1, WARM + steps)[0]
    system, params, state = mechanism.load()
    seconds, ours = _one_by_one(system, params, state, controls)
    pivots = np.asarray(sx.rollout(system, params, state, controls).pivots)
    theirs: dict[str, np.ndarray] = {}
    counts = [
        row(case, "make the simulator, compile", seconds, "s"),
        row(case, "pivots, the most in a step", float(pivots.max()), ""),
        row(case, "pivots, mean", float(pivots.mean()), ""),
    ]
    if peer.mujoco():
        mujoco = peer.Mujoco.of(mechanism)
        times, iterations = mujoco.one_by_one(controls)
        theirs[mujoco.label] = times[WARM:]
        counts.append(row(case, f"iterations, the most in a step, {mujoco.label}", float(iterations.max()), ""))
    return [*_times(case, ours, theirs), *counts]


def _batch(mechanism: Mechanism) -> list[Row]:
    case, controls = f"{mechanism.name}, {BATCH} environments", mechanism.controls(BATCH, WARM + BATCH_STEPS)
    system, params, state = mechanism.load()
    seconds, ours = _one_by_one(system, params, repeated(state, BATCH), np.swapaxes(controls, 0, 1))
    throughput = row(case, "throughput", BATCH / float(np.mean(ours)), "steps/s")
    return [*_times(case, ours, {}), throughput, row(case, "make the simulator, compile", seconds, "s")]


def _times(case: str, ours: np.ndarray, theirs: dict[str, np.ndarray]) -> list[Row]:
    return [
        line
        for quantity, of in QUANTITIES.items()
        for line in beside(
            case, f"time of a call, {quantity}", "µs", of(ours), {k: of(t) for k, t in theirs.items()}, 1e6
        )
    ]


def _one_by_one(
    system: sx.System, params: sx.Params, state: sx.State, controls: np.ndarray
) -> tuple[float, np.ndarray]:
    """Time to make a simulator and times of its single steps, warm [s]; leading axis of `controls`: steps."""
    began = time.perf_counter()
    simulator = sx.Simulator(system, params, state)
    seconds = time.perf_counter() - began
    times = np.zeros(len(controls))
    for k, command in enumerate(controls):
        began = time.perf_counter()
        simulator.step(command)
        times[k] = time.perf_counter() - began
    return seconds, times[WARM:]
