"""Standard deviations that do not take the innovations for white: the sandwich form.

At the optimum a parameter moves by psi_k = (N^-1 s_k)_i for the score s_k = -S_k' F_k^-1 nu_k of step k. Its variance
is that of the sum over k: where innovations are white with the covariance F_k it is (N^-1)_ii, and where the model
lacks something they are not, and neighbouring psi_k add up. The long-run variance sums their autocovariances over a
window of five correlation times.

**Source:** White (1982), maximum likelihood estimation of misspecified models; Newey and West (1987) for correlated
scores; Sokal (1997) for the window.
"""

from collections.abc import Sequence

import numpy as np

from ..._typing import Float
from .problem import Fit, Part, Problem

_TIMES = 5.0  # correlation times that the window has at least
_LONGEST = 1 / 3  # window, of the shortest recording


def spread_factors(problem: Problem, fit: Fit) -> Float[np.ndarray, " p"]:
    """Standard deviation of every shared parameter z in the sandwich form over that of the linearisation, at least 1.

    One for parameters whose standard deviation is zero or infinite, and for forms without sweeps.
    """
    sd = np.sqrt(np.diag(fit.covariance))
    factors, known = np.ones(len(sd)), np.isfinite(sd) & (sd > 0)
    if not (fit.parts and known.any()):
        return factors
    covariance = np.where(np.isfinite(fit.covariance), fit.covariance, 0.0)
    moves = [_scores(problem, part, len(sd)) @ covariance for part in fit.parts]
    for i in np.flatnonzero(known):
        variance = long_run_variance([move[:, i] for move in moves])
        factors[i] = max(1.0, float(np.sqrt(variance)) / sd[i])
    return factors


def _scores(problem: Problem, part: Part, count: int) -> Float[np.ndarray, "steps p"]:
    """Of every step in the shared parameters, those of the recording itself following."""
    score = np.concatenate([np.einsum("kcp,kc->kp", np.asarray(f.Fi_S), np.asarray(f.nu)) for f in part.f])
    corner = np.asarray(part.N)[count:, count:] + np.diag(problem.own_weight**2)
    return score[:, :count] - score[:, count:] @ np.linalg.solve(corner, np.asarray(part.N)[count:, :count])


def long_run_variance(series: Sequence[Float[np.ndarray, " steps"]]) -> float:
    """Variance of the sum of all numbers of some series that do not depend on one another, each about its mean."""
    longest = max(1, int(_LONGEST * min(map(len, series))))
    covariance = np.zeros(longest)
    for values in series:
        a = values - np.mean(values)
        size = 1 << (2 * len(a) - 1).bit_length()
        covariance += np.fft.irfft(np.abs(np.fft.rfft(a, size)) ** 2, size)[:longest]
    if not covariance[0] > 0:
        return 0.0
    times = np.cumsum(np.concatenate([[1.0], 2 * covariance[1:] / covariance[0]]))
    enough = np.flatnonzero(np.arange(longest) >= _TIMES * times)
    window = enough[0] if enough.size else int(np.argmax(times))
    return float(covariance[0] * max(times[window], 1.0))
