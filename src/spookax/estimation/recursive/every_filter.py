"""What recursive estimators share: one way in, through a recording and out.

    belief = f.init(x0, sd)
    belief, seen = f.update(belief, u, y)      # one compiled call a sample
    belief = f.predict(belief, u)

or a whole recording in one call, `f.run`, and back again, `f.smooth`. Of an estimator is only its belief, how readings
change that (`updated`), how a step moves it (`predicted`), and both together with what is told of a step (`stepped`).
"""

import abc
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..._compiled import compiled
from ..._results import STEP_RESULTS
from ..._typing import AnyArray, Array, Float, Int, Scalar
from ...protocol import AbstractModel, Noise, Samples
from .step_rules import Reading


class Innovation(NamedTuple):
    """What the readings of a step were beside their prediction."""

    residual: Float[Array, "*steps c"]  # reading minus prediction, in standard deviations of its sensor
    whitened: Float[Array, "*steps c"]  # each given those before it, in its own standard deviation; 0 where not seen
    size: Float[Array, "*steps"]  # readings seen
    nis: Float[Array, "*steps"]  # normalised innovation squared: chi-squared with `size` degrees of freedom
    log_likelihood: Float[Array, "*steps"]
    accepted: Float[Array, "*steps"]  # 0 where the gate kept the readings out


class ModeEstimate(NamedTuple):
    """What is believed about the modes of a switching model after the readings of a step."""

    log_probability: Float[Array, "*steps modes"]
    likeliest: Any  # the state of the likeliest mode
    fitted: Float[Array, "*steps M channels"]  # readings at the modes' states, weighted by the probabilities

    @property
    def probability(self) -> Float[Array, "*steps modes"]:
        """Of every mode; they sum to one."""
        return jnp.exp(self.log_probability)

    def regime(self, threshold: float = 0.5) -> Int[Array, "*steps"]:
        """The mode whose probability is above a threshold (mu_T of the source), -1 where none is."""
        best = jnp.argmax(self.log_probability, axis=-1)
        return jnp.where(jnp.max(self.probability, axis=-1) > threshold, best, -1)


class Estimated(NamedTuple):
    """What is believed after the readings of a step; `Coupled` filters have an axis of them before all others."""

    x: Any  # the state: of several modes merged
    sd: Float[Array, "*steps n"]  # its standard deviations in tangent coordinates, those between modes among them
    innovation: Innovation
    modes: ModeEstimate | None = None  # of switching models


class Recursion(NamedTuple):
    """A recording filtered; leading axis of all but `first` and `last`: steps."""

    x: Any  # filtered states, each given the readings up to and in its step
    sd: Float[Array, "steps n"]  # their standard deviations, in tangent coordinates
    innovation: Innovation
    modes: ModeEstimate  # of switching models, None of others
    result: STEP_RESULTS  # how every step ended, of several modes the worst
    last: Any  # what is believed after the last step (`Belief`): to go on from
    first: Any  # and before the first reading
    trail: Any  # of every step, for `smooth`; None where it was not asked for

    @property
    def log_likelihood(self) -> Scalar:
        """Of all readings."""
        return jnp.sum(self.innovation.log_likelihood)

    @property
    def failed_step(self) -> Int[Array, "*recordings"]:
        """The first step that failed, -1 if none did."""
        failed = self.result != STEP_RESULTS.successful
        return jnp.where(jnp.any(failed, axis=0), jnp.argmax(failed, axis=0), -1)


class Smoothed(NamedTuple):
    """States given all readings of a recording; leading axis: steps + 1, the last one being where it ends."""

    x: Any
    sd: Float[Array, "steps_1 n"]  # None, as `factor`, where an estimator smooths means only (`SlowFilter`)
    factor: Float[Array, "steps_1 n n"]
    log_probability: Float[Array, "steps_1 modes"] = None  # pyright: ignore  # of switching models
    result: STEP_RESULTS | None = None  # how every step of the way forwards ended

    @property
    def probability(self) -> Float[Array, "steps_1 modes"]:
        """Of every mode; they sum to one."""
        assert self.log_probability is not None, "only switching models have modes"
        return jnp.exp(self.log_probability)


class AbstractFilter(eqx.Module):
    """A recursive estimator."""

    model: eqx.AbstractVar[AbstractModel]  # of several, the first: the manifold, and where it is read

    @abc.abstractmethod
    def updated(self, belief: Any, /, u: Array, reading: Reading, noise: Noise | None = None) -> tuple[Any, Any]:
        """`update` of prepared readings; `noise`: None for the estimator's own."""

    @abc.abstractmethod
    def predicted(self, belief: Any, /, u: Array, noise: Noise | None = None) -> tuple[Any, Any]:
        """`predict`, and the motion it was."""

    @abc.abstractmethod
    def stepped(
        self, belief: Any, /, u: Array, reading: Reading, noise: Noise | None, trail: bool
    ) -> tuple[Any, Estimated, Any]:
        """The belief a step later, what was believed given its readings, and with `trail` what smoothing needs."""

    @abc.abstractmethod
    def ended(self, belief: Any, /) -> STEP_RESULTS:
        """How the step that led to a belief ended."""

    def update(
        self,
        belief: Any,
        u: AnyArray,
        y: AnyArray,
        weight: AnyArray | None = None,
        s: AnyArray | None = None,
        noise: Noise | None = None,
    ) -> tuple[Any, Any]:
        """The belief given the readings of a step, and the `Innovation` that they were (of a switching model the
        `Estimated` state with it); one compiled call.

        **Arguments:**

        - `u`: the input of the step.
        - `y`: readings (channels,), or (M, channels) for several places in the step.
        - `weight`: 0 where a reading is missing, 1 where not; readings that are NaN are missing.
        - `s`: places of the readings as fractions of the step, 0 when left out.
        - `noise`: noise levels of this step, when they change; of switching models with a leading axis of modes.
        """
        numbers = [a.dtype for a in jax.tree.leaves(belief) if jnp.issubdtype(a.dtype, jnp.inexact)]
        reading = reading_of(self.model, y, weight, s, jnp.result_type(*numbers))
        return _update(self, belief, jnp.asarray(u), reading, noise)

    def predict(self, belief: Any, u: AnyArray, noise: Noise | None = None) -> Any:
        """The belief at the end of the step; one compiled call."""
        return _predict(self, belief, jnp.asarray(u), noise)

    def run(
        self, belief: Any, samples: Samples, noise: Noise | None = None, trail: bool = False, many: bool = False
    ) -> Recursion:
        """A whole recording in one compiled scan.

        **Arguments:**

        - `noise`: levels that change; leading axes of steps (and modes) in each of its arrays.
        - `trail`: keep what `smooth` needs.
        - `many`: several recordings of one length at once; all arrays of `belief`, `samples` and `noise` have a leading
          axis of recordings, so have `first` and `last`, and all else has it after that of steps.
        """
        return _run(self, belief, placed(self.model, samples), noise, trail, many)

    def scanned(self, belief: Any, samples: Samples, noise: Noise | None = None, trail: bool = False) -> Recursion:
        """`run` as it is, to be differentiated, batched or compiled with something else."""

        def body(belief: Any, step: tuple[Array, Reading, Noise | None]) -> tuple[Any, tuple[Estimated, Any, Any]]:
            after, filtered, left = self.stepped(belief, *step, trail)
            return after, (filtered, self.ended(after), left)

        reading = Reading(samples.y, samples.s, samples.weight)
        last, (filtered, result, left) = jax.lax.scan(body, belief, (samples.u, reading, noise))
        first = belief if trail else None
        return Recursion(*filtered, result=result, last=last, first=first, trail=left)  # pyright: ignore[reportArgumentType]


class AbstractSmoothingFilter(AbstractFilter):
    """A recursive estimator that also goes back through a recording."""

    @abc.abstractmethod
    def smoothed(self, found: Recursion) -> Smoothed:
        """`smooth`, not compiled."""

    def smooth(self, found: Recursion) -> Smoothed:
        """States given all readings, at the start of every step and after the last one; one compiled call.

        **Raises:** `ValueError` if the recording was filtered without `trail=True`.
        """
        if found.trail is None:
            raise ValueError("smoothing needs `run(..., trail=True)`")
        back = _smooth(self, found._replace(x=None, sd=None, innovation=None, modes=None, result=None))  # pyright: ignore
        return back._replace(result=found.result)


def innovation_of(
    whitened: Array, log_det: Array, residual: Array, reading: Reading, noise: Noise, gate: AnyArray | float = math.inf
) -> Innovation:
    """What readings were, from their whitened innovations and the log-determinant of their covariance (`condition`)."""
    weight = reading.weight.reshape(-1)
    there = weight > 0
    nis = jnp.sum(whitened**2)
    scale = jnp.where(there, weight / jnp.broadcast_to(noise.sensor, reading.y.shape).reshape(-1), 1.0)
    size = jnp.sum(there).astype(nis.dtype)
    constant = jnp.sum(jnp.log(scale)) - 0.5 * math.log(2.0 * math.pi) * size
    accepted = nis <= jnp.asarray(gate, dtype=nis.dtype)
    log_likelihood = jnp.where(accepted, constant - 0.5 * (nis + log_det), 0.0)
    return Innovation(residual, whitened, size, nis, log_likelihood, accepted.astype(nis.dtype))


def reading_of(model: AbstractModel, y: AnyArray, weight: AnyArray | None, s: AnyArray | None, dtype: Any) -> Reading:
    """Readings as `AbstractFilter.update` takes them."""
    y = jnp.atleast_2d(jnp.asarray(y, dtype=dtype))
    there = ~jnp.isnan(y)
    weight = there.astype(dtype) * (1.0 if weight is None else jnp.atleast_2d(jnp.asarray(weight, dtype=dtype)))
    if s is None:
        s = jnp.zeros(y.shape[0], dtype=dtype)
    else:
        s = jnp.broadcast_to(_readable(model, jnp.asarray(s, dtype=dtype)), y.shape[:1])
    return Reading(jnp.where(there, y, 0.0), s, jnp.broadcast_to(weight, y.shape))


def placed(model: AbstractModel, samples: Samples) -> Samples:
    """A recording whose readings lie where the model reads; a runtime error (`eqx.error_if`) for any that do not."""
    return samples._replace(s=_readable(model, jnp.asarray(samples.s)))


def _readable(model: AbstractModel, s: Array) -> Array:
    if model.reads_pair or not (isinstance(s, Tracer) or np.any(np.asarray(s))):
        return s  # seen on the host: a check on the device is three programs to compile
    return eqx.error_if(s, jnp.any(s != 0), "this model reads its state at the start of a step: all `s` must be 0")


def standard_deviations(factor: Float[Array, "*steps n k"]) -> Float[Array, "*steps n"]:
    """Of a Gaussian with this factor."""
    square = jnp.sum(factor**2, axis=-1)
    there = square > 0  # a root has no derivative at zero; what is known exactly stays so
    return jnp.where(there, jnp.sqrt(jnp.where(there, square, 1.0)), 0.0)


@compiled
def _update(f: AbstractFilter, belief: Any, u: Array, reading: Reading, noise: Noise | None) -> tuple[Any, Any]:
    return f.updated(belief, u, reading, noise)


@compiled
def _predict(f: AbstractFilter, belief: Any, u: Array, noise: Noise | None) -> Any:
    return f.predicted(belief, u, noise)[0]


@compiled
def _run(f: AbstractFilter, belief: Any, samples: Samples, noise: Noise | None, trail: bool, many: bool) -> Recursion:
    def one(belief: Any, samples: Samples, noise: Noise | None) -> Recursion:
        return f.scanned(belief, samples, noise, trail)

    if not many:
        return one(belief, samples, noise)
    axes = Recursion(1, 1, 1, 1, 1, last=0, first=0, trail=1)  # pyright: ignore[reportArgumentType]
    return jax.vmap(one, out_axes=axes)(belief, samples, noise)


@compiled
def _smooth(f: AbstractSmoothingFilter, found: Recursion) -> Smoothed:
    return f.smoothed(found)
