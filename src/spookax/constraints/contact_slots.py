"""Contacts of many pairs: those that are near each other at the time, in a fixed number of slots.

Near is what may meet in a step: with the velocities before it, what weight adds, and a part of the size of the smaller
surface for what impacts and motors add. What is missed all the same is found in the next step, as an overlap. Which
pairs are in slots is a choice without derivative: what is left out would not push. Where more are near than slots can
hold, `Slots.overflow` says so.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import AnyArray, Array, Bool, Float
from ..collision import KINDS, Posed, broad
from ..math import dense, rotation
from ..math.blocks import gathered, joined, take
from ..system import Params, System
from .contact_jacobian import Order, Slots, about, to_points, twists

_PART = 0.05  # of the least half length or radius of both surfaces, by which they may be apart


class Chosen(NamedTuple):
    """The pairs that are looked at, those of one kind together: arrays of numbers that are known when the program is
    built, or found while it runs."""

    counts: tuple[int, ...]  # of every kind
    pair: AnyArray  # as in `System.contacts.pairs`, any in an empty slot (slots,)
    surfaces: AnyArray  # (slots, 2)
    filled: Bool[Array, " slots"] | None = None  # none: all are
    overflow: Bool[Array, ""] | None = None


def every(system: System) -> Chosen:
    """All pairs."""
    of = system.contacts
    return Chosen(tuple(group.pairs for group in of.groups), np.arange(len(of.pairs)), of.ends)


def choose(
    system: System, params: Params, posed: Posed, r: Float[Array, "bodies 3"], v: Float[Array, "bodies 6"]
) -> Chosen:
    """The pairs that are near each other; all of a kind that has a slot for each."""
    of = system.contacts
    types = tuple(surface.type for surface in of.surfaces)
    touched = np.array([surface.margin for surface in of.surfaces], r.dtype)
    posed, r, v = jax.lax.stop_gradient((posed, r, v))
    ahead, small = _ahead(system, params, posed, r, v), _smallest(posed)
    numbers, filled, overflow = [], [], jnp.array(False)
    for group in of.groups:
        pairs = np.arange(group.begin, group.begin + group.pairs)
        if group.looked_at == group.pairs:
            numbers.append(jnp.asarray(pairs))
            filled.append(jnp.ones(group.pairs, dtype=bool))
            continue
        first, second = of.ends[pairs].T
        apart = KINDS[group.kind].apart(types, posed, first, second)
        margin = gathered(ahead, first) + gathered(ahead, second)
        margin = margin + np.sum(touched[of.ends[pairs]], axis=1)
        margin = margin + _PART * jnp.minimum(gathered(small, first), gathered(small, second))
        number, here, too_many = broad.slots(apart < margin, group.looked_at)
        numbers.append(number + group.begin)
        filled.append(here)
        overflow = overflow | too_many
    pair = joined(numbers)
    return Chosen(of.slots, pair, gathered(jnp.asarray(of.ends), pair), joined(filled), overflow)


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


def of_surfaces(numbers: Sequence[int], chosen: Chosen) -> tuple[AnyArray, AnyArray]:
    """A number of the first and of the second surfaces of the pairs, known when the program is built where they are."""
    if isinstance(chosen.surfaces, np.ndarray):
        first, second = np.array(numbers)[chosen.surfaces].T
    else:
        first, second = gathered(jnp.asarray(numbers), chosen.surfaces).T
    return first, second


def bodies_of(system: System, chosen: Chosen) -> tuple[AnyArray, AnyArray]:
    """Bodies of the surfaces of the pairs; that of the world is the number of all bodies."""
    return of_surfaces([surface.body % (system.num_bodies + 1) for surface in system.contacts.surfaces], chosen)


def one_of(system: System, first: AnyArray, second: AnyArray) -> AnyArray:
    """The first body of every pair, or the second where the first is the world."""
    either = np.where if isinstance(first, np.ndarray) else jnp.where
    return either(first < system.num_bodies, first, second)


def jacobian(
    system: System,
    chosen: Chosen,
    point: Float[Array, "points 3"],
    axes: Float[Array, "points rows axes"],
    r: Float[Array, "bodies 3"],
    e: Float[Array, "bodies 4"],
) -> Slots:
    """What bodies do at the places of the pairs in slots."""
    assert chosen.filled is not None
    assert chosen.overflow is not None
    A, B = map(jnp.asarray, bodies_of(system, chosen))
    r = jnp.concatenate([r, jnp.zeros_like(r[:1])])
    R = jnp.concatenate([rotation.matrix(e), jnp.eye(3, dtype=r.dtype)[None]])
    r_A, r_B = gathered(r, A), gathered(r, B)
    centre = gathered(r, one_of(system, A, B))
    X = jnp.concatenate(about(axes, point - to_points(system, centre)), axis=-1)
    to_first, to_second = twists(centre, r_A, gathered(R, A)), -twists(centre, r_B, gathered(R, B))
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
    before = (y < x) | ((y == x) & (numbers < numbers[:, None])[None])
    places = jnp.sum(before, axis=2)  # no sort, which not every program has
    both = filled & (jnp.maximum(A, B) < count)
    a, b = (jnp.where(both, bodies, 0) for bodies in (A, B))
    width = jnp.max(jnp.abs(places[:, a] - places[:, b]), axis=1)
    place = places[jnp.argmin(width)]
    return Order(jnp.zeros_like(place).at[place].set(numbers), place, jnp.min(width))
