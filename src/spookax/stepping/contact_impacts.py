"""Impacts of contacts with restitution: rounds of Newton's law over the contacts that approach each other.

A contact that touches and approaches faster than weight alone makes it in two steps is hit. In every round those that
are hit at the time get impulses with n.v+ >= -restitution n.v-, friction on, joints held, everything else without
weight: a shock runs through a row of bodies, which all contacts at once would share out. A last round without
restitution stops what still approaches. Every round is the convex problem of `constraints.contacts`.

A step finds an impact when the surfaces overlap already. They met tau = gap / (n.v-) before, and since then everything
has moved with v+, not v-: the poses are moved by tau (v+ - v-). Velocities belong to the middle between steps: weight
acts for h/2 - tau before the impact and is taken back after it. So motion follows the time of the impact without jumps
from one step to the next, and so do its derivatives (the saltation matrix; Leine and Nijmeijer (2004), chapter 8).
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from .._results import MLCP_RESULTS
from .._typing import Array, Bool, Float
from ..constraints import Prepared, Rows, contact_rows
from ..constraints.prepared import mass_matrix
from ..math.rare import where_needed
from ..system import System
from . import contact, saddle

_ROUNDS = 8
_STIFFER = {8: 1e-2, 4: 1.0}  # compliance of impacts, relative to that of contacts, by the size of a float
_TOUCHING = 1e-6  # gap of what touches [m]


def _slow(prepared: Prepared) -> Float[Array, ""]:
    """The speed that weight gives in two steps. [m/s]"""
    return 2 * prepared.params.step * jnp.sqrt(jnp.sum(prepared.params.gravity**2))


def rebound(
    system: System,
    prepared: Prepared,
    still: Rows,
    v: Float[Array, "bodies 6"],
    bounce: Bool[Array, ""] | bool,
    solved: MLCP_RESULTS,
    solve: Callable[[Rows], tuple[Array, MLCP_RESULTS]],
) -> tuple[Float[Array, "bodies 6"], Float[Array, "bodies 6"], Float[Array, "points 3"], MLCP_RESULTS]:
    """The velocities after the impacts, by how much these move the poses, their impulses at the places of `still` as in
    `contact.world_impulses`, and how that ended.

    **Arguments:** `still`: the rows of a step from this pose at rest; `solve`: velocities that solve rows.
    """
    touch, slow = still.contacts, _slow(prepared)
    assert touch is not None
    near = touch.live & (touch.gap <= _TOUCHING) & bounce
    elastic, stiffer = touch.restitution > 0, _STIFFER[v.dtype.itemsize]
    loose = eqx.tree_at(
        lambda r: (r.D, r.kappa, r.p, r.a, r.box.force, r.box.growth),
        still,
        (
            mass_matrix(prepared.params, prepared.J),
            prepared.params.armature,
            jnp.zeros_like(v),
            jnp.zeros_like(still.a),
            jnp.zeros_like(still.box.force),
            jnp.zeros_like(still.box.growth),
        ),
    )

    def hits(v: Array, last: Array) -> Array:
        approach = contact_rows.rates(system, touch, v)[:, 0]
        return near & jnp.where(last, approach < 0, elastic & (approach < -slow))

    def since(v: Array, now: Array) -> Array:
        """The time for which the contacts that are hit have overlapped. [s]"""
        toward = jnp.where(now, contact_rows.rates(system, touch, v)[:, 0], -1.0)
        return jnp.max(jnp.where(now, jnp.clip(touch.gap / toward, 0.0, prepared.params.step), 0.0))

    def once(carry, last):
        before, moved, tau, hit, given, result = carry
        now = hits(before, last)

        def strike(v: Array) -> tuple[Array, Array, MLCP_RESULTS]:
            toward = contact_rows.rates(system, touch, v)[:, 0]
            struck = contact_rows.from_velocity(system, touch, v)
            c = jnp.where(last, 0.0, touch.restitution * toward)
            struck = eqx.tree_at(lambda x: (x.c, x.sigma, x.live), struck, (c, stiffer * touch.sigma, now))
            free = eqx.tree_at(lambda r: r.contacts, loose, struck)
            bare = eqx.tree_at(lambda r: r.contacts, loose, None)
            p = -saddle.balance(system, bare, v, jnp.zeros_like(still.a), jnp.zeros_like(still.box.force))
            a = -saddle.gaps(system, bare, v)
            v, result = solve(eqx.tree_at(lambda r: (r.p, r.a), free, (p, a)))
            return v, contact.world_impulses(system, free, v), result

        any_hit = jnp.any(now) & ~(last & ~jnp.any(hit))  # the last only closes what others have begun
        v, by, ended = where_needed(
            any_hit, strike, lambda v: (v, jnp.zeros_like(given), MLCP_RESULTS.successful), before
        )
        result = MLCP_RESULTS.where(result == MLCP_RESULTS.successful, ended, result)
        tau = jnp.maximum(tau, since(before, now & any_hit))  # a shock runs on at the time of the first impact
        return (v, moved + tau * (v - before), tau, hit | (now & any_hit), given + by, result), None

    last = jnp.arange(_ROUNDS + 1) == _ROUNDS
    first = hits(v, jnp.array(False))
    early = jnp.where(jnp.any(first), prepared.params.step / 2 - since(v, first), 0.0)
    weight = jnp.pad(early * prepared.params.gravity, (0, 3))
    nothing = jnp.zeros_like(v), jnp.zeros_like(prepared.params.step), jnp.zeros_like(near), jnp.zeros_like(touch.point)
    (v, moved, _, _, given, solved), _ = jax.lax.scan(once, (v + weight[None], *nothing, solved), last)
    return v - weight[None], moved, given, solved


def after(system: System, prepared: Prepared, rows: Rows, v: Float[Array, "bodies 6"]) -> Rows:
    """The rows of the step after impacts that left `v`. Contacts that will be hit are not slowed down before, and an
    overlap of what bounces is led back no faster than it parts by itself."""
    touch = rows.contacts
    assert touch is not None
    rate = contact_rows.rates(system, touch, v)[:, 0]
    slow, elastic = _slow(prepared), touch.restitution > 0
    soon = (touch.gap > _TOUCHING) & elastic & (rate < -slow)
    led = jnp.maximum(touch.c, -jnp.maximum(rate, slow))
    c = jnp.where(elastic & (touch.gap <= 0), led, touch.c)
    return eqx.tree_at(lambda r: (r.contacts.c, r.contacts.live), rows, (c, touch.live & ~soon))
