"""Estimators over states and modes: one loop, and banks that differ in when they mix and in how much they keep.

The public names are re-exported by `spookax.estimation`.
"""

from .estimator import AbstractSwitching as AbstractSwitching
from .estimator import Switching as Switching
from .estimator import Told as Told
from .estimator import stacked as stacked
from .imm import IMM as IMM
from .merging import Modes as Modes
from .merging import merge as merge
from .smoother import Moved as Moved
from .smoother import SmoothedModes as SmoothedModes
from .smoother import Trail as Trail
