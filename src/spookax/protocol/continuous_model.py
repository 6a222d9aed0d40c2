"""Equations of motion in continuous time as a model: what their step and its noise follow from."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from .._typing import Array, Float, Scalar
from .capabilities import FirstSpread, HeldNoise, StepDuration
from .core import AbstractVectorModel, Capability
from .data import Noise


class AbstractContinuousModel(AbstractVectorModel, FirstSpread, HeldNoise, StepDuration):
    """Equations of motion with noise, dx = f(x, u, z) dt + G(x, z) dW, and what is read at an instant, y = g(x, z) + n.

    W has a spectral density of one, so that G carries that of the noise: its unit is that of the state per root of a
    second. What is read is a sample, n the noise of one sample. The step follows from the equations: the noise is held
    over it, so that a step of a drift and a held noise is one of an ordinary differential equation, taken by the
    classical method of Runge and Kutta. Where G depends on the state the noise is meant in Stratonovich's sense.
    """

    @abc.abstractmethod
    def drift(self, x: Float[Array, " n"], p: Any, u: Array) -> Float[Array, " n"]:
        """f: the rate of the state without noise. [unit of the state per s]"""

    @abc.abstractmethod
    def spread(self, x: Float[Array, " n"], p: Any) -> Float[Array, "n m"]:
        """G: what white noise of unit density does to the state, at `Noise.process` = 1."""

    @abc.abstractmethod
    def read(self, x: Float[Array, " n"], p: Any) -> Float[Array, " channels"]:
        """g: the readings of a state, without noise."""

    inputs: eqx.AbstractVar[int]  # how many numbers the drift takes as u

    @property
    def reads_pair(self) -> bool:
        return False

    def first_sd(self, x: Float[Array, " n"], p: Any, sd: Scalar) -> Float[Array, " n"]:
        """All components alike: nothing says which of them are rates."""
        return jnp.full(self.tangent_size, 1.0) * sd

    def step(self, x: Array, p: Any, u: Array, w: Array, noise: Noise, guess: Array) -> tuple[Array, Array]:
        """The next state. Where u has a number more than the drift takes, that is the length of this step. [s]"""
        u, h = self._given(p, u)
        held = noise.process * w / jnp.sqrt(h)

        def rate(x: Array) -> Array:
            return self.drift(x, p, u) + self.spread(x, p) @ held

        k1 = rate(x)
        k2 = rate(x + h / 2 * k1)
        k3 = rate(x + h / 2 * k2)
        k4 = rate(x + h * k3)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), guess

    def observe(self, x: Array, x1: Array, p: Any, s: Scalar) -> Array:
        return self.read(x, p)

    def _given(self, p: Any, u: Array) -> tuple[Array, Scalar]:
        """What the drift takes of u, and the length of the step."""
        return (u[:-1], u[-1]) if u.shape[0] == self.inputs + 1 else (u, self.duration(p))

    # Impulses are amounts of noise, in the units of G dW: the first m of as many numbers as a state has.

    def offers(self, capability: type[Capability]) -> Capability | None:
        return None if capability is HeldNoise and not self.noise_size else super().offers(capability)

    def pushed(self, x: Array, p: Any, u: Array, w: Array, noise: Noise, guess: Array, push: Array) -> Array:
        scale = noise.process * jnp.sqrt(self._given(p, u)[1])
        return self.step(x, p, u, w + push[: self.noise_size] / scale, noise, guess)[0]

    def needed(self, x: Array, x1: Array, p: Any, change: Array) -> Array:
        return jnp.zeros_like(change).at[: self.noise_size].set(self._amount(x, p, change))

    def same_noise(self, x: Array, p: Any, w: Array, p_now: Any) -> Array:
        return self._amount(x, p, self.spread(x, p_now) @ w)

    def _amount(self, x: Array, p: Any, change: Array) -> Float[Array, " m"]:
        """Of noise, that changes the state so (least squares)."""
        G = self.spread(x, p)
        return jnp.linalg.solve(G.T @ G, G.T @ change)
