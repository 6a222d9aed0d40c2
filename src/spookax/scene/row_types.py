"""The classes of the user's own rows, under the names that `rows` of a scene calls them by."""

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
    """What is wrong with `rows` of a scene: no class, bodies that it lacks, numbers that the class does not have."""
    found = []
    for name, row in scene.rows.items():
        of_python = [other for other in given if other.name == name]
        if not of_python and row.type not in _TYPES:
            cure = "Register its class, `spookax.register_row(NAME, CLASS)`, or give `load(path, constraints=(...,))`."
            found.append(Finding(("rows", name, "type"), row.type, "no class of this name is registered", cure))
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
    return found


def _made(scene: Scene, name: str) -> Any:
    row = scene.rows[name]
    return _TYPES[row.type](name=name) if row.bodies is None else _TYPES[row.type](name=name, bodies=row.bodies)
