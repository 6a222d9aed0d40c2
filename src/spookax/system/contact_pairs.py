"""What stays of the contacts of a mechanism: surfaces, the pairs of them that may touch, and their places.

Few pairs have places of their own, each. Where there are many, a fixed number of slots holds those that are near each
other at the time, of every kind as many as `contacts.slots` says.
"""

import dataclasses
import functools
import itertools
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from .._typing import AnyArray
from ..collision import KINDS, Most
from ..scene.contacts import (
    CapsuleSurface,
    HeightFieldSurface,
    SphereSurface,
    joined_bodies,
    kind_of_pair,
    pairs_of,
)
from ..scene.height_fields import heights_of, window
from ..scene.hulls import Hull, hull_of
from ..scene.model import Scene

Kind = tuple[str, str]
_SETTLING = 100  # passes, each of which leaves a part mu^2 / (1 + mu^2) of a point's change of slip
_NEAR = 4  # pairs of one kind near each other, for every body that has such: settled heaps of balls or boxes have three


@dataclasses.dataclass(frozen=True)
class Surface:
    """A surface of a body (-1: the world); `material`: its number; `hull`: of a mesh; `cells`: of a height field, along
    x and y; `margin`: at which it is touched [m]."""

    name: str
    type: str
    body: int
    material: int
    hull: Hull | None = None
    cells: tuple[int, int] | None = None
    margin: float = 0.0


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two surfaces that may touch, by their numbers, in the order of their `kind`."""

    first: int
    second: int
    kind: Kind


@dataclasses.dataclass(frozen=True)
class Group:
    """The pairs of one kind: the number of the first, how many there are, how many of these are looked at in a step
    and the places of each."""

    kind: Kind
    begin: int
    pairs: int
    looked_at: int
    places: int


@dataclasses.dataclass(frozen=True)
class Contacts:
    """Surfaces and pairs; pairs of one kind follow each other, and so do the places of a pair.

    `combine`: how numbers of two materials become one; `passes`: times that a step is solved where slip has changed,
    `settled`: until it changes no more; `pyramid`: friction has a pyramid in place of the cone;
    `bounces`: impacts are elastic in part; `turns`: spinning or rolling is resisted. `slots`: how many pairs of every
    kind are looked at in a step; none where all are. `windows`: how many cells of a height field a ball or the end of a
    capsule reaches to every side, and a capsule from its middle.
    """

    surfaces: tuple[Surface, ...] = ()
    pairs: tuple[Pair, ...] = ()
    materials: tuple[str, ...] = ()
    combine: str = "mean"
    passes: int = 1
    settled: bool = False
    pyramid: bool = False
    bounces: bool = False
    turns: bool = False
    slots: tuple[int, ...] = ()
    windows: tuple[int, int] = (1, 1)

    @functools.cached_property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(dict.fromkeys(pair.kind for pair in self.pairs))

    @functools.cached_property
    def groups(self) -> tuple[Group, ...]:
        """The pairs by their kinds."""
        found, begin = [], 0
        most = most_of([surface.hull for surface in self.surfaces if surface.hull])
        for i, kind in enumerate(self.kinds):
            count = sum(pair.kind == kind for pair in self.pairs)
            looked_at = self.slots[i] if self.slots else count
            found.append(Group(kind, begin, count, looked_at, KINDS[kind].places(most)))
            begin += count
        return tuple(found)

    @functools.cached_property
    def pair_of_point(self) -> tuple[int, ...]:
        """The pair of every place, where every pair has places."""
        numbers = [(group.begin + i, group.places) for group in self.groups for i in range(group.pairs)]
        return tuple(pair for pair, places in numbers for _ in range(places))

    @functools.cached_property
    def bodies_of_points(self) -> tuple[tuple[int, int], ...]:
        """Bodies of the first and the second surface at every place."""
        ends = [(self.surfaces[p.first].body, self.surfaces[p.second].body) for p in self.pairs]
        return tuple(ends[i] for i in self.pair_of_point)

    @property
    def num_points(self) -> int:
        """Places of a step."""
        return sum(group.looked_at * group.places for group in self.groups)

    def places(self, pairs: AnyArray) -> AnyArray:
        """The pair of every place, (..., points), from those in slots, (..., slots); -1 in an empty slot."""
        if not self.slots:
            return np.broadcast_to(np.array(self.pair_of_point, dtype=int), (*pairs.shape[:-1], self.num_points))
        places = [group.places for group in self.groups for _ in range(group.looked_at)]
        slot_of_point = np.repeat(np.arange(len(places)), places)
        return pairs[..., slot_of_point]

    @functools.cached_property
    def ends(self) -> np.ndarray:
        """Numbers of the surfaces of every pair, (pairs, 2)."""
        return np.array([(pair.first, pair.second) for pair in self.pairs], dtype=int).reshape(-1, 2)

    def signs(self, own: Collection[int], others: Collection[int]) -> np.ndarray:
        """Of every pair 1 if its force is on one of the surfaces `own` and from one of `others`, -1 if it is the other
        way round, else 0; and 0 for an empty slot, which is the last."""
        ends = self.ends.tolist()
        return np.array([*(float(a in own and b in others) - float(b in own and a in others) for a, b in ends), 0.0])

    @functools.cached_property
    def sides(self) -> tuple[tuple[int, int], ...]:
        """(place, body) of every Jacobian: first those of the first surfaces, then those of the second."""
        return tuple(
            (point, ends[side])
            for side in (0, 1)
            for point, ends in enumerate(self.bodies_of_points)
            if ends[side] >= 0
        )

    @functools.cached_property
    def is_first(self) -> np.ndarray:
        """Which of `sides` are of the first surface."""
        return np.arange(len(self.sides)) < sum(a >= 0 for a, _ in self.bodies_of_points)

    def sides_of_bodies(self, count: int) -> tuple[tuple[int, ...], ...]:
        """Numbers of the sides of every body."""
        return tuple(tuple(i for i, (_, body) in enumerate(self.sides) if body == b) for b in range(count))

    def sides_of_points(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the sides of every place."""
        return tuple(tuple(i for i, (p, _) in enumerate(self.sides) if p == point) for point in range(self.num_points))

    @functools.cached_property
    def crossings(self) -> tuple[tuple[int, int], ...]:
        """Pairs of sides of the places between two bodies, both ways."""
        of = self.sides_of_points()
        return tuple((i, j) for both in of if len(both) == 2 for i, j in itertools.permutations(both))

    @property
    def touching_bodies(self) -> set[tuple[int, int]]:
        """Pairs of bodies that may touch, the world left out."""
        return {(min(ends), max(ends)) for ends in self.bodies_of_points if min(ends) >= 0}


NO_CONTACTS = Contacts()


def most_of(hulls: Sequence[Hull]) -> Most:
    """The largest numbers of some meshes, and of a box with facets beside theirs."""
    corners = [len(facet) for hull in hulls for facet in hull.facets]
    return Most(max((len(hull.vertices) for hull in hulls), default=0), max(4, *corners, 0))


def contacts_of(scene: Scene, number: Mapping[str, int], unknown: frozenset[str]) -> Contacts:
    """The static half of a scene's contacts. `number`: of bodies and the world; `unknown`: paths, as for `build`."""
    found = scene.contacts
    if found is None:
        return NO_CONTACTS
    materials = tuple(found.materials)
    fields = {name: s for name, s in found.surfaces.items() if isinstance(s, HeightFieldSurface)}
    cells = {name: (len(z[0]) - 1, len(z) - 1) for name, z in ((n, heights_of(s)) for n, s in fields.items())}
    surfaces = tuple(
        Surface(
            name,
            s.type,
            number[s.body],
            materials.index(s.material),
            hull_of(s) if s.type == "mesh" else None,
            cells.get(name),
            s.margin,
        )
        for name, s in found.surfaces.items()
    )
    index = {surface.name: i for i, surface in enumerate(surfaces)}
    joined = joined_bodies({name: joint.model_dump() for name, joint in scene.joints.items()})
    pairs = []
    for names in pairs_of(found.model_dump(), joined):
        first, second = (surfaces[index[name]] for name in names)
        kind = kind_of_pair(first.type, second.type)
        assert kind is not None  # refused when the scene was read
        swapped = first.type != kind[0]
        a, b = (index[name] for name in (reversed(names) if swapped else names))
        pairs.append(Pair(a, b, kind))
    pairs.sort(key=lambda pair: list(KINDS).index(pair.kind))

    def some(*keys: str) -> bool:
        """Whether a number of a material is positive or unknown."""
        each = [(name, material, key) for name, material in found.materials.items() for key in keys]
        return any(getattr(m, key) > 0 or f"contacts.materials.{name}.{key}" in unknown for name, m, key in each)

    bounces, turns = some("restitution"), some("spinning_friction", "rolling_friction")
    slots = _slots(surfaces, pairs, found.slots)
    round_ones = [s for s in found.surfaces.values() if isinstance(s, SphereSurface | CapsuleSurface)]
    ball = max((s.radius for s in round_ones), default=0.0)
    capsules = [s for s in round_ones if isinstance(s, CapsuleSurface)]
    whole = max((s.radius + s.length / 2 for s in capsules), default=0.0)
    windows = [max((window(s.size, cells[n], reach) for n, s in fields.items()), default=1) for reach in (ball, whole)]
    pyramid = found.friction == "pyramid"
    passes = 1 if pyramid else _SETTLING if found.passes == "settled" else found.passes
    settled, bounces = found.passes == "settled", bounces and bool(pairs)
    return Contacts(
        surfaces,
        tuple(pairs),
        materials,
        found.combine,
        passes,
        settled,
        pyramid,
        bounces,
        turns,
        slots,
        (windows[0], windows[1]),
    )


def _slots(surfaces: tuple[Surface, ...], pairs: list[Pair], given: int | None) -> tuple[int, ...]:
    """Slots for the pairs of every kind, `given` for each or so many for every body; none where all pairs fit in."""
    found = []
    kinds = dict.fromkeys(pair.kind for pair in pairs)
    for kind in kinds:
        of_kind = [pair for pair in pairs if pair.kind == kind]
        bodies = {surfaces[i].body for pair in of_kind for i in (pair.first, pair.second)} - {-1}
        found.append(min(len(of_kind), _NEAR * len(bodies) if given is None else given))
    return () if sum(found) == len(pairs) else tuple(found)
