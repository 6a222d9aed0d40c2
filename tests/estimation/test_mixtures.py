"""Mixtures of Gaussians for every mode: published numbers, all sequences of modes, derivatives, bad input."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from estimation.test_switching import (
    PUSH,
    SENSOR,
    START,
    TRANSITION,
    A,
    G,
    Gauss,
    exact,
    filters,
    moments,
    switching_data,
)

from benchmarks.latent_setup import begun, nmse, one_regime, record, regimes, three_regimes
from spookax.estimation import IMM, AllPairs, Exact, Extended, Filter, KeepHeaviest, Lineage, MixFirst, MixtureFilter
from spookax.models import Contact, Matern, friction_regimes, second_order
from spookax.protocol import Noise

close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-10)
BOTH = [("displacement", 0), ("displacement", 1)]
THETA = 0.13, 3.0, 55e-12  # variance of the force [N^2], length [s], variance of the reading [m^2]


def started(f):
    return f.init(jnp.asarray(START), jnp.ones(2))


def test_the_published_filter_at_every_sample(data_dir):
    """`reference_filter_S3_I3.csv` and the log evidences beside it, of an independent program that agrees with the
    source's to 1e-10: means and probabilities are given with 12 digits."""
    run = record(data_dir / "friction_oscillator")
    wanted = np.genfromtxt(data_dir / "friction_oscillator/reference_filter_S3_I3.csv", delimiter=",", names=True)
    f = three_regimes(*THETA, 3, printed=True)
    after = f.run(begun(f), run.samples)
    np.testing.assert_allclose(np.sum(after.innovation.log_likelihood), 24986.076909, rtol=1e-10)
    np.testing.assert_allclose(after.innovation.log_likelihood, wanted["log_evidence_increment"], atol=1e-8)
    for i, name in enumerate(("z_filtered_m", "v_filtered_m_s", "F_filtered_N")):
        np.testing.assert_allclose(after.x[:, i], wanted[name], atol=1e-8)
    for i in range(3):
        np.testing.assert_allclose(after.modes.probability[:, i], wanted[f"p_regime{i + 1}"], atol=1e-8)


def test_the_published_evidence_of_one_regime(data_dir):
    run = record(data_dir / "friction_oscillator")
    f = one_regime(1.21, 0.133, 54.5e-12, printed=True)
    np.testing.assert_allclose(f.run(begun(f), run.samples).log_likelihood, 24825.868608, rtol=1e-10)


@pytest.mark.slow
def test_the_published_evidence_of_five_components(data_dir):
    run = record(data_dir / "friction_oscillator")
    f = three_regimes(*THETA, 5, printed=True)
    np.testing.assert_allclose(np.sum(f.run(begun(f), run.samples).innovation.log_likelihood), 25008.594736, rtol=1e-10)


@pytest.mark.slow
def test_force_and_acceleration_of_the_published_record(data_dir):
    """The goals that were set for three components: 1.4 % and 0.33 % (the source has 1.95 % and 0.46 %)."""
    run = record(data_dir / "friction_oscillator")
    f = three_regimes(*THETA, 3)
    z, v, force = np.asarray(f.smooth(f.run(begun(f), run.samples, trail=True)).x)[:-1].T
    assert nmse(force, run.force) <= 1.4
    assert nmse(run.u - 5.0 * v - 500.0 * z - force, run.acceleration) <= 0.33


def everything(steps: int, sharing=None) -> MixtureFilter:
    """Keeps as many components as there are sequences of modes."""
    return MixtureFilter(filters(), TRANSITION, KeepHeaviest(2 ** (steps - 1)), sharing)


def test_filter_and_smoother_are_exact_with_enough_components():
    """Against all sequences of modes of short records; of the smoothers the one that follows what the filter merged."""
    steps = 6
    f = everything(steps, Lineage())
    for seed in range(3):
        samples, _, _ = switching_data(np.random.default_rng(seed), steps)
        found = f.run(started(f), samples, trail=True)
        back = f.smooth(found)
        states, second = exact(samples, Gauss(START, np.eye(2)), steps)
        np.testing.assert_allclose(back.x[:-1], states, atol=1e-8)
        np.testing.assert_allclose(back.probability[:-1, 1], second, atol=1e-8)
        for k in range(1, steps + 1):  # filtered: the last state, given the readings so far
            states, second = exact(samples, Gauss(START, np.eye(2)), k)
            np.testing.assert_allclose(found.x[k - 1], states[-1], atol=1e-8)
            np.testing.assert_allclose(found.modes.probability[k - 1, 1], second[-1], atol=1e-8)


def test_the_smoothers_beside_the_exact_answer():
    """Root mean square differences from all sequences of modes, of states and of modes' probabilities: the more that a
    smoother keeps apart, the nearer; mixing first costs fewer steps, and halves what the filter is off."""
    steps, one, four = 7, KeepHeaviest(1), KeepHeaviest(4)
    kinds = {
        "lineage": MixtureFilter(filters(), TRANSITION, four, Lineage()),
        "pairs": MixtureFilter(filters(), TRANSITION, four),
        "mixed first": MixtureFilter(filters(), TRANSITION, four, MixFirst(four)),
        "bank, pairs": IMM(filters(), TRANSITION),
        "bank, mixed first": IMM(filters(), TRANSITION, sharing=MixFirst(one)),
    }
    apart = {name: [] for name in [*kinds, "filter"]}
    for seed in range(12):
        samples, _, _ = switching_data(np.random.default_rng(seed), steps)
        states, second = exact(samples, Gauss(START, np.eye(2)), steps)

        def add(name, x, p, wanted=(states, second)):
            apart[name].append([np.mean((x[:steps] - wanted[0]) ** 2), np.mean((p[:steps, 1] - wanted[1]) ** 2)])

        mixture, bank = (f.run(started(f), samples, trail=True) for f in (kinds["pairs"], kinds["bank, pairs"]))
        add("filter", mixture.x, mixture.modes.probability)
        for name, f in kinds.items():  # forwards they are the same
            back = f.smooth(bank if name.startswith("bank") else mixture)
            add(name, back.x, back.probability)
    rms = {name: np.sqrt(np.mean(each, axis=0)) for name, each in apart.items()}
    assert np.all(rms["lineage"] < rms["pairs"])
    for pairs, mixed in (("pairs", "mixed first"), ("bank, pairs", "bank, mixed first")):
        assert np.all(rms[pairs] < rms[mixed])
        assert np.all(rms[mixed] < 0.5 * rms["filter"])


def test_one_mode_is_the_filter_and_its_smoother(rng):
    samples, f = switching_data(rng, 30)[0], filters()[1]
    plain = f.run(f.init(jnp.zeros(2), jnp.ones(2)), samples, trail=True)
    wanted = f.smooth(plain)
    one = MixtureFilter([f], np.eye(1), KeepHeaviest(2))
    found = one.run(one.init(jnp.zeros(2), jnp.ones(2)), samples, trail=True)
    close(found.x, plain.x)
    close(found.innovation.log_likelihood, plain.innovation.log_likelihood)
    for sharing in (None, MixFirst(KeepHeaviest(2)), Lineage()):  # forwards they are the same
        back = MixtureFilter([f], np.eye(1), KeepHeaviest(2), sharing).smooth(found)
        close(back.x, wanted.x)
        close(back.sd, wanted.sd)


def test_one_component_is_the_textbooks_filter_of_pairs(rng):
    """Generalised pseudo-Bayesian filter of second order: Bar-Shalom, Li, Kirubarajan (2001), section 11.6.5."""
    samples, steps = switching_data(rng, 40)[0]._replace(weight=jnp.ones((40, 1, 2))), 40
    f = MixtureFilter(filters(), TRANSITION, KeepHeaviest(1))
    after = f.run(started(f), samples)
    R, u, y = np.diag(SENSOR**2), np.asarray(samples.u), np.asarray(samples.y[:, 0])
    pairs = [[(0.5 if i == j else 0.0, Gauss(START, np.eye(2))) for i in range(2)] for j in range(2)]
    for k in range(steps):
        bank, mu = [], []
        for of_mode in pairs:
            weight, parts = [], []
            for w, (m, P) in of_mode:
                S, e = P + R, y[k] - m
                K = P @ np.linalg.inv(S)
                parts.append(Gauss(m + K @ e, P - K @ S @ K.T))
                weight.append(w * np.exp(-e @ np.linalg.solve(S, e) / 2) / np.sqrt(np.linalg.det(2 * np.pi * S)))
            mu.append(sum(weight))
            bank.append(moments(np.array(weight) / mu[-1], parts))
        close(after.innovation.log_likelihood[k], np.log(sum(mu)))
        mu = np.array(mu) / sum(mu)
        close(after.modes.probability[k], mu)
        close(after.x[k], moments(mu, bank).m)
        moved = [[Gauss(A @ m + PUSH[j] * u[k], A @ P @ A.T + G[j] @ G[j].T) for m, P in bank] for j in range(2)]
        pairs = [[(mu[i] * TRANSITION[i, j], moved[j][i]) for i in range(2)] for j in range(2)]


def test_fewer_components_backwards(rng):
    samples, states, modes = switching_data(rng)
    f = MixtureFilter(filters(), TRANSITION, KeepHeaviest(4), AllPairs(KeepHeaviest(2)))
    found = f.run(started(f), samples, trail=True)
    back = f.smooth(found)
    assert np.mean((back.x[:-1] - states) ** 2) < np.mean((found.x - states) ** 2)
    at = np.arange(len(modes))
    assert np.mean(back.log_probability[at, modes]) > np.mean(found.modes.log_probability[at, modes])


def test_the_rule_of_linear_models_is_what_differentiating_finds(rng):
    model, samples = regimes(*THETA[:2])[0], switching_data(rng, 5)[0]
    level = Noise(jnp.asarray(1.0), jnp.array([1e-3]))
    seen = samples._replace(y=samples.y[:, :, :1], weight=samples.weight[:, :, :1])
    found = []
    for rule in (Exact(), Extended()):
        f = Filter(model, jnp.zeros(0), level, rule)
        found.append(f.run(f.init(jnp.zeros(3), jnp.ones(3)), seen))
    close(found[0].x, found[1].x)
    close(found[0].innovation.log_likelihood, found[1].innovation.log_likelihood)


@pytest.mark.slow
def test_derivative_of_the_evidence(data_dir):
    """In the hyperparameters, as logarithms, against central differences."""
    run = record(data_dir / "friction_oscillator")
    samples = jax.tree.map(lambda a: jnp.asarray(a[:300]), run.samples)

    def evidence(logs):
        f = three_regimes(*jnp.exp(logs), 3)
        return jnp.sum(f.scanned(begun(f), samples).innovation.log_likelihood)

    logs, h = jnp.log(jnp.array(THETA)), 1e-5
    value = eqx.filter_jit(evidence)
    differences = [(value(logs + h * d) - value(logs - h * d)) / (2 * h) for d in np.eye(3)]
    np.testing.assert_allclose(eqx.filter_jit(jax.grad(evidence))(logs), differences, rtol=1e-6)


def test_sticking_holds_a_contact_with_the_force_that_it_needs():
    """Two masses, one held against the world: the held one stays, the other moves as if it were built in."""
    M, C, K = np.diag([1.0, 2.0]), np.diag([0.5, 0.2]), np.array([[50.0, -20.0], [-20.0, 30.0]])
    mechanism = second_order(M, C, K, np.array([[0.0], [1.0]]), np.array([[1.0], [0.0]]))
    contact = Contact(Matern(1.0, 0.5, 1), 0.5)
    held = friction_regimes.models(mechanism, [contact], 0.01)[friction_regimes.STICK]
    x, u = np.array([0.1, 0.7, -0.2, 0.3, 5.0, 2.0]), np.array([4.0])
    z1, z2, v1, v2, f, df = np.asarray(held.A) @ x + np.asarray(held.B) @ u
    alone = second_order(M[1:, 1:], C[1:, 1:], K[1:, 1:], np.array([[1.0, -1.0]]), np.array([[1.0]]))
    free = friction_regimes.models(alone, [Contact(Matern(1e-9, 0.5), 1e-9)], 0.01)[friction_regimes.SLIDE]
    wanted = np.asarray(free.A) @ np.array([0.7, 0.3, 0.0]) + np.asarray(free.B) @ np.array([4.0, K[1, 0] * 0.1])
    close([z1, v1], [0.1, 0.0])
    close([z2, v2], wanted[:2])
    close([f, df], [-K[0, 0] * z1 - K[0, 1] * z2, 0.0])


def test_regimes_of_several_contacts_are_all_combinations():
    contacts = [Contact(Matern(1.0, 0.5), 0.5, stay) for stay in (0.9, 0.95)]
    Pi = np.asarray(friction_regimes.transition(contacts))
    close(np.sum(Pi, axis=1), 1.0)
    place = {modes: i for i, modes in enumerate(friction_regimes.combinations(2))}
    close(Pi[place[0, 1], place[0, 2]], 0.9 * 0.05)  # the first slides on, the second breaks away
    mechanism = second_order(np.eye(2), np.eye(2), np.eye(2), np.eye(2), np.eye(2), BOTH)
    assert len(friction_regimes.models(mechanism, contacts, 0.01)) == 9


def sledges(logs) -> list[Filter]:
    """Two masses, the first rubs on the world, the second on the first; logarithms of the forces' standard
    deviations."""
    M, C, K = np.diag([1.0, 0.8]), np.array([[3.0, -1.0], [-1.0, 1.5]]), np.array([[900.0, -300.0], [-300.0, 500.0]])
    mechanism = second_order(M, C, K, np.eye(2), np.array([[1.0, -1.0], [0.0, 1.0]]), BOTH)
    models = friction_regimes.models(mechanism, slides(logs), 0.002)
    level = Noise(jnp.asarray(1.0), jnp.full(2, 5e-5))
    return [Filter(model, jnp.zeros(0), level, Exact()) for model in models]


def slides(logs) -> list[Contact]:
    stay = 1.0 / (1.0 + jnp.exp(-logs[2:]))
    return [Contact(Matern(jnp.exp(logs[c]), 3.0), jnp.exp(logs[c]), stay[c]) for c in range(2)]


def test_what_cannot_come_is_left_out(rng):
    """Of nine combinations each can be reached from four; all else is as if none were left out, and it can be
    differentiated, by probabilities too."""
    samples = switching_data(rng, 12)[0]
    u, y = jnp.asarray(rng.normal(size=(12, 2))), 1e-3 * jnp.asarray(rng.normal(size=(12, 1, 2)))
    samples = samples._replace(u=u, y=y, weight=jnp.ones((12, 1, 2)))
    logs, before = jnp.array([0.0, -0.5, 2.0, 2.5]), friction_regimes.before(2)
    assert {len(modes) for modes in before} == {4}
    Pi = np.asarray(friction_regimes.transition(slides(logs)))
    assert all(set(modes) == set(np.flatnonzero(Pi[:, j])) for j, modes in enumerate(before))

    def bank(logs, sharing, before) -> MixtureFilter:
        own = friction_regimes.transition(slides(logs))
        return MixtureFilter(sledges(logs), own, KeepHeaviest(2), sharing, before=before)

    def begun(f):
        return f.init(jnp.zeros(6), jnp.ones(6), jnp.full(9, 1 / 9))

    found = []
    for some in (None, before):
        f = bank(logs, None, some)
        after = f.run(begun(f), samples, trail=True)
        found.append([after.x, after.modes.probability, after.innovation.log_likelihood, *f.smooth(after)[:2]])
        found[-1] += bank(logs, Lineage(), some).smooth(after)[:2]  # forwards it is the same
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)

    @eqx.filter_jit
    def evidence(logs):
        f = bank(logs, None, before)
        return jnp.sum(f.scanned(begun(f), samples).innovation.log_likelihood)

    h = 1e-5
    differences = [(evidence(logs + h * d) - evidence(logs - h * d)) / (2 * h) for d in np.eye(4)]
    np.testing.assert_allclose(eqx.filter_jit(jax.grad(evidence))(logs), differences, rtol=1e-6)
    assert np.min(np.abs(differences)) > 1e-3


def test_what_is_refused():
    for before, said in (([[0], [0, 1]], "2 lists of one length"), ([[0], [2]], "numbers, 0 to 1")):
        with pytest.raises(ValueError, match=said):
            MixtureFilter(filters(), TRANSITION, before=before)
    with pytest.raises(ValueError, match="row sums"):
        MixtureFilter(filters(), np.array([[0.9, 0.2], [0.1, 0.9]]))
    with pytest.raises(ValueError, match="one Gaussian a mode, got 2"):
        IMM(filters(), TRANSITION, sharing=AllPairs(KeepHeaviest(2)))
    for count in (0, 2.5):
        with pytest.raises(ValueError, match="one Gaussian at least, and a whole number"):
            KeepHeaviest(count)
    with pytest.raises(ValueError, match="keeps 3 Gaussians a mode, more than the filter, 2"):
        MixtureFilter(filters(), TRANSITION, KeepHeaviest(2), AllPairs(KeepHeaviest(3)))
    with pytest.raises(ValueError, match=r"is a probability, got 1\.5"):
        Contact(Matern(1.0, 1.0), 0.5, 1.5)
    mechanism = second_order(np.eye(1), np.eye(1), np.eye(1), np.eye(1), np.eye(1))
    with pytest.raises(ValueError, match="1 contacts, but 0"):
        friction_regimes.models(mechanism, [], 0.01)
