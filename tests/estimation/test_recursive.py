"""Recursive estimators: textbook filters written out, equivalences with the batch, and laws over one list of rules."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from estimation.linear_model import NOISE, SENSOR_SD, LinearModel, Masses, recording

from spookax.estimation import (
    IMM,
    Coupled,
    Drift,
    DualFilter,
    EnsembleFilter,
    Extended,
    Filter,
    FixedLag,
    Joint,
    SlowFilter,
    Unscented,
    WithParameters,
    faults,
    gate_of,
    innovation_tests,
    linearise,
    smooth_iterated,
    tune,
)
from spookax.estimation.linearise import Path
from spookax.protocol import AbstractVectorModel, Noise, Samples

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
    w = jnp.zeros((STEPS, 2))
    states = [X0]
    for k in range(STEPS):
        states.append(MODEL.step(states[-1], jnp.asarray(Z), samples.u[k], w[k], NOISE, None)[0])
    path = Path(jax.tree.map(lambda *a: jnp.stack(a), *states), w, jnp.zeros((STEPS, 0)))
    lin = jax.tree.map(np.asarray, linearise(MODEL, jnp.asarray(Z), NOISE, path, samples))
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
    found = f.run(f.init(X0, SD0), samples)
    for k in (1, 7, STEPS):
        _, cov, states = posterior(0.0, k)
        G = dense()[1][k - 1]
        close(flat(jax.tree.map(lambda a: a[k - 1], found.x)), states[k - 1])  # noqa: B023
        close(found.sd[k - 1], np.sqrt(np.diag(G @ cov @ G.T)))


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_smoother_is_the_posterior_of_the_dense_problem(rule, samples):
    f = Filter(MODEL, Z, NOISE, rule)
    found = f.smooth(f.run(f.init(X0, SD0), samples, trail=True))
    _, cov, states = posterior(0.0)
    close(flat(found.x), states)
    close(found.factor @ np.swapaxes(found.factor, 1, 2), dense()[1] @ cov @ np.swapaxes(dense()[1], 1, 2))


def test_log_likelihood_is_the_density_of_the_readings(samples):
    f = Filter(MODEL, Z, NOISE)
    found = f.run(f.init(X0, SD0), samples)
    _, _, M, e = dense()
    M = M * np.concatenate([SD0, np.ones(2 * STEPS), np.zeros(3)])
    there = np.any(np.asarray(samples.seen).reshape(-1, 1) > 0, axis=1)
    S = (M @ M.T + np.eye(len(e)))[np.ix_(there, there)]
    sd = np.broadcast_to(SENSOR_SD, samples.y.shape).reshape(-1)[there]
    expected = -0.5 * (e[there] @ np.linalg.solve(S, e[there]) + np.linalg.slogdet(2 * np.pi * S)[1])
    close(found.log_likelihood, expected - np.log(sd).sum())
    close(found.innovation.nis.sum(), e[there] @ np.linalg.solve(S, e[there]))
    assert found.innovation.size.sum() == there.sum()


def test_one_call_a_sample_gives_the_same_as_a_whole_recording(samples):
    f = Filter(MODEL, Z, NOISE)
    belief, total = f.init(X0, SD0), 0.0
    for k in range(STEPS):
        y = np.where(np.asarray(samples.seen[k]) > 0, samples.y[k], np.nan)  # missing readings are NaN
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
    belief = f.init(Joint(X0, jnp.asarray(Z)), sd)
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
    same = joint.run(joint.init(Joint(X0, jnp.asarray(Z)), np.concatenate([SD0, np.full(3, 0.5)])), samples)
    close(found.z, same.x.z)
    close(found.z_sd, same.sd[:, 4:])
    close(flat(found.x), flat(same.x.x))
    close(found.sd, same.sd[:, :4])
    close(found.innovation.log_likelihood, same.innovation.log_likelihood)


@pytest.mark.parametrize("parallel", [False, True], ids=["serial", "parallel"])
def test_iterating_on_a_linear_problem_changes_nothing(parallel, samples):
    f = Filter(MODEL, Z, NOISE)
    once = f.smooth(f.run(f.init(X0, SD0), samples, trail=True))
    again = smooth_iterated(f, f.init(X0, SD0), samples, iterations=3, parallel=parallel)
    close(flat(again.x), flat(once.x))
    close(again.sd, once.sd)


@pytest.mark.parametrize("rule", [Extended(), Unscented()], ids=str)
def test_fixed_lag_smoother_is_the_smoother_of_the_readings_so_far(rule, samples):
    lag, f = 4, Filter(MODEL, Z, NOISE, rule)
    samples = samples._replace(s=jnp.zeros_like(samples.s))
    lagged, belief = FixedLag(f, lag), f.init(X0, SD0)
    window = lagged.init(belief)
    for k in range(12):
        window, x, sd, _ = lagged.step(window, samples.u[k], samples.y[k, 0], samples.seen[k, 0])
        if k in (2, 4, 11):
            part = jax.tree.map(lambda a: a[: k + 1], samples)  # noqa: B023
            there = f.smooth(f.run(belief, part, trail=True))
            at = max(k - lag, 0)
            close(flat(x), flat(there.x)[at])
            close(sd, there.sd[at])


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


# ---------------------------------------------------------------------------------------------------------------
# a nonlinear model


class Pendulum(AbstractVectorModel):
    """Angle and rate; z = (damping, log of gravity over length); reads sin(angle) as a camera from the side would."""

    h: float = 0.05
    tangent_size: int = eqx.field(static=True, default=2)
    noise_size: int = eqx.field(static=True, default=1)
    num_channels: int = eqx.field(static=True, default=1)

    @property
    def reads_pair(self):
        return False

    def prepare(self, z):
        return z[0], jnp.exp(z[1])

    def duration(self, p):
        return jnp.asarray(self.h)

    def step(self, x, p, u, w, noise, hint):
        damping, stiffness = p
        rate = x[1] + self.h * (u[0] - damping * x[1] - stiffness * jnp.sin(x[0])) + noise.process * self.h**0.5 * w[0]
        return jnp.stack([x[0] + self.h * rate, rate]), hint

    def observe(self, x, x1, p, s):
        return jnp.sin(x[:1])


PENDULUM, PENDULUM_Z = Pendulum(), np.array([0.3, 2.0])
LEVELS = Noise(jnp.asarray(0.2), jnp.array([0.05]))


def swing(rng: np.random.Generator, steps: int, start=(1.0, 0.0)) -> tuple[Samples, np.ndarray]:
    """Readings and true states."""
    u, p = rng.normal(size=(steps, 1)), PENDULUM.prepare(PENDULUM_Z)
    x, states = jnp.asarray(start), []
    for k in range(steps):
        states.append(x)
        x = PENDULUM.step(x, p, u[k], rng.normal(size=1), LEVELS, None)[0]
    states = np.array(states)
    y = np.sin(states[:, :1]) + 0.05 * rng.normal(size=(steps, 1))
    ones = np.ones((steps, 1, 1))
    return Samples(jnp.asarray(u), jnp.asarray(y[:, None]), jnp.zeros((steps, 1)), jnp.asarray(ones)), states


@pytest.fixture(scope="module")
def swung() -> tuple[Samples, np.ndarray]:
    return swing(np.random.default_rng(1), 80)


def test_extended_filter_is_the_one_of_the_textbook(swung):
    """Predict, update and Rauch-Tung-Striebel smoother in covariances, written out in numpy."""
    samples, _ = swung
    f = Filter(PENDULUM, PENDULUM_Z, LEVELS)
    x0, sd0 = np.array([0.8, 0.0]), np.array([0.5, 1.0])
    found = f.run(f.init(x0, sd0), samples, trail=True)
    damping, k, h = PENDULUM_Z[0], np.exp(PENDULUM_Z[1]), PENDULUM.h
    x, P, R, Q = x0, np.diag(sd0**2), 0.05**2, 0.2**2 * h
    steps, trail = len(samples.u), []
    for i in range(steps):
        H = np.array([[np.cos(x[0]), 0.0]])
        K = P @ H.T / (H @ P @ H.T + R)
        x_f = x + K[:, 0] * (samples.y[i, 0, 0] - np.sin(x[0]))
        P_f = P - K @ H @ P
        close(found.x[i], x_f)
        close(found.sd[i], np.sqrt(np.diag(P_f)))
        rate = [-h * k * np.cos(x_f[0]), 1 - h * damping]
        A = np.array([[1 + h * rate[0], h * rate[1]], rate])
        B = np.array([[h], [1.0]])
        v = x_f[1] + h * (samples.u[i, 0] - damping * x_f[1] - k * np.sin(x_f[0]))
        x, P = np.array([x_f[0] + h * v, v]), A @ P_f @ A.T + Q * B @ B.T
        trail.append((x_f, P_f, A, x, P))
    smoothed = f.smooth(found)
    x_s, P_s = x, P
    for i in reversed(range(steps)):
        x_f, P_f, A, x, P = trail[i]
        G = P_f @ A.T @ np.linalg.inv(P)
        x_s, P_s = x_f + G @ (x_s - x), P_f + G @ (P_s - P) @ G.T
        close(smoothed.x[i], x_s, rtol=1e-8)
        close(smoothed.sd[i], np.sqrt(np.diag(P_s)), rtol=1e-8)


def test_unscented_filter_is_the_one_of_the_textbook(swung):
    """Sigma points in covariances (cubature weights, noise added where it enters linearly), written out in numpy."""
    samples, _ = swung
    samples = jax.tree.map(lambda a: a[:30], samples)
    # the noise has points of its own: spread^2 = columns of the widest factor serves both transforms
    spread = 3**0.5
    f = Filter(PENDULUM, PENDULUM_Z, LEVELS, Unscented(spread=spread, centre=0.0))
    x0, sd0 = np.array([0.8, 0.0]), np.array([0.5, 1.0])
    found = f.run(f.init(x0, sd0), samples)
    damping, k, h = PENDULUM_Z[0], np.exp(PENDULUM_Z[1]), PENDULUM.h

    def points(x, P):
        S = spread * np.linalg.cholesky(P)
        n = len(x)
        weights = np.append(1 - n / spread**2, np.full(2 * n, 0.5 / spread**2))
        return np.vstack([x, x + S.T, x - S.T]), weights

    def transform(values, weights):
        mean = weights @ values
        return mean, (weights[:, None] * (values - mean)).T @ (values - mean)

    x, P = x0, np.diag(sd0**2)
    for i in range(30):
        X, weights = points(x, P)
        Y = np.sin(X[:, :1])
        y, F = transform(Y, weights)
        news, S = samples.y[i, 0, 0] - y[0], F + 0.05**2
        K = (weights[:, None] * (X - x)).T @ (Y - y) / S
        x, P = x + K[:, 0] * news, P - K @ S @ K.T
        close(found.innovation.log_likelihood[i], -0.5 * (news**2 / S[0, 0] + np.log(2 * np.pi * S[0, 0])), rtol=1e-7)
        close(found.innovation.residual[i] * 0.05, news, rtol=1e-7)
        close(found.innovation.nis[i], news**2 / S[0, 0], rtol=1e-7)
        close(found.x[i], x, rtol=1e-7)
        close(found.sd[i], np.sqrt(np.diag(P)), rtol=1e-7)
        X, weights = points(np.append(x, 0.0), np.block([[P, np.zeros((2, 1))], [np.zeros((1, 2)), np.eye(1)]]))
        kick = samples.u[i, 0] - damping * X[:, 1] - k * np.sin(X[:, 0])
        v = X[:, 1] + h * kick + 0.2 * h**0.5 * X[:, 2]
        x, P = transform(np.stack([X[:, 0] + h * v, v], axis=1), weights)


def test_iterated_update_is_gauss_newton_on_one_step():
    """Converged, it minimises |x - m|^2 in P plus |y - h(x)|^2 in R."""
    from scipy.optimize import minimize

    f = Filter(PENDULUM, PENDULUM_Z, LEVELS, Extended(12))
    belief = f.init(np.array([0.9, 0.0]), np.array([0.4, 1.0]))
    after, _ = f.update(belief, [0.0], [0.55])
    found = minimize(lambda a: (a / 0.4) ** 2 + ((0.55 - np.sin(0.9 + a)) / 0.05) ** 2, 0.0, tol=1e-14)
    np.testing.assert_allclose(after.mean[0], found.x[0], atol=1e-7)


@pytest.mark.parametrize("parallel", [False, True], ids=["serial", "parallel"])
def test_iterated_smoother_is_the_maximum_of_the_posterior(parallel, swung):
    """The slope of the joint cost in all states and noises vanishes there."""
    samples = jax.tree.map(lambda a: a[:40], swung[0])
    f = Filter(PENDULUM, PENDULUM_Z, LEVELS)
    x0, sd0 = np.array([0.8, 0.0]), np.array([0.5, 1.0])
    found = smooth_iterated(f, f.init(x0, sd0), samples, iterations=20, parallel=parallel)
    p, h = PENDULUM.prepare(PENDULUM_Z), PENDULUM.h

    def cost(states):
        ahead = jax.vmap(lambda x, u: PENDULUM.step(x, p, u, jnp.zeros(1), LEVELS, None)[0])(states[:-1], samples.u)
        w = (states[1:, 1] - ahead[:, 1]) / (0.2 * h**0.5)
        e = (samples.y[:, 0, 0] - jnp.sin(states[:-1, 0])) / 0.05
        return 0.5 * (jnp.sum(w**2) + jnp.sum(e**2) + jnp.sum(((states[0] - x0) / sd0) ** 2))

    def on_the_path(free):  # angles follow from rates: no noise of their own
        return cost(jnp.stack([jnp.append(free[0], free[0] + h * jnp.cumsum(free[2:])), free[1:]], axis=1))

    free = jnp.concatenate([found.x[0], found.x[1:, 1]])
    np.testing.assert_allclose(found.x[1:, 0], free[0] + h * np.cumsum(free[2:]), atol=1e-9)
    slope, curvature = jax.jit(jax.grad(on_the_path))(free), jax.jit(jax.hessian(on_the_path))(free)
    step = np.linalg.solve(curvature, slope)
    assert np.abs(step / np.sqrt(np.diag(np.linalg.inv(curvature)))).max() < 1e-6


def test_iterates_of_the_smoother_are_those_of_gauss_newton(swung):
    """One by one, from the extended smoother's path: dense least squares in the first state and all noises."""
    samples = jax.tree.map(lambda a: a[:25], swung[0])
    f, count = Filter(PENDULUM, PENDULUM_Z, LEVELS), 25
    x0, sd0 = np.array([0.8, 0.0]), np.array([0.5, 1.0])
    belief, p = f.init(x0, sd0), PENDULUM.prepare(PENDULUM_Z)
    path = np.asarray(f.smooth(f.run(belief, samples, trail=True)).x)

    def step(x, w, u):
        return PENDULUM.step(x, p, u, w, LEVELS, None)[0]

    jacobians = jax.jit(jax.vmap(jax.jacfwd(step, (0, 1)), (0, 0, 0)))
    for iterations in (1, 2, 3):
        # every state as an affine function of the change of the first one and of the noises, gaps included
        A, B = jacobians(path[:-1], np.zeros((count, 1)), samples.u)
        ahead = jax.vmap(step)(path[:-1], np.zeros((count, 1)), samples.u)
        at, G = np.zeros(2), np.eye(2, 2 + count)
        offsets, maps = [at], [G]
        for k in range(count):
            W = np.eye(1, 2 + count, 2 + k)
            at, G = ahead[k] - path[k + 1] + A[k] @ at, A[k] @ G + B[k] @ W
            offsets.append(at)
            maps.append(G)
        rows = [np.eye(2, 2 + count) / sd0[:, None], np.eye(count, 2 + count, 2)]
        rhs = [(x0 - path[0]) / sd0, np.zeros(count)]
        for k in range(count):
            H = np.array([np.cos(path[k, 0]), 0.0]) / 0.05
            rows.append((H @ maps[k])[None])
            rhs.append([(samples.y[k, 0, 0] - np.sin(path[k, 0])) / 0.05 - H @ offsets[k]])
        xi = np.linalg.lstsq(np.concatenate(rows), np.concatenate(rhs))[0]
        path = path + np.array(offsets) + np.array(maps) @ xi
        close(smooth_iterated(f, belief, samples, iterations=iterations, tolerance=0.0).x, path, rtol=1e-8, atol=1e-9)


def test_smoothing_and_iterating_help(swung):
    samples, truth = swung
    f = Filter(PENDULUM, PENDULUM_Z, LEVELS)
    belief = f.init(np.array([0.8, 0.0]), np.array([0.5, 1.0]))
    filtered = f.run(belief, samples, trail=True)
    smoothed = f.smooth(filtered)

    def rms(x):
        return np.sqrt(np.mean((np.asarray(x) - truth) ** 2, axis=0))

    assert np.all(rms(smoothed.x[:-1]) < 0.9 * rms(filtered.x))
    inside = np.abs(smoothed.x[:-1] - truth) < 2 * smoothed.sd[:-1]
    assert 0.88 < np.mean(inside) <= 1.0


def test_spectral_density_serves_every_rate():
    """The same numbers at steps of h and h / 8 with readings where they were."""
    sd = []
    for substeps in (1, 8):
        model = Pendulum(h=0.001 / substeps)
        f = Filter(model, PENDULUM_Z, LEVELS)
        steps = 400 * substeps
        seen = np.zeros((steps, 1, 1))
        seen[::substeps] = 1.0
        blank = Samples(np.zeros((steps, 1)), np.zeros((steps, 1, 1)), np.zeros((steps, 1)), seen)
        found = f.run(f.init(np.zeros(2), np.full(2, 0.1)), jax.tree.map(jnp.asarray, blank))
        sd.append(np.asarray(found.sd[::substeps])[200:])
    np.testing.assert_allclose(sd[0], sd[1], rtol=2e-2)


# ---------------------------------------------------------------------------------------------------------------
# noise levels, tests of innovations, faults


def test_innovations_pass_where_the_model_is_right_and_not_where_it_is_wrong():
    samples, _ = swing(np.random.default_rng(3), 600)
    belief = Filter(PENDULUM, PENDULUM_Z, LEVELS).init(np.array([1.0, 0.0]), np.array([0.1, 0.1]))
    right = innovation_tests(Filter(PENDULUM, PENDULUM_Z, LEVELS).run(belief, samples).innovation)
    assert right.passed()
    assert abs(right.nis - 1) < 0.15
    small = Filter(PENDULUM, PENDULUM_Z, Noise(LEVELS.process, LEVELS.sensor / 2))
    assert small.run(belief, samples).innovation.nis.mean() > 1.5
    assert not innovation_tests(small.run(belief, samples).innovation).passed()
    heavy = Filter(PENDULUM, PENDULUM_Z + np.array([0.0, 0.5]), Noise(jnp.asarray(0.05), LEVELS.sensor))
    wrong = innovation_tests(heavy.run(belief, samples).innovation)
    assert wrong.whiteness_p[0] < 1e-6


def test_noise_levels_by_likelihood():
    samples, _ = swing(np.random.default_rng(5), 600)
    far = Filter(PENDULUM, PENDULUM_Z, Noise(LEVELS.process * 6, LEVELS.sensor / 4))
    belief = far.init(np.array([1.0, 0.0]), np.array([0.1, 0.1]))
    found = tune(far, belief, samples)
    assert found.converged
    logs = np.log([found.noise.process / 0.2, found.noise.sensor[0] / 0.05])
    assert np.all(np.abs(logs) < 2.5 * found.sd)  # of the truth, in its own standard deviations
    assert np.all(found.sd < [0.3, 0.06])
    assert found.log_likelihood >= Filter(PENDULUM, PENDULUM_Z, LEVELS).run(belief, samples).log_likelihood


def test_log_likelihood_has_the_slope_of_its_differences(swung):
    samples, _ = swung

    @jax.jit
    def value(logs):
        noise = Noise(LEVELS.process * jnp.exp(logs[0]), LEVELS.sensor * jnp.exp(logs[1]))
        f = Filter(PENDULUM, jnp.asarray(PENDULUM_Z) + logs[2:], noise)
        return f.run(f.init(np.array([0.8, 0.0]), np.array([0.5, 1.0])), samples).log_likelihood

    at, eps = jnp.array([0.1, -0.2, 0.05, 0.02]), 1e-5
    central = [(value(at + eps * d) - value(at - eps * d)) / (2 * eps) for d in np.eye(4)]
    np.testing.assert_allclose(jax.jit(jax.jacfwd(value))(at), central, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.grad(value))(at), central, rtol=1e-6)


@pytest.mark.parametrize("kind", [Filter, EnsembleFilter])
def test_a_fault_is_found_and_kept_out(swung, kind):
    samples, truth = swung
    broken = samples._replace(y=samples.y.at[40].add(1.5))
    f, key = kind(PENDULUM, PENDULUM_Z, LEVELS), () if kind is Filter else (jax.random.key(0),)
    belief = f.init(np.array([1.0, 0.0]), np.array([0.1, 0.1]), *key)
    found = f.run(belief, broken)
    assert list(np.flatnonzero(faults(found.innovation, 1e-6))[:1]) == [40]
    gated = kind(PENDULUM, PENDULUM_Z, LEVELS, gate=gate_of(1, 1e-6))
    kept = gated.run(belief, broken)
    assert kept.innovation.accepted[40] == 0
    assert kept.innovation.accepted.sum() == len(samples.u) - 1
    without = f.run(belief, samples._replace(seen=samples.seen.at[40].set(0.0)))
    close(kept.x, without.x)
    assert np.abs(found.x[41] - truth[41]).max() > 2 * np.abs(kept.x[41] - truth[41]).max()


def test_a_gate_that_lets_nothing_in_leaves_an_ensemble_as_it_was(samples):
    """Readings of the pair: members and the noise of their step."""
    shut = EnsembleFilter(MODEL, Z, NOISE, 10, gate=0.0)
    members = shut.init(X0, SD0, jax.random.key(0))
    after, seen = shut.update(members, samples.u[0], samples.y[0], samples.seen[0], samples.s[0])
    assert (seen.accepted, seen.log_likelihood) == (0.0, 0.0)
    assert seen.nis > 0
    assert bool(eqx.tree_equal(after, members))


def test_levels_that_change_are_the_weights_of_the_readings(swung):
    samples, _ = swung
    f, steps = Filter(PENDULUM, PENDULUM_Z, LEVELS), len(samples.u)
    belief, factor = f.init(np.array([1.0, 0.0]), np.array([0.1, 0.1])), 1.0 + np.arange(steps) % 3
    series = Noise(jnp.full(steps, 0.2), jnp.asarray(0.05 * factor[:, None]))
    weighted = samples._replace(seen=samples.seen / factor[:, None, None])
    one, other = f.run(belief, samples, series), f.run(belief, weighted)
    close(one.x, other.x)
    close(one.log_likelihood, other.log_likelihood)


# ---------------------------------------------------------------------------------------------------------------
# parameters, precision, mistakes


def test_drifting_parameter_is_followed():
    """The stiffness changes by a third in mid-run; constant it is averaged, with a drift it is followed."""
    rng, steps = np.random.default_rng(7), 1500
    u, x, y = 2 * rng.normal(size=(steps, 1)), jnp.array([0.5, 0.0]), []
    step = jax.jit(lambda x, z, u, w: PENDULUM.step(x, PENDULUM.prepare(z), u, w, LEVELS, None)[0])
    z = [PENDULUM_Z, PENDULUM_Z + np.array([0.0, 0.3])]
    for k in range(steps):
        y.append(np.sin(x[0]) + 0.05 * rng.normal())
        x = step(x, z[k >= steps // 2], u[k], rng.normal(size=1))
    ones = jnp.ones((steps, 1, 1))
    samples = Samples(jnp.asarray(u), jnp.asarray(y)[:, None, None], jnp.zeros((steps, 1)), ones)
    errors = {}
    for name, drift in (("constant", None), ("drifting", Drift(np.array([0.0, 0.05])))):
        f = Filter(WithParameters(PENDULUM, 2, drift), np.zeros(0), LEVELS)
        start = Joint(jnp.array([0.5, 0.0]), jnp.asarray(PENDULUM_Z))
        found = f.run(f.init(start, np.array([0.1, 0.1, 0.3, 0.3])), samples)
        errors[name] = abs(float(found.x.z[-1, 1]) - z[1][1])
        if drift:
            assert errors[name] < 3 * found.sd[-1, 3]
    assert errors["drifting"] < 0.12
    assert errors["constant"] > 2 * errors["drifting"]


def test_single_precision_stays_finite():
    """P_0 = 10, small Q, thousands of steps: factors cannot lose symmetry, nor sign."""
    samples, _ = swing(np.random.default_rng(2), 300)
    samples = jax.tree.map(lambda a: jnp.tile(jnp.asarray(a, jnp.float32), (14,) + (1,) * (a.ndim - 1)), samples)
    model = Pendulum(h=np.float32(0.05))
    noise = Noise(jnp.asarray(1e-3, jnp.float32), jnp.array([0.05], jnp.float32))
    f = Filter(model, jnp.asarray(PENDULUM_Z, jnp.float32), noise)
    belief = f.init(jnp.zeros(2, jnp.float32), jnp.full(2, 10.0**0.5, jnp.float32))
    found = f.run(belief, samples)
    assert found.sd.dtype == jnp.float32
    assert bool(jnp.all(jnp.isfinite(found.sd)))
    assert bool(jnp.all(found.sd > 0))
    assert bool(jnp.all(jnp.isfinite(found.x)))


def test_mistakes_are_named(samples):
    f = Filter(PENDULUM, PENDULUM_Z, LEVELS)
    with pytest.raises(ValueError, match="2 entries or rows"):
        f.init(np.zeros(2), np.ones(3))
    g = Filter(MODEL, Z, NOISE)
    found = g.run(g.init(X0, SD0), samples)
    with pytest.raises(ValueError, match="trail=True"):
        g.smooth(found)
    narrow = Filter(PENDULUM, PENDULUM_Z, LEVELS, Unscented(spread=1.0))
    belief = narrow.init(np.zeros(2), np.ones(2))
    with pytest.raises(ValueError, match="at least"):
        narrow.update(belief, [0.0], [0.1])
    with pytest.raises(ValueError, match="nothing to tune"):
        tune(f, f.init(np.zeros(2), np.ones(2)), samples, process=False, sensors=False)


def estimators() -> dict[str, tuple]:
    """Everything that takes samples one by one or as a recording, of the pendulum, with its belief at the start."""
    x0, sd = np.array([1.0, 0.0]), np.array([0.1, 0.1])
    f, e = Filter(PENDULUM, PENDULUM_Z, LEVELS), EnsembleFilter(PENDULUM, PENDULUM_Z, LEVELS, 8)
    imm = IMM([f], np.ones((1, 1)))
    coupled = Coupled([imm])
    slow, dual = SlowFilter(WithParameters(PENDULUM, 2), LEVELS), DualFilter(PENDULUM, LEVELS)
    joint = Joint(jnp.asarray(x0), jnp.asarray(PENDULUM_Z))
    return {
        "filter": (f, f.init(x0, sd)),
        "slow": (slow, slow.init(joint, np.full(4, 0.1))),
        "ensemble": (e, e.init(x0, sd, jax.random.key(0))),
        "dual": (dual, dual.init(x0, sd, PENDULUM_Z, np.full(2, 0.1))),
        "imm": (imm, imm.init(x0, sd)),
        "coupled": (coupled, coupled.init(x0[None, None], sd[None, None])),
    }


@pytest.mark.parametrize("name", ["filter", "slow", "ensemble", "dual", "imm", "coupled"])
def test_readings_where_the_model_does_not_read_are_refused(swung, name):
    """The pendulum is read at the start of a step: a reading within one would be taken for one there."""
    f, belief = estimators()[name]
    samples = jax.tree.map(lambda a: a[:3], swung[0])
    f.update(belief, samples.u[0], samples.y[0], s=samples.s[0])
    with pytest.raises(RuntimeError, match="all `s` must be 0"):
        f.update(belief, samples.u[0], samples.y[0], s=samples.s[0] + 0.5)
    with pytest.raises(RuntimeError, match="all `s` must be 0"):
        f.run(belief, samples._replace(s=samples.s.at[1].set(0.5)))
