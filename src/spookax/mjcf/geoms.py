"""Surfaces of a scene that touch, as geoms of MJCF that collide in named pairs only."""

from collections.abc import Mapping
from xml.etree import ElementTree as Xml

import numpy as np

from spookax.mjcf.elements import placed, primitive, text
from spookax.mjcf.frame_poses import Pose
from spookax.mjcf.missing import Report
from spookax.scene import Scene
from spookax.scene.contacts import WORLD, Contacts, joined_bodies, pairs_of
from spookax.scene.height_fields import HeightField, heights_of

_SHOWN, _HIDDEN = "0", "3"  # groups of MuJoCo's viewers; what is seen of bodies is written as their shapes
_BASE = 1.0  # how far a height field of MJCF is solid below; here it is without end [m]
_MIXED = {"mean": lambda a, b: (a + b) / 2, "product": lambda a, b: a * b, "min": min, "max": max}


def write_surfaces(
    scene: Scene,
    contacts: Contacts,
    bodies: Mapping[str, Xml.Element],
    root: Xml.Element,
    asset: Xml.Element,
    report: Report,
) -> None:
    """A geom for every surface, in the elements of `bodies` (`world` among them), a pair for every two that touch."""
    meshes = {name for name, surface in contacts.surfaces.items() if surface.type == "mesh"}
    for name in sorted(meshes):
        report.add(f"contacts.surfaces.{name}", "a mesh that touches is not written", "Use a primitive.")
    for name, surface in contacts.surfaces.items():
        if name in meshes:
            continue
        filters = {"contype": "0", "conaffinity": "0", "group": _SHOWN if surface.body == WORLD else _HIDDEN}
        if isinstance(surface, HeightField):
            shape, pose = _height_field(name, surface, asset)
        else:
            shape, pose = primitive(surface) or {}, Pose.placed(surface.at, surface.rotation)
        own = {"margin": text(surface.margin)} if surface.margin else {}
        Xml.SubElement(bodies[surface.body], "geom", {"name": name, **shape, **placed(pose), **filters, **own})
    element, friction = Xml.SubElement(root, "contact"), _MIXED[contacts.combine]
    joints = {name: joint.model_dump() for name, joint in scene.joints.items()}
    for pair in pairs_of(contacts.model_dump(), joined_bodies(joints)):
        if meshes & set(pair):
            continue
        a, b = (contacts.materials[contacts.surfaces[name].material] for name in pair)
        slides, spins, rolls = (
            friction(x, y)
            for x, y in (
                (a.friction, b.friction),
                (a.spinning_friction, b.spinning_friction),
                (a.rolling_friction, b.rolling_friction),
            )
        )
        dim = 6 if rolls > 0 else 4 if spins > 0 else 3 if slides > 0 else 1
        said = (
            {"condim": str(dim), "friction": text((slides, slides, spins, rolls, rolls))}
            if dim > 1
            else {"condim": "1"}
        )
        margin = sum(contacts.surfaces[name].margin for name in pair)
        said |= {"margin": text(margin)} if margin else {}
        Xml.SubElement(element, "pair", {"geom1": pair[0], "geom2": pair[1], **said})
    for name, material in contacts.materials.items():
        if material.restitution:
            report.add(f"contacts.materials.{name}", "MJCF has no `restitution`", "Set `restitution` to 0.")


def _height_field(name: str, shape: HeightField, asset: Xml.Element) -> tuple[dict[str, str], Pose]:
    """The geom of a height field and its pose, and its heights as an asset: MJCF has them from 0 to 1."""
    z = heights_of(shape)
    low, rise = float(z.min()), float(np.ptp(z)) or 1.0
    # the first row of a text is the one at the highest y, as it is seen from above
    of_asset = {"name": name, "nrow": str(len(z)), "ncol": str(len(z[0])), "elevation": text((z[::-1] - low).ravel())}
    Xml.SubElement(asset, "hfield", of_asset, size=text((shape.size[0] / 2, shape.size[1] / 2, rise, _BASE)))
    pose = Pose.placed(shape.at, shape.rotation)
    return {"type": "hfield", "hfield": name}, pose @ Pose.placed((0.0, 0.0, low), (0.0, 0.0, 0.0))
