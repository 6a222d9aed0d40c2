"""Parameters as slow states, for estimators that go through a recording once."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from .._typing import AnyArray, Array, Float, Scalar
from ..protocol import AbstractModel, Noise


class Joint(NamedTuple):
    """State of a model and its parameters."""

    x: Any
    z: Float[Array, " p"]


class Drift(eqx.Module):
    """How parameters change: dz/dt = -decay z + noise of this density.

    The density's unit is that of the parameter per root of a second; its square times the step is the variance that a
    step adds, so that it serves any step.
    """

    density: Float[AnyArray, "*p"]
    decay: Float[AnyArray, ""] | float = 0.0  # [1/s]


class WithParameters(AbstractModel):
    """A model whose parameters are part of its state: constant, or drifting.

    The state is a `Joint(x, z)`, its tangent that of x followed by the p parameters; it has no parameters itself (an
    empty z). Every recursive estimator and smoother takes it; with constant parameters an extended filter is the
    recursive form of the joint batch problem (Friedland 1969).
    """

    model: AbstractModel
    size: int = eqx.field(static=True)  # p
    drift: Drift | None
    tangent_size: int = eqx.field(static=True)
    noise_size: int = eqx.field(static=True)
    num_channels: int = eqx.field(static=True)

    def __init__(self, model: AbstractModel, size: int, drift: Drift | None = None):
        self.model, self.size, self.drift = model, size, drift
        self.tangent_size = model.tangent_size + size
        self.noise_size = model.noise_size + (size if drift else 0)
        self.num_channels = model.num_channels

    @property
    def reads_pair(self) -> bool:
        return self.model.reads_pair

    def prepare(self, z: Float[Array, " 0"]) -> None:
        return None

    def first_hint(self) -> Float[Array, " h"]:
        return self.model.first_hint()

    def after(self, z: Float[Array, " p"], p: Any, w: Float[Array, " p"]) -> Float[Array, " p"]:
        """The parameters after a step."""
        if self.drift is None:
            return z
        decay, variance = self.drifted(p, z.dtype)
        return decay * z + jnp.sqrt(variance) * w

    def drifted(self, p: Any, dtype: Any) -> tuple[Scalar, Float[Array, "*p"]]:
        """What a step multiplies the parameters by, and the variances that it adds to them."""
        if self.drift is None:
            return jnp.ones((), dtype=dtype), jnp.zeros((), dtype=dtype)
        h = self.model.duration(p)
        return jnp.exp(-jnp.asarray(self.drift.decay, dtype) * h), jnp.asarray(self.drift.density, dtype) ** 2 * h

    def step(self, x: Joint, p: None, u: Array, w: Array, noise: Noise, hint: Array) -> tuple[Joint, Array]:
        p, m = self.model.prepare(x.z), self.model.noise_size
        x1, hint = self.model.step(x.x, p, u, w[:m], noise, hint)
        return Joint(x1, self.after(x.z, p, w[m:])), hint

    def replay(self, x: Joint, p: None, u: Array, w: Array, noise: Noise, hint: Array) -> Joint:
        p, m = self.model.prepare(x.z), self.model.noise_size
        return Joint(self.model.replay(x.x, p, u, w[:m], noise, hint), self.after(x.z, p, w[m:]))

    def observe(self, x: Joint, x1: Joint, p: None, s: Scalar) -> Float[Array, " channels"]:
        return self.model.observe(x.x, x1.x, self.model.prepare(x.z), s)

    def difference(self, y: Array, predicted: Array) -> Float[Array, " channels"]:
        return self.model.difference(y, predicted)

    def start(self, x: Joint, p: None) -> Joint:
        return Joint(self.model.start(x.x, self.model.prepare(x.z)), x.z)

    def duration(self, p: None) -> Scalar:
        raise NotImplementedError("the step of a model with parameters as states depends on its state")

    def retract(self, x: Joint, d: Float[Array, " n"]) -> Joint:
        n = self.model.tangent_size
        return Joint(self.model.retract(x.x, d[:n]), x.z + d[n:])

    def local(self, x1: Joint, x0: Joint) -> Float[Array, " n"]:
        return jnp.concatenate([self.model.local(x1.x, x0.x), x1.z - x0.z])
