"""Laws of friction over the speed, fitted to a force that was found and to the static friction."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import scipy.optimize

from spookax._typing import Array, Float
from spookax.study.latent.sliding import Points
from spookax.study.latent.static import Static

_MOST = 4000  # points that are fitted
_TINY = 1e-3  # of the reference speed: epsilon of the law of Dieterich and Ruina
_OFF = 0.02  # of the typical force, by which any law may be off
_SPREAD = 3.0  # standard deviation of logarithms before points are seen; of other parameters, in typical forces


class Law(NamedTuple):
    """A law with its parameters."""

    kind: str
    parameters: dict[str, float]
    sd: dict[str, float]
    left: Float[np.ndarray, " p"]  # of the points, in their standard deviations
    rms: float  # of what is left [N]
    score: float = np.nan  # information criterion: the smaller the better

    def level(self, speed: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Friction against a motion of that speed [N]."""
        values = jnp.asarray(list(self.parameters.values()))
        return np.asarray(_KINDS[self.kind].level(values, jnp.abs(jnp.asarray(speed))))


class _Kind(NamedTuple):
    names: tuple[str, ...]
    positive: tuple[bool, ...]  # searched as logarithms
    level: Callable[[Array, Array], Array]


def _coulomb(p: Array, v: Array) -> Array:
    return p[0] + 0.0 * v


def _stribeck(p: Array, v: Array) -> Array:
    return p[0] + p[1] * jnp.exp(-((v / p[2]) ** 2)) + p[3] * v


def _dieterich_ruina(p: Array, v: Array) -> Array:
    F, a, b, c, reference = p
    s = v + _TINY * reference
    return F + a * jnp.log(s / reference) + b * jnp.log(c + reference / s)


_KINDS = {
    "coulomb": _Kind(("force",), (True,), _coulomb),
    "stribeck": _Kind(("force", "excess", "speed", "viscous"), (True, True, True, True), _stribeck),
    "dieterich-ruina": _Kind(("force", "a", "b", "c", "reference"), (True, False, False, True, True), _dieterich_ruina),
}
KINDS = tuple(_KINDS)


class _Data(NamedTuple):
    """What a law is fitted to: points, weights; level at rest, its weight; start of the search, scale, what stays."""

    speed: Array
    force: Array
    weight: Array
    whole: Array  # a phase counts as one reading
    rest: Array
    start: Array
    scale: Array
    fixed: Array


@functools.cache
def _numbers(kind: str) -> Callable[[Array, _Data], Array]:
    """Parameters from what is searched: logarithms of those that must be positive, the others in typical forces."""

    def numbers(q: Array, data: _Data) -> Array:
        positive = np.array(_KINDS[kind].positive)[: len(q)]
        return jnp.concatenate([jnp.where(positive, jnp.exp(q), q * data.scale), data.fixed])

    return numbers


@functools.cache
def _residual(kind: str) -> Callable[[Array, _Data], Array]:
    level, numbers = _KINDS[kind].level, _numbers(kind)

    def residual(q: Array, data: _Data) -> Array:
        p = numbers(q, data)
        points = data.whole * (level(p, data.speed) - data.force) * data.weight
        held = (level(p, jnp.zeros(1)) - data.rest[0]) * data.rest[1]
        return jnp.concatenate([points, held, (q - data.start) / _SPREAD])

    return residual


def fit_law(kind: str, points: Points, static: Static | None) -> Law:
    """The parameters of one law by weighted least squares, the static friction beside the points at speed zero.

    Errors of the points of one phase of sliding go together: standard deviations count phases, not samples, and a phase
    weighs as one reading beside the static friction. Parameters that must be positive are searched as logarithms.

    **Raises:** `ValueError` when there is no point to fit to.
    """
    if not len(points.speed):
        raise ValueError("the mass slides nowhere for sure: there is nothing to fit a law to")
    own = _KINDS[kind]
    take = np.unique(np.linspace(0, len(points.speed) - 1, _MOST).astype(int))
    speed, force, sd, phase = (a[take] for a in points)
    fastest, middle = float(np.max(speed)), float(np.median(force))
    start = {
        "coulomb": [middle],
        "stribeck": [middle, 0.1 * middle, 0.1 * fastest, 0.01 * middle / fastest],
        "dieterich-ruina": [middle, 0.05 * middle, 0.05 * middle, 0.02, 0.03 * fastest],
    }[kind]
    free = len(start) - 1 if kind == "dieterich-ruina" else len(start)  # the reference speed is a choice of units
    positive, first = np.array(own.positive[:free]), np.array(start[:free])
    scale = np.where(positive, 1.0, middle)
    floor = np.sqrt(sd**2 + (_OFF * middle) ** 2)
    whole = np.sqrt(len(np.unique(phase)) / len(speed))
    rest = np.zeros(2) if kind == "coulomb" or static is None else np.array([static.mean, 1.0 / static.sd])
    q0 = np.where(positive, np.log(np.abs(first)), first / scale)
    data = _Data(*map(jnp.asarray, (speed, force, 1.0 / floor, whole, rest, q0, scale, np.array(start[free:]))))
    solver = optx.LevenbergMarquardt(rtol=1e-8, atol=1e-8)
    q = optx.least_squares(_residual(kind), solver, data.start, args=data, max_steps=512, throw=False).value
    p = _numbers(kind)(q, data)
    left = np.asarray(own.level(p, data.speed)) - force
    J = np.asarray(jax.jacfwd(_residual(kind))(q, data))[: len(speed)] / whole
    D = np.asarray(jax.jacfwd(_numbers(kind))(q, data))
    sds = np.sqrt(np.maximum(np.diag(D @ _by_phase(J, left / floor, phase) @ D.T), 0.0))
    value, sd_of = (dict(zip(own.names, map(float, a), strict=True)) for a in (p, sds))
    return Law(kind, value, sd_of, left / floor, float(np.sqrt(np.mean(left**2))))


def _by_phase(J: np.ndarray, left: np.ndarray, phase: np.ndarray) -> np.ndarray:
    """Covariance of least squares whose errors go together within a phase."""
    inverse = np.linalg.pinv(J.T @ J, rcond=1e-12)
    sums = np.array([J[phase == p].T @ left[phase == p] for p in np.unique(phase)])
    count = len(sums)
    return inverse @ (sums.T @ sums) @ inverse * count / max(count - 1, 1)


def fit_laws(kinds: Sequence[str], points: Points, static: Static | None) -> list[Law]:
    """Every one of some laws, the best first by the information criterion of Schwarz.

    It counts as many points as are independent, by the correlation of what the closest law leaves.
    """
    laws = [fit_law(kind, points, static) for kind in kinds]
    closest = min(laws, key=lambda law: np.mean(law.left**2))
    count = len(closest.left) / _correlation_time(closest.left)

    def score(law: Law) -> float:
        free = sum(sd > 0 for sd in law.sd.values())
        return float(count * np.log(np.mean(law.left**2)) + free * np.log(count))

    return sorted((law._replace(score=score(law)) for law in laws), key=lambda law: law.score)


def _correlation_time(left: Float[np.ndarray, " p"]) -> float:
    """Sum of the autocorrelation, in samples, up to where it is first below a twentieth."""
    e = left - np.mean(left)
    own = np.append(np.correlate(e, e, "full")[len(e) - 1 :] / np.sum(e**2), 0.0)
    return float(1.0 + 2.0 * np.sum(own[1 : int(np.argmax(own < 0.05))]))


class SceneLaw(NamedTuple):
    """Friction as scenes have it, and how far it is from the law that it stands for [N]."""

    coulomb: float
    excess: float
    speed: float
    exponent: float
    viscous: float
    off: float

    def dry(self) -> dict[str, Any]:
        """What a joint has of it beside `viscous`."""
        if not self.excess > 0:
            return {"coulomb": self.coulomb}
        stribeck = {"excess": self.excess, "speed": self.speed, "exponent": self.exponent}
        return {"coulomb": self.coulomb, "stribeck": stribeck}


def for_scene(law: Law, points: Points, static: Static | None) -> SceneLaw:
    """The law in the form of a joint: `coulomb`, `stribeck` and `viscous`.

    Coulomb's and Stribeck's are such laws. That of Dieterich and Ruina is not: the nearest one, with an exponent of its
    own, along the speeds that the record has.
    """
    p = law.parameters
    if law.kind == "coulomb":
        over = max(static.mean - p["force"], 0.0) if static else 0.0
        return SceneLaw(p["force"], over, 1e-2 * float(np.median(points.speed)), 2.0, 0.0, 0.0)
    if law.kind == "stribeck":
        return SceneLaw(p["force"], p["excess"], p["speed"], 2.0, p["viscous"], 0.0)
    grid = np.concatenate([[0.0], np.quantile(points.speed, np.linspace(0.0, 1.0, 200))])
    wanted = law.level(grid)

    def level(q: np.ndarray) -> np.ndarray:
        F, excess, speed, exponent, viscous = q
        return F + excess * np.exp(-((grid / speed) ** exponent)) + viscous * grid

    fastest, size = grid[-1], float(np.median(wanted))
    start = [size, max(wanted[0] - size, 0.01 * size), 0.05 * fastest, 1.0, 1e-3 * size / fastest]
    bounds = [0.0, 0.0, 1e-4 * fastest, 0.1, 0.0], [np.inf, np.inf, 10 * fastest, 2.0, np.inf]
    unit = [size, size, fastest, 1.0, size / fastest]
    found = scipy.optimize.least_squares(lambda q: level(q) - wanted, start, bounds=bounds, x_scale=unit).x
    off = float(np.max(np.abs(level(found) - wanted)[1:]))
    F, excess, speed, exponent, viscous = map(float, found)
    return SceneLaw(F, excess, speed, exponent, viscous, off)
