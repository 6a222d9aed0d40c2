"""Estimators in continuous time: the extended Kalman-Bucy filter, its smoother, and networks that solve its equations.

They take members of the protocol that give a drift (`protocol.AbstractContinuousModel`) and need the extra
`continuous` (diffrax, optax).
"""

from .kalman_bucy import Continuous as Continuous
from .kalman_bucy import KalmanBucy as KalmanBucy
from .kalman_bucy import Moments as Moments
