"""The section `contacts` of a scene: surfaces of bodies and of the world that touch, and what they are made of."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from spookax.scene.explain import Finding, nearest, refuse, shown
from spookax.scene.fields import Name, NonNegative, Positive, Strict
from spookax.scene.height_fields import HeightField
from spookax.scene.hulls import refusal
from spookax.scene.joint_types import kind_of
from spookax.scene.shapes import Box, Capsule, Cylinder, Mesh, Placed, Sphere

DEFAULT = "default"
WORLD = "world"
_OF_THE_WORLD = ("plane", "height_field")

# Pairs of types of surfaces that can touch; `spookax.collision.KINDS` says where.
KINDS = (
    ("sphere", "plane"),
    ("capsule", "plane"),
    ("box", "plane"),
    ("cylinder", "plane"),
    ("mesh", "plane"),
    ("sphere", "height_field"),
    ("capsule", "height_field"),
    ("box", "height_field"),
    ("cylinder", "height_field"),
    ("mesh", "height_field"),
    ("sphere", "sphere"),
    ("sphere", "capsule"),
    ("sphere", "cylinder"),
    ("sphere", "box"),
    ("sphere", "mesh"),
    ("capsule", "capsule"),
    ("capsule", "cylinder"),
    ("capsule", "box"),
    ("capsule", "mesh"),
    ("cylinder", "cylinder"),
    ("cylinder", "box"),
    ("cylinder", "mesh"),
    ("box", "box"),
    ("box", "mesh"),
    ("mesh", "mesh"),
)

_TYPES = {kind for pair in KINDS for kind in pair}


class Material(Strict):
    """What a surface is made of. For a pair the numbers of both sides are combined, see `Contacts.combine`."""

    friction: NonNegative = Field(default=0.5, description="Coefficient of dry friction (no unit)")
    restitution: NonNegative = Field(
        default=0.0, le=1.0, description="Speed after an impact relative to that before (no unit)"
    )
    spinning_friction: NonNegative = Field(
        default=0.0, description="Largest torque against spinning on the spot, per normal force [m]"
    )
    rolling_friction: NonNegative = Field(
        default=0.0, description="Largest torque against rolling, per normal force [m]"
    )


class _Touches(Strict):
    body: Name = Field(default=WORLD, description="Name of a body, or `world`")
    material: Name = Field(default=DEFAULT, description="Name of a material")
    group: Name | None = Field(default=None, description="Surfaces of one group do not touch each other")
    margin: NonNegative = Field(
        default=0.0, description="Distance at which it is touched already; those of two surfaces add up [m]"
    )


class Plane(_Touches, Placed):
    """A plane through `at`; what is solid lies on the side of local -z."""

    type: Literal["plane"] = Field(description="A plane across local z, solid below")


class SphereSurface(_Touches, Sphere):
    """A sphere that touches."""


class CapsuleSurface(_Touches, Capsule):
    """A capsule that touches."""


class CylinderSurface(_Touches, Cylinder):
    """A cylinder that touches."""


class BoxSurface(_Touches, Box):
    """A box that touches."""


class HeightFieldSurface(_Touches, HeightField):
    """A height field of the world that touches."""


class MeshSurface(_Touches, Mesh):
    """A convex mesh that touches."""

    hull: bool = Field(default=False, description="Let its convex hull touch if it is not convex, or not closed")

    @pydantic.model_validator(mode="after")
    def _convex(self) -> "MeshSurface":
        if (wrong := refusal(self, self.hull)) is not None:
            refuse([Finding(("file",), self.file, *wrong)])
        return self


Surface = Annotated[
    Plane | SphereSurface | CapsuleSurface | CylinderSurface | BoxSurface | MeshSurface | HeightFieldSurface,
    Field(discriminator="type"),
]


class Contacts(Strict):
    """Surfaces that touch."""

    surfaces: dict[Name, Surface] = Field(description="Surfaces by name", min_length=1)
    materials: dict[Name, Material] = Field(
        default_factory=dict, description="Materials by name; `default` is that of surfaces that name none"
    )
    combine: Literal["mean", "product", "min", "max"] = Field(
        default="mean", description="How friction and restitution of a pair follow from those of both sides"
    )
    pairs: list[tuple[Name, Name]] | None = Field(
        default=None, description="The pairs of surfaces that touch, if not all that may"
    )
    relative_compliance: Positive = Field(
        default=1e-3, description="Compliance of contacts, relative to 1/m of the bodies (no unit)"
    )
    relaxation_steps: NonNegative = Field(default=2.0, description="Time steps in which an overlap decays (steps)")
    recovery_speed: Positive = Field(default=0.5, description="Largest speed at which an overlap is led back [m/s]")
    passes: Annotated[int, pydantic.Field(strict=True, ge=1, le=20)] | Literal["settled"] = Field(
        default=3,
        description="Times that a step is solved where the speed of slip has changed in it (no unit), or `settled`: "
        "until it changes no more",
    )
    friction: Literal["cone", "pyramid"] = Field(
        default="cone",
        description="The bound of friction: Coulomb's cone, or a pyramid of four sides solved by Lemke's method, a "
        "reference for few contacts",
    )
    slots: Annotated[int, pydantic.Field(strict=True, ge=1)] | None = Field(
        default=None,
        description="Pairs of one kind (box on box, ...) that may be near each other at a time; four for every body, "
        "or all pairs where these are fewer (no unit)",
    )

    @pydantic.model_validator(mode="after")
    def _default_material(self) -> "Contacts":
        if DEFAULT not in self.materials:
            object.__setattr__(self, "materials", {DEFAULT: Material(), **self.materials})
            self.model_fields_set.add("materials")
        refuse(contact_rules(self.model_dump(), None, None))
        refuse(self._pyramid_rules())
        return self

    def _pyramid_rules(self) -> Iterator[Finding]:
        """What the pyramid cannot be combined with."""
        if self.friction != "pyramid":
            return
        for key in {"passes", "slots"} & self.model_fields_set:
            yield Finding((key,), getattr(self, key), "means nothing beside `friction: pyramid`", f"Leave `{key}` out.")
        for name, material in self.materials.items():
            for key in ("spinning_friction", "rolling_friction"):
                if (value := getattr(material, key)) > 0:
                    message = "a pyramid (`friction: pyramid`) is of sliding friction alone"
                    yield Finding(("materials", name, key), value, message, "Take the cone, or leave this out.")


def kind_of_pair(first: str, second: str) -> tuple[str, str] | None:
    """The one of `KINDS` for two types of surfaces, in either order; None if they cannot touch."""
    return next((key for key in ((first, second), (second, first)) if key in KINDS), None)


def pairs_of(contacts: Mapping[str, Any], joined: Iterable[frozenset[str]]) -> list[tuple[str, str]]:
    """The pairs of surfaces that may touch, in the order of the file: those named, or all of different bodies that no
    joint connects, not of one group, and of types that can touch.

    **Arguments:** `contacts`: raw data; `joined`: pairs of bodies (or the world) with a joint.
    """
    surfaces: dict[str, Any] = contacts["surfaces"]
    if contacts.get("pairs") is not None:
        return [(first, second) for first, second in contacts["pairs"]]
    apart = set(joined)

    def may(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
        bodies = frozenset((a.get("body", WORLD), b.get("body", WORLD)))
        group = a.get("group") is not None and a.get("group") == b.get("group")
        return len(bodies) == 2 and bodies not in apart and not group and kind_of_pair(a["type"], b["type"]) is not None

    return [(m, n) for m, n in combinations(surfaces, 2) if may(surfaces[m], surfaces[n])]


def contact_rules(contacts: Any, bodies: Iterable[str] | None, joints: Any) -> Iterator[Finding]:
    """Bodies and materials exist; named pairs are of two bodies and of types that can touch; something can."""
    if not isinstance(contacts, dict) or not isinstance(contacts.get("surfaces"), dict):
        return
    surfaces: dict[str, Any] = {n: s for n, s in contacts["surfaces"].items() if isinstance(s, dict)}
    materials = contacts.get("materials")
    known = [DEFAULT, *(materials if isinstance(materials, dict) else {})]
    for name, surface in surfaces.items():
        body, material = surface.get("body", WORLD), surface.get("material", DEFAULT)
        if bodies is not None and isinstance(body, str) and body != WORLD and body not in bodies:
            cure = nearest(body, [WORLD, *bodies])
            yield Finding(("surfaces", name, "body"), body, f"there is no body {shown(body)}", cure)
        if isinstance(material, str) and material not in known:
            cure = nearest(material, known)
            yield Finding(("surfaces", name, "material"), material, f"there is no material {shown(material)}", cure)
        if (kind := surface.get("type")) in _OF_THE_WORLD and body != WORLD:
            cure = "Fix it in the world, or give the body a box."
            message = f"a {str(kind).replace('_', ' ')} belongs to the world"
            yield Finding(("surfaces", name, "body"), body, message, cure)
    pairs = contacts.get("pairs")
    listed: list[Any] = list(pairs) if isinstance(pairs, list | tuple) else []
    for index, pair in enumerate(listed):
        if isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(name, str) for name in pair):
            yield from _pair_rules(("pairs", index), pair, surfaces)
    whole = len(surfaces) == len(contacts["surfaces"]) and all("type" in s for s in surfaces.values())
    if pairs is None and bodies is not None and whole and not pairs_of({"surfaces": surfaces}, joined_bodies(joints)):
        cure = "Add a surface of another body or of the world, such as `floor: {type: plane}`."
        yield Finding(("surfaces",), None, "no two of them can touch", cure)


def _pair_rules(loc: tuple[str | int, ...], pair: Any, surfaces: Mapping[str, Any]) -> Iterator[Finding]:
    missing = [name for name in pair if name not in surfaces]
    for name in missing:
        yield Finding(loc, name, f"there is no surface {shown(name)}", nearest(name, surfaces))
    if missing:
        return
    a, b = (surfaces[name] for name in pair)
    if a.get("body", WORLD) == b.get("body", WORLD):
        yield Finding(loc, list(pair), "both surfaces are of one body", "Name surfaces of two bodies.")
    elif kind_of_pair(str(a.get("type")), str(b.get("type"))) is None:
        known = ", ".join(" on ".join(kind) for kind in KINDS)
        message = f"a {a.get('type')} and a {b.get('type')} cannot touch"
        yield Finding(loc, list(pair), message, f"These can: {known}.")


def force_rules(sensor: Any, contacts: Any, joints: Any) -> Iterator[Finding]:
    """What a sensor of type `contact_force` names: a surface or a body, which something may touch."""
    if not isinstance(sensor, dict) or sensor.get("type") != "contact_force":
        return
    surfaces = contacts.get("surfaces") if isinstance(contacts, dict) else None
    known: dict[str, Any] = {n: s for n, s in surfaces.items() if isinstance(s, dict)} if surfaces else {}
    surface, body, against = (sensor.get(key) for key in ("surface", "body", "against"))
    if (surface is None) == (body is None):
        message = "one of `surface` and `body` says what feels the force"
        yield Finding((), None, message, "Name one of the two.")
        return
    missing = {k: n for k, n in (("surface", surface), ("against", against)) if isinstance(n, str) and n not in known}
    for key, name in missing.items():
        yield Finding((key,), name, f"there is no surface {shown(name)}", nearest(name, known))
    if missing or not all(s.get("type") in _TYPES for s in known.values()):
        return
    mine = {n for n, s in known.items() if n == surface or (body is not None and s.get("body", WORLD) == body)}
    others = set(known) if against is None else {against}
    pairs = pairs_of({**contacts, "surfaces": known}, joined_bodies(joints)) if known else []
    if not any((a in mine and b in others) or (b in mine and a in others) for a, b in pairs):
        of = f"surface {shown(surface)}" if body is None else f"body {shown(body)}"
        what = "nothing" if against is None else f"surface {shown(against)} does not"
        verb = "may touch" if against is None else "touch"
        yield Finding((), None, f"{what} {verb} {of}", "Name what the pairs of `contacts` let touch.")


def joined_bodies(joints: Any) -> set[frozenset[str]]:
    """Pairs of bodies (or the world) that a joint holds together in any way, from raw data."""
    found = [j for j in (joints.values() if isinstance(joints, dict) else ()) if isinstance(j, dict)]
    kinds = [(j, kind_of(j)) for j in found]
    ends = [(j.get("parent", WORLD), j.get("child")) for j, kind in kinds if kind is not None and kind.rows]
    return {frozenset((a, b)) for a, b in ends if isinstance(a, str) and isinstance(b, str)}
