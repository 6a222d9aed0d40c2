"""Intervals from profiles of the cost: one parameter is held off its estimate, and all else is fitted again.

Where the linearisation is right the cost rises by t^2 / 2 at t standard deviations. A few fits on either side tell
whether it does; where it does not, the end of an interval is where it has risen by as much. That end is the same in
every coordinate that the parameter may be given, and knows of bounds, of valleys that bend and of flat ones.

All of them together take a given number of linearisations, the worst known parameters first. Where that does not
suffice, or the cost has so many kinks that it cannot be compared that finely, the linearisation stands unchecked; and
where a parameter is not determined at all.

**Source:** Venzon and Moolgavkar (1988), profile-likelihood confidence intervals; Bates and Watts (1988) for the check.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from ..._typing import Float
from .all_recordings import Linear, promised
from .bounded_step import box_step
from .one_recording import noise_cost
from .problem import Fit, Iterate, Problem, Settings, Stage
from .simulator_form import Estimator

TAIL = 1.6448536269514722
"""Standard deviations beyond which a normal distribution has 5 % on one side."""

WEAK = 0.1  # standard deviation in z, a tenth of the parameter: below it no curvature is felt
_UNKNOWN = 1.0  # standard deviation, a factor of e: the parameter is not determined, which is said of it anyway
FAR = 7.0
"""Distance in z, a factor of a thousand, beyond which nothing is known."""

_RIGHT = 0.2  # relative error of a distance that the linearisation has right
_SAME = 0.05  # relative error of an end
_STRIDE = 1.0  # longest way at once, in z
_FITS, _ROUNDS = 6, 6  # of the search for an end; of a fit beside a held parameter
_SETTLED = 0.3  # gain that one more step promises, of the rise that is looked for, which counts as had
_SMOOTH = 0.25  # gain, of that rise, that may be left at the estimate itself
_SHARE = 2.0  # of what is left for each end that is still to be found
_HALVINGS = 3  # of a step that was refused
_SHORTEST = 0.1  # stride, of the whole way, that is not made shorter


Kind = Literal["linear", "profile", "unchecked"]
"""The linearisation holds; it does not, and the end is another; nobody knows."""


class Ends(NamedTuple):
    """Distances in z from the estimate to both ends, and where they come from."""

    below: float  # not positive; infinite where nothing is known on that side
    above: float
    kind: Kind  # of both: that of the end which is not the linearisation's, if there is one


class _Spent(Exception):
    """A signal, no error: no linearisation is left for this end."""


class Held(NamedTuple):
    """A fit beside a parameter that is held: how far off, and by how much the objective has risen."""

    offset: float
    rise: float
    iterate: Iterate
    cost: float
    linear: Linear

    def reached(self, target: float) -> float:
        """Part of the way to a rise, as if it grew by the square of the distance."""
        return float(np.sqrt(max(self.rise, 0.0) / target))


def weak(problem: Problem, fit: Fit) -> list[int]:
    """Shared parameters whose intervals may not be those of the linearisation, the weakest first: known badly, or with
    a bound within reach.
    """
    z, sd = np.asarray(fit.iterate.z), np.sqrt(np.maximum(np.diag(fit.covariance), 0.0))
    inside = (fit.reach == 0) & np.isfinite(sd)
    near = (z - TAIL * sd < problem.lower) | (z + TAIL * sd > problem.upper)
    doubtful = np.flatnonzero(inside & ((sd > WEAK) | near))
    return sorted(doubtful.tolist(), key=lambda i: -sd[i])


def find_end(
    begin: Held, held_at: Callable[[Held, float], Held | None], expected: float, target: float, room: float
) -> tuple[float, Kind]:
    """Where the objective has risen by `target` on one side of an estimate, and whether that is where the linearisation
    has it, `expected`. Infinite beyond `FAR`.

    `held_at`: the fit at an offset, from one that is near; None where it is not found. `room`: to the bound on that
    side, or `FAR`.
    """
    side = float(np.sign(expected))
    edge = side * room if room < FAR else side * np.inf
    distance, inside, beyond = min(abs(expected), room), begin, None
    for _ in range(_FITS):
        held = held_at(inside, side * distance)
        if held is None:
            return (expected if abs(expected) < room else edge), "unchecked"
        now = held.reached(target)
        if now < 1 and distance >= room:
            return edge, "profile"
        if distance == abs(expected) and abs(now - 1) < _RIGHT:
            return expected, "linear"
        if abs(now - 1) < _SAME:
            break
        inside, beyond = (held, beyond) if now < 1 else (inside, (distance, now))
        distance = _next(abs(inside.offset), inside.reached(target), beyond, room)
    return side * distance, "profile"


def _next(inner: float, reached: float, beyond: tuple[float, float] | None, room: float) -> float:
    """Where to look next: between the last point inside and the first one beyond, else farther out."""
    if beyond is None:
        return min(room, inner / max(reached, 0.25), inner + 2 * _STRIDE)
    outer, too_far = beyond
    return inner + float(np.clip((1 - reached) / (too_far - reached), 0.1, 0.9)) * (outer - inner)


class Profiles:
    """Profiles about a fit of the simulator form that has converged.

    `settings`: those that the fit ended with; `variance`: of every parameter by the linearisation alone. What has
    widened `fit.covariance` since (coloured innovations, the time step) raises the cost that an end lies at. `most`:
    linearisations of all recordings that the profiles may take. `report` is called after each of them with how many
    there were, the rise of the objective and the offset of the parameter.
    """

    def __init__(
        self,
        problem: Problem,
        stage: Stage,
        fit: Fit,
        settings: Settings,
        variance: Float[np.ndarray, " p"],
        most: int,
        report: Callable[[int, float, float], None] = lambda *_: None,
    ):
        self.problem, self.fit, self.variance, self.report = problem, fit, variance, report
        self.left, self.used, self._until = most, 0, 0
        self.stage = Stage(stage.model, fit.noise)
        self.estimator = Estimator(problem, settings)
        self.estimator.root_weights = fit.root_weights
        self.steady = self.estimator.ends_steady(self.stage)
        here = self.estimator.linear(self.stage, fit.iterate, self.steady)
        cost = self.estimator.cost(self.stage, fit.iterate)
        self.objective = self._objective(fit.iterate, cost, here)
        self.begin = Held(0.0, 0.0, fit.iterate, cost, here)
        # what kinks of the cost hide from the iteration, here as elsewhere
        self._floor = max(cost - here.q, 0.0)
        self._target = 0.0  # rise that is looked for at present

    def ends(self, i: int, others: int) -> Ends:
        """Of the interval of shared parameter i that it leaves with 5 % on either side; `others`: parameters that come
        later, for which something has to be left.
        """
        sd, widened = float(np.sqrt(self.fit.covariance[i, i])), self.fit.covariance[i, i] / self.variance[i]
        target = TAIL**2 / 2 * widened
        if sd > _UNKNOWN and min(self._room(i, -1.0), self._room(i, 1.0)) >= min(TAIL * sd, FAR):
            return Ends(-TAIL * sd, TAIL * sd, "unchecked")
        self._target = target
        found = [
            self._end(i, side * TAIL * sd, target, 2 * (1 + others) - told) for told, side in enumerate((-1.0, 1.0))
        ]
        (below, kind_below), (above, kind_above) = found
        kinds: set[Kind] = {kind_below, kind_above}
        return Ends(below, above, next(kind for kind in ("profile", "unchecked", "linear") if kind in kinds))

    def _end(self, i: int, expected: float, target: float, due: int) -> tuple[float, Kind]:
        room = self._room(i, expected)
        self._until = self.used + min(self.left, int(np.ceil(_SHARE * self.left / due)))
        if self._floor > _SMOOTH * target:
            self._until = self.used

        def held_at(start: Held, offset: float) -> Held | None:
            try:
                return self._held_at(start, i, offset)
            except _Spent:
                return None

        return find_end(self.begin, held_at, expected, target, room)

    def _room(self, i: int, side: float) -> float:
        """To the bound of a parameter on one side, or `FAR`."""
        z = float(np.asarray(self.fit.iterate.z)[i])
        return min(FAR, float(self.problem.upper[i] - z if side > 0 else z - self.problem.lower[i]))

    def _held_at(self, start: Held, i: int, offset: float) -> Held | None:
        """The best fit with parameter i held so far off, from that at another place, in strides; None where the way
        there is not found.
        """
        here, stride = start, _STRIDE
        while here.offset != offset:
            rest = offset - here.offset
            goal = offset if abs(rest) <= stride else here.offset + np.sign(rest) * stride
            moved = self._settled(self._tried(here, self._step(here, i, goal - here.offset), 1.0), i)
            if moved is not None:
                here = moved._replace(offset=goal)
            elif stride <= _SHORTEST * abs(offset - start.offset):
                return None
            else:
                stride = min(stride, abs(rest)) / 3
        return here

    def _settled(self, here: Held, i: int) -> Held | None:
        """The best fit with parameter i where it is, less what is left to be gained by little; None if it is not found.

        The last steps of a fit cost as much as the first ones and gain what they promise, nearly: they are not taken.
        """
        for _ in range(_ROUNDS):
            d = self._step(here, i, 0.0)
            if not (np.isfinite(here.rise) and np.isfinite(d).all()):
                return None
            left = promised(here.cost, here.linear, here.linear.g + self.fit.slope, d) - self._floor
            if left < _SETTLED * self._target:
                return here._replace(rise=here.rise - max(left, 0.0))
            for halving in range(_HALVINGS):
                tried = self._tried(here, d, 0.5**halving)
                if tried.rise < here.rise:
                    break
            else:
                return None
            here = tried
        return None

    def _step(self, here: Held, i: int, stride: float) -> np.ndarray:
        p, z = self.problem, np.asarray(here.iterate.z)
        low, high = np.maximum(p.lower - z, -_STRIDE), np.minimum(p.upper - z, _STRIDE)
        low[i] = high[i] = stride
        # the slope of the log-determinant is that of the estimate, where it balances the slope of the cost
        return box_step(here.linear.N, here.linear.g + self.fit.slope, low, high, 0.0)

    def _tried(self, here: Held, d: np.ndarray, part: float) -> Held:
        if self.used >= self._until:
            raise _Spent
        self.used, self.left = self.used + 1, self.left - 1
        trial = self.estimator.attempt(self.stage, here.iterate, here.linear, d, part, self.steady, 0)
        risen = self._objective(trial.iterate, trial.cost, trial.linear) - self.objective
        self.report(self.used, risen, here.offset)
        return Held(here.offset, risen, trial.iterate, trial.cost, trial.linear)

    def _objective(self, it: Iterate, cost: float, linear: Linear) -> float:
        """What a fit minimises. Noise whose effect is held is measured as the estimate's parameters would."""
        if not self.steady:
            return cost + (self.estimator.log_determinant(linear) if self.estimator.settings.determinant else 0.0)
        for own, then, path in zip(it.own, self.fit.iterate.own, it.paths, strict=True):
            z, z_then = np.concatenate([it.z, own]), np.concatenate([self.fit.iterate.z, then])
            cost += noise_cost(self.stage.model, z_then, path, z) - float(np.sum(np.asarray(path.w) ** 2)) / 2
        return cost
