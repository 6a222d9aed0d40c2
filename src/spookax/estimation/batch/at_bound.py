"""What is known of parameters that end at a bound: a Gaussian cut off there, on one side."""

from typing import NamedTuple

import numpy as np
import scipy.special

from ..._typing import Float

LEVEL = 0.95
"""Probability of the one-sided intervals."""


class CutOff(NamedTuple):
    """Distance t >= 0 from the bound."""

    rms: Float[np.ndarray, " b"]  # root of the mean of t^2
    reach: Float[np.ndarray, " b"]  # t is smaller with probability `LEVEL`


def cut_off(
    slope: Float[np.ndarray, " b"], curvature: Float[np.ndarray, " b"], width: Float[np.ndarray, " b"]
) -> CutOff:
    """Of the densities exp(-slope t - curvature t^2 / 2) on 0 <= t.

    `slope` >= 0, `curvature` >= 0: of the cost, away from the bound; `width`: distance of the other bound, which
    neither number exceeds.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        sd = 1 / np.sqrt(curvature)
        a = slope * sd  # in standard deviations: t / sd + a is normal, cut off at a
        mills = np.sqrt(2 / np.pi) / scipy.special.erfcx(a / np.sqrt(2))
        # 1 + a^2 - a mills loses its digits to rounding where it tends to 2 / a^2, the mean square of an exponential
        square = np.where(a < 1e3, 1 + a**2 - a * mills, 2 / a**2)
        tail = np.log1p(-LEVEL) + scipy.special.log_ndtr(-a)
        reach = np.where(a < 1e3, -scipy.special.ndtri_exp(tail) - a, -np.log1p(-LEVEL) / a)
        exponential = curvature <= 1e-12 * slope**2
        rms = np.where(exponential, np.sqrt(2) / slope, sd * np.sqrt(square))
        reach = np.where(exponential, -np.log1p(-LEVEL) / slope, sd * reach)
    unlimited = (slope == 0) & (curvature == 0)
    return CutOff(*(np.minimum(np.where(unlimited, np.inf, t), width) for t in (rms, reach)))
