"""Where surfaces touched in a motion, and with what forces."""

import jax
import jax.numpy as jnp
import numpy as np

from .._compiled import compiled
from .._contact_points import ContactPoints
from .._typing import Array, Float, Int
from ..constraints import contact_slots
from ..constraints.placed_surfaces import places, surfaces
from ..system import Params, System
from .rollout import Trajectory, filled_up


def contact_points(system: System, params: Params, trajectory: Trajectory) -> ContactPoints:
    """Where the surfaces of a simulated motion touch, and with what forces, in every step.

    The forces are `Trajectory.contact_forces`: means over a step, impacts with restitution among them, without the
    torques of spinning and rolling friction. Nothing follows after a failed step.

    **Arguments:** what `rollout` got and what it returned; one trajectory, not a batch.

    **Raises:** `ValueError` for a batch, for a mechanism in which nothing touches (a scene without `contacts`), and
    where the first step failed.
    """
    if not system.contacts.pairs:
        raise ValueError("no surfaces of this mechanism touch: its scene names no pairs of surfaces in `contacts`")
    if np.ndim(trajectory.time) != 1:
        raise ValueError(
            f"`contact_points` takes one trajectory, got a batch of shape {np.shape(trajectory.time)[:-1]}: "
            "take one of it with `jax.tree.map(lambda a: a[0], ...)`"
        )
    failed, count = int(trajectory.failed_step), trajectory.contact_forces.shape[0]
    count = failed if failed >= 0 else count
    if not count:
        raise ValueError("the first step of this trajectory failed: there is nothing to show")
    found = trajectory.r, trajectory.e, trajectory.contact_forces, trajectory.contact_pairs
    r, e, force, pairs = (np.asarray(a)[:count] for a in found)
    placed = _places(system, params, filled_up(r), filled_up(e), filled_up(pairs))
    point, normal, gap = (np.asarray(a)[:count] for a in placed)
    return assembled(system, np.asarray(trajectory.time)[:count], point, normal, gap, force, pairs)


def assembled(
    system: System,
    time: np.ndarray,
    point: np.ndarray,
    normal: np.ndarray,
    gap: np.ndarray,
    force: np.ndarray,
    pairs: np.ndarray,
) -> ContactPoints:
    """The contacts from arrays; `pairs`: those in slots, (steps, slots)."""
    names = [surface.name for surface in system.contacts.surfaces]
    ends = tuple((names[a], names[b]) for a, b in system.contacts.ends)
    return ContactPoints(time, point, normal, gap, force, np.asarray(system.contacts.places(pairs)), ends)


def places_at(
    system: System,
    params: Params,
    r: Float[Array, "bodies 3"],
    e: Float[Array, "bodies 4"],
    pairs: Int[Array, " slots"],
) -> tuple[Float[Array, "points 3"], Float[Array, "points 3"], Float[Array, " points"]]:
    """Point, normal and gap of all places in a pose; `pairs`: those in slots."""
    of, chosen = system.contacts, contact_slots.every(system)
    if of.slots:
        number = jnp.maximum(pairs, 0)
        chosen = contact_slots.Chosen(of.slots, number, jnp.asarray(of.ends)[number], pairs >= 0)
    found = places(system, surfaces(system, params, r, e), chosen)
    return found.point, found.normal, jnp.where(found.live, found.gap, jnp.inf)


@compiled
def _places(system: System, params: Params, r: Array, e: Array, pairs: Array) -> tuple[Array, Array, Array]:
    return jax.vmap(lambda *pose: places_at(system, params, *pose))(r, e, pairs)
