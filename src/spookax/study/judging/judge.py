"""Whether a fit has failed, and why: what makes other starts be tried, and what an estimate says of its end."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from ..._results import ESTIMATE_RESULTS, STEP_RESULTS
from ...estimation.batch.problem import Fit
from ...estimation.batch.reading_weights import kept
from ..recordings.grid import Grid
from ..running.setup import Setup
from .density import Candidate, told

_FAILED_COST = 2.0  # times half the number of readings: more than any noise explains
_DROWNED = 0.5  # of a signal's standard deviation: a sensor noise that leaves nothing to explain
_MOVING = 10.0  # times the assumed noise: a signal that has something to explain
_NAMES = (
    "successful",
    "no_information",
    "iteration_limit",
    "no_progress",
    "stuck_at_start",
    "nonfinite",
    "step_failed",
    "local_minimum",
    "interrupted",
)


class Attempt(NamedTuple):
    """A start and what came of it. `failure`: why it is no answer, or empty."""

    fit: Fit
    candidates: list[Candidate]  # densities that were tried, the first with `fit` itself
    chosen: int
    failure: str


def failure(setup: Setup, fit: Fit, candidates: Sequence[Candidate], first_cost: float | None) -> str:
    """Why a fit is no answer, whatever it says itself; empty if nothing is against it.

    `first_cost`: before noise levels were made to explain it, where sensor noises are known.
    """
    for name in ("nonfinite", "stuck_at_start", "no_progress"):
        if fit.result == getattr(ESTIMATE_RESULTS, name):
            return {"no_progress": "it did not reach a minimum", "nonfinite": "its cost is no number"}.get(
                name, "it went nowhere"
            )
    readings = sum(float(np.sum(np.asarray(s.weight) > 0)) for s in setup.problem.samples)
    worst = max(fit.cost, first_cost or 0.0)
    if not np.isfinite(worst):
        return "its cost is no number"
    if worst > _FAILED_COST * readings / 2:
        return f"its cost is {worst / (readings / 2):.2g} times what the noise of the sensors explains"
    for sensor, share in _drowned(setup, fit):
        return f"the noise of {sensor} was found to be {100 * share:.0f} % of how much it moves"
    if candidates and not told(candidates):
        return "with no density of the process noise does it predict what was left out"
    return ""


def _drowned(setup: Setup, fit: Fit) -> Iterator[tuple[str, float]]:
    """Sensors whose noise was found to be most of their signal: name, ratio of standard deviations."""
    y = np.concatenate([np.asarray(s.y).reshape(-1, np.shape(s.y)[-1]) for s in setup.problem.samples])
    seen = [(np.asarray(s.weight) > 0) & kept(fit, i) for i, s in enumerate(setup.problem.samples)]
    seen = np.concatenate([there.reshape(-1, there.shape[-1]) for there in seen])
    found, names = np.asarray(fit.noise.sensor), setup.channels
    for i, name in enumerate(names):
        moves = float(np.std(y[seen[:, i], i])) if seen[:, i].any() else 0.0
        if moves > _MOVING * setup.sensor_sd[i] and found[i] > _DROWNED * moves:
            yield name, float(found[i] / moves)


def failed_steps(setup: Setup, fit: Fit) -> str:
    """A sentence about the steps along an estimate that the simulator did not solve; empty if it solved all."""
    for recording, grid, path in zip(setup.recordings, setup.grids, fit.iterate.paths, strict=True):
        if sentence := unsolved(recording.name, grid, path.result):
            return sentence
    return ""


def unsolved(name: str, grid: Grid, result: STEP_RESULTS) -> str:
    """A sentence about the steps of a recording that the simulator did not solve; empty if it solved all."""
    # what comes after the last reading only fills a block up
    steps = int(grid.step_of[-1]) + 1
    result = jax.tree.map(lambda a: np.asarray(a)[:steps], result)
    wrong = np.flatnonzero(np.asarray(result != STEP_RESULTS.successful))
    if not wrong.size:
        return ""
    first = jax.tree.map(lambda a: np.asarray(a[wrong[0]]), result)
    return (
        f"Recording {name}: {wrong.size} of {steps} steps were not solved, "
        f"the first at {grid.times[wrong[0]]:.6g} s. {STEP_RESULTS[first]}"
    )


def ending(setup: Setup, fit: Fit, *, interrupted: bool, failure: str, restarts: Callable[[], str]) -> tuple[str, str]:
    """Status and message of an estimate. The first cause counts, and what else is wrong is said beside it."""
    result, steps = fit.result, failed_steps(setup, fit)
    if interrupted:
        result = ESTIMATE_RESULTS.interrupted
    elif result == ESTIMATE_RESULTS.successful and failure:
        result = ESTIMATE_RESULTS.local_minimum
    elif result == ESTIMATE_RESULTS.successful and steps:
        result = ESTIMATE_RESULTS.step_failed
    name = next(name for name in _NAMES if result == getattr(ESTIMATE_RESULTS, name))
    message = [ESTIMATE_RESULTS[result], steps]
    if failure and not interrupted:
        message += [f"Why it counts as failed: {failure}.", restarts()]
    return {"successful": "converged"}.get(name, name), " ".join(part for part in message if part)
