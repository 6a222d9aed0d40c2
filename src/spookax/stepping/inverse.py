"""Inverse dynamics: the impulse that a transition needs, from the same rows as the step.

**Source:** Marklund, Servin, Larson (2025), eqs. (2.29)-(2.31) corrected (lam_A = -Sigma^-1 (a + A v+), w_B
complementary to lam_B) and (3.6)-(3.13) with the applied force included and M_Sigma (actual - predicted) = dp.
"""

import jax.numpy as jnp

from .._typing import Array, Float
from ..constraints import Prepared, Rows
from ..system import State, System
from . import contact, discs, following, saddle
from .spook import step, step_rows


def multipliers(
    system: System, rows: Rows, v1: Float[Array, "bodies 6"]
) -> tuple[Float[Array, "nodes rows"], Float[Array, " boxes"]]:
    """Joint impulses, and x of the rows with bounds, that the regularised rows answer to the new velocity `v1`."""
    lam = -saddle.gaps(system, rows, v1) / rows.sigma
    force = rows.box.force
    if system.discs and system.following:  # what makes a disc an ellipse
        x = discs.near(system, rows, force, v1).x
        force = following.forces(system, rows, lam, x)
    return lam, discs.near(system, rows, force, v1).x


def inverse_dynamics(
    system: System,
    prepared: Prepared,
    state: State,
    v1: Float[Array, "bodies 6"],
    command: Float[Array, " motors"],
) -> Float[Array, "bodies 6"]:
    """Extra impulse on every body (world force and body torque times h) that takes `state` to the velocity `v1`.

    Zero (to rounding) for a velocity that `step` returned without extra impulse; differentiable everywhere except
    where friction changes between sticking and sliding, or a stop or a contact between closed and open. Where `step`
    has solved its contacts several times (a landing that starts to slip), zero to what the last pass still changed.
    NaN where more pairs of surfaces are near each other than there are slots for. [N s, N m s]
    """
    zero = jnp.zeros_like(v1)
    rows, *_ = step_rows(system, prepared, state, command, zero)
    rows = contact.seen_from(system, rows, v1, prepared.params.step)
    lam, x = multipliers(system, rows, v1)
    impulse, slots = saddle.balance(system, rows, v1, lam, x), contact.slots(rows)
    return impulse if slots is None else jnp.where(slots.overflow, jnp.nan, impulse)


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
