"""Differentiable multibody simulation and identification in maximal coordinates.

The names of everyday work, by the module that each comes from. They are imported when first used, so that
`import spookax`, and the commands that only read files, do not wait for JAX.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import control as control
    from . import envs as envs
    from ._compiled import jit as jit
    from ._contact_points import ContactPoints as ContactPoints
    from .estimation.continuous import KalmanBucy as KalmanBucy
    from .loading import enable_inline_calls as enable_inline_calls
    from .loading import enable_x64 as enable_x64
    from .loading import load as load
    from .models import Equations as Equations
    from .models import Free as Free
    from .models import JointMotion as JointMotion
    from .protocol import ModelError as ModelError
    from .protocol import Noise as Noise
    from .report import write_report as write_report
    from .scene import FileError as FileError
    from .scene import Scene as Scene
    from .scene import SceneError as SceneError
    from .scene import read_scene as read_scene
    from .scene import write_scene as write_scene
    from .scene.row_types import register_row as register_row
    from .stepping import Simulator as Simulator
    from .stepping import Trajectory as Trajectory
    from .stepping import contact_points as contact_points
    from .stepping import inverse_dynamics as inverse_dynamics
    from .stepping import rollout as rollout
    from .stepping import rollouts as rollouts
    from .stepping import spread as spread
    from .stepping import state_from_joints as state_from_joints
    from .study.comparing.choose import choose_friction as choose_friction
    from .study.comparing.forecast import compare as compare
    from .study.comparing.forecast import forecast as forecast
    from .study.file.read import StudyError as StudyError
    from .study.file.read import read_study as load_study  # noqa: F401 (its public name)
    from .study.file.table import RecordingError as RecordingError
    from .study.identifying.estimate import Estimate as Estimate
    from .study.identifying.estimate import load_estimate as load_estimate
    from .study.identifying.identify import Progress as Progress
    from .study.identifying.identify import identify as identify
    from .study.identifying.own_equations import EquationsEstimate as EquationsEstimate
    from .study.identifying.own_equations import identify_equations as identify_equations
    from .study.latent.run import latent as find_force  # noqa: F401 (its public name)
    from .study.recordings.recording import read_recordings as read_recordings
    from .study.tracking.filter_recordings import filter_recordings as filter_recordings
    from .study.tracking.filter_recordings import smooth_recordings as smooth_recordings
    from .system import Params as Params
    from .system import State as State
    from .system import System as System
    from .system import build as build
    from .viewer import save_html as save_html
    from .viewer import view as view

_ROOMS = ("control", "envs")  # modules whose names are not repeated here


def _declared() -> dict[str, tuple[str, str]]:
    """(module, name there) of every public name: what this file declares to type checkers."""
    tree = ast.parse(Path(__file__).read_bytes())
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = (node for node in checked.body if isinstance(node, ast.ImportFrom))
    return {
        str(alias.asname): (f".{node.module}", alias.name) for node in imports if node.module for alias in node.names
    }


_HOME = _declared()


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f".{name}", __name__)
    if name not in _HOME:
        raise AttributeError(f"module 'spookax' has no attribute '{name}'")
    module, original = _HOME[name]
    value = getattr(import_module(module, __name__), original)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME, *_ROOMS])
