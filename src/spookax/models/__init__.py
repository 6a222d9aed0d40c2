"""Members of the estimators' protocol."""

from .hysteresis import Blocks as Blocks
from .hysteresis import ElastoSlide as ElastoSlide
from .hysteresis import Elements as Elements
from .multibody import BodyState as BodyState
from .multibody import Multibody as Multibody
from .multibody import ProcessNoise as ProcessNoise
from .parameters import Free as Free
from .parameters import ParameterMap as ParameterMap
