"""Hyperparameters of records that share them, and the force along each, and bands that count their spread."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from spookax._threads import beside
from spookax._typing import Array, Float, Scalar
from spookax.models.linear import LinearMechanism
from spookax.study.latent.evidence import Maximum, laplace, maximum
from spookax.study.latent.mechanism import AbstractKnown
from spookax.study.latent.record import Record
from spookax.study.latent.switching_model import (
    Data,
    Force,
    Scales,
    Setting,
    evidence_of_regimes,
    force_of_regimes,
    scales_of,
)
from spookax.study.latent.unfinished import Unfinished

_PRIOR_SD = {"force": 0.7, "change": 2.0, "noise": 0.5, "dwell": 1.0}
_GIVEN = 1e-6  # standard deviation of the logarithm of a noise that is given
_DWELL = 30.0  # steps, before the record speaks
_QUIET = 0.005  # of the force: its change in a step before the record speaks


class Posterior(eqx.Module):
    """Density of the hyperparameters (logarithms) of some records."""

    m: LinearMechanism
    data: tuple[Data, ...]
    scales: tuple[Scales, ...]
    prior: Float[Array, " n"]
    prior_sd: Float[Array, " n"]
    setting: Setting = eqx.field(static=True)

    def gradient(self, log: Array) -> tuple[Scalar, Array]:
        """Minus the logarithm of the density, but for a constant, and its gradient."""
        away = (log - self.prior) / self.prior_sd
        value, slope = 0.5 * jnp.sum(away**2), away / self.prior_sd
        for one, scales in zip(self.data, self.scales, strict=True):
            more = evidence_of_regimes(log, self.m, one, scales, self.setting)
            value, slope = value + more[0], slope + more[1]
        return value, slope

    def forces(self, log: Float[np.ndarray, " n"]) -> list[Force]:
        """Along every record."""
        each = zip(self.data, self.scales, strict=True)
        return [force_of_regimes(log, self.m, one, scales, self.setting) for one, scales in each]


class Fitted(NamedTuple):
    """Hyperparameters of all records together: logarithms, their covariance, and the force of every record."""

    log: Float[np.ndarray, " n"]
    covariance: Float[np.ndarray, "n n"]
    best: Maximum
    posterior: Posterior
    forces: list[Force]
    alone: list[Force]  # by the model of one regime


def fitted(
    records: Sequence[Record],
    known: AbstractKnown,
    components: int,
    noise: float | None,
    report: Callable[[str], None],
    unfinished: Unfinished | None = None,
) -> Fitted:
    """The maximum a posteriori of the hyperparameters of records that share them, and the forces along each.

    **Arguments:** `records`: as the linear model takes them (`AbstractKnown.seen`); `components`: Gaussians of every
    regime; `noise`: of every reading, where it is given; `report`: called with what is done; `unfinished`: where the
    search begins, instead of at the prior, and what it leaves there.
    """
    m, setting = known.linear(), known.setting(components)
    report("the force as one process, for orders of magnitude")
    scales, alone = zip(*(scales_of(record, m, setting) for record in records), strict=True)
    posterior = _posterior(records, m, setting, noise, scales)
    samples = sum(len(r.y) for r in records)
    report(f"hyperparameters, by the evidence of all {samples} samples")

    def told(calls: int, value: float) -> None:
        report(f"hyperparameters: evaluation {calls}, log posterior {-value:.8g}")

    def told_again(_: int, value: float) -> None:
        report(f"intervals of the hyperparameters: log posterior {-value:.8g}")

    kept = unfinished or Unfinished(None, "")
    if kept.best is None or kept.covariance is None:
        first = np.asarray(posterior.prior) if kept.log is None else kept.log
        best = maximum(None, first, posterior.gradient, told, kept.better)
        report("intervals of the hyperparameters")
        kept.settle(best, laplace(posterior.gradient, best.at, np.asarray(posterior.prior_sd), told_again))
    best, covariance = kept.best, kept.covariance
    assert best is not None
    assert covariance is not None
    report("smoothing")
    return Fitted(best.at, covariance, best, posterior, posterior.forces(best.at), list(alone))


def _posterior(
    records: Sequence[Record], m: LinearMechanism, setting: Setting, noise: float | None, scales: Sequence[Scales]
) -> Posterior:
    force = np.sqrt(np.mean([np.asarray(s.force) ** 2 for s in scales], axis=0))
    h = float(np.mean([record.h for record in records]))
    level = np.exp(np.mean([np.log(np.asarray(s.noise)) for s in scales], axis=0))
    level = level if noise is None else np.full_like(level, noise)
    prior = np.log(np.concatenate([force, force * _QUIET / np.sqrt(h), level, np.full_like(force, _DWELL * h)]))
    width = _PRIOR_SD if noise is None else _PRIOR_SD | {"noise": _GIVEN}
    sd = np.array([width[kind] for kind, _ in setting.kinds])
    data = tuple(map(Data.of, records))
    return Posterior(m, data, tuple(scales), jnp.asarray(prior), jnp.asarray(sd), setting)


def along_axes(log: Float[np.ndarray, " n"], covariance: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "2n n"]:
    """Points of equal weight with the mean and the covariance of a normal density: the roots of n times its variances
    to either side, along its axes.
    """
    value, vector = np.linalg.eigh(covariance)
    root = np.sqrt(len(log) * np.maximum(value, 0.0)) * vector
    return log + np.concatenate([root.T, -root.T])


def averaged(found: Fitted, points: Float[np.ndarray, "p n"], report: Callable[[str], None]) -> list[Force]:
    """The force along every record at hyperparameters of equal weight, merged: its mean, and a standard deviation that
    counts how the means differ; `evidence` stays that of the maximum.
    """
    each = []
    with beside() as submit:
        for number, forces in enumerate([submit(partial(found.posterior.forces, log)) for log in points]):
            report(f"bands: hyperparameters {number + 1} of {len(points)}")
            each.append(forces())
    merged = []
    for best, *of_record in zip(found.forces, *each, strict=True):
        x, sd, p = (np.stack(a) for a in zip(*((f.x, f.sd, f.probability) for f in of_record), strict=True))
        mean = np.mean(x, axis=0)
        spread = np.sqrt(np.mean(sd**2 + (x - mean) ** 2, axis=0))
        merged.append(Force(mean, spread, np.mean(p, axis=0), best.evidence))
    return merged
