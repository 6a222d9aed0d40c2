"""What stays (System: names and connections, static) and what may change (Params, State: arrays)."""

from .build import build as build
from .params import ParameterPath as ParameterPath
from .params import Params as Params
from .params import locate as locate
from .params import put as put
from .state import State as State
from .system import System as System
from .topology import WORLD as WORLD
from .topology import Axis as Axis
from .topology import BoxKind as BoxKind
from .topology import Joint as Joint
from .topology import Motor as Motor
from .topology import Sensor as Sensor
