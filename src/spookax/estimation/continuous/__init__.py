"""Estimators in continuous time: the extended Kalman-Bucy filter, its smoother, and networks that solve its equations.

They take members of the protocol that give a drift (`protocol.AbstractContinuousModel`) and need the extra
`continuous` (diffrax, optax).
"""

from .kalman_bucy import Continuous as Continuous
from .kalman_bucy import KalmanBucy as KalmanBucy
from .kalman_bucy import Moments as Moments
from .least_squares import least_squares as least_squares
from .moment_networks import AbstractLoss as AbstractLoss
from .moment_networks import Belief as Belief
from .moment_networks import KalmanBucyLoss as KalmanBucyLoss
from .moment_networks import Networks as Networks
from .moment_networks import PhysicsLoss as PhysicsLoss
from .moment_networks import Readings as Readings
from .training import Schedule as Schedule
from .training import Trained as Trained
from .training import TrainingReport as TrainingReport
from .training import networks as networks
from .training import train as train
