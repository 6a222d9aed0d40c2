"""The web page around meshcat's viewer: one file that loads nothing from elsewhere."""

import functools
import importlib.resources
import importlib.util
import json
from pathlib import Path
from typing import Any

import jinja2
import markupsafe
import numpy as np

from .commands import Command
from .touching import FOLDER, Lines, Marks


def page(
    title: str, drawn: list[Command], time: np.ndarray, marks: Marks | None = None, lines: Lines | None = None
) -> str:
    """The page as text.

    **Arguments:** `title`; `drawn`, commands to the viewer; `time` of the poses, one for a scene at rest [s]; `marks`
    of contacts that are among the commands, and the `lines` of their forces.
    """
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = importlib.resources.files("spookax.viewer").joinpath("page.html").read_text(encoding="utf-8")
    return environment.from_string(template).render(
        title=title,
        meshcat=markupsafe.Markup(_meshcat_viewer()),
        commands=_script_json(drawn),
        start=float(time[0]),
        duration=float(time[-1] - time[0]),
        marks=marks,
        lines=lines,
        folder=FOLDER,
    )


@functools.cache
def _meshcat_viewer() -> str:
    """meshcat's viewer, the file that its own static pages carry.

    It is read from the installed package without importing it: the import needs a message queue and IPython,
    and meshcat's own export starts a server process that listens on two ports.
    """
    spec = importlib.util.find_spec("meshcat")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the package meshcat, which spookax needs to show scenes, is not installed")
    folder = Path(next(iter(spec.submodule_search_locations)))
    return (folder / "viewer" / "dist" / "main.min.js").read_text(encoding="utf-8")


def _script_json(data: Any) -> markupsafe.Markup:
    """JSON that can stand in a script element: nothing in it ends the element."""
    text = json.dumps(data, default=_short, separators=(",", ":"), allow_nan=False)
    return markupsafe.Markup(text.replace("<", "\\u003c"))


def _short(array: np.ndarray) -> list[float]:
    """Numbers to 7 digits, what the viewer's single precision can hold."""
    return array.tolist() if array.dtype.kind == "u" else [float(f"{x:.7g}") for x in array.tolist()]
