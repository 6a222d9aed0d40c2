"""The places at which a pair of surfaces may touch, one function for every pair of types.

A pair always has the same number of places; those where it cannot touch in the present pose are not `live`. There is no
margin: a place with a gap is a place like any other, and whether the bodies reach it in a step is said by its row.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax

from .._typing import Array, Bool, Float, Int
from ..math.blocks import gathered, take
from . import box, mesh, plane, rounded

Which = Sequence[int] | Int[Array, " pairs"]


class Mesh(eqx.Module):
    """A convex mesh in its own axes, filled up by its first vertex and triangle. Nothing of it is differentiated."""

    vertices: Float[Array, "vertices 3"]  # [m]
    is_vertex: Bool[Array, " vertices"]
    triangles: Float[Array, "triangles 3 3"]  # corners, seen from outside anticlockwise [m]


class Posed(eqx.Module):
    """A surface in the world. `size`: half lengths of a box, (radius, half length) of what is round, then zeros.

    `mesh`: where some surface is one; of the others the numbers are any.
    """

    r: Float[Array, " 3"]  # centre [m]
    R: Float[Array, "3 3"]  # its axes are the columns
    size: Float[Array, " 3"]  # [m]
    mesh: Mesh | None = None


class Touch(NamedTuple):
    """Places of one pair: the `normal` points from the second surface to the first, a negative `gap` is an overlap."""

    point: Float[Array, "points 3"]  # world [m]
    normal: Float[Array, "points 3"]
    gap: Float[Array, " points"]  # [m]
    live: Bool[Array, " points"]


_OF_KIND = {
    ("sphere", "plane"): plane.sphere,
    ("capsule", "plane"): plane.capsule,
    ("box", "plane"): plane.box,
    ("cylinder", "plane"): plane.cylinder,
    ("mesh", "plane"): plane.mesh,
    ("sphere", "sphere"): rounded.sphere_sphere,
    ("sphere", "capsule"): rounded.sphere_capsule,
    ("sphere", "cylinder"): rounded.sphere_cylinder,
    ("sphere", "box"): box.sphere_box,
    ("sphere", "mesh"): mesh.sphere_mesh,
    ("capsule", "capsule"): rounded.capsule_capsule,
    ("capsule", "box"): box.capsule_box,
    ("box", "box"): box.box_box,
}


def touches(kind: tuple[str, str], surfaces: Posed, first: Which, second: Which) -> Touch:
    """The places of all pairs of one kind, one below the other.

    **Arguments:** `kind`: types of the surfaces, a key of `spookax.scene.contacts.POINTS`; `surfaces`: all, stacked;
    `first`, `second`: which of them the pairs are of, known when the program is built or found while it runs.
    """
    A, B = (jax.tree.map(lambda a: _at(a, which), surfaces) for which in (first, second))  # noqa: B023
    found = Touch(*jax.vmap(_OF_KIND[kind])(A, B))
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), found)


def _at(values: Array, which: Which) -> Array:
    return gathered(values, which) if isinstance(which, jax.Array) else take(values, which)
