"""Mean and covariance of the Kalman-Bucy filter as networks of time, and what makes them solve its equations.

**Source:** T. Nagel, M. F. Huber, *Kalman-Bucy-informed neural network for system identification* (2021), equations
(10) to (17).

Departures. The third loss is (17), whose variance is that of a reading, `sd`; the gain and the Riccati equation take
R per second, a spectral density (`density`), where the source has one matrix for both. Means and factors are scaled by
the readings and the first covariance, so that the networks' outputs are of the order of one.
"""

import abc
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._typing import AnyArray, Array, Float, Scalar
from ...protocol import AbstractContinuousModel

_TINY = 1e-12  # under the root of a norm, which has no derivative at zero


class Readings(NamedTuple):
    """Samples of one recording, or of a batch of recordings with a leading axis."""

    time: Float[AnyArray, " k"]  # [s]
    y: Float[AnyArray, "k channels"]  # NaN where there is none
    u: Float[AnyArray, "k inputs"]


class Belief(NamedTuple):
    """What a filter begins with, and its levels."""

    x0: Float[AnyArray, " n"]
    P0: Float[AnyArray, "n n"]
    sd: Float[AnyArray, " channels"]  # of a reading
    density: Float[AnyArray, " channels"]  # root of the spectral density of the readings [unit root of a second]
    process: Float[AnyArray, ""]  # scale of the model's process noise


class Networks(eqx.Module):
    """Both networks and the unknowns z, which are trained together.

    Hidden layers have the hyperbolic tangent, outputs are linear. The covariance is U' U, U triangular. What the layers
    see is the time and, with `waves`, sines and cosines of it besides: a plain network of time, as the source has it,
    learns quick motions very slowly (Tancik et al., *Fourier features let networks learn high frequency functions*,
    2020).
    """

    mean_net: eqx.nn.MLP
    factor_net: eqx.nn.MLP
    z: Float[Array, " p"]
    middle: Float[Array, ""]  # of the time [s]
    span: Float[Array, ""]  # half the length of the data [s]
    frequency: Float[Array, " waves"]  # of the sines and cosines [rad/s]
    shift: Float[Array, " n"]  # of the mean
    scale: Float[Array, " n"]
    first: Float[Array, "n n"]  # factor of the first covariance

    def __init__(
        self,
        z: Float[AnyArray, " p"],
        belief: Belief,
        time: tuple[Any, Any],
        shift: AnyArray,
        scale: AnyArray,
        *,
        key: Array,
        width: int = 40,
        depth: int = 2,
        waves: int = 16,
        quickest: Any = 40.0,
    ):
        """`time`: begin and end of the data [s]; `shift`, `scale`: middle and size of every state; `width`, `depth`: of
        the hidden layers; `waves`: how many frequencies, evenly up to `quickest` [rad/s].
        """
        n = len(belief.x0)
        dtype = jnp.asarray(z).dtype
        keys = jax.random.split(key)
        seen = 1 + 2 * waves
        self.mean_net = eqx.nn.MLP(seen, n, width, depth, jnp.tanh, dtype=dtype, key=keys[0])
        self.factor_net = eqx.nn.MLP(seen, n * (n + 1) // 2, width, depth, jnp.tanh, dtype=dtype, key=keys[1])
        self.z = jnp.asarray(z)
        self.middle = jnp.asarray((time[0] + time[1]) / 2)
        self.span = jnp.asarray((time[1] - time[0]) / 2)
        self.frequency = jnp.asarray(quickest) * jnp.arange(1, waves + 1, dtype=dtype) / max(waves, 1)
        self.shift, self.scale = jnp.asarray(shift), jnp.asarray(scale)
        self.first = jnp.linalg.cholesky(jnp.asarray(belief.P0))

    def mean(self, t: Scalar) -> Float[Array, " n"]:
        """The state's mean at a time."""
        return self._still(self.shift) + self._still(self.scale) * self.mean_net(self._input(t))

    def factor(self, t: Scalar) -> Float[Array, "n n"]:
        """U, triangular, of the covariance U' U at a time, about that of the first covariance."""
        n = self.shift.shape[0]
        out = self.factor_net(self._input(t))
        moved = jnp.eye(n, dtype=out.dtype).at[jnp.triu_indices(n)].add(out)
        return moved @ self._still(self.first).T

    def covariance(self, t: Scalar) -> Float[Array, "n n"]:
        """The state's covariance at a time."""
        U = self.factor(t)
        return U.T @ U

    def _input(self, t: Scalar) -> Float[Array, " seen"]:
        since = t - self._still(self.middle)
        phase = self._still(self.frequency) * since
        return jnp.concatenate([(3.0 * since / self._still(self.span))[None], jnp.sin(phase), jnp.cos(phase)])

    @staticmethod
    def _still(a: Array) -> Array:
        return jax.lax.stop_gradient(a)


class AbstractLoss(eqx.Module):
    """What is to be small: a part for every sample, and one for the start."""

    @abc.abstractmethod
    def __call__(
        self, nets: Networks, model: AbstractContinuousModel, belief: Belief, t: Scalar, y: Array, u: Array
    ) -> Scalar:
        """Its part of a sample."""

    @abc.abstractmethod
    def at_start(self, nets: Networks, belief: Belief, t0: Scalar) -> Scalar:
        """The part about the first moments."""


def norm(a: Array) -> Scalar:
    """Euclidean (Frobenius) norm, with a derivative at zero."""
    return jnp.sqrt(jnp.sum(a * a) + _TINY)


def quadrature(m: Float[Array, " n"], U: Float[Array, "n n"]) -> tuple[Float[Array, "2n n"], Scalar]:
    """Points about m and their weight, by which means over N(m, U' U) are exact for polynomials up to the third degree
    (the cubature of McNamee and Stenger (1967); Arasaratnam and Haykin (2009))."""
    n = m.shape[0]
    steps = math.sqrt(n) * U
    return m[None] + jnp.concatenate([steps, -steps]), jnp.asarray(1 / (2 * n), dtype=m.dtype)


class KalmanBucyLoss(AbstractLoss):
    """The source's loss (11): residuals of the mean's equation (12) and of the Riccati equation (14), and minus the
    log-likelihood of the readings (17) with its moments by quadrature; `weights` are alpha_1 to alpha_3.

    `known_start`: whether the mean is to begin at x0.
    """

    weights: Float[AnyArray, " 3"] | Sequence[float] = (1.0, 1.0, 1.0)
    known_start: Float[AnyArray, ""] | float = 1.0

    def __call__(
        self, nets: Networks, model: AbstractContinuousModel, belief: Belief, t: Scalar, y: Array, u: Array
    ) -> Scalar:
        p = model.prepare(nets.z)
        one = jnp.ones_like(t)
        m, m_dot = jax.jvp(nets.mean, (t,), (one,))
        P, P_dot = jax.jvp(nets.covariance, (t,), (one,))
        there = ~jnp.isnan(y)
        A = jax.jacfwd(lambda x: model.drift(x, p, u))(m)
        C = jax.jacfwd(lambda x: model.read(x, p))(m)
        G = model.spread(m, p) * belief.process
        W = jnp.where(there, 1.0 / jnp.asarray(belief.density) ** 2, 0.0)
        nu = jnp.where(there, model.difference(jnp.where(there, y, 0.0), model.read(m, p)), 0.0)
        gain = P @ (C.T * W[None])
        first = norm(m_dot - model.drift(m, p, u) - gain @ nu)
        second = norm(P_dot - (A @ P + P @ A.T - gain @ C @ P + G @ G.T))
        third = self._unlikely(nets, model, p, belief, t, m, y, there)
        a = jnp.asarray(self.weights, dtype=m.dtype)
        return a[0] * first + a[1] * second + a[2] * third

    def at_start(self, nets: Networks, belief: Belief, t0: Scalar) -> Scalar:
        """The parts of (12) and (14) about the first moments."""
        a = jnp.asarray(self.weights, dtype=nets.shift.dtype)
        mean = self.known_start * norm(nets.mean(t0) - jnp.asarray(belief.x0))
        return a[0] * mean + a[1] * norm(nets.covariance(t0) - jnp.asarray(belief.P0))

    def _unlikely(
        self,
        nets: Networks,
        model: AbstractContinuousModel,
        p: Any,
        belief: Belief,
        t: Scalar,
        m: Array,
        y: Array,
        there: Array,
    ) -> Scalar:
        points, weight = quadrature(m, nets.factor(t))
        read = jax.vmap(lambda x: model.read(x, p))(points)
        mean = weight * jnp.sum(read, axis=0)
        variance = weight * jnp.sum((read - mean[None]) ** 2, axis=0) + jnp.asarray(belief.sd) ** 2
        nu = jnp.where(there, model.difference(jnp.where(there, y, 0.0), mean), 0.0)
        said = nu**2 / variance + jnp.log(2 * math.pi * variance)
        return 0.5 * jnp.sum(jnp.where(there, said, 0.0))


class PhysicsLoss(AbstractLoss):
    """The loss of a plain physics-informed network (10): squares of the residual of the equations without noise, and of
    the readings; here each in its own unit, the former over `scale` per second of every state.

    With `scale` the root of a density over that of the time between samples it is the batch method's cost, the states
    on a network instead of free.
    """

    scale: Float[AnyArray, " n"]

    def __call__(
        self, nets: Networks, model: AbstractContinuousModel, belief: Belief, t: Scalar, y: Array, u: Array
    ) -> Scalar:
        return jnp.sum(self.residuals(nets, model, belief, t, y, u) ** 2)

    def at_start(self, nets: Networks, belief: Belief, t0: Scalar) -> Scalar:
        return jnp.zeros_like(t0)

    def residuals(
        self, nets: Networks, model: AbstractContinuousModel, belief: Belief, t: Scalar, y: Array, u: Array
    ) -> Float[Array, " r"]:
        """What is squared."""
        p = model.prepare(nets.z)
        m, m_dot = jax.jvp(nets.mean, (t,), (jnp.ones_like(t),))
        there = ~jnp.isnan(y)
        nu = jnp.where(there, model.difference(jnp.where(there, y, 0.0), model.read(m, p)), 0.0)
        return jnp.concatenate([(m_dot - model.drift(m, p, u)) / jnp.asarray(self.scale), nu / jnp.asarray(belief.sd)])
