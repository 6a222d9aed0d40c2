"""Estimators over the protocol: linearisation, sweeps, Levenberg-Marquardt."""

from .linearise import Linearised as Linearised
from .linearise import linearise as linearise
from .problem import Fit as Fit
from .problem import Problem as Problem
from .problem import Settings as Settings
from .problem import Stage as Stage
from .simulator_form import fit as fit
from .sweeps import Filtered as Filtered
from .sweeps import adjoint_smoother as adjoint_smoother
from .sweeps import covariance_filter as covariance_filter
from .uncertainty import Uncertainty as Uncertainty
from .uncertainty import uncertainty as uncertainty
