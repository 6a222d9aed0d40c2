"""Friction learnt inside known mechanics: a mass on a line, pushed by a known force.

    dq/dt = v,    m dv/dt = u - f(|v|) sign(v)

That friction is odd in the velocity is known, f is not: a small network whose weights are the parameters z
(`NeuralFriction`), or a formula with four of them (`StribeckFriction`). How a step deals with the jump at v = 0 is a
part of its own: `RungeKutta` steps across it, `Sticking` stops there.

**Source:** the system, its noise and its network are those of the example "Learning Friction Dynamics with Neural
Networks" of LowLevelParticleFilters.jl; `Sticking` is ours.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float, Scalar
from ..math import network
from ..protocol import AbstractVectorModel, Noise, StepDuration
from ..scene import network_weights as start


class AbstractFriction(eqx.Module):
    """A law of friction with unknown numbers z."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """How many numbers."""

    @abc.abstractmethod
    def prepare(self, z: Float[Array, " p"]) -> Any:
        """z in the form that `level` takes."""

    @abc.abstractmethod
    def level(self, p: Any, speed: Scalar) -> Scalar:
        """Friction at a speed |v| >= 0 [N]; at 0, what it takes to break away."""

    def curve(self, z: Float[Array, " p"], v: Float[Array, " k"]) -> Float[Array, " k"]:
        """Friction force at velocities v, level(|v|) sign(v): odd in v. [N]"""
        p = self.prepare(z)
        return jax.vmap(lambda v: self.level(p, jnp.abs(v)) * jnp.sign(v))(v)


class NeuralFriction(AbstractFriction):
    """A fully connected network of the speed, tanh between its layers, with `sizes` units in them."""

    sizes: tuple[int, ...] = eqx.field(static=True, default=(1, 6, 6, 6, 1))

    @property
    def size(self) -> int:
        return start.count(self.sizes)

    def prepare(self, z: Float[Array, " p"]) -> list[Array]:
        return network.layers(z, self.sizes)

    def level(self, p: list[Array], speed: Scalar) -> Scalar:
        return network.output(p, jnp.reshape(speed, (1,)))

    def draw(self, rng: np.random.Generator, kind: str = "rich") -> np.ndarray:
        """Weights (p,) to start from: see `spookax.scene.network_weights.draw`."""
        return start.draw(self.sizes, rng, kind)


class StribeckFriction(AbstractFriction):
    """f_c + (f_s - f_c) exp(-|v| / v_s) + f_v |v| with z = (log f_s, log f_c, log v_s, f_v) [N, N, m/s, N s/m]."""

    @property
    def size(self) -> int:
        return 4

    def prepare(self, z: Float[Array, " 4"]) -> tuple[Array, Array, Array, Array]:
        return jnp.exp(z[0]), jnp.exp(z[1]), jnp.exp(z[2]), z[3]

    def level(self, p: tuple[Array, Array, Array, Array], speed: Scalar) -> Scalar:
        f_s, f_c, v_s, f_v = p
        return f_c + (f_s - f_c) * jnp.exp(-speed / v_s) + f_v * speed


class AbstractStepper(eqx.Module):
    """How the velocity gets over a step."""

    @abc.abstractmethod
    def __call__(self, law: AbstractFriction, p: Any, x: Array, a: Scalar, mass: Scalar, h: Scalar) -> Array:
        """x = (q, v) after a time h under the acceleration a = u / m and friction."""


class RungeKutta(AbstractStepper):
    """The classical method of fourth order, whose stages take the sign of v as they find it.

    Where v changes sign within the step this is no solution: the mass chatters where it should stick.
    """

    def __call__(self, law: AbstractFriction, p: Any, x: Array, a: Scalar, mass: Scalar, h: Scalar) -> Array:
        def rate(x: Array) -> Array:
            v = x[1]
            return jnp.stack([v, a - law.level(p, jnp.abs(v)) * jnp.sign(v) / mass])

        k1 = rate(x)
        k2 = rate(x + h / 2 * k1)
        k3 = rate(x + h / 2 * k2)
        k4 = rate(x + h * k3)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


class Sticking(AbstractStepper):
    """Midpoint substeps that end at v = 0: there the mass sticks while the force is below level(0), else it starts
    anew in the force's direction with the rest of the substep.
    """

    substeps: int = eqx.field(static=True, default=10)

    def __call__(self, law: AbstractFriction, p: Any, x: Array, a: Scalar, mass: Scalar, h: Scalar) -> Array:
        d = h / self.substeps
        still = law.level(p, jnp.zeros_like(a)) / mass
        # from rest: what the force has left over friction, in its own direction
        off = jnp.sign(a) * jnp.maximum(jnp.abs(a) - still, 0.0)

        def substep(x: Array, _) -> tuple[Array, None]:
            q, v = x
            side = jnp.sign(v)
            brake = law.level(p, jnp.abs(v)) / mass
            middle = jnp.maximum(jnp.abs(v) + d / 2 * (side * a - brake), 0.0)
            speed = jnp.abs(v) + d * (side * a - law.level(p, middle) / mass)
            goes_on = (speed > 0) & (side != 0)
            # time to zero, a fraction of the substep
            fall = jnp.abs(v) - speed
            part = jnp.where(goes_on, 1.0, jnp.abs(v) / jnp.where(goes_on | (fall <= 0), 1.0, fall))
            rest = (1.0 - part) * d
            v1 = jnp.where(goes_on, side * speed, rest * off)
            q1 = q + jnp.where(goes_on, d / 2 * (v + v1), part * d / 2 * v + rest / 2 * v1)
            return jnp.stack([q1, v1]), None

        return jax.lax.scan(substep, x, None, length=self.substeps)[0]


class FrictionMass(AbstractVectorModel, StepDuration):
    """x = (q, v) of the mass, both read at the start of a step; the parameters are those of the law.

    **Arguments:**

    - `law`: of friction; `stepper`: over the jump of friction at v = 0.
    - `h`: step. [s]
    - `density`: roots of the spectral densities of the noises on q and on v. [m/sqrt(s), m/sqrt(s^3)]
    - `mass`: [kg]
    """

    law: AbstractFriction
    h: Scalar
    density: Float[Array, " 2"]
    mass: Scalar
    stepper: AbstractStepper
    tangent_size: int = eqx.field(static=True, default=2)
    noise_size: int = eqx.field(static=True, default=2)
    num_channels: int = eqx.field(static=True, default=2)

    def __init__(
        self,
        law: AbstractFriction,
        h: Any,
        density: Any,
        mass: Any = 1.0,
        stepper: AbstractStepper | None = None,
        dtype: Any = None,
    ):
        self.law, self.stepper = law, stepper or RungeKutta()
        self.h, self.density, self.mass = (jnp.asarray(a, dtype=dtype) for a in (h, density, mass))

    @property
    def reads_pair(self) -> bool:
        return False

    def prepare(self, z: Float[Array, " p"]) -> Any:
        return self.law.prepare(z)

    def duration(self, p: Any) -> Scalar:
        return self.h

    def step(self, x: Array, p: Any, u: Array, w: Array, noise: Noise, guess: Array) -> tuple[Array, Array]:
        after = self.stepper(self.law, p, x, u[0] / self.mass, self.mass, self.h)
        return after + noise.process * self.density * jnp.sqrt(self.h) * w, guess

    def observe(self, x: Array, x1: Array, p: Any, s: Scalar) -> Array:
        return x
