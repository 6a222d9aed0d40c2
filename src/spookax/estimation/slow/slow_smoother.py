"""The states and slow parameters of a recording given all of its readings, without a p x p matrix a step.

Readings pass their news r backwards, r_k-1 = H' L^-T (nu - V' T' r_k) + T' r_k with the whitened innovations nu of the
forward pass and V = P H' L^-T; the first state and the noises, as r says they were, are then carried forwards,

    a_0 = m_0 + P_0 r_-1,   d+ = M (a - m) + C (z - z_m) + E E' r_d,   z+ = decay z + Q r_z,   w+ = r_w,

so that what is stored is O(p) a step. Means only: their deviations would need P_zz of every step.

**Source:** Koopman (1993), the disturbance smoother and its fast recursion for the states.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..._typing import Array, Float
from .slow_rules import InnovationGains, SlowBelief, SlowMotion
from .with_parameters import AugmentedState, WithParameters


class SlowTrail(NamedTuple):
    """What the forward pass leaves behind; leading axis: steps."""

    x: Any  # charts of the predicted states
    news: InnovationGains
    mean: Float[Array, "steps a"]  # filtered
    z: Float[Array, "steps p"]
    move: SlowMotion


def smoothed(model: WithParameters, start: SlowBelief, trail: SlowTrail) -> AugmentedState:
    """States and parameters given all readings, at the start of every step and after the last one."""
    n, retract, dtype = model.model.tangent_size, model.model.retract, trail.z.dtype

    def drifted(z: Array) -> tuple[Array, Array]:
        return model.drifted(model.model.prepare(z), dtype)

    steps = trail._replace(x=None), jax.vmap(drifted)(trail.z)

    def back(after: tuple[Array, Array], step: tuple[SlowTrail, tuple[Array, Array]]):
        (r_a, r_z), (s, (decay, _)) = after, step
        from_a, from_z = s.move.M.T @ r_a[:n], s.move.C.T @ r_a[:n] + decay * r_z
        rest = s.news.nu - s.news.V_a.T @ from_a - s.news.V_z.T @ from_z
        by_z = 0.0 if s.news.W_z is None else s.news.W_z.T @ rest
        return (s.news.W_a.T @ rest + from_a, by_z + from_z), after

    nothing = jnp.zeros(trail.mean.shape[1], dtype=dtype), jnp.zeros(trail.z.shape[1], dtype=dtype)
    (r_a, r_z), news = jax.lax.scan(back, nothing, steps, reverse=True)
    first = (
        start.mean + start.P_aa @ r_a + start.P_za.T @ r_z,
        start.z + start.P_za @ r_a + start.P_zz @ r_z,
    )

    def ahead(now: tuple[Array, Array], step: tuple[tuple[SlowTrail, tuple[Array, Array]], tuple[Array, Array]]):
        (a, z), ((s, (decay, Q)), (r_a, r_z)) = now, step
        M, C, E = s.move.M, s.move.C, s.move.E
        d = M @ (a - s.mean) + C @ (z - s.z) + E @ (E.T @ r_a[:n])
        return (jnp.concatenate([d, r_a[n:]]), decay * z + Q * r_z), now

    (a, z), (many_a, many_z) = jax.lax.scan(ahead, first, (steps, news))
    end = retract(jax.tree.map(lambda x: x[-1], trail.move.x), a[:n])
    x = jax.vmap(retract)(trail.x, many_a[:, :n])
    return jax.tree.map(
        lambda most, last: jnp.concatenate([most, last[None]]), AugmentedState(x, many_z), AugmentedState(end, z)
    )
