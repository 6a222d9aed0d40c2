"""Members of the estimators' protocol."""

from .multibody import BodyState as BodyState
from .multibody import Multibody as Multibody
from .multibody import ProcessNoise as ProcessNoise
from .parameters import Free as Free
from .parameters import ParameterMap as ParameterMap
