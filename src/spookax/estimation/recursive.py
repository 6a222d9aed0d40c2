"""Recursive estimation: a belief that is conditioned on the readings of a step and moved over it, again and again.

    belief = f.init(x0, sd)
    belief, seen = f.update(belief, u, y)      # one compiled call a sample
    belief = f.predict(belief, u)

or a whole recording in one call, `f.run`, and back again, `f.smooth`. The model is any member of the protocol, its
state on a manifold; how it is made linear is a rule (`Extended`, `Unscented`); covariances are kept as factors and no
covariance is inverted, so that states without noise, noise without states and mechanisms in redundant coordinates are
ordinary. Process noise belongs to the model and is a spectral density: the same number serves any step.

**Source:** Kalman (1960); square roots after Bierman (1977); smoother: see `smooth`.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from .._compiled import compiled
from .._typing import AnyArray, Array, Float, Scalar
from ..math.smoother import Learned, Path, smoothed
from ..math.sqrt_gaussian import UNROLLED, Affine, condition, lower
from ..protocol import AbstractModel, Noise, Samples
from ..protocol.asked import first_hint
from .rules import AbstractRule, Belief, Context, Extended, Move, Reading


class Innovation(NamedTuple):
    """What the readings of a step were beside their prediction."""

    residual: Float[Array, "*steps c"]  # reading minus prediction, in standard deviations of its sensor
    whitened: Float[Array, "*steps c"]  # each given those before it, in its own standard deviation; 0 where not seen
    size: Float[Array, "*steps"]  # readings seen
    nis: Float[Array, "*steps"]  # normalised innovation squared: chi-squared with `size` degrees of freedom
    log_likelihood: Float[Array, "*steps"]
    accepted: Float[Array, "*steps"]  # 0 where the gate kept the readings out


class Seen(NamedTuple):
    """Readings of a step that a gate let in, zero where it did not: rows H a + n = y, and what they did."""

    H: Float[Array, "c a"]
    y: Float[Array, " c"]
    learned: Learned


class Recursion(NamedTuple):
    """A recording filtered; leading axis: steps."""

    x: Any  # filtered states, each given the readings up to and in its step
    sd: Float[Array, "steps n"]  # their standard deviations, in tangent coordinates
    innovation: Innovation
    last: Any  # what is believed after the last step (`Belief`): to go on from
    rows: "Trail | None"  # for `smooth`

    @property
    def log_likelihood(self) -> Scalar:
        """Of all readings."""
        return jnp.sum(self.innovation.log_likelihood)


class Trail(NamedTuple):
    """What a filter leaves behind for its smoother: charts, and what it knew in them."""

    x: Any
    path: Path

    def filtered(self) -> Float[Array, "steps n k"]:
        """Factors of the filtered states: of the predicted ones beside the noise, which readings of a step may see."""
        if self.path.learned is not None:
            return self.path.factor
        n, q = self.path.affine.B.shape[-2:]

        def one(mean: Array, factor: Array, step: Affine) -> Array:
            both = jax.scipy.linalg.block_diag(factor, jnp.eye(q, dtype=factor.dtype))
            HJ = jnp.concatenate([step.H, step.J], axis=1)
            return condition(jnp.concatenate([mean, jnp.zeros(q, dtype=mean.dtype)]), both, HJ, step.y).factor[:n]

        return jax.vmap(one)(*self.path[:3])


class Smoothed(NamedTuple):
    """States given all readings of a recording; leading axis: steps + 1, the last one being where it ends."""

    x: Any
    sd: Float[Array, "steps_1 n"]
    factor: Float[Array, "steps_1 n n"]


class Filter(eqx.Module):
    """A recursive estimator of the states of a model.

    **Arguments:**

    - `model`, `z`, `noise`: a member of the protocol, its parameters, its noise levels (all arrays traced).
    - `rule`: how to linearise.
    - `gate`: readings of a step whose `nis` is above this number are not used (see `faults` for such a number).

    Parameters that are to be estimated, too, are part of the state of a `WithParameters` model.
    """

    model: AbstractModel
    z: Float[AnyArray, " p"]
    noise: Noise
    rule: AbstractRule = Extended()
    gate: Float[AnyArray, ""] | float = math.inf

    def with_noise(self, noise: Noise) -> "Filter":
        """The same filter with other noise levels."""
        return Filter(self.model, self.z, noise, self.rule, self.gate)

    def init(self, x0: Any, sd: Float[AnyArray, " n"] | Float[AnyArray, "n k"]) -> Belief:
        """The belief before the first reading: about x0, with standard deviations, or a factor of the covariance."""
        sd = jnp.asarray(sd)
        factor = jnp.diag(sd) if sd.ndim == 1 else lower(sd)
        n, m = self.model.tangent_size, self.model.noise_size
        if factor.shape != (n, n):
            raise ValueError(f"`sd` must have {n} entries or rows, one for each tangent direction, got {sd.shape}")
        if self.model.reads_pair:
            factor = jax.scipy.linalg.block_diag(factor, jnp.eye(m, dtype=factor.dtype))
        x0 = jax.tree.map(jnp.asarray, x0)
        return Belief(x0, jnp.zeros(factor.shape[0], dtype=factor.dtype), factor, first_hint(self.model))

    def update(
        self,
        belief: Belief,
        u: AnyArray,
        y: AnyArray,
        seen: AnyArray | None = None,
        s: AnyArray | None = None,
        noise: Noise | None = None,
    ) -> tuple[Belief, Innovation]:
        """The belief given the readings of a step; one compiled call.

        **Arguments:**

        - `u`: the input of the step.
        - `y`: readings (channels,), or (M, channels) for several places in the step.
        - `seen`: 0 where a reading is missing, 1 where not; readings that are NaN are missing.
        - `s`: places of the readings as fractions of the step, 0 when left out.
        - `noise`: noise levels of this step, when they change.
        """
        reading = reading_of(self.model, y, seen, s, belief.mean.dtype)
        return _update(self, belief, jnp.asarray(u), reading, noise or self.noise)

    def predict(self, belief: Belief, u: AnyArray, noise: Noise | None = None) -> Belief:
        """The belief at the end of the step; one compiled call."""
        return _predict(self, belief, jnp.asarray(u), noise or self.noise)

    def run(self, belief: Belief, samples: Samples, noise: Noise | None = None, trail: bool = False) -> Recursion:
        """A whole recording in one compiled scan.

        `noise`: levels that change, a leading axis over the steps in each of its arrays. `trail`: keep what `smooth`
        needs, some n x n matrices a step.
        """
        return _run(self, belief, placed(self.model, samples), noise, trail)

    def smooth(self, found: Recursion) -> Smoothed:
        """States given all readings: the forward pass's linear models, backwards.

        The readings after a state speak about it by whitened rows, which pass a step backwards by one
        triangularisation (`math.smoother`); with the filter's moments they give the smoothed ones. In exact
        arithmetic this is the Rauch-Tung-Striebel smoother with the filter's own Jacobians (with sigma points the
        unscented one); it inverts no covariance, so singular ones are ordinary. Derivatives, forward and reverse, are
        those of `x`, `sd` and the covariance.
        """
        if found.rows is None:
            raise ValueError("smoothing needs `run(..., trail=True)`")
        return _smooth(self, found.rows, found.last)

    # --- what the compiled functions are made of

    def context(self, u: Array, noise: Noise) -> Context:
        """What the rule works in at a step."""
        return Context(self.model, self.model.prepare(jnp.asarray(self.z)), noise, u)

    def conditioned(
        self, belief: Belief, reading: Reading, noise: Noise, H: Array, y: Array, root: Array | None
    ) -> tuple[Belief, Innovation, "Seen"]:
        """The belief that has seen rows H a + n = y of its readings, and what the gate let in.

        `root`: what `AbstractRule.readings` says of n.
        """
        post, residual = condition(belief.mean, belief.factor, H, y), y - H @ belief.mean
        if root is not None:  # from the units of n to those of the sensors
            post = post._replace(log_det=post.log_det + 2 * jnp.sum(jnp.log(jnp.diagonal(root))))
            residual = root @ residual
        innovation = innovation_of(post.innovation, post.log_det, residual, reading, noise, self.gate)
        accepted = innovation.accepted > 0
        after = Belief(
            belief.x,
            jnp.where(accepted, post.mean, belief.mean),
            jnp.where(accepted, post.factor, belief.factor),
            belief.hint,
        )
        said = jnp.where(accepted, post.said, 0.0)
        groups, size = said.shape[:2]
        whitened = jnp.where(accepted, post.innovation, 0.0)
        whitened = jnp.concatenate([whitened, jnp.zeros(groups * size - len(y), dtype=y.dtype)]).reshape(groups, size)
        learned = Learned(post.gain, said, whitened)
        return after, innovation, Seen(jnp.where(accepted, H, 0.0), jnp.where(accepted, y, 0.0), learned)

    def updated(self, belief: Belief, u: Array, reading: Reading, noise: Noise) -> tuple[Belief, Innovation, "Seen"]:
        """`update`, not compiled, and the readings it used."""
        rows = self.rule.readings(self.context(u, noise), belief, reading)
        return self.conditioned(belief, reading, noise, *rows)

    def predicted(self, belief: Belief, u: Array, noise: Noise) -> tuple[Belief, tuple[Array, Array, Array]]:
        """`predict`, not compiled, and the motion (A, B with the rule's own noise, c) it used."""
        return self.moved(belief, self.rule.motion(self.context(u, noise), belief))

    def moved(self, belief: Belief, move: Move) -> tuple[Belief, tuple[Array, Array, Array]]:
        """The belief after a motion, and its (A, B with the rule's own noise, c)."""
        m = self.model.noise_size
        noises = jnp.concatenate([move.B, move.E], axis=1)
        if self.model.reads_pair:
            factor = lower(jnp.concatenate([move.A, move.B], axis=1) @ belief.factor, move.E)
            mean = jnp.concatenate([move.mean, jnp.zeros(m, dtype=factor.dtype)])
            factor = jax.scipy.linalg.block_diag(factor, jnp.eye(m, dtype=factor.dtype))
        else:
            mean, factor = move.mean, lower(move.A @ belief.factor, noises) if move.factor is None else move.factor
        return Belief(move.x, mean, factor, move.hint), (move.A, noises, move.c)

    def stepped(
        self, belief: Belief, u: Array, reading: Reading, noise: Noise
    ) -> tuple[Belief, Belief, Innovation, Affine, Learned]:
        """A step with its readings: the filtered belief, the next one, the linear model that led there, and what the
        readings did.
        """
        condition_on = partial(self.conditioned, belief, reading, noise)
        found, move = self.rule.step(self.context(u, noise), belief, reading, condition_on)
        filtered, innovation, (H, y, learned) = found
        after, (A, B, c) = self.moved(filtered, move)
        n = self.model.tangent_size
        J = jnp.zeros((H.shape[0], B.shape[1]), dtype=H.dtype).at[:, : H.shape[1] - n].set(H[:, n:])
        return filtered, after, innovation, Affine(A, B, c, H[:, :n], J, y), learned

    def trail(self, predicted: Belief, filtered: Belief, affine: Affine, learned: Learned) -> Trail:
        """What smoothing needs of a step."""
        n = self.model.tangent_size
        if n <= UNROLLED or self.model.reads_pair:
            return Trail(predicted.x, Path(predicted.mean[:n], predicted.factor[:n, :n], affine, None))
        return Trail(predicted.x, Path(filtered.mean, filtered.factor, affine, learned))


def innovation_of(
    whitened: Array, log_det: Array, residual: Array, reading: Reading, noise: Noise, gate: AnyArray | float = math.inf
) -> Innovation:
    """What readings were, from their whitened innovations and the log-determinant of their covariance (`condition`)."""
    seen = reading.seen.reshape(-1)
    there = seen > 0
    nis = jnp.sum(whitened**2)
    scale = jnp.where(there, seen / jnp.broadcast_to(noise.sensor, reading.y.shape).reshape(-1), 1.0)
    size = jnp.sum(there).astype(nis.dtype)
    constant = jnp.sum(jnp.log(scale)) - 0.5 * math.log(2.0 * math.pi) * size
    accepted = nis <= jnp.asarray(gate, dtype=nis.dtype)
    log_likelihood = jnp.where(accepted, constant - 0.5 * (nis + log_det), 0.0)
    return Innovation(residual, whitened, size, nis, log_likelihood, accepted.astype(nis.dtype))


def reading_of(model: AbstractModel, y: AnyArray, seen: AnyArray | None, s: AnyArray | None, dtype: Any) -> Reading:
    """Readings as `Filter.update` takes them."""
    y = jnp.atleast_2d(jnp.asarray(y, dtype=dtype))
    there = ~jnp.isnan(y)
    seen = there.astype(dtype) * (1.0 if seen is None else jnp.asarray(seen, dtype=dtype))
    if s is None:
        s = jnp.zeros(y.shape[0], dtype=dtype)
    else:
        s = jnp.broadcast_to(_readable(model, jnp.asarray(s, dtype=dtype)), y.shape[:1])
    return Reading(jnp.where(there, y, 0.0), s, jnp.broadcast_to(seen, y.shape))


def placed(model: AbstractModel, samples: Samples) -> Samples:
    """A recording whose readings lie where the model reads; a runtime error (`eqx.error_if`) for any that do not."""
    return samples._replace(s=_readable(model, jnp.asarray(samples.s)))


def _readable(model: AbstractModel, s: Array) -> Array:
    if model.reads_pair:
        return s
    return eqx.error_if(s, jnp.any(s != 0), "this model reads its state at the start of a step: all `s` must be 0")


@compiled
def _update(f: Filter, belief: Belief, u: Array, reading: Reading, noise: Noise) -> tuple[Belief, Innovation]:
    return f.updated(belief, u, reading, noise)[:2]


@compiled
def _predict(f: Filter, belief: Belief, u: Array, noise: Noise) -> Belief:
    return f.predicted(belief, u, noise)[0]


def standard_deviations(factor: Float[Array, "n k"]) -> Float[Array, " n"]:
    """Of a Gaussian with this factor."""
    square = jnp.sum(factor**2, axis=-1)
    there = square > 0  # a root has no derivative at zero; what is known exactly stays so
    return jnp.where(there, jnp.sqrt(jnp.where(there, square, 1.0)), 0.0)


@compiled
def _run(f: Filter, belief: Belief, samples: Samples, noise: Noise | None, trail: bool) -> Recursion:
    n = f.model.tangent_size

    def body(belief: Belief, step):
        u, reading, level = step
        filtered, after, innovation, affine, learned = f.stepped(belief, u, reading, level or f.noise)
        d, S = filtered.mean[:n], filtered.factor[:n]
        left = f.trail(belief, filtered, affine, learned) if trail else None
        return after, (f.model.retract(belief.x, d), standard_deviations(S), innovation, left)

    reading = Reading(samples.y, samples.s, samples.seen)
    last, (x, sd, innovation, left) = jax.lax.scan(body, belief, (samples.u, reading, noise))
    return Recursion(x, sd, innovation, last, left)


@compiled
def _smooth(f: Filter, trail: Trail, last: Belief) -> Smoothed:
    n = f.model.tangent_size
    d, S = smoothed(trail.path, last.mean[:n], last.factor[:n, :n])
    x = jax.tree.map(lambda a, end: jnp.concatenate([a, end[None]]), trail.x, last.x)
    return Smoothed(jax.vmap(f.model.retract)(x, d), standard_deviations(S), S)
