"""What stays (System: names and connections, static) and what may change (Params, State: arrays)."""

from .build import build as build
from .params import ParameterPath as ParameterPath
from .params import Params as Params
from .params import locate as locate
from .params import put as put
from .parts import Axis as Axis
from .parts import Joint as Joint
from .parts import Motor as Motor
from .parts import Sensor as Sensor
from .state import State as State
from .system import System as System
