"""Look at a scene or a trajectory in a browser, or save what one would see."""

import os
import tempfile
import webbrowser
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from .._contact_points import ContactPoints
from ..scene import Scene
from .commands import commands
from .drawing import parts_of
from .page import page
from .poses import BodyPoses, States, poses_of
from .touching import lines_of, marks_of

FRAME_RATE = 60.0  # largest number of poses per second in a page [Hz]


@dataclass(frozen=True)
class Viewer:
    """A scene drawn as a web page that needs no network and no server. Notebooks show it as it is."""

    name: str
    html: str = field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file; its folder is made if there is none."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.html, encoding="utf-8")
        return path

    def open(self) -> Path:
        """Write the page to a new temporary folder and show it in the browser; returns the file."""
        path = self.save(Path(tempfile.mkdtemp(prefix="spookax-")) / "scene.html")
        webbrowser.open(path.as_uri())
        return path

    def _repr_html_(self) -> str:
        style = "width: 100%; height: 480px; border: 0"
        return f'<iframe title="{escape(self.name)}" style="{style}" srcdoc="{escape(self.html)}"></iframe>'


def view(
    scene: Scene,
    trajectory: BodyPoses | States | None = None,
    *,
    joints: bool = True,
    contacts: ContactPoints | None = None,
    open_browser: bool = False,
) -> Viewer:
    """Draw a scene in three dimensions.

    **Arguments:**

    - `scene`: a `spookax.scene.Scene`.
    - `trajectory`: anything with `time`, `r` and `e`, such as a `Trajectory` or a `State`, or `BodyPoses`.
      Without it the scene stands at its initial joint positions. A trajectory that failed is shown up to
      where it did.
    - `joints`: mark the joints.
    - `contacts`: where the surfaces touch along the trajectory, from `contact_points`: drawn as balls, their forces as
      arrows and, of a motion, as lines over time.
    - `open_browser`: show the page at once.

    **Raises:** `ValueError` if the trajectory is not one of this scene, the contacts are of another time, or a mesh
    cannot be read.
    """
    poses, parts = poses_of(scene, trajectory).thinned(FRAME_RATE), parts_of(scene, joints)
    marks = lines = None
    if contacts is not None:
        begin, end = (float(poses.time[i]) for i in (0, -1))
        if not contacts.time.size or contacts.time[0] > end or contacts.time[-1] < begin:
            raise ValueError(f"the contacts are not those of this motion, which goes from {begin:g} to {end:g} s")
        marks = marks_of(contacts, poses, parts)
        lines = lines_of(contacts, poses) if poses.time.size > 1 else None
    drawn = commands(scene, parts, poses, marks.marks if marks else ())
    viewer = Viewer(scene.name, page(scene.name, drawn, poses.time, marks, lines))
    if open_browser:
        viewer.open()
    return viewer


def save_html(
    scene: Scene,
    trajectory: BodyPoses | States | None,
    path: str | os.PathLike[str],
    *,
    joints: bool = True,
    contacts: ContactPoints | None = None,
) -> Path:
    """Save a scene and its motion as one self-contained HTML file; arguments as those of `view`."""
    return view(scene, trajectory, joints=joints, contacts=contacts).save(path)
