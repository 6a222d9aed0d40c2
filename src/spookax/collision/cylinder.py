"""Cylinders on boxes and meshes. Every function takes the first and the second surface, see `pair_kinds`.

Which direction parts a cylinder and a polyhedron most is found among all in which their features can meet: across the
faces of the polyhedron and the caps; across the side and an edge, or from the axis to a corner; across a rim and an
edge, where both are nearest to each other. With the last three the cylinder is round to the last digit: no facet of it
is looked at. A face or a cap is cut with what faces it, as of two boxes, where the cylinder is an octagon that stays
with it and the lowest point of the rim, on which it rolls; lying, its lowest line. All is in the axes of the cylinder.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Bool, Float
from ..math import rotation
from ..math.product import matmul, matvec
from .plane import STANDING
from .polyhedron import ALIKE, FACES_FIRST, PARALLEL, cut, moved
from .posed import Polyhedron, Posed, cube

CORNERS = 9  # of a cap: an octagon and the lowest point
_SIDES = 8
_ITERATIONS = 6


class _Across(NamedTuple):
    """Directions out of the cylinder in which a polyhedron may be nearest, and the points of it that are then."""

    normal: Float[Array, "k 3"]
    point: Float[Array, "k 3"]
    exists: Bool[Array, " k"]


def cylinder_box(A: Posed, B: Posed) -> tuple[Array, ...]:
    """On a box."""
    return _touch(A, B, cube(B.size, 4))


def cylinder_mesh(A: Posed, B: Posed) -> tuple[Array, ...]:
    """On a mesh."""
    return _touch(A, B, B.solid)


def places(corners: int) -> int:
    """With a polyhedron that has so many corners around a face."""
    return CORNERS + 3 * corners + 1


def _touch(A: Posed, B: Posed, solid: Polyhedron) -> tuple[Array, ...]:
    radius, length = A.size[0], A.size[1]
    P = moved(solid, Posed(matvec(A.R.T, B.r - A.r), matmul(A.R.T, B.R), B.size))
    up = jnp.array([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]], dtype=radius.dtype)
    of_faces = jnp.sum(-P.normals * P.facets[:, 0], axis=1) - reach(-P.normals, radius, length)
    of_caps = jnp.min(matmul(up, P.vertices.T), axis=1) - length
    corners = _across_corners(P)
    edges = _across_edges(P)
    signs = jnp.array([[1.0, 1.0, -1.0, -1.0], [1.0, -1.0, 1.0, -1.0]], dtype=radius.dtype)
    rims = jax.vmap(lambda height, root: _across_rims(P, radius, height, root))(length * signs[0], signs[1])
    rims = _Across(*(x.reshape(-1, *x.shape[2:]) for x in rims))
    tried = _Across(*(jnp.concatenate(parts) for parts in zip(corners, edges, rims, strict=True)))
    lowest = jnp.min(matmul(tried.normal, P.vertices.T), axis=1)
    apart = lowest - reach(tried.normal, radius, length)
    is_lowest = jnp.sum(tried.normal * tried.point, axis=-1) - lowest < ALIKE * jnp.min(B.size)
    apart = jnp.where(tried.exists & is_lowest, apart, -jnp.inf)

    margin = FACES_FIRST * jax.lax.stop_gradient(jnp.minimum(jnp.minimum(radius, length), jnp.min(B.size)))
    by_face = jnp.max(of_faces) + margin >= jnp.max(of_caps)
    best = jnp.argmax(apart)
    is_round = apart[best] > jnp.where(by_face, jnp.max(of_faces), jnp.max(of_caps)) + margin
    by_corner = is_round & (best < len(corners.exists))

    f, k = jnp.argmax(of_faces), jnp.argmax(of_caps)
    count = P.facets.shape[1]
    filled = max(CORNERS, count)
    other = jnp.argmin(jax.lax.stop_gradient(matvec(P.normals, up[k])))
    strip, of_strip = facet(-P.normals[f], radius, length)
    top = cap(-P.normals[other], up[k, 2], radius, length)
    mine = _filled(P.facets[f], filled), P.normals[f], _filled(strip, filled), of_strip
    theirs = _filled(top, filled), up[k], _filled(P.facets[other], filled), P.normals[other]
    points, out, gaps, live = cut(*(jnp.where(by_face, a, b) for a, b in zip(mine, theirs, strict=True)))
    flat = points[: CORNERS + count], gaps[: CORNERS + count], (live & ~is_round)[: CORNERS + count]
    normal = jnp.broadcast_to(jnp.where(by_face, out, -out), flat[0].shape)

    single, n = tried.point[best], tried.normal[best]
    gap = jnp.sum(n * single) - reach(n[None], radius, length)[0]
    facing = jnp.argmin(jax.lax.stop_gradient(matvec(P.normals, n)))
    lines = _along_side(P.facets[facing], n, radius, length)
    point = jnp.concatenate([flat[0], lines[0], (single - n * gap / 2)[None]])
    normals = jnp.concatenate([normal, lines[1], -n[None]])
    found = jnp.concatenate([flat[1], lines[2], gap[None]])
    exists = jnp.concatenate([flat[2], by_corner & lines[3], (is_round & ~by_corner)[None]])
    return A.r[None] + matmul(point, A.R.T), matmul(normals, A.R.T), found, exists


def reach(normal: Float[Array, "k 3"], radius: Array, length: Array) -> Float[Array, " k"]:
    """How far the cylinder reaches along unit vectors."""
    square = normal[:, 0] ** 2 + normal[:, 1] ** 2
    slanted = square > 0
    across = jnp.where(slanted, jnp.sqrt(jnp.where(slanted, square, 1.0)), 0.0)
    return radius * across + length * jnp.abs(normal[:, 2])


def _flat_part(x: Float[Array, "k 3"], least: float = 0.0) -> tuple[Float[Array, "k 3"], Array, Bool[Array, " k"]]:
    """Directions across the axis, lengths of those parts, and whether their squares are above a part of all."""
    flat = x * np.array([[1.0, 1.0, 0.0]]).astype(x.dtype)
    square = jnp.sum(flat * flat, axis=-1)
    exists = square > least * jnp.sum(x * x, axis=-1)
    size = jnp.sqrt(jnp.where(exists, square, 1.0))
    return flat / size[:, None], jnp.where(exists, size, 0.0), exists


def _across_corners(P: Polyhedron) -> _Across:
    """From the axis to a corner."""
    n, _, exists = _flat_part(P.vertices)
    return _Across(n, P.vertices, exists & P.is_vertex)


def _across_edges(P: Polyhedron) -> _Across:
    """Across the side and an edge, where the edge passes the side's line."""
    p, w = P.edges[:, 0], P.edges[:, 1] - P.edges[:, 0]
    along, size, exists = _flat_part(w, PARALLEL)
    n = jnp.stack([-along[:, 1], along[:, 0], jnp.zeros_like(size)], axis=1)
    s = -jnp.sum(along * p, axis=-1) / jnp.where(exists, size, 1.0)
    q = p + s[:, None] * w
    return _Across(jnp.concatenate([n, -n]), jnp.concatenate([q, q]), jnp.tile(exists & (s > 0) & (s < 1), 2))


def _across_rims(P: Polyhedron, radius: Array, height: Array, root: Array) -> _Across:
    """Across a rim and an edge, where these are nearest to each other; on the near or the far side of the axis."""
    slanted = _flat_part(P.edges[:, 1] - P.edges[:, 0], PARALLEL)[2]
    fixed = jax.lax.stop_gradient((P, radius, height))
    p, w, size = _lines(fixed[0], slanted)
    middle = -jnp.sum((w * p)[:, :2], axis=-1) / size**2
    square = jnp.sum((p + middle[:, None] * w)[:, :2] ** 2, axis=-1)
    s = middle + root * jnp.sqrt(jnp.maximum(fixed[1] ** 2 - square, 0.0)) / size

    def step(s: Array, P: Polyhedron, radius: Array, height: Array, exact: bool) -> Array:
        """Of Newton's method for a least distance along the edge, less the part that may be negative if not `exact`."""
        p, w, size = _lines(P, slanted)
        q = p + s[:, None] * w
        across, away, off = _flat_part(q)
        rate = jnp.sum(across * w, axis=-1)
        slope = (away - radius) * rate + (q[:, 2] - height) * w[:, 2]
        bend = (away - radius) * (size**2 - rate**2) / jnp.where(off, away, 1.0)
        rise = rate**2 + w[:, 2] ** 2
        whole = rise + (bend if exact else jnp.maximum(bend, 0.0))
        rise = jax.lax.stop_gradient(jnp.where(whole > PARALLEL * jnp.sum(w * w, axis=-1), whole, jnp.inf))
        return s - slope / rise

    s = jax.lax.fori_loop(0, _ITERATIONS, lambda _, x: step(x, *fixed, exact=False), s)
    s = step(step(s, *fixed, exact=True), P, radius, height, exact=True)
    p, w, _ = _lines(P, slanted)
    q = p + s[:, None] * w
    across, _, off = _flat_part(q)
    tangent = jnp.stack([-across[:, 1], across[:, 0], jnp.zeros_like(s)], axis=1)
    n = rotation.cross(w, tangent)
    square = jnp.sum(n * n, axis=-1)
    exists = slanted & off & (square > PARALLEL * jnp.sum(w * w, axis=-1)) & (s > 0) & (s < 1)
    n = n / jnp.sqrt(jnp.where(exists, square, 1.0))[:, None]
    n = n * jnp.where(n[:, 2] * height < 0, -1.0, 1.0)[:, None]  # out of this rim
    return _Across(n, q, exists & (jnp.sum(n * across, axis=-1) > 0))


def _lines(P: Polyhedron, slanted: Bool[Array, " edges"]) -> tuple[Array, Array, Array]:
    """Starts of the edges, the edges, and how long they are across the axis."""
    w = P.edges[:, 1] - P.edges[:, 0]
    return P.edges[:, 0], w, jnp.where(slanted, _flat_part(w, PARALLEL)[1], 1.0)


def _along_side(
    facet: Float[Array, "corners 3"], n: Float[Array, " 3"], radius: Array, length: Array
) -> tuple[Array, Array, Array, Array]:
    """Both ends of what of every edge of a facet lies beside the cylinder: an edge along it touches at two places."""
    ends = facet, jnp.roll(facet, -1, axis=0)
    q, live = [], []
    for end, (start, stop) in enumerate((ends, ends[::-1])):
        d = stop[:, 2] - start[:, 2]
        beyond = jnp.abs(start[:, 2]) > length
        t = (jnp.clip(start[:, 2], -length, length) - start[:, 2]) / jnp.where(beyond & (d != 0), d, 1.0)
        inside = ~beyond | ((t > 0) & (t < 1))
        q.append(start + jnp.where(beyond & inside, t, 0.0)[:, None] * (stop - start))
        live.append(inside & (beyond if end else True))  # a corner is the start of one edge and the end of another
    q, live = jnp.concatenate(q), jnp.concatenate(live)
    across, away, off = _flat_part(q)
    gap = away - radius
    return q - across * gap[:, None] / 2, -across, gap, live & off & (matvec(across, n) > 0)


def _lowest(towards: Float[Array, " 3"], radius: Array) -> tuple[Float[Array, " 2"], Array]:
    """Direction across the axis that is nearest to `towards`, and the square of its part there."""
    square = jnp.sum(towards[:2] ** 2)
    tilted = square > jnp.finfo(radius.dtype).eps
    along_x = jnp.array([1.0, 0.0], dtype=radius.dtype)
    return jnp.where(tilted, towards[:2] / jnp.sqrt(jnp.where(tilted, square, 1.0)), along_x), square


def cap(towards: Float[Array, " 3"], sign: Array, radius: Array, length: Array) -> Float[Array, "9 3"]:
    """Corners of the cap on one side, the last of them the lowest towards a direction; an octagon that stays with the
    cylinder where it stands, and otherwise one that turns with the lowest."""
    u, square = _lowest(towards, radius)
    turn = jnp.where(sign > 0, 1.0, -1.0)  # anticlockwise, seen from outside
    angle = jax.lax.stop_gradient(jnp.arctan2(turn * u[1], u[0]))
    step = 2 * np.pi / _SIDES
    fixed = (jnp.floor(angle / step) + np.arange(1.0, _SIDES + 1)) * step
    stays = jnp.stack([jnp.cos(fixed), turn * jnp.sin(fixed)], axis=1)
    on = jnp.asarray(np.arange(1.0, _SIDES + 1) * step, dtype=radius.dtype)
    across = jnp.stack([-u[1], u[0]]) * turn
    turns = jnp.cos(on)[:, None] * u[None] + jnp.sin(on)[:, None] * across[None]
    xy = radius * jnp.concatenate([jnp.where(square < STANDING, stays, turns), u[None]])
    return jnp.concatenate([xy, jnp.broadcast_to(sign * length, (CORNERS, 1))], axis=1)


def facet(towards: Float[Array, " 3"], radius: Array, length: Array) -> tuple[Array, Array]:
    """What of the cylinder faces a direction: a cap, or a strip of the side from the lowest line on; and its normal."""
    u, square = _lowest(towards, radius)
    half = np.pi / _SIDES
    turned = jnp.stack(
        [u[0] * np.cos(2 * half) - u[1] * np.sin(2 * half), u[0] * np.sin(2 * half) + u[1] * np.cos(2 * half)]
    )
    middle = jnp.stack([u[0] * np.cos(half) - u[1] * np.sin(half), u[0] * np.sin(half) + u[1] * np.cos(half)])
    low, high = (sign * length[None] for sign in (-1.0, 1.0))
    ends = [(u, low), (turned, low), (turned, high), (u, high)]
    strip = _filled(jnp.stack([jnp.concatenate([radius * xy, z]) for xy, z in ends]), CORNERS)
    sign = jnp.where(towards[2] < 0, -1.0, 1.0)
    lies = square > 0.5
    zero = jnp.zeros(1, dtype=radius.dtype)
    normal = jnp.where(lies, jnp.append(middle, 0.0), jnp.concatenate([zero, zero, sign[None].astype(radius.dtype)]))
    return jnp.where(lies, strip, cap(towards, sign, radius, length)), normal


def _filled(facet: Float[Array, "corners 3"], count: int) -> Float[Array, "count 3"]:
    """With so many corners, the last repeated."""
    return jnp.concatenate([facet, jnp.broadcast_to(facet[-1:], (count - len(facet), 3))])
