"""What `identify` left in a folder."""

import contextlib
import json
import zipfile
import zlib
from pathlib import Path

import numpy as np

from ..scene import Scene
from ..scene.explain import nearest
from ..viewer import BodyPoses
from .errors import refuse

_AGAIN = "Run `spookax identify` again."


def estimated_motion(folder: Path, scene: Scene, run: str | None) -> BodyPoses:
    """The estimated motion of one recording, from the folder of an estimate and its identified scene.

    **Raises:** `FileError` if the folder has no states, or none of this run.
    """
    file = folder / "states.npz"
    if not file.is_file():
        raise refuse(file, "no such file", _AGAIN)
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as states:
            ending = "/state_time"
            runs = [key.removesuffix(ending) for key in states.files if key.endswith(ending)]
            name = runs[0] if run is None and runs else run
            if name not in runs:
                raise refuse(file, f"there is no run '{name}'", nearest(name, runs))
            time, r, e = (states[f"{name}/{key}"] for key in ("state_time", "r", "e"))
        return BodyPoses.from_states(scene, time, r, e)
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as damaged:
        raise refuse(file, f"cannot be used: {str(damaged) or type(damaged).__name__}", _AGAIN) from None


def told(folder: Path) -> str:
    """Status and message of the estimate or the filter in a folder; nothing if there is none."""
    for name in ("estimate.json", "tracking.json"):
        with contextlib.suppress(OSError, ValueError):
            content = json.loads((folder / name).read_text(encoding="utf-8"))
            return ". ".join(str(content[key]) for key in ("status", "message") if content.get(key))
    return ""
