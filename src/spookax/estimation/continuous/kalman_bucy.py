"""The extended Kalman-Bucy filter and its smoother, as differential equations.

    dm/dt = f(m) + K (y - g(m)),      dP/dt = A P + P A' - P C' R^-1 C P + Q,      K = P C' R^-1

with A and C the derivatives of f and g at the mean and Q = G G'. Readings come as samples at stamps of any spacing
(between them the terms with y are missing, and at a stamp the belief jumps), or as a signal in continuous time, where R
is a spectral density: a sample every dt with the standard deviation s is like a signal of density R = s^2 dt.

The smoother goes back with the adjoint variables of Bryson and Frazier, m_s = m + P l and P_s = P - P L P, which obey

    -dl/dt = (A - K C)' l + C' R^-1 (y - g),      -dL/dt = (A - K C)' L + L (A - K C) + C' R^-1 C

In exact arithmetic that is the smoother of Rauch, Tung and Striebel, d(m_s)/dt = f + (A + Q P^-1)(m_s - m); but P is
not inverted, and may be singular.

**Source:** Nagel and Huber (2021), equations (3) to (7); Bryson and Frazier (1963); Rauch, Tung, Striebel (1965).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._compiled import compiled
from ..._typing import AnyArray, Array, Float, Scalar
from ...protocol import AbstractContinuousModel, ModelError, Noise
from . import checks

_MOST_STEPS = 100_000  # of the integration


class Moments(NamedTuple):
    """Means and covariances at the stamps."""

    time: Float[Array, " k"]  # [s]
    mean: Float[Array, "k n"]
    covariance: Float[Array, "k n n"]

    @property
    def sd(self) -> Float[Array, "k n"]:
        """Standard deviations of the states."""
        return jnp.sqrt(jnp.maximum(jnp.diagonal(self.covariance, axis1=1, axis2=2), 0.0))


class FilteredMoments(NamedTuple):
    """A recording filtered at its stamps."""

    moments: Moments  # given the readings up to and at each stamp
    innovation: Float[Array, "k c"]  # reading minus prediction, in its standard deviation; 0 where there is none
    log_likelihood: Scalar
    predicted: Moments  # before the readings of each stamp


class Continuous(NamedTuple):
    """A signal filtered; what the smoother goes back along."""

    moments: Moments
    path: Callable[[Scalar], tuple[Array, Array]]  # mean and covariance at any time


class KalmanBucy(eqx.Module):
    """The extended filter of a model in continuous time.

    **Arguments:**

    - `model`, `z`: a model with a drift, its parameters. `noise`: scale of its process noise; standard deviations of
      samples, or for `follow` the roots of the spectral densities of the signals [unit of a reading root of a second].
    - `rtol`, `atol`: tolerances of the integration.

    Parameters are estimated as further states, whose rate is zero.
    """

    model: AbstractContinuousModel
    z: Float[AnyArray, " p"]
    noise: Noise
    rtol: Float[AnyArray, ""] | float = 1e-7
    atol: Float[AnyArray, ""] | float = 1e-9

    def run(
        self, time: AnyArray, y: AnyArray, x0: AnyArray, P0: AnyArray, u: AnyArray | None = None
    ) -> FilteredMoments:
        """Filter samples: `time` (k,) ascending [s], `y` (k, channels) with NaN where there is no reading (a stamp
        without any is a moment that one wants to know of), `u` (k, inputs), held until the next stamp.

        `x0`, `P0`: mean and covariance at the first stamp, before its readings.

        **Raises:** `ModelError` for a drift or a covariance that cannot be used.
        """
        time, y = np.asarray(time, dtype=float), np.asarray(y, dtype=float)
        u = np.zeros((len(time), self.model.inputs)) if u is None else np.asarray(u, dtype=float)
        checks.model(self.model, self.z, x0, u)
        P0 = checks.covariance("P0", P0, self.model.tangent_size)
        if np.any(~(np.diff(time) > 0)):
            raise ModelError("`time` must ascend: every stamp later than the one before it")
        if y.shape != (len(time), self.model.num_channels):
            raise ModelError(f"`y` must have the shape ({len(time)}, {self.model.num_channels}), got {y.shape}")
        return _run(self, time, y, u, np.asarray(x0, dtype=float), P0)

    def smooth(self, found: FilteredMoments, y: AnyArray, u: AnyArray | None = None) -> Moments:
        """Moments at the stamps given all samples; `y` and `u` as they were filtered."""
        count = len(found.moments.time)
        u = np.zeros((count, self.model.inputs)) if u is None else np.asarray(u, dtype=float)
        return _smooth(self, found, np.asarray(y, dtype=float), u)

    def follow(
        self,
        time: AnyArray,
        y: Callable[[Scalar], Array],
        x0: AnyArray,
        P0: AnyArray,
        u: Callable[[Scalar], Array] | None = None,
    ) -> Continuous:
        """Filter signals y(t) and inputs u(t), functions of the time in JAX; moments at the stamps `time`."""
        import diffrax as dfx

        checks.model(self.model, self.z, x0, np.zeros(self.model.inputs) if u is None else u(jnp.asarray(time)[0]))
        P0 = checks.covariance("P0", P0, self.model.tangent_size)
        time, p, given = jnp.asarray(time), self.model.prepare(jnp.asarray(self.z)), u or self._no_input

        def rate(t: Scalar, state: tuple[Array, Array], _) -> tuple[Array, Array]:
            m, P = state
            A, C, Q, W = self._linear(m, given(t), p)
            m_dot = self.model.drift(m, p, given(t)) + P @ C.T @ (W * self.model.difference(y(t), self._read(m, p)))
            return m_dot, A @ P + P @ A.T - P @ (C.T * W[None]) @ C @ P + Q

        both = dfx.SaveAt(ts=time, dense=True)
        found = self._solved(rate, time[0], time[-1], (jnp.asarray(x0, dtype=float), jnp.asarray(P0)), both)
        assert found.ys is not None
        return Continuous(Moments(time, *found.ys), found.evaluate)

    def smooth_signal(
        self, found: Continuous, y: Callable[[Scalar], Array], u: Callable[[Scalar], Array] | None = None
    ) -> Moments:
        """Moments at the stamps given the whole signal; `y` and `u` as they were filtered."""
        import diffrax as dfx

        p, given = self.model.prepare(jnp.asarray(self.z)), u or self._no_input
        n, time = self.model.tangent_size, found.moments.time

        def rate(back: Scalar, state: tuple[Array, Array], _) -> tuple[Array, Array]:
            l, L = state
            t = time[-1] - back
            m, P = found.path(t)
            A, C, _, W = self._linear(m, given(t), p)
            closed = A - P @ (C.T * W[None]) @ C
            l_dot = closed.T @ l + C.T @ (W * self.model.difference(y(t), self._read(m, p)))
            return l_dot, closed.T @ L + L @ closed + (C.T * W[None]) @ C

        still = jnp.zeros(n), jnp.zeros((n, n))
        ago = time[-1] - time[::-1]
        told = self._solved(rate, ago[0], ago[-1], still, dfx.SaveAt(ts=ago)).ys
        l, L = jax.tree.map(lambda a: a[::-1], told)
        return Moments(time, *jax.vmap(_improved)(found.moments.mean, found.moments.covariance, l, L))

    # --- what both are made of

    def _no_input(self, t: Scalar) -> Float[Array, " inputs"]:
        return jnp.zeros(self.model.inputs)

    def _read(self, m: Array, p: object) -> Float[Array, " c"]:
        return self.model.read(m, p)

    def _linear(self, m: Array, u: Array, p: object) -> tuple[Array, Array, Array, Array]:
        """A, C and Q at a mean, and 1 / R of every channel."""
        A = jax.jacfwd(lambda x: self.model.drift(x, p, u))(m)
        C = jax.jacfwd(lambda x: self.model.read(x, p))(m)
        G = self.model.spread(m, p) * self.noise.process
        return A, C, G @ G.T, 1.0 / jnp.asarray(self.noise.sensor) ** 2

    def _solved(self, rate: Callable, t0: Scalar, t1: Scalar, start: tuple, save):
        import diffrax as dfx

        control = dfx.PIDController(rtol=self.rtol, atol=self.atol)  # pyright: ignore[reportArgumentType]
        term, most = dfx.ODETerm(rate), _MOST_STEPS if not save.dense else 4096
        return dfx.diffeqsolve(
            term, dfx.Tsit5(), t0, t1, None, start, saveat=save, stepsize_controller=control, max_steps=most
        )

    def _update(self, m: Array, P: Array, y: Array, p: object) -> tuple[Array, Array, Array, Array, Array, Array]:
        """After the readings of a stamp: mean, covariance, whitened innovation, log-likelihood; what the adjoint
        variables gain, C' F^-1 nu and C' F^-1 C.
        """
        there = ~jnp.isnan(y)
        sd = jnp.asarray(self.noise.sensor)
        C = jnp.where(there[:, None], jax.jacfwd(lambda x: self.model.read(x, p))(m) / sd[:, None], 0.0)
        nu = jnp.where(there, self.model.difference(jnp.where(there, y, 0.0), self.model.read(m, p)) / sd, 0.0)
        eye = jnp.eye(len(y))
        F = C @ P @ C.T + eye
        K = jnp.linalg.solve(F, C @ P).T
        keep = jnp.eye(len(m)) - K @ C
        by = jnp.linalg.solve(F, jnp.column_stack([nu, C]))
        told = -0.5 * (nu @ by[:, 0] + jnp.linalg.slogdet(F)[1])
        told = told - jnp.sum(jnp.where(there, jnp.log(sd) + 0.5 * math.log(2 * math.pi), 0.0))
        return m + K @ nu, keep @ P @ keep.T + K @ K.T, nu, told, C.T @ by[:, 0], C.T @ by[:, 1:]


def _improved(m: Array, P: Array, l: Array, L: Array) -> tuple[Array, Array]:
    return m + P @ l, P - P @ L @ P


@compiled
def _run(f: KalmanBucy, time: Array, y: Array, u: Array, x0: Array, P0: Array) -> FilteredMoments:
    import diffrax as dfx

    p = f.model.prepare(jnp.asarray(f.z))

    def body(belief: tuple[Array, Array], stamp):
        t, t1, y, u = stamp
        m, P = belief
        m1, P1, nu, told, *_ = f._update(m, P, y, p)

        def rate(_, state: tuple[Array, Array], __) -> tuple[Array, Array]:
            m, P = state
            A, _, Q, _ = f._linear(m, u, p)
            return f.model.drift(m, p, u), A @ P + P @ A.T + Q

        after = f._solved(rate, t, t1, (m1, P1), dfx.SaveAt(t1=True)).ys
        return jax.tree.map(lambda a: a[0], after), (m, P, m1, P1, nu, told)

    ends = jnp.append(time[1:], 2 * time[-1] - time[-2])
    start = jnp.asarray(x0), jnp.asarray(P0)
    _, (m, P, m1, P1, nu, told) = jax.lax.scan(body, start, (jnp.asarray(time), ends, jnp.asarray(y), jnp.asarray(u)))
    stamps = jnp.asarray(time)
    return FilteredMoments(Moments(stamps, m1, P1), nu, jnp.sum(told), Moments(stamps, m, P))


@compiled
def _smooth(f: KalmanBucy, found: FilteredMoments, y: Array, u: Array) -> Moments:
    import diffrax as dfx

    p, n = f.model.prepare(jnp.asarray(f.z)), f.model.tangent_size

    def body(adjoint: tuple[Array, Array], stamp):
        length, m, P, m1, P1, y, u = stamp

        # back over the interval after the stamp, along the mean that the filter followed there, which is found again
        # forwards: backwards, what is damped would explode
        def ahead(_, x: Array, __) -> Array:
            return f.model.drift(x, p, u)

        mean = f._solved(ahead, jnp.zeros_like(length), length, m1, dfx.SaveAt(dense=True))

        def rate(back: Scalar, state: tuple[Array, Array], _) -> tuple[Array, Array]:
            l, L = state
            A, *_ = f._linear(mean.evaluate(length - back), u, p)
            return A.T @ l, A.T @ L + L @ A

        told = f._solved(rate, jnp.zeros_like(length), length, adjoint, dfx.SaveAt(t1=True)).ys
        l, L = jax.tree.map(lambda a: a[0], told)
        smoothed = _improved(m1, P1, l, L)
        _, _, _, _, said, information = f._update(m, P, y, p)
        # through the update: the filter's closed loop I - K C, then what the readings say themselves
        C = jax.jacfwd(lambda x: f.model.read(x, p))(m)
        scaled = jnp.where(jnp.isnan(y)[:, None], 0.0, C / jnp.asarray(f.noise.sensor)[:, None])
        keep = jnp.eye(n) - jnp.linalg.solve(scaled @ P @ scaled.T + jnp.eye(len(y)), scaled @ P).T @ scaled
        return (keep.T @ l + said, keep.T @ L @ keep + information), smoothed

    time = found.moments.time
    lengths = jnp.append(jnp.diff(time), time[-1] - time[-2])
    stamps = (lengths, *found.predicted[1:], *found.moments[1:], jnp.asarray(y), jnp.asarray(u))
    # after the last stamp nothing is read: the adjoint variables are zero there, and so at its end
    _, (mean, covariance) = jax.lax.scan(body, (jnp.zeros(n), jnp.zeros((n, n))), stamps, reverse=True)
    return Moments(time, mean, covariance)
