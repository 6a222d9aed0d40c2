"""Write scene files."""

import os
from pathlib import Path
from typing import Any

import yaml

from spookax.scene.model import Scene
from spookax.scene.yaml12 import Dumper12


def write_scene(scene: Scene, path: str | os.PathLike[str]) -> None:
    """Write a scene as YAML that reads back to an equal scene.

    Numbers are written with every digit they need. Mesh files are named relative to the new file.

    **Raises:** `OSError` if the file cannot be written.
    """
    data = scene.plain()
    folder = os.path.abspath(Path(path).parent)
    for body in data["bodies"].values():
        for shape in body["shapes"]:
            if shape["type"] == "mesh":
                shape["file"] = _relative(shape["file"], folder)
    filled = {key: _type_first(value) for key, value in data.items() if value != {}}
    text = yaml.dump(filled, Dumper=Dumper12, sort_keys=False, allow_unicode=True, width=110)
    Path(path).write_text(text, encoding="utf-8")


def _relative(file: str, folder: str) -> str:
    try:
        return Path(os.path.relpath(file, folder)).as_posix()
    except ValueError:  # another drive
        return Path(os.path.abspath(file)).as_posix()


def _type_first(data: Any) -> Any:
    """The same data with the key `type` in front, where a reader looks for it."""
    if isinstance(data, list):
        return [_type_first(item) for item in data]
    if not isinstance(data, dict):
        return data
    front = {"type": data["type"]} if "type" in data else {}
    return {**front, **{key: _type_first(value) for key, value in data.items()}}
