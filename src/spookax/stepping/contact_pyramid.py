"""The step of a mechanism whose contacts have a pyramid of friction: one complementarity problem, by Lemke's method.

Everything but contacts and rows with bounds is eliminated. What is left has six variables for every place, equation
(2.24) as in `constraints.friction_pyramid`, and one for every row with bounds. Its matrix is not symmetric and it may
have several solutions, or none; that ends the path along a ray, which is the status of the step. Work grows with the
cube of the places, those included that do not touch: a reference for few.
"""

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float
from ..complementarity import MLCP, Lemke
from ..constraints import Rows, contact_rows
from ..constraints.friction_pyramid import SPREAD
from ..math.product import matmul, matvec
from ..system import System
from . import discs, saddle
from .contact import Found, without

_ALONG = SPREAD.shape[1]  # variables of a place


def lemke(system: System, rows: Rows) -> Found:
    """The step. Levels are those of `Box.force`, none follows; there are no discs."""
    touch, box = rows.contacts, rows.box
    assert touch is not None
    count, boxes = touch.gap.shape[0], len(system.boxes)
    nothing = saddle.Touching(touch.J, jnp.zeros((count, 3, 3), dtype=rows.p.dtype))
    lu = saddle.factor_near(system, rows, None, nothing)
    each = jnp.eye(3 * count, dtype=rows.p.dtype).reshape(-1, count, 3)
    pushes = jnp.moveaxis(jax.vmap(lambda lam: contact_rows.pushes(system, touch, lam))(each), 0, -1)
    from_boxes = saddle.box_columns(system, rows) * box.force[None, None]
    p = jnp.concatenate([-rows.p[..., None], pushes, from_boxes], axis=-1)
    a = jnp.concatenate([-rows.a[..., None], jnp.zeros((*rows.a.shape, p.shape[-1] - 1), rows.a.dtype)], axis=-1)
    v, _ = saddle.solve(system, lu, p, a)

    rates = jax.vmap(lambda v: contact_rows.rates(system, touch, v), in_axes=-1, out_axes=-1)(v)
    ahead = saddle.box_columns(system, rows, ahead=True).reshape(6 * system.num_bodies, boxes).T
    of_boxes = box.rate[:, None] * matmul(ahead, v.reshape(6 * system.num_bodies, -1))
    both = jnp.concatenate([rates.reshape(3 * count, -1), of_boxes])
    problem, zero = _problem(rows, touch, both[:, 1:], both[:, 0])
    found = Lemke().solve(problem)

    lam = matmul((found.x[: _ALONG * count] - zero).reshape(count, _ALONG), SPREAD.T.astype(rows.p.dtype))
    x = found.x[_ALONG * count :]
    known = without(rows, rows.p - contact_rows.pushes(system, touch, lam))
    v, joints = jnp.zeros_like(rows.p), jnp.zeros_like(rows.a)
    for _ in range(2):
        v, joints = saddle.corrected(system, lu, known, v, joints, x)
    _, free, _ = discs.near(system, rows, box.force, v)
    return Found(v, joints, x, free, found.result, found.pivots)


def _problem(
    rows: Rows, touch: contact_rows.Contacts, N: Float[Array, "rates rates"], q: Float[Array, " rates"]
) -> tuple[MLCP, Float[Array, " variables"]]:
    """The complementarity problem, and the x of the variables of places that stands for zero.

    **Arguments:** `N`, `q`: rates per impulse and without any, three of every place, then those of rows with bounds.

    s and its row are in units of an impulse along n: all variables of a place are of one size. To all of them an
    impulse `typical` is added, which is their lower bound then: or the rows of places that hardly press would be
    measured against nothing but rounding.
    """
    count, box, mu = touch.gap.shape[0], rows.box, touch.mu[:, 0]
    size = _ALONG * count
    spread = np.zeros((q.shape[0], size + box.force.shape[0]))
    spread[: 3 * count, :size] = np.kron(np.eye(count), SPREAD)
    spread[3 * count :, size:] = np.eye(box.force.shape[0])
    spread = spread.astype(q.dtype)
    N, q = matmul(spread.T, matmul(N, spread)), matvec(spread.T, q)

    unit, rate = jnp.diagonal(N)[:size:_ALONG], q[:size].reshape(count, _ALONG)
    typical = jnp.max(jnp.where(touch.live, jnp.max(jnp.abs(rate), axis=1) / unit, 0.0))
    own = jnp.zeros((count, _ALONG, _ALONG), q.dtype)
    own = own.at[:, np.arange(5), np.arange(5)].set(touch.sigma[:, None])
    own = own.at[:, 1:5, 5].set(unit[:, None]).at[:, 5, 1:5].set(-unit[:, None]).at[:, 5, 0].set(unit * mu)
    place = np.arange(size).reshape(count, _ALONG)
    N = N.at[place[:, :, None], place[:, None, :]].add(own)
    N = N + jnp.diag(jnp.concatenate([jnp.zeros(size, q.dtype), box.slack]))
    lower = jnp.full(size, typical)
    q = q - matvec(N[:, :size], lower) + jnp.concatenate([jnp.zeros(size, q.dtype), box.offset])
    q = q.at[:size:_ALONG].add(touch.c)

    # what cannot touch, or has no friction, is held
    moves = jnp.stack([touch.live, *[touch.live & (mu > 0)] * 5], axis=1).reshape(-1)
    q = q.at[:size].set(jnp.where(moves, q[:size], 0.0))
    bounds = (lower, box.lower), (jnp.where(moves, jnp.inf, lower), box.upper)
    return MLCP(N, q, *map(jnp.concatenate, bounds)), lower
