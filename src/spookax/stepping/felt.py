"""What sensors of contact forces read. A state keeps that of the step before: two states alone do not tell it.

Contacts are stiff. The force of a step follows from its velocities only together with the slip that its last pass took,
which may be off by 2 mm/s, and a force by some hundred times that per kilogram and step.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp

from .._typing import Array, Float, Int
from ..math import rotation
from ..math.product import matvec
from ..system import State, System


def nothing_felt(system: System, state: State) -> State:
    """The state, with readings of zero where it has none and there are such sensors."""
    if not system.force_sensors or state.felt is not None:
        return state
    return _with(state, jnp.zeros((len(system.force_sensors), 3), dtype=state.r.dtype))


def having_felt(
    system: System, after: State, e: Float[Array, "bodies 4"], forces: Float[Array, "points 3"], pairs: Array
) -> State:
    """`after` with what the step to it made felt."""
    return _with(after, forces_read(system, system.force_sensors, e, forces, pairs)) if system.force_sensors else after


def _with(state: State, felt: Float[Array, "forces 3"]) -> State:
    return eqx.tree_at(lambda s: s.felt, state, felt, is_leaf=lambda a: a is None)


def forces_read(
    system: System,
    sensors: Sequence[int],
    e: Float[Array, "bodies 4"],
    forces: Float[Array, "points 3"],
    pairs: Int[Array, " slots"],
) -> Float[Array, "sensors 3"]:
    """What some sensors read of the contacts of a step from the orientations `e`.

    **Arguments:** `forces`: of all places, on the body of the first surface, world axes [N]; `pairs`: those in slots.
    """
    of, R = system.contacts, rotation.matrix(e)
    place, read = of.places(pairs), []
    for sensor in (system.sensors[i] for i in sensors):
        signs = jnp.asarray(of.signs(sensor.surfaces, sensor.against), forces.dtype)
        force = jnp.sum(signs[place][:, None] * forces, axis=0)
        turned = sensor.in_body and sensor.target >= 0
        read.append(matvec(jnp.swapaxes(R[sensor.target], 0, 1), force) if turned else force)
    return jnp.stack(read)
