"""An extended filter for many slow parameters behind a small state, at a cost that the parameters' noise allows.

A dense factor of n + p unknowns costs O((n + p)^3) a step once every parameter has a noise of its own. But the
parameters only decay and wander: their block of the transition is a number times the identity. So the covariance is
kept in blocks of a (the state, with the noise w of its step where readings depend on that) and z (the parameters),

    P = [[P_aa, P_za'], [P_za, P_zz]],

and P_zz is changed by one pass over it a step: less one outer product for each reading, times decay^2, plus a diagonal.
That is O(p^2), and exactly symmetric in any precision: every entry and its mirror image are the same sums of products.

In exact arithmetic this is `Filter` of the same `WithParameters` model. It keeps covariances where that keeps factors:
asymmetry, which makes short covariance filters diverge, cannot arise, but a P_zz whose eigenvalues differ by more than
the reciprocal of the precision loses its small ones; take `Filter` then.

**Source:** Friedland (1969) for the blocks; Bierman (1977), chapter 8, for coloured and slow states.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._results import STEP_RESULTS, no_failure
from ..._typing import AnyArray, Array, Float, Scalar
from ...math import small
from ...protocol import Noise
from ...protocol.asked import first_guess
from ..recursive.every_filter import AbstractSmoothingFilter, Estimated, Innovation, Recursion, Smoothed, innovation_of
from ..recursive.step_rules import Reading
from .slow_rules import InnovationGains, ReadingRows, SlowBelief, SlowMotion, by_derivative, by_sigma_points, rows_of
from .slow_smoother import SlowTrail, smoothed
from .with_parameters import AugmentedState, WithParameters


class SlowFilter(AbstractSmoothingFilter):
    """A recursive estimator of the states of a model and of its parameters, slow ones and possibly many.

    **Arguments:**

    - `model`: the model and how its parameters drift (traced arrays).
    - `noise`: its noise levels.
    - `gate`: readings of a step whose `nis` is above this number are not used.
    - `iterations`: how often the readings are linearised in an update; 1 is the extended filter.
    - `spread`: for a state that is small and moves with jumps (dry friction): the motion is made linear in the state by
      sigma points that many of its standard deviations away (3^0.5 for a Gaussian), in the parameters by derivatives.
      What a line leaves of it counts as noise of the step. Needs a state whose covariance has full rank.
    """

    model: WithParameters  # pyright: ignore[reportIncompatibleVariableOverride]
    noise: Noise
    gate: Float[AnyArray, ""] | float = math.inf
    iterations: int = eqx.field(static=True, default=1)
    spread: float | None = eqx.field(static=True, default=None)

    def init(self, x0: AugmentedState, sd: Float[AnyArray, " n_p"] | Float[AnyArray, "n_p k"]) -> SlowBelief:
        """The belief before the first reading: about x0, with standard deviations, or a factor of the covariance.

        **Raises:** `ValueError` if `sd` does not have one entry, or row, for each tangent direction and parameter.
        """
        sd = jnp.asarray(sd)
        n, p = self.model.model.tangent_size, self.model.size
        if sd.shape[0] != n + p or sd.ndim > 2:
            raise ValueError(
                f"`sd` must have {n + p} entries or rows, one for each of {n} tangent directions and {p} parameters, "
                f"got {sd.shape}"
            )
        factor = jnp.diag(sd) if sd.ndim == 1 else sd
        P_aa, P_za, P_zz = factor[:n] @ factor[:n].T, factor[n:] @ factor[:n].T, factor[n:] @ factor[n:].T
        x = jax.tree.map(jnp.asarray, x0.x)
        mean, P_aa, P_za = self.with_noise(jnp.zeros(n, dtype=sd.dtype), P_aa, P_za)
        moments = mean, P_aa, P_za, _mirrored(P_zz)
        return SlowBelief(x, jnp.asarray(x0.z), *moments, first_guess(self.model), no_failure())

    def with_noise(self, mean: Array, P_aa: Array, P_za: Array) -> tuple[Array, Array, Array]:
        """Moments of a = (d, w) from those of d, before any reading: w ~ N(0, 1)."""
        if not self.model.reads_pair:
            return mean, P_aa, P_za
        m = self.model.model.noise_size
        mean = jnp.concatenate([mean, jnp.zeros(m, dtype=mean.dtype)])
        P_za = jnp.concatenate([P_za, jnp.zeros((P_za.shape[0], m), dtype=mean.dtype)], axis=1)
        return mean, jax.scipy.linalg.block_diag(P_aa, jnp.eye(m, dtype=mean.dtype)), P_za

    # --- what the compiled functions are made of

    def updated(
        self, belief: SlowBelief, u: Array, reading: Reading, noise: Noise | None = None
    ) -> tuple[SlowBelief, Innovation]:
        after, news, innovation = self.conditioned(belief, u, reading, noise or self.noise)
        return eqx.tree_at(lambda b: b.P_zz, after, after.P_zz - _square(news.V_z)), innovation

    def ended(self, belief: SlowBelief) -> STEP_RESULTS:
        return belief.result

    def predicted(self, belief: SlowBelief, u: Array, noise: Noise | None = None) -> tuple[SlowBelief, SlowMotion]:
        nothing = jnp.zeros((belief.z.shape[0], 0), dtype=belief.z.dtype)
        return self.moved(belief, nothing, u, noise or self.noise)

    def stepped(
        self, belief: SlowBelief, u: Array, reading: Reading, noise: Noise | None, trail: bool
    ) -> tuple[SlowBelief, Estimated, SlowTrail | None]:
        noise, n = noise or self.noise, self.model.model.tangent_size
        filtered, news, innovation = self.conditioned(belief, u, reading, noise)
        after, move = self.moved(filtered, news.V_z, u, noise)
        var_z = small.diagonal(belief.P_zz) - jnp.sum(news.V_z**2, axis=1)
        sd = jnp.sqrt(jnp.concatenate([small.diagonal(filtered.P_aa)[:n], var_z]))
        left = SlowTrail(belief.x, news, filtered.mean, filtered.z, move) if trail else None
        x = AugmentedState(self.model.model.retract(belief.x, filtered.mean[:n]), filtered.z)
        return after, Estimated(x, sd, innovation), left

    def smoothed(self, found: Recursion) -> Smoothed:
        """Means only, as an `AugmentedState`: see `slow_smoother`. A trail is some p-vectors a step."""
        return Smoothed(smoothed(self.model, found.first, found.trail), None, None)  # pyright: ignore[reportArgumentType]

    def conditioned(
        self, belief: SlowBelief, u: Array, reading: Reading, noise: Noise
    ) -> tuple[SlowBelief, InnovationGains, Innovation]:
        """The belief given readings, but for P_zz, which is that of `belief` less V_z V_z'; what was new in them."""
        a, dz = belief.mean, jnp.zeros_like(belief.z)
        for _ in range(self.iterations - 1):
            news, _ = _news(belief, rows_of(self.model.model, belief, u, reading, noise, a, dz))
            a, dz = belief.mean + news.V_a @ news.nu, news.V_z @ news.nu
        rows = rows_of(self.model.model, belief, u, reading, noise, a, dz)
        news, log_det = _news(belief, rows)
        innovation = innovation_of(news.nu, log_det, rows.y - rows.H_a @ belief.mean, reading, noise, self.gate)
        accepted = innovation.accepted > 0
        news = jax.tree.map(lambda part: jnp.where(accepted, part, 0.0), news)
        after = SlowBelief(
            belief.x,
            belief.z + news.V_z @ news.nu,
            belief.mean + news.V_a @ news.nu,
            belief.P_aa - _square(news.V_a),
            belief.P_za - news.V_z @ news.V_a.T,
            belief.P_zz,
            belief.guess,
            belief.result,
        )
        return after, news, innovation

    def moved(
        self, belief: SlowBelief, V: Float[Array, "p c"], u: Array, noise: Noise
    ) -> tuple[SlowBelief, SlowMotion]:
        """The belief a step later, where P_zz at the start is that of `belief` less V V'; the motion that led there."""
        M, C, E, x1, guess, result = move = self.motion(belief, u, noise)
        side = belief.P_za @ M.T + (belief.P_zz @ C.T - V @ (V.T @ C.T))  # covariance of z and d+
        corner = M @ (belief.P_aa @ M.T + belief.P_za.T @ C.T) + C @ side + E @ E.T
        decay, variance = self.model.drifted(self.model.model.prepare(belief.z), belief.z.dtype)
        zero = jnp.zeros(M.shape[0], dtype=M.dtype)
        mean, P_aa, P_za = self.with_noise(zero, _mirrored(corner), decay * side)
        P_zz = decay**2 * (belief.P_zz - _square(V)) + jnp.diag(jnp.broadcast_to(variance, belief.z.shape))
        return SlowBelief(x1, decay * belief.z, mean, P_aa, P_za, P_zz, guess, result), move

    def motion(self, belief: SlowBelief, u: Array, noise: Noise) -> SlowMotion:
        """The step as a linear model."""
        if self.spread is None:
            return by_derivative(self.model.model, belief, u, noise)
        return by_sigma_points(self.model.model, belief, u, noise, self.spread)


def _news(belief: SlowBelief, rows: ReadingRows) -> tuple[InnovationGains, Scalar]:
    """What rows say beside the belief, and log |F|."""
    H_a, H_z, y = rows
    G_a, G_z = belief.P_aa @ H_a.T, belief.P_za @ H_a.T
    if H_z is not None:
        G_a, G_z = G_a + belief.P_za.T @ H_z.T, G_z + belief.P_zz @ H_z.T
    F = H_a @ G_a + jnp.eye(y.shape[0], dtype=y.dtype) + (0.0 if H_z is None else H_z @ G_z)
    L, split = small.cholesky(F), 1 + belief.mean.shape[0]
    white = small.solve_lower(L, jnp.column_stack([y - H_a @ belief.mean, G_a.T, G_z.T]))
    W_a, W_z = small.solve_lower(L, H_a), None if H_z is None else small.solve_lower(L, H_z)
    news = InnovationGains(white[:, 0], white[:, 1:split].T, white[:, split:].T, W_a, W_z)
    return news, 2.0 * jnp.sum(jnp.log(small.diagonal(L)))


def _square(V: Float[Array, "k c"]) -> Float[Array, "_ _"]:
    """V V' with the products summed in turn: symmetric to the last bit, and part of the pass over what it changes.
    A zero where there are no columns.
    """
    return sum((column[:, None] * column[None, :] for column in V.T), jnp.zeros((1, 1), dtype=V.dtype))


def _mirrored(P: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """The symmetric part."""
    return (P + P.T) / 2
