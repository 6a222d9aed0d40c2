"""Velocities at the places of contacts from those of the bodies, and back: J v, J^T lam, J^T S J.

`Sides`: of pairs that are known when the program is built, one Jacobian for every (place, body). `Slots`: of pairs
that are found while it runs, with the numbers of their bodies as data. There the places of a pair see the motion of its
first body against the second as one twist about the centre of mass of one of them, in world axes: what a pair adds to
the matrix is one 6 x 6 block, a sum over its places, moved to both bodies.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import lax

from .._typing import Array, Bool, Float, Int
from ..math import rotation
from ..math.blocks import gathered, joined, sums, take
from ..math.product import matmul, matvec
from ..system import System


class Sides(eqx.Module):
    """Jacobians of every (place, body) of `System.contacts.sides`: rows n, t1, t2 of the place, then turning."""

    J: Float[Array, "sides rows 6"]

    def rates(self, system: System, v: Float[Array, "bodies 6"]) -> Float[Array, "points rows"]:
        """J v."""
        of = system.contacts
        return sums(matvec(self.J, take(v, [body for _, body in of.sides])), of.sides_of_points())

    def pushes(self, system: System, lam: Float[Array, "points rows"]) -> Float[Array, "bodies 6"]:
        """J^T lam."""
        of = system.contacts
        each = matvec(jnp.swapaxes(self.J, 1, 2), take(lam, [point for point, _ in of.sides]))
        return sums(each, of.sides_of_bodies(system.num_bodies))


class Order(eqx.Module):
    """An order of the bodies in which those that touch are not far from each other."""

    bodies: Int[Array, " bodies"]  # in this order
    place: Int[Array, " bodies"]  # of every body
    width: Int[Array, ""]  # how far bodies of one slot are apart in it


class Slots(eqx.Module):
    """Of the pairs in slots. A body's number is that of all bodies together for the world."""

    pair: Int[Array, " slots"]  # as in `System.contacts.pairs`, -1 in an empty slot
    first: Int[Array, " slots"]
    second: Int[Array, " slots"]
    overflow: Bool[Array, ""]  # more pairs are near each other than slots can hold
    to_first: Float[Array, "slots 6 6"]  # twist of the pair from the velocity of its first body
    to_second: Float[Array, "slots 6 6"]  # and of the second, with its sign
    X: Float[Array, "points rows 6"]  # rates of the places from the twist
    order: Order | None  # of many bodies

    def rates(self, system: System, v: Float[Array, "bodies 6"]) -> Float[Array, "points rows"]:
        """J v."""
        v = jnp.concatenate([v, jnp.zeros_like(v[:1])])
        mine, other = gathered(v, self.first), gathered(v, self.second)
        twist = matvec(self.to_first, mine) + matvec(self.to_second, other)
        return jnp.sum(self.X * to_points(system, twist)[:, None], axis=-1)

    def pushes(self, system: System, lam: Float[Array, "points rows"]) -> Float[Array, "bodies 6"]:
        """J^T lam."""
        wrench = _by_slots(system, jnp.sum(self.X * lam[..., None], axis=1))
        ends = jnp.concatenate([self.to_first, self.to_second])
        each = matvec(jnp.swapaxes(ends, 1, 2), jnp.concatenate([wrench, wrench]))
        none = jnp.zeros((system.num_bodies + 1, 6), dtype=lam.dtype)
        return none.at[jnp.concatenate([self.first, self.second])].add(each, mode="promise_in_bounds")[:-1]

    def added(
        self, system: System, matrix: Float[Array, "n n"], slope: Float[Array, "points rows rows"]
    ) -> Float[Array, "n n"]:
        """A matrix whose first rows are those of the bodies in their order, six each, with J^T slope J added."""
        pulled, parts, begin = matmul(slope, self.X), [], 0
        for group in system.contacts.groups:
            count, places = group.looked_at, group.places
            mine = (
                a[begin : begin + count * places].reshape(count, places * self.X.shape[1], 6) for a in (self.X, pulled)
            )
            X, Y = mine
            parts.append(matmul(jnp.swapaxes(X, 1, 2), Y))
            begin += count * places
        both = jnp.concatenate([self.to_first, self.to_second], axis=2)
        blocks = matmul(jnp.swapaxes(both, 1, 2), matmul(joined(parts), both))
        blocks = blocks.reshape(-1, 2, 6, 2, 6).swapaxes(2, 3).reshape(-1, 6, 6)
        a, b, size = self.first, self.second, 6 * system.num_bodies
        if self.order is not None:
            a, b = (gathered(jnp.append(self.order.place, system.num_bodies), x) for x in (a, b))
        at = jnp.stack([jnp.stack([a, a, b, b], axis=1), jnp.stack([a, b, a, b], axis=1)], axis=-1).reshape(-1, 2)
        windows = lax.ScatterDimensionNumbers((1, 2), (), (0, 1))
        # what acts on the world lands in rows and columns that are cut off
        of_bodies = jnp.pad(matrix[:size, :size], ((0, 6), (0, 6)))
        of_bodies = lax.scatter_add(of_bodies, 6 * at, blocks, windows, mode="promise_in_bounds")
        if matrix.shape[0] == size:
            return of_bodies[:size, :size]
        return lax.dynamic_update_slice(matrix, of_bodies[:size, :size], (0, 0))


def about(
    axes: Float[Array, "points rows axes"], arm: Float[Array, "points 3"]
) -> tuple[Float[Array, "points rows 3"], Float[Array, "points rows 3"]]:
    """Forces and torques of unit impulses in the rows of places, about points at -`arm` from them, in world axes.

    `axes`: of forces alone, or of forces and of torques.
    """
    force = axes[..., :3]
    torque = rotation.cross(arm[:, None, :], force)
    return force, torque if axes.shape[2] == 3 else torque + axes[..., 3:]


def to_points(system: System, of_pairs: Float[Array, "pairs ..."]) -> Float[Array, "points ..."]:
    """What every pair that is looked at has, at each of its places."""
    parts, begin = [], 0
    for group in system.contacts.groups:
        mine = of_pairs[begin : begin + group.looked_at]
        spread = jnp.broadcast_to(mine[:, None], (group.looked_at, group.places, *mine.shape[1:]))
        parts.append(spread.reshape(-1, *mine.shape[1:]))
        begin += group.looked_at
    return joined(parts)


def _by_slots(system: System, of_points: Float[Array, "points 6"]) -> Float[Array, "slots 6"]:
    """Sums over the places of every slot."""
    parts, begin = [], 0
    for group in system.contacts.groups:
        end = begin + group.looked_at * group.places
        parts.append(jnp.sum(of_points[begin:end].reshape(group.looked_at, group.places, 6), axis=1))
        begin = end
    return joined(parts)


def twists(
    about: Float[Array, "slots 3"], r: Float[Array, "slots 3"], R: Float[Array, "slots 3 3"]
) -> Float[Array, "slots 6 6"]:
    """The velocity of a body, whose turning is in its own axes, as a twist about a point in world axes."""
    one, zero = jnp.broadcast_to(jnp.eye(3, dtype=r.dtype), R.shape), jnp.zeros_like(R)
    turned = -matmul(rotation.skew(about - r), R)  # w x (about - r)
    return jnp.concatenate([jnp.concatenate([one, turned], axis=2), jnp.concatenate([zero, R], axis=2)], axis=1)
