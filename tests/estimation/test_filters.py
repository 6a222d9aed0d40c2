"""Recursive estimators of a nonlinear model: textbooks, iterations, noise levels, faults, precision, mistakes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from estimation.pendulum_model import LEVELS, PENDULUM, PENDULUM_Z, Pendulum, swing

from spookax.estimation import (
    IMM,
    AugmentedState,
    Coupled,
    Drift,
    DualFilter,
    EnsembleFilter,
    Extended,
    Filter,
    SlowFilter,
    Unscented,
    WithParameters,
    faults,
    gate_of,
    innovation_tests,
    smooth_iterated,
    tune,
)
from spookax.protocol import Noise, Samples

close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-10)


@pytest.fixture(scope="module")
def swung() -> tuple[Samples, np.ndarray]:
    return jax.tree.map(np.asarray, swing(np.random.default_rng(1), 80))


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


@jax.jit
def slopes_of_the_cost(free: jax.Array, samples: Samples, x0: jax.Array, sd0: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Second and first derivatives of the joint cost of a path in its first state and its rates."""
    p, h = PENDULUM.prepare(PENDULUM_Z), PENDULUM.h

    def cost(states):
        ahead = jax.vmap(lambda x, u: PENDULUM.step(x, p, u, jnp.zeros(1), LEVELS, None)[0])(states[:-1], samples.u)
        w = (states[1:, 1] - ahead[:, 1]) / (0.2 * h**0.5)
        e = (samples.y[:, 0, 0] - jnp.sin(states[:-1, 0])) / 0.05
        return 0.5 * (jnp.sum(w**2) + jnp.sum(e**2) + jnp.sum(((states[0] - x0) / sd0) ** 2))

    def on_the_path(free):  # angles follow from rates: no noise of their own
        return cost(jnp.stack([jnp.append(free[0], free[0] + h * jnp.cumsum(free[2:])), free[1:]], axis=1))

    return jax.jacfwd(lambda free: (jax.grad(on_the_path)(free),) * 2, has_aux=True)(free)


@pytest.mark.parametrize("parallel", [False, True], ids=["serial", "parallel"])
def test_iterated_smoother_is_the_maximum_of_the_posterior(parallel, swung):
    """The slope of the joint cost in all states and noises vanishes there."""
    samples = jax.tree.map(lambda a: a[:40], swung[0])
    f = Filter(PENDULUM, PENDULUM_Z, LEVELS)
    x0, sd0 = np.array([0.8, 0.0]), np.array([0.5, 1.0])
    found = smooth_iterated(f, f.init(x0, sd0), samples, iterations=20, parallel=parallel)
    x = np.asarray(found.x)
    free = np.concatenate([x[0], x[1:, 1]])
    np.testing.assert_allclose(x[1:, 0], free[0] + PENDULUM.h * np.cumsum(free[2:]), atol=1e-9)
    curvature, slope = slopes_of_the_cost(free, samples, x0, sd0)
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

    jacobians, steps = jax.jit(jax.vmap(jax.jacfwd(step, (0, 1)), (0, 0, 0))), jax.jit(jax.vmap(step))
    for iterations in (1, 2, 3):
        # every state as an affine function of the change of the first one and of the noises, gaps included
        A, B = map(np.asarray, jacobians(path[:-1], np.zeros((count, 1)), samples.u))
        ahead = np.asarray(steps(path[:-1], np.zeros((count, 1)), samples.u))
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

    at, eps = np.array([0.1, -0.2, 0.05, 0.02]), 1e-5
    central = [(value(at + eps * d) - value(at - eps * d)) / (2 * eps) for d in np.eye(4)]
    np.testing.assert_allclose(jax.jit(jax.jacfwd(value))(at), central, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.grad(value))(at), central, rtol=1e-6)


@pytest.mark.parametrize("kind", [Filter, EnsembleFilter])
def test_a_fault_is_found_and_kept_out(swung, kind):
    samples, truth = swung
    y, weight = np.array(samples.y), np.array(samples.weight)
    y[40] += 1.5
    weight[40] = 0.0
    broken = samples._replace(y=y)
    f, key = kind(PENDULUM, PENDULUM_Z, LEVELS), () if kind is Filter else (jax.random.key(0),)
    belief = f.init(np.array([1.0, 0.0]), np.array([0.1, 0.1]), *key)
    found = f.run(belief, broken)
    assert list(np.flatnonzero(faults(found.innovation, 1e-6))[:1]) == [40]
    gated = kind(PENDULUM, PENDULUM_Z, LEVELS, gate=gate_of(1, 1e-6))
    kept = gated.run(belief, broken)
    assert kept.innovation.accepted[40] == 0
    assert kept.innovation.accepted.sum() == len(samples.u) - 1
    without = f.run(belief, samples._replace(weight=weight))
    close(kept.x, without.x)
    assert np.abs(found.x[41] - truth[41]).max() > 2 * np.abs(kept.x[41] - truth[41]).max()


def test_levels_that_change_are_the_weights_of_the_readings(swung):
    samples, _ = swung
    f, steps = Filter(PENDULUM, PENDULUM_Z, LEVELS), len(samples.u)
    belief, factor = f.init(np.array([1.0, 0.0]), np.array([0.1, 0.1])), 1.0 + np.arange(steps) % 3
    series = Noise(jnp.full(steps, 0.2), jnp.asarray(0.05 * factor[:, None]))
    weighted = samples._replace(weight=samples.weight / factor[:, None, None])
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
        start = AugmentedState(jnp.array([0.5, 0.0]), jnp.asarray(PENDULUM_Z))
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


def test_mistakes_are_named(swung):
    samples, _ = swung
    f = Filter(PENDULUM, PENDULUM_Z, LEVELS)
    with pytest.raises(ValueError, match="2 entries or rows"):
        f.init(np.zeros(2), np.ones(3))
    found = f.run(f.init(np.zeros(2), np.ones(2)), samples)
    with pytest.raises(ValueError, match="trail=True"):
        f.smooth(found)
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
    joint = AugmentedState(jnp.asarray(x0), jnp.asarray(PENDULUM_Z))
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
        f.run(belief, samples._replace(s=np.where(np.arange(3) == 1, 0.5, 0.0)[:, None]))
