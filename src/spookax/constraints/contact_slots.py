"""Contacts of many pairs: those that are near each other at the time, in a fixed number of slots.

Near is what may meet in a step: with the velocities before it, what weight adds, and a part of the size of the smaller
surface for what impacts and motors add. What is missed all the same is found in the next step, as an overlap. Which
pairs are in slots is a choice without derivative: what is left out would not push. Where more are near than slots can
hold, `Slots.overflow` says so.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Bool, Float, Int
from ..collision import Posed, Touch, broad, touches
from ..math import dense, rotation
from ..math.blocks import gathered, joined, take
from ..system import Params, System
from .contact_jacobian import Order, Slots, to_points, twists

_PART = 0.05  # of the least half length or radius of both surfaces, by which they may be apart


class Chosen(NamedTuple):
    """The pairs in slots, those of one kind together."""

    pair: Int[Array, " slots"]  # as in `System.contacts.pairs`, any in an empty slot
    filled: Bool[Array, " slots"]
    surfaces: Int[Array, "slots 2"]
    overflow: Bool[Array, ""]


def choose(
    system: System, params: Params, posed: Posed, r: Float[Array, "bodies 3"], v: Float[Array, "bodies 6"]
) -> Chosen:
    """The pairs that are near each other; all of a kind that has a slot for each."""
    of = system.contacts
    types = tuple(surface.type for surface in of.surfaces)
    posed, r, v = jax.lax.stop_gradient((posed, r, v))
    ahead, small = _ahead(system, params, posed, r, v), _smallest(posed)
    numbers, filled, overflow = [], [], jnp.array(False)
    for kind, count in zip(of.kinds, of.slots, strict=True):
        pairs = of.pairs_of_kind(kind)
        if count == len(pairs):
            numbers.append(jnp.asarray(pairs))
            filled.append(jnp.ones(count, dtype=bool))
            continue
        first, second = of.ends[pairs].T
        between = (broad.above if kind[1] == "plane" else broad.apart)(types, posed, first, second)
        margin = gathered(ahead, first) + gathered(ahead, second)
        margin = margin + _PART * jnp.minimum(gathered(small, first), gathered(small, second))
        number, here, too_many = broad.slots(between < margin, count)
        numbers.append(number + pairs[0])  # pairs of one kind follow each other
        filled.append(here)
        overflow = overflow | too_many
    pair = joined(numbers)
    return Chosen(pair, joined(filled), gathered(jnp.asarray(of.ends), pair), overflow)


def _ahead(system: System, params: Params, posed: Posed, r: Array, v: Array) -> Float[Array, " surfaces"]:
    """How far every surface may move in a step, about: with its velocity, and with what its weight adds. [m]"""
    bodies = [surface.body % (system.num_bodies + 1) for surface in system.contacts.surfaces]
    v, r = (take(jnp.concatenate([a, jnp.zeros_like(a[:1])]), bodies) for a in (v, r))
    lever = _norm(posed.r - r) + _norm(posed.size)
    fall = params.step * _norm(params.gravity)
    return params.step * (_norm(v[:, :3]) + _norm(v[:, 3:]) * lever + fall)


def _norm(x: Float[Array, "... 3"]) -> Float[Array, "..."]:
    return jnp.sqrt(jnp.sum(x * x, axis=-1))


def _smallest(posed: Posed) -> Float[Array, " surfaces"]:
    """The least half length or radius; infinite of planes. [m]"""
    return jnp.min(jnp.where(posed.size > 0, posed.size, jnp.inf), axis=-1)


def touch(system: System, posed: Posed, chosen: Chosen) -> Touch:
    """The places of the pairs in slots."""
    of, parts, begin = system.contacts, [], 0
    for kind, count in zip(of.kinds, of.slots, strict=True):
        first, second = chosen.surfaces[begin : begin + count].T
        parts.append(touches(kind, posed, first, second))
        begin += count
    found = jax.tree.map(lambda *a: joined(a), *parts)
    return found._replace(live=found.live & to_points(system, chosen.filled))


def jacobian(
    system: System,
    chosen: Chosen,
    point: Float[Array, "points 3"],
    frame: Float[Array, "points 3 3"],
    r: Float[Array, "bodies 3"],
    e: Float[Array, "bodies 4"],
) -> Slots:
    """What bodies do at the places of the pairs in slots."""
    bodies = np.array([surface.body % (system.num_bodies + 1) for surface in system.contacts.surfaces])
    A, B = gathered(jnp.asarray(bodies), chosen.surfaces).T
    r = jnp.concatenate([r, jnp.zeros_like(r[:1])])
    R = jnp.concatenate([rotation.matrix(e), jnp.eye(3, dtype=r.dtype)[None]])
    r_A, r_B = gathered(r, A), gathered(r, B)
    about = jnp.where((system.num_bodies > A)[:, None], r_A, r_B)
    arm = point - to_points(system, about)
    X = jnp.concatenate([frame, rotation.cross(arm[:, None, :], frame)], axis=-1)
    to_first, to_second = twists(about, r_A, gathered(R, A)), -twists(about, r_B, gathered(R, B))
    pair = jnp.where(chosen.filled, chosen.pair, -1)
    ordered = not system.node_rows and bool(dense.windows(6 * system.num_bodies))
    order = _order(jax.lax.stop_gradient(r[:-1]), chosen.filled, A, B) if ordered else None
    return Slots(pair, A, B, chosen.overflow, to_first, to_second, X, order)


def _order(r: Float[Array, "bodies 3"], filled: Bool[Array, " slots"], A: Array, B: Array) -> Order:
    """The bodies as they are numbered or along an axis of the world, whatever leaves those of a slot nearest."""
    count = r.shape[0]
    numbers = np.arange(count)
    along = jnp.concatenate([jnp.asarray(numbers[None], r.dtype), r.T])
    x, y = along[:, :, None], along[:, None, :]
    before = (y < x) | ((y == x) & (numbers < numbers[:, None]))
    places = jnp.sum(before, axis=2)  # no sort, which not every program has
    both = filled & (jnp.maximum(A, B) < count)
    a, b = (jnp.where(both, bodies, 0) for bodies in (A, B))
    width = jnp.max(jnp.abs(places[:, a] - places[:, b]), axis=1)
    place = places[jnp.argmin(width)]
    return Order(jnp.zeros_like(place).at[place].set(numbers), place, jnp.min(width))
