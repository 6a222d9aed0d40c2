"""What recursive estimators over states and modes share: the loop over a recording, and what they tell.

    modes = f.init(x0, sd)
    modes, seen = f.update(modes, u, y)      # one compiled call a sample
    modes = f.predict(modes, u)

or a whole recording in one call, `f.run`, and back again, `f.smooth`.
"""

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._compiled import compiled
from ..._typing import AnyArray, Array, Float, Int
from ...protocol import AbstractModel, Noise, Samples
from ..recursive import Innovation, placed, reading_of
from ..rules import Reading
from .smoother import SmoothedModes


class Told(NamedTuple):
    """What is believed after the readings of a step. Of coupled estimators every array has a leading axis of them."""

    x: Any  # the merged state
    sd: Float[Array, "*steps n"]  # its standard deviations, those between the modes among them
    log_probability: Float[Array, "*steps modes"]
    likeliest: Any  # the state of the likeliest mode
    fitted: Float[Array, "*steps M channels"]  # readings at the modes' states, weighted by the probabilities
    innovation: Innovation  # by the mean and covariance of what all modes expect; likelihood of the mixture itself

    @property
    def log_likelihood(self) -> Float[Array, "*steps"]:
        """Of the readings of a step, given those before."""
        return self.innovation.log_likelihood

    @property
    def probability(self) -> Float[Array, "*steps modes"]:
        """Of every mode; they sum to one."""
        return jnp.exp(self.log_probability)

    def regime(self, threshold: float = 0.5) -> Int[Array, "*steps"]:
        """The mode whose probability is above a threshold (mu_T of the source), -1 where none is."""
        best = jnp.argmax(self.log_probability, axis=-1)
        return jnp.where(jnp.max(self.probability, axis=-1) > threshold, best, -1)


class Trail(NamedTuple):
    """What the filter leaves of a step for the smoother."""

    filtered: Any  # the beliefs
    moved: Any  # how they moved


class Switching(NamedTuple):
    """A recording filtered; leading axis of all but `last`: steps."""

    told: Told
    last: Any  # the beliefs (`Modes`, `Mixtures`), predicted after the last step: to go on from
    trail: Trail | None  # for `smooth`


def stacked(parts: Sequence[Any]) -> Any:
    """Modules of one form as one, their arrays (and numbers) along a leading axis."""
    arrays, rest = zip(*(eqx.partition(part, eqx.is_array_like) for part in parts), strict=True)
    return eqx.combine(jax.tree.map(lambda *a: jnp.stack([jnp.asarray(b) for b in a]), *arrays), rest[0])


class AbstractSwitching(eqx.Module):
    """A recursive estimator whose belief is over states and modes."""

    @property
    @abc.abstractmethod
    def model(self) -> AbstractModel:
        """That of the first mode: the manifold, and where in a step it is read, are the same for all."""

    @abc.abstractmethod
    def updated(self, modes: Any, u: Array, reading: Reading, noise: Noise | None = None) -> tuple[Any, Told]:
        """`update` of prepared readings."""

    @abc.abstractmethod
    def predicted(self, modes: Any, u: Array, noise: Noise | None = None) -> tuple[Any, Any]:
        """`predict`, and how every mode moved."""

    @abc.abstractmethod
    def smoothed(self, trail: Trail, last: Any) -> SmoothedModes:
        """`smooth` of what `run` left."""

    def update(
        self,
        modes: Any,
        u: AnyArray,
        y: AnyArray,
        seen: AnyArray | None = None,
        s: AnyArray | None = None,
        noise: Noise | None = None,
    ) -> tuple[Any, Told]:
        """The beliefs given the readings of a step, as `Filter.update` takes them; one compiled call.

        `noise`: noise levels of this step, when they change; a leading axis of modes in each of its arrays.
        """
        reading = reading_of(self.model, y, seen, s, modes.log_probability.dtype)
        return _update(self, modes, jnp.asarray(u), reading, noise)

    def predict(self, modes: Any, u: AnyArray, noise: Noise | None = None) -> Any:
        """The beliefs at the end of the step; one compiled call."""
        return _predict(self, modes, jnp.asarray(u), noise)

    def run(
        self,
        modes: Any,
        samples: Samples,
        noise: Noise | None = None,
        trail: bool = False,
        many: bool = False,
    ) -> Switching:
        """A whole recording in one compiled scan.

        **Arguments:**

        - `noise`: levels that change; leading axes of steps and modes in each of its arrays.
        - `trail`: keep what `smooth` needs.
        - `many`: several recordings of one length at once; all arrays of `modes`, `samples` and `noise` have a leading
          axis of recordings, so has `last`, and `told` and `trail` have it after that of steps.
        """
        return _run(self, modes, placed(self.model, samples), noise, trail, many)

    def scanned(self, modes: Any, samples: Samples, noise: Noise | None = None, trail: bool = False) -> Switching:
        """`run` as it is, to be differentiated, batched or compiled with something else."""

        def body(modes: Any, step):
            u, reading, level = step
            filtered, told = self.updated(modes, u, reading, level)
            after, moved = self.predicted(filtered, u, level)
            return after, (told, Trail(filtered, moved) if trail else None)

        reading = Reading(samples.y, samples.s, samples.seen)
        last, (told, left) = jax.lax.scan(body, modes, (samples.u, reading, noise))
        return Switching(told, last, left)

    def smooth(self, found: Switching) -> SmoothedModes:
        """States and modes given all readings; see `smoother`."""
        if found.trail is None:
            raise ValueError("smoothing needs `run(..., trail=True)`")
        return _smooth(self, found.trail, found.last)


@compiled
def _update(f: AbstractSwitching, modes: Any, u: Array, reading: Reading, noise: Noise | None) -> tuple[Any, Told]:
    return f.updated(modes, u, reading, noise)


@compiled
def _predict(f: AbstractSwitching, modes: Any, u: Array, noise: Noise | None) -> Any:
    return f.predicted(modes, u, noise)[0]


@compiled
def _run(f: AbstractSwitching, modes: Any, samples: Samples, noise: Noise | None, trail: bool, many: bool) -> Switching:
    def one(modes: Any, samples: Samples, noise: Noise | None) -> Switching:
        return f.scanned(modes, samples, noise, trail)

    if not many:
        return one(modes, samples, noise)
    axes = Switching(*(1, 0, 1))  # pyright: ignore[reportArgumentType]
    return jax.vmap(one, out_axes=axes)(modes, samples, noise)


@compiled
def _smooth(f: AbstractSwitching, trail: Trail, last: Any) -> SmoothedModes:
    return f.smoothed(trail, last)
