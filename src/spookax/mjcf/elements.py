"""Attributes of MJCF elements."""

from typing import Any

import numpy as np

from spookax.mjcf.frame_poses import Pose, numbers, quaternion


def text(values: Any) -> str:
    """Numbers to their last digit."""
    return " ".join(repr(float(value) + 0.0) for value in np.atleast_1d(np.asarray(values, dtype=float)))


def placed(pose: Pose) -> dict[str, str]:
    """Where an element stands in its parent."""
    return {"pos": text(numbers(pose.at)), "quat": text(quaternion(pose.rotation))}


def primitive(shape: Any) -> dict[str, str] | None:
    """Type and size of a geom for a box, sphere, cylinder, capsule or plane; nothing for other shapes."""
    match shape.type:
        case "box":
            return {"type": "box", "size": text(np.array(shape.size) / 2)}
        case "sphere":
            return {"type": "sphere", "size": text(shape.radius)}
        case "cylinder" | "capsule":
            return {"type": shape.type, "size": text((shape.radius, shape.length / 2))}
        case "plane":
            return {"type": "plane", "size": "0 0 1"}
    return None
