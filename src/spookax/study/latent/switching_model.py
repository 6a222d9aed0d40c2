"""The switching model of a mass on a spring with unknown friction: evidence and force of given hyperparameters."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spookax._compiled import compiled
from spookax._typing import Array, Float, Scalar
from spookax.estimation import Exact, Filter, KeepHeaviest, MixtureFilter
from spookax.models import Contact, Matern, friction_regimes, oscillator
from spookax.models.linear import LinearMechanism
from spookax.protocol import Noise, Samples
from spookax.study.latent.evidence import maximum
from spookax.study.latent.record import Record
from spookax.study.latent.section import SENSORS

NAMES = ("force", "change", "noise", "dwell")
"""Hyperparameters, whose logarithms are searched: standard deviation of the force [N]; by how much it changes while the
mass slides, in the root of a second [N/sqrt(s)]; of a reading; mean time until the force jumps [s]."""

_LOOSE = (0.15, 0.2, 0.2)
"""What a sticking contact gains in a step, as shares: of the noise of a reading (a displacement), and of the standard
deviations of velocity and force. Chosen on drawn records, see `benchmarks/latent_records.py`."""
_PIECE = 4000  # samples of which a gradient keeps everything at once; those of a longer record are filtered twice
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
    """A record for compiled functions: mean step [s], the lengths that its steps have where they differ [s], inputs at
    the samples, and over the steps beside the readings (then with the number of the step's length).
    """

    h: Scalar
    lengths: Float[Array, " lengths"] | None
    u: Float[Array, "k inputs"]
    samples: Samples

    @staticmethod
    def of(record: Record) -> "Data":
        count, y, held, lengths = len(record.y), record.y[:, None, None], record.held, None
        if not record.even:
            lengths, number = record.lengths
            held = np.column_stack([held, number])
        weight = jnp.asarray(np.isfinite(y), dtype=float)
        samples = Samples(jnp.asarray(held), jnp.asarray(np.nan_to_num(y)), jnp.zeros((count, 1)), weight)
        h, u = jnp.asarray(record.h), jnp.asarray(record.u)
        return Data(h, None if lengths is None else jnp.asarray(lengths), u, samples)

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


def _models(log: Array, m: Mechanism, data: Data, setting: Setting, loose: Array) -> tuple[Contact, list[Any], Noise]:
    force, change, noise = jnp.exp(log[:3])
    stay = jnp.exp(-data.h / jnp.exp(log[3])) if len(log) > 3 else 0.92
    kernel = Matern(force, 2.0 * (force / change) ** 2)
    contact = Contact(kernel, force, stay, loose)
    steps = data.h if data.lengths is None else data.lengths
    models = list(friction_regimes.models(_mechanism(m, setting), [contact], steps))
    return contact, models, Noise(jnp.asarray(1.0), noise[None])


def one_regime(log: Array, m: Mechanism, data: Data, setting: Setting) -> Filter:
    """The force as one Gaussian process, without regimes: three logarithms."""
    _, models, noise = _models(log, m, data, setting, jnp.ones(3))
    return Filter(models[0], jnp.zeros(0), noise, Exact())


def three_regimes(log: Array, m: Mechanism, data: Data, setting: Setting, scales: Scales) -> MixtureFilter:
    """Sliding, sticking and jumping."""
    force, noise = jnp.exp(log[0]), jnp.exp(log[2])
    first = _LOOSE[0] * noise if setting.sensor == "displacement" else 1e-2 * scales.velocity * data.h
    loose = jnp.stack([jnp.asarray(first), _LOOSE[1] * jnp.asarray(scales.velocity), _LOOSE[2] * force])
    contact, models, level = _models(log, m, data, setting, loose)
    filters = [Filter(model, jnp.zeros(0), level, Exact()) for model in models]
    return MixtureFilter(filters, friction_regimes.transition([contact]), KeepHeaviest(setting.components))


def log_evidence(f: Filter | MixtureFilter, scales: Scales, samples: Samples) -> Scalar:
    """Of a record. Its gradient keeps what the filter does in a piece of it, not in all of it."""
    start, count = f.init(scales.x0, scales.sd), len(samples.u)
    if count <= _PIECE:
        return jnp.sum(f.scanned(start, samples).innovation.log_likelihood)
    pieces = -(-count // _PIECE)
    length = -(-count // pieces)

    def cut(a: Array) -> Array:
        more = jnp.zeros((pieces * length - count, *a.shape[1:]), dtype=a.dtype)  # in which nothing is seen
        return jnp.concatenate([a, more]).reshape(pieces, length, *a.shape[1:])

    @jax.checkpoint
    def along(belief: Any, piece: Samples) -> tuple[Any, Scalar]:
        found = f.scanned(belief, piece)
        return found.last, jnp.sum(found.innovation.log_likelihood)

    return jnp.sum(jax.lax.scan(along, start, jax.tree.map(cut, samples))[1])


@compiled
def _evidence_of_one_regime(log: Array, prior: Array, m: Mechanism, data: Data, scales: Scales, setting: Setting):
    samples = data.seen_by(_mechanism(m, setting))

    def cost(log: Array) -> Scalar:
        evidence = log_evidence(one_regime(log, m, data, setting), scales, samples)
        return 0.5 * jnp.sum(((log - prior) / _WIDE) ** 2) - evidence

    return jax.value_and_grad(cost)(log)


@compiled
def _force_of_one_regime(log: Array, m: Mechanism, data: Data, scales: Scales, setting: Setting):
    f = one_regime(log, m, data, setting)
    back = f.smooth(f.run(f.init(scales.x0, scales.sd), data.seen_by(_mechanism(m, setting)), trail=True))
    return back.x[:-1], back.sd[:-1]


@compiled
def evidence_of_regimes(
    log: Float[Array, " 4"], m: Mechanism, data: Data, scales: Scales, setting: Setting
) -> tuple[Scalar, Float[Array, " 4"]]:
    """Minus the log evidence, and its gradient."""
    samples = data.seen_by(_mechanism(m, setting))

    def cost(log: Array) -> Scalar:
        return -log_evidence(three_regimes(log, m, data, setting, scales), scales, samples)

    return jax.value_and_grad(cost)(log)


@compiled
def _force_of_regimes(log: Array, m: Mechanism, data: Data, scales: Scales, setting: Setting):
    f = three_regimes(log, m, data, setting, scales)
    found = f.scanned(f.init(scales.x0, scales.sd), data.seen_by(_mechanism(m, setting)), trail=True)
    assert found.trail is not None
    back = f.smoothed(found)
    return back.x[:-1], back.sd[:-1], back.probability[:-1], jnp.sum(found.innovation.log_likelihood)


def force_of_regimes(log: Float[np.ndarray, " 4"], m: Mechanism, data: Data, scales: Scales, setting: Setting) -> Force:
    """Smoothed, at given hyperparameters."""
    x, sd, probability, evidence = map(np.asarray, _force_of_regimes(jnp.asarray(log), m, data, scales, setting))
    return Force(x, sd, probability, float(evidence))


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
