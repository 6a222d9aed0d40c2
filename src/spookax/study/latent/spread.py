"""How far hyperparameters are known, and the force with bands that count it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from spookax._typing import Float
from spookax.study.latent.fitting import Fitted, along_axes, averaged
from spookax.study.latent.mechanism import AbstractKnown
from spookax.study.latent.sampling import ADAPTED, CHAINS, Draws, Quality, quality, sampled
from spookax.study.latent.section import Latent
from spookax.study.latent.switching_model import Force, Setting
from spookax.study.latent.unfinished import Unfinished

BAND = 1.645  # standard deviations to either side of 90 %
_SMOOTHED = 24  # draws at which the force is found
_WRITTEN = 10  # draws after which they are kept


class Spread(NamedTuple):
    """The force along every record; with a sampler the draws, and how good they are."""

    forces: list[Force]
    draws: Draws | None = None
    quality: Quality | None = None

    def told(self, found: Fitted, known: AbstractKnown, given: bool) -> dict[str, Any]:
        """Hyperparameters with intervals of 90 %; `given`: the noise is."""
        setting = found.posterior.setting
        axes, rows = np.eye(len(found.log)), {}
        for (kind, i), name, axis in zip(setting.kinds, names(known, setting), axes, strict=True):
            rows[name] = self._row(found, axis) | {"unit": _unit(known, kind, i), "kind": kind}
            if kind == "noise" and given:
                rows[name]["interval"] = None
        n = len(known.contacts)
        for i, name in enumerate(names(known, setting)[:n]):
            length = self._row(found, 2.0 * (axes[i] - axes[n + i]), np.log(2.0))
            rows[name.replace("force", "length", 1)] = length | {"unit": "s", "kind": "length"}
        best = {"converged": found.best.converged, "evaluations": found.best.calls, "log_posterior": -found.best.cost}
        return best | {"draws": self.quality._asdict() if self.quality else None, "numbers": rows}

    def _row(self, found: Fitted, along: Float[np.ndarray, " n"], constant: float = 0.0) -> dict[str, Any]:
        """Of a sum of logarithms."""
        if self.draws is None:
            middle, reach = along @ found.log, BAND * np.sqrt(along @ found.covariance @ along)
            low, high = middle - reach, middle + reach
        else:
            low, middle, high = np.quantile(self.draws.kept @ along, (0.05, 0.5, 0.95))
        value, *interval = (float(np.exp(constant + a)) for a in (middle, low, high))
        return {"value": value, "interval": interval}

    def states(self, known: AbstractKnown, setting: Setting) -> dict[str, np.ndarray]:
        """The draws by name, an axis of chains before that of draws."""
        if self.draws is None:
            return {}
        each = np.moveaxis(np.exp(self.draws.kept), 2, 0)
        return {f"hyperparameters/{name}": a for name, a in zip(names(known, setting), each, strict=True)}


def _unit(known: AbstractKnown, kind: str, i: int) -> str:
    if kind == "noise":
        return known.readings[i].unit
    force = known.contacts[i].units["force"]
    return {"force": force, "change": f"{force}/sqrt(s)", "dwell": "s"}[kind]


def names(known: AbstractKnown, setting: Setting) -> list[str]:
    """Of the hyperparameters: by their kind, and by that of which contact or reading where there are several."""
    found = []
    for kind, i in setting.kinds:
        of: Sequence[Any] = known.readings if kind == "noise" else known.contacts
        found.append(kind if len(of) == 1 else f"{kind} of {of[i].name}")
    return found


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
