"""Linear models, regulators and optimal trajectories of a mechanism in joint coordinates."""

from .direct import direct as direct
from .lqr import Linear as Linear
from .lqr import Regulator as Regulator
from .lqr import linearise as linearise
from .lqr import lqr as lqr
from .lqr import without_dry_friction as without_dry_friction
from .optimal import Optimal as Optimal
from .plant import Plant as Plant
from .randomised import Randomised as Randomised
from .randomised import randomised_gradient as randomised_gradient
from .trajectory import ilqr as ilqr
