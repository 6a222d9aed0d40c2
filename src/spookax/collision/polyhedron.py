"""Convex polyhedra with spheres and each other. Every function takes the first and the second surface, see `kinds`.

Two polyhedra: the facets of both and the pairs of their edges that are a facet of the Minkowski difference (Gregorius
(2013), "The separating axis test between convex polyhedra") say whether a facet or a pair of edges is nearest; what
follows is that of `box` with facets of any number of corners. What is nearest is a choice without derivative; the
places of what is chosen have one. Two boxes have a way of their own as it is several times as fast.
"""

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Bool, Float
from ..math import rotation
from ..math.product import matmul, matvec
from .posed import Polyhedron, Posed, cube

ALIKE = 1e-6  # of a quarter of the area of a face: corners of a cut nearer than that are one
FACES_FIRST = 1e-3  # of the least half length: faces of A before those of B before edges, so that ties do not flicker
PARALLEL = 1e-4  # squared sine of the angle between two edges below which their product is no axis
ROUND = 1e-9


def sphere_mesh(A: Posed, B: Posed) -> tuple[Array, ...]:
    """The point of the mesh nearest to the centre; for a centre inside, out of the nearest face."""
    q = matvec(B.R.T, A.r - B.r)
    return *balls(q[None], A.size[0], B), jnp.ones(1, dtype=bool)


def balls(q: Float[Array, "k 3"], radius: Array, B: Posed) -> tuple[Array, Array, Array]:
    """Place, normal and gap of balls with their centres at q in the axes of the mesh."""
    normal, distance = jax.vmap(lambda at: _out_of(B.solid, at))(q)
    gap = distance - radius
    point = q - normal * (radius + gap / 2)[:, None]
    return B.r[None] + matmul(point, B.R.T), matmul(normal, B.R.T), gap


def _out_of(P: Polyhedron, q: Float[Array, " 3"]) -> tuple[Float[Array, " 3"], Float[Array, ""]]:
    """Direction and distance from a polyhedron to a point, negative inside.

    Where the nearest point is on an edge or a corner, the facets that meet there have it in common. Which facet and
    which part of it is nearest is no derivative.
    """
    height = jnp.sum((q[None] - P.facets[:, 0]) * P.normals, axis=-1)
    over = q[None] - height[:, None] * P.normals
    start, end = jnp.moveaxis(P.edges, 1, 0)
    along = end - start
    part = jnp.clip(jnp.sum((q[None] - start) * along, axis=-1) / jnp.sum(along * along, axis=-1), 0.0, 1.0)
    away = q[None] - jnp.concatenate([over, start + part[:, None] * along])
    within = jnp.concatenate([_above(P, over), jnp.ones(len(start), dtype=bool)])
    d = away[jnp.argmin(jnp.where(within, jnp.sum(away * away, axis=-1), jnp.inf))]
    outside = (jnp.max(height) > 0) & (jnp.sum(d * d) > 0)
    distance = jnp.sqrt(jnp.where(outside, jnp.sum(d * d), 1.0))
    face = jnp.argmax(height)
    return jnp.where(outside, d / distance, P.normals[face]), jnp.where(outside, distance, height[face])


def _above(P: Polyhedron, x: Float[Array, "facets 3"]) -> Bool[Array, " facets"]:
    """Whether a point of the plane of every facet is within it."""
    side = jnp.roll(P.facets, -1, axis=1) - P.facets
    left = rotation.cross(jnp.broadcast_to(P.normals[:, None], side.shape), side)
    return jnp.all(jnp.sum(left * (x[:, None] - P.facets), axis=-1) >= 0, axis=1)


def box_mesh(A: Posed, B: Posed) -> tuple[Array, ...]:
    """The corners of the cut of two facets, then the nearest points of two edges."""
    return _touch(A, cube(A.size, B.solid.facets.shape[1]), B, B.solid)


def mesh_mesh(A: Posed, B: Posed) -> tuple[Array, ...]:
    """The corners of the cut of two facets, then the nearest points of two edges."""
    return _touch(A, A.solid, B, B.solid)


def moved(P: Polyhedron, X: Posed) -> Polyhedron:
    """A polyhedron in the world."""

    def turned(a: Array, by: Float[Array, " 3"] | float = 0.0) -> Array:
        return (matmul(a.reshape(-1, 3), X.R.T) + by).reshape(a.shape)

    vertices, facets, edges = (turned(a, X.r[None]) for a in (P.vertices, P.facets, P.edges))
    return Polyhedron(vertices, P.is_vertex, facets, turned(P.normals), edges, turned(P.sides))


def _touch(A: Posed, of_A: Polyhedron, B: Posed, of_B: Polyhedron) -> tuple[Array, ...]:
    P, Q = moved(of_A, A), moved(of_B, B)
    p, q = jax.lax.stop_gradient((P, Q))
    (face_A, apart_A), (face_B, apart_B), (edges, apart_edges) = _facing(p, q), _facing(q, p), _meeting(p, q)
    margin = FACES_FIRST * jax.lax.stop_gradient(jnp.minimum(jnp.min(A.size), jnp.min(B.size)))
    by_A = apart_A + margin >= apart_B
    by_edges = apart_edges > jnp.where(by_A, apart_A, apart_B) + margin
    other_A = jnp.argmin(matvec(p.normals, q.normals[face_B]))
    other_B = jnp.argmin(matvec(q.normals, p.normals[face_A]))
    mine = P.facets[face_A], P.normals[face_A], Q.facets[other_B], Q.normals[other_B]
    theirs = Q.facets[face_B], Q.normals[face_B], P.facets[other_A], P.normals[other_A]
    points, out, gaps, live = cut(*(jnp.where(by_A, a, b) for a, b in zip(mine, theirs, strict=True)))
    i, j = jnp.unravel_index(edges, (len(p.edges), len(q.edges)))
    point, normal, gap = _crossing(P.edges[i], Q.edges[j], jnp.sum(p.sides[i], axis=0))
    normals = jnp.concatenate([jnp.broadcast_to(jnp.where(by_A, -out, out), points.shape), -normal[None]])
    places = jnp.concatenate([points, point[None]])
    return places, normals, jnp.append(gaps, gap), jnp.append(live & ~by_edges, by_edges)


def _facing(P: Polyhedron, Q: Polyhedron) -> tuple[Array, Array]:
    """The facet of P above which Q is highest, and how high."""
    height = matmul(P.normals, Q.vertices.T) - jnp.sum(P.normals * P.facets[:, 0], axis=1)[:, None]
    least = jnp.min(height, axis=1)
    face = jnp.argmax(least)
    return face, least[face]


def _meeting(P: Polyhedron, Q: Polyhedron) -> tuple[Array, Array]:
    """The pair of edges across which P and Q are farthest apart, of those whose arcs on the sphere of normals cross."""
    (a, b), (c, d) = jnp.moveaxis(P.sides, 1, 0), -jnp.moveaxis(Q.sides, 1, 0)
    ba, dc = rotation.cross(b, a), rotation.cross(d, c)
    cba, dba, adc, bdc = matmul(ba, c.T), matmul(ba, d.T), matmul(a, dc.T), matmul(b, dc.T)
    u, w = P.edges[:, 1] - P.edges[:, 0], Q.edges[:, 1] - Q.edges[:, 0]
    u, w = (e / jnp.sqrt(jnp.sum(e * e, axis=1))[:, None] for e in (u, w))
    product = rotation.cross(*jnp.broadcast_arrays(u[:, None], w[None]))
    square = jnp.sum(product * product, axis=-1)
    met = (cba * dba < 0) & (adc * bdc < 0) & (cba * bdc > 0) & (square > PARALLEL)
    outward = jnp.where(jnp.sum(product * jnp.sum(P.sides, axis=1)[:, None], axis=-1) < 0, -1.0, 1.0)
    apart = outward * jnp.sum(product * (Q.edges[None, :, 0] - P.edges[:, None, 0]), axis=-1)
    apart = jnp.where(met, apart / jnp.sqrt(jnp.where(met, square, 1.0)), -jnp.inf).reshape(-1)
    edges = jnp.argmax(apart)
    return edges, apart[edges]


def _crossing(
    first: Float[Array, "2 3"], second: Float[Array, "2 3"], outward: Float[Array, " 3"]
) -> tuple[Array, Array, Array]:
    """The point halfway between two edges, the normal across both, out of the first, and their gap along it."""
    p, q = first[0], second[0]
    u, w, d = first[1] - p, second[1] - q, p - q
    product = rotation.cross(u, w)
    square = jnp.sum(product * product)
    crosses = square > PARALLEL * jnp.sum(u * u) * jnp.sum(w * w)
    safe = jnp.where(crosses, square, 1.0)
    normal = jnp.where(jnp.sum(product * outward) < 0, -1.0, 1.0) * product / jnp.sqrt(safe)
    uw, uu, ww, ud, wd = (jnp.sum(x * y) for x, y in ((u, w), (u, u), (w, w), (u, d), (w, d)))
    p, q = p + (uw * wd - ww * ud) / safe * u, q + (uu * wd - uw * ud) / safe * w
    return (p + q) / 2, normal, jnp.sum(normal * (q - p))


def cut(
    face: Float[Array, "corners 3"],
    out: Float[Array, " 3"],
    other: Float[Array, "corners 3"],
    normal: Float[Array, " 3"],
) -> tuple[Array, Array, Array, Array]:
    """Corners of the cut of a facet with another one, seen along `out`, its normal, and halfway between both; that
    normal, gaps, and which corners there are. `normal`: of the other."""
    u = face[1] - face[0]
    u = u / jnp.sqrt(jnp.sum(u * u))
    axes = jnp.stack([u, rotation.cross(out, u), out])
    p, q = matmul(face - face[:1], axes.T), matmul(other - face[:1], axes.T)
    m = matvec(axes, normal)
    faces = m[2] < -ROUND
    slope = -m[:2] / jnp.where(faces, m[2], 1.0)
    lifted = p.at[:, 2].set(q[0, 2] + jnp.sum((p[:, :2] - q[:1, :2]) * slope[None], axis=-1))
    side_p, side_q = (jnp.roll(x, -1, axis=0) - x for x in (p, q))
    area = jnp.sum(_turn(p, jnp.roll(p, -1, axis=0))) / 2

    d = p[:, None] - q[None]  # (corners of the face, of the other)
    turn = _turn(side_p[:, None], side_q[None])
    crosses = jnp.abs(turn) > ROUND * jnp.maximum(area, ROUND)
    safe = jnp.where(crosses, turn, 1.0)
    on_p, on_q = _turn(side_q[None], d) / safe, _turn(side_p[:, None], d) / safe
    crosses = crosses & (on_p > 0) & (on_p < 1) & (on_q > 0) & (on_q < 1)
    met = q[None] + on_q[..., None] * side_q[None]
    found = jnp.concatenate([q, lifted, met.reshape(-1, 3)])
    # the other facet is seen from behind, clockwise
    valid = jnp.concatenate([_inside(q, p, side_p), faces & _inside(p, q, -side_q), crosses.reshape(-1)])
    places, live = first_ones(found, valid, len(p) + len(q), ALIKE * area / 4)
    points = face[:1] + matmul(places * jnp.array([[1, 1, 0.5]], dtype=places.dtype), axes)
    return points, out, places[:, 2], live


def _turn(a: Array, b: Array) -> Array:
    """The part along the third axis of a x b."""
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _inside(x: Float[Array, "k 3"], corner: Float[Array, "c 3"], side: Float[Array, "c 3"]) -> Bool[Array, " k"]:
    """Whether points lie on the left of all sides, seen along the third axis."""
    length = jnp.sqrt(jnp.sum(jax.lax.stop_gradient(side)[:, :2] ** 2, axis=-1))
    return jnp.all(_turn(side[None], x[:, None] - corner[None]) >= -ROUND * length[None], axis=1)


def first_ones(
    found: Float[Array, "k 3"], valid: Bool[Array, " k"], count: int, alike: Array
) -> tuple[Float[Array, "count 3"], Bool[Array, " count"]]:
    """The valid corners of a cut, one of those that are alike (by their squared distance in the plane), and which of
    so many places they fill. There is no sort, which not every program has."""
    flat = jax.lax.stop_gradient(found[:, :2])
    near = jnp.sum((flat[:, None] - flat[None]) ** 2, axis=-1) < alike
    before = np.tri(len(flat), k=-1, dtype=bool)
    valid = valid & ~jnp.any(near & before & valid[None], axis=1)
    place = jnp.cumsum(valid) - 1
    chosen = (valid[None] & (place[None] == np.arange(count)[:, None])).astype(found.dtype)
    return matmul(chosen, found), jnp.arange(count) <= place[-1]
