"""Resistance of the air, or of another fluid at rest, to the motion of a body: linear and quadratic in its speed.

On the centre of mass acts F(v) = -c v - C |v| v (world axes), about it the torque -k w - K |w| w (body axes). Both are
the same in every direction. Over a step they are made linear about the velocity before it, with the weights of damping
on a joint's axis:

    -h F(v) - late h F'(v) (v+ - v),     F'(v) = c + C (|v| + v v^T / |v|)

Second order in h; with late = 1/2 and one direction the quadratic part is -h C |v| v+, as in free decay.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float
from ..math.blocks import sums, take
from ..math.product import matvec
from ..system import System
from .prepared import Prepared, late


class Resistance(NamedTuple):
    """Of a step: the impulse brake - block v+ on every body; the force on it now. [kg, kg m^2; N s, N m s; N, N m]"""

    block: Float[Array, "bodies 6 6"]
    brake: Float[Array, "bodies 6"]
    force: Float[Array, "bodies 6"]


def resistance(system: System, prepared: Prepared, v: Float[Array, "bodies 6"]) -> Resistance:
    """What air does to the bodies of `System.air` that move with `v` (world, body axes); zero for the others."""
    h = prepared.params.step
    both = take(v, system.air).reshape(-1, 3)  # velocity and angular velocity of each in turn
    linear, quadratic = (x.reshape(-1, 1) for x in jnp.moveaxis(prepared.params.air.reshape(-1, 2), 1, 0))
    square = jnp.sum(both * both, axis=1, keepdims=True)
    moves = square > 0
    speed = jnp.where(moves, jnp.sqrt(jnp.where(moves, square, 1.0)), 0.0)
    along = both / jnp.where(moves, speed, 1.0)
    eye = jnp.asarray(np.eye(3), dtype=v.dtype)[None]
    slope = (linear + quadratic * speed)[..., None] * eye
    slope = slope + quadratic[..., None] * both[:, :, None] * along[:, None, :]
    weight = late(h * (linear + 2 * quadratic * speed) / prepared.air_mass.reshape(-1, 1))
    force = -(linear + quadratic * speed) * both
    block = h * weight[..., None] * slope
    brake = matvec(block, both) + h * force

    place = [[system.air.index(body)] if body in system.air else [] for body in range(system.num_bodies)]
    halves = block.reshape(-1, 2, 3, 3)
    zero = jnp.zeros_like(halves[:, 0])
    six = jnp.concatenate(
        [jnp.concatenate([halves[:, 0], zero], axis=2), jnp.concatenate([zero, halves[:, 1]], axis=2)], axis=1
    )
    return Resistance(*(sums(x, place) for x in (six, brake.reshape(-1, 6), force.reshape(-1, 6))))
