"""Linear models, regulators and optimal trajectories of a mechanism in joint coordinates."""

from .direct import direct as direct
from .linear import Linear as Linear
from .linear import Regulator as Regulator
from .linear import linearise as linearise
from .linear import lqr as lqr
from .linear import without_dry_friction as without_dry_friction
from .plant import Plant as Plant
from .problem import Optimal as Optimal
from .trajectory import ilqr as ilqr
