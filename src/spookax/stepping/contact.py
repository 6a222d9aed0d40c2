"""The step of a mechanism with contacts or discs: Newton's method for the velocity, with an exact line search.

Contacts and rows with bounds are regularised, so their impulses are functions of the velocity, and the step is the
minimum of a convex function where the matrix is symmetric. Every iteration is one factorisation of the step matrix with
what the contacts and the free rows add to it: a contact with the world changes the block of its body, one of two bodies
is a block between them. The line search makes that converge from any start (Castro, Permenter, Han (2022), section 5).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from .._results import MLCP_RESULTS
from .._typing import Array, Bool, Float, Int
from ..constraints import Rows, contact_rows
from ..constraints.contact_jacobian import Slots
from ..math.blocks import inverses, joined, take
from ..math.product import matmul, matvec
from ..system import System
from . import discs, saddle
from .pivoting import on_set

_ITERATIONS = 80
# By the size of a float, parts of what forces change of the velocity in the step and of a part of itself: what ends the
# search; what needs none where the matrix is dense (piles come to rest up to rounding in rows that just hold, and would
# be factorised in every step to no end); and what is a solution where rounding lets nothing better be found.
_EXACT = {8: 1e-10, 4: 1e-5}
_KEPT = {8: 1e-8, 4: 1e-5}
_ENOUGH = {8: 1e-6, 4: 1e-2}
_PART = 0.1
_HALVED = 0.5
_FLAT = 0.05  # slope at which a line search ends, of that at its start
_SEARCHES = 25
_LONGEST = 2.0  # of a step by Newton's method, times itself: a slope that is rounding would lead any distance away
_ROUNDED = 64  # times the rounding of its terms: a slope along the step that is no steeper says nothing
_MOVED = 1e-5  # by which a changed slip may move a gap in a step before the step is solved again [m]
_SETTLED = {8: 1e-11, 4: 1e-6}  # the same where slip is to settle, by the size of a float


def slips_otherwise(
    system: System, touch: contact_rows.Contacts, v: Float[Array, "bodies 6"], h: Float[Array, ""]
) -> Bool[Array, ""]:
    """Whether the slip at the solution `v` would move the gap of a contact that presses."""
    presses = contact_rows.impulses(touch, contact_rows.rates(system, touch, v))[:, 0] > 0
    moved = _SETTLED[v.dtype.itemsize] if system.contacts.settled else _MOVED
    return jnp.any(presses & (h * jnp.abs(contact_rows.slip(system, touch, v) - touch.shift) > moved))


def seen_from(system: System, rows: Rows, v: Float[Array, "bodies 6"], h: Float[Array, ""]) -> Rows:
    """The rows whose contacts slip as they do at the solution `v`, where that is not what they say already."""
    touch = rows.contacts
    if touch is None or system.contacts.passes == 1:
        return rows
    again, other = contact_rows.from_velocity(system, touch, v), slips_otherwise(system, touch, v, h)
    shift = jnp.where(other, again.shift, touch.shift)
    return eqx.tree_at(lambda r: r.contacts.shift, rows, shift)


class Found(NamedTuple):
    """A solution: velocities, impulses of the joints, x of the rows with bounds and which of them are free."""

    v: Float[Array, "bodies 6"]
    lam: Float[Array, "nodes rows"]
    x: Float[Array, " boxes"]
    free: Bool[Array, " boxes"]
    result: MLCP_RESULTS
    iterations: Int[Array, ""]


def touching(system: System, rows: Rows, v: Float[Array, "bodies 6"]) -> saddle.Touching | None:
    """The contacts in the matrix of the step near `v`; None without contacts."""
    if rows.contacts is None:
        return None
    _, slope = contact_rows.answer(rows.contacts, contact_rows.rates(system, rows.contacts, v))
    return saddle.Touching(rows.contacts.J, slope)


def slots(rows: Rows) -> Slots | None:
    """The pairs of the rows' contacts, where these are in slots."""
    return rows.contacts.J if rows.contacts is not None and isinstance(rows.contacts.J, Slots) else None


def linear(system: System, rows: Rows, v: Float[Array, "bodies 6"]) -> Rows:
    """The rows with their contacts as what they are near `v`: known impulses in p, and `touching` in the matrix."""
    if rows.contacts is None:
        return rows
    rate = contact_rows.rates(system, rows.contacts, v)
    impulse, falls = contact_rows.answer(rows.contacts, rate)
    known = contact_rows.pushes(system, rows.contacts, impulse + matvec(falls, rate))
    return without(rows, rows.p - known)


def world_impulses(system: System, rows: Rows, v: Float[Array, "bodies 6"]) -> Float[Array, "points 3"]:
    """Impulse of every contact on the body of its first surface, in world axes, without torques. [N s]"""
    if rows.contacts is None:
        return jnp.zeros((0, 3), dtype=v.dtype)
    impulse = contact_rows.impulses(rows.contacts, contact_rows.rates(system, rows.contacts, v))
    return matvec(jnp.swapaxes(rows.contacts.frame, 1, 2), impulse[:, :3])


def at_places_of(
    system: System, rows: Rows, others: Rows, values: Float[Array, "points 3"]
) -> Float[Array, "points 3"]:
    """Values at the places of other rows of the same mechanism as such of `rows`, whose slots may hold other pairs."""
    mine, theirs = slots(rows), slots(others)
    if mine is None or theirs is None:
        return values
    parts, begin, first = [], 0, 0
    for group in system.contacts.groups:
        count, end = group.looked_at, begin + group.looked_at * group.places
        here, there = (a.pair[first : first + count] for a in (mine, theirs))
        same = ((here[:, None] == there[None, :]) & (here >= 0)[:, None]).astype(values.dtype)
        parts.append(matmul(same, values[begin:end].reshape(count, -1)).reshape(-1, 3))
        begin, first = end, first + count
    return joined(parts)


def without(rows: Rows, p: Float[Array, "bodies 6"]) -> Rows:
    """The rows with another p and without contacts."""
    return eqx.tree_at(lambda r: (r.p, r.contacts), rows, (p, None), is_leaf=lambda a: a is None)


class _Iterate(NamedTuple):
    """What holds at an iterate: rates, impulses and what they fall by at the places of contacts, what rows with bounds
    answer, and what is wrong in the balance and in the joints."""

    v: Float[Array, "bodies 6"]
    lam: Float[Array, "nodes rows"]
    rate: Float[Array, "points rows"]
    impulse: Float[Array, "points rows"]
    falls: Float[Array, "points rows rows"]
    bounded: discs.Bounded
    r: Float[Array, "bodies 6"]
    gap: Float[Array, "nodes rows"]
    worst: Float[Array, ""]  # of both, see `_EXACT`


def newton(system: System, rows: Rows) -> Found:
    """The step from `rows.contacts.start`, or from the motion without joints. Levels are those of `Box.force`, none
    follows."""
    touch, box, untouched = rows.contacts, rows.box, without(rows, rows.p)
    bare = without(rows, jnp.zeros_like(rows.p))
    mass, inverse = rows.D[:, 0, 0], inverses(rows.D)
    exact, kept, enough = (of[rows.p.dtype.itemsize] for of in (_EXACT, _KEPT, _ENOUGH))
    kept = kept if system.contacts.slots else exact
    freely = -matvec(inverse, rows.p)
    begin_at = freely if touch is None else touch.start
    changed = _speed(begin_at - freely, rows.D, mass)
    unit = jnp.maximum(changed + _PART * _speed(begin_at, rows.D, mass), jnp.finfo(changed.dtype).tiny)
    none = jnp.zeros((0, 3), dtype=unit.dtype)

    def contact_rates(v: Array) -> Array:
        return none if touch is None else contact_rows.rates(system, touch, v)

    def answer(rate: Array) -> tuple[Array, Array]:
        return (none, jnp.zeros((0, 3, 3), dtype=unit.dtype)) if touch is None else contact_rows.answer(touch, rate)

    def at(v: Array, lam: Array) -> _Iterate:
        rate, at_bounds = contact_rates(v), discs.near(system, rows, box.force, v)
        impulse, falls = answer(rate)
        r = saddle.balance(system, untouched, v, lam, at_bounds.x)
        r = r if touch is None else r - contact_rows.pushes(system, touch, impulse)
        gap = saddle.gaps(system, rows, v) + rows.sigma * lam
        worst = jnp.sqrt(jnp.max(jnp.abs(jnp.sum(r * matvec(inverse, r), axis=-1)) / mass))
        worst = jnp.maximum(worst, jnp.max(jnp.abs(gap), initial=0.0)) / unit
        return _Iterate(v, lam, rate, impulse, falls, at_bounds, r, gap, worst)

    def go_on(carry):
        now, before, k = carry
        stuck = (now.worst <= enough) & (now.worst > _HALVED * before)
        found = now.worst <= jnp.where(k == 0, kept, exact)
        return ~found & ~stuck & (k < _ITERATIONS) & jnp.isfinite(now.worst)

    def body(carry):
        now, _, k = carry
        v, rate, r, (x, free, slope) = now.v, now.rate, now.r, now.bounded
        near = None if touch is None else saddle.Touching(touch.J, now.falls)
        lu = saddle.factor_near(system, on_set(system, rows, free, x, slope), None, near)
        dv, dlam = (part[..., 0] for part in saddle.solve(system, lu, -r[..., None], -now.gap[..., None]))

        drate = contact_rates(dv)
        box_rate, dbox = saddle.box_rates(system, rows, v), saddle.box_rates(system, rows, dv) - box.offset
        along = take(saddle.line_rates(system, rows, dv), system.box_lines) if system.boxes else dbox
        start = jnp.sum(dv * r)
        steady = start + jnp.sum(now.impulse * drate) + jnp.sum(box.force * x * along)
        grows = jnp.sum(dv * saddle.balance(system, bare, dv, dlam, jnp.zeros_like(x)))

        def climbing(a: Array) -> tuple[Array, Array]:
            """Slope of the function along the step, and its slope."""
            lam_a, falls_a = answer(rate + a * drate)
            held, inside, slope = discs.at_bounds(system, rows, box.force, -(box_rate + a * dbox) / box.slack)
            first = steady + a * grows - jnp.sum(lam_a * drate) - jnp.sum(box.force * held * along)
            turned = discs.along(system, slope, dbox / box.slack)
            bends = inside | discs.of_discs(system)
            stiff = jnp.where(bends, box.force * turned * along, 0.0)
            return first, grows + jnp.sum(drate * matvec(falls_a, drate)) + jnp.sum(stiff)

        def unsettled(search):
            _, _, _, found, tried = search
            return ~found & (tried < _SEARCHES)

        def nearer(search):
            a, low, high, _, tried = search
            first, second = climbing(a)
            found = ~(jnp.abs(first) > _FLAT * jnp.abs(start)) | ((a >= _LONGEST) & (first < 0))
            low, high = jnp.where(first < 0, a, low), jnp.where(first < 0, high, a)
            new = a - first / second
            middle = jnp.where(jnp.isfinite(high), (low + high) / 2, 2 * a)
            new = jnp.minimum(jnp.where((new > low) & (new < high), new, middle), _LONGEST)
            return jnp.where(found, a, new), low, high, found, tried + 1

        one, zero = jnp.ones_like(unit), jnp.zeros_like(unit)
        terms = jnp.sum(jnp.abs(dv * r)) + jnp.sum(jnp.abs(now.impulse * drate))
        terms = terms + jnp.sum(jnp.abs(box.force * x * along))
        falling = start < -_ROUNDED * jnp.finfo(start.dtype).eps * terms
        # a search makes sense once the joints hold, which a whole step brings about, and where it is known to go down
        whole = ~falling | ((k == 0) & bool(system.node_rows))
        a = jax.lax.while_loop(unsettled, nearer, (one, zero, jnp.inf * one, whole, jnp.zeros_like(k)))[0]
        return at(v + a * dv, now.lam + a * dlam), now.worst, k + 1

    begin = at(begin_at, jnp.zeros_like(rows.a)), jnp.full_like(unit, jnp.inf), jnp.zeros((), dtype=int)
    found, _, k = jax.lax.while_loop(go_on, body, begin)
    solved = found.worst <= enough
    result = MLCP_RESULTS.where(solved, MLCP_RESULTS.successful, MLCP_RESULTS.contact_limit)
    return Found(found.v, found.lam, found.bounded.x, found.bounded.free, result, k)


def _speed(
    v: Float[Array, "bodies 6"], D: Float[Array, "bodies 6 6"], mass: Float[Array, " bodies"]
) -> Float[Array, ""]:
    """The largest velocity of a body, turning counted as its energy does. [m/s]"""
    return jnp.sqrt(jnp.max(jnp.abs(jnp.sum(v * matvec(D, v), axis=-1)) / mass))
