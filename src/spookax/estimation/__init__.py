"""Estimators over the protocol: linearisation, sweeps, Levenberg-Marquardt."""

from .linearise import Linearised as Linearised
from .linearise import linearise as linearise
from .simulator_form import Fit as Fit
from .simulator_form import Problem as Problem
from .simulator_form import Settings as Settings
from .simulator_form import Stage as Stage
from .simulator_form import fit as fit
from .sweeps import Filtered as Filtered
from .sweeps import adjoint_smoother as adjoint_smoother
from .sweeps import covariance_filter as covariance_filter
