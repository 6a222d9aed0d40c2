"""Most likely constant parameters of a model with a small state, however many and however it moves.

The cost is minus the log-likelihood that a filter gives the readings, plus a Gaussian prior:

    J(z) = 1/2 sum (nu' F^-1 nu + log |F|) + 1/2 |(z - prior) / sd|^2 + constant

States are integrated out by the filter, a step's jumps with them where the filter works by sigma points: of a motion
with dry friction the best path has kinks everywhere, the likelihood has not. One pass carries the sensitivity Y of the
predicted state to the parameters, at the filter's own gains,

    S = -(H Y + D),   Y+ = M (Y + K S) + C,   N = sum S' F^-1 S,   g = -sum S' F^-1 nu,

which costs O(n p + p^2) a step, and N, g make a damped Gauss-Newton step that the likelihood itself accepts or refuses.
The gains' own dependence on z is left out of that g: the end is near the most likely parameters, not exactly there.
With `exact` the pass is differentiated forwards in every parameter, ten times the work for a hundred of them.

**Source:** Friedland (1969), de Jong (1989) for the columns; Astrom (1980) for prediction errors.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..._compiled import compiled
from ..._results import ESTIMATE_RESULTS
from ..._typing import AnyArray, Array, Float, Scalar
from ...math import small
from ...protocol import Samples
from ..levenberg_marquardt import (
    AbstractAcceptance,
    AbstractDescent,
    AnyStep,
    Budget,
    Ending,
    Limits,
    Settled,
    Step,
    Trial,
    Tried,
    minimise,
)
from ..recursive.step_rules import Reading
from .slow_filter import SlowFilter
from .slow_rules import SlowBelief, rows_of
from .with_parameters import AugmentedState

_LEAST_DAMPING, _LARGEST_DAMPING = 1e-9, 1e6


@dataclasses.dataclass(frozen=True)
class MostLikely:
    """Parameters, minus their log posterior density but for a constant, and their covariance (Gauss-Newton)."""

    z: np.ndarray
    cost: float
    covariance: np.ndarray
    passes: int  # through the recording
    history: tuple[float, ...]  # cost after every step
    result: ESTIMATE_RESULTS  # whether the cost has settled, and if not, why it was over


def _swept(f: SlowFilter, start: SlowBelief, samples: Samples) -> tuple[Scalar, Array, Array, Array]:
    """(log-likelihood, whitened innovations, N, g) of the constant parameters start.z."""
    z, n = start.z, f.model.model.tangent_size

    def body(carry, step):
        (belief, Y), total = carry
        u, reading = step
        rows = rows_of(f.model.model, belief, u, reading, f.noise, belief.mean, jnp.zeros_like(z))
        G = belief.P_aa @ rows.H_a.T
        L = small.cholesky(rows.H_a @ G + jnp.eye(G.shape[1], dtype=G.dtype))
        S = -(rows.H_a @ Y) if rows.H_z is None else -(rows.H_a @ Y + rows.H_z)
        white = small.solve_lower(L, jnp.column_stack([rows.y - rows.H_a @ belief.mean, G.T, S]))
        nu, V, S = white[:, 0], white[:, 1 : 1 + Y.shape[0]].T, white[:, 1 + Y.shape[0] :]
        there = reading.weight > 0
        scale = jnp.where(there, reading.weight / jnp.broadcast_to(f.noise.sensor, there.shape), 1.0)
        known = jnp.sum(jnp.where(there, jnp.log(scale) - 0.5 * math.log(2 * math.pi), 0.0))
        fit = known - 0.5 * jnp.sum(nu**2) - jnp.sum(jnp.log(small.diagonal(L)))
        total = jax.tree.map(jnp.add, total, (fit, S.T @ S, -S.T @ nu))
        filtered = dataclasses.replace(belief, mean=belief.mean + V @ nu, P_aa=belief.P_aa - V @ V.T)
        move = f.motion(filtered, u, f.noise)
        P = move.M @ filtered.P_aa @ move.M.T + move.E @ move.E.T
        zero = jnp.zeros(n, dtype=z.dtype)
        mean, P, _ = f.with_noise(zero, (P + P.T) / 2, jnp.zeros((0, n), dtype=z.dtype))
        Y = move.M @ (Y + V @ S) + move.C
        Y = jnp.concatenate([Y, jnp.zeros((mean.shape[0] - n, z.shape[0]), dtype=z.dtype)])
        after = SlowBelief(move.x, jnp.asarray(z), mean, P, belief.P_za, belief.P_zz, move.guess, move.result)
        return ((after, Y), total), nu

    p, dtype = z.shape[0], z.dtype
    begin = dataclasses.replace(start, P_za=jnp.zeros((0, 0), dtype=dtype), P_zz=jnp.zeros((0, 0), dtype=dtype))
    total = jnp.zeros((), dtype=dtype), jnp.zeros((p, p), dtype=dtype), jnp.zeros(p, dtype=dtype)
    Y = jnp.zeros((start.mean.shape[0], p), dtype=dtype)
    readings = Reading(samples.y, samples.s, samples.weight)
    (_, (value, N, g)), nu = jax.lax.scan(body, ((begin, Y), total), (samples.u, readings))
    return value, nu.reshape(-1), N, g


@compiled
def _columns(f: SlowFilter, start: SlowBelief, samples: Samples) -> tuple[Scalar, Array, Array]:
    value, _, N, g = _swept(f, start, samples)
    return value, N, g


@compiled
def _exact(f: SlowFilter, start: SlowBelief, samples: Samples) -> tuple[Scalar, Array, Array]:
    def found(z: Array) -> tuple[Scalar, Array]:
        return _swept(f, dataclasses.replace(start, z=z), samples)[:2]

    eye = jnp.eye(start.z.shape[0], dtype=start.z.dtype)
    value = found(start.z)[0]
    g, J = jax.vmap(lambda direction: jax.jvp(found, (start.z,), (direction,))[1])(eye)
    return value, J @ J.T, g


class _Point(NamedTuple):
    z: np.ndarray
    cost: float
    N: np.ndarray
    g: np.ndarray


class _LikelihoodSteps(AbstractDescent[_Point, Step]):
    """A step is that of the normal equations; the cost is minus the log posterior density. `passes`: through the
    recording so far.
    """

    def __init__(self, at: Callable[[np.ndarray, Any], _Point], exact: bool, budget: Budget):
        self._at, self._sweep, self.budget, self.passes = at, _exact if exact else _columns, budget, 0

    def begun(self, z: np.ndarray) -> _Point:
        """Where the search starts."""
        self.passes += 1
        return self._at(z, self._sweep)

    def value(self, point: _Point) -> float:
        return point.cost

    def step(self, point: _Point, limits: Limits) -> Step:
        N, g = point.N, point.g
        d = np.linalg.solve(N + limits.damping * np.diag(np.diagonal(N)), g)
        length = max(float(d @ N @ d), 0.0)
        return Step(d, float(g @ d) - length / 2, math.sqrt(length))

    def trial(self, point: _Point, step: Step, limits: Limits) -> Trial[_Point]:
        self.passes += 1
        new = self._at(point.z + step.d, _columns)
        return Trial(new, new.cost, point.cost - new.cost, step.promised)

    def taken(self, trial: Trial[_Point]) -> _Point:
        self.budget.used += 1
        return trial.point if self._sweep is _columns else self._at(trial.point.z, self._sweep)


class _Falling(AbstractAcceptance):
    """Takes what lowers the cost. Where nothing does, it has settled if less than `tolerance` was promised."""

    def __init__(self, tolerance: float):
        self._damping, self._tolerance = 1e-2, tolerance
        self._refused = 0.0  # what steps that were not taken have promised, at most

    @property
    def limits(self) -> Limits:
        return Limits(self._damping)

    @property
    def ending(self) -> Ending | None:
        if self._damping < _LARGEST_DAMPING:
            return None
        return Ending.settled if self._refused < self._tolerance else Ending.stuck

    def takes(self, value: float, step: AnyStep, trial: Trial[Any]) -> bool:
        taken = trial.value < value
        if taken:
            self._damping, self._refused = max(self._damping / 4, _LEAST_DAMPING), 0.0
        else:
            self._damping, self._refused = self._damping * 4, max(self._refused, trial.promised)
        return taken


def most_likely(
    f: SlowFilter,
    x0: Any,
    x0_sd: Float[AnyArray, " n"],
    z: Float[AnyArray, " p"],
    samples: Samples,
    z_sd: Float[AnyArray, "*p"] | float = math.inf,
    prior: Float[AnyArray, " p"] | float = 0.0,
    iterations: int = 40,
    tolerance: float = 0.05,
    exact: bool = False,
) -> MostLikely:
    """Levenberg-Marquardt on the likelihood that `f` gives a recording, parameters constant (any drift is left out).

    **Arguments:**

    - `x0`, `x0_sd`: the first state and its standard deviations, in tangent coordinates.
    - `z`: where to start. A network has many ends: start from the filter's parameters, the best of some starts.
    - `prior`, `z_sd`: mean and standard deviations of the parameters.
    - `tolerance`: gain (a log-likelihood) that counts as none, twice in a row.

    - `exact`: whether the gains' dependence on the parameters is part of the slope.

    **Raises:** `ValueError` if the likelihood is not finite at `z`.
    """
    weight, z = np.broadcast_to(1.0 / np.asarray(z_sd, float) ** 2, np.shape(z)), np.asarray(z)
    start = f.init(AugmentedState(x0, jnp.asarray(z)), np.append(np.asarray(x0_sd), np.zeros(z.shape)).astype(z.dtype))

    def at(z: np.ndarray, sweep: Any) -> _Point:
        value, N, g = sweep(f, dataclasses.replace(start, z=jnp.asarray(z)), samples)
        off, cost = z - prior, float(np.sum(weight * (z - prior) ** 2) / 2 - value)
        return _Point(z, cost, np.asarray(N) + np.diag(weight), np.asarray(g) - weight * off)

    end = Settled(Budget(iterations), 0.0, tolerance)
    steps = _LikelihoodSteps(at, exact, end.budget)
    begun = steps.begun(z)
    if not np.isfinite(begun.cost):
        raise ValueError("the likelihood is not finite where the search starts: check the start and the noise levels")
    history = [begun.cost]

    def keep(tried: Tried[_Point, Step]) -> None:
        if tried.taken:
            history.append(tried.value)

    ended = minimise(begun, steps, _Falling(tolerance), end, keep)
    found = ended.point
    covariance = np.linalg.inv(found.N)
    return MostLikely(found.z, found.cost, covariance, steps.passes, tuple(history), ended.ending.result)
