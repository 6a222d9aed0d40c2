"""Contact points and forces along the trajectory of a recording."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from ..._compiled import compiled
from ..._contact_points import ContactPoints
from ..._typing import AnyArray, Array
from ...constraints.assemble import velocity
from ...estimation.batch import step_blocks
from ...estimation.batch.step_blocks import joined, split, split_path
from ...estimation.linearise import Path, after, before
from ...models import Multibody
from ...protocol import Noise
from ...stepping import contact
from ...stepping.contact_points import assembled, places_at
from ...stepping.spook import step_rows


@compiled
def _forces(model: Multibody, z: Array, noise: Noise, path: Path, u: Array) -> tuple[Array, ...]:
    p, system = model.prepare(z), model.system
    h = p.engine.params.step

    def one(x, x1, w: Array, u: Array) -> tuple[Array, ...]:
        state, command = model.commanded(x, p, u)
        v1 = velocity(model.engine_state(x1, p.com))
        rows, _, given, _ = step_rows(system, p.engine, state, command, model.impulse(state, p, w, noise))
        rows = contact.seen_from(system, rows, v1, h)
        slots = contact.slots(rows)
        pairs = jnp.zeros(0, dtype=int) if slots is None else slots.pair
        placed = places_at(system, p.engine.params, state.r, state.e, pairs)
        return *placed, (contact.world_impulses(system, rows, v1) + given) / h, pairs

    return jax.vmap(one)(before(path.x), after(path.x), jnp.asarray(path.w), u)


def touching(
    model: Multibody, z: np.ndarray, noise: Noise, path: Path, u: AnyArray, time: np.ndarray
) -> ContactPoints | None:
    """Contacts of the first steps of a trajectory, which begin at `time`; None where no surfaces are named.

    The forces are those that belong to the velocities after every step, and what impacts with restitution change before
    it.
    """
    if not model.system.contacts.pairs:
        return None
    one = functools.partial(_forces, model, z, noise)
    found = joined(step_blocks.mapped(one, split_path(path), split(u)))
    return assembled(model.system, time, *(np.asarray(a)[: len(time)] for a in found))
