"""How a recursive estimator makes a linear model of a step: at a point, at an iterated point, or at sigma points.

A rule is asked twice a step: for the readings, as whitened rows on what is uncertain, and for the motion

    d+ = A d + B w + E v + c,   w and v ~ N(0, 1),

in the chart about the predicted state. What is uncertain is a = d, or a = (d, w) where readings depend on the noise of
their own step (`model.reads_pair`). E is what the rule itself is unsure of: nothing at a point, the curvature that
sigma points see.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from .._typing import Array, Float
from ..math import small
from ..math.sqrt_gaussian import condition, gain_of, upper
from ..protocol import AbstractModel, Noise
from .linearise import backwards, whitened


class Belief(eqx.Module):
    """What is believed about the state: x box-plus d with d ~ N(mean, factor factor').

    Where readings depend on the noise of their step, mean and factor go on with that of w.
    """

    x: Any
    mean: Float[Array, " a"]
    factor: Float[Array, "a k"]
    hint: Float[Array, " h"]  # what the last step found out about itself


class Reading(NamedTuple):
    """The readings of one step; a slot for each place in it."""

    y: Float[Array, "M channels"]
    s: Float[Array, " M"]
    seen: Float[Array, "M channels"]


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

    def moved(self, belief: Belief, a: Float[Array, " a"]) -> tuple[Any, Array]:
        """The state after the step that starts at `a`, and its hint."""
        d, w = self.split(a)
        return self.model.step(self.model.retract(belief.x, d), self.p, self.u, w, self.noise, belief.hint)

    def read(self, belief: Belief, reading: Reading, a: Float[Array, " a"], hint: Array | None) -> Float[Array, " c"]:
        """Whitened residuals at `a`; with a hint the step is replayed, else searched."""
        model, (d, w) = self.model, self.split(a)
        x = x1 = model.retract(belief.x, d)
        if model.reads_pair:
            x1 = self.moved(belief, a)[0] if hint is None else model.replay(x, self.p, self.u, w, self.noise, hint)
        predicted = jax.vmap(lambda s: model.observe(x, x1, self.p, s))(reading.s)
        return whitened(model, self.noise, predicted, reading.y, reading.seen)


class Move(NamedTuple):
    """The motion as a linear model about x, the next chart."""

    x: Any
    hint: Float[Array, " h"]
    A: Float[Array, "n n"]
    B: Float[Array, "n m"]
    E: Float[Array, "n v"]
    c: Float[Array, " n"]


class AbstractRule(eqx.Module):
    """How to make a linear model of the readings and of the motion."""

    @abc.abstractmethod
    def readings(self, at: Context, belief: Belief, reading: Reading) -> tuple[Float[Array, "c a"], Float[Array, " c"]]:
        """(H, y) of rows H a + n = y, n ~ N(0, 1)."""

    @abc.abstractmethod
    def motion(self, at: Context, belief: Belief) -> Move:
        """The motion from a belief that has seen its readings."""

    @abc.abstractmethod
    def noises(self, model: AbstractModel) -> int:
        """Components of (w, v)."""


def rows_at(
    at: Context, belief: Belief, reading: Reading, a: Float[Array, " a"]
) -> tuple[Float[Array, "c a"], Float[Array, " c"]]:
    """Rows of the readings by their derivative at `a`."""
    hint = at.moved(belief, a)[1] if at.model.reads_pair else belief.hint
    e, (J,) = backwards(lambda a: at.read(belief, reading, a, hint), a)
    return -J, e - J @ a


def motion_at(at: Context, belief: Belief, a: Float[Array, " a"]) -> Move:
    """The motion by its derivative at `a`."""
    model, (d, w) = at.model, at.split(a)
    x1, hint = at.moved(belief, a)

    def stepped(d: Array, w: Array) -> Array:
        return model.local(model.replay(model.retract(belief.x, d), at.p, at.u, w, at.noise, hint), x1)

    _, (A, B) = backwards(stepped, d, w)
    return Move(x1, hint, A, B, jnp.zeros((A.shape[0], 0), dtype=A.dtype), -A @ d - B @ w)


class Extended(AbstractRule):
    """Derivatives at the mean. With `iterations` > 1 the readings are linearised again where they lead to:
    Gauss-Newton on the step (iterated extended Kalman filter).

    **Source:** Bell and Cathey (1993), the iterated update as Gauss-Newton.
    """

    iterations: int = eqx.field(static=True, default=1)

    def readings(self, at, belief, reading):
        a = belief.mean
        for _ in range(self.iterations - 1):
            a = condition(belief.mean, belief.factor, *rows_at(at, belief, reading, a)).mean
        return rows_at(at, belief, reading, a)

    def motion(self, at, belief):
        return motion_at(at, belief, belief.mean)

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
        mean, H, noise = self._regression(lambda a: at.read(belief, reading, a, None), belief.mean, belief.factor)
        # what the regression leaves unexplained is noise of the readings: whiten by both together
        c = mean.shape[0]
        L = upper(jnp.concatenate([jnp.eye(c, dtype=mean.dtype), noise.T])).T
        H = small.solve_lower(L, H)
        return -H, small.solve_lower(L, mean) - H @ belief.mean

    def motion(self, at, belief):
        model, n = at.model, at.model.tangent_size
        mean, factor = belief.mean, belief.factor
        if not model.reads_pair:  # the noise of the step has its points, too
            m = model.noise_size
            mean = jnp.concatenate([mean, jnp.zeros(m, dtype=mean.dtype)])
            factor = jax.scipy.linalg.block_diag(factor, jnp.eye(m, dtype=mean.dtype))
        x1, hint = at.moved(belief, belief.mean)

        def stepped(a: Array) -> Array:
            x, _ = model.step(model.retract(belief.x, a[:n]), at.p, at.u, a[n:], at.noise, belief.hint)
            return model.local(x, x1)

        average, G, E = self._regression(stepped, mean, factor)
        return Move(x1, hint, G[:, :n], G[:, n:], E, average - G @ mean)

    def noises(self, model):
        return model.noise_size + model.tangent_size + model.noise_size + 1

    def _regression(self, function, mean: Array, factor: Array) -> tuple[Array, Array, Array]:
        """(average, G, E): function(a) is about average + G (a - mean) + E v over a ~ N(mean, factor factor')."""
        k = factor.shape[1]
        spread = float(k) ** 0.5 if self.spread is None else self.spread
        central = 1.0 - k / spread**2 + self.centre
        if central < -1e-9:
            raise ValueError(
                f"sigma points: {k} directions with spread {spread:g} give the centre the weight {central:g} in "
                f"covariances; use a spread of at least {k**0.5:.4g}, or raise `centre` by {-central:.4g}"
            )
        offsets = spread * jnp.concatenate([factor.T, -factor.T])
        values = jax.vmap(lambda d: function(mean + d))(offsets)
        middle = function(mean)
        plus, minus = values[:k], values[k:]
        weight = 1.0 / (2.0 * spread**2)
        average = (1.0 - k / spread**2) * middle + weight * jnp.sum(plus + minus, axis=0)
        slope = (plus - minus).T / (2.0 * spread)  # G factor
        bend = ((plus + minus) / 2.0 - average).T / spread
        rest = max(central, 0.0) ** 0.5 * (middle - average)[:, None]
        return average, gain_of(slope, factor), jnp.concatenate([bend, rest], axis=1)
