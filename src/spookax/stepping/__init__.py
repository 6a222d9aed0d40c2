"""The Spook step forward and backward, consistent states, and rollouts."""

from .batches import spread as spread
from .contact_points import contact_points as contact_points
from .inverse import forward_residual as forward_residual
from .inverse import inverse_dynamics as inverse_dynamics
from .march import half_kick_back as half_kick_back
from .rollout import Trajectory as Trajectory
from .rollout import kick_inputs as kick_inputs
from .rollout import rollout as rollout
from .rollout import rollouts as rollouts
from .simulator import Reading as Reading
from .simulator import Simulator as Simulator
from .spook import StepInfo as StepInfo
from .spook import step as step
from .start import state_from_joints as state_from_joints
