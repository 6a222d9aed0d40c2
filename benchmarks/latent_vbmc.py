"""Hyperparameters of an unknown friction force by three ways to their posterior: Laplace's approximation, the No-U-Turn
sampler of blackjax, and variational Bayesian Monte Carlo of pyvbmc, which the source used.

On the first samples of the source's record, by the posterior of `spookax latent`. VBMC sees values alone; the other two
follow gradients, each of which costs about three values.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from spookax._compiled import compiled
from spookax.study.latent.fitting import Fitted, Posterior, fitted
from spookax.study.latent.mechanism import Mechanism, Oscillator
from spookax.study.latent.record import Record
from spookax.study.latent.sampling import CHAINS, quality, sampled
from spookax.study.latent.switching_model import KINDS

from . import peer
from .latent_setup import DAMPING, MASS, STEP, STIFFNESS, folder, record
from .measure import Row, row

SAMPLES, DRAWS = 500, 30
_FAR, _PLAUSIBLE = 8.0, 2.0  # half of VBMC's boxes, in standard deviations of Laplace's density


def run() -> list[Row]:
    """Of Laplace and pyvbmc: mean and standard deviation of every logarithm, what that took, and the evidence."""
    return _beside(_variational)


def run_sampler() -> list[Row]:
    """Of Laplace and the No-U-Turn sampler."""
    return _beside(_sampled)


def _beside(method: Callable[[Fitted], list[Row]]) -> list[Row]:
    truth = record(folder())
    y, u = truth.y[:SAMPLES, None], truth.u[:SAMPLES, None]
    own = Record("oscillator", truth.time[:SAMPLES], STEP, y, u, ("displacement",), "")
    began = time.process_time()
    found = fitted([own], Oscillator(Mechanism(MASS, DAMPING, STIFFNESS)), 3, None, lambda _: None)
    seconds = time.process_time() - began
    sd = np.sqrt(np.diag(found.covariance))
    rows = [*_told("Laplace", found.log, sd), row("Laplace", "gradients", found.best.calls + 2 * len(sd), "")]
    evidence = -found.best.cost + np.linalg.slogdet(2 * np.pi * found.covariance)[1] / 2
    rows += [
        row("Laplace", "log evidence", evidence, ""),
        row("Laplace", "processor time, with compilation", seconds, "s"),
    ]
    print(*rows, sep="\n", flush=True)
    return rows + method(found)


def _told(method: str, mean: np.ndarray, sd: np.ndarray) -> Iterator[Row]:
    for name, m, s in zip(KINDS, mean, sd, strict=True):
        yield row(method, f"log {name}, mean", float(m), "")
        yield row(method, f"log {name}, sd", float(s), "")


def _sampled(found: Fitted) -> list[Row]:
    if not peer.module("blackjax"):
        return [row("No-U-Turn", "blackjax", 0.0, "not installed")]
    began = time.process_time()
    *_, draws = sampled(found.posterior, found.log, found.covariance, DRAWS)
    seconds, kept, own = time.process_time() - began, draws.kept.reshape(-1, len(found.log)), quality(draws)
    return [
        *_told("No-U-Turn", np.mean(kept, axis=0), np.std(kept, axis=0)),
        row("No-U-Turn", "draws", float(CHAINS * DRAWS), ""),
        row("No-U-Turn", "independent draws they are worth", own.effective, ""),
        row("No-U-Turn", "R-hat", own.rhat, ""),
        row("No-U-Turn", "processor time, with compilation", seconds, "s"),
    ]


@compiled
def _density(posterior: Posterior, log: Any) -> Any:
    return -posterior.gradient(log)[0]


def _variational(found: Fitted) -> list[Row]:
    if not peer.module("pyvbmc"):
        return [row("VBMC", "pyvbmc", 0.0, "not installed")]
    from pyvbmc import VBMC  # pyright: ignore[reportMissingImports]

    sd = np.sqrt(np.diag(found.covariance))
    boxes = [found.log + side * sd for side in (-_FAR, _FAR, -_PLAUSIBLE, _PLAUSIBLE)]

    def density(log: np.ndarray) -> float:
        return float(_density(found.posterior, jnp.asarray(np.ravel(log))))

    began = time.process_time()
    ends, told = VBMC(density, found.log + sd, *boxes, options={"display": "off"}).optimize()
    seconds = time.process_time() - began
    mean, covariance = ends.moments(orig_flag=True, cov_flag=True)
    return [
        *_told("VBMC", np.ravel(mean), np.sqrt(np.diag(covariance))),
        row("VBMC", "values", float(told["func_count"]), ""),
        row("VBMC", "log evidence, a lower bound", float(told["elbo"]), ""),
        row("VBMC", "its standard deviation", float(told["elbo_sd"]), ""),
        row("VBMC", "settled", float(told["success_flag"]), ""),
        row("VBMC", "processor time, with compilation", seconds, "s"),
    ]
