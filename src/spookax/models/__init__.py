"""Members of the estimators' protocol."""

from .double_pendulum import double_pendulum as double_pendulum
from .equations import Equations as Equations
from .hysteresis import Blocks as Blocks
from .hysteresis import ElastoSlide as ElastoSlide
from .hysteresis import Elements as Elements
from .motion import JointMotion as JointMotion
from .multibody import BodyState as BodyState
from .multibody import Multibody as Multibody
from .multibody import ProcessNoise as ProcessNoise
from .neural_friction import AbstractFriction as AbstractFriction
from .neural_friction import AbstractStepper as AbstractStepper
from .neural_friction import FrictionMass as FrictionMass
from .neural_friction import NeuralFriction as NeuralFriction
from .neural_friction import RungeKutta as RungeKutta
from .neural_friction import Sticking as Sticking
from .neural_friction import StribeckFriction as StribeckFriction
from .parameters import Free as Free
from .parameters import ParameterMap as ParameterMap
from .parameters import Tie as Tie
