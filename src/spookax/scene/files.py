"""Read and write scene files."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from spookax.scene.explain import Finding
from spookax.scene.located import FileError, load_located, validate
from spookax.scene.model import Scene
from spookax.scene.rules import scene_rules
from spookax.scene.yaml12 import Dumper12


class SceneError(FileError):
    """A scene was refused; `problems` says everything that is wrong with it."""


def is_study(data: Mapping[str, Any]) -> bool:
    """Whether the data of a file are meant to be those of a study."""
    return not is_scene(data) and any(key in data for key in ("scene", "recordings", "parameters"))


def is_scene(data: Mapping[str, Any]) -> bool:
    """Whether the data of a file are meant to be those of a scene."""
    return any(key in data for key in ("bodies", "joints"))


def read_scene(path: str | os.PathLike[str]) -> Scene:
    """Read a scene file.

    **Returns:** the scene with every default filled in, masses from densities computed, axes of unit length,
    constants of DC motors resolved, and files of meshes and height fields as absolute paths. Without a `name` it has
    the file's.

    **Raises:** `SceneError` with one problem per thing that is wrong, each with line, path, value and cure.
    """
    located = load_located(path, error=SceneError)
    if is_study(located.data):
        scene = located.data.get("scene")
        cure = f"Give its scene{f', {scene},' if isinstance(scene, str) else ''} or use `spookax identify {path}`."
        raise SceneError([located.problem(Finding((), None, "this is a study, not a scene", cure))])
    scene = validate(located, Scene, SceneError, also=scene_rules, context={"folder": Path(path).parent})
    return scene if "name" in located.data else scene.model_copy(update={"name": Path(path).stem})


def write_scene(scene: Scene, path: str | os.PathLike[str]) -> None:
    """Write a scene as YAML that reads back to an equal scene.

    Numbers are written with every digit they need. Files of meshes and height fields are named relative to it.

    **Raises:** `OSError` if the file cannot be written.
    """
    data = scene.plain()
    folder = os.path.abspath(Path(path).parent)
    shapes = [shape for body in data["bodies"].values() for shape in body["shapes"]]
    for shape in (*shapes, *data.get("contacts", {}).get("surfaces", {}).values()):
        if "file" in shape:
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
