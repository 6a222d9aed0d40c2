"""Boxes: with spheres and each other. Every function takes the first and the second surface, see `kinds`.

Two boxes: separating axes (6 faces, 9 pairs of edges; Gottschalk, Lin, Manocha (1996)) say whether a face or a pair of
edges is nearest. A face of one box, the reference, is cut with the nearest face of the other, a parallelogram seen from
it: their corners within each other and the crossings of their sides. That cut has eight corners at most, and all are
kept: four chosen ones would jump, which breaks the derivative. There is no loop and no order of clipping.
"""

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array
from ..math.product import matmul, matvec
from .polyhedron import ALIKE, FACES_FIRST, PARALLEL, ROUND, first_ones

_KEPT = 8
_QUAD = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])


def sphere_box(A, B):
    """The point of the box nearest to the centre; for a centre inside, out of the nearest face."""
    q = matvec(B.R.T, A.r - B.r)[None]
    return *balls(q, A.size[0], B), jnp.ones(1, dtype=bool)


def balls(q: Array, radius: Array, B) -> tuple[Array, Array, Array]:
    """Place, normal and gap of balls with their centres at q (k, 3) in the axes of the box."""
    d = q - jnp.clip(q, -B.size[None], B.size[None])
    square = jnp.sum(d * d, axis=-1)
    outside = square > 0
    distance = jnp.sqrt(jnp.where(outside, square, 1.0))
    depth = jnp.abs(q) - B.size[None]
    face = jnp.arange(3)[None] == jnp.argmax(depth, axis=-1)[:, None]
    out = jnp.where(face, jnp.where(q < 0, -1.0, 1.0), 0.0)
    normal = jnp.where(outside[:, None], d / distance[:, None], out)
    gap = jnp.where(outside, distance, jnp.sum(jnp.where(face, depth, 0.0), axis=-1)) - radius
    point = q - normal * (radius + gap / 2)[:, None]
    return B.r[None] + matmul(point, B.R.T), matmul(normal, B.R.T), gap


def box_box(A, B):
    """Eight corners of the cut of two faces, then the nearest points of two edges."""
    axes_A, axes_B, d = A.R.T, B.R.T, B.r - A.r
    overlap = jnp.abs(matmul(axes_A, B.R))
    apart_A = jnp.abs(matvec(axes_A, d)) - A.size - matvec(overlap, B.size)
    apart_B = jnp.abs(matvec(axes_B, d)) - B.size - matvec(overlap.T, A.size)
    normals, apart_edges = _edge_axes(A, B, axes_A, axes_B, d)
    margin = FACES_FIRST * jnp.minimum(jnp.min(A.size), jnp.min(B.size))
    of_A = jnp.max(apart_A) + margin >= jnp.max(apart_B)
    by_edges = jnp.max(apart_edges) > jnp.where(of_A, jnp.max(apart_A), jnp.max(apart_B)) + margin

    X, Y = (jax.tree.map(lambda a, b: jnp.where(of_A, a, b), *pair) for pair in ((A, B), (B, A)))
    points, out, gaps, live = _cut(X, Y, jnp.argmax(jnp.where(of_A, apart_A, apart_B)))
    edges = jnp.argmax(apart_edges)
    point, gap = _crossing(A, B, axes_A, axes_B, normals[edges], edges)
    normal = jnp.concatenate([jnp.broadcast_to(jnp.where(of_A, -out, out), (_KEPT, 3)), -normals[edges][None]])
    places = jnp.concatenate([points, point[None]])
    return places, normal, jnp.append(gaps, gap), jnp.append(live & ~by_edges, by_edges)


def _edge_axes(A, B, axes_A: Array, axes_B: Array, d: Array) -> tuple[Array, Array]:
    """Products of the edges, from A to B, and how far apart the boxes are along each; -inf for parallel edges."""
    product = jnp.cross(axes_A[:, None], axes_B[None]).reshape(9, 3)
    square = jnp.sum(product * product, axis=-1)
    exists = square > PARALLEL
    unit = product / jnp.sqrt(jnp.where(exists, square, 1.0))[:, None]
    along = matvec(unit, d)
    reach = matvec(jnp.abs(matmul(unit, A.R)), A.size) + matvec(jnp.abs(matmul(unit, B.R)), B.size)
    apart = jnp.where(exists, jnp.abs(along) - reach, -jnp.inf)
    return unit * jnp.where(along < 0, -1.0, 1.0)[:, None], apart


def _cut(X, Y, face: Array) -> tuple[Array, Array, Array, Array]:
    """Corners of the cut of the reference's face with the nearest face of Y, halfway between both; the normal out of
    the face, gaps, and which corners there are."""
    axes_X, axes_Y = X.R.T, Y.R.T
    out = jnp.where(jnp.sum(axes_X[face] * (Y.r - X.r)) < 0, -1.0, 1.0) * axes_X[face]
    u, w = axes_X[(face + 1) % 3], axes_X[(face + 2) % 3]
    limits = jnp.stack([X.size[(face + 1) % 3], X.size[(face + 2) % 3]])
    to_face, square = jnp.stack([u, w, out]), _QUAD.astype(out.dtype)
    other = jnp.argmax(jnp.abs(matvec(axes_Y, out)))
    toward = jnp.where(jnp.sum(axes_Y[other] * out) > 0, -1.0, 1.0)
    centre = matvec(to_face, Y.r + toward * Y.size[other] * axes_Y[other] - X.r).at[2].add(-X.size[face])
    p, q = (matvec(to_face, axes_Y[(other + k) % 3] * Y.size[(other + k) % 3]) for k in (1, 2))
    quad = centre[None] + square[:, :1] * p[None] + square[:, 1:] * q[None]

    # the corners of the rectangle, seen in the parallelogram's own coordinates
    corners = square * limits[None]
    rest = corners - centre[None, :2]
    area = p[0] * q[1] - p[1] * q[0]
    area = jnp.where(jnp.abs(area) > 0, area, 1.0)  # of a face that is seen along: not the nearest
    alpha, beta = (rest[:, 0] * q[1] - rest[:, 1] * q[0]) / area, (p[0] * rest[:, 1] - p[1] * rest[:, 0]) / area
    lifted = jnp.concatenate([corners, (centre[2] + alpha * p[2] + beta * q[2])[:, None]], axis=-1)
    within = [
        jnp.all(jnp.abs(quad[:, :2]) <= limits[None] + ROUND, axis=-1),
        (jnp.abs(alpha) <= 1 + ROUND) & (jnp.abs(beta) <= 1 + ROUND),
    ]
    candidates = [quad, lifted]
    side = jnp.roll(quad, -1, axis=0) - quad
    for axis in (0, 1):
        for sign in (-1.0, 1.0):
            slope = side[:, axis]
            crosses = jnp.abs(slope) > ROUND
            t = (sign * limits[axis] - quad[:, axis]) / jnp.where(crosses, slope, 1.0)
            at = quad + t[:, None] * side
            candidates.append(at)
            within.append(crosses & (t > 0) & (t < 1) & (jnp.abs(at[:, 1 - axis]) < limits[1 - axis]))
    found, valid = jnp.concatenate(candidates), jnp.concatenate(within)
    kept, live = first_ones(found, valid, _KEPT, ALIKE * limits[0] * limits[1])
    base = X.r + X.size[face] * out
    points = base[None] + kept[:, :1] * u[None] + kept[:, 1:2] * w[None] + kept[:, 2:] / 2 * out[None]
    return points, out, kept[:, 2], live


def _crossing(A, B, axes_A: Array, axes_B: Array, normal: Array, edges: Array) -> tuple[Array, Array]:
    """The point halfway between the edges of A and B whose product is `normal`, and their gap."""
    a, b = edges // 3, edges % 3
    on_A = jnp.where(jnp.arange(3) != a, jnp.where(matvec(axes_A, normal) > 0, 1.0, -1.0), 0.0)
    on_B = jnp.where(jnp.arange(3) != b, jnp.where(matvec(axes_B, normal) > 0, -1.0, 1.0), 0.0)
    p, q = A.r + matvec(A.R, on_A * A.size), B.r + matvec(B.R, on_B * B.size)
    u, w, d = axes_A[a], axes_B[b], p - q
    cos = jnp.sum(u * w)
    square = 1 - cos * cos
    scale = 1 / jnp.where(square > PARALLEL, square, 1.0)
    s, t = (cos * jnp.sum(w * d) - jnp.sum(u * d)) * scale, (jnp.sum(w * d) - cos * jnp.sum(u * d)) * scale
    p, q = p + s * u, q + t * w
    return (p + q) / 2, jnp.sum(normal * (q - p))
