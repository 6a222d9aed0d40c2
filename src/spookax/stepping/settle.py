"""Levels that follow other impulses, and these impulses, found together: Newton's method around a solver of the rows
at given levels."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._results import MLCP_RESULTS
from .._typing import Array, Bool, Float, Int
from ..constraints import Rows, bounded
from ..math.block_sparse import Factor
from ..system import BoxKind, System
from . import contact, discs, following, saddle
from .pivoting import on_set

_PASSES = 60
_LOCKING = 4.0  # by which an impulse that is followed grows from one pass to the next where there is no solution
_TOLERANCE = 1e-12  # relative change of the levels; what the derivative assumes to be none
_ROUNDINGS = 16  # in the rate of a row whose impulse is followed


class Solved(NamedTuple):
    """A solution, and what its derivative can use again: of the condensed problem, or of the active set."""

    v: Float[Array, "bodies 6"]
    lam: Float[Array, "nodes rows"]
    x: Float[Array, " boxes"]
    result: MLCP_RESULTS
    pivots: Int[Array, ""]
    free: Bool[Array, " boxes"]
    condensed: tuple[Factor, Array, Array, tuple[Array, Array]] | None = None  # factor, b, N, (X F, X_lam F)
    on_set: Factor | None = None  # of the active set, where no level follows anything


def settle(system: System, rows: Rows, attempt: Callable[[Array, Array], Solved], guess: Array) -> Solved:
    """The solution whose levels fit the impulses that they follow, begun without these.

    **Arguments:** `attempt`: the solution for given forces per x, from a guess of x.
    """
    found = attempt(rows.box.force, guess)
    if not system.following:
        return found

    which = np.array([f.box for f in system.following])

    def go_on(carry):
        _, _, change, k = carry
        return (change > _TOLERANCE) & (k < _PASSES)

    def body(carry):
        found, force, _, k = carry
        now = following.forces(system, rows, found.lam, found.x)
        change = jnp.abs(now - force)
        if following.follows_bounded(system):
            change = jnp.maximum(change - _rounding(system, rows, found.v), 0.0)
        change = jnp.max(change[which]) / jnp.maximum(jnp.max(now[which]), jnp.finfo(now.dtype).tiny)
        force = _levels_ahead(system, rows, force, now, found)
        again = attempt(force, found.x)
        return again._replace(pivots=found.pivots + again.pivots), force, change, k + 1

    start = found, rows.box.force, jnp.full((), jnp.inf, rows.p.dtype), jnp.zeros((), dtype=int)
    found, _, change, _ = jax.lax.while_loop(go_on, body, start)
    unsettled = (found.result == MLCP_RESULTS.successful) & ~(change <= _TOLERANCE)
    return found._replace(result=MLCP_RESULTS.where(unsettled, MLCP_RESULTS.level_limit, found.result))


def _rounding(system: System, rows: Rows, v: Float[Array, "bodies 6"]) -> Float[Array, " boxes"]:
    """What rounding may change of the levels that follow the user's rows with bounds: the impulse of one of these is
    the small rest of its rate over its slack."""
    own, box, eps = system.boxes_of(BoxKind.own), rows.box, jnp.finfo(v.dtype).eps
    terms = jnp.abs(box.offset).at[own].add(bounded.rates(system, jnp.abs(rows.b_own_ahead), jnp.abs(v)))
    none = jnp.zeros((len(system.node_rows), system.width), dtype=v.dtype)
    rest = following.followed(system, none, box.force, _ROUNDINGS * eps * terms / box.slack)
    return following.raised(system, jnp.zeros_like(box.force), box.growth * jnp.sum(rest, axis=-1))


def _levels_ahead(
    system: System, rows: Rows, force: Float[Array, " boxes"], now: Float[Array, " boxes"], found: Solved
) -> Array:
    """Levels at which rows and what they follow would agree if no row changed its side and no force its direction, so
    that F x = F_0 x_0 + F_0 (x - x_0) + x_0 (F - F_0).

    Where what is followed would have to turn round there are none: the row locks, and its level is raised until it
    does.

    **Arguments:** `force`: F_0 of `found`; `now`: what these levels should be by the impulses of `found`.
    """
    lam, x, box = found.lam, found.x, rows.box
    at_level = following.fixed(rows, force)
    free, slope = (x > box.lower) & (x < box.upper), None
    if system.discs:
        _, free, slope = discs.near(system, at_level, force, found.v)
    known = on_set(system, contact.linear(system, at_level, found.v), free, x, slope)
    lu = saddle.factor_near(
        system, known, following.slopes(system, rows, lam, x), contact.touching(system, rows, found.v)
    )
    more = saddle.push(system, rows, saddle.spread(system, x * (now - force)))
    dv, dlam = (part[..., 0] for part in saddle.solve(system, lu, more[..., None], jnp.zeros_like(rows.a)[..., None]))
    dx = x
    if following.follows_bounded(system):
        dx = jnp.where(free, (box.offset - saddle.box_rates(system, rows, dv)) / box.slack, 0.0)
    size, direction = following.sizes(following.followed(system, lam, force, x))
    along = size + jnp.sum(direction * following.followed(system, dlam, force, dx), axis=-1)
    return following.raised(system, box.force, box.growth * jnp.where(along >= 0, along, _LOCKING * size))
