"""What an estimator takes and gives, whatever its form."""

import dataclasses
from typing import NamedTuple

import numpy as np

from .._results import ESTIMATE_RESULTS
from .._typing import AnyArray, Float
from ..protocol import AbstractModel, Noise, Samples
from .linearise import Linearised, Path
from .sweeps import Filtered


@dataclasses.dataclass(frozen=True)
class Problem:
    """What is to be estimated from the samples of some recordings, which share the first parameters of the model.

    `z0`: start of the shared parameters; `prior`, `weight`: mean and 1/sd of their prior; `lower`, `upper`: bounds.
    `own_weight`: 1/sd of the parameters of a recording (offsets; the same kinds in each), whose prior mean is zero.
    """

    samples: tuple[Samples, ...]
    z0: np.ndarray
    prior: np.ndarray
    weight: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    own_weight: np.ndarray
    least_sd: np.ndarray | None = None  # of every channel: an estimated sensor noise never falls below it
    initial_sd: float = 1.0  # prior sd of the free directions of x_0 (positions in m or rad; velocities times 10)


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of the continuation: the model (friction speed) and the noise scale to use."""

    model: AbstractModel
    noise: Noise


@dataclasses.dataclass(frozen=True)
class Settings:
    """Numbers of the iteration.

    `marginal`: whether the states are integrated out; else the states of largest density are estimated beside the
    parameters. `determinant`: whether the log-determinant of either is part of the objective. `process`, `sensors`:
    whether these noise levels are estimated from the evidence after every stage. `silent`: process noise levels that
    are kept say nothing about the parameters, as if they had been found from the same recordings. `together`: sensor
    noises keep their ratios.
    """

    max_iterations: int = 60
    tolerance: float = 1e-6  # relative decrease of the cost that counts as none, twice in a row (or 0.1 in nats)
    marginal: bool = True
    determinant: bool = True
    process: bool = False
    sensors: bool = False
    silent: bool = False
    together: bool = False


class Iterate(NamedTuple):
    """Where the iteration stands: everything that is needed to go on."""

    z: Float[AnyArray, " p"]
    own: tuple[Float[AnyArray, " l"], ...]
    paths: tuple[Path, ...]


class Part(NamedTuple):
    """One recording, linearised and filtered, and what that leaves: 1/2 dz' N dz - g' dz + q in all parameters."""

    lin: list[Linearised]  # of every block
    Y0: Float[AnyArray, "n p"]
    P0: Float[AnyArray, "n n"]
    f: list[Filtered]  # of every block
    gains: list[Float[AnyArray, "steps m n"]]  # of every block: the feedback that the problem asks for
    N: np.ndarray
    g: np.ndarray
    q: np.ndarray

    @property
    def log_det(self) -> float:
        """Sum log |F|."""
        return float(sum(np.sum(f.log_det) for f in self.f))


@dataclasses.dataclass(frozen=True)
class Progress:
    """One line of the protocol of an iteration."""

    stage: int
    iteration: int
    cost: float
    step: float
    damping: float
    seconds: float


_SILENT = 1e-12  # information of a direction beside that of its parameters alone: what rounding leaves of none


class Posterior(NamedTuple):
    """What is known of the parameters z at the end of a fit; both matrices are zero for parameters at a bound."""

    covariance: Float[np.ndarray, "p p"]  # infinite variances, no covariances, where nothing is known or N is no number
    known: Float[np.ndarray, "p p"]  # without the directions that nothing is known of: finite
    result: ESTIMATE_RESULTS


def posterior(
    problem: Problem, z: Float[np.ndarray, " p"], N: Float[np.ndarray, "p p"], result: ESTIMATE_RESULTS
) -> Posterior:
    """From the reduced matrix N with its priors; `result` as it was, or what N makes of it.

    N says nothing about a direction where an eigenvalue, scaled to a unit diagonal, is zero to rounding. Parameters
    with a prior have no part in such directions, and what is known of others outside them is the same whatever lies in
    them.
    """
    inverse = np.zeros_like(N)
    if not np.all(np.isfinite(N)):
        return Posterior(np.diag(np.full(len(N), np.inf)), inverse, ESTIMATE_RESULTS.nonfinite)
    free = np.flatnonzero((z > problem.lower + 1e-9) & (z < problem.upper - 1e-9))
    bare = free[problem.weight[free] == 0]
    scale = np.sqrt(np.where(np.diag(N) > 0, np.diag(N), 1.0))
    S = N / np.outer(scale, scale)
    values, vectors = np.linalg.eigh(S[np.ix_(bare, bare)])
    silent = np.zeros((len(z), int(np.sum(values < _SILENT))))
    silent[bare] = vectors[:, values < _SILENT]
    beside = silent @ silent.T  # (S + V V')^-1 = S^+ + V V' for V orthonormal with S V = 0
    inverse[np.ix_(free, free)] = np.linalg.inv((S + beside)[np.ix_(free, free)])
    known = (inverse - beside) / np.outer(scale, scale)
    covariance, lost = known.copy(), np.flatnonzero(np.any(np.abs(silent) > np.sqrt(_SILENT), axis=1))
    covariance[lost] = covariance[:, lost] = 0.0
    covariance[lost, lost] = np.inf
    if lost.size and result == ESTIMATE_RESULTS.successful:
        result = ESTIMATE_RESULTS.no_information
    return Posterior(covariance, known, result)


@dataclasses.dataclass
class Fit:
    """Result of a fit. `covariance` is that of z at the optimum: zero for parameters at a bound, and an infinite
    variance for those that nothing is known of (see `posterior`).
    """

    iterate: Iterate
    cost: float  # joint, with priors, without the log-determinants
    result: ESTIMATE_RESULTS
    iterations: int
    covariance: np.ndarray
    information: np.ndarray  # reduced matrix without the prior
    own_covariance: tuple[np.ndarray, ...]
    log_det: float  # sum log |F|
    history: list[Progress]
    noise: Noise  # the levels, as given or as estimated
    _: dataclasses.KW_ONLY
    parts: tuple[Part, ...] | None = None  # the recordings, linearised and filtered, where the form does that
