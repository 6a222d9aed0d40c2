"""Single steps called from Python, one by one: mean, 99.9th percentile and worst time, the most pivots of a step."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spookax.constraints import prepare
from spookax.stepping import step

from . import peer
from .measure import Row, beside, compile_now, row
from .mechanisms import Mechanism, four_bar, furuta, swinging

PERCENT = 99.9


def run() -> list[Row]:
    """Rows of the three mechanisms."""
    cases = ((furuta(), 10_000), (four_bar(), 10_000), (swinging(64, coulomb=1e-3), 4000))
    return [line for mechanism, steps in cases for line in _rows(mechanism, steps)]


def _rows(mechanism: Mechanism, steps: int) -> list[Row]:
    case, controls = f"{mechanism.name}, single steps", mechanism.controls(1, steps)[0]
    ours, pivots = _one_by_one(mechanism, controls)
    theirs: dict[str, np.ndarray] = {}
    counts = [
        row(case, "pivots, the most in a step", float(pivots.max()), ""),
        row(case, "pivots, mean", float(pivots.mean()), ""),
    ]
    if peer.mujoco():
        mujoco = peer.Mujoco.of(mechanism)
        theirs[mujoco.label], iterations = mujoco.one_by_one(controls)
        counts.append(row(case, f"iterations, the most in a step, {mujoco.label}", float(iterations.max()), ""))
    quantities = {"mean": np.mean, f"{PERCENT} %": lambda t: np.percentile(t, PERCENT), "worst": np.max}
    rows: list[Row] = []
    for quantity, of in quantities.items():
        rows += beside(case, f"time of a step, {quantity}", "µs", of(ours), {k: of(t) for k, t in theirs.items()}, 1e6)
    return [*rows, *counts]


def _one_by_one(mechanism: Mechanism, controls: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Times [s] and pivots of single steps, warm; controls of shape (steps, motors)."""
    system, params, state = mechanism.load()
    prepared = prepare(system, params)

    def advance(state: Any, levels: Any, command: Any) -> Any:
        after, info = step(system, prepared, state, command, guess=levels)
        return after, info.levels, info.pivots

    levels, commands = jnp.zeros(len(system.boxes)), list(controls)
    call = compile_now(advance, state, levels, commands[0]).call
    jax.block_until_ready(call(state, levels, commands[0]))
    times, counts = np.zeros(len(commands)), []
    for k, command in enumerate(commands):
        began = time.perf_counter()
        state, levels, count = jax.block_until_ready(call(state, levels, command))
        times[k] = time.perf_counter() - began
        counts.append(count)
    return times, np.array(counts)
