"""Columns of a recording whose stamps are shifted: what they say at the recording's own stamps."""

import numpy as np
from jaxtyping import Float, Int

Values = Float[np.ndarray, " n"]

_HALF = 0.505  # of the usual distance of samples, and a little more: as near as that is the same time
_SAME = 1e-9  # times that count as equal [s]


def held(values: Values, clock: Values, shift: float) -> Values:
    """Of a command that holds from each stamp to the next the value at every stamp: that of the sample which is nearest
    in time, in a gap that of the last one before. NaN where none is known, at one end.
    """
    nearest, off, usual = _nearest(clock, shift)
    before = np.searchsorted(clock + shift, clock, side="right") - 1
    found = values[np.where(off <= _HALF * usual, nearest, np.maximum(before, 0))]
    known = (clock >= clock[0] + shift - _HALF * usual) & (clock <= clock[-1] + shift + _HALF * usual)
    return np.where(known, found, np.nan)


def read(readings: Values, clock: Values, shift: float) -> Values:
    """Of readings each at the stamp that is nearest to it, within half a sample; NaN where there is none."""
    nearest, off, usual = _nearest(clock, shift)
    found = np.where(off <= _HALF * usual, readings[nearest], np.nan)
    # stamps that are closer than usual may have the same reading nearest to them: it is one
    order = np.lexsort((off, nearest))
    again = np.zeros(clock.size, dtype=bool)
    again[order[1:]] = nearest[order[1:]] == nearest[order[:-1]]
    return np.where(again, np.nan, found)


def _nearest(clock: Values, shift: float) -> tuple[Int[np.ndarray, " n"], Values, float]:
    """For every stamp the sample that is nearest once shifted, of two that are as near the earlier one; how far off it
    is; and the usual distance of samples [s].
    """
    moved = clock + shift
    after = np.clip(np.searchsorted(moved, clock), 1, clock.size - 1)
    nearest = np.where(clock - moved[after - 1] <= moved[after] - clock + _SAME, after - 1, after)
    return nearest, np.abs(moved[nearest] - clock), float(np.median(np.diff(clock)))
