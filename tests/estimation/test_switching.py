"""Switching estimators: a textbook bank written out in numpy, the smoother, merging on a manifold, coupling."""

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from estimation.linear_model import NOISE, LinearModel, Masses, recording

from spookax.estimation import IMM, Coupled, Extended, Filter, KeepHeaviest, MixFirst, Modes, Unscented, merge, others
from spookax.estimation.recursive.step_rules import Belief
from spookax.math import rotation
from spookax.protocol import AbstractModel, AbstractVectorModel, Noise, Samples

close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-10)
TRANSITION = np.array([[0.95, 0.05], [0.10, 0.90]])
A = np.array([[1.0, 0.1], [-0.3, 0.95]])
G = np.array([[[0.02], [0.05]], [[0.1], [0.6]]])  # of the two modes: quiet, and shaken
PUSH = np.array([[0.0, 0.02], [0.0, 0.3]])
SENSOR = np.array([0.1, 0.3])
START = np.array([1.0, 0.0])  # mean of the first state; its standard deviations are 1
STEPS = 120


class Linear(AbstractVectorModel):
    """x+ = A x + u push + G w; position and velocity are read."""

    G: jax.Array
    push: jax.Array
    tangent_size: int = eqx.field(static=True, default=2)
    noise_size: int = eqx.field(static=True, default=1)
    num_channels: int = eqx.field(static=True, default=2)

    @property
    def reads_pair(self):
        return False

    def prepare(self, z):
        return z

    def step(self, x, p, u, w, noise, guess):
        return A @ x + self.push * u[0] + self.G @ (noise.process * w), guess

    def observe(self, x, x1, p, s):
        return x


def filters(rule=None, other=None) -> list[Filter]:
    rules = [rule or Extended(), other or rule or Extended()]
    level = Noise(jnp.asarray(1.0), jnp.asarray(SENSOR))
    models = [Linear(jnp.asarray(g), jnp.asarray(b)) for g, b in zip(G, PUSH, strict=True)]
    return [Filter(model, jnp.zeros(0), level, rule) for model, rule in zip(models, rules, strict=True)]


def switching_data(rng: np.random.Generator, steps: int = STEPS) -> tuple[Samples, np.ndarray, np.ndarray]:
    """Samples, true states and modes of the two models above; one reading in ten is missing."""
    x, mode, states, modes = START + rng.normal(size=2), int(rng.uniform() < 0.5), [], []
    u = rng.normal(size=(steps, 1))
    for k in range(steps):
        states.append(x)
        modes.append(mode)
        mode = int(rng.uniform() < TRANSITION[mode, 1])  # rows sum to one: the second column is enough
        x = A @ x + PUSH[mode] * u[k] + G[mode] @ rng.normal(size=1)
    y = np.array(states) + SENSOR * rng.normal(size=(steps, 2))
    seen = (rng.uniform(size=(steps, 1, 2)) < 0.9).astype(float)
    samples = jax.device_put(Samples(u, y[:, None], np.zeros((steps, 1)), seen))
    return samples, np.array(states), np.array(modes)


class Gauss(NamedTuple):
    m: np.ndarray
    P: np.ndarray


def moments(weights, parts) -> Gauss:
    m = sum(w * p.m for w, p in zip(weights, parts, strict=True))
    return Gauss(m, sum(w * (p.P + np.outer(p.m - m, p.m - m)) for w, p in zip(weights, parts, strict=True)))


def textbook(samples: Samples, start: Gauss) -> tuple[list[Gauss], np.ndarray, float]:
    """Filtered moments, probabilities and log-likelihood: Bar-Shalom, Li, Kirubarajan (2001), section 11.6.6."""
    bank, mu, out, probabilities, total = [start, start], np.full(2, 0.5), [], [], 0.0
    for u, y, seen in zip(*(np.asarray(a) for a in (samples.u, samples.y[:, 0], samples.weight[:, 0])), strict=True):
        likelihood = []
        for j, (m, P) in enumerate(bank):
            H = np.eye(2)[seen > 0]
            S = H @ P @ H.T + np.diag(SENSOR[seen > 0] ** 2)
            e = y[seen > 0] - H @ m
            K = P @ H.T @ np.linalg.inv(S)
            bank[j] = Gauss(m + K @ e, P - K @ S @ K.T)
            likelihood.append(np.exp(-e @ np.linalg.solve(S, e) / 2) / np.sqrt(np.linalg.det(2 * np.pi * S)))
        mu = mu * likelihood
        total += np.log(mu.sum())
        mu = mu / mu.sum()
        out.append(moments(mu, bank))
        probabilities.append(mu)
        after = TRANSITION.T @ mu
        mixed = [moments(TRANSITION[:, j] * mu / after[j], bank) for j in range(2)]
        bank = [Gauss(A @ m + PUSH[j] * u, A @ P @ A.T + G[j] @ G[j].T) for j, (m, P) in enumerate(mixed)]
        mu = after
    return out, np.array(probabilities), total


def test_the_bank_is_the_textbooks(rng):
    samples, _, _ = switching_data(rng)
    imm = IMM(filters(), TRANSITION)
    found = imm.run(imm.init(jnp.zeros(2), jnp.array([2.0, 1.0])), samples)
    wanted, probabilities, log_likelihood = textbook(samples, Gauss(np.zeros(2), np.diag([4.0, 1.0])))
    close(found.x, [g.m for g in wanted])
    close(found.sd, [np.sqrt(np.diag(g.P)) for g in wanted])
    close(found.modes.probability, probabilities)
    close(np.sum(found.innovation.log_likelihood), log_likelihood)
    close(found.modes.fitted[:, 0], [g.m for g in wanted])
    assert np.ptp(probabilities[:, 0]) > 0.9  # the modes do change
    close(np.sum(found.modes.probability, axis=1), 1.0)


def test_samples_one_by_one_and_recordings_at_once(rng):
    samples, _, _ = switching_data(rng)
    imm = IMM(filters(), TRANSITION)
    start = imm.init(jnp.zeros(2), jnp.ones(2), probability=jnp.array([0.3, 0.7]))
    close(start.probability, [0.3, 0.7])
    found, modes = imm.run(start, samples), start
    host, wanted = jax.tree.map(np.asarray, (samples, found))
    for k in range(STEPS):
        modes, after = imm.update(modes, host.u[k], np.where(host.weight[k] > 0, host.y[k], np.nan))
        close(after.x, wanted.x[k])
        close(after.modes.log_probability, wanted.modes.log_probability[k])
        modes = imm.predict(modes, host.u[k])
    jax.tree.map(close, modes, found.last)
    two = jax.tree.map(lambda a: jnp.stack([a, a]), (start, samples))
    many = imm.run(*two, many=True)
    jax.tree.map(lambda a, b: [close(a[:, i], b) for i in range(2)], tuple(many)[:4], tuple(found)[:4])


@pytest.mark.parametrize("model", ["vector", "pairs"])
def test_one_mode_is_the_filter_and_its_smoother(rng, model):
    if model == "vector":
        f, samples, x0 = filters()[0], switching_data(rng)[0], jnp.zeros(2)
    else:  # readings that depend on the noise of their step
        samples, _ = recording(rng, 40, np.array([1.5, -0.7]), 0.2)
        f, x0 = Filter(LinearModel(), jnp.array([1.5, -0.7, 0.2]), NOISE), Masses(jnp.zeros(2), jnp.zeros(2))
    sd = jnp.ones(f.model.tangent_size)
    plain = f.run(f.init(x0, sd), samples, trail=True)
    imm = IMM([f], np.eye(1))
    found = imm.run(imm.init(x0, sd), samples, trail=True)
    tight = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
    jax.tree.map(tight, found.x, plain.x)
    tight(found.sd, plain.sd)
    tight(found.innovation.log_likelihood, plain.innovation.log_likelihood, rtol=1e-11)
    jax.tree.map(close, found.innovation, plain.innovation)
    back, wanted = imm.smooth(found), f.smooth(plain)
    jax.tree.map(close, back.x, wanted.x)
    close(back.sd, wanted.sd)
    squares = jax.vmap(lambda S: S @ S.T)
    close(squares(back.factor), squares(wanted.factor))


def test_innovations_of_a_bank_are_those_of_its_mixture(rng):
    """Of the two modes' predictions together: mean and covariance written out."""
    samples, _, _ = switching_data(rng, 3)
    imm = IMM(filters(), TRANSITION)
    modes = imm.init(jnp.zeros(2), jnp.ones(2))
    for k in range(2):
        modes, _ = imm.update(modes, samples.u[k], samples.y[k])
        modes = imm.predict(modes, samples.u[k])
    b = modes.beliefs
    parts = [Gauss(x + m, S @ S.T + np.diag(SENSOR**2)) for x, m, S in zip(b.x, b.mean, b.factor, strict=True)]
    wanted, y = moments(modes.probability, parts), samples.y[2, 0]
    _, after = imm.update(modes, samples.u[2], y)
    close(after.innovation.residual * SENSOR, y - wanted.m)
    close(after.innovation.whitened, np.linalg.solve(np.linalg.cholesky(wanted.P), y - wanted.m))
    close(after.innovation.nis, (y - wanted.m) @ np.linalg.solve(wanted.P, y - wanted.m))


def test_innovations_have_the_units_of_the_first_modes_sensors(rng):
    """Of modes that differ in their sensors' noise alone: prediction and residual are the same."""
    samples, _, _ = switching_data(rng, 1)
    f, y = filters()[0], samples.y[0, 0]
    loud = f.with_noise(Noise(f.noise.process, 3.0 * f.noise.sensor))
    imm, P = IMM([f, loud], TRANSITION), np.diag([4.0, 1.0])
    _, after = imm.update(imm.init(jnp.zeros(2), jnp.array([2.0, 1.0])), samples.u[0], y)
    close(after.innovation.residual * SENSOR, y)
    close(after.innovation.nis, y @ np.linalg.solve(P + 5.0 * np.diag(SENSOR**2), y))  # (1 + 9) / 2


def test_a_bank_of_one_at_sigma_points_is_that_filter(rng):
    """What a line leaves unexplained of the readings is part of what the mixture expects."""

    class Bent(Linear):
        def observe(self, x, x1, p, s):
            return x + jnp.sin(2.0 * x)

    samples, level = switching_data(rng, 20)[0], filters()[1].noise
    f = Filter(Bent(jnp.asarray(G[1]), jnp.asarray(PUSH[1])), jnp.zeros(0), level, Unscented())
    imm, x0 = IMM([f], np.eye(1)), jnp.zeros(2)
    found = imm.run(imm.init(x0, jnp.ones(2)), samples)
    plain = f.run(f.init(x0, jnp.ones(2)), samples)
    jax.tree.map(close, (found.x, found.innovation), (plain.x, plain.innovation))


def test_the_gate_of_a_bank_keeps_readings_from_states_and_modes(rng):
    """A jump of the sensor at one sample: the same as if it had not been read; with one mode, as the filter's gate."""
    samples, _, _ = switching_data(rng)
    at = 40
    assert np.all(samples.weight[at] > 0)
    jumped = samples._replace(y=samples.y.at[at].add(30.0))
    without = samples._replace(weight=samples.weight.at[at].set(0.0))
    imm = IMM(filters(), TRANSITION, gate=30.0)
    start = imm.init(jnp.zeros(2), jnp.ones(2))
    found, wanted = (imm.run(start, s, trail=True) for s in (jumped, without))
    np.testing.assert_array_equal(np.flatnonzero(np.asarray(found.innovation.accepted) == 0), [at])
    jax.tree.map(close, (found.x, found.modes.probability), (wanted.x, wanted.modes.probability))
    close(np.sum(found.innovation.log_likelihood), np.sum(wanted.innovation.log_likelihood))
    jax.tree.map(close, imm.smooth(found), imm.smooth(wanted))
    f = filters()[1]
    gated, alone = eqx.tree_at(lambda f: f.gate, f, 30.0), IMM([f], np.eye(1), gate=30.0)
    plain, one = gated.run(gated.init(jnp.zeros(2), jnp.ones(2)), jumped), alone.init(jnp.zeros(2), jnp.ones(2))
    one = alone.run(one, jumped)
    jax.tree.map(close, (one.x, one.innovation), (plain.x, plain.innovation))


def test_levels_that_change_from_sample_to_sample(rng):
    """Equal modes are one filter with the same levels; one call a sample does what the scan does."""
    samples, _, _ = switching_data(rng, 30)
    f, count = filters()[1], 30
    noise = Noise(jnp.asarray(rng.uniform(0.5, 2.0, count)), jnp.asarray(SENSOR * rng.uniform(0.5, 2.0, (count, 1))))
    plain = f.run(f.init(jnp.zeros(2), jnp.ones(2)), samples, noise)
    both = jax.tree.map(lambda a: jnp.stack([a, a], axis=1), noise)
    imm = IMM([f, f], TRANSITION)
    modes = imm.init(jnp.zeros(2), jnp.ones(2))
    found = imm.run(modes, samples, both)
    close(found.x, plain.x)
    close(found.innovation.log_likelihood, plain.innovation.log_likelihood)
    two = jax.tree.map(lambda a: jnp.stack([a, a]), (modes, samples, both))
    close(imm.run(*two, many=True).x[:, 1], plain.x)
    for k in range(3):
        level = jax.tree.map(lambda a, k=k: a[k], both)
        modes, after = imm.update(modes, samples.u[k], samples.y[k], samples.weight[k], noise=level)
        modes = imm.predict(modes, samples.u[k], level)
        close(after.x, plain.x[k])


def test_a_bank_of_equal_pair_models_is_one_filter(rng):
    samples, _ = recording(rng, 40, np.array([1.5, -0.7]), 0.2)
    f, x0 = Filter(LinearModel(), jnp.array([1.5, -0.7, 0.2]), NOISE), Masses(jnp.zeros(2), jnp.zeros(2))
    plain, imm = f.run(f.init(x0, jnp.ones(4)), samples, trail=True), IMM([f, f], TRANSITION)
    found = imm.run(imm.init(x0, jnp.ones(4)), samples, trail=True)
    jax.tree.map(close, found.x, plain.x)
    close(np.sum(found.innovation.log_likelihood), plain.log_likelihood)
    back, wanted = imm.smooth(found), f.smooth(plain)
    jax.tree.map(close, back.x, wanted.x)
    close(back.sd, wanted.sd)
    with pytest.raises(ValueError, match="at the start of a step"):
        IMM([f, f], TRANSITION, sharing=MixFirst(KeepHeaviest(1)))


def test_filters_of_several_forms_run_one_by_one(rng):
    samples, _, _ = switching_data(rng)
    same, mixed = IMM(filters(), TRANSITION), IMM(filters(Extended(), Extended(2)), TRANSITION)
    assert isinstance(mixed.bank, tuple)  # on a linear model a second iteration changes nothing
    found = [imm.run(imm.init(jnp.zeros(2), jnp.ones(2)), samples) for imm in (same, mixed)]
    jax.tree.map(close, *found)


def test_the_smoother_knows_more_than_the_filter():
    """States and modes, over thirty records. Standard deviations are on the careful side: over two hundred such records
    the mean square of error / sd is 0.98 for the filter and 0.85 for the smoother.
    """
    imm, sums, over = IMM(filters(), TRANSITION), np.zeros(4), 0.0
    for seed in range(30):
        samples, states, modes = switching_data(np.random.default_rng(seed))
        found = imm.run(imm.init(jnp.asarray(START), jnp.ones(2)), samples, trail=True)
        back = imm.smooth(found)
        error, before = np.asarray(back.x)[:-1] - states, np.asarray(found.x) - states
        logs = found.modes.log_probability, back.log_probability[:-1]
        surprise = [-np.mean(np.asarray(log)[np.arange(STEPS), modes]) for log in logs]
        sums += [np.mean(before**2), np.mean(error**2), *surprise]
        over += np.mean((error / np.asarray(back.sd)[:-1]) ** 2)
        close(np.sum(back.probability, axis=1), 1.0)
    filtered, smoothed, filtered_surprise, smoothed_surprise = sums / 30
    assert smoothed < 0.9 * filtered
    assert smoothed_surprise < 0.9 * filtered_surprise
    assert 0.7 < over / 30 < 1.1


def exact(samples: Samples, start: Gauss, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Smoothed means and mode probabilities from all sequences of modes, each a dense Gaussian problem."""
    y, seen, u = (np.asarray(a) for a in (samples.y[:, 0], samples.weight[:, 0], samples.u))
    logs, means, sequences = [], [], []
    for code in range(2**steps):
        modes = [(code >> k) & 1 for k in range(steps)]
        mean, P, now = np.zeros(2 * steps), np.zeros((2 * steps, 2 * steps)), start
        logp = np.log(0.5)
        mean[:2], P[:2, :2] = now
        for k in range(steps - 1):  # the joint prior of all states
            j, here, there = modes[k + 1], slice(2 * k, 2 * k + 2), slice(2 * k + 2, 2 * k + 4)
            logp += np.log(TRANSITION[modes[k], j])
            mean[there] = A @ mean[here] + PUSH[j] * u[k]
            P[there, : 2 * k + 2] = A @ P[here, : 2 * k + 2]
            P[: 2 * k + 2, there] = P[there, : 2 * k + 2].T
            P[there, there] = A @ P[here, here] @ A.T + G[j] @ G[j].T
        rows = seen[:steps].reshape(-1) > 0
        S = P[np.ix_(rows, rows)] + np.diag(np.tile(SENSOR**2, steps)[rows])
        e = y[:steps].reshape(-1)[rows] - mean[rows]
        logs.append(logp - e @ np.linalg.solve(S, e) / 2 - np.linalg.slogdet(S)[1] / 2)
        means.append(mean + P[:, rows] @ np.linalg.solve(S, e))
        sequences.append(modes)
    weight = np.exp(np.array(logs) - max(logs))
    weight /= weight.sum()
    return (weight @ np.array(means)).reshape(-1, 2), weight @ (np.array(sequences) == 1)


def test_the_smoother_is_near_the_exact_answer():
    """Against all sequences of modes of short records: an approximation, much nearer than the filter."""
    steps, apart = 7, []
    imm = IMM(filters(), TRANSITION)
    for seed in range(12):
        samples, _, _ = switching_data(np.random.default_rng(seed), steps)
        found = imm.run(imm.init(jnp.asarray(START), jnp.ones(2)), samples, trail=True)
        back = imm.smooth(found)
        states, second = exact(samples, Gauss(START, np.eye(2)), steps)
        mine = [(found.x, found.modes.probability), (back.x[:-1], back.probability[:-1])]
        apart.append([[np.mean((x - states) ** 2), np.mean((p[:, 1] - second) ** 2)] for x, p in mine])
    filtered, smoothed = np.sqrt(np.mean(apart, axis=0))
    assert np.all(smoothed < 0.25 * filtered)


@pytest.mark.slow
def test_derivatives_of_the_evidence(rng):
    """In what the modes are made of: forward and reverse mode against central differences."""
    samples, _, _ = switching_data(rng, 25)
    imm = IMM(filters(), TRANSITION)
    start = imm.init(jnp.zeros(2), jnp.ones(2))

    def evidence(z):
        Pi = jnp.stack([jnp.stack([1 - z[0], z[0]]), jnp.stack([z[1], 1 - z[1]])])
        level = imm.bank.noise.process * jnp.exp(z[2:])
        bank = eqx.tree_at(lambda i: (i.transition, i.bank.noise.process), imm, (Pi, level))
        return jnp.sum(bank.scanned(start, samples).innovation.log_likelihood)

    z, h = jnp.array([0.05, 0.1, 0.2, -0.3]), 1e-5
    value = jax.jit(evidence)
    differences = [(value(z + h * d) - value(z - h * d)) / (2 * h) for d in np.eye(4)]
    np.testing.assert_allclose(jax.jit(jax.grad(evidence))(z), differences, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(evidence))(z), differences, rtol=1e-7, atol=1e-7)


# ---------------------------------------------------------------------------------------------------------------
# merging


merging = eqx.filter_jit(merge)


class Turns(AbstractModel):
    """An orientation that stays."""

    tangent_size: int = eqx.field(static=True, default=3)
    noise_size: int = eqx.field(static=True, default=3)
    num_channels: int = eqx.field(static=True, default=3)

    def prepare(self, z):
        return z

    def step(self, x, p, u, w, noise, guess):
        return x, guess

    def observe(self, x, x1, p, s):
        return jnp.zeros(3)

    def difference(self, y, predicted):
        return y - predicted

    def retract(self, x, d):
        return rotation.multiply(x, rotation.exp(d))

    def local(self, x1, x0):
        return rotation.log(rotation.multiply(rotation.conjugate(x0), x1))


@jax.jit
def turned(base: jax.Array, d: jax.Array) -> jax.Array:
    """Orientations that are rotated by several vectors."""
    return jax.vmap(lambda d: Turns().retract(base, d))(d)


def orientations(rng, spread: float, count: int = 4) -> tuple[Belief, jax.Array]:
    base = turned(np.array([1.0, 0.0, 0.0, 0.0]), rng.normal(size=(1, 3)))[0]
    d = spread * rng.normal(size=(count, 3))
    x = turned(base, d)
    S = spread * rng.normal(size=(count, 3, 3))
    return Belief(x, jnp.asarray(spread * rng.normal(size=(count, 3))), jnp.asarray(S), jnp.zeros((count, 0))), base


def test_merging_of_one_orientation_and_of_equal_ones(rng):
    beliefs, _ = orientations(rng, 0.5)
    model = Turns()
    same = jax.tree.map(lambda a: jnp.stack([a[0]] * 4), beliefs)
    for weights, parts in ((jnp.array([1.0, 0, 0, 0]), beliefs), (jnp.array([0.1, 0.2, 0.3, 0.4]), same)):
        one = merging(model, weights, parts)
        where = model.retract(beliefs.x[0], beliefs.mean[0])
        close(model.local(one.x, where), 0.0)
        # the factor in the chart of the mean itself: moved by the derivative of one chart in the other
        push = jax.jit(jax.jacfwd(lambda d, to: model.local(model.retract(beliefs.x[0], d), to)))(
            beliefs.mean[0], where
        )
        S = push @ beliefs.factor[0]
        close(one.factor @ one.factor.T, S @ S.T)


def test_merging_has_the_moments_of_the_mixture(rng):
    """Of narrow orientations those in any chart, to first order in their spread; the order does not matter."""
    model, weights, spread = Turns(), jnp.array([0.1, 0.2, 0.3, 0.4]), 1e-4
    beliefs, base = orientations(rng, spread)
    found = merging(model, weights, beliefs)
    points = np.array(jax.vmap(lambda x, d: model.local(model.retract(x, d), base))(beliefs.x, beliefs.mean))
    parts = [Gauss(m, np.asarray(S @ S.T)) for m, S in zip(points, beliefs.factor, strict=True)]
    wanted = moments(np.asarray(weights), parts)
    np.testing.assert_allclose(model.local(found.x, base), wanted.m, atol=10 * spread**2)
    np.testing.assert_allclose(found.factor @ found.factor.T, wanted.P, atol=30 * spread**3)
    turned = merging(model, weights[::-1], jax.tree.map(lambda a: a[::-1], beliefs))
    close(model.local(found.x, turned.x), 0.0, atol=1e-14)
    close(found.factor @ found.factor.T, turned.factor @ turned.factor.T, atol=1e-20)


def test_merging_far_orientations_stays_on_the_manifold(rng):
    beliefs, _ = orientations(rng, 2.0)
    found = merging(Turns(), jnp.array([0.4, 0.3, 0.2, 0.1]), beliefs)
    close(jnp.linalg.norm(found.x), 1.0, atol=1e-14)
    assert np.all(np.isfinite(found.factor))


# ---------------------------------------------------------------------------------------------------------------
# coupling, and what is refused


def test_coupling_shifts_what_each_element_sees(rng):
    """One cycle of two elements, against banks that are handed the shifted readings."""
    samples, _, _ = switching_data(rng, 1)
    u, y = samples.u[0], jnp.array([[0.7, -0.4]])
    banks = [IMM(filters(), TRANSITION), IMM(filters()[::-1], TRANSITION)]
    x0 = jnp.asarray(rng.normal(size=(2, 2, 2)))
    sd = jnp.ones((2, 2, 2))
    for couple in (None, others):
        both = Coupled(banks, couple)
        modes, together = both.update(both.init(x0, sd), u, y)
        alone = [bank.init(x, s, each=True) for bank, x, s in zip(banks, x0, sd, strict=True)]
        predicted = [bank.expected(m, u, jnp.zeros(1)) for bank, m in zip(banks, alone, strict=True)]
        for i, bank in enumerate(banks):
            after, seen = bank.update(alone[i], u, y - predicted[1 - i] if couple else y)
            close(together.x[i], seen.x)
            close(together.modes.log_probability[i], seen.modes.log_probability)
            close(both.predict(modes, u).beliefs.mean[i], bank.predict(after, u).beliefs.mean)


@pytest.mark.slow
def test_elements_are_smoothed_each_by_itself(rng):
    """From the readings as each saw them: those of its own bank, less what the other expected of them."""
    samples, _, _ = switching_data(rng, 8)
    banks = [IMM(filters(), TRANSITION), IMM(filters()[::-1], TRANSITION)]
    both, x0, sd = Coupled(banks, others), jnp.asarray(rng.normal(size=(2, 2, 2))), jnp.ones((2, 2, 2))
    modes = both.init(x0, sd)
    found = both.run(modes, samples, trail=True)
    smoothed, shifts = both.smooth(found), []
    for k in range(8):
        predictions = eqx.filter_vmap(lambda e, m, u=samples.u[k]: e.expected(m, u, jnp.zeros(1)))(both.elements, modes)
        shifts.append(others(predictions))
        modes, _ = both.update(modes, samples.u[k], samples.y[k], samples.weight[k])
        modes = both.predict(modes, samples.u[k])
    for i, bank in enumerate(banks):
        seen = samples._replace(y=samples.y + jnp.stack(shifts)[:, i])
        alone = bank.smooth(bank.run(bank.init(x0[i], sd[i], each=True), seen, trail=True))
        # how a step ended is said once for all elements
        jax.tree.map(lambda a, b, i=i: close(a[:, i] if a.ndim > 1 else a, b), smoothed, alone)


def test_regime_has_a_threshold(rng):
    samples, _, _ = switching_data(rng)
    imm = IMM(filters(), TRANSITION)
    after = imm.run(imm.init(jnp.zeros(2), jnp.ones(2)), samples)
    best = np.max(after.modes.probability, axis=1)
    regime = np.asarray(after.modes.regime(0.8))
    assert np.any(regime == -1)
    np.testing.assert_array_equal(regime == -1, best <= 0.8)
    np.testing.assert_array_equal(regime[best > 0.8], np.argmax(after.modes.probability, axis=1)[best > 0.8])


def test_a_mode_that_cannot_come_is_left(rng):
    samples, _, _ = switching_data(rng)
    imm = IMM(filters(), np.array([[1.0, 0.0], [1.0, 0.0]]))
    found = imm.run(imm.init(jnp.zeros(2), jnp.ones(2)), samples, trail=True)
    close(found.modes.probability[1:, 0], 1.0)
    back = imm.smooth(found)
    close(back.probability[1:, 0], 1.0)
    for leaf in jax.tree.leaves((found.x, found.last.beliefs, back.x, back.sd)):
        assert np.all(np.isfinite(leaf))


def test_a_mode_that_is_all_but_excluded_can_come_back(rng):
    """Without any exchange between the modes, after a long time in the other one."""
    samples, _, _ = switching_data(rng, 10)
    imm = IMM(filters(), np.eye(2))
    modes = imm.init(jnp.zeros(2), jnp.ones(2))
    modes = Modes(modes.beliefs, jnp.array([0.0, -1e4]))
    for k in range(3):
        modes = imm.predict(modes, samples.u[k])
        assert -700 < modes.log_probability[1] < -600
    for _ in range(6):  # far from what the quiet mode expects
        modes = imm.predict(imm.update(modes, samples.u[0], jnp.array([40.0, 60.0]))[0], samples.u[0])
    close(modes.probability, [0.0, 1.0])


def test_what_is_refused():
    with pytest.raises(ValueError, match="rows of sum one"):
        IMM(filters(), np.array([[0.9, 0.2], [0.1, 0.9]]))
    with pytest.raises(ValueError, match="must be 2 by 2"):
        IMM(filters(), np.eye(3))
    gated = [eqx.tree_at(lambda f: f.gate, f, 9.0) for f in filters()]
    with pytest.raises(ValueError, match="gate"):
        IMM(gated, TRANSITION)
    with pytest.raises(ValueError, match="share their state"):
        IMM([filters()[0], Filter(LinearModel(), jnp.zeros(3), NOISE)], TRANSITION)
    imm = IMM(filters(), TRANSITION)
    samples = switching_data(np.random.default_rng(0))[0]
    with pytest.raises(ValueError, match="trail=True"):
        imm.smooth(imm.run(imm.init(jnp.zeros(2), jnp.ones(2)), samples))
