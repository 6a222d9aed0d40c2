"""What an estimator may ask of a model, and nothing else.

A model is a state on a manifold, unknown constants z, and a step whose noise is written out:

    step(x, z, u, w, hint)      -> x+, hint+   forward simulation with whitened noise w (0: nominal)
    observe(x, x+, z, s)        -> y           readings at t_k + s h; may read the pair
    retract(x, d), local(x1, x0)               box-plus and box-minus with tangent vectors d

`hint` carries what the step found out about itself (the levels of friction rows), so that `replay` repeats the step
at a known solution and only its derivative is computed.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from ._results import STEP_RESULTS
from ._typing import Array, Float, Scalar

StateTree = Any


class Samples(NamedTuple):
    """A recording on the grid of the steps: step k covers [t_0 + k h, t_0 + (k + 1) h).

    `M` slots per step hold the samples that fall into it; `seen` is zero where a slot or a channel is empty, and less
    than one where a reading has a standard deviation larger than its channel's: channel sd / reading's sd.

    A model with delays of inputs takes the mean command over each step and those over earlier ones, the latest first.
    With delays of readings, `s` is that of each channel, and may be anywhere.
    """

    u: Float[Array, "steps inputs"]  # mean command over the kick at t_k; where delayed (steps, held, inputs), see below
    y: Float[Array, "steps M channels"]  # readings, SI; anything where not seen
    s: Float[Array, "steps M"]  # place of the sample in its step, 0 <= s < 1; (steps, M, channels) where delayed
    seen: Float[Array, "steps M channels"]  # 0 where no reading exists, else at most 1


class Noise(eqx.Module):
    """Noise levels, traced: scales of the model's process noise and standard deviations of the channels."""

    process: Array  # factor on the model's own process-noise level; () or one for each noise (m,)
    sensor: Float[Array, " channels"]  # standard deviations [unit of the channel]


class AbstractModel(eqx.Module):
    """A member of the protocol."""

    tangent_size: eqx.AbstractVar[int]
    noise_size: eqx.AbstractVar[int]
    num_channels: eqx.AbstractVar[int]

    @property
    def reads_pair(self) -> bool:
        """Whether readings depend on the state after the step, too. If not, they are taken at its start (s = 0)."""
        return True

    @property
    def carried(self) -> int:
        """How many components of a tangent, its first ones (poses), follow from the rest (velocities) by `carry`."""
        return 0

    @property
    def can_steady(self) -> bool:
        """Whether the noise's effect can be held while parameters change: `pushed`, `needed` and `same_noise`."""
        return False

    @abc.abstractmethod
    def prepare(self, z: Float[Array, " p"]) -> Any:
        """What depends on the parameters only; handed to the other methods as `p`."""

    def duration(self, p: Any) -> Scalar:
        """Length of a step [s]; only what drifts beside the model asks for it."""
        raise NotImplementedError(f"{type(self).__name__} does not say how long its step is: give it `duration`")

    @abc.abstractmethod
    def step(self, x: StateTree, p: Any, u: Array, w: Array, noise: Noise, hint: Array) -> tuple[StateTree, Array]:
        """Next state and hint."""

    def told(
        self, x: StateTree, p: Any, u: Array, w: Array, noise: Noise, hint: Array
    ) -> tuple[StateTree, Array, STEP_RESULTS]:
        """`step`, and how it ended: a model whose step may fail says so here."""
        return *self.step(x, p, u, w, noise, hint), STEP_RESULTS.successful  # pyright: ignore[reportReturnType]

    def first_hint(self) -> Float[Array, " h"]:
        """What is handed to the first step."""
        return jnp.zeros(0)

    def replay(self, x: StateTree, p: Any, u: Array, w: Array, noise: Noise, hint: Array) -> StateTree:
        """The same step at the solution that `hint` (as returned by `step`) describes: no search, same derivative."""
        return self.step(x, p, u, w, noise, hint)[0]

    def carry(self, x: StateTree, x1: StateTree, p: Any) -> StateTree:
        """x1 with the pose to which its own velocities carry the pose of x in one step; models with `carried` have
        it. What `step` leads to is what it carries itself to.
        """
        raise NotImplementedError

    def pushed(
        self, x: StateTree, p: Any, u: Array, w: Array, noise: Noise, hint: Array, push: Float[Array, " half"]
    ) -> StateTree:
        """`replay` under further impulses, as many as the tangent has velocities: all but its first `carried`."""
        raise NotImplementedError

    def needed(self, x: StateTree, x1: StateTree, p: Any, change: Float[Array, " half"]) -> Float[Array, " half"]:
        """Impulses, as `pushed` takes them, that a change of the velocities of x1 needs in the step from x."""
        raise NotImplementedError

    def same_noise(self, x: StateTree, p: Any, w: Array, p_now: Any) -> Array:
        """Noise with the effect under `p` that w has under `p_now`, at the state x."""
        raise NotImplementedError

    @abc.abstractmethod
    def observe(self, x: StateTree, x1: StateTree, p: Any, s: Scalar) -> Float[Array, " channels"]:
        """Readings a fraction s of a step after x (SI)."""

    @abc.abstractmethod
    def difference(self, y: Array, predicted: Array) -> Float[Array, " channels"]:
        """y minus predicted in the channels' own sense (angles may be taken modulo a turn)."""

    def first_sd(self, p: Any, sd: Scalar) -> Float[Array, " n"]:
        """Standard deviations of the first state where that of positions is `sd`: of velocities ten times as much."""
        positions = self.carried or self.tangent_size // 2
        return sd * jnp.where(jnp.arange(self.tangent_size) < positions, 1.0, 10.0)

    def start(self, x: StateTree, p: Any) -> StateTree:
        """The nearest admissible first state; its derivative spans the free directions of x_0."""
        return x

    @abc.abstractmethod
    def retract(self, x: StateTree, d: Float[Array, " n"]) -> StateTree:
        """Box-plus."""

    def quicken(self, x: StateTree, d: Float[Array, " half"]) -> StateTree:
        """Box-plus of the last n - `carried` components alone. For a mechanism these are its velocities; a model that
        adds them without touching the pose is cheaper to differentiate in them.
        """
        return self.retract(x, jnp.concatenate([jnp.zeros(self.tangent_size - d.shape[0], dtype=d.dtype), d]))

    @abc.abstractmethod
    def local(self, x1: StateTree, x0: StateTree) -> Float[Array, " n"]:
        """Box-minus: d with x1 = x0 box-plus d."""

    def tracking_gain(self, x: StateTree, p: Any, noise: Noise) -> Float[Array, "m n"]:
        """Gain K of the tracking rollout at a planned state: w = w_planned + K (planned box-minus actual).

        It only serves a first trajectory from parameters that may be far off; without one that is a free simulation.
        """
        return jnp.zeros((self.noise_size, self.tangent_size))


class AbstractVectorModel(AbstractModel):
    """A model whose state is a vector, and whose readings differ by subtraction."""

    def difference(self, y: Array, predicted: Array) -> Float[Array, " channels"]:
        return y - predicted

    def retract(self, x: Float[Array, " n"], d: Float[Array, " n"]) -> Float[Array, " n"]:
        return x + d

    def local(self, x1: Float[Array, " n"], x0: Float[Array, " n"]) -> Float[Array, " n"]:
        return x1 - x0


class ModelError(ValueError):
    """A model, or what an estimator is given beside it, does not fit: what, where, and what to do."""


class AbstractContinuousModel(AbstractVectorModel):
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

    def first_sd(self, p: Any, sd: Scalar) -> Float[Array, " n"]:
        """All components alike: nothing says which of them are rates."""
        return jnp.full(self.tangent_size, 1.0) * sd

    def step(self, x: Array, p: Any, u: Array, w: Array, noise: Noise, hint: Array) -> tuple[Array, Array]:
        """The next state. Where u has a number more than the drift takes, that is the length of this step. [s]"""
        u, h = self._given(p, u)
        held = noise.process * w / jnp.sqrt(h)

        def rate(x: Array) -> Array:
            return self.drift(x, p, u) + self.spread(x, p) @ held

        k1 = rate(x)
        k2 = rate(x + h / 2 * k1)
        k3 = rate(x + h / 2 * k2)
        k4 = rate(x + h * k3)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), hint

    def observe(self, x: Array, x1: Array, p: Any, s: Scalar) -> Array:
        return self.read(x, p)

    def _given(self, p: Any, u: Array) -> tuple[Array, Scalar]:
        """What the drift takes of u, and the length of the step."""
        return (u[:-1], u[-1]) if u.shape[0] == self.inputs + 1 else (u, self.duration(p))

    # Impulses are amounts of noise, in the units of G dW: the first m of as many numbers as a state has.

    @property
    def can_steady(self) -> bool:
        return self.noise_size > 0

    def pushed(self, x: Array, p: Any, u: Array, w: Array, noise: Noise, hint: Array, push: Array) -> Array:
        scale = noise.process * jnp.sqrt(self._given(p, u)[1])
        return self.step(x, p, u, w + push[: self.noise_size] / scale, noise, hint)[0]

    def needed(self, x: Array, x1: Array, p: Any, change: Array) -> Array:
        return jnp.zeros_like(change).at[: self.noise_size].set(self._amount(x, p, change))

    def same_noise(self, x: Array, p: Any, w: Array, p_now: Any) -> Array:
        return self._amount(x, p, self.spread(x, p_now) @ w)

    def _amount(self, x: Array, p: Any, change: Array) -> Float[Array, " m"]:
        """Of noise, that changes the state so (least squares)."""
        G = self.spread(x, p)
        return jnp.linalg.solve(G.T @ G, G.T @ change)


class Transition(NamedTuple):
    """What a transition x -> x+ says about itself when the step is read backwards."""

    w: Float[Array, " m"]  # whitened noise that it needs
    impulse: Float[Array, " r"]  # impulses of the model's stiff rows (joints)
    hint: Float[Array, " h"]  # as `step` would have returned it


class AbstractResidualModel(AbstractModel):
    """A model whose noise can be read off a transition (as many noises as poses) and whose velocities follow from
    poses, x+ being the pose of x moved along its own new velocity. The residual form of the estimator needs both.

    The first half of a tangent vector moves the pose, the second half the velocity.
    """

    @abc.abstractmethod
    def earlier(self, x: StateTree, p: Any) -> StateTree:
        """The pose that x came from, one step back along its own velocity (which is kept)."""

    @abc.abstractmethod
    def joined(self, x: StateTree, x1: StateTree, p: Any) -> StateTree:
        """x1 with the velocity that leads from the pose of x to its own in one step."""

    @abc.abstractmethod
    def transition(self, x: StateTree, x1: StateTree, p: Any, u: Array, noise: Noise) -> Transition:
        """The step from x to x1 read backwards: w = 0 exactly when `step` without noise leads there.

        Raises `ValueError` when the process noise has fewer components than the pose.
        """

    @abc.abstractmethod
    def restore(
        self, x: StateTree, x1: StateTree, p: Any, u: Array, noise: Noise, impulse: Float[Array, " r"]
    ) -> tuple[StateTree, Transition]:
        """The state next to a planned x1 that obeys the stiff rows, under the impulses on poses that the plan needs.

        `impulse`: what the plan takes the stiff rows to answer. Where x1 obeys the rows with it, x1 itself.
        """


class LinearStep(NamedTuple):
    """x+ = A x + b + S w and readings C x + d; w ~ N(0, 1)."""

    A: Float[Array, "n n"]
    b: Float[Array, " n"]
    S: Float[Array, "n m"]
    C: Float[Array, "channels n"]
    d: Float[Array, " channels"]


class AbstractLinearModel(AbstractVectorModel):
    """A model that is linear in its state and says how: nothing has to be differentiated (`estimation.Exact`).

    It reads its state at the start of a step.
    """

    @property
    def reads_pair(self) -> bool:
        return False

    @abc.abstractmethod
    def linear(self, p: Any, u: Array, noise: Noise) -> LinearStep:
        """The step and its readings under an input."""

    def step(
        self, x: Float[Array, " n"], p: Any, u: Array, w: Array, noise: Noise, hint: Array
    ) -> tuple[Float[Array, " n"], Array]:
        own = self.linear(p, u, noise)
        return own.A @ x + own.b + own.S @ w, hint
