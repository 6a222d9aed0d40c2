"""Mechanisms with loops along given coordinates: each state from the one before, so that none changes its branch."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from .._typing import Array, Float, Int
from ..constraints import Prepared, axes, frames
from ..math import rotation
from ..system import State, System
from .closing import consistent_velocity, missed, newton, projection_rows, smallest_motion
from .start import coordinates_of, forward_kinematics, new_state

# of given axes, beside their bodies without joints: large against that of the loops (1e-9), small against one. Of more
# coordinates than a loop has freedoms, as they are read, the nearest that it can have are met; and at a dead centre,
# where a slide tells nothing of the crank, the crank goes no farther than some hundred times what the slide is off.
YIELDING = 1e-6
FIRST, LATER = 60, 4  # Newton steps of a first state and of one next to another
_LONGEST = 0.5  # step [rad]


def begun(
    system: System,
    prepared: Prepared,
    joints: Mapping[str, Any],
    position: Float[Array, " given"],
    given: tuple[int, ...],
) -> State:
    """Where the first state is sought from: bodies as `joints` and the given positions place them, loops left open."""
    start = coordinates_of(system, joints, {})[2]
    start |= {system.axes[i].name: x for i, x in zip(given, position, strict=True)}
    near = jnp.stack([start[name] for name in system.axis_names()])
    r, e = forward_kinematics(system, prepared, start)
    return new_state(system, r, e, jnp.zeros((system.num_bodies, 6), dtype=r.dtype), near)


def followed(
    system: System,
    prepared: Prepared,
    state: State,
    position: Float[Array, " given"],
    rate: Float[Array, " given"],
    given: tuple[int, ...],
    steps: Int[Array, ""],
) -> State:
    """The state next to another one, with loops closed and as nearly as that allows with other positions and rates of
    the given axes [rad, m, 1/s].

    `steps`: `FIRST` or `LATER`.
    """
    time = jnp.zeros((), dtype=position.dtype)

    def nearer(_, pose: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        r, e, near = pose
        kin = frames.kinematics(system, r, e, prepared.geometry)
        near = axes.coordinates(system, kin, near)
        rows, _ = projection_rows(system, prepared, kin, near, time, poses=True)
        d, _ = smallest_motion(system, rows, rows.a, missed(system, kin, position, given), given, YIELDING)
        d = d * jnp.minimum(1.0, _LONGEST / jnp.maximum(jnp.max(jnp.abs(d[:, 3:])), 1e-12))
        return r + d[:, :3], jax.vmap(rotation.plus)(e, d[:, 3:]), near

    r, e, near = jax.lax.fori_loop(0, steps, nearer, (state.r, state.e, state.near))
    r, e = newton(system, prepared, r, e, near, position[:0], ())  # whatever the readings, loops are closed
    near = axes.coordinates(system, frames.kinematics(system, r, e, prepared.geometry), near)
    still = jnp.zeros((system.num_bodies, 6), dtype=position.dtype)
    v = consistent_velocity(system, prepared, r, e, near, still, rate, given, YIELDING)
    return new_state(system, r, e, v, near)
