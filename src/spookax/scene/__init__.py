"""Scene files: what they may say, reading, writing, and the paths of their numbers."""

from spookax.scene.files import SceneError as SceneError
from spookax.scene.files import read_scene as read_scene
from spookax.scene.files import write_scene as write_scene
from spookax.scene.located import FileError as FileError
from spookax.scene.located import FileProblem as FileProblem
from spookax.scene.model import Scene as Scene
from spookax.scene.model import json_schema as json_schema
from spookax.scene.paths import UnknownPathError as UnknownPathError
from spookax.scene.paths import get_number as get_number
from spookax.scene.paths import numeric_paths as numeric_paths
from spookax.scene.paths import unit_of as unit_of
from spookax.scene.paths import with_numbers as with_numbers
