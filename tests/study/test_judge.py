"""How an estimate ended, in a status and a message: each cause has its own, and none hides another."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spookax._results import ESTIMATE_RESULTS, STEP_RESULTS
from spookax.study.judging.judge import ending, failed_steps, failure

STEPS = 6


def setup(signal: float = 1.0) -> Any:
    """One recording of one sensor with a noise of 0.01, five of whose six steps are read."""
    y = signal * np.sin(np.arange(STEPS, dtype=float)).reshape(STEPS, 1, 1)
    return SimpleNamespace(
        recordings=(SimpleNamespace(name="run"),),
        grids=(SimpleNamespace(step_of=np.arange(STEPS - 1), times=0.1 * np.arange(STEPS + 1)),),
        problem=SimpleNamespace(samples=(SimpleNamespace(y=y, weight=np.ones_like(y)),)),
        channels=["encoder"],
        sensor_sd=np.array([0.01]),
    )


def fit(result: Any = ESTIMATE_RESULTS.successful, cost: float = 3.0, sd: float = 0.01, bad: int | None = None) -> Any:
    """`bad`: a step that the simulator did not solve."""
    wrong = jnp.arange(STEPS) == (-1 if bad is None else bad)
    steps = jax.vmap(lambda w: STEP_RESULTS.where(w, STEP_RESULTS.pivot_limit, STEP_RESULTS.successful))(wrong)
    paths = (SimpleNamespace(result=steps),)
    noise, weights = SimpleNamespace(sensor=np.array([sd])), (np.ones((STEPS, 1, 1)),)
    iterate = SimpleNamespace(paths=paths)
    return SimpleNamespace(result=result, cost=cost, noise=noise, iterate=iterate, root_weights=weights)


def end(fit: Any, failure: str = "", interrupted: bool = False) -> tuple[str, str]:
    return ending(
        setup(), fit, interrupted=interrupted, failure=failure, restarts=lambda: "No other starts were tried."
    )


def candidate(score: float) -> Any:
    return SimpleNamespace(score=np.full(5, score))


@pytest.mark.parametrize(
    ("found", "candidates", "first_cost", "why"),
    [
        (fit(), [], None, ""),
        (fit(), [candidate(0.2), candidate(0.9)], None, ""),
        (fit(ESTIMATE_RESULTS.iteration_limit), [], None, ""),
        (fit(ESTIMATE_RESULTS.stuck_at_start), [], None, "went nowhere"),
        (fit(ESTIMATE_RESULTS.no_progress), [], None, "did not reach a minimum"),
        (fit(ESTIMATE_RESULTS.nonfinite, cost=np.nan), [], None, "no number"),
        (fit(cost=30.0), [], None, "10 times what the noise"),
        (fit(), [], 30.0, "10 times what the noise"),
        (fit(sd=0.6), [], None, "encoder was found to be"),
        (fit(), [candidate(0.9), candidate(0.6)], None, "predict what was left out"),
    ],
)
def test_a_failure_has_a_cause(found, candidates, first_cost, why):
    said = failure(setup(), found, candidates, first_cost)
    assert why in said
    assert bool(why) == bool(said)


def test_noise_of_a_sensor_that_rests_is_no_failure():
    """Its signal is noise."""
    assert not failure(setup(signal=0.01), fit(sd=0.01), [], None)


def test_the_first_step_that_failed_is_named():
    assert failed_steps(setup(), fit()) == ""
    assert failed_steps(setup(), fit(bad=STEPS - 1)) == "", "after the last reading"
    said = failed_steps(setup(), fit(bad=2))
    assert "Recording run: 1 of 5 steps were not solved, the first at 0.2 s." in said
    assert STEP_RESULTS[STEP_RESULTS.pivot_limit] in said


@pytest.mark.parametrize(
    ("found", "failure", "interrupted", "status", "parts"),
    [
        (fit(), "", False, "converged", []),
        (fit(), "its cost is high", False, "local_minimum", ["its cost is high", "No other starts"]),
        (fit(bad=2), "", False, "step_failed", ["steps were not solved"]),
        (fit(bad=2), "its cost is high", False, "local_minimum", ["steps were not solved", "its cost is high"]),
        (
            fit(ESTIMATE_RESULTS.nonfinite, bad=2),
            "its cost is no number",
            False,
            "nonfinite",
            ["steps were not solved"],
        ),
        (fit(ESTIMATE_RESULTS.iteration_limit), "", False, "iteration_limit", ["max_iterations"]),
        (fit(ESTIMATE_RESULTS.iteration_limit), "its cost is high", False, "iteration_limit", ["its cost is high"]),
        (fit(ESTIMATE_RESULTS.stuck_at_start), "it went nowhere", False, "stuck_at_start", ["No other starts"]),
        (fit(ESTIMATE_RESULTS.no_information), "", False, "no_information", ["standard deviation is infinite"]),
        (fit(), "its cost is high", True, "interrupted", ["--resume"]),
    ],
)
def test_each_cause_is_a_status_of_its_own(found, failure, interrupted, status, parts):
    name, message = end(found, failure, interrupted)
    assert name == status
    assert all(part in message for part in parts)
