"""Inverse dynamics: the impulse that a transition needs, from the same rows as the step.

**Source:** Marklund, Servin, Larson (2025), eqs. (2.29)-(2.31) corrected (lam_A = -Sigma^-1 (a + A v+), w_B
complementary to lam_B) and (3.6)-(3.13) with the applied force included and M_Sigma (actual - predicted) = dp.
"""

import jax.numpy as jnp

from .._typing import Array, Float
from ..constraints import Prepared, Rows, assemble
from ..system import State, System
from . import saddle
from .spook import step


def multipliers(
    system: System, rows: Rows, v1: Float[Array, "bodies 6"]
) -> tuple[Float[Array, "nodes rows"], Float[Array, " friction"]]:
    """Joint impulses and friction levels that the regularised rows answer to the new velocity `v1`."""
    lam = -saddle.gaps(system, rows, v1) / rows.sigma
    if not system.friction_axes:
        return lam, jnp.zeros(0, dtype=v1.dtype)
    return lam, jnp.clip(-saddle.friction_rates(system, rows, v1) / rows.creep, -1.0, 1.0)


def inverse_dynamics(
    system: System,
    prepared: Prepared,
    state: State,
    v1: Float[Array, "bodies 6"],
    command: Float[Array, " motors"],
) -> Float[Array, "bodies 6"]:
    """Extra impulse on every body (world force and body torque times h) that takes `state` to the velocity `v1`.

    Zero (to rounding) for a velocity that `step` returned without extra impulse; differentiable everywhere except
    where friction changes between sticking and sliding. [N s, N m s]
    """
    zero = jnp.zeros_like(v1)
    rows = assemble(system, prepared, state, command, zero)
    lam, x = multipliers(system, rows, v1)
    return saddle.balance(system, rows, v1, lam, x)


def forward_residual(
    system: System,
    prepared: Prepared,
    state: State,
    v1: Float[Array, "bodies 6"],
    command: Float[Array, " motors"],
) -> Float[Array, "bodies 6"]:
    """Actual minus predicted velocity, v1 - step(state) [m/s, rad/s].

    M_Sigma times this is `inverse_dynamics` (paper's (3.12) with the sign that holds), for unchanged stick and slip.
    """
    predicted, _ = step(system, prepared, state, command)
    return v1 - jnp.concatenate([predicted.v, predicted.w], axis=-1)
