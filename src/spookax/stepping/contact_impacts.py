"""Impacts of contacts with restitution: rounds of Newton's law over the contacts that approach each other.

A contact that touches and approaches faster than weight alone makes it in two steps is hit. In every round those that
are hit at the time get impulses with n.v+ >= -restitution n.v-, friction on, joints held, everything else without
weight: a shock runs through a row of bodies, which all contacts at once would share out. A last round without
restitution stops what still approaches. Every round is the convex problem of `constraints.contacts`.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from .._results import MLCP_RESULTS
from .._typing import Array, Bool, Float
from ..constraints import Prepared, Rows, contacts
from ..constraints.prepared import mass_matrix
from ..system import System
from . import saddle

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
) -> tuple[Float[Array, "bodies 6"], Bool[Array, " points"], MLCP_RESULTS]:
    """The velocities after the impacts, which contacts were hit, and how that ended.

    **Arguments:** `still`: the rows of a step from this pose at rest; `solve`: velocities that solve rows.
    """
    touch, slow = still.contacts, _slow(prepared)
    assert touch is not None
    near = touch.live & (touch.gap <= _TOUCHING) & bounce
    elastic, stiffer = touch.restitution > 0, _STIFFER[v.dtype.itemsize]
    loose = eqx.tree_at(
        lambda r: (r.D, r.kappa, r.p, r.a, r.box.force, r.box.bearing),
        still,
        (
            mass_matrix(prepared.params, prepared.J),
            prepared.params.armature,
            jnp.zeros_like(v),
            jnp.zeros_like(still.a),
            jnp.zeros_like(still.box.force),
            jnp.zeros_like(still.box.bearing),
        ),
    )

    def hits(v: Array, last: Array) -> Array:
        approach = contacts.rates(system, touch, v)[:, 0]
        return near & jnp.where(last, approach < 0, elastic & (approach < -slow))

    def once(carry, last):
        v, hit, result = carry
        now = hits(v, last)

        def strike(v: Array) -> tuple[Array, MLCP_RESULTS]:
            toward = contacts.rates(system, touch, v)[:, 0]
            struck = contacts.from_velocity(system, touch, v)
            c = jnp.where(last, 0.0, touch.restitution * toward)
            struck = eqx.tree_at(lambda x: (x.c, x.sigma, x.live), struck, (c, stiffer * touch.sigma, now))
            free = eqx.tree_at(lambda r: r.contacts, loose, struck)
            bare = eqx.tree_at(lambda r: r.contacts, loose, None)
            p = -saddle.balance(system, bare, v, jnp.zeros_like(still.a), jnp.zeros_like(still.box.force))
            a = -saddle.gaps(system, bare, v)
            return solve(eqx.tree_at(lambda r: (r.p, r.a), free, (p, a)))

        any_hit = jnp.any(now) & ~(last & ~jnp.any(hit))  # the last only closes what others have begun
        v, ended = jax.lax.cond(any_hit, strike, lambda v: (v, MLCP_RESULTS.successful), v)
        result = MLCP_RESULTS.where(result == MLCP_RESULTS.successful, ended, result)
        return (v, hit | (now & any_hit), result), None

    last = jnp.arange(_ROUNDS + 1) == _ROUNDS
    (v, hit, solved), _ = jax.lax.scan(once, (v, jnp.zeros_like(near), solved), last)
    return v, hit, solved


def after(
    system: System, prepared: Prepared, rows: Rows, v: Float[Array, "bodies 6"], hit: Bool[Array, " points"]
) -> Rows:
    """The rows of the step after impacts that left `v`. Contacts that were hit part no slower than they do, those that
    will be are not slowed down before, and an overlap of what bounces is led back no faster than it parts by itself."""
    touch = rows.contacts
    assert touch is not None
    rate = contacts.rates(system, touch, v)[:, 0]
    slow, elastic = _slow(prepared), touch.restitution > 0
    soon = (touch.gap > _TOUCHING) & elastic & (rate < -slow)
    led = jnp.maximum(touch.c, -jnp.maximum(rate, slow))
    c = jnp.where(hit, -jnp.maximum(rate, 0.0), jnp.where(elastic & (touch.gap <= 0), led, touch.c))
    return eqx.tree_at(lambda r: (r.contacts.c, r.contacts.live), rows, (c, touch.live & ~soon))
