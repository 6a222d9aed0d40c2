"""Where a mass slides for sure, and with what force: what laws of friction are fitted to."""

from typing import NamedTuple

import numpy as np

from spookax._typing import Bool, Float, Int

SURE = 0.9
"""Probability of a regime that is taken for sure."""
_CREEPS = 0.1  # of the rms speed


class Points(NamedTuple):
    """Samples of sliding: speed [m/s], force against the motion and its standard deviation [N], phase of sliding."""

    speed: Float[np.ndarray, " p"]
    force: Float[np.ndarray, " p"]
    sd: Float[np.ndarray, " p"]
    phase: Float[np.ndarray, " p"]


def sliding_points(
    x: Float[np.ndarray, "k 3"], sd: Float[np.ndarray, "k 3"], probability: Float[np.ndarray, "k 3"]
) -> tuple[Points, Float[np.ndarray, " p"]]:
    """Where the mass slides for sure, and is faster than three standard deviations of its velocity; their places.

    The samples next to a jump are left out: the force there is that of either side. So are phases that are nowhere as
    fast as a tenth of the rms speed: in them a contact creeps before it slides.
    """
    v, f = x[:, 1], x[:, 2]
    slides = (probability[:, 0] > SURE) & (np.abs(v) > 3.0 * sd[:, 1])
    near = probability[:, 2] > 1.0 - SURE
    near |= np.roll(near, 1) | np.roll(near, -1)
    phase, fast = phases(v, slides)
    at = np.flatnonzero(slides & ~near & fast)
    direction = np.sign(v)
    return Points(np.abs(v[at]), f[at] * direction[at], sd[at, 2], phase[at]), at


def phases(
    v: Float[np.ndarray, " k"], slides: Bool[np.ndarray, " k"]
) -> tuple[Int[np.ndarray, " k"], Bool[np.ndarray, " k"]]:
    """The number of the phase that each sample belongs to, and whether that is one of sliding and not of creep."""
    direction = np.sign(v)
    phase = np.cumsum(np.concatenate([[False], (direction[1:] != direction[:-1]) | ~slides[1:] & slides[:-1]]))
    fastest = np.zeros(phase[-1] + 1)
    np.maximum.at(fastest, phase, np.abs(v))
    return phase, fastest[phase] > _CREEPS * np.sqrt(np.mean(v**2))
