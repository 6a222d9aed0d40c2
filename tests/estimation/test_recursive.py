"""Recursive estimators of a linear model: equivalences with the batch, laws over one list of rules."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from estimation.linear_model import NOISE, SENSOR_SD, LinearModel, Masses, recording

from spookax.estimation import (
    AugmentedState,
    DualFilter,
    EnsembleFilter,
    Extended,
    Filter,
    FixedLag,
    Unscented,
    WithParameters,
    linearise,
    smooth_iterated,
)
from spookax.estimation.linearise import Path, all_successful
from spookax.protocol import Noise, Samples

close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-10)

MODEL = LinearModel()
Z = np.array([1.5, -0.7, 0.1])
X0, SD0 = Masses(jnp.zeros(2), jnp.zeros(2)), np.full(4, 2.0)
STEPS = 25
RULES = [Extended(), Extended(3), Unscented(), Unscented(spread=3**0.5, centre=2.0)]


@pytest.fixture(scope="module")
def samples() -> Samples:
    return recording(np.random.default_rng(0), STEPS, Z[:2], Z[2])[0]


def flat(x: Masses) -> np.ndarray:
    return np.concatenate([x.q, x.v], axis=-1)


@functools.cache
def dense(steps: int = STEPS):
    """The whole linear problem as one Gaussian in xi = (x_0, w_0 ... w_K-1, z), by dense algebra.

    Mean and maps of every state, and rows of all readings, whitened; unseen ones are zero rows.
    """
    samples = recording(np.random.default_rng(0), STEPS, Z[:2], Z[2])[0]
    u, w, states = np.asarray(samples.u), np.zeros((STEPS, 2)), [jax.tree.map(np.asarray, X0)]
    for k in range(STEPS):
        states.append(MODEL.step(states[-1], Z, u[k], w[k], NOISE, None)[0])
    path = Path(jax.tree.map(lambda *a: np.stack(a), *states), w, np.zeros((STEPS, 0)), all_successful(STEPS))
    lin = jax.tree.map(np.asarray, eqx.filter_jit(linearise)(MODEL, jnp.asarray(Z), NOISE, path, samples))
    size = 4 + 2 * STEPS + 3
    G = np.zeros((4, size))
    G[:, :4] = np.eye(4)
    maps, rows, e = [G], [], []
    for k in range(STEPS):
        W, Zs = np.zeros((2, size)), np.zeros((3, size))
        W[:, 4 + 2 * k : 6 + 2 * k], Zs[:, -3:] = np.eye(2), np.eye(3)
        if k < steps:
            rows.append(lin.H[k] @ G + lin.J[k] @ W + lin.D[k] @ Zs)
            e.append(lin.e[k])
        G = lin.A[k] @ G + lin.B[k] @ W + lin.C[k] @ Zs
        maps.append(G)
    return flat(path.x), np.array(maps), np.concatenate(rows), np.concatenate(e)


def posterior(z_sd: float, steps: int = STEPS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and covariance of xi, and the means of the states. `z_sd` = 0 holds the parameters."""
    middle, maps, M, e = dense(steps)
    prior = np.concatenate([SD0, np.ones(2 * STEPS), np.full(3, z_sd)])
    M = M * prior
    cov = np.linalg.inv(M.T @ M + np.eye(len(prior)))
    mean = prior * (cov @ (M.T @ e))
    return mean, cov * np.outer(prior, prior), middle + maps @ mean


# ---------------------------------------------------------------------------------------------------------------
# linear models: every rule is the same filter, and that of the textbook


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_filter_is_the_conditional_of_the_dense_problem(rule, samples):
    """Filtered, at the start of a step given its readings: dense least squares with the later readings left out."""
    f = Filter(MODEL, Z, NOISE, rule)
    found = f.run(f.init(X0, SD0), samples, trail=True)  # one program with that of the smoother's test
    for k in (1, 7, STEPS):
        _, cov, states = posterior(0.0, k)
        G = dense()[1][k - 1]
        close(flat(found.x)[k - 1], states[k - 1])
        close(np.asarray(found.sd)[k - 1], np.sqrt(np.diag(G @ cov @ G.T)))


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_smoother_is_the_posterior_of_the_dense_problem(rule, samples):
    f = Filter(MODEL, Z, NOISE, rule)
    found = f.smooth(f.run(f.init(X0, SD0), samples, trail=True))
    _, cov, states = posterior(0.0)
    close(flat(found.x), states)
    close(found.factor @ np.swapaxes(found.factor, 1, 2), dense()[1] @ cov @ np.swapaxes(dense()[1], 1, 2))


def test_smoothed_states_have_the_slopes_of_their_differences(samples):
    """In a parameter, the prior and the sensors, for readings that see the noise of their step; in both modes."""

    @jax.jit
    def value(a):
        f = Filter(MODEL, Z + jnp.array([0.0, 1.0, 0.0]) * a[0], Noise(NOISE.process, NOISE.sensor * jnp.exp(a[1])))
        found = f.smooth(f.run(f.init(X0, SD0 * jnp.exp(a[2])), samples, trail=True))
        return jnp.stack([jnp.sum(found.x.q**2 + found.x.v), jnp.sum(found.sd), found.x.v[3, 0]])

    at, eps = np.array([0.1, -0.2, 0.05]), 1e-5
    central = np.transpose([(value(at + eps * d) - value(at - eps * d)) / (2 * eps) for d in np.eye(3)])
    close(jax.jit(jax.jacfwd(value))(at), central, rtol=1e-6, atol=1e-8)
    close(jax.jit(jax.jacrev(value))(at), central, rtol=1e-6, atol=1e-8)


def test_log_likelihood_is_the_density_of_the_readings(samples):
    f = Filter(MODEL, Z, NOISE)
    found = f.run(f.init(X0, SD0), samples)
    _, _, M, e = dense()
    M = M * np.concatenate([SD0, np.ones(2 * STEPS), np.zeros(3)])
    there = np.any(np.asarray(samples.weight).reshape(-1, 1) > 0, axis=1)
    S = (M @ M.T + np.eye(len(e)))[np.ix_(there, there)]
    sd = np.broadcast_to(SENSOR_SD, samples.y.shape).reshape(-1)[there]
    expected = -0.5 * (e[there] @ np.linalg.solve(S, e[there]) + np.linalg.slogdet(2 * np.pi * S)[1])
    close(found.log_likelihood, expected - np.log(sd).sum())
    close(found.innovation.nis.sum(), e[there] @ np.linalg.solve(S, e[there]))
    assert int(found.innovation.size.sum()) == there.sum()


def test_one_call_a_sample_gives_the_same_as_a_whole_recording(samples):
    f = Filter(MODEL, Z, NOISE)
    belief, total = f.init(X0, SD0), 0.0
    for k in range(STEPS):
        y = np.where(np.asarray(samples.weight[k]) > 0, samples.y[k], np.nan)  # missing readings are NaN
        belief, innovation = f.update(belief, samples.u[k], y, s=samples.s[k])
        total += innovation.log_likelihood
        belief = f.predict(belief, samples.u[k])
    found = f.run(f.init(X0, SD0), samples)
    close(total, found.log_likelihood)
    close(belief.factor, found.last.factor)


def test_joint_filter_is_the_border_of_the_batch_problem(samples):
    """Constant parameters as states: mean and covariance are those of the parameters in the dense joint problem."""
    model = WithParameters(MODEL, 3)
    f = Filter(model, np.zeros(0), NOISE)
    sd = np.concatenate([SD0, np.full(3, 0.5)])
    belief = f.init(AugmentedState(X0, jnp.asarray(Z)), sd)
    found = f.run(belief, samples)
    mean, cov, _ = posterior(0.5)
    close(found.last.x.z + found.last.mean[4:7], Z + mean[-3:])
    P = np.asarray(found.last.factor[4:7] @ found.last.factor[4:7].T)
    close(P, cov[-3:, -3:])
    # ... which is the inverse of the Schur complement that eliminating all states leaves
    M = dense()[2] * np.concatenate([SD0, np.ones(2 * STEPS), np.ones(3)])
    full = M.T @ M + np.diag(np.concatenate([np.ones(4 + 2 * STEPS), np.full(3, 4.0)]))
    schur = full[-3:, -3:] - full[-3:, :-3] @ np.linalg.solve(full[:-3, :-3], full[:-3, -3:])
    close(P, np.linalg.inv(schur))


def test_dual_filter_of_constant_parameters_is_the_joint_one(samples):
    f = DualFilter(MODEL, NOISE)
    found = f.run(f.init(X0, SD0, Z, np.full(3, 0.5)), samples)
    joint = Filter(WithParameters(MODEL, 3), np.zeros(0), NOISE)
    same = joint.run(joint.init(AugmentedState(X0, jnp.asarray(Z)), np.concatenate([SD0, np.full(3, 0.5)])), samples)
    close(found.x.z, same.x.z)
    close(flat(found.x.x), flat(same.x.x))
    close(found.sd, same.sd)
    close(found.innovation.log_likelihood, same.innovation.log_likelihood)


@pytest.mark.parametrize("parallel", [False, True], ids=["serial", "parallel"])
def test_iterating_on_a_linear_problem_changes_nothing(parallel, samples):
    f = Filter(MODEL, Z, NOISE)
    once = f.smooth(f.run(f.init(X0, SD0), samples, trail=True))
    again = smooth_iterated(f, f.init(X0, SD0), samples, iterations=3, parallel=parallel)
    close(flat(again.x), flat(once.x))
    close(again.sd, once.sd)


@pytest.mark.parametrize("rule", [Extended(), pytest.param(Unscented(), marks=pytest.mark.slow)], ids=str)
def test_fixed_lag_smoother_is_the_smoother_of_the_readings_so_far(rule, samples):
    lag, f = 4, Filter(MODEL, Z, NOISE, rule)
    samples = samples._replace(s=jnp.zeros_like(samples.s))
    lagged, belief = FixedLag(f, lag), f.init(X0, SD0)
    window = lagged.init(belief)
    u, y, weight = (np.asarray(a) for a in (samples.u, samples.y, samples.weight))
    for k in range(12):
        window, x, sd, _ = lagged.step(window, u[k], y[k, 0], weight[k, 0])
        if k in (2, 4, 11):
            so_far = jax.device_put(weight * (np.arange(STEPS) <= k)[:, None, None])
            there = f.smooth(f.run(belief, samples._replace(weight=so_far), trail=True))
            at = max(k - lag, 0)
            close(flat(x), flat(there.x)[at])
            close(sd, np.asarray(there.sd)[at])


def test_ensemble_tends_to_the_kalman_filter(samples):
    f = Filter(MODEL, Z, NOISE)
    exact = f.run(f.init(X0, SD0), samples)
    errors = []
    for size in (100, 10_000):
        e = EnsembleFilter(MODEL, Z, NOISE, size)
        found = e.run(e.init(X0, SD0, jax.random.key(0)), samples)
        errors.append(np.abs((flat(found.x) - flat(exact.x)) / exact.sd).mean())
        np.testing.assert_allclose(found.sd, exact.sd, rtol=10 / np.sqrt(size))
    assert errors[1] < 0.02
    assert errors[1] < 0.25 * errors[0]  # a tenth, but for chance


def test_a_gate_that_lets_nothing_in_leaves_an_ensemble_as_it_was(samples):
    """Readings of the pair: members and the noise of their step."""
    shut = EnsembleFilter(MODEL, Z, NOISE, 10, gate=0.0)
    members = shut.init(X0, SD0, jax.random.key(0))
    after, seen = shut.update(members, samples.u[0], samples.y[0], samples.weight[0], samples.s[0])
    assert (seen.accepted, seen.log_likelihood) == (0.0, 0.0)
    assert seen.nis > 0
    assert bool(eqx.tree_equal(after, members))
