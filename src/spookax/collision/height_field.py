"""Surfaces on a height field. Every function takes the surface and the field, see `pair_kinds`.

What has corners touches with these, straight above or below a triangle of the field. A ball touches wherever the
distance from its centre has a least value nearby: on faces, on edges and corners that stick out. So nothing jumps
where one of them takes over from another, and a ball in a hollow touches all of its sides. Of these places the
`OF_BALL` with the smallest gaps are kept, which are all that touch unless the ball is much larger than the cells.
"""

import jax
import jax.numpy as jnp

from .._typing import Array, Bool, Float
from ..math import rotation
from ..math.product import matmul, matvec
from . import plane, triangles
from .polyhedron import PARALLEL
from .posed import Posed

OF_BALL = 6
OF_AXIS = 4
_ALIKE = 1e-6  # of a cell: places of a ball nearer to each other than that are one

Places = tuple[Array, Array, Array, Array]


def sphere(A: Posed, B: Posed) -> Places:
    """Where the distance from the centre is least."""
    q = matvec(B.R.T, A.r - B.r)
    return _in_world(B, A.size[0], [_ball(B, q, A.size[0])])


def capsule(A: Posed, B: Posed) -> Places:
    """Both ends as balls, then edges and corners that the axis passes."""
    c, along = matvec(B.R.T, A.r - B.r), matvec(B.R.T, A.R[:, 2])
    ends = [_ball(B, c + sign * A.size[1] * along, A.size[0]) for sign in (1.0, -1.0)]
    return _in_world(B, A.size[0], [*ends, _axis(B, c, along, A.size)])


def box(A: Posed, B: Posed) -> Places:
    """All corners."""
    return _points(B, plane.corners(A))


def mesh(A: Posed, B: Posed) -> Places:
    """All vertices."""
    point, normal, gap, live = _points(B, A.r[None] + matmul(A.solid.vertices, A.R.T))
    return point, normal, gap, live & A.solid.is_vertex


def cylinder(A: Posed, B: Posed) -> Places:
    """Of either rim the four points on which it stands, and the lowest above the ground on either side of the axis.

    The lowest is that above the plane of a triangle; over a ridge it may lie above the triangle beside that.
    """
    up = B.R[:, 2]
    level = rotation.cross(A.R[:, 2], up)
    square = jnp.sum(level * level)
    lies = square > jnp.finfo(square.dtype).eps
    level = jnp.where(lies, level / jnp.sqrt(jnp.where(lies, square, 1.0)), A.R[:, 0])
    found = []
    for rim, sign in ((slice(0, 5), 1.0), (slice(5, 10), -1.0)):
        middle = A.r + sign * A.size[1] * A.R[:, 2]
        rest, *one = _lowest(A, B, middle + A.size[0] * level, rim)
        _, *other = _lowest(A, B, middle - A.size[0] * level, rim)
        same = jnp.all(one[0] == other[0])
        found += [rest, one, (*other[:3], other[3] & ~same)]
    point, normal, gap, live = (jnp.concatenate(part) for part in zip(*found, strict=True))
    return point, normal, gap, live


def _lowest(A: Posed, B: Posed, at: Float[Array, " 3"], rim: slice) -> tuple[Places, Array, Array, Array, Array]:
    """The points of a rim on which a cylinder stands; then the place of its lowest above the plane of a triangle: that
    below a point, and twice that below the lowest."""

    def of_triangle(at: Array) -> tuple[Array, Array]:
        _, n, _ = triangles.below(B, matvec(B.R.T, at - B.r)[None])
        points, live = plane.rims(A, matvec(B.R, n[0]))
        return points[rim], live[rim]

    points, live = of_triangle(of_triangle(of_triangle(at)[0][-1])[0][-1])
    point, normal, height, within = _points(B, points)
    return (point[:4], normal[:4], height[:4], (within & live)[:4]), point[4:], normal[4:], height[4:], within[4:]


def _points(B: Posed, points: Float[Array, "k 3"]) -> Places:
    """Points of a surface, by the planes of the triangles below them."""
    q = matmul(points - B.r[None], B.R)
    corner, n, inside = triangles.below(B, q)
    return points, matmul(n, B.R.T), jnp.sum(n * (q - corner), axis=-1), inside


def _in_world(B: Posed, radius: Array, parts: list[Places]) -> Places:
    """Places of balls: centres in the axes of the field, normals, distances, and which there are."""
    q, normal, distance, live = (jnp.concatenate(part) for part in zip(*parts, strict=True))
    point = q - normal * radius
    return B.r[None] + matmul(point, B.R.T), matmul(normal, B.R.T), distance - radius, live


def _ball(B: Posed, q: Float[Array, " 3"], radius: Array) -> Places:
    """Centre, normals, distances and which of them there are, of a ball."""
    w = triangles.near(B, q, B.field.windows[0])
    parts = [_on_faces(w, q), _on_edges(w, q), _on_corners(w, q)]
    normal, distance, live = (jnp.concatenate(part) for part in zip(*parts, strict=True))
    return _least(jnp.broadcast_to(q, normal.shape), normal, distance, live, OF_BALL, w)


def _on_faces(w: triangles.Window, q: Float[Array, " 3"]) -> tuple[Array, Array, Array]:
    """Above a face; a centre below the field comes out of the face above it."""
    height = jnp.sum(w.normal * (q[None] - w.corner), axis=-1)
    foot = q[None] - height[:, None] * w.normal

    def within(x: Array) -> Bool[Array, " faces"]:
        part = (x - w.corner)[:, :2] / w.cell[None] * w.sides.astype(x.dtype)
        some = triangles.tolerance(x)
        return jnp.all(part >= -some, axis=-1) & (part[:, 0] + part[:, 1] <= 1 + some)

    straight = within(jnp.broadcast_to(q, foot.shape))
    return w.normal, height, w.is_face & jnp.where(height >= 0, within(foot), straight)


def _on_edges(w: triangles.Window, q: Float[Array, " 3"]) -> tuple[Array, Array, Array]:
    """Nearest to a point of an edge, between the directions across the faces beside it."""
    p, e = w.ends[:, 0], w.ends[:, 1] - w.ends[:, 0]
    into, mean, sticks_out = triangles.inward(w)
    part = jnp.sum((q[None] - p) * e, axis=-1) / jnp.sum(e * e, axis=-1)
    d = q[None] - p - part[:, None] * e
    normal, distance = _away(d, mean)
    live = sticks_out & (part > 0) & (part < 1)
    above = jnp.sum(d * mean, axis=-1) > 0
    of_border = ~jnp.all(w.has_face, axis=1)
    side = jnp.sum(jnp.where(w.has_face[..., None], into, 0.0), axis=1)
    beside = of_border & (jnp.sum(d[:, :2] * side[:, :2], axis=-1) <= 0)  # where the border is all that there is
    return normal, distance, live & jnp.where(above, _between(w, d, into), beside)


def _on_corners(w: triangles.Window, q: Float[Array, " 3"]) -> tuple[Array, Array, Array]:
    """Nearest to a corner: no edge of it leads towards the centre."""
    d = q[None] - w.peak
    up = jnp.broadcast_to(jnp.array([0.0, 0.0, 1.0], dtype=q.dtype), d.shape)
    return *_away(d, up), w.is_peak & _at_peak(w, d)


def _at_peak(w: triangles.Window, d: Float[Array, "corners 3"]) -> Bool[Array, " corners"]:
    leads = jnp.sum((w.spokes - w.peak[:, None]) * d[:, None], axis=-1)
    of_border = ~jnp.all(w.has_spoke, axis=1)
    return jnp.all(~w.has_spoke | (leads <= 0), axis=1) & (of_border | (d[:, 2] > 0))


def _between(w: triangles.Window, d: Float[Array, "edges 3"], into: Float[Array, "edges 2 3"]) -> Bool[Array, " edges"]:
    """Whether a direction leads into neither of the faces beside an edge."""
    return jnp.all(~w.has_face | (jnp.sum(into * d[:, None], axis=-1) <= 0), axis=1)


def _away(d: Float[Array, "k 3"], otherwise: Float[Array, "k 3"]) -> tuple[Array, Array]:
    """Directions and lengths; where the length is zero, another direction."""
    square = jnp.sum(d * d, axis=-1)
    apart = square > 0
    length = jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1.0)), 0.0)
    size = jnp.sqrt(jnp.sum(otherwise * otherwise, axis=-1))
    other = otherwise / jnp.where(size > 0, size, 1.0)[:, None]
    return jnp.where(apart[:, None], d / jnp.where(apart, length, 1.0)[:, None], other), length


def _axis(B: Posed, c: Float[Array, " 3"], along: Float[Array, " 3"], size: Float[Array, " 3"]) -> Places:
    """Where the axis of a capsule passes edges that stick out, and corners, between its ends."""
    w = triangles.near(B, c, B.field.windows[1])
    p, e = w.ends[:, 0], w.ends[:, 1] - w.ends[:, 0]
    into, mean, sticks_out = triangles.inward(w)
    cross = rotation.cross(jnp.broadcast_to(along, e.shape), e)
    square = jnp.sum(cross * cross, axis=-1)
    crosses = square > PARALLEL * jnp.sum(e * e, axis=-1)
    safe = jnp.where(crosses, square, 1.0)
    beyond = -jnp.sum(jnp.where(w.has_face[..., None], into, 0.0), axis=1)  # of an edge of the border
    side = jnp.sum(cross * jnp.where(jnp.all(w.has_face, axis=1)[:, None], mean, beyond), axis=-1)
    normal = jnp.where(side < 0, -1.0, 1.0)[:, None] * cross / jnp.sqrt(safe)[:, None]
    d, ee, ea = c[None] - p, jnp.sum(e * e, axis=-1), matvec(e, along)
    t = (ea * jnp.sum(e * d, axis=-1) - ee * matvec(d, along)) / safe
    part = (jnp.sum(e * d, axis=-1) + t * ea) / ee
    inside = crosses & (jnp.abs(t) < size[1]) & (part > 0) & (part < 1)
    on_edges = c[None] + t[:, None] * along[None], normal, jnp.sum(normal * d, axis=-1)

    s = matvec(w.peak - c[None], along)
    at = c[None] + s[:, None] * along[None]
    up = jnp.broadcast_to(jnp.array([0.0, 0.0, 1.0], dtype=c.dtype), at.shape)
    on_corners = at, *_away(at - w.peak, up)
    deep = jnp.where(jnp.all(w.has_face, axis=1), -size[0], 0.0)  # what is below by more passes through another part
    live = sticks_out & inside & _between(w, normal, into) & (on_edges[2] > deep)
    live = jnp.concatenate([live, w.is_peak & (jnp.abs(s) < size[1]) & _at_peak(w, at - w.peak)])
    q, normal, distance = (jnp.concatenate(both) for both in zip(on_edges, on_corners, strict=True))
    return _least(q, normal, distance, live, OF_AXIS, w)


def _least(
    q: Float[Array, "k 3"],
    normal: Float[Array, "k 3"],
    distance: Float[Array, " k"],
    live: Bool[Array, " k"],
    count: int,
    w: triangles.Window,
) -> Places:
    """The places with the smallest distances, one of those that are alike."""
    foot, left, far = jax.lax.stop_gradient((q - distance[:, None] * normal, live, distance))
    chosen, exists = [], []
    for _ in range(count):
        first = jnp.argmin(jnp.where(left, far, jnp.inf))
        chosen.append(first)
        exists.append(left[first])
        left = left & (jnp.sum((foot - foot[first][None]) ** 2, axis=-1) > (_ALIKE * jnp.min(w.cell)) ** 2)
    which = jnp.stack(chosen)
    return q[which], normal[which], distance[which], jnp.stack(exists)
