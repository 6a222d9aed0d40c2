"""How far simulations from the posterior are from that of the estimate: bands of an open-loop prediction.

Parameters are drawn with their covariance, and the state that a recording starts from follows them as the linearised
fit says, with what is left of its own uncertainty. Each draw is simulated by the program that has simulated the
estimate, so that nothing is compiled for it; what lies between draws is taken for normal.
"""

import dataclasses
import functools

import jax
import numpy as np

from ..._compiled import seldom_called
from ..._threads import concurrently
from ..._typing import Float
from ...estimation.batch.problem import Part
from ...estimation.batch.uncertainty import FirstState
from ...estimation.linearise import Path
from ...models import Multibody
from ...models.multibody import BodyState
from ...protocol import Noise, Samples
from ..running.simulate import open_loop, predictions
from .posterior import factored

DRAWS = 8
_LOST = 0.5  # of the signal's standard deviation: beyond it nothing is foretold
_NOISE = 3.0  # times the sensor's noise: as much as a reading may be off by itself


def directions(size: int) -> Float[np.ndarray, "draws size"]:
    """Numbers that a posterior is drawn with, of unit variance: rows at right angles to each other and equally long.

    The mean square of what moves linearly with them is that of independent draws, and scatters less, its variance being
    (size - draws) / (size + 2) times as large.
    """
    rows = np.random.default_rng(0).standard_normal((size, min(DRAWS, size)))
    return np.sqrt(size) * np.linalg.qr(rows)[0].T


@dataclasses.dataclass(frozen=True)
class Draws:
    """Shared parameters from the posterior of an estimate, and the numbers for what else every draw needs."""

    z: Float[np.ndarray, "draws p"]
    rest: Float[np.ndarray, "draws own+n"]  # unit variance


def drawn(
    z: Float[np.ndarray, " p"],
    covariance: Float[np.ndarray, "p p"],
    reach: Float[np.ndarray, " p"],
    bounds: tuple[Float[np.ndarray, " p"], Float[np.ndarray, " p"]],
    more: int,
) -> Draws:
    """Shared parameters within their bounds; those at a bound (`reach` is not zero) lie to its one side, and what
    nothing is known of stays as it is.

    `more`: of a recording's own parameters and its first state, how many numbers there are.
    """
    normal, rest = np.split(directions(len(z) + more), [len(z)], axis=1)
    root, one_sided = factored(covariance, reach)
    return Draws(np.clip(z + normal @ root.T + one_sided * np.abs(normal), *bounds), rest)


def spread(
    model: Multibody,
    noise: Noise,
    part: Part,
    first: FirstState,
    path: Path,
    own: Float[np.ndarray, " l"],
    own_weight: Float[np.ndarray, " l"],
    z: Float[np.ndarray, " p"],
    draws: Draws,
    samples: Samples,
    simulated: Float[np.ndarray, "steps slots channels"],
) -> Float[np.ndarray, "steps slots channels"]:
    """Root mean square distance of the draws' readings from those of the estimate; infinite where one runs away.

    **Arguments:** `part`, `first`, `path`, `own`, `z`: a recording as its fit has left it, with its own parameters and
    the shared ones; `draws`: of these, `drawn`; `samples`: what is simulated, which may go on for longer;
    `simulated`: the estimate's readings there.
    """
    count, N = len(z), np.asarray(part.N)
    corner = N[count:, count:] + np.diag(own_weight**2)
    values, vectors = np.linalg.eigh(first.covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))

    def readings(z_own: np.ndarray, x0: object) -> np.ndarray:
        return predictions(model, z_own, open_loop(model, z_own, noise, x0, samples), samples)

    both, moves = [], []
    for other, rest in zip(draws.z, draws.rest, strict=True):
        mine, start = np.split(rest, [len(own)])
        if len(own):
            follow = -np.linalg.solve(corner, N[count:, :count] @ (other - z))
            mine = follow + np.linalg.solve(np.linalg.cholesky(corner).T, mine)
        step = np.concatenate([other - z, mine])
        both.append(np.concatenate([z, own]) + step)
        moves.append(first.moves @ step + root @ start)
    x0 = jax.tree.map(lambda a: np.asarray(a)[0], path.x)
    moved = jax.tree.map(np.asarray, _moved(model, x0, np.stack(moves)))
    starts = [jax.tree.map(lambda a, i=i: a[i], moved) for i in range(len(moves))]
    found = concurrently([functools.partial(readings, a, x0) for a, x0 in zip(both, starts, strict=True)])
    with np.errstate(over="ignore", invalid="ignore"):
        rms = np.sqrt(np.mean((np.stack(found) - simulated) ** 2, axis=0))
    return np.where(np.isfinite(rms), rms, np.inf)


@seldom_called
def _moved(model: Multibody, x: BodyState, d: Float[jax.Array, "draws n"]) -> BodyState:
    return jax.vmap(functools.partial(model.retract, x))(d)


def foretold(
    time: Float[np.ndarray, " n"],
    measured: Float[np.ndarray, "n c"],
    sd: Float[np.ndarray, "n c"],
    noise: float | Float[np.ndarray, " c"] = 0.0,
) -> float | None:
    """How long after the first sample a simulation from the posterior tells a sensor's readings [s]; None: to the end.

    `sd`: of that simulation, see `spread`; `measured`: readings, NaN where there are none; `noise`: of the sensor, as
    its standard deviation. Of what hardly moves more than that there is nothing to tell.
    """
    with np.errstate(invalid="ignore"):
        limit = np.maximum(_LOST * np.nanstd(measured, axis=0), _NOISE * np.asarray(noise))
        lost = np.flatnonzero(np.any(sd > limit, axis=1))
    return float(time[lost[0]] - time[0]) if lost.size else None
