"""Environments for learning and control: any scene with a task, as pure functions of a state."""

from .draws import save_draws as save_draws
from .environment import Environment as Environment
from .environment import EnvState as EnvState
from .environment import Outcome as Outcome
from .functional import BraxForm as BraxForm
from .functional import GymnaxForm as GymnaxForm
from .moment import Moment as Moment
from .observation import AbstractObservation as AbstractObservation
from .observation import Coordinates as Coordinates
from .observation import Sensors as Sensors
from .randomisation import AbstractRandomisation as AbstractRandomisation
from .randomisation import Posterior as Posterior
from .randomisation import Uniform as Uniform
from .spec import make as make
from .spec import task_names as task_names
from .task import AbstractTask as AbstractTask
from .task import Configuration as Configuration
from .task import Point as Point
from .task import Start as Start
