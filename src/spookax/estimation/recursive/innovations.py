"""What the innovations of a filter say about its model: tests, and faults.

Where model and noise levels are right, the whitened innovations are white with unit variance, and their sum of squares
in a step is chi-squared. Which of that fails says what is wrong: the size of the noise (`nis`), the model (whiteness),
or a single sensor at a single time (`faults`).
"""

import dataclasses

import numpy as np
from scipy import special

from ..._typing import AnyArray, Float
from .every_filter import Innovation


@dataclasses.dataclass(frozen=True)
class InnovationTests:
    """Tests of the hypothesis that model and noise levels are right; small p-values speak against it."""

    nis: float  # mean normalised innovation squared per reading: 1; larger where noise is underrated
    nis_p: float  # of its sum, two-sided
    whiteness: np.ndarray  # (c,) Ljung-Box statistics of every place in a step's readings, NaN where hardly seen
    whiteness_p: np.ndarray  # (c,)
    lags: int

    def passed(self, level: float = 0.01) -> bool:
        """Whether no test refuses at this level, with Bonferroni's correction for their number."""
        p = np.append(self.whiteness_p[np.isfinite(self.whiteness_p)], self.nis_p)
        return bool(np.all(p >= level / len(p)))


def innovation_tests(innovation: Innovation, lags: int = 20, skip: int = 0) -> InnovationTests:
    """Size and whiteness of the innovations of a recording; readings that the gate kept out do not count.

    `skip`: steps at the start to leave out, where the prior still shows.

    **Source:** Bar-Shalom, Li, Kirubarajan (2001), chapter 5.4; Ljung and Box (1978).
    """
    used = np.asarray(innovation.accepted)[skip:] > 0
    white = np.where(used[:, None], np.asarray(innovation.whitened)[skip:], 0.0)
    size = np.where(used, np.asarray(innovation.size)[skip:], 0.0)
    total, count = float(np.sum(white**2)), float(size.sum())
    tail = special.chdtr(count, total) if count else np.nan
    p = 2 * min(tail, 1 - tail) if count else np.nan
    found = [ljung_box(column, lags) for column in white.T]
    Q, Q_p = (np.array(a) for a in zip(*found, strict=True))
    return InnovationTests(total / max(count, 1.0), float(p), Q, Q_p, lags)


def ljung_box(e: np.ndarray, lags: int) -> tuple[float, float]:
    """Statistic of Ljung and Box up to some lag, and its p-value; readings that are missing are zero and carry no
    product. NaN where fewer than three readings for every lag are there.
    """
    there = e != 0
    n = there.sum()
    if n < 3 * lags:
        return np.nan, np.nan
    variance = np.sum(e**2) / n
    Q, used = 0.0, 0
    for lag in range(1, lags + 1):
        pairs = np.sum(there[lag:] & there[:-lag])
        if pairs:  # standardised by the pairs there are
            Q += np.sum(e[lag:] * e[:-lag]) ** 2 / (pairs * variance**2)
            used += 1
    return float(Q), float(special.chdtrc(used, Q))


def gate_of(channels: int, probability: float = 1e-4) -> float:
    """The value that `nis` of so many readings exceeds with this probability; the `gate` of a filter."""
    return float(special.chdtri(channels, probability))


def faults(innovation: Innovation, probability: float = 1e-4) -> Float[AnyArray, " steps"]:
    """Whether the readings of a step are less probable than this, given those before (a jump, an outlier, a fault)."""
    size = np.asarray(innovation.size)
    limit = special.chdtri(np.maximum(size, 1), probability)
    return (np.asarray(innovation.nis) > limit) & (size > 0)
