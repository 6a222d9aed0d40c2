"""Cylinders on each other, see `pair_kinds`.

As in `cylinder`, the direction that parts both most is found among all in which their features can meet: across a cap;
across both sides, or from axis to axis; from the axis of one to the rim of the other; across both rims where these are
nearest to each other. Caps are cut with what faces them; sides that are parallel touch at both ends of what they share.
All is in the axes of the first.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Bool, Float
from ..math import rotation
from ..math.product import matmul, matvec
from .cylinder import CORNERS, cap, facet, reach
from .polyhedron import ALIKE, FACES_FIRST, PARALLEL, cut
from .posed import Posed

PLACES = 2 * CORNERS + 3
_STARTS = 8
_ITERATIONS = 16


class _Round(NamedTuple):
    """A cylinder: centre, axes (the third along it), radius and half length."""

    r: Array
    R: Array
    radius: Array
    length: Array


class _Across(NamedTuple):
    """Directions from the first to the second in which they may be nearest, and the points of both that are then."""

    normal: Float[Array, "k 3"]
    first: Float[Array, "k 3"]
    second: Float[Array, "k 3"]
    exists: Bool[Array, " k"]


def cylinder_cylinder(A: Posed, B: Posed) -> tuple[Array, ...]:
    """Places, normals, gaps and which there are."""
    one = jnp.eye(3, dtype=A.r.dtype)
    P = _Round(jnp.zeros_like(A.r), one, A.size[0], A.size[1])
    Q = _Round(matvec(A.R.T, B.r - A.r), matmul(A.R.T, B.R), B.size[0], B.size[1])
    z, b = one[2], Q.R[:, 2]
    caps = jnp.stack([z, -z, b, -b])
    of_caps = _apart(P, Q, caps)
    sides = _across_sides(P, Q), _across_axes(P, Q)
    rims = _rims_and_side(P, Q), _swapped(_rims_and_side(Q, P)), _across_rims(P, Q)
    tried = _Across(*(jnp.concatenate(parts) for parts in zip(*sides, *rims, strict=True)))
    apart = _apart(P, Q, tried.normal)
    measured = jnp.sum(tried.normal * (tried.second - tried.first), axis=-1)
    smallest = jax.lax.stop_gradient(jnp.min(jnp.stack([P.radius, P.length, Q.radius, Q.length])))
    apart = jnp.where(tried.exists & (jnp.abs(measured - apart) < ALIKE * smallest), apart, -jnp.inf)
    best, k = jnp.argmax(apart), jnp.argmax(of_caps)
    is_round = apart[best] > of_caps[k] + FACES_FIRST * smallest
    parallel = is_round & (best == len(sides[0].exists))

    n = caps[k]
    mine, theirs = _cap_and_facet(P, Q, n), _cap_and_facet(Q, P, -n)
    points, out, gaps, live = cut(*(jnp.where(k < 2, a, c) for a, c in zip(mine, theirs, strict=True)))
    normal = jnp.broadcast_to(jnp.where(k < 2, -out, out), points.shape)
    lines = _beside(P, Q)
    single = (tried.first[best] + tried.second[best]) / 2
    point = jnp.concatenate([points, lines[0], single[None]])
    normals = jnp.concatenate([normal, lines[1], -tried.normal[best][None]])
    found = jnp.concatenate([gaps, lines[2], measured[best][None]])
    exists = jnp.concatenate([live & ~is_round, parallel & lines[3], (is_round & ~parallel)[None]])
    return A.r[None] + matmul(point, A.R.T), matmul(normals, A.R.T), found, exists


def _apart(P: _Round, Q: _Round, n: Float[Array, "k 3"]) -> Float[Array, " k"]:
    """How far both are apart along directions."""
    return matvec(n, Q.r - P.r) - reach(matmul(n, P.R), P.radius, P.length) - reach(matmul(n, Q.R), Q.radius, Q.length)


def _cap_and_facet(P: _Round, Q: _Round, n: Float[Array, " 3"]) -> tuple[Array, ...]:
    """The cap of P on the side of n, its normal, what of Q faces it, and the normal of that."""
    toward = matvec(Q.R.T, -n)
    other, normal = facet(toward, Q.radius, Q.length)
    sign = jnp.where(jnp.sum(P.R[:, 2] * n) < 0, -1.0, 1.0)
    top = cap(matvec(P.R.T, -matvec(Q.R, normal)), sign, P.radius, P.length)
    return P.r[None] + matmul(top, P.R.T), n, Q.r[None] + matmul(other, Q.R.T), matvec(Q.R, normal)


def _unit(x: Float[Array, "k 3"], least: Array | float) -> tuple[Float[Array, "k 3"], Bool[Array, " k"]]:
    """Directions, where the squared length is above a least one."""
    square = jnp.sum(x * x, axis=-1)
    exists = square > least
    return x / jnp.sqrt(jnp.where(exists, square, 1.0))[:, None], exists


def _across_sides(P: _Round, Q: _Round) -> _Across:
    """Across both axes, where their crossing is between the ends of both."""
    a, b, d = P.R[:, 2], Q.R[:, 2], Q.r - P.r
    n, exists = _unit(rotation.cross(a, b)[None], PARALLEL)
    n = n * jnp.where(jnp.sum(n[0] * d) < 0, -1.0, 1.0)
    cos = jnp.sum(a * b)
    scale = 1 / jnp.where(exists[0], 1 - cos * cos, 1.0)
    s, t = (jnp.sum(a * d) - cos * jnp.sum(b * d)) * scale, (cos * jnp.sum(a * d) - jnp.sum(b * d)) * scale
    inside = (jnp.abs(s) < P.length) & (jnp.abs(t) < Q.length)
    return _Across(n, (P.r + s * a)[None] + P.radius * n, (Q.r + t * b)[None] - Q.radius * n, exists & inside)


def _across_axes(P: _Round, Q: _Round) -> _Across:
    """From axis to axis, where these are parallel."""
    a, b, d = P.R[:, 2], Q.R[:, 2], Q.r - P.r
    cos = jnp.sum(a * b)
    across = d - jnp.sum(d * a) * a
    n, exists = _unit(across[None], 0.0)
    sum_ = jnp.abs(jnp.sum(d * a)) < P.length + Q.length
    gap = _apart(P, Q, n)[:, None]
    return _Across(n, P.radius * n, P.radius * n + gap * n, exists & (1 - cos * cos <= PARALLEL) & sum_)


def _beside(P: _Round, Q: _Round) -> tuple[Array, Array, Array, Array]:
    """Both ends of what parallel sides share."""
    a, b, d = P.R[:, 2], Q.R[:, 2], Q.r - P.r
    cos, along = jnp.sum(a * b), jnp.sum(d * a)
    safe = jnp.where(jnp.abs(cos) > 0.5, cos, 1.0)
    half = Q.length * jnp.abs(safe)
    z = jnp.stack([jnp.minimum(P.length, along + half), jnp.maximum(-P.length, along - half)])
    axis = P.r[None] + z[:, None] * a[None]
    q = Q.r[None] + ((z - along) / safe)[:, None] * b[None]
    n, exists = _unit(q - axis, 0.0)
    gap = jnp.sum(n * (q - axis), axis=-1) - P.radius - Q.radius
    return axis + n * (P.radius + gap / 2)[:, None], -n, gap, exists & (z[0] > z[1])


def _circle(X: _Round, sign: Array, angle: Float[Array, " k"]) -> tuple[Array, Array, Array]:
    """Points of a rim, directions from the axis to them and along it."""
    cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
    away, along = cos * X.R[None, :, 0] + sin * X.R[None, :, 1], cos * X.R[None, :, 1] - sin * X.R[None, :, 0]
    return (X.r + sign * X.length * X.R[:, 2])[None] + X.radius * away, away, along


def _angles(dtype: np.dtype) -> Array:
    return jnp.asarray(2 * np.pi / _STARTS * np.arange(_STARTS), dtype=dtype)


def _rims_and_side(P: _Round, Q: _Round) -> _Across:
    """From the axis of Q to the rims of P, where points of these are nearest to the axis."""
    return _flat(jax.vmap(lambda sign: _rim_and_side(P, Q, sign))(_signs(P)[:2]))


def _signs(P: _Round) -> Array:
    return jnp.array([1.0, -1.0, 1.0, -1.0], dtype=P.radius.dtype)


def _flat(found: _Across) -> _Across:
    return _Across(*(x.reshape(-1, *x.shape[2:]) for x in found))


def _swapped(found: _Across) -> _Across:
    return _Across(-found.normal, found.second, found.first, found.exists)


def _rim_and_side(P: _Round, Q: _Round, sign: Array) -> _Across:
    def step(angle: Array, P: _Round, Q: _Round, exact: bool) -> Array:
        b = Q.R[:, 2]
        x, away, t = _circle(P, sign, angle)
        d = x - Q.r[None]
        d = d - matvec(d, b)[:, None] * b[None]
        whole = P.radius * (1 - matvec(t, b) ** 2) - jnp.sum(d * away, axis=-1)
        rise = whole if exact else jnp.abs(whole)
        rise = jax.lax.stop_gradient(jnp.where(jnp.abs(rise) > PARALLEL * P.radius, rise, jnp.inf))
        return angle - jnp.clip(jnp.sum(d * t, axis=-1) / rise, -0.5, 0.5)

    fixed = jax.lax.stop_gradient((P, Q))
    angle = jax.lax.fori_loop(0, _ITERATIONS, lambda _, x: step(x, *fixed, exact=False), _angles(P.radius.dtype))
    angle = step(step(angle, *fixed, exact=True), P, Q, exact=True)
    x, away, _ = _circle(P, sign, angle)
    b = Q.R[:, 2]
    s = matvec(x - Q.r[None], b)
    q = Q.r[None] + s[:, None] * b[None]
    n, exists = _unit(q - x, 0.0)
    of_rim = (jnp.sum(n * away, axis=-1) > 0) & (sign * matvec(n, P.R[:, 2]) > 0)
    return _Across(n, x, q - Q.radius * n, exists & of_rim & (jnp.abs(s) < Q.length))


def _across_rims(P: _Round, Q: _Round) -> _Across:
    """Across a rim of each, where these are nearest to each other."""
    of_Q = _signs(P)[np.array([0, 0, 1, 1])]
    return _flat(jax.vmap(lambda i, j: _across_two(P, Q, i, j))(_signs(P), of_Q))


def _across_two(P: _Round, Q: _Round, i: Array, j: Array) -> _Across:
    def step(angles: Array, P: _Round, Q: _Round) -> Array:
        """Of Newton's method for the least distance of two circles."""
        x, out_x, t = _circle(P, i, angles[0])
        y, out_y, u = _circle(Q, j, angles[1])
        d = x - y
        f, g, cos = jnp.sum(d * t, axis=-1), jnp.sum(d * u, axis=-1), jnp.sum(t * u, axis=-1)
        a, c = P.radius - jnp.sum(d * out_x, axis=-1), -Q.radius - jnp.sum(d * out_y, axis=-1)
        b, e = -Q.radius * cos, P.radius * cos
        rows = jax.lax.stop_gradient(jnp.stack([a, b, e, c]))
        det = rows[0] * rows[3] - rows[1] * rows[2]
        det = jnp.where(jnp.abs(det) > PARALLEL * jax.lax.stop_gradient(P.radius * Q.radius), det, jnp.inf)
        turn = jnp.stack([rows[3] * f - rows[1] * g, rows[0] * g - rows[2] * f]) / det[None]
        return angles - jnp.clip(turn, -0.5, 0.5)

    fixed = jax.lax.stop_gradient((P, Q))
    first = _angles(P.radius.dtype)
    x, _, _ = _circle(fixed[0], i, first)
    d = matmul(x - (fixed[1].r + j * fixed[1].length * fixed[1].R[:, 2])[None], fixed[1].R)
    angles = jnp.stack([first, jnp.arctan2(d[:, 1], d[:, 0])])
    angles = jax.lax.fori_loop(0, _ITERATIONS, lambda _, x: step(x, *fixed), angles)
    angles = step(angles, P, Q)
    x, out_x, t = _circle(P, i, angles[0])
    y, out_y, u = _circle(Q, j, angles[1])
    n, exists = _unit(rotation.cross(t, u), PARALLEL)
    n = n * jnp.where(i * matvec(n, P.R[:, 2]) < 0, -1.0, 1.0)[:, None]
    of_both = (jnp.sum(n * out_x, axis=-1) > 0) & (jnp.sum(n * out_y, axis=-1) < 0) & (j * matvec(n, Q.R[:, 2]) < 0)
    return _Across(n, x, y, exists & of_both)
