"""How a recursive estimator makes a linear model of a step: at a point, at an iterated point, or at sigma points.

A rule is asked twice a step: for the readings, as whitened rows on what is uncertain, and for the motion

    d+ = A d + B w + E v + c,   w and v ~ N(0, 1),

in the chart about the predicted state. What is uncertain is a = d, or a = (d, w) where readings depend on the noise of
their own step (`model.reads_pair`). E is what the rule itself is unsure of: nothing at a point, the curvature that
sigma points see.
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._results import STEP_RESULTS, worst
from ..._typing import Array, Float
from ...math import small
from ...math.sqrt_gaussian import condition, gain_of, lower
from ...protocol import AbstractModel, Noise
from ...protocol.asked import replayed, stepped
from ..linearise import backwards, whitened


class Belief(eqx.Module):
    """What is believed about the state: x box-plus d with d ~ N(mean, factor factor').

    Where readings depend on the noise of their step, mean and factor go on with that of w.
    """

    x: Any
    mean: Float[Array, " a"]
    factor: Float[Array, "a k"]
    guess: Float[Array, " h"]  # what the last step found out about itself
    result: STEP_RESULTS | None = None  # how the last step ended; None where nobody asks


class Reading(NamedTuple):
    """The readings of one step; a slot for each place in it."""

    y: Float[Array, "M channels"]
    s: Float[Array, " M"]
    weight: Float[Array, "M channels"]


class Context(NamedTuple):
    """What the methods of a rule share: model, prepared parameters, noise levels and the input of the step."""

    model: AbstractModel
    p: Any
    noise: Noise
    u: Float[Array, " inputs"]

    def split(self, a: Float[Array, " a"]) -> tuple[Array, Array]:
        """(d, w) of a vector; w = 0 where it is not part of it."""
        n = self.model.tangent_size
        return a[:n], a[n:] if a.shape[0] > n else jnp.zeros(self.model.noise_size, dtype=a.dtype)

    def moved(self, x: Any, a: Float[Array, " a"], guess: Float[Array, " h"]) -> tuple[Any, Array, STEP_RESULTS]:
        """The state after the step that starts at `a` about x, its guess, and how it ended."""
        d, w = self.split(a)
        return stepped(self.model, self.model.retract(x, d), self.p, self.u, w, self.noise, guess)

    def residual(self, x: Any, x1: Any, reading: Reading) -> Float[Array, " c"]:
        """Whitened residuals of the readings of a step from x to x1."""
        predicted = jax.vmap(lambda s: self.model.observe(x, x1, self.p, s))(reading.s)
        return whitened(self.model, self.noise, predicted, reading.y, reading.weight)

    def read(self, belief: Belief, reading: Reading, a: Float[Array, " a"]) -> Float[Array, " c"]:
        """Whitened residuals at `a`."""
        x = x1 = self.model.retract(belief.x, self.split(a)[0])
        if self.model.reads_pair:
            x1 = self.moved(belief.x, a, belief.guess)[0]
        return self.residual(x, x1, reading)


class Move(NamedTuple):
    """The motion as a linear model about x, the next chart."""

    x: Any
    mean: Float[Array, " n"]  # of d+
    guess: Float[Array, " h"]
    result: STEP_RESULTS | None
    A: Float[Array, "n n"]
    B: Float[Array, "n m"]
    E: Float[Array, "n v"]
    c: Float[Array, " n"]
    factor: Float[Array, "n n"] | None = None  # of d+, where that is not what the line makes of it


class AbstractRule(eqx.Module):
    """How to make a linear model of the readings and of the motion."""

    @abc.abstractmethod
    def readings(
        self, at: Context, belief: Belief, reading: Reading
    ) -> tuple[Float[Array, "c a"], Float[Array, " c"], Float[Array, "c c"] | None]:
        """(H, y) of rows H a + n = y, n ~ N(0, 1); lower triangular factor of the covariance, in units of the readings'
        noise, that n stands for: None where it is that noise alone.
        """

    @abc.abstractmethod
    def motion(self, at: Context, belief: Belief) -> Move:
        """The motion from a belief that has seen its readings."""

    def step(
        self, at: Context, belief: Belief, reading: Reading, condition_on: Callable[..., tuple[Any, ...]]
    ) -> tuple[tuple[Any, ...], Move]:
        """Readings and motion in turn. `condition_on(*readings)` gives the belief that has seen the rows, and more."""
        found = condition_on(*self.readings(at, belief, reading))
        return found, self.motion(at, found[0])

    @abc.abstractmethod
    def noises(self, model: AbstractModel) -> int:
        """Components of (w, v)."""


class Line(NamedTuple):
    """A step by its derivative: x1 box-plus (A d + B w) for small changes (d, w) of where it starts."""

    x1: Any
    guess: Float[Array, " h"]
    result: STEP_RESULTS
    A: Float[Array, "n n"]
    B: Float[Array, "n m"]


def line_at(at: Context, belief: Belief, a: Float[Array, " a"]) -> Line:
    """The step that starts at `a`."""
    model, (d, w) = at.model, at.split(a)
    x1, guess, result = at.moved(belief.x, a, belief.guess)

    def again(d: Array, w: Array) -> Array:
        return model.local(replayed(model, model.retract(belief.x, d), at.p, at.u, w, at.noise, guess), x1)

    _, (A, B) = backwards(again, d, w)
    return Line(x1, guess, result, A, B)


Readings = tuple[Float[Array, "c a"], Float[Array, " c"]]  # rows (H, y): H a + n = y, n ~ N(0, 1)


def readings_along(at: Context, belief: Belief, reading: Reading, a: Float[Array, " a"], line: Line) -> Readings:
    """Rows of readings of the pair, through the step."""
    model, (d, _) = at.model, at.split(a)

    def residual(start: Array, end: Array) -> Array:
        return at.residual(model.retract(belief.x, start), model.retract(line.x1, end), reading)

    e, (by_start, by_end) = backwards(residual, d, jnp.zeros_like(d))
    H = -jnp.concatenate([by_start + by_end @ line.A, by_end @ line.B], axis=1)
    return H, e + H @ a


def readings_at(at: Context, belief: Belief, reading: Reading, a: Float[Array, " a"]) -> Readings:
    """Rows of the readings by their derivative at `a`."""
    if at.model.reads_pair:
        return readings_along(at, belief, reading, a, line_at(at, belief, a))
    e, (J,) = backwards(lambda a: at.read(belief, reading, a), a)
    return -J, e - J @ a


def motion_along(at: Context, a: Float[Array, " a"], line: Line) -> Move:
    """The motion about the step that starts at `a`, the mean of what is uncertain."""
    d, w = at.split(a)
    n = line.A.shape[0]
    zero, none = jnp.zeros(n, dtype=line.A.dtype), jnp.zeros((n, 0), dtype=line.A.dtype)
    return Move(line.x1, zero, line.guess, line.result, line.A, line.B, none, -line.A @ d - line.B @ w)


class Extended(AbstractRule):
    """Derivatives at the mean. With `iterations` > 1 the readings are linearised again where they lead to:
    Gauss-Newton on the step (iterated extended Kalman filter).

    **Source:** Bell and Cathey (1993), the iterated update as Gauss-Newton.
    """

    iterations: int = eqx.field(static=True, default=1)

    def readings(self, at, belief, reading):
        a = belief.mean
        for _ in range(self.iterations - 1):
            a = condition(belief.mean, belief.factor, *readings_at(at, belief, reading, a)).mean
        return *readings_at(at, belief, reading, a), None

    def motion(self, at, belief):
        return motion_along(at, belief.mean, line_at(at, belief, belief.mean))

    def step(self, at, belief, reading, condition_on):
        if not at.model.reads_pair:
            return super().step(at, belief, reading, condition_on)

        # The readings' rows and the motion come from derivatives of the same step, at the predicted and at the filtered
        # mean: a loop compiles them once.
        def round_(a: Array, _: None):
            line = line_at(at, belief, a)
            found = condition_on(*readings_along(at, belief, reading, a, line), None)
            return found[0].mean, (a, line, found)

        rounds = jax.lax.scan(round_, belief.mean, None, length=self.iterations + 1)[1]
        found = jax.tree.map(lambda x: x[-2], rounds[2])
        a, line = jax.tree.map(lambda x: x[-1], rounds[:2])
        return found, motion_along(at, a, line)

    def noises(self, model):
        return model.noise_size


class Unscented(AbstractRule):
    """Statistical linearisation at sigma points: the mean, and `spread` standard deviations to either side of it along
    every column of the factor. With the weights 1 / (2 spread^2) of the points, spread^2 = n is the cubature filter,
    spread^2 = 3 matches the fourth moment of a Gaussian.

    `centre`: further weight of the central point in covariances (beta of the scaled transform, 2 for a Gaussian).
    Weights that could make a covariance indefinite are not on offer: factors are kept throughout.

    **Source:** Julier and Uhlmann (2004); Arasaratnam and Haykin (2009); as linear model Garcia-Fernandez (2015).
    """

    spread: float | None = eqx.field(static=True, default=None)
    centre: float = eqx.field(static=True, default=0.0)

    def readings(self, at, belief, reading):
        def residual(a: Array) -> tuple[Array, None]:
            return at.read(belief, reading, a), None

        mean, H, noise, _ = self._regression(residual, belief.mean, belief.factor)
        # what the regression leaves unexplained is noise of the readings: whiten by both together
        c = mean.shape[0]
        L = lower(jnp.eye(c, dtype=mean.dtype), noise)
        H = small.solve_lower(L, H)
        return -H, small.solve_lower(L, mean) - H @ belief.mean, L

    def motion(self, at, belief):
        model, n = at.model, at.model.tangent_size
        mean, factor = belief.mean, belief.factor
        if not model.reads_pair:  # the noise of the step has its points, too
            m = model.noise_size
            mean = jnp.concatenate([mean, jnp.zeros(m, dtype=mean.dtype)])
            factor = jax.scipy.linalg.block_diag(factor, jnp.eye(m, dtype=mean.dtype))
        x1, guess, _ = at.moved(belief.x, belief.mean, belief.guess)

        def ended(a: Array) -> tuple[Array, STEP_RESULTS]:
            x, _, result = stepped(model, model.retract(belief.x, a[:n]), at.p, at.u, a[n:], at.noise, belief.guess)
            return model.local(x, x1), result

        average, G, E, results = self._regression(ended, mean, factor)
        return Move(x1, average, guess, worst(results), G[:, :n], G[:, n:], E, average - G @ mean)

    def noises(self, model):
        return model.noise_size + model.tangent_size + model.noise_size + 1

    def _regression(self, function, mean: Array, factor: Array) -> tuple[Array, Array, Array, Any]:
        """(average, G, E): function(a) is about average + G (a - mean) + E v over a ~ N(mean, factor factor'). And what
        it says besides at every point but the central one."""
        k = factor.shape[1]
        spread = float(k) ** 0.5 if self.spread is None else self.spread
        central = 1.0 - k / spread**2 + self.centre
        if central < -1e-9:
            raise ValueError(
                f"sigma points: {k} directions with spread {spread:g} give the centre the weight {central:g} in "
                f"covariances; use a spread of at least {k**0.5:.4g}, or raise `centre` by {-central:.4g}"
            )
        offsets = spread * jnp.concatenate([factor.T, -factor.T])
        values, besides = jax.vmap(lambda d: function(mean + d))(offsets)
        middle, _ = function(mean)
        plus, minus = values[:k], values[k:]
        weight = 1.0 / (2.0 * spread**2)
        average = (1.0 - k / spread**2) * middle + weight * jnp.sum(plus + minus, axis=0)
        slope = (plus - minus).T / (2.0 * spread)  # G factor
        bend = ((plus + minus) / 2.0 - average[None]).T / spread
        rest = max(central, 0.0) ** 0.5 * (middle - average)[:, None]
        return average, gain_of(slope, factor), jnp.concatenate([bend, rest], axis=1), besides
