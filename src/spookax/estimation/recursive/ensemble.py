"""The ensemble filter: a belief carried by members that each go through the model's own step."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._results import STEP_RESULTS, no_failure, worst
from ..._typing import AnyArray, Array, Float
from ...math.sqrt_gaussian import condition
from ...protocol import AbstractModel, Noise
from ...protocol.asked import first_guess, stepped
from .every_filter import AbstractFilter, Estimated, Innovation, innovation_of, standard_deviations
from .step_rules import Belief, Context, Reading


class Members(eqx.Module):
    """An ensemble: x box-plus every row of `d`, each with the noise of its next step."""

    x: Any  # the chart
    d: Float[Array, "members n"]
    w: Float[Array, "members m"]
    guess: Float[Array, "members h"]
    key: Array
    result: STEP_RESULTS  # how the last step ended, of the members the worst


class EnsembleFilter(AbstractFilter):
    """A recursive estimator by sampling.

    Members are drawn once and moved with noise of their own; readings move their mean and shrink their spread by the
    deterministic square-root update, one reading after the other, so that the readings are not perturbed.

    **Arguments:**

    - `model`, `z`, `noise`: as for `Filter`.
    - `size`: members. With fewer than the state has components, directions are missing from the covariance.
    - `inflation`: factor on the spread after every step, against the loss that comes from sampling.
    - `gate`: as for `Filter`. With few members `nis` runs above chi-squared: the spread is that of a sample.

    **Source:** Whitaker and Hamill (2002).
    """

    model: AbstractModel
    z: Float[AnyArray, " p"]
    noise: Noise
    size: int = eqx.field(static=True, default=100)
    inflation: Float[AnyArray, ""] | float = 1.0
    gate: Float[AnyArray, ""] | float = math.inf

    def init(self, x0: Any, sd: Float[AnyArray, " n"] | Float[AnyArray, "n k"], key: Array) -> Members:
        """Members about x0 with these standard deviations, or this factor of the covariance."""
        sd = jnp.asarray(sd)
        factor = jnp.diag(sd) if sd.ndim == 1 else sd
        n, m = self.model.tangent_size, self.model.noise_size
        if factor.shape[0] != n:
            raise ValueError(f"`sd` must have {n} entries or rows, one for each tangent direction, got {sd.shape}")
        key, first, second = jax.random.split(key, 3)
        d = jax.random.normal(first, (self.size, factor.shape[1]), dtype=factor.dtype) @ factor.T
        w = jax.random.normal(second, (self.size, m), dtype=factor.dtype)
        guess = jnp.broadcast_to(first_guess(self.model), (self.size, *first_guess(self.model).shape))
        return Members(jax.tree.map(jnp.asarray, x0), d, w, guess, key, no_failure())

    # --- what the compiled functions are made of

    def updated(
        self, members: Members, u: Array, reading: Reading, noise: Noise | None = None
    ) -> tuple[Members, Innovation]:
        noise = noise or self.noise
        at = Context(self.model, self.model.prepare(jnp.asarray(self.z)), noise, u)
        a = jnp.concatenate([members.d, members.w], axis=1) if self.model.reads_pair else members.d

        def residual(a: Array, guess: Array) -> Array:
            return at.read(Belief(members.x, a, a[:, None], guess), reading, a)

        e = jax.vmap(residual)(a, members.guess)
        # the ensemble's own joint covariance of what is uncertain and what is predicted: condition on the latter
        joint, size = jnp.concatenate([a, -e], axis=1), a.shape[1]
        mean = jnp.mean(joint, axis=0)
        factor = (joint - mean[None]).T / math.sqrt(self.size - 1)
        c = e.shape[1]
        picks = jnp.concatenate([jnp.zeros((c, size), dtype=e.dtype), jnp.eye(c, dtype=e.dtype)], axis=1)
        post = condition(mean, factor, picks, jnp.zeros(c, dtype=e.dtype))
        innovation = innovation_of(post.innovation, post.log_det, jnp.mean(e, axis=0), reading, noise, self.gate)
        updated = (post.mean[:, None] + math.sqrt(self.size - 1) * post.factor).T[:, :size]
        a = jnp.where(innovation.accepted > 0, updated, a)
        n = self.model.tangent_size
        w = a[:, n:] if self.model.reads_pair else members.w
        return Members(members.x, a[:, :n], w, members.guess, members.key, members.result), innovation

    def ended(self, members: Members) -> STEP_RESULTS:
        return members.result

    def predicted(self, members: Members, u: Array, noise: Noise | None = None) -> tuple[Members, None]:
        noise = noise or self.noise
        p = self.model.prepare(jnp.asarray(self.z))

        def moved(d: Array, w: Array, guess: Array) -> tuple[Any, Array, STEP_RESULTS]:
            return stepped(self.model, self.model.retract(members.x, d), p, u, w, noise, guess)

        states, guess, results = jax.vmap(moved)(members.d, members.w, members.guess)
        first = jax.tree.map(lambda a: a[0], states)
        about_first = jax.vmap(lambda x: self.model.local(x, first))(states)
        x = self.model.retract(first, jnp.mean(about_first, axis=0))
        d = jax.vmap(lambda state: self.model.local(state, x))(states)
        mean = jnp.mean(d, axis=0)
        key, draw = jax.random.split(members.key)
        w = jax.random.normal(draw, members.w.shape, dtype=members.w.dtype)
        return Members(x, mean[None] + self.inflation * (d - mean[None]), w, guess, key, worst(results)), None

    def stepped(
        self, members: Members, u: Array, reading: Reading, noise: Noise | None, trail: bool
    ) -> tuple[Members, Estimated, None]:
        if trail:
            raise ValueError("an ensemble goes forwards only: run it without `trail`")
        filtered, innovation = self.updated(members, u, reading, noise)
        mean = jnp.mean(filtered.d, axis=0)
        sd = standard_deviations((filtered.d - mean[None]).T / math.sqrt(self.size - 1))
        after, _ = self.predicted(filtered, u, noise)
        return after, Estimated(self.model.retract(members.x, mean), sd, innovation), None
