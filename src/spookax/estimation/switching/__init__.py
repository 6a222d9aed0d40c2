"""Estimators over states and modes: one loop, and banks that differ in when they mix and in how much they keep.

The public names are re-exported by `spookax.estimation`.
"""

from .estimator import AbstractSwitching as AbstractSwitching
from .estimator import ModeTrail as ModeTrail
from .estimator import stacked as stacked
from .imm import IMM as IMM
from .imm import Moved as Moved
from .merging import Modes as Modes
from .merging import merge as merge
from .mixture_filter import MixtureFilter as MixtureFilter
from .mixtures import AbstractCollapse as AbstractCollapse
from .mixtures import KeepHeaviest as KeepHeaviest
from .mixtures import Mixtures as Mixtures
from .sharing import AbstractSharing as AbstractSharing
from .sharing import AllPairs as AllPairs
from .sharing import Lineage as Lineage
from .sharing import MixFirst as MixFirst
