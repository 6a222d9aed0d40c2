"""How far the parameters of a fit may be off: what its linearisation says, and what is counted beside it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..._interruption import Stop
from ...estimation import Settings
from ...estimation.batch.problem import Fit
from ...estimation.batch.profile import Ends, Profiles, weak
from ...estimation.batch.robust import spread_factors
from ...models.parameters import values_and_sd
from ..running.setup import Setup
from .signatures import Explained

_LIKELY = 0.5  # probability of a fault whose changes count
_TO_NONE = 2.0  # way from a step to none beside that to half of it, where damping and friction are first order


class ErrorBars:
    """Of a fit, whose covariance grows with every cause that is counted. Afterwards the others hold what was found."""

    def __init__(self, setup: Setup, fit: Fit):
        self.setup, self.fit = setup, fit
        # standard deviations as they are without innovations that are white
        self.widened = spread_factors(setup.problem, fit)
        self.half_step: dict[str, Any] | None = None
        self.suspicion: dict[str, Any] | None = None
        self.profiles: dict[int, Ends] = {}  # of shared parameters, where the linearisation was in doubt
        self._variance = np.diag(fit.covariance).copy()  # of the shared parameters, by that linearisation
        fit.covariance = fit.covariance * np.outer(self.widened, self.widened)

    def count_half_step(self, shift: np.ndarray) -> None:
        """What half the time step would change z by. Counted is twice as much, which is where no time step at all would
        lead.
        """
        self.half_step = self._counted(shift, _TO_NONE**2)

    def count_fault(self, told: Sequence[Explained]) -> None:
        """What the likeliest of the faults that may be there would change, if it is more likely than not: beside no
        fault and all others, each of them as probable before.
        """
        best = next((fault for fault in told if fault.shift is not None), None)
        if best is None or best.shift is None:
            return
        probability = 1 / (1 + len(told) * np.exp(-best.gain))
        if probability > _LIKELY:
            self.suspicion = self._counted(best.shift, probability)

    @property
    def information(self) -> np.ndarray:
        """Of the shared parameters, as little as the error bars leave of it. (n, n)"""
        with np.errstate(divide="ignore", invalid="ignore"):
            narrower = np.sqrt(self._variance / np.diag(self.fit.covariance))
        narrower = np.where(np.isfinite(narrower), np.minimum(narrower, 1.0), 1.0)
        return self.fit.information * np.outer(narrower, narrower)

    def _counted(self, shift: np.ndarray, weight: float) -> dict[str, Any]:
        """Values that a change of z leads to and how far off they are, in standard deviations. Which way it goes is
        known, but nobody has looked whether it goes so far: its square times a weight is one more variance of every
        parameter.
        """
        fit, shared = self.fit, self.setup.model.shared
        value, sd = natural(self.setup, fit)
        other, _ = values_and_sd(shared, fit.iterate.z + shift, fit.covariance)
        fit.covariance = fit.covariance + weight * np.outer(shift, shift)
        return {
            path: {"value": float(b), "shift_in_sd": float((b - a) / c) if c > 0 else None}
            for path, a, b, c in zip(shared.paths, value, other, sd, strict=True)
        }

    def profile(self, settings: Settings, most: int, report: Callable[[int, float, float], None], stop: Stop) -> None:
        """Ends of the intervals of what is known badly, by fits with it held.

        `settings`: those that the fit ended with; `most`, `report`: see `Profiles`. **Raises:** `KeyboardInterrupt`;
        what was found by then stays.
        """
        if not (doubtful := weak(self.setup.problem, self.fit)):
            return
        stage, variance = self.setup.stages[-1], self._variance
        about = Profiles(self.setup.problem, stage, self.fit, settings, variance, most, report)
        for done, i in enumerate(doubtful, 1):
            stop.check()
            self.profiles[i] = about.ends(i, len(doubtful) - done)


def natural(setup: Setup, fit: Fit) -> tuple[np.ndarray, np.ndarray]:
    """Values of the shared parameters in their own units, and their standard deviations."""
    return values_and_sd(setup.model.shared, fit.iterate.z, fit.covariance)
