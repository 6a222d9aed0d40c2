"""Static friction: what holds the mass when it breaks away.

While the mass sticks, friction holds what load, spring and damper do, to the noise of the readings. The question is
when sticking ends. The mass has hardly moved then, so sticking stays likely for some samples more, in which what would
hold it goes on growing, and the largest force that is believed in is too high. Nor is the motion that the smoother
finds at first the right one: its model draws the force anew when sliding begins, and spreads the jump over samples. So
the readings themselves are asked. The mass is at rest until t_0, then

    m v' = pull - f(v),   f(0) = pull(t_0),

pull being all but friction. f falls to a level, about the force that was found at t_1, where the mass slides for sure,
and stays there. How it falls the readings hardly tell: evenly with the speed, with its root, or at once. t_0 and the
level have the density that the readings give them, from the stop on until the mass is twice as fast as at t_1. The
value is that of the fall with the root; its standard deviation has half the difference between the other two in it. A
fall that the readings contradict is left out, and so is a stop so short that a mass which turned without a rest would
be read at the same places.
"""

from typing import NamedTuple

import numpy as np
import scipy.stats

from spookax._typing import Float
from spookax.study.latent.sliding import SURE, phases

_HOLDS = 0.5  # probability from which on a regime is taken to hold
_FAST = 3.0  # standard deviations of the velocity
_SLOW = 0.3  # of the velocity at t_1: slower is taken for rest, if the readings agree
_TOLD = 2.0  # standard deviations: a force that is not told, as in a gap of the readings, is no static friction
_BRIEF = 3  # samples: shorter stops tell no static friction
_REST = 5  # samples of rest that have to be seen before a motion
_BEFORE = 40  # samples before t_1 that are looked at
_FASTER = 2.0  # times the velocity at t_1, up to which readings are looked at
_FINE = 5  # parts of a step
_STARTS, _LEVELS, _WIDEST = 41, 11, 2.5  # grid: places of t_0, levels, of these the farthest in standard deviations
_ZOOMS, _COUNTS = 3, 1e-3  # times that it is drawn anew, over what has this share of the largest density
_FLAT = 4.0  # of which the root is taken before each: a ridge between the places of a coarse grid is not lost
_FALLS = (1.0, 0.5, 0.0)  # powers of the speed with which friction falls: evenly, with the root, at once
_OFF = 0.05  # of the force at t_1, by which the level may differ from it
_TURNS = 3.0  # standard deviations of a reading, by which a mass that turned at once would have to be off
_FAR = 1e12
_UNLIKELY = 1e-3  # probability of a misfit as large, below which the motion is another one


class Static(NamedTuple):
    """What holds the mass at the end of stops [N]: mean with standard deviation, and each with its own and its time."""

    mean: float
    sd: float
    values: list[float]
    sds: list[float]
    times: list[float]


class Read(NamedTuple):
    """What is read of a contact's motion: "displacement", "velocity" or "acceleration", the readings, NaN where there
    is none, and the standard deviation of one.
    """

    kind: str
    y: Float[np.ndarray, " k"]
    noise: float


class Broken(NamedTuple):
    """How a mass broke away: pull that held it, with standard deviation [N], when [s], and how likely readings are that
    fit no better.
    """

    held: float
    sd: float
    time: float
    likely: float


class Slip(NamedTuple):
    """Samples from rest to where the mass is twice as fast as at t_1; the motion that begins is positive."""

    time: Float[np.ndarray, " k"]
    pull: Float[np.ndarray, " k"]  # of all but friction [N]
    read: Read
    mass: float
    v: float  # velocity at t_1 [m/s]
    level: float  # friction at t_1, with standard deviation [N]
    level_sd: float
    last: int  # sample at t_1, before which it breaks away

    def broke_away(self, power: float) -> Broken:
        """By a friction that falls with a power of the speed; on a grid that is drawn around what is likely."""
        starts, off = np.linspace(0.0, float(self.last), _STARTS), np.linspace(-_WIDEST, _WIDEST, _LEVELS)
        for zoom in range(_ZOOMS, 0, -1):
            share, _ = self._shares(starts, off, power, _FLAT**zoom)
            starts, off = _around_the_best(starts, np.max(share, axis=1)), _around_the_best(off, np.max(share, axis=0))
        share, misfit = self._shares(starts, off, power)
        share = np.sum(share, axis=1) / np.sum(share)
        held = self._at(self.pull, starts)
        mean, when = float(share @ held), float(share @ self._at(self.time, starts))
        grows = float(np.interp(share @ starts, np.arange(self.last), np.abs(np.diff(self.pull[: self.last + 1]))))
        sd = float(np.sqrt(share @ (held - mean) ** 2 + (grows / _FINE) ** 2))  # no time is told better than to a part
        left = max(int(np.sum(np.isfinite(self.read.y))) - 3, 1)
        return Broken(mean, sd, when, float(scipy.stats.chi2.sf(misfit, left)))

    def off_by_a_turn(self, held: float, rest: float) -> float:
        """How far a mass that turned under that pull, and never rested, goes in a time of rest, over the standard
        deviation of a reading.
        """
        rate = (held + max(self.level, 0.0)) / self.mass
        way = {"displacement": rest**2 / 8.0, "velocity": rest / 2.0, "acceleration": 1.0}[self.read.kind]
        return rate * way / self.read.noise

    def _shares(
        self, starts: Float[np.ndarray, " p"], off: Float[np.ndarray, " l"], power: float, flat: float = 1.0
    ) -> tuple[Float[np.ndarray, "p l"], float]:
        """Density of places and levels over its largest, to the power of 1 / `flat`; the least misfit."""
        misfit = self._misfit(starts, self.level + self.level_sd * off, power)
        weight = -0.5 * (misfit + off**2)
        return np.exp((weight - np.max(weight)) / flat), float(np.min(misfit))

    def _at(self, a: Float[np.ndarray, " k"], places: Float[np.ndarray, " p"]) -> Float[np.ndarray, " p"]:
        """Between the samples."""
        return np.interp(places, np.arange(len(a)), a)

    def _misfit(
        self, starts: Float[np.ndarray, " p"], level: Float[np.ndarray, " l"], power: float
    ) -> Float[np.ndarray, "p l"]:
        """Sum of squares of what the readings leave, in their standard deviations; `_FAR` where friction would grow."""
        places = np.linspace(0.0, len(self.time) - 1.0, _FINE * (len(self.time) - 1) + 1)
        time, pull = self._at(self.time, places), self._at(self.pull, places)
        begin, held = self._at(self.time, starts)[:, None], self._at(self.pull, starts)[:, None]
        v, z = np.zeros((2, len(starts), len(level)))
        seen = np.zeros((len(self.time), *v.shape))
        for i in range(len(time)):
            friction = level + (held - level) * np.maximum(1.0 - (v / self.v) ** power, 0.0)
            rate = np.where(time[i] >= begin, (pull[i] - friction) / self.mass, 0.0)
            if i % _FINE == 0:
                seen[i // _FINE] = {"displacement": z, "velocity": v, "acceleration": rate}[self.read.kind]
            if i + 1 < len(time):
                step = np.clip(time[i + 1] - begin, 0.0, time[i + 1] - time[i])
                after = np.maximum(v + step * ((pull[i] + pull[i + 1]) / 2.0 - friction) / self.mass, 0.0)
                z, v = z + step * (v + after) / 2.0, after
        there = np.isfinite(self.read.y)
        left = (self.read.y[there, None, None] - seen[there]) / self.read.noise
        if self.read.kind == "displacement":  # where it rests is not known
            left = left - np.mean(left, axis=0)
        return np.where(held >= level, np.sum(left**2, axis=0), _FAR)


def _around_the_best(places: Float[np.ndarray, " p"], share: Float[np.ndarray, " p"]) -> Float[np.ndarray, " p"]:
    """As many places, over those that count and one to either side."""
    counts = np.flatnonzero(share > _COUNTS)
    low, high = max(int(counts[0]) - 1, 0), min(int(counts[-1]) + 1, len(places) - 1)
    return np.linspace(places[low], places[high], len(places))


def static_friction(
    time: Float[np.ndarray, " k"],
    pull: Float[np.ndarray, " k"],
    x: Float[np.ndarray, "k 3"],
    sd: Float[np.ndarray, "k 3"],
    probability: Float[np.ndarray, "k 3"],
    mass: float,
    read: Read,
) -> Static | None:
    """From stops that end in sliding; None where there is none.

    **Arguments:** `pull`: what all but friction does to the mass [N]; the others as of `Force`, of one contact.
    """
    v, sure = x[:, 1], probability[:, 0] > SURE
    sticks = probability[:, 1] > _HOLDS
    moves = sure & phases(v, sure)[1] & (np.abs(v) > _FAST * sd[:, 1])
    values, sds, times, told = [], [], [], -1
    for end in np.flatnonzero(sticks[:-1] & ~sticks[1:]):
        begin = end - int(np.argmin(sticks[: end + 1][::-1])) + 1 if not np.all(sticks[: end + 1]) else 0
        after = np.flatnonzero(moves[end:])
        if end - begin + 1 < _BRIEF or not len(after) or (slides := int(end + after[0])) == told:
            continue
        told, way = slides, float(np.sign(v[slides]))
        first, last = _around(way * v, sd[:, 1], int(begin), slides)
        of = slice(first, last + 1)
        own = Read(read.kind, way * read.y[of], read.noise)
        if np.sum(np.isfinite(own.y[: slides - first])) < _REST:
            continue
        level = float(way * x[slides, 2])
        level_sd = float(np.hypot(sd[slides, 2], _OFF * level))
        slip = Slip(time[of], way * pull[of], own, mass, float(way * v[slides]), level, level_sd, slides - first)
        falls = [one for one in map(slip.broke_away, _FALLS) if one.likely > _UNLIKELY]
        if not falls:
            continue
        one = falls[len(falls) // 2]
        own_sd = float(np.hypot(one.sd, (falls[-1].held - falls[0].held) / 2.0))
        rested = slip.off_by_a_turn(one.held, float(time[end] - time[begin])) > _TURNS
        if rested and one.held > _TOLD * max(own_sd, sd[slides, 2]):
            values.append(one.held)
            sds.append(own_sd)
            times.append(one.time)
    return static_of(values, sds, times) if values else None


def _around(v: Float[np.ndarray, " k"], sd: Float[np.ndarray, " k"], begin: int, slides: int) -> tuple[int, int]:
    """First sample of the rest before a motion, and last sample at which that is slower than `_FASTER` times what it is
    at `slides`.
    """
    rests = np.abs(v) < np.maximum(_SLOW * v[slides], _FAST * sd)
    first = slides - 1
    while first > begin and not rests[first]:
        first -= 1
    while first > max(begin, slides - _BEFORE) and rests[first - 1]:
        first -= 1
    last = slides
    while last + 1 < len(v) and v[last + 1] > v[last] and v[last] < _FASTER * v[slides]:
        last += 1
    return first, last


def static_of(values: list[float], sds: list[float], times: list[float]) -> Static:
    """What the ends of stops say together. What makes the force at each uncertain is alike for all, and stays."""
    spread = float(np.var(values, ddof=1)) if len(values) > 1 else 0.0
    return Static(float(np.mean(values)), float(np.sqrt(spread + np.mean(np.square(sds)))), values, sds, times)
