"""Surfaces in the world, and the places at which two of them may touch."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import AnyArray, Array, Bool, Float, Int
from ..math.blocks import chosen


class Polyhedron(eqx.Module):
    """A convex polyhedron in its own axes. Several in one array are filled up: facets by their last corner, lists by
    their first entry."""

    vertices: Float[Array, "vertices 3"]  # [m]
    is_vertex: Bool[Array, " vertices"]
    facets: Float[Array, "facets corners 3"]  # seen from outside anticlockwise [m]
    normals: Float[Array, "facets 3"]  # outwards
    edges: Float[Array, "edges 2 3"]  # both ends [m]
    sides: Float[Array, "edges 2 3"]  # normals of the facets on both sides


class Grid(eqx.Module):
    """The heights of a surface that is a height field; `heights`: of all fields, filled up to the largest."""

    heights: Float[Array, "fields rows columns"]  # [m]
    number: Int[Array, ""]  # of its own heights
    cells: Int[Array, " 2"]  # along x and y
    windows: tuple[int, int] = eqx.field(static=True)  # cells to every side that a ball reaches, and a capsule


class Posed(eqx.Module):
    """A surface in the world. `size`: half lengths of a box or field, (radius, half length) of what is round, zeros.

    `mesh`: where some surface is one; of the others the numbers are any. Nothing of it is differentiated. `grid`: the
    same of height fields.
    """

    r: Float[Array, " 3"]  # centre [m]
    R: Float[Array, "3 3"]  # its axes are the columns
    size: Float[Array, " 3"]  # [m]
    mesh: Polyhedron | None = None
    grid: Grid | None = None

    def of(self, which: Sequence[int] | AnyArray) -> "Posed":
        """Some of several surfaces, known when the program is built or found while it runs."""
        alone = dataclasses.replace(self, grid=None)
        found = jax.tree.map(lambda a: chosen(a, which), alone)
        if self.grid is None:
            return found
        own = chosen(self.grid.number, which), chosen(self.grid.cells, which)
        return dataclasses.replace(found, grid=Grid(self.grid.heights, *own, self.grid.windows))

    @property
    def field(self) -> Grid:
        """The grid of a surface that is a height field."""
        assert self.grid is not None
        return self.grid

    @property
    def solid(self) -> Polyhedron:
        """The mesh of a surface that is one."""
        assert self.mesh is not None
        return self.mesh


def axes_of(surfaces: Posed) -> Posed:
    """Which axes of several surfaces to map over: the first of all but the heights, which they share."""
    axes = jax.tree.map(lambda _: 0, surfaces)
    return axes if surfaces.grid is None else eqx.tree_at(lambda s: s.grid.heights, axes, None)


class Touch(NamedTuple):
    """Places of one pair: the `normal` points from the second surface to the first, a negative `gap` is an overlap."""

    point: Float[Array, "points 3"]  # world [m]
    normal: Float[Array, "points 3"]
    gap: Float[Array, " points"]  # [m]
    live: Bool[Array, " points"]


# of a cube: signs of the corners; of the facets across x, y, z, on the negative side first; of the edges
_SQUARE = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
_SIDES_OF_CUBE = [(axis, sign) for axis in range(3) for sign in (-1.0, 1.0)]
_NORMALS = np.array([sign * np.eye(3)[axis] for axis, sign in _SIDES_OF_CUBE])
_FACETS = np.array([_SQUARE[:: int(sign)] @ np.roll(np.eye(3), -axis - 1, axis=0)[:2] for axis, sign in _SIDES_OF_CUBE])
_FACETS = _FACETS + _NORMALS[:, None]


def _edges_of_cube() -> tuple[np.ndarray, np.ndarray]:
    ends, sides = [], []
    for axis in range(3):
        along, (u, w) = np.eye(3)[axis], (np.eye(3)[(axis + k) % 3] for k in (1, 2))
        for a, b in _SQUARE:
            ends.append([a * u + b * w - along, a * u + b * w + along])
            sides.append([a * u, b * w])
    return np.array(ends), np.array(sides)


_EDGES, _SIDES = _edges_of_cube()


def cube(size: Float[Array, " 3"], corners: int = 4) -> Polyhedron:
    """A box of these half lengths, with facets filled up to so many corners."""
    facets = _FACETS[:, [*range(4), *[3] * (corners - 4)]]
    vertices = _EDGES[:4].reshape(8, 3)
    signs = (a.astype(size.dtype) for a in (vertices, facets, _NORMALS, _EDGES, _SIDES))
    vertices, facets, normals, edges, sides = map(jnp.asarray, signs)
    return Polyhedron(
        vertices * size[None],
        jnp.ones(8, dtype=bool),
        facets * size[None, None],
        normals,
        edges * size[None, None],
        sides,
    )
