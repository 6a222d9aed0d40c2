"""How far hyperparameters are known, and the force with bands that count it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from spookax._typing import Float
from spookax.study.latent.fitting import Fitted, along_axes, averaged
from spookax.study.latent.sampling import ADAPTED, CHAINS, Draws, Quality, quality, sampled
from spookax.study.latent.section import Latent
from spookax.study.latent.switching_model import NAMES, Force
from spookax.study.latent.unfinished import Unfinished

BAND = 1.645  # standard deviations to either side of 90 %
_SMOOTHED = 24  # draws at which the force is found
_WRITTEN = 10  # draws after which they are kept
_UNITS = {"force": "N", "change": "N/sqrt(s)", "dwell": "s"}
_OF_SENSORS = {"displacement": "m", "velocity": "m/s", "acceleration": "m/s^2"}


class Spread(NamedTuple):
    """The force along every record; with a sampler the draws, and how good they are."""

    forces: list[Force]
    draws: Draws | None = None
    quality: Quality | None = None

    def told(self, found: Fitted, sensor: str, given: bool) -> dict[str, Any]:
        """Hyperparameters with intervals of 90 %; `given`: the noise is."""
        rows = {name: self._row(found, axis) for name, axis in zip(NAMES, np.eye(len(NAMES)), strict=True)}
        rows["length"] = self._row(found, np.array([2.0, -2.0, 0.0, 0.0]), np.log(2.0))
        for name, row in rows.items():
            row["unit"] = "s" if name == "length" else _UNITS.get(name, _OF_SENSORS[sensor])
        if given:
            rows["noise"]["interval"] = None
        best = {"converged": found.best.converged, "evaluations": found.best.calls, "log_posterior": -found.best.cost}
        return best | {"draws": self.quality._asdict() if self.quality else None} | rows

    def _row(self, found: Fitted, along: Float[np.ndarray, " n"], constant: float = 0.0) -> dict[str, Any]:
        """Of a sum of logarithms."""
        if self.draws is None:
            middle, reach = along @ found.log, BAND * np.sqrt(along @ found.covariance @ along)
            low, high = middle - reach, middle + reach
        else:
            low, middle, high = np.quantile(self.draws.kept @ along, (0.05, 0.5, 0.95))
        value, *interval = (float(np.exp(constant + a)) for a in (middle, low, high))
        return {"value": value, "interval": interval}

    def states(self) -> dict[str, np.ndarray]:
        """The draws by name, an axis of chains before that of draws."""
        if self.draws is None:
            return {}
        each = np.moveaxis(np.exp(self.draws.kept), 2, 0)
        return {f"hyperparameters/{name}": a for name, a in zip(NAMES, each, strict=True)}


def spread_of(found: Fitted, known: Latent, say: Callable[[str], None], unfinished: Unfinished) -> Spread:
    """As the study asks for it; a stop keeps the draws."""
    if known.hyperparameters == "map":
        return Spread(found.forces)
    if known.hyperparameters == "laplace":
        return Spread(averaged(found, along_axes(found.log, found.covariance), say))
    draws = _draws(found, -(-known.draws // CHAINS), say, unfinished)
    say("smoothing at some of the draws")
    return Spread(averaged(found, draws.thinned(_SMOOTHED), say), draws, quality(draws))


def _draws(found: Fitted, count: int, say: Callable[[str], None], unfinished: Unfinished) -> Draws:
    say("drawing hyperparameters")
    draws = unfinished.draws or Draws.none(len(found.log))
    whole = ADAPTED + count
    try:
        for draws in sampled(found.posterior, found.log, found.covariance, count, unfinished.draws):
            done = draws.log.shape[1]
            unfinished.draws = draws
            if done % _WRITTEN == 0 or done == whole:
                unfinished.write()
            say(f"hyperparameters: draw {CHAINS * done} of {CHAINS * whole}, the first {CHAINS * ADAPTED} to adapt")
    finally:
        if draws.log.shape[1]:
            unfinished.write()
    return draws
