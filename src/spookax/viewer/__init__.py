"""Scenes and their motion in three dimensions, as web pages that need no network and no server."""

from .poses import BodyPoses as BodyPoses
from .poses import initial_poses as initial_poses
from .view import Viewer as Viewer
from .view import save_html as save_html
from .view import view as view
