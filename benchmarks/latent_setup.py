"""The friction oscillator of Marino and Cicirello (2023): its records, and their filter as their program has it."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from spookax._typing import Array, Float, Scalar
from spookax.estimation import Exact, Filter, KeepHeaviest, MixtureFilter
from spookax.estimation.recursive.step_rules import AbstractRule, Belief, Context, Move
from spookax.math import small
from spookax.models import Contact, Matern, friction_regimes, oscillator
from spookax.protocol import AbstractLinearModel, Noise, Samples

Number = Scalar | float
STEP = 5 / 2499  # [s]
MASS, DAMPING, STIFFNESS = 1.0, 5.0, 500.0
START_SD = np.sqrt([5e-3, 0.1, 0.05])
RESET_SD = np.sqrt(0.05)


class Record(NamedTuple):
    """Load [N], reading of the displacement [m], and what is true of displacement, velocity, force and regime."""

    time: np.ndarray
    u: np.ndarray
    y: np.ndarray
    z: np.ndarray
    v: np.ndarray
    force: np.ndarray
    sticks: np.ndarray

    @property
    def acceleration(self) -> np.ndarray:
        """[m/s^2]"""
        return (self.u - DAMPING * self.v - STIFFNESS * self.z - self.force) / MASS

    @property
    def samples(self) -> Samples:
        """For estimators."""
        count, u, y = len(self.y), jnp.asarray(self.u), jnp.asarray(self.y)
        return Samples(u[:, None], y[:, None, None], jnp.zeros((count, 1)), jnp.ones((count, 1, 1)))

    @property
    def between(self) -> Samples:
        """The same with the mean of the load at both ends of a step; the source holds that of its start."""
        u = jnp.asarray(self.u)
        return self.samples._replace(u=jnp.concatenate([(u[1:] + u[:-1]) / 2, u[-1:]])[:, None])


def folder() -> Path:
    """Of the reference data."""
    return Path(os.environ["SPOOKAX_DATA"]) / "friction_oscillator"


def record(data: Path, column: str = "y_snr60") -> Record:
    """The run of the source's program."""
    d = np.genfromtxt(data / "friction_oscillator.csv", delimiter=",", names=True)
    return Record(d["t"], d["u"], d[column], d["z_true"], d["v_true"], d["Ff_true"], d["regime_true"] > 1.5)


class AsPrinted(AbstractRule):
    """The source's program: covariances P -> K P K' + Q with a Q that need not be one.

    Its sliding and resetting models have 1e-16 m^2 in place of the displacement's own noise, which leaves Q indefinite,
    and its sticking model keeps P. Sums of covariances, as there: for comparison only.
    """

    K: Float[Array, "n n"]
    Q: Float[Array, "n n"]

    def readings(self, at: Context, belief: Belief, reading):
        return Exact().readings(at, belief, reading)

    def motion(self, at: Context, belief: Belief) -> Move:
        root = self.K @ belief.factor
        return Exact().motion(at, belief)._replace(factor=small.cholesky(root @ root.T + self.Q))

    def noises(self, model):
        return model.noise_size


def contact(force_variance: Number, length: Number, **options) -> Contact:
    """Sliding force by an exponential kernel (Matern 1/2)."""
    return Contact(Matern(jnp.sqrt(force_variance), length), RESET_SD, 0.92, **options)


def regimes(force_variance: Number, length: Number, h: float = STEP, **options) -> list[AbstractLinearModel]:
    """Models of sliding, sticking and resetting."""
    parts = oscillator(MASS, DAMPING, STIFFNESS), [contact(force_variance, length, **options)]
    return list(friction_regimes.models(*parts, h))


def level(noise_variance: Number) -> Noise:
    """Of the reading."""
    return Noise(jnp.asarray(1.0), jnp.sqrt(jnp.array([noise_variance])))


def one_regime(force_variance: Number, length: Number, noise_variance: Number, printed: bool = False) -> Filter:
    """The standard latent-force model: sliding alone."""
    model = regimes(force_variance, length)[0]
    return Filter(model, jnp.zeros(0), level(noise_variance), _printed([model])[0] if printed else Exact())


def three_regimes(
    force_variance: Number,
    length: Number,
    noise_variance: Number,
    count: int,
    printed: bool = False,
    **options,
) -> MixtureFilter:
    """Sliding, sticking and resetting, `count` components each."""
    models = regimes(force_variance, length, **options)
    rules = _printed(models) if printed else [Exact()] * 3
    noise = level(noise_variance)
    filters = [Filter(model, jnp.zeros(0), noise, rule) for model, rule in zip(models, rules, strict=True)]
    Pi = friction_regimes.transition([contact(force_variance, length)])
    return MixtureFilter(filters, Pi, KeepHeaviest(count))


def begun(f: Filter | MixtureFilter) -> Any:
    """Before the first reading: at rest, sliding."""
    if isinstance(f, Filter):
        return f.init(np.zeros(3), START_SD)
    return f.init(np.zeros(3), START_SD, np.array([1.0, 0.0, 0.0]))


def _printed(models) -> list[AsPrinted]:
    rules = []
    for number, model in enumerate(models):
        if number == 1:
            rules.append(AsPrinted(jnp.eye(3), jnp.zeros((3, 3))))
        else:
            rules.append(AsPrinted(model.A, (model.S @ model.S.T).at[0, 0].set(1e-16)))
    return rules


def nmse(estimate: np.ndarray, truth: np.ndarray) -> float:
    """(24) [%]."""
    return float(100.0 * np.mean((np.asarray(estimate) - truth) ** 2) / np.var(truth))


def nmv(variance: np.ndarray, truth: np.ndarray) -> float:
    """(25) [%]."""
    return float(100.0 * np.mean(np.asarray(variance)) / np.var(truth))
