"""The switching model of a linear mechanism with unknown friction: evidence and force of given hyperparameters."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spookax._compiled import compiled
from spookax._typing import Array, Float, Scalar
from spookax.estimation import Exact, Filter, KeepHeaviest, MixtureFilter
from spookax.models import Contact, Matern, friction_regimes
from spookax.models.linear import LinearMechanism
from spookax.protocol import Noise, Samples
from spookax.study.latent.evidence import maximum
from spookax.study.latent.record import Record

KINDS = ("force", "change", "noise", "dwell")
"""Hyperparameters, whose logarithms are searched: of every contact the standard deviation of its force [N]; by how much
it changes while the contact slides, in the root of a second [N/sqrt(s)]; of every reading its standard deviation; of
every contact the mean time until its force jumps [s]."""

_LOOSE = (0.15, 0.2, 0.2)
"""What a sticking contact gains in a step, as shares: of the noise of a reading, and of the standard deviations of
velocity and force where these are not read. Chosen on drawn records, see `benchmarks/latent_records.py`."""
TURNING = 1.0 / math.sqrt(3.0)
"""Standard deviation, as a share of the force, of its average over a step in which it turns over: even from -f to f."""
_PIECE = 40  # samples of which a gradient keeps everything at once: two contacts fill 2 MB with each
_WIDE = 3.0  # standard deviation of the logarithms for one regime


class Scales(NamedTuple):
    """What the record itself says about orders of magnitude, and where it starts."""

    velocity: Float[Array, " contacts"]  # standard deviation [m/s]
    force: Float[Array, " contacts"]  # rms [N]
    noise: Float[Array, " channels"]  # of a reading, by the model of one regime
    x0: Array  # coordinates, rates, forces
    sd: Array


class Setting(NamedTuple):
    """What stays the same while hyperparameters change, and is no array."""

    reads: tuple[tuple[str, int], ...]  # of every channel: what it reads, of which coordinate
    contacts: tuple[int, ...]  # the coordinate of each
    components: int

    @property
    def kinds(self) -> tuple[tuple[str, int], ...]:
        """Of every hyperparameter: its kind, and the number of its contact or channel."""
        counts = len(self.contacts), len(self.contacts), len(self.reads), len(self.contacts)
        return tuple((kind, i) for kind, count in zip(KINDS, counts, strict=True) for i in range(count))

    def split(self, log: Array) -> list[Array]:
        """Logarithms by kind; those of one regime have no `dwell`."""
        n, k = len(self.contacts), len(self.reads)
        return jnp.split(log, (n, 2 * n, 2 * n + k))


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
        count, y, held, lengths = len(record.y), record.y[:, None], record.held, None
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
    """The forces along a record, and what was believed beside them; leading axis: samples."""

    x: Float[np.ndarray, "k n"]  # coordinates, rates, forces of the contacts
    sd: Float[np.ndarray, "k n"]
    probability: Float[np.ndarray, "k regimes"]  # of all combinations of sliding, sticking, jumping
    evidence: float

    def of(self, contact: int, setting: Setting) -> "Force":
        """Of one contact: its displacement, velocity and force, and its own three regimes."""
        count = len(setting.contacts)
        q, i = (self.x.shape[1] - count) // 2, setting.contacts[contact]
        columns, modes = [i, q + i, 2 * q + contact], np.array(friction_regimes.combinations(count))[:, contact]
        own = np.stack([np.sum(self.probability[:, modes == mode], axis=1) for mode in range(3)], axis=1)
        return Force(self.x[:, columns], self.sd[:, columns], own, self.evidence)


def _models(
    log: Array, m: LinearMechanism, data: Data, setting: Setting, loose: Sequence[Array]
) -> tuple[list[Contact], list[Any], Noise]:
    force, change, noise, dwell = (jnp.exp(part) for part in setting.split(log))
    stay = jnp.exp(-data.h / dwell) if dwell.size else jnp.full(len(force), 0.92)
    kernels = [Matern(f, 2.0 * (f / c) ** 2) for f, c in zip(force, change, strict=True)]
    contacts = [Contact(k, f, s, own, TURNING * f) for k, f, s, own in zip(kernels, force, stay, loose, strict=True)]
    steps = data.h if data.lengths is None else data.lengths
    return contacts, list(friction_regimes.models(m, contacts, steps)), Noise(jnp.asarray(1.0), noise)


def one_regime(log: Array, m: LinearMechanism, data: Data, setting: Setting) -> Filter:
    """The forces as one Gaussian process each, without regimes and without `dwell`."""
    _, models, noise = _models(log, m, data, setting, [jnp.ones(3)] * len(setting.contacts))
    return Filter(models[0], jnp.zeros(0), noise, Exact())


def regimes(log: Array, m: LinearMechanism, data: Data, setting: Setting, scales: Scales) -> MixtureFilter:
    """Sliding, sticking and jumping, of every contact."""
    force, _, noise, _ = (jnp.exp(part) for part in setting.split(log))
    loose = []
    for c, coordinate in enumerate(setting.contacts):
        read = {kind: _LOOSE[0] * noise[k] for k, (kind, of) in enumerate(setting.reads) if of == coordinate}
        place = read.get("displacement", 1e-2 * scales.velocity[c] * data.h)
        rate = read.get("velocity", _LOOSE[1] * scales.velocity[c])
        held = _LOOSE[2] * force[c]
        if "acceleration" in read:
            held = read["acceleration"] / jnp.abs(m.slip[c] @ m.E[:, c])
        loose.append(jnp.stack([place, rate, held]))
    contacts, models, level = _models(log, m, data, setting, loose)
    filters = [Filter(model, jnp.zeros(0), level, Exact()) for model in models]
    transition, before = friction_regimes.transition(contacts), friction_regimes.before(len(contacts))
    return MixtureFilter(filters, transition, KeepHeaviest(setting.components), before=before)


def log_evidence(f: Filter | MixtureFilter, scales: Scales, samples: Samples) -> Scalar:
    """Of a record. Its gradient keeps what the filter does in a piece of it, not in all of it: each piece is filtered
    twice, which costs less than to touch gigabytes.
    """
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
def _evidence_of_one_regime(
    log: Array, prior: Array, m: LinearMechanism, data: Data, scales: Scales, setting: Setting
) -> tuple[Scalar, Array]:
    samples = data.seen_by(m)

    def cost(log: Array) -> Scalar:
        evidence = log_evidence(one_regime(log, m, data, setting), scales, samples)
        return 0.5 * jnp.sum(((log - prior) / _WIDE) ** 2) - evidence

    return jax.value_and_grad(cost)(log)


@compiled
def _force_of_one_regime(log: Array, m: LinearMechanism, data: Data, scales: Scales, setting: Setting):
    f = one_regime(log, m, data, setting)
    back = f.smoothed(f.scanned(f.init(scales.x0, scales.sd), data.seen_by(m), trail=True))
    return back.x[:-1], back.sd[:-1]


@compiled
def evidence_of_regimes(
    log: Float[Array, " n"], m: LinearMechanism, data: Data, scales: Scales, setting: Setting
) -> tuple[Scalar, Float[Array, " n"]]:
    """Minus the log evidence, and its gradient."""
    samples = data.seen_by(m)

    def cost(log: Array) -> Scalar:
        return -log_evidence(regimes(log, m, data, setting, scales), scales, samples)

    return jax.value_and_grad(cost)(log)


@compiled
def _force_of_regimes(log: Array, m: LinearMechanism, data: Data, scales: Scales, setting: Setting):
    f = regimes(log, m, data, setting, scales)
    found = f.scanned(f.init(scales.x0, scales.sd), data.seen_by(m), trail=True)
    assert found.trail is not None
    back = f.smoothed(found)
    return back.x[:-1], back.sd[:-1], back.probability[:-1], jnp.sum(found.innovation.log_likelihood)


def force_of_regimes(
    log: Float[np.ndarray, " n"], m: LinearMechanism, data: Data, scales: Scales, setting: Setting
) -> Force:
    """Smoothed, at given hyperparameters."""
    x, sd, probability, evidence = map(np.asarray, _force_of_regimes(jnp.asarray(log), m, data, scales, setting))
    return Force(x, sd, probability, float(evidence))


def scales_of(record: Record, m: LinearMechanism, setting: Setting) -> tuple[Scales, Force]:
    """Orders of magnitude, from the model of one regime at its largest evidence; and what that model finds."""
    x0, sd = _began(record, m, setting)
    q = m.coordinates
    s, F, B, E = (np.asarray(a) for a in (m.slip, m.F, m.B, m.E))
    mass = -1.0 / np.diag(s @ E)  # what a contact has to move
    pushed = mass * np.std(record.u @ (s @ B).T, axis=0)
    still = mass * np.linalg.norm((s @ F)[:, :q] * sd[:q], axis=1)  # no load: it swings out
    flies = mass * np.linalg.norm(s[:, q:] * sd[q:], axis=1) / record.h
    pushed = np.where(pushed > 0, pushed, np.where(still > 0, still, flies))
    y = [channel[np.isfinite(channel)] for channel in record.y.T]
    rough = [max(float(np.std(np.diff(a, 3))) / np.sqrt(20.0), 1e-6 * float(np.std(a))) for a in y]  # 1 + 9 + 9 + 1
    speed = np.linalg.norm(s[:, q:] * sd[q:], axis=1)
    x0, every = np.concatenate([x0, np.zeros(len(pushed))]), np.concatenate([sd, pushed])
    first = Scales(*map(jnp.asarray, (speed, pushed, np.array(rough), x0, every)))
    prior = jnp.log(jnp.asarray(np.concatenate([0.5 * pushed, 0.5 * pushed / np.sqrt(20.0 * record.h), rough])))
    fixed = (m, Data.of(record), first, setting)
    best = maximum(None, np.asarray(prior), lambda log: _evidence_of_one_regime(log, prior, *fixed))
    x, spread = (np.asarray(a) for a in _force_of_one_regime(jnp.asarray(best.at), *fixed))
    slides = np.zeros((len(x), 3 ** len(pushed)))
    slides[:, 0] = 1.0
    alone = Force(x, spread, slides, -best.cost)
    noise = np.exp(setting.split(jnp.asarray(best.at))[2])
    velocity, force = np.std(x[:, : 2 * q] @ s.T, axis=0), np.sqrt(np.mean(x[:, 2 * q :] ** 2, axis=0))
    return Scales(*map(jnp.asarray, (velocity, force, noise, first.x0, first.sd))), alone


def _began(record: Record, m: LinearMechanism, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates and rates at the start, as far as the first readings tell, and standard deviations of them; what is
    not read goes with what is, as in a free oscillation.
    """
    q, F = m.coordinates, np.asarray(m.F)
    x0, sd = np.zeros(2 * q), np.zeros(2 * q)
    for (kind, i), channel in zip(setting.reads, record.y.T, strict=True):
        number = ("displacement", "velocity", "acceleration").index(kind)
        y = channel[np.isfinite(channel)]
        turn = max(np.sqrt(max(-F[q + i, i], 0.0)), 2.0 * np.pi / (record.h * len(channel)))
        if number < 2:
            x0[number * q + i] = y[0]
        if not sd[i]:
            sd[[i, q + i]] = float(np.std(y)) * turn ** (np.arange(2.0) - number)
    return x0, sd
