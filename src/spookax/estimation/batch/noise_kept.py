"""What of the noise stays while parameters change: its impulses, or what they do to the velocities.

Measured as an impulse, noise lowers the cost by whatever makes it do more (a small inertia), and the log-determinant
answers with the opposite slope. Where noise levels are found from the same recordings the two cancel; with the noise
kept as what it does the estimate needs neither.
"""

import abc

import numpy as np

from ..._typing import AnyArray
from ...protocol import AbstractModel
from ..linearise import Path
from .one_recording import noise_cost


class AbstractKept(abc.ABC):
    """What of the noise stays while parameters change. `share` of the noise's effect that does, see `linearise`."""

    share: float

    @abc.abstractmethod
    def change(self, model: AbstractModel, path: Path, z: AnyArray, z_then: AnyArray) -> float:
        """1/2 sum |w|^2 of a path under z, less what it would be for what stays of the noise, seen from z_then."""


class Impulses(AbstractKept):
    """The noise is an impulse."""

    share = 0.0

    def change(self, model: AbstractModel, path: Path, z: AnyArray, z_then: AnyArray) -> float:
        return 0.0


class Effect(AbstractKept):
    """The noise is what it does to the velocities; the model offers `protocol.HeldNoise`."""

    share = 1.0

    def change(self, model: AbstractModel, path: Path, z: AnyArray, z_then: AnyArray) -> float:
        with np.errstate(over="ignore"):  # of a trial that diverged
            return float(np.sum(np.asarray(path.w) ** 2)) / 2 - noise_cost(model, z_then, path, z)


IMPULSES, EFFECT = Impulses(), Effect()
