"""What rows with bounds may follow: a row of one's own, `rows.NAME`, or the force across an axis, `joints.NAME`."""

from typing import Any

from .topology import Joint


def followed(
    place: str, joints: tuple[Joint, ...], num_couplings: int, constraints: tuple[Any, ...], bounded: tuple[Any, ...]
) -> tuple[int, tuple[int, ...]]:
    """Constraint node of what a row follows, and the rows of it whose impulses count together.

    **Arguments:** `place`: as in `AbstractBounded.follows`, one that `scene.row_types.row_findings` finds nothing
    wrong with; `constraints`, `bounded`: the user's rows without and with bounds.
    """
    for node, row in enumerate((*constraints, *bounded), len(joints) + num_couplings):
        if place == f"rows.{row.name}":
            return node, tuple(range(row.num_rows))
    pressed = (
        (node, axis.bearing)
        for node, joint in enumerate(joints)
        for axis in joint.kind.axes
        if place == joint.place(axis.path(joint.name))
    )
    return next(pressed)
