"""Read scene files."""

import os
from pathlib import Path

from spookax.scene.located import FileError, load_located, validate
from spookax.scene.model import Scene
from spookax.scene.rules import scene_rules


class SceneError(FileError):
    """A scene was refused; `problems` says everything that is wrong with it."""


def read_scene(path: str | os.PathLike[str]) -> Scene:
    """Read a scene file.

    **Returns:** the scene with every default filled in, masses from densities computed, axes of unit length,
    constants of DC motors resolved, and mesh files as absolute paths.

    **Raises:** `SceneError` with one problem per thing that is wrong, each with line, path, value and cure.
    """
    located = load_located(path, error=SceneError)
    return validate(located, Scene, SceneError, also=scene_rules, context={"folder": Path(path).parent})
