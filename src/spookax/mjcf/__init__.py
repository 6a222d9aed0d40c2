"""MJCF and URDF: files of MuJoCo and of robots, read as scenes, and scenes written as MJCF."""

from spookax.mjcf.missing import MjcfError as MjcfError
from spookax.mjcf.read import Imported as Imported
from spookax.mjcf.read import import_mjcf as import_mjcf
from spookax.mjcf.update import update_mjcf as update_mjcf
from spookax.mjcf.write import write_mjcf as write_mjcf
