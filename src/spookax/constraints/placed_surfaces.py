"""Surfaces of a mechanism in the world, and the places at which pairs of them may touch."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float
from ..collision import Grid, Most, Polyhedron, Posed, Touch, touches
from ..math import rotation
from ..math.blocks import joined
from ..math.product import matmul, matvec
from ..scene.hulls import Hull
from ..system import Params, System
from ..system.contact_pairs import Contacts, most_of
from .contact_jacobian import to_points
from .contact_slots import Chosen


def surfaces(system: System, params: Params, r: Float[Array, "bodies 3"], e: Float[Array, "bodies 4"]) -> Posed:
    """All surfaces in the world."""
    of = [surface.body % (system.num_bodies + 1) for surface in system.contacts.surfaces]
    R = jnp.concatenate([rotation.matrix(e), jnp.eye(3, dtype=r.dtype)[None]])[np.array(of)]
    origin = jnp.concatenate([r, jnp.zeros_like(r[:1])])[np.array(of)]
    com = jnp.concatenate([params.com, jnp.zeros_like(r[:1])])[np.array(of)]
    turned = matmul(R, rotation.matrix(rotation.exp(params.surface_turn)))
    boxes = np.array([surface.type in ("box", "mesh", "height_field") for surface in system.contacts.surfaces])[:, None]
    halves = params.surface_size * np.where(boxes, 0.5, [1.0, 0.5, 1.0]).astype(params.surface_size.dtype)
    return Posed(
        origin + matvec(R, params.surface_at - com),
        turned,
        halves,
        meshes([surface.hull for surface in system.contacts.surfaces], r.dtype),
        _grid(system.contacts, params),
    )


def _grid(contacts: Contacts, params: Params) -> Grid | None:
    """The height fields of all surfaces; of those that are none any."""
    if params.heights is None:
        return None
    fields = [i for i, surface in enumerate(contacts.surfaces) if surface.cells]
    number = np.array([fields.index(i) if i in fields else 0 for i in range(len(contacts.surfaces))])
    cells = np.array([surface.cells or (1, 1) for surface in contacts.surfaces])
    return Grid(params.heights, jnp.asarray(number), jnp.asarray(cells), contacts.windows)


def places(system: System, posed: Posed, chosen: Chosen) -> Touch:
    """All places of the pairs that are looked at; gaps are those to their margins."""
    parts, begin = [], 0
    for kind, count in zip(system.contacts.kinds, chosen.counts, strict=True):
        first, second = chosen.surfaces[begin : begin + count].T
        parts.append(touches(kind, posed, first, second))
        begin += count
    found = jax.tree.map(lambda *a: joined(a), *parts)
    margins = np.array([surface.margin for surface in system.contacts.surfaces])
    if np.any(margins):
        of_pairs = jnp.sum(jnp.asarray(margins, found.gap.dtype)[chosen.surfaces], axis=1)
        found = found._replace(gap=found.gap - to_points(system, of_pairs))
    return found if chosen.filled is None else found._replace(live=found.live & to_points(system, chosen.filled))


def meshes(hulls: Sequence[Hull | None], dtype: Any) -> Polyhedron | None:
    """The polyhedra of some surfaces, filled up to the size of the largest; of those without a mesh any."""
    known = [hull for hull in hulls if hull]
    if not known:
        return None
    most = most_of(known)
    num_facets, num_edges = (max(len(getattr(hull, key)) for hull in known) for key in ("facets", "edges"))
    each = [_filled_up(hull or known[0], most, num_facets, num_edges) for hull in hulls]
    stacked = {name: np.stack([parts[name] for parts in each]) for name in each[0]}
    return Polyhedron(**{name: jnp.asarray(a, None if a.dtype == bool else dtype) for name, a in stacked.items()})


def _filled_up(hull: Hull, most: Most, num_facets: int, num_edges: int) -> dict[str, np.ndarray]:
    """The arrays of a `Polyhedron`."""
    vertices = np.array(hull.vertices)
    corners = [[*facet, *[facet[-1]] * (most.corners - len(facet))] for facet in hull.facets]
    facets = vertices[np.array(corners)]
    normals = np.cross(facets[:, 1] - facets[:, 0], facets[:, 2] - facets[:, 1])
    normals = normals / np.linalg.norm(normals, axis=1, keepdims=True)
    edges, sides = (np.array(hull.edges)[:, i : i + 2] for i in (0, 2))

    def filled(a: np.ndarray, count: int) -> np.ndarray:
        return a[[*range(len(a)), *[0] * (count - len(a))]]

    return {
        "vertices": filled(vertices, most.vertices),
        "is_vertex": np.arange(most.vertices) < len(vertices),
        "facets": filled(facets, num_facets),
        "normals": filled(normals, num_facets),
        "edges": filled(vertices[edges], num_edges),
        "sides": filled(normals[sides], num_edges),
    }
