"""Estimators over the protocol: linearisation, sweeps, Levenberg-Marquardt."""

from .linearise import Linearised as Linearised
from .linearise import linearise as linearise
from .problem import Fit as Fit
from .problem import Problem as Problem
from .problem import Settings as Settings
from .problem import Stage as Stage
from .recursive import Filter as Filter
from .recursive import Innovation as Innovation
from .recursive import Recursion as Recursion
from .recursive import Smoothed as Smoothed
from .rules import AbstractRule as AbstractRule
from .rules import Belief as Belief
from .rules import Extended as Extended
from .rules import Reading as Reading
from .rules import Unscented as Unscented
from .simulator_form import fit as fit
from .slow import Drift as Drift
from .slow import Joint as Joint
from .slow import WithParameters as WithParameters
from .sweeps import Filtered as Filtered
from .sweeps import adjoint_smoother as adjoint_smoother
from .sweeps import covariance_filter as covariance_filter
from .uncertainty import Uncertainty as Uncertainty
from .uncertainty import uncertainty as uncertainty
