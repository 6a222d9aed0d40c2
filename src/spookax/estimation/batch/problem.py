"""What an estimator takes and gives, whatever its form."""

import dataclasses
from typing import NamedTuple

import numpy as np

from ..._results import ESTIMATE_RESULTS
from ..._typing import AnyArray, Float
from ...protocol import AbstractModel, Noise, Samples
from ..linearise import Linearised, Path
from .at_bound import cut_off
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
    initial_sd: float = 1.0  # prior sd of the free directions of x_0 (positions in m or rad; velocities times 10)
    least_sd: np.ndarray | None = None  # of every channel: an estimated sensor noise never falls below it
    root_weights: tuple[np.ndarray, ...] | None = None  # of the readings where the iteration begins, else all one


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of the continuation: the model (friction speed) and the noise scale to use.

    `smoother`: the same model with wider friction speeds, the next one first. Where a step that was linearised with the
    stage's own fails, it is linearised with theirs.
    """

    model: AbstractModel
    noise: Noise
    smoother: tuple[AbstractModel, ...] = ()

    @property
    def models(self) -> tuple[AbstractModel, ...]:
        """What a trajectory may be linearised with, the stage's own model first."""
        return (self.model, *self.smoother)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Numbers of the iteration.

    `marginal`: whether the states are integrated out; else the states of largest density are estimated beside the
    parameters. `determinant`: whether the log-determinant of either is part of the objective. `process`, `sensors`:
    whether these noise levels are estimated from the evidence after every stage. `silent`: process noise levels that
    are kept say nothing about the parameters, as if they had been found from the same recordings. `together`: sensor
    noises keep their ratios. `outliers`: share of the readings that may be wild (`estimation.outliers`); 0: all count.
    """

    max_iterations: int = 60
    tolerance: float = 1e-6  # relative decrease of the cost that counts as none, twice in a row (or 0.1 in nats)
    marginal: bool = True
    determinant: bool = True
    process: bool = False
    sensors: bool = False
    silent: bool = False
    together: bool = False
    outliers: float = 0.0


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
        return float(sum(np.sum(np.asarray(f.log_det)) for f in self.f))


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
    """What is known of the parameters z at the end of a fit.

    A parameter at a bound has its mean square distance from there in place of a variance, and the others follow it:
    their covariances are neither those of a parameter that is fixed nor those of one that may cross the bound.
    """

    covariance: Float[np.ndarray, "p p"]  # infinite variances, no covariances, where nothing is known or N is no number
    known: Float[np.ndarray, "p p"]  # without the directions that nothing is known of: finite
    reach: Float[np.ndarray, " p"]  # one-sided intervals: signed distance in z from the bound; zero for all others
    result: ESTIMATE_RESULTS


def posterior(
    problem: Problem,
    z: Float[np.ndarray, " p"],
    N: Float[np.ndarray, "p p"],
    slope: Float[np.ndarray, " p"],
    result: ESTIMATE_RESULTS,
) -> Posterior:
    """From the reduced matrix N with its priors and the slope of the cost in z; `result` as it was, or what N makes
    of it.

    N says nothing about a direction where an eigenvalue, scaled to a unit diagonal, is zero to rounding. Parameters
    with a prior have no part in such directions, and what is known of others outside them is the same whatever lies in
    them.
    """
    inverse, reach = np.zeros_like(N), np.zeros(len(z))
    if not (np.all(np.isfinite(N)) and np.all(np.isfinite(slope))):
        return Posterior(np.diag(np.full(len(N), np.inf)), inverse, reach, ESTIMATE_RESULTS.nonfinite)
    inside = (z > problem.lower + 1e-9) & (z < problem.upper - 1e-9)
    free, bound = np.flatnonzero(inside), np.flatnonzero(~inside)
    bare = free[problem.weight[free] == 0]
    scale = np.sqrt(np.where(np.diag(N) > 0, np.diag(N), 1.0))
    S = N / np.outer(scale, scale)
    values, vectors = np.linalg.eigh(S[np.ix_(bare, bare)])
    silent = np.zeros((len(z), int(np.sum(values < _SILENT))))
    silent[bare] = vectors[:, values < _SILENT]
    beside = silent @ silent.T  # (S + V V')^-1 = S^+ + V V' for V orthonormal with S V = 0
    inverse[np.ix_(free, free)] = np.linalg.inv((S + beside)[np.ix_(free, free)])
    known = (inverse - beside) / np.outer(scale, scale)
    lost = np.any(np.abs(silent) > np.sqrt(_SILENT), axis=1)
    if bound.size:
        # the others' mean, given those at a bound, moves by `follow` times their distance from there
        follow = -known[:, free] @ N[np.ix_(free, bound)]
        follow[bound] = np.eye(len(bound))
        K = N[bound] @ follow
        curvature = np.where(np.diag(K) > _SILENT * np.diag(N)[bound], np.diag(K), 0.0)
        inward = np.where(z[bound] <= problem.lower[bound] + 1e-9, 1.0, -1.0)
        cut = cut_off(np.maximum(inward * slope[bound], 0.0), curvature, (problem.upper - problem.lower)[bound])
        reach[bound] = inward * cut.reach
        rms = np.where(np.isfinite(cut.rms), cut.rms, 0.0)
        known = known + follow @ (_correlation(K) * np.outer(rms, rms)) @ follow.T
        lost |= np.any(np.abs(follow[:, np.isinf(cut.rms)]) > np.sqrt(_SILENT), axis=1)
    covariance = known.copy()
    covariance[lost] = covariance[:, lost] = 0.0
    covariance[lost, lost] = np.inf
    if np.any(lost) and result == ESTIMATE_RESULTS.successful:
        result = ESTIMATE_RESULTS.no_information
    return Posterior(covariance, known, reach, result)


def _correlation(K: Float[np.ndarray, "b b"]) -> Float[np.ndarray, "b b"]:
    """Of the covariance K^-1."""
    scale = np.sqrt(np.maximum(np.diag(K), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(K / np.outer(scale, scale))
    C = vectors / np.maximum(values, _SILENT) @ vectors.T
    return C / np.sqrt(np.outer(np.diag(C), np.diag(C)))


@dataclasses.dataclass
class Fit:
    """Result of a fit. `covariance` is that of z at the optimum, with an infinite variance for parameters that nothing
    is known of, and `reach` the one-sided intervals of those at a bound (see `posterior`).
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
    slope: np.ndarray  # of the cost in z, states and own parameters following
    reach: np.ndarray
    root_weights: tuple[np.ndarray, ...]  # of every reading, shaped as `Samples.weight`; all one where none may be wild
    parts: tuple[Part, ...] | None = None  # the recordings, linearised and filtered, where the form does that
