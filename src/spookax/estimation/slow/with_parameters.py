"""Parameters as slow states, for estimators that go through a recording once."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from ..._results import STEP_RESULTS
from ..._typing import AnyArray, Array, Float, Scalar
from ...protocol import (
    AbstractModel,
    CarriedPoses,
    ConstrainedStart,
    FirstSpread,
    Noise,
    PlanTracking,
    SearchedStep,
)
from ...protocol.asked import admissible, duration, first_guess, first_sd, replayed, stepped, tracking_gain
from ...protocol.core import Capability


class AugmentedState(NamedTuple):
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


class WithParameters(AbstractModel, SearchedStep, CarriedPoses, ConstrainedStart, FirstSpread, PlanTracking):
    """A model whose parameters are part of its state: constant, or drifting.

    The state is an `AugmentedState(x, z)`, its tangent that of x followed by the p parameters; it has no parameters
    itself (an empty z). Every recursive estimator and smoother takes it; with constant parameters an extended filter is
    the recursive form of the joint batch problem (Friedland 1969). It can do what its model can, but for three:
    hold the effect of noise (it has no parameters that change), say how long its step is (it depends on the state) and
    name free directions (filters move in all).
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

    def offers(self, capability: type[Capability]) -> Capability | None:
        if capability is FirstSpread:  # its components never are half positions and half velocities
            return super().offers(capability)
        return super().offers(capability) if self.model.offers(capability) is not None else None

    def prepare(self, z: Float[Array, " 0"]) -> None:
        return None

    def first_guess(self) -> Float[Array, " h"]:
        return first_guess(self.model)

    def after(self, z: Float[Array, " p"], p: Any, w: Float[Array, " noises"]) -> Float[Array, " p"]:
        """The parameters after a step."""
        if self.drift is None:
            return z
        decay, variance = self.drifted(p, z.dtype)
        return decay * z + jnp.sqrt(variance) * w

    def drifted(self, p: Any, dtype: Any) -> tuple[Scalar, Float[Array, "*p"]]:
        """What a step multiplies the parameters by, and the variances that it adds to them."""
        if self.drift is None:
            return jnp.ones((), dtype=dtype), jnp.zeros((), dtype=dtype)
        h = duration(self.model, p)
        return jnp.exp(-jnp.asarray(self.drift.decay, dtype) * h), jnp.asarray(self.drift.density, dtype) ** 2 * h

    def step(
        self, x: AugmentedState, p: None, u: Array, w: Array, noise: Noise, guess: Array
    ) -> tuple[AugmentedState, Array]:
        p, m = self.model.prepare(x.z), self.model.noise_size
        x1, guess = self.model.step(x.x, p, u, w[:m], noise, guess)
        return AugmentedState(x1, self.after(x.z, p, w[m:])), guess

    def stepped(
        self, x: AugmentedState, p: None, u: Array, w: Array, noise: Noise, guess: Array
    ) -> tuple[AugmentedState, Array, STEP_RESULTS]:
        p, m = self.model.prepare(x.z), self.model.noise_size
        x1, guess, result = stepped(self.model, x.x, p, u, w[:m], noise, guess)
        return AugmentedState(x1, self.after(x.z, p, w[m:])), guess, result

    def replay(self, x: AugmentedState, p: None, u: Array, w: Array, noise: Noise, guess: Array) -> AugmentedState:
        p, m = self.model.prepare(x.z), self.model.noise_size
        return AugmentedState(replayed(self.model, x.x, p, u, w[:m], noise, guess), self.after(x.z, p, w[m:]))

    @property
    def carried(self) -> int:
        return self._poses.carried

    def carry(self, x: AugmentedState, x1: AugmentedState, p: None) -> AugmentedState:
        return AugmentedState(self._poses.carry(x.x, x1.x, self.model.prepare(x.z)), x1.z)

    def retract_rates(self, x: AugmentedState, d: Float[Array, " half"]) -> AugmentedState:
        rates = self.model.tangent_size - self.carried
        return AugmentedState(self._poses.retract_rates(x.x, d[:rates]), x.z + d[rates:])

    @property
    def _poses(self) -> CarriedPoses:
        poses = self.model.offers(CarriedPoses)
        assert poses is not None
        return poses

    def first_sd(self, x: AugmentedState, p: None, sd: Scalar) -> Float[Array, " n"]:
        """That of parameters, which have no unit here, is `sd` as it stands."""
        of_state = first_sd(self.model, x.x, self.model.prepare(x.z), sd)
        return jnp.concatenate([of_state, jnp.broadcast_to(sd, (self.size,))])

    def observe(self, x: AugmentedState, x1: AugmentedState, p: None, s: Scalar) -> Float[Array, " channels"]:
        return self.model.observe(x.x, x1.x, self.model.prepare(x.z), s)

    def difference(self, y: Array, predicted: Array) -> Float[Array, " channels"]:
        return self.model.difference(y, predicted)

    def start(self, x: AugmentedState, p: None) -> AugmentedState:
        return AugmentedState(admissible(self.model, x.x, self.model.prepare(x.z)), x.z)

    def tracking_gain(self, x: AugmentedState, p: None, noise: Noise) -> Float[Array, "m n"]:
        gain = tracking_gain(self.model, x.x, self.model.prepare(x.z), noise)
        return jnp.pad(gain, ((0, self.noise_size - self.model.noise_size), (0, self.size)))

    def retract(self, x: AugmentedState, d: Float[Array, " n"]) -> AugmentedState:
        n = self.model.tangent_size
        return AugmentedState(self.model.retract(x.x, d[:n]), x.z + d[n:])

    def local(self, x1: AugmentedState, x0: AugmentedState) -> Float[Array, " n"]:
        return jnp.concatenate([self.model.local(x1.x, x0.x), x1.z - x0.z])
