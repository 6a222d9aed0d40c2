"""Switching models: a bank of filters, one for each mode, that exchange their beliefs (interacting multiple models).

    modes = imm.init(x0, sd)
    modes, seen = imm.update(modes, u, y)      # one compiled call a sample
    modes = imm.predict(modes, u)

The mode is a Markov chain with transition matrix Pi (row: from, column: to). A cycle weighs every mode by the
likelihood of the readings, mixes for every mode j the beliefs of all modes i with the weights
Pi_ij mu_i / sum_i Pi_ij mu_i, merges each mixture into one Gaussian, and moves it by the model of mode j. Filters are
those of `recursive`, over any models and rules that share a state.

Several such estimators may share one measurement, each seeing what the others predict: `Coupled`.

**Source:** Blom and Bar-Shalom (1988). Readings that depend on the pair of states belong to the mode of their step,
so with such models the beliefs are mixed after the step instead of before it.
"""

import abc
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._compiled import compiled
from .._typing import AnyArray, Array, Float, Int
from ..math import small
from ..math.sqrt_gaussian import merged
from ..protocol import AbstractModel, Noise, Samples
from .merging import Modes, at, heaviest, merge
from .recursive import Filter, Innovation, placed, reading_of, standard_deviations
from .rules import Belief, Context, Reading
from .switching_smoother import Motion, Moved, SmoothedModes, Trail, smoothed

_LEAST = 1e-290  # probability at which a mode that is all but excluded is held: it can come back


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


class Switching(NamedTuple):
    """A recording filtered; leading axis of all but `last`: steps."""

    told: Told
    last: Modes  # predicted after the last step: to go on from
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
    def updated(self, modes: Modes, u: Array, reading: Reading, noise: Noise | None = None) -> tuple[Modes, Told]:
        """`update` of prepared readings."""

    @abc.abstractmethod
    def predicted(self, modes: Modes, u: Array, noise: Noise | None = None) -> tuple[Modes, Moved]:
        """`predict`, and how every mode moved."""

    @abc.abstractmethod
    def smoothed(self, trail: Trail, last: Modes) -> SmoothedModes:
        """`smooth` of what `run` left."""

    def update(
        self,
        modes: Modes,
        u: AnyArray,
        y: AnyArray,
        seen: AnyArray | None = None,
        s: AnyArray | None = None,
        noise: Noise | None = None,
    ) -> tuple[Modes, Told]:
        """The beliefs given the readings of a step, as `Filter.update` takes them; one compiled call.

        `noise`: noise levels of this step, when they change; a leading axis of modes in each of its arrays.
        """
        reading = reading_of(self.model, y, seen, s, modes.log_probability.dtype)
        return _update(self, modes, jnp.asarray(u), reading, noise)

    def predict(self, modes: Modes, u: AnyArray, noise: Noise | None = None) -> Modes:
        """The beliefs at the end of the step; one compiled call."""
        return _predict(self, modes, jnp.asarray(u), noise)

    def run(
        self,
        modes: Modes,
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

    def scanned(self, modes: Modes, samples: Samples, noise: Noise | None = None, trail: bool = False) -> Switching:
        """`run` as it is, to be differentiated, batched or compiled with something else."""

        def body(modes: Modes, step):
            u, reading, level = step
            filtered, told = self.updated(modes, u, reading, level)
            after, moved = self.predicted(filtered, u, level)
            left = Trail(filtered, *moved) if trail else None
            return after, (told, left)

        reading = Reading(samples.y, samples.s, samples.seen)
        last, (told, left) = jax.lax.scan(body, modes, (samples.u, reading, noise))
        return Switching(told, last, left)

    def smooth(self, found: Switching) -> SmoothedModes:
        """States and modes given all readings; see `switching_smoother`."""
        if found.trail is None:
            raise ValueError("smoothing needs `run(..., trail=True)`")
        return _smooth(self, found.trail, found.last)


class IMM(AbstractSwitching):
    """A bank of filters with mixing.

    **Arguments:**

    - `filters`: one for each mode. Their models share the state and its tangent. Filters of one form (the same
      classes with other numbers) run as one batch, others one after the other.
    - `transition`: Pi, probabilities of a mode (column) after a mode (row) in one step.
    - `mixing`: without it every filter goes on from its own belief (autonomous multiple models).
    - `gate`: readings of a step whose `nis` beside the mixture of what all modes expect is above this number are not
      used: neither states nor modes learn from them.

    **Raises:** `ValueError` when the tangents differ, when `transition` is no such matrix, or when a filter has a
    gate of its own: what one mode keeps out would count as likely.
    """

    bank: Any  # a Filter whose arrays have a leading axis, or a tuple of Filters
    transition: Float[AnyArray, "modes modes"]
    gate: Float[AnyArray, ""] | float
    mixing: bool = eqx.field(static=True)
    count: int = eqx.field(static=True)

    def __init__(
        self,
        filters: Sequence[Filter],
        transition: AnyArray,
        mixing: bool = True,
        gate: Float[AnyArray, ""] | float = math.inf,
    ):
        count, Pi = len(filters), np.asarray(transition, dtype=float)
        if Pi.shape != (count, count) or np.any(Pi < 0) or np.any(np.abs(Pi.sum(axis=1) - 1) > 1e-9):
            raise ValueError(
                f"`transition` must be {count} by {count}, a row for each of the filters, none of its entries "
                f"negative, rows of sum one; got shape {Pi.shape}, row sums {Pi.sum(axis=-1)}"
            )
        if any(np.any(np.isfinite(f.gate)) for f in filters):
            raise ValueError(
                "filters of a bank have no gate: what one keeps out would count as likely; give it to the bank"
            )
        kinds = {(f.model.tangent_size, f.model.reads_pair) for f in filters}
        if len(kinds) > 1:
            raise ValueError(f"the models of a bank must share their state: (tangent size, reads_pair) are {kinds}")
        forms = {jax.tree.structure(f) for f in filters}
        self.bank = stacked(filters) if len(forms) == 1 else tuple(filters)
        self.transition, self.gate, self.mixing, self.count = Pi, gate, mixing, count

    @property
    def first(self) -> Filter:
        """That of the first mode."""
        if isinstance(self.bank, tuple):
            return self.bank[0]
        arrays, rest = eqx.partition(self.bank, eqx.is_array)
        return eqx.combine(at(arrays, 0), rest)

    @property
    def model(self) -> AbstractModel:
        """That of the first mode: the manifold is the same for all."""
        return self.first.model

    def each(self, function: Callable[..., Any], *args: Any) -> Any:
        """`function(filter, *args)` for every mode; the arguments and the result have a leading axis of modes."""
        if isinstance(self.bank, tuple):
            found = [function(f, *at(args, i)) for i, f in enumerate(self.bank)]
            return jax.tree.map(lambda *a: jnp.stack(a), *found)
        return eqx.filter_vmap(function)(self.bank, *args)

    def init(self, x0: Any, sd: AnyArray, probability: AnyArray | None = None, each: bool = False) -> Modes:
        """The beliefs before the first reading, as `Filter.init` makes them; modes equally likely when left out.

        `each`: x0 and `sd` have a leading axis of modes.
        """
        if not each:
            x0, sd = jax.tree.map(lambda a: jnp.stack([jnp.asarray(a)] * self.count), (x0, sd))
        beliefs = self.each(lambda f, x0, sd: f.init(x0, sd), x0, jnp.asarray(sd))
        equal = jnp.full(self.count, 1.0 / self.count)
        return Modes(beliefs, jnp.log(equal if probability is None else jnp.asarray(probability)))

    def expected(self, modes: Modes, u: Array, s: Float[Array, " M"]) -> Float[Array, "M channels"]:
        """Readings at the modes' mean states, weighted by the probabilities."""

        def one(f: Filter, belief: Belief) -> Array:
            here = Context(f.model, f.model.prepare(jnp.asarray(f.z)), f.noise, u)
            d, _ = here.split(belief.mean)
            x = f.model.retract(belief.x, d)
            x1 = here.moved(belief.x, belief.mean, belief.hint)[0] if f.model.reads_pair else x
            return jax.vmap(lambda s: f.model.observe(x, x1, here.p, s))(s)

        y = self.each(one, modes.beliefs)
        best = heaviest(y, modes.probability)
        apart = jax.vmap(jax.vmap(self.model.difference), in_axes=(0, None))(y, best)
        return best + jnp.einsum("j,jmc->mc", modes.probability, apart)

    # --- what the compiled functions are made of

    def updated(self, modes: Modes, u: Array, reading: Reading, noise: Noise | None = None) -> tuple[Modes, Told]:
        def one(f: Filter, belief: Belief, level: Noise | None) -> tuple[Belief, Innovation, Array, Array]:
            level = level or f.noise
            H, y, root = f.rule.readings(f.context(u, level), belief, reading)
            after, innovation, _ = f.conditioned(belief, reading, level, H, y, root)
            spread = jnp.concatenate([H @ belief.factor, jnp.eye(H.shape[0], dtype=H.dtype)], axis=1)
            sd = jnp.broadcast_to(level.sensor, reading.y.shape).reshape(-1)
            return after, innovation, spread if root is None else root @ spread, sd

        beliefs, seen, spread, sd = self.each(one, modes.beliefs, noise)
        joint = modes.log_probability + seen.log_likelihood
        total = jax.nn.logsumexp(joint)
        innovation = _together(modes.probability, seen, spread, sd / sd[0], total, self.gate)
        after = Modes(beliefs, joint - total)
        after = jax.tree.map(lambda new, old: jnp.where(innovation.accepted > 0, new, old), after, modes)
        return after, self._told(after, u, reading, innovation)

    def _told(self, modes: Modes, u: Array, reading: Reading, innovation: Innovation) -> Told:
        model, n = self.model, self.model.tangent_size
        # as a batch of one, in array code: XLA loses a LAPACK call in a scan that goes on without its result
        one = jax.tree.map(lambda a: a[None], modes)
        all_in = at(jax.vmap(lambda m: merge(model, m.probability, m.beliefs))(one), 0)
        best = heaviest(modes.beliefs, modes.probability)
        return Told(
            all_in.x,
            standard_deviations(all_in.factor),
            modes.log_probability,
            model.retract(best.x, best.mean[:n]),
            self.expected(modes, u, reading.s),
            innovation,
        )

    def mixed(self, modes: Modes) -> Modes:
        """The beliefs after the mode may have changed."""
        possible = jnp.isfinite(modes.log_probability)
        mu = jnp.where(possible, jnp.maximum(modes.probability, _LEAST), 0.0)
        joint = mu[:, None] * jnp.asarray(self.transition)
        total = jnp.sum(joint, axis=0)
        reached = total > 0
        log_total = jnp.where(reached, jnp.log(jnp.where(reached, total, 1.0)), -jnp.inf)
        if not self.mixing:
            return Modes(modes.beliefs, log_total)
        weights = jnp.where(reached, joint / jnp.where(reached, total, 1.0), 1.0 / self.count)
        beliefs = jax.vmap(lambda w: merge(self.model, w, modes.beliefs), in_axes=1)(weights)
        m = modes.beliefs.mean.shape[-1] - beliefs.mean.shape[-1]
        if m:  # beliefs that go on with the noise of their step, which has its prior here
            beliefs = jax.vmap(lambda b: _with_noise(b, m))(beliefs)
        return Modes(beliefs, log_total)

    def predicted(self, modes: Modes, u: Array, noise: Noise | None = None) -> tuple[Modes, Moved]:
        def one(f: Filter, belief: Belief, level: Noise | None) -> tuple[Belief, Motion]:
            after, (A, noises, c) = f.predicted(belief, u, level or f.noise)
            m = belief.mean.shape[0] - f.model.tangent_size
            return after, Motion(jnp.concatenate([A, noises[:, :m]], axis=1), noises[:, m:], c)

        if self.model.reads_pair:
            after, motion = self.each(one, modes.beliefs, noise)
            return self.mixed(Modes(after, modes.log_probability)), Moved(modes.beliefs.x, after.x, motion)
        modes = self.mixed(modes)
        after, motion = self.each(one, modes.beliefs, noise)
        return Modes(after, modes.log_probability), Moved(modes.beliefs.x, after.x, motion)

    def smoothed(self, trail: Trail, last: Modes) -> SmoothedModes:
        first = self.first
        p = first.model.prepare(jnp.asarray(first.z))
        return smoothed(first.model, p, jnp.log(jnp.asarray(self.transition)), trail, last)


def _together(
    weights: Float[Array, " modes"],
    seen: Innovation,
    spread: Float[Array, "modes c k"],
    unit: Float[Array, "modes c"],
    log_likelihood: Array,
    gate: AnyArray | float,
) -> Innovation:
    """The innovation beside the mixture of what the modes expect, in standard deviations of the first mode's sensors.

    `spread`: factors of the readings' covariances in standard deviations of the mode's own sensors, `unit`: those
    in the first mode's.
    """
    residual, factor = merged(weights, unit * seen.residual, unit[:, :, None] * spread)
    white = small.solve_lower(factor, residual)
    nis = jnp.sum(white**2)
    accepted = nis <= jnp.asarray(gate, dtype=nis.dtype)
    return Innovation(
        residual, white, seen.size[0], nis, jnp.where(accepted, log_likelihood, 0.0), accepted.astype(nis.dtype)
    )


def _with_noise(belief: Belief, m: int) -> Belief:
    mean = jnp.concatenate([belief.mean, jnp.zeros(m, dtype=belief.mean.dtype)])
    factor = jax.scipy.linalg.block_diag(belief.factor, jnp.eye(m, dtype=mean.dtype))
    return Belief(belief.x, mean, factor, belief.hint)


@compiled
def _update(f: AbstractSwitching, modes: Modes, u: Array, reading: Reading, noise: Noise | None) -> tuple[Modes, Told]:
    return f.updated(modes, u, reading, noise)


@compiled
def _predict(f: AbstractSwitching, modes: Modes, u: Array, noise: Noise | None) -> Modes:
    return f.predicted(modes, u, noise)[0]


@compiled
def _run(
    f: AbstractSwitching, modes: Modes, samples: Samples, noise: Noise | None, trail: bool, many: bool
) -> Switching:
    def one(modes: Modes, samples: Samples, noise: Noise | None) -> Switching:
        return f.scanned(modes, samples, noise, trail)

    if not many:
        return one(modes, samples, noise)
    axes = Switching(*(1, 0, 1))  # pyright: ignore[reportArgumentType]
    return jax.vmap(one, out_axes=axes)(modes, samples, noise)


@compiled
def _smooth(f: AbstractSwitching, trail: Trail, last: Modes) -> SmoothedModes:
    return f.smoothed(trail, last)
