"""What `identify` left in a folder."""

import contextlib
import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .._contact_points import ContactPoints
from ..scene import Scene
from ..scene.explain import nearest
from ..viewer import BodyPoses
from .errors import refuse

_AGAIN = "Run `spookax identify` again."


def estimated_motion(folder: Path, scene: Scene, run: str | None) -> BodyPoses:
    """The estimated motion of one recording, from the folder of an estimate and its identified scene.

    **Raises:** `FileError` if the folder has no states, or none of this run.
    """
    with _states(folder, run) as (states, name):
        time, r, e = (states[f"{name}/{key}"] for key in ("state_time", "r", "e"))
        return BodyPoses.from_states(scene, time, r, e)


def estimated_contacts(folder: Path, run: str | None) -> ContactPoints | None:
    """Where the surfaces touch along the estimated motion of one recording; None where there are no surfaces.

    **Raises:** as `estimated_motion`.
    """
    with _states(folder, run) as (states, name):
        prefix = f"{name}/contacts/"
        found = {key.removeprefix(prefix): states[key] for key in states.files if key.startswith(prefix)}
        return ContactPoints.from_arrays(found) if found else None


@contextlib.contextmanager
def _states(folder: Path, run: str | None) -> Iterator[tuple[np.lib.npyio.NpzFile, str]]:
    """The arrays of an estimate, and the name of one of its recordings: `run`, or the first."""
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
            yield states, str(name)
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as damaged:
        raise refuse(file, f"cannot be used: {str(damaged) or type(damaged).__name__}", _AGAIN) from None


def told(folder: Path) -> str:
    """Status and message of the estimate or the filter in a folder; nothing if there is none."""
    for name in ("estimate.json", "tracking.json"):
        with contextlib.suppress(OSError, ValueError):
            content = json.loads((folder / name).read_text(encoding="utf-8"))
            return ". ".join(str(content[key]) for key in ("status", "message") if content.get(key))
    return ""
