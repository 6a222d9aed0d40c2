"""The kinds of pairs of surfaces: at how many places one may touch, where these are, and how far apart it surely is.

A pair always has the same number of places; those where it cannot touch in the present pose are not `live`. There is no
margin: a place with a gap is a place like any other, and whether the bodies reach it in a step is said by its row.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax

from .._typing import AnyArray, Array, Float
from . import (
    box,
    broad,
    capsule,
    capsule_cylinder,
    cylinder,
    height_field,
    plane,
    polyhedron,
    rounded,
    two_cylinders,
)
from .posed import Posed, Touch, axes_of

Which = Sequence[int] | AnyArray


class Most(NamedTuple):
    """The largest numbers of the meshes of a mechanism, which say how many places theirs have."""

    vertices: int
    corners: int  # of a facet


class Kind(NamedTuple):
    """What there is to know of two types of surfaces.

    `touch`: point, normal, gap and live of the places of one pair, from the first and the second surface; `places`: how
    many these are; `apart`: what the gap of some pairs is not below (`broad`).
    """

    touch: Callable[[Posed, Posed], tuple[Array, ...]]
    places: Callable[[Most], int]
    apart: Callable[..., Float[Array, " pairs"]] = broad.apart


KINDS = {
    ("sphere", "plane"): Kind(plane.sphere, lambda _: 1, broad.above),
    ("capsule", "plane"): Kind(plane.capsule, lambda _: 2, broad.above),
    ("box", "plane"): Kind(plane.box, lambda _: 8, broad.above),
    ("cylinder", "plane"): Kind(plane.cylinder, lambda _: 10, broad.above),
    ("mesh", "plane"): Kind(plane.mesh, lambda most: most.vertices, broad.above),
    ("sphere", "height_field"): Kind(height_field.sphere, lambda _: height_field.OF_BALL, broad.over),
    ("capsule", "height_field"): Kind(
        height_field.capsule, lambda _: 2 * height_field.OF_BALL + height_field.OF_AXIS, broad.over
    ),
    ("box", "height_field"): Kind(height_field.box, lambda _: 8, broad.over),
    ("cylinder", "height_field"): Kind(height_field.cylinder, lambda _: 12, broad.over),
    ("mesh", "height_field"): Kind(height_field.mesh, lambda most: most.vertices, broad.over),
    ("sphere", "sphere"): Kind(rounded.sphere_sphere, lambda _: 1),
    ("sphere", "capsule"): Kind(rounded.sphere_capsule, lambda _: 1),
    ("sphere", "cylinder"): Kind(rounded.sphere_cylinder, lambda _: 1),
    ("sphere", "box"): Kind(box.sphere_box, lambda _: 1),
    ("sphere", "mesh"): Kind(polyhedron.sphere_mesh, lambda _: 1),
    ("capsule", "capsule"): Kind(rounded.capsule_capsule, lambda _: 5),
    ("capsule", "cylinder"): Kind(capsule_cylinder.capsule_cylinder, lambda _: 7),
    ("capsule", "box"): Kind(capsule.capsule_box, lambda _: 5),
    ("capsule", "mesh"): Kind(capsule.capsule_mesh, lambda _: 5),
    ("cylinder", "cylinder"): Kind(two_cylinders.cylinder_cylinder, lambda _: two_cylinders.PLACES),
    ("cylinder", "box"): Kind(cylinder.cylinder_box, lambda _: cylinder.places(4)),
    ("cylinder", "mesh"): Kind(cylinder.cylinder_mesh, lambda most: cylinder.places(most.corners)),
    ("box", "box"): Kind(box.box_box, lambda _: 9),
    ("box", "mesh"): Kind(polyhedron.box_mesh, lambda most: 2 * most.corners + 1),
    ("mesh", "mesh"): Kind(polyhedron.mesh_mesh, lambda most: 2 * most.corners + 1),
}


def touches(kind: tuple[str, str], surfaces: Posed, first: Which, second: Which) -> Touch:
    """The places of all pairs of one kind, one below the other.

    **Arguments:** `kind`: types of the surfaces, a key of `KINDS`; `surfaces`: all, stacked; `first`, `second`: which
    of them the pairs are of, known when the program is built or found while it runs.
    """
    found = Touch(
        *jax.vmap(KINDS[kind].touch, in_axes=(axes_of(surfaces),) * 2)(surfaces.of(first), surfaces.of(second))
    )
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), found)
