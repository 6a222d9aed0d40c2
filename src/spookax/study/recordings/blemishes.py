"""What is wrong with a recording at sight: lines that are missing, a channel that sits on its end, outliers."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .recording import Recording

_GAP = 3.0  # usual distances of samples: a longer one is a gap
_REGULAR = 1.5  # usual distances that nine of ten samples keep: else gaps are how the recording was made
_LINES = 5.0  # lost samples that are worth a word
_SITS = 4  # samples in a row with the same extreme value
_TIMES = 2  # that a channel went to its end and sat there at speed
_AT_SPEED = 2.0  # times what a motion that turns round goes in three samples
_EQUAL = 0.1  # of neighbours: where fewer are equal, noise tells that a channel that rests is clipped
_SPIKE = 8.0  # robust standard deviations that a reading lies off its neighbours
_SPIKES = 2  # that are worth a word
_NEVER = 0.05  # of all readings: what is more frequent is no outlier


class Blemish(NamedTuple):
    """`kind`: gaps, saturation or outliers; `where`: sensor, or empty for all; `times`, and the sentence about it."""

    kind: str
    where: str
    times: float
    text: str


def blemishes(recording: Recording) -> Iterator[Blemish]:
    """All that a recording shows before anything is fitted."""
    lost = _lost(recording.time)
    if lost is not None:
        count, longest, at = lost
        text = f"about {count:.0f} lines are missing, the longest gap is {longest:.3g} s at {at:.4g} s"
        if recording.inputs:
            text += "; inputs that changed there are lost"
        yield Blemish("gaps", "", count, text)
    for name, readings in recording.sensors.items():
        for value in readings.T:
            there = np.isfinite(value)
            if there.sum() < 20:
                continue
            time, value = recording.time[there], value[there]
            if lost is None and (own := _lost(time)) is not None:
                text = f"about {own[0]:.0f} samples are missing, the longest gap is {own[1]:.3g} s at {own[2]:.4g} s"
                yield Blemish("gaps", name, own[0], text)
            clipped = False
            for end in (float(value.max()), float(value.min())):
                if times := _sits(value, end):
                    clipped = True
                    often = f"{times} times" if times > 1 else "once"
                    yield Blemish("saturation", name, times, f"it sits on {end:.4g} {often}")
            if clipped:  # its edges are no outliers
                continue
            spikes = _spikes(time, value)
            if spikes.size:
                first = ", ".join(f"{t:.4g}" for t in time[spikes[:3]])
                more = " s and others" if spikes.size > 3 else " s"
                text = f"{spikes.size} readings lie far off their neighbours, at {first}{more}"
                yield Blemish("outliers", name, float(spikes.size), text)


def _lost(time: np.ndarray) -> tuple[float, float, float] | None:
    """How many samples are missing in gaps, the longest gap [s] and where it begins [s]; None if few are."""
    apart = np.diff(time)
    if apart.size < 10:
        return None
    usual = float(np.median(apart))
    if np.mean(apart < _REGULAR * usual) < 0.9:
        return None
    gaps = np.flatnonzero(apart > _GAP * usual)
    count = float(np.sum(apart[gaps] / usual - 1))
    if count < _LINES:
        return None
    longest = gaps[np.argmax(apart[gaps])]
    return count, float(apart[longest]), float(time[longest])


def _sits(value: np.ndarray, end: float) -> int:
    """How often a channel sits on exactly its end without noise, or comes to it and leaves it at speed."""
    at = np.flatnonzero(np.diff(np.concatenate([[0], (value == end).astype(int), [0]])))
    steps = np.diff(np.unique(value))
    finest = float(steps.min()) if steps.size else 0.0
    equal = np.diff(value[(value != value.max()) & (value != value.min())]) == 0
    noisy = equal.size > 0 and float(np.mean(equal)) < _EQUAL
    found = 0
    for begin, stop in at.reshape(-1, 2):
        if stop - begin < _SITS or begin < 3 or stop > len(value) - 3:
            continue
        before, behind = np.abs(value[begin - 3] - end), np.abs(value[stop + 2] - end)
        # a motion that turns round there, read in steps, stays on one for a while: on a parabola whose last step takes
        # half of that while, three samples more are so many steps
        turning = finest * (1 + 6 / (stop - begin)) ** 2
        found += min(before, behind) > max(_AT_SPEED * turning, 1e-12)
    return int(found) if found >= (1 if noisy else _TIMES) else 0


def _spikes(time: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Readings that lie far off the cubic through their four neighbours, and their neighbours do not."""
    off = np.zeros_like(value)
    off[2:-2] = value[2:-2] - (4 * (value[1:-3] + value[3:-1]) - value[:-4] - value[4:]) / 6
    moves = np.diff(np.unique(value))
    usual = max(1.4826 * float(np.median(np.abs(off))), float(moves.min()) if moves.size else 0.0)
    if not usual > 0:
        return np.zeros(0, dtype=int)
    size = np.abs(off)
    apart = np.diff(time)
    even = np.zeros(len(value), dtype=bool)  # a cubic on other stamps is another one
    near = apart < _REGULAR * np.median(apart)
    even[2:-2] = near[:-3] & near[1:-2] & near[2:-1] & near[3:]
    size = np.where(even, size, 0.0)
    top = (size[1:-1] >= size[:-2]) & (size[1:-1] > size[2:]) & (size[1:-1] > _SPIKE * usual)
    found = np.flatnonzero(top) + 1
    return found if _SPIKES <= found.size <= _NEVER * value.size else np.zeros(0, dtype=int)
