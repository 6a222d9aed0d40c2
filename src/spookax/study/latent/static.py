"""Static friction: what holds the mass when it breaks away.

While the mass sticks, friction holds what load, spring and damper do, to the noise of the readings. The question is
when sticking ends: the mass has hardly moved then, so sticking stays likely for some samples more, in which what would
hold it goes on growing, and the largest force that is believed in is too high. But the momentum m v that the mass has
where it slides for sure, at t_1, is what all forces have given it since it broke away at t_0,

    m v(t_1) = int_{t_0}^{t_1} (pull - friction) dt,

pull being all but friction, which tells t_0. In between friction falls from pull(t_0) to what it is at t_1: at once by
a law that is steep at rest, only at the end by one that is flat there, which are bounds; the largest force that is
believed in is another one from above. The value is that of a law that falls evenly with the speed, whose friction has
fallen by a third on average, because the speed grows with the square of time; the standard deviation has half the
difference of the bounds in it. A level that falls off over speeds far below those of the first samples of sliding, as
by the logarithms of Dieterich and Ruina, comes out too low.
"""

from typing import NamedTuple

import numpy as np

from spookax._typing import Float
from spookax.study.latent.sliding import SURE, phases

_HOLDS = 0.5  # probability from which on a regime is taken to hold
_FAST = 3.0  # standard deviations of the velocity
_TOLD = 2.0  # standard deviations: a force that is not told, as in a gap of the readings, is no static friction
_BRIEF = 3  # samples: shorter stops tell no static friction
_FINE = 20  # places of a step that are looked at
_STAYS = (0.0, 2 / 3, 1.0)  # of the fall of friction: a law that is steep at rest, even, flat


class Static(NamedTuple):
    """What holds the mass at the end of stops [N]: mean with standard deviation, and each with its own and its time."""

    mean: float
    sd: float
    values: list[float]
    sds: list[float]
    times: list[float]


class Slip(NamedTuple):
    """The samples of a stop and of what follows up to where the mass slides for sure; the motion that begins is
    positive.
    """

    time: Float[np.ndarray, " k"]
    pull: Float[np.ndarray, " k"]  # of all but friction [N]
    mass: float

    def broke_away(self, v: float, friction: float, stays: float) -> tuple[float, float]:
        """Pull and time at which it did, from velocity and friction at the end.

        **Arguments:** `stays`: what share of its fall is still there, on average over the time since.
        """
        places = np.linspace(0.0, len(self.time) - 1.0, _FINE * (len(self.time) - 1) + 1)
        time, pull = (np.interp(places, np.arange(len(a)), a) for a in (self.time, self.pull))
        pushed = np.cumsum((pull[1:] + pull[:-1]) / 2 * np.diff(time))
        pushed = pushed[-1] - np.concatenate([[0.0], pushed])
        braked = (time[-1] - time) * (friction + stays * (pull - friction))
        over = pushed - braked - self.mass * v
        enough = np.flatnonzero(over >= 0)
        # friction at the end is not known exactly: where no time gives enough, the one that gives most
        at = int(enough[-1]) if len(enough) else int(np.argmax(over))
        return float(pull[at]), float(time[at])


def static_friction(
    time: Float[np.ndarray, " k"],
    pull: Float[np.ndarray, " k"],
    x: Float[np.ndarray, "k 3"],
    sd: Float[np.ndarray, "k 3"],
    probability: Float[np.ndarray, "k 3"],
    mass: float,
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
        if end - begin + 1 < _BRIEF or not len(after) or (slides := end + int(after[0])) == told:
            continue
        told, way, of = slides, float(np.sign(v[slides])), slice(begin, slides + 1)
        slip = Slip(time[of], way * pull[of], mass)
        value, own, at = _of(slip, way * x[slides], sd[slides], float(np.max(way * x[of, 2])))
        if value > _TOLD * max(own, sd[slides, 2]):
            values.append(value)
            sds.append(own)
            times.append(at)
    return static_of(values, sds, times) if values else None


def _of(
    slip: Slip, x: Float[np.ndarray, " 3"], sd: Float[np.ndarray, " 3"], largest: float
) -> tuple[float, float, float]:
    """Static friction, its standard deviation, and the time of breaking away; `largest`: force that was believed in."""

    def by(stays: float, faster: float = 0.0, higher: float = 0.0) -> tuple[float, float]:
        return slip.broke_away(x[1] + faster * sd[1], x[2] + higher * sd[2], stays)

    noise = 0.0
    for stays in _STAYS:
        one, other = by(stays, faster=1)[0] - by(stays, faster=-1)[0], by(stays, higher=1)[0] - by(stays, higher=-1)[0]
        noise += (one**2 + other**2) / 4.0 / len(_STAYS)
    (steep, _), (value, at), (flat, _) = map(by, _STAYS)
    return value, float(np.sqrt(noise + ((max(steep, largest) - flat) / 2.0) ** 2)), at


def static_of(values: list[float], sds: list[float], times: list[float]) -> Static:
    """What the ends of stops say together. What makes the force at each uncertain is alike for all, and stays."""
    spread = float(np.var(values, ddof=1)) if len(values) > 1 else 0.0
    return Static(float(np.mean(values)), float(np.sqrt(spread + np.mean(np.square(sds)))), values, sds, times)
