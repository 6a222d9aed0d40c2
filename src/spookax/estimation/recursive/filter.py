"""Recursive estimation: a belief that is conditioned on the readings of a step and moved over it, again and again.

The model is any member of the protocol, its state on a manifold; how it is made linear is a rule (`Extended`,
`Unscented`); covariances are kept as factors and no covariance is inverted, so that states without noise, noise without
states and mechanisms in redundant coordinates are ordinary. Process noise belongs to the model and is a spectral
density: the same number serves any step.

**Source:** Kalman (1960); square roots after Bierman (1977); smoother: see `Filter.smoothed`.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..._compiled import compiled
from ..._results import STEP_RESULTS, no_failure
from ..._typing import AnyArray, Array, Float
from ...math.smoother import ForwardPass, ReadingGains, smoothed
from ...math.sqrt_gaussian import UNROLLED, Affine, condition, lower
from ...protocol import AbstractModel, Noise
from ...protocol.asked import first_guess
from .every_filter import (
    AbstractSmoothingFilter,
    Estimated,
    Innovation,
    Recursion,
    Smoothed,
    innovation_of,
    standard_deviations,
)
from .step_rules import AbstractRule, Belief, Context, Extended, Move, Reading


class Seen(NamedTuple):
    """Readings of a step that a gate let in, zero where it did not: rows H a + n = y, and what they did."""

    H: Float[Array, "c a"]
    y: Float[Array, " c"]
    learned: ReadingGains


class Trail(NamedTuple):
    """What a filter leaves behind for its smoother: charts, and what it knew in them."""

    x: Any
    path: ForwardPass

    def filtered(self) -> Float[Array, "steps n k"]:
        """Factors of the filtered states: of the predicted ones beside the noise, which readings of a step may see."""
        return self.path.factor if self.path.learned is not None else _seen(*self.path[:3])


@compiled
def _seen(mean: Array, factor: Array, affine: Affine) -> Float[Array, "steps n k"]:
    n, q = affine.B.shape[-2:]

    def one(mean: Array, factor: Array, step: Affine) -> Array:
        both = jax.scipy.linalg.block_diag(factor, jnp.eye(q, dtype=factor.dtype))
        HJ = jnp.concatenate([step.H, step.J], axis=1)
        return condition(jnp.concatenate([mean, jnp.zeros(q, dtype=mean.dtype)]), both, HJ, step.y).factor[:n]

    return jax.vmap(one)(mean, factor, affine)


lower_factor = compiled(lower)  # `sqrt_gaussian.lower` as one program, for who calls it from outside of any


class Filter(AbstractSmoothingFilter):
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
        factor = jnp.diag(sd) if sd.ndim == 1 else lower_factor(sd)
        n, m = self.model.tangent_size, self.model.noise_size
        if factor.shape != (n, n):
            raise ValueError(f"`sd` must have {n} entries or rows, one for each tangent direction, got {sd.shape}")
        if self.model.reads_pair:
            factor = jax.scipy.linalg.block_diag(factor, jnp.eye(m, dtype=factor.dtype))
        x0 = jax.tree.map(jnp.asarray, x0)
        mean = jnp.zeros(factor.shape[0], dtype=factor.dtype)
        return Belief(x0, mean, factor, first_guess(self.model), no_failure())

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
            belief.guess,
            belief.result,
        )
        said = jnp.where(accepted, post.said, 0.0)
        groups, size = said.shape[:2]
        whitened = jnp.where(accepted, post.innovation, 0.0)
        whitened = jnp.concatenate([whitened, jnp.zeros(groups * size - len(y), dtype=y.dtype)]).reshape(groups, size)
        learned = ReadingGains(post.gain, said, whitened)
        return after, innovation, Seen(jnp.where(accepted, H, 0.0), jnp.where(accepted, y, 0.0), learned)

    def updated(
        self, belief: Belief, u: Array, reading: Reading, noise: Noise | None = None
    ) -> tuple[Belief, Innovation]:
        level = noise or self.noise
        rows = self.rule.readings(self.context(u, level), belief, reading)
        return self.conditioned(belief, reading, level, *rows)[:2]

    def ended(self, belief: Belief) -> STEP_RESULTS:
        return belief.result  # pyright: ignore[reportReturnType]

    def predicted(
        self, belief: Belief, u: Array, noise: Noise | None = None
    ) -> tuple[Belief, tuple[Array, Array, Array]]:
        """`predict`, and the motion (A, B with the rule's own noise, c) it was."""
        return self.moved(belief, self.rule.motion(self.context(u, noise or self.noise), belief))

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
        return Belief(move.x, mean, factor, move.guess, move.result), (move.A, noises, move.c)

    def stepped(
        self, belief: Belief, u: Array, reading: Reading, noise: Noise | None, trail: bool
    ) -> tuple[Belief, Estimated, "Trail | None"]:
        filtered, after, innovation, affine, learned = self.followed(belief, u, reading, noise or self.noise)
        n = self.model.tangent_size
        d, S = filtered.mean[:n], filtered.factor[:n]
        left = self.trail(belief, filtered, affine, learned) if trail else None
        x = self.model.retract(belief.x, d)
        return after, Estimated(x, standard_deviations(S), innovation), left

    def followed(
        self, belief: Belief, u: Array, reading: Reading, noise: Noise
    ) -> tuple[Belief, Belief, Innovation, Affine, ReadingGains]:
        """A step with its readings: the filtered belief, the next one, the linear model that led there, and what the
        readings did.
        """
        condition_on = partial(self.conditioned, belief, reading, noise)
        found, move = self.rule.step(self.context(u, noise), belief, reading, condition_on)
        filtered, innovation, (H, y, learned) = found
        after, (A, B, c) = self.moved(filtered, move)
        n = self.model.tangent_size
        J = jnp.pad(H[:, n:], ((0, 0), (0, B.shape[1] - (H.shape[1] - n))))
        return filtered, after, innovation, Affine(A, B, c, H[:, :n], J, y), learned

    def trail(self, predicted: Belief, filtered: Belief, affine: Affine, learned: ReadingGains) -> Trail:
        """What smoothing needs of a step."""
        n = self.model.tangent_size
        if n <= UNROLLED or self.model.reads_pair:
            return Trail(predicted.x, ForwardPass(predicted.mean[:n], predicted.factor[:n, :n], affine, None))
        return Trail(predicted.x, ForwardPass(filtered.mean, filtered.factor, affine, learned))

    def smoothed(self, found: Recursion) -> Smoothed:
        """The forward pass's linear models, backwards.

        The readings after a state speak about it by whitened rows, which pass a step backwards by one
        triangularisation (`math.smoother`); with the filter's moments they give the smoothed ones. In exact
        arithmetic this is the Rauch-Tung-Striebel smoother with the filter's own Jacobians (with sigma points the
        unscented one); it inverts no covariance, so singular ones are ordinary. Derivatives, forward and reverse, are
        those of `x`, `sd` and the covariance.
        """
        trail, last, n = found.trail, found.last, self.model.tangent_size
        d, S = smoothed(trail.path, last.mean[:n], last.factor[:n, :n])
        x = jax.tree.map(lambda a, end: jnp.concatenate([a, end[None]]), trail.x, last.x)
        return Smoothed(jax.vmap(self.model.retract)(x, d), standard_deviations(S), S)
