"""The switching model of a mass on a spring with unknown friction, its hyperparameters, and the force that it finds."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spookax._compiled import compiled
from spookax._typing import Array, Float, Scalar
from spookax.estimation import Exact, Filter, KeepHeaviest, MixtureFilter
from spookax.models import Contact, LinearGaussian, Matern, friction_regimes, oscillator
from spookax.models.linear import LinearMechanism
from spookax.protocol import Noise, Samples
from spookax.study.latent.evidence import Maximum, laplace, maximum
from spookax.study.latent.record import Record
from spookax.study.latent.spec import SENSORS

NAMES = ("force", "change", "noise", "dwell")
"""Hyperparameters, whose logarithms are searched: standard deviation of the force [N]; by how much it changes while the
mass slides, in the root of a second [N/sqrt(s)]; of a reading; mean time until the force jumps [s]."""

_LOOSE = (0.15, 0.2, 0.2)
"""What a sticking contact gains in a step, as shares: of the noise of a reading (a displacement), and of the standard
deviations of velocity and force. Chosen on drawn records, see `benchmarks/latent_records.py`."""
_PRIOR_SD = np.array([0.7, 2.0, 0.5, 1.0])
_DWELL = 30.0  # steps, before the record speaks
_QUIET = 0.005  # of the force: its change in a step before the record speaks
_SEARCHED = 4000  # samples of a record that hyperparameters are found on, the first: their gradient keeps all of them
_WIDE = 3.0  # standard deviation of the logarithms for one regime


class Mechanism(NamedTuple):
    """m z'' + c z' + k z + f = load."""

    mass: float | Array
    damping: float | Array
    stiffness: float | Array


class Scales(NamedTuple):
    """What the record itself says about orders of magnitude, and where it starts."""

    velocity: float | Array  # standard deviation [m/s]
    force: float | Array  # rms [N]
    noise: float | Array  # of a reading, by the model of one regime
    x0: Array  # displacement, velocity, force
    sd: Array


class Setting(NamedTuple):
    """What stays the same while hyperparameters change, and is no array."""

    sensor: str
    base: bool
    components: int


class Data(NamedTuple):
    """A record for compiled functions: step [s], inputs at the samples, and over the steps beside the readings."""

    h: Scalar
    u: Float[Array, "k inputs"]
    samples: Samples

    @staticmethod
    def of(record: Record) -> "Data":
        count, y = len(record.y), record.y[:, None, None]
        seen = jnp.asarray(np.isfinite(y), dtype=float)
        samples = Samples(jnp.asarray(record.held), jnp.asarray(np.nan_to_num(y)), jnp.zeros((count, 1)), seen)
        return Data(jnp.asarray(record.h), jnp.asarray(record.u), samples)

    def seen_by(self, m: LinearMechanism) -> Samples:
        """Readings without what the inputs do to them at once: an accelerometer feels the load."""
        return self.samples._replace(y=self.samples.y - (self.u @ m.D.T)[:, None, :])


class Force(NamedTuple):
    """The force along a record, and what was believed beside it; leading axis: samples."""

    x: Float[np.ndarray, "k 3"]  # displacement, velocity, force
    sd: Float[np.ndarray, "k 3"]
    probability: Float[np.ndarray, "k 3"]  # of sliding, sticking, jumping
    evidence: float


def _mechanism(m: Mechanism, setting: Setting) -> LinearMechanism:
    return oscillator(m.mass, m.damping, m.stiffness, [setting.sensor], setting.base)


def _models(
    log: Array, m: Mechanism, h: Scalar, setting: Setting, loose: Array
) -> tuple[Contact, list[LinearGaussian], Noise]:
    force, change, noise = jnp.exp(log[:3])
    stay = jnp.exp(-h / jnp.exp(log[3])) if len(log) > 3 else 0.92
    kernel = Matern(force, 2.0 * (force / change) ** 2)
    contact = Contact(kernel, force, stay, loose)
    return contact, friction_regimes.models(_mechanism(m, setting), [contact], h), Noise(jnp.asarray(1.0), noise[None])


def one_regime(log: Array, m: Mechanism, h: Scalar, setting: Setting) -> Filter:
    """The force as one Gaussian process, without regimes: three logarithms."""
    _, models, noise = _models(log, m, h, setting, jnp.ones(3))
    return Filter(models[0], jnp.zeros(0), noise, Exact())


def three_regimes(log: Array, m: Mechanism, h: Scalar, setting: Setting, scales: Scales) -> MixtureFilter:
    """Sliding, sticking and jumping."""
    force, noise = jnp.exp(log[0]), jnp.exp(log[2])
    first = _LOOSE[0] * noise if setting.sensor == "displacement" else 1e-2 * scales.velocity * h
    loose = jnp.stack([jnp.asarray(first), _LOOSE[1] * jnp.asarray(scales.velocity), _LOOSE[2] * force])
    contact, models, level = _models(log, m, h, setting, loose)
    filters = [Filter(model, jnp.zeros(0), level, Exact()) for model in models]
    return MixtureFilter(filters, friction_regimes.transition([contact]), KeepHeaviest(setting.components))


@compiled
def _evidence_of_one_regime(log: Array, prior: Array, m: Mechanism, data: Data, scales: Scales, setting: Setting):
    samples = data.seen_by(_mechanism(m, setting))

    def cost(log: Array) -> Scalar:
        f = one_regime(log, m, data.h, setting)
        evidence = jnp.sum(f.run(f.init(scales.x0, scales.sd), samples).innovation.log_likelihood)
        return 0.5 * jnp.sum(((log - prior) / _WIDE) ** 2) - evidence

    return jax.value_and_grad(cost)(log)


@compiled
def _force_of_one_regime(log: Array, m: Mechanism, data: Data, scales: Scales, setting: Setting):
    f = one_regime(log, m, data.h, setting)
    back = f.smooth(f.run(f.init(scales.x0, scales.sd), data.seen_by(_mechanism(m, setting)), trail=True))
    return back.x[:-1], back.sd[:-1]


@compiled
def _evidence_of_regimes(log: Array, m: Mechanism, data: Data, scales: Scales, setting: Setting):
    samples = data.seen_by(_mechanism(m, setting))

    def cost(log: Array) -> Scalar:
        f = three_regimes(log, m, data.h, setting, scales)
        return -jnp.sum(f.scanned(f.init(scales.x0, scales.sd), samples).innovation.log_likelihood)

    return jax.value_and_grad(cost)(log)


@compiled
def _force_of_regimes(log: Array, m: Mechanism, data: Data, scales: Scales, setting: Setting):
    f = three_regimes(log, m, data.h, setting, scales)
    found = f.scanned(f.init(scales.x0, scales.sd), data.seen_by(_mechanism(m, setting)), trail=True)
    assert found.trail is not None
    back = f.smoothed(found)
    return back.x[:-1], back.sd[:-1], back.probability[:-1], jnp.sum(found.innovation.log_likelihood)


def scales_of(record: Record, m: Mechanism, setting: Setting) -> tuple[Scales, Force]:
    """Orders of magnitude, from the model of one regime at its largest evidence; and what that model finds."""
    m = Mechanism(*(jnp.asarray(float(a)) for a in m))
    x0, sd = _began(record, m, setting)
    load = float(m.stiffness) * record.u[:, 0] if setting.base else record.u[:, 0]
    y = record.y[np.isfinite(record.y)]
    pushed = (
        float(np.std(load)) or float(m.stiffness) * sd[0] or float(m.mass) * sd[1] / record.h
    )  # none: it swings out
    rough = max(float(np.std(np.diff(y, 3))) / np.sqrt(20.0), 1e-6 * float(np.std(y)))  # white noise: 1 + 9 + 9 + 1
    first = Scales(*map(jnp.asarray, (sd[1], pushed, rough, x0, np.append(sd, pushed))))
    prior = jnp.log(jnp.array([0.5 * pushed, 0.5 * pushed / np.sqrt(20.0 * record.h), rough]))
    fixed = (m, Data.of(record), first, setting)
    best = maximum(None, np.asarray(prior), lambda log: _evidence_of_one_regime(log, prior, *fixed))
    x, spread = (np.asarray(a) for a in _force_of_one_regime(jnp.asarray(best.at), *fixed))
    alone = Force(x, spread, np.tile([1.0, 0.0, 0.0], (len(x), 1)), -best.cost)
    velocity, force = float(np.std(x[:, 1])), float(np.sqrt(np.mean(x[:, 2] ** 2)))
    return first._replace(velocity=velocity, force=force, noise=float(np.exp(best.at[2]))), alone


def _began(record: Record, m: Mechanism, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Displacement, velocity and force at the start, as far as the first reading tells, and standard deviations of
    displacement and velocity; what is not read goes with it as in a free oscillation.
    """
    y = record.y[np.isfinite(record.y)]
    turn = max(np.sqrt(float(m.stiffness) / float(m.mass)), 2.0 * np.pi / (record.h * len(record.y)))
    number = list(SENSORS).index(setting.sensor)
    x0 = np.zeros(3)
    if number < 2:
        x0[number] = y[0]
    return x0, float(np.std(y)) * turn ** (np.arange(2.0) - number)


class Fitted(NamedTuple):
    """Hyperparameters of all records together: logarithms, their covariance, and the force of every record."""

    log: Float[np.ndarray, " 4"]
    covariance: Float[np.ndarray, "4 4"]
    best: Maximum
    scales: list[Scales]
    forces: list[Force]
    alone: list[Force]  # by the model of one regime


def fitted(
    records: list[Record],
    m: Mechanism,
    setting: Setting,
    noise: float | None,
    report: Callable[[str], None],
    start: Float[np.ndarray, " 4"] | None = None,
) -> Fitted:
    """The maximum a posteriori of the hyperparameters of records that share them, and the force along each."""
    m = Mechanism(*(jnp.asarray(float(a)) for a in m))
    report("the force as one process, for orders of magnitude")
    scales, alone = zip(*(scales_of(record, m, setting) for record in records), strict=True)
    force = float(np.sqrt(np.mean([float(s.force) ** 2 for s in scales])))
    h = float(np.mean([record.h for record in records]))
    level = float(np.exp(np.mean([np.log(float(s.noise)) for s in scales]))) if noise is None else noise
    prior = np.log([force, force * _QUIET / np.sqrt(h), level, _DWELL * h])
    sd = _PRIOR_SD if noise is None else np.where(np.arange(4) == 2, 1e-6, _PRIOR_SD)
    fixed = [(jax.tree.map(jnp.asarray, s), setting) for s in scales]
    data = [(m, Data.of(r.head(_SEARCHED)), *rest) for r, rest in zip(records, fixed, strict=True)]

    def gradient(log: Array) -> tuple[Scalar, Array]:
        away = (log - prior) / sd
        value, slope = 0.5 * jnp.sum(away**2), away / sd
        for one in data:
            more = _evidence_of_regimes(log, *one)
            value, slope = value + more[0], slope + more[1]
        return value, slope

    report("hyperparameters")
    told = lambda calls, value: report(f"hyperparameters: evaluation {calls}, log posterior {-value:.8g}")  # noqa: E731
    best = maximum(None, prior if start is None else start, gradient, told)
    report("intervals of the hyperparameters")
    covariance = laplace(gradient, best.at, sd)
    report("smoothing")
    forces = []
    for record, rest in zip(records, fixed, strict=True):
        one = (m, Data.of(record), *rest)
        x, sds, probability, evidence = (np.asarray(a) for a in _force_of_regimes(jnp.asarray(best.at), *one))
        forces.append(Force(x, sds, probability, float(evidence)))
    return Fitted(best.at, covariance, best, list(scales), forces, list(alone))
