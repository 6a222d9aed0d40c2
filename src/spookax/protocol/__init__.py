"""What an estimator may ask of a model, and nothing else: a core of nine members, capabilities of some models, and
three kinds of models that say more (in continuous time, readable backwards, linear).
"""

from .capabilities import CAPABILITIES as CAPABILITIES
from .capabilities import CarriedPoses as CarriedPoses
from .capabilities import ConstrainedStart as ConstrainedStart
from .capabilities import FirstSpread as FirstSpread
from .capabilities import FreeDirections as FreeDirections
from .capabilities import HeldNoise as HeldNoise
from .capabilities import PlanTracking as PlanTracking
from .capabilities import SearchedStep as SearchedStep
from .capabilities import StepDuration as StepDuration
from .continuous_model import AbstractContinuousModel as AbstractContinuousModel
from .core import AbstractModel as AbstractModel
from .core import AbstractVectorModel as AbstractVectorModel
from .core import ModelError as ModelError
from .data import Noise as Noise
from .data import Samples as Samples
from .linear_model import AbstractLinearModel as AbstractLinearModel
from .linear_model import LinearStep as LinearStep
from .residual_model import AbstractResidualModel as AbstractResidualModel
from .residual_model import Transition as Transition
