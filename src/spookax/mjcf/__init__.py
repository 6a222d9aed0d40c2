"""MJCF and URDF: files of MuJoCo and of robots, read as scenes, and scenes written as MJCF."""

from spookax.mjcf.exporting import write_mjcf as write_mjcf
from spookax.mjcf.importing import Imported as Imported
from spookax.mjcf.importing import import_mjcf as import_mjcf
from spookax.mjcf.missing import MjcfError as MjcfError
from spookax.mjcf.update import update_mjcf as update_mjcf
