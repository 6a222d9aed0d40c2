"""The classes of the user's own rows, under the names that `rows` of a scene calls them by."""

import dataclasses
from typing import Any

from spookax.scene.explain import Finding, nearest
from spookax.scene.model import Scene

_TYPES: dict[str, type] = {}


def register_row(name: str, row: type) -> None:
    """Let scenes call a class of rows by a name: `rows: {tether: {type: NAME, bodies: [a, b], length: 0.5}}`.

    **Arguments:** `row`: a frozen dataclass with the fields `name` and `bodies`, see `spookax.constraints`. The other
    keys in the scene are numbers of its `defaults()`, each of which may be an unknown of a study, `rows.tether.length`.

    **Raises:** `ValueError` for a name that another class has.
    """
    known = _TYPES.setdefault(name, row)
    if (known.__module__, known.__qualname__) != (row.__module__, row.__qualname__):
        raise ValueError(f"'{name}' is the name of {known.__module__}.{known.__qualname__}: choose another")
    _TYPES[name] = row


def own_rows(scene: Scene, given: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """Rows given in Python, and those that the scene names.

    **Raises:** `ValueError` for what `row_findings` finds.
    """
    found = row_findings(scene, given)
    if found:
        raise ValueError(f"{'.'.join(map(str, found[0].loc))}: {found[0].message}. {found[0].cure}")
    mine = {row.name for row in given}
    return (*given, *(_made(scene, name) for name in scene.rows if name not in mine))


def row_findings(scene: Scene, given: tuple[Any, ...] = ()) -> list[Finding]:
    """What is wrong with `rows` of a scene: no class, bodies that it lacks, numbers that the class does not have, and
    what cannot be followed."""
    found = []
    for name, row in scene.rows.items():
        of_python = [other for other in given if other.name == name]
        if not of_python and row.type not in _TYPES:
            cure = "Register its class, `spookax.register_row(NAME, CLASS)`, or give `load(path, constraints=(...,))`."
            found.append(Finding(("rows", name, "type"), row.type, "no class of this name is registered", cure))
            continue
        if row.follows is not None and not of_python and "follows" not in _fields(_TYPES[row.type]):
            cure = "Give its class, an `AbstractBounded`, the field `follows`."
            found.append(Finding(("rows", name, "follows"), None, "the row cannot follow others", cure))
            continue
        unknown = [body for body in row.bodies or () if body not in scene.bodies and body != "world"]
        if unknown:
            cure = nearest(unknown[0], [*scene.bodies, "world"])
            found.append(Finding(("rows", name, "bodies"), unknown[0], "there is no such body", cure))
            continue
        known = (of_python[0] if of_python else _made(scene, name)).defaults()
        for key, value in (row.model_extra or {}).items():
            if key not in known:
                found.append(Finding(("rows", name, key), None, "the row has no such number", nearest(key, known)))
            elif isinstance(value, bool) or not isinstance(value, int | float):
                found.append(Finding(("rows", name, key), value, "is not a number", "Write one number."))
    return found or _not_followed(scene, given)


def _not_followed(scene: Scene, given: tuple[Any, ...]) -> list[Finding]:
    """What rows with bounds cannot follow: what is not there, presses on nothing or follows others itself."""
    mine = {row.name for row in given}
    rows = (*given, *(_made(scene, name) for name in scene.rows if name not in mine))
    follows = {f"rows.{row.name}": getattr(row, "follows", ()) for row in rows}
    axes = {
        f"joints.{name if joint.kind.isotropic else axis.path(name).replace('.', '.axes.')}": axis.bearing
        for name, joint in scene.joints.items()
        for axis in joint.kind.axes
    }
    found = []
    for row, places in follows.items():
        for place in places:
            loc, cure = (*row.split(".", 1), "follows"), "Follow what follows nothing itself."
            if place not in follows and place not in axes:
                cure = nearest(place, [*follows, *axes])
                found.append(Finding(loc, place, "there is no such row or joint", cure))
            elif follows.get(place) or place == row:
                found.append(Finding(loc, place, "follows others itself", cure))
            elif not axes.get(place, True):
                found.append(Finding(loc, place, "nothing presses across this axis", "Follow another joint, or a row."))
    return found


def _fields(row: type) -> list[str]:
    return [field.name for field in dataclasses.fields(row)]


def _made(scene: Scene, name: str) -> Any:
    row = scene.rows[name]
    said = {"bodies": row.bodies, "follows": row.follows}
    return _TYPES[row.type](name=name, **{key: value for key, value in said.items() if value is not None})
