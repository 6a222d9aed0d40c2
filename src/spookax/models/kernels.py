"""Gaussian processes in time as linear stochastic differential equations.

A stationary process f with the covariance k(tau) is written

    ds = F s dt + G dW,   f = H s,   s(0) ~ N(0, S S'),   k(tau) = H exp(F |tau|) S S' H',

whose states are f and, in units of the length scale, derivatives of it. Numbers of a kernel (standard deviation,
length, period) are traced; the number of its states is static. The first entry of H is one: a state (f, 0, ...) has the
force f.

**Source:** Hartikainen and Särkkä (2010) for Matern kernels and the squared exponential; Solin and Särkkä (2014) for
periodic kernels, sums and products.
"""

import abc
import functools
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.core import Tracer

from .._typing import AnyArray, Array, Float, Scalar
from ..math.linear_sde import exponential

_Number = Float[AnyArray, ""] | float


class StateSpace(NamedTuple):
    """ds = F s dt + G dW, f = H s, s(0) ~ N(0, S S')."""

    F: Float[Array, "n n"]
    G: Float[Array, "n m"]
    H: Float[Array, " n"]
    S: Float[Array, "n n"]


class AbstractKernel(eqx.Module):
    """A covariance in time."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Number of states."""

    @abc.abstractmethod
    def state_space(self) -> StateSpace:
        """The process."""

    def covariance(self, lag: Scalar | float) -> Scalar:
        """k(tau) of the process as its states have it, `lag` tau [s]."""
        own = self.state_space()
        return own.H @ exponential(own.F * jnp.abs(lag)) @ own.S @ own.S.T @ own.H

    def __add__(self, other: "AbstractKernel") -> "Sum":
        return Sum(self, other)

    def __mul__(self, other: "AbstractKernel") -> "Product":
        return Product(self, other)


def positive(value: _Number, what: str) -> Array:
    """A number that has to be positive. **Raises:** `ValueError`; in compiled code, which could do so only by a call of
    Python, and then could not be kept on disk, it is NaN instead.
    """
    x = jnp.asarray(value, dtype=float)
    if isinstance(x, Tracer):
        return jnp.where(x > 0, x, jnp.nan)
    if not np.all(np.asarray(x) > 0):
        raise ValueError(f"{what} must be positive, got {np.asarray(x)}")
    return x


class _Unit(NamedTuple):
    """A process of variance 1 and length scale 1."""

    F: np.ndarray
    G: np.ndarray
    S: np.ndarray


def _unit(poles: np.ndarray) -> _Unit:
    """The process 1 / prod (d/dt - pole) of white noise, scaled to variance 1; states f and its derivatives."""
    n = len(poles)
    F = np.diag(np.ones(n - 1), 1)
    F[-1] = -np.real(np.poly(poles))[:0:-1]
    noise = np.zeros((n, n))
    noise[-1, -1] = 1.0
    P = scipy.linalg.solve_continuous_lyapunov(F, -noise)
    P = (P + P.T) / 2
    P[np.add.outer(np.arange(n), np.arange(n)) % 2 > 0] = 0.0  # odd derivatives and even ones are not correlated
    scale = 1.0 / np.sqrt(P[0, 0])
    G = np.zeros((n, 1))
    G[-1] = scale
    return _Unit(F, G, scale * np.linalg.cholesky(P))


class _Smooth(AbstractKernel):
    """A process that is known for variance 1 and length 1."""

    sd: eqx.AbstractVar[Float[Array, ""]]
    length: eqx.AbstractVar[Float[Array, ""]]

    @property
    @abc.abstractmethod
    def unit(self) -> _Unit:
        """That process."""

    @property
    def size(self) -> int:
        return len(self.unit.F)

    def state_space(self) -> StateSpace:
        own, H = self.unit, np.zeros(self.size)
        H[0] = 1.0
        G = jnp.asarray(own.G) * (self.sd / jnp.sqrt(self.length))
        return StateSpace(jnp.asarray(own.F) / self.length, G, jnp.asarray(H), self.sd * own.S)


@functools.cache
def _matern(order: int) -> _Unit:
    return _unit(np.full(order + 1, -math.sqrt(2.0 * order + 1.0)))


@functools.cache
def _squared_exponential(order: int) -> _Unit:
    # 1 / spectrum, exp(w^2 / 2), by its series in -s^2 = w^2; the stable half of its roots
    series = [(-0.5) ** k / math.factorial(k) for k in range(order, -1, -1)]
    roots = np.sqrt(np.asarray(np.roots(series), dtype=complex))
    return _unit(np.where(np.real(roots) > 0, -roots, roots))


class Matern(_Smooth):
    """The Matern covariance of smoothness nu = `order` + 1/2: 0 is the exponential, with jagged paths; those of 1 and 2
    have one and two derivatives.

    **Arguments:** `sd` sigma_f [N], the standard deviation; `length` l [s], with sqrt(2 nu) |tau| / l in (7).
    """

    sd: Float[Array, ""]
    length: Float[Array, ""]
    order: int = eqx.field(static=True)

    def __init__(self, sd: _Number, length: _Number, order: int = 0):
        if order not in (0, 1, 2):
            raise ValueError(f"Matern kernels have the order 0, 1 or 2 (nu = 1/2, 3/2, 5/2), got {order}")
        self.sd, self.length = positive(sd, "`sd` of a kernel"), positive(length, "`length` of a kernel [s]")
        self.order = order

    @property
    def unit(self) -> _Unit:
        return _matern(self.order)


class SquaredExponential(_Smooth):
    """sd^2 exp(-tau^2 / (2 length^2)), about: its spectrum is one over the first `order` terms of a series. The error
    of the covariance is below 2.5 % of the variance with order 4, 0.5 % with 6.
    """

    sd: Float[Array, ""]
    length: Float[Array, ""]
    order: int = eqx.field(static=True)

    def __init__(self, sd: _Number, length: _Number, order: int = 6):
        if not 1 <= order <= 8:
            raise ValueError(f"the series of a squared exponential has 1 to 8 terms, got {order}")
        self.sd, self.length = positive(sd, "`sd` of a kernel"), positive(length, "`length` of a kernel [s]")
        self.order = order

    @property
    def unit(self) -> _Unit:
        return _squared_exponential(self.order)


class Periodic(AbstractKernel):
    """sd^2 exp(-2 sin^2(pi tau / period) / length^2), about: its first `harmonics`, scaled to the variance.

    `length` is measured in radians of half the phase: it is no time. Nothing drives the states: the process repeats
    itself for ever.
    """

    sd: Float[Array, ""]
    length: Float[Array, ""]
    period: Float[Array, ""]
    harmonics: int = eqx.field(static=True)

    def __init__(self, sd: _Number, length: _Number, period: _Number, harmonics: int = 6):
        if harmonics < 1:
            raise ValueError(f"a periodic kernel needs one harmonic at least, got {harmonics}")
        self.sd, self.length = positive(sd, "`sd` of a kernel"), positive(length, "`length` of a kernel")
        self.period, self.harmonics = positive(period, "`period` of a kernel [s]"), harmonics

    @property
    def size(self) -> int:
        return 2 * self.harmonics + 1

    def state_space(self) -> StateSpace:
        # Fourier coefficients by a sum over one period, exact to rounding for so smooth a function
        count = max(64, 8 * self.harmonics)
        phase = 2.0 * np.pi * np.arange(count) / count
        value = jnp.exp((np.cos(phase) - 1.0) / self.length**2)
        number = np.arange(self.harmonics + 1)
        power = jnp.asarray(np.cos(np.outer(number, phase))) @ value * np.where(number > 0, 2.0, 1.0)
        root = self.sd * jnp.sqrt(jnp.abs(power) / jnp.sum(jnp.abs(power)))
        n, rate = self.size, 2.0 * np.pi / self.period
        turn = np.zeros((n, n))
        for j in range(1, self.harmonics + 1):
            turn[2 * j - 1, 2 * j], turn[2 * j, 2 * j - 1] = -j, j
        H = np.zeros(n)
        H[0] = 1.0
        H[1::2] = 1.0
        return StateSpace(rate * turn, jnp.zeros((n, 0)), jnp.asarray(H), jnp.diag(root[(np.arange(n) + 1) // 2]))


class Sum(AbstractKernel):
    """A sum of independent processes."""

    first: AbstractKernel
    second: AbstractKernel

    @property
    def size(self) -> int:
        return self.first.size + self.second.size

    def state_space(self) -> StateSpace:
        a, b = self.first.state_space(), self.second.state_space()
        F, G, S = (jax.scipy.linalg.block_diag(x, y) for x, y in zip((a.F, a.G, a.S), (b.F, b.G, b.S), strict=True))
        return StateSpace(F, G, jnp.concatenate([a.H, b.H]), S)


class Product(AbstractKernel):
    """A product of covariances; the states are the products of both processes' states."""

    first: AbstractKernel
    second: AbstractKernel

    @property
    def size(self) -> int:
        return self.first.size * self.second.size

    def state_space(self) -> StateSpace:
        # with F P + P F' = -G G' of both, P = P_1 x P_2 solves the same for F = F_1 x 1 + 1 x F_2 and the noises
        # G_1 G_1' x P_2 and P_1 x G_2 G_2'
        a, b = self.first.state_space(), self.second.state_space()
        F = jnp.kron(a.F, jnp.eye(len(b.F))) + jnp.kron(jnp.eye(len(a.F)), b.F)
        G = jnp.concatenate([jnp.kron(a.G, b.S), jnp.kron(a.S, b.G)], axis=1)
        return StateSpace(F, G, jnp.kron(a.H, b.H), jnp.kron(a.S, b.S))


def quasi_periodic(
    sd: _Number, length: _Number, period: _Number, decay: _Number, harmonics: int = 6, order: int = 1
) -> Product:
    """A periodic process that changes its shape: `Periodic` times a Matern kernel of the length `decay` [s]."""
    return Product(Periodic(sd, length, period, harmonics), Matern(1.0, decay, order))
