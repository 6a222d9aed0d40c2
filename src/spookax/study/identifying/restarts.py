"""Other starts, for when the first one has failed, and what attempts are compared by."""

import numpy as np

from ...estimation.batch.reading_weights import counts, price
from ..judging.judge import Attempt
from ..running.setup import Setup

_SPREAD = np.log(3.0)  # of restarts, in z


def other_starts(setup: Setup, count: int) -> list[np.ndarray]:
    """z of starts with each parameter times or divided by up to three; those that start at zero within their scale."""
    p = setup.problem
    free = setup.model.shared.free
    linear = np.array([f.transform in ("identity", "moments") for f in free for _ in range(f.size)], dtype=bool)
    draws = np.random.default_rng(0).uniform(-_SPREAD, _SPREAD, (count, p.z0.size))
    there = np.where(linear & (p.z0 != 0), p.z0 * np.exp(draws), p.z0 + draws)
    return [np.clip(z, p.lower, p.upper) for z in there]


def surprise(found: Attempt, setup: Setup) -> float:
    """What attempts are compared by: how they predict, where that was tried; else -log evidence, up to constants."""
    if found.candidates:
        return float(np.exp(np.mean(np.log(found.candidates[found.chosen].score))))
    fit = found.fit
    pairs = list(zip(setup.problem.samples, fit.root_weights, strict=True))
    seen = sum(counts(np.asarray(samples.weight), root) for samples, root in pairs)
    value = fit.cost + fit.log_det / 2 + float(seen @ np.log(np.asarray(fit.noise.sensor)))
    value += price(setup.outliers, fit.root_weights)
    return value if np.isfinite(value) else np.inf
