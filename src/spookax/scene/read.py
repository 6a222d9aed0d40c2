"""Read scene files."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spookax.scene.explain import Finding
from spookax.scene.located import FileError, load_located, validate
from spookax.scene.model import Scene
from spookax.scene.rules import scene_rules


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
    constants of DC motors resolved, and mesh files as absolute paths.

    **Raises:** `SceneError` with one problem per thing that is wrong, each with line, path, value and cure.
    """
    located = load_located(path, error=SceneError)
    if is_study(located.data):
        scene = located.data.get("scene")
        cure = f"Give its scene{f', {scene},' if isinstance(scene, str) else ''} or use `spookax identify {path}`."
        raise SceneError([located.problem(Finding((), None, "this is a study, not a scene", cure))])
    return validate(located, Scene, SceneError, also=scene_rules, context={"folder": Path(path).parent})
