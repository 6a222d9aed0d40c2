"""Gross outliers at sight, before anything is fitted: what a start, a scale or an error is not to be computed from."""

import dataclasses

import numpy as np

from ..._typing import Float
from ...estimation.batch.reading_weights import root_of
from .grid import Grid
from .recording import Recording

_GROSS = 8.0  # usual errors that a reading is off whatever its neighbours predict
_USUAL = 3.0  # of the median of the least of three errors: their standard deviation, about
_SIDE = 3  # neighbours of a reading on either side
_WINDOW = 11  # readings that a median is taken of
_NEIGHBOURS = (-3, -2, -1), (1, 2, 3), (-2, -1, 1, 2)  # that predict it


def without_gross(recording: Recording, sd: dict[str, np.ndarray]) -> Recording:
    """The recording without readings that are far off whatever their neighbours predict; `sd`: of every sensor's
    channels.
    """
    sensors = {}
    for name, readings in recording.sensors.items():
        columns = [
            np.where(np.abs(off_neighbours(recording.time, column, s)) > _GROSS, np.nan, column)
            for column, s in zip(readings.T, sd[name], strict=True)
        ]
        sensors[name] = np.column_stack(columns)
    return dataclasses.replace(recording, sensors=sensors)


def off_neighbours(time: np.ndarray, value: np.ndarray, sd: float) -> Float[np.ndarray, " n"]:
    """How far readings are off the nearest of three predictions, in usual errors, at least `sd`; zero where there is
    none: by the parabolas through the three before and the three behind, and by the cubic through two of each.

    A wild neighbour spoils one or two of the predictions, a wild reading is off all three. Neighbours are at first
    those near the median of their own (Hampel 1974), then those that were not off themselves.
    """
    there = np.flatnonzero(np.isfinite(value))
    off = np.zeros(len(value))
    if len(there) < 2 * _SIDE + 1:
        return off
    t, y = time[there], value[there]
    good = _near_median(y, sd)
    for _ in range(2):
        least = np.min([_error(t, y, good, np.array(offsets)) for offsets in _NEIGHBOURS], axis=0)
        usual = max(_USUAL * float(np.median(least)), sd)
        off[there] = np.where(np.isfinite(least), least / usual, 0.0)
        good = np.flatnonzero(off[there] <= _GROSS)
    return off


def _near_median(y: np.ndarray, sd: float) -> np.ndarray:
    """Indices of the readings that are not far off the median of their neighbourhood, beside how far others are."""
    around = np.lib.stride_tricks.sliding_window_view(np.pad(y, _WINDOW // 2, mode="reflect"), _WINDOW)
    middle = np.median(around, axis=1)
    spread = np.median(np.abs(around - middle[:, None]), axis=1) / 0.6745
    return np.flatnonzero(np.abs(y - middle) <= _GROSS * np.maximum(spread, sd))


def _error(t: np.ndarray, y: np.ndarray, good: np.ndarray, offsets: np.ndarray) -> Float[np.ndarray, " n"]:
    """Error of the polynomial through some neighbours, over how much noise of theirs enlarges it; infinite at ends.

    `good`: which readings count as neighbours; `offsets`: which of them, negative before and positive behind.
    """
    every = np.arange(len(t))
    behind = np.searchsorted(good, every, side="right")  # the first of them behind a reading
    before = np.searchsorted(good, every, side="left")
    place = np.where(offsets < 0, before[:, None] + offsets, behind[:, None] + offsets - 1)
    inside = np.all((place >= 0) & (place < len(good)), axis=1)
    error = np.full(len(t), np.inf)
    at, here = good[place[inside]], t[inside]
    weights = np.ones(at.shape)
    for i in range(len(offsets)):  # Lagrange
        for j in range(len(offsets)):
            if j != i:
                weights[:, i] *= (here - t[at[:, j]]) / (t[at[:, i]] - t[at[:, j]])
    off = y[inside] - np.sum(weights * y[at], axis=1)
    error[inside] = np.abs(off) / np.sqrt(1 + np.sum(weights**2, axis=1))
    return error


def first_root_weights(
    recording: Recording, clean: Recording, grid: Grid, sensors: tuple[str, ...], sd: np.ndarray, slots: int
) -> Float[np.ndarray, "steps M channels"]:
    """Root weights to begin with: next to none for readings that `clean` lacks. `sd`: of the channels."""
    raw, calm = (np.concatenate([r.sensors[name] for name in sensors], axis=1) for r in (recording, clean))
    roots = np.ones(raw.shape)
    gross = np.isfinite(raw) & ~np.isfinite(calm)
    for i in np.flatnonzero(gross.any(axis=0)):
        at = gross[:, i]
        error = (raw[at, i] - np.nanmean(calm[:, i])) / sd[i]  # no less than how far it is off, about
        roots[at, i] = root_of(np.zeros(at.sum()), error)
    return grid.placed(roots, slots, 1.0)
