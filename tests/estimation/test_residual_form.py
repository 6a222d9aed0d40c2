"""The residual form: dense and textbook algebra on a linear model, the simulator form elsewhere."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from estimation.linear_model import (
    AMOUNT,
    DAMPING,
    MASS,
    NOISE,
    SENSOR_SD,
    STIFFNESS,
    H,
    LinearModel,
    Masses,
    recording,
)
from scipy.stats import chi2, norm

from spookax._results import ESTIMATE_RESULTS
from spookax.estimation import Problem, Settings, Stage, fit
from spookax.estimation.batch.one_recording import Plan, follow, stiff_gains
from spookax.estimation.batch.problem import Iterate
from spookax.estimation.batch.residual_form import ResidualEstimator, fit_residual
from spookax.estimation.batch.residual_rows import (
    displaced,
    eliminate,
    linear_rows,
    log_determinants,
    read_back,
    substitute,
)
from spookax.estimation.batch.uncertainty import uncertainty
from spookax.estimation.linearise import Path, all_successful, before
from spookax.math import bordered
from spookax.models import Free, Multibody, ParameterMap, ProcessNoise
from spookax.protocol import Noise, Samples
from spookax.scene import Scene
from spookax.stepping import state_from_joints
from spookax.system import build

pytestmark = [pytest.mark.timeout(300), pytest.mark.quick]

# ---------------------------------------------------------------------------------------------------------------
# a linear model: every number can be written out

MODEL = LinearModel()
FORCE = np.array([1.5, -0.7])
STEPS, SD, OWN_WEIGHT = 25, 0.8, np.array([2.0])


class SplitForce(LinearModel):
    """z = (two forces on the first mass, force on the second, offset): of the first two only their sum shows."""

    def prepare(self, z):
        return jnp.concatenate([z[:1] + z[1:2], z[2:]])


def linear_start(x: Masses, own: float) -> tuple[jax.Array, Path]:
    """A poor start: the right poses bent, and no parameters."""
    k = np.arange(x.q.shape[0])[:, None]
    q = np.asarray(x.q) + 0.2 * np.sin(k / 3) + 0.1
    v = np.concatenate([np.asarray(x.v)[:1], np.diff(q, axis=0) / H])
    path = jax.device_put((Masses(q, v), np.zeros((STEPS, 2)), np.zeros((STEPS, 0))))
    return jax.device_put(np.array([0.0, 0.0, own])), Path(*path, all_successful(STEPS))


def linearised(samples: Samples, x: Masses, own: float = 0.0):
    z, path = linear_start(x, own)
    point = read_back(MODEL, z, NOISE, path.x, samples)
    return z, point, linear_rows(MODEL, z, NOISE, point, samples, jnp.asarray(OWN_WEIGHT), SD)


def dense_rows(samples: Samples, x0: Masses, unknowns: jax.Array) -> jax.Array:
    """All whitened residuals of a recording at (q_-1 ... q_K, own offset, forces): noises, readings, x_0, own prior."""
    q = unknowns[: 2 * (STEPS + 2)].reshape(-1, 2)
    z = jnp.roll(unknowns[2 * (STEPS + 2) :], -1)
    x = Masses(q[1:], jnp.diff(q, axis=0) / H)
    here, there = jax.tree.map(lambda a: a[:-1], x), jax.tree.map(lambda a: a[1:], x)
    w = jax.vmap(lambda a, b, u: MODEL.transition(a, b, z, u, NOISE).w)(here, there, samples.u)
    readings = jax.vmap(lambda a, b, s: MODEL.observe(a, b, z, s[0]))(here, there, samples.s)
    e = (samples.weight * (samples.y - readings[:, None]) / SENSOR_SD[None, None]).reshape(-1)
    first = jnp.concatenate([(x.q[0] - x0.q) / SD, (x.v[0] - x0.v) / (10 * SD)])
    return jnp.concatenate([w.reshape(-1), e, first, OWN_WEIGHT * z[2:]])


@jax.jit
def dense_problem(samples: Samples, x0: Masses) -> tuple[jax.Array, jax.Array]:
    zero = jnp.zeros(2 * (STEPS + 2) + 3)
    rows = functools.partial(dense_rows, samples, x0)
    return jax.jacfwd(rows)(zero), rows(zero)


def dense(samples: Samples, x0: Masses) -> tuple[np.ndarray, np.ndarray]:
    """(A, c) of the residuals A X + c."""
    A, c = dense_problem(samples, x0)
    return np.asarray(A), np.asarray(c)


def first_state(x: Masses) -> Masses:
    return jax.tree.map(lambda a: np.asarray(a)[0], x)


def test_one_full_step_is_the_rauch_tung_striebel_smoother(rng):
    """From any start, at known parameters, with readings of positions at t_k."""
    samples, truth = recording(rng, STEPS, FORCE, 0.0)
    seen = samples.weight.at[..., 2].set(0.0)
    samples = samples._replace(s=jnp.zeros_like(samples.s), weight=seen)
    z, point, linear = linearised(samples, truth)
    factor = eliminate(linear.rows, jnp.asarray(0.0))
    step = displaced(MODEL, z, jnp.zeros(3), substitute(factor, jnp.zeros(3)), NOISE, linear, samples)

    S = np.linalg.inv(MASS + H * DAMPING)
    kick = np.hstack([-H * S @ STIFFNESS, S @ MASS])
    A = np.vstack([np.hstack([np.eye(2), np.zeros((2, 2))]) + H * kick, kick])
    B = np.vstack([H * S, S])
    C = np.hstack([np.eye(2), np.zeros((2, 2))])
    x = first_state(point.path.x)
    mean, P = np.concatenate([x.q, x.v]), np.diag([SD**2] * 2 + [100 * SD**2] * 2)
    filtered, predicted = [], [(mean, P)]
    for k in range(STEPS):
        R = np.diag(np.where(np.asarray(samples.weight[k, 0, :2]) > 0, SENSOR_SD[:2] ** 2, 1e12))
        gain = P @ C.T @ np.linalg.inv(C @ P @ C.T + R)
        mean, P = mean + gain @ (np.asarray(samples.y)[k, 0, :2] - C @ mean), (np.eye(4) - gain @ C) @ P
        filtered.append((mean, P))
        mean, P = A @ mean + H * B @ np.asarray(samples.u)[k], A @ P @ A.T + AMOUNT**2 * B @ B.T
        predicted.append((mean, P))
    smoothed = [(mean, P)]
    for k in reversed(range(STEPS)):
        (mean, P), (ahead, P_ahead) = filtered[k], predicted[k + 1]
        gain = P @ A.T @ np.linalg.inv(P_ahead)
        mean, P = mean + gain @ (smoothed[0][0] - ahead), P + gain @ (smoothed[0][1] - P_ahead) @ gain.T
        smoothed.insert(0, (mean, P))

    found = np.concatenate([step.path.x.q, step.path.x.v], axis=1)
    np.testing.assert_allclose(found, [mean for mean, _ in smoothed], rtol=1e-7, atol=1e-7)
    blocks = np.asarray(jax.jit(bordered.covariance)(factor).blocks)[1:]
    np.testing.assert_allclose(blocks, [P[:2, :2] for _, P in smoothed], rtol=1e-7, atol=1e-10)


def test_log_determinants_are_those_of_the_dense_hessian(rng):
    samples, truth = recording(rng, STEPS, FORCE, 0.2)
    _, point, linear = linearised(samples, truth)
    A, _ = dense(samples, first_state(point.path.x))
    poses, noises, readings = slice(0, 2 * (STEPS + 2)), 2 * STEPS, 3 * STEPS
    full, silent, density = log_determinants(linear.rows, MODEL.noise_size)
    everything = A[:, poses]
    quiet = np.delete(everything, slice(noises, noises + readings), axis=0)
    np.testing.assert_allclose(full, np.linalg.slogdet(everything.T @ everything)[1] / 2, rtol=1e-10)
    np.testing.assert_allclose(silent, np.linalg.slogdet(quiet.T @ quiet)[1] / 2, rtol=1e-10)
    E = A[:noises, poses][:, 4:]  # noises by q_1 ... q_K: block triangular
    np.testing.assert_allclose(density, np.linalg.slogdet(E)[1], rtol=1e-10)
    C = everything[noises : noises + readings]
    F = np.eye(readings) + C @ np.linalg.solve(quiet.T @ quiet, C.T)
    np.testing.assert_allclose(full - silent, np.linalg.slogdet(F)[1] / 2, rtol=1e-8)


@pytest.mark.parametrize("bound", [np.inf, 0.5])
def test_border_is_dense_joint_least_squares(rng, bound):
    """Two recordings with their own first states and offsets share the forces; one of these may be at its bound."""
    data = [recording(rng, STEPS, FORCE, offset) for offset in (0.2, -0.3)]
    starts = [linear_start(x, 0.0) for _, x in data]
    weight, prior = np.array([0.3, 0.1]), np.array([1.0, 0.5])
    problem = Problem(
        samples=tuple(samples for samples, _ in data),
        z0=np.zeros(2),
        prior=prior,
        weight=weight,
        lower=np.full(2, -np.inf),
        upper=np.array([bound, np.inf]),
        own_weight=OWN_WEIGHT,
        initial_sd=1e3,
    )
    start = Iterate(jnp.zeros(2), (jnp.zeros(1), jnp.zeros(1)), tuple(path for _, path in starts))
    found = fit_residual(problem, [Stage(MODEL, NOISE)], start, Settings(tolerance=1e-13, marginal=False))
    assert found.result == ESTIMATE_RESULTS.successful
    np.testing.assert_allclose(found.history[1].cost, found.cost, rtol=1e-6)  # one step; the others change nothing

    n = 2 * (STEPS + 2) + 1  # unknowns of one recording: poses and offset
    A, c = np.zeros((0, 2 * n + 2)), np.zeros(0)
    for i, (samples, _) in enumerate(data):
        rows, at = dense(samples, first_state(starts[i][1].x))
        flat = np.r_[0 : 5 * STEPS, 5 * STEPS + 4]  # x_0 has no prior in the cost
        wide = np.zeros((len(flat), 2 * n + 2))
        wide[:, i * n : (i + 1) * n], wide[:, 2 * n :] = rows[flat, :n], rows[flat, n:]
        A, c = np.vstack([A, wide]), np.append(c, at[flat])
    A = np.vstack([A, np.hstack([np.zeros((2, 2 * n)), np.diag(weight)])])
    c = np.append(c, -weight * prior)
    free = np.linalg.lstsq(A, -c, rcond=None)[0]
    assert free[-2] > 0.5
    if free[-2] > bound:
        c, columns = c + A[:, -2] * bound, np.r_[0 : 2 * n, 2 * n + 1]
        free = np.insert(np.linalg.lstsq(A[:, columns], -c, rcond=None)[0], 2 * n, 0.0)
        free[-2], c = bound, c - A[:, -2] * bound
        assert found.reach[0] < 0 == found.reach[1]  # what the data allow lies below the upper bound
        assert found.iterate.z[0] == bound
    np.testing.assert_allclose(found.iterate.z, free[-2:], rtol=1e-6)
    np.testing.assert_allclose(np.concatenate(found.iterate.own), free[[n - 1, 2 * n - 1]], rtol=1e-6)
    for i, path in enumerate(found.iterate.paths):
        np.testing.assert_allclose(path.x.q.reshape(-1), free[i * n : (i + 1) * n - 1][2:], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.cost, np.sum((A @ free + c) ** 2) / 2, rtol=1e-10)
    if bound == np.inf:
        P = np.linalg.inv(A.T @ A)
        np.testing.assert_allclose(found.covariance, P[-2:, -2:], rtol=1e-5)
        np.testing.assert_allclose(found.own_covariance[1], P[[2 * n - 1]][:, [2 * n - 1]], rtol=1e-5)


@pytest.mark.parametrize("form", [fit, fit_residual])
def test_parameters_that_nothing_speaks_about_are_named(rng, form):
    """One force in two parts: their sum and all else are those of one force, their own variances infinite."""
    samples, x = recording(rng, STEPS, FORCE, 0.3)
    fits, states, settings = [], [], Settings(tolerance=1e-13, marginal=False)
    for model, count in ((MODEL, 2), (SplitForce(), 3)):
        z, none, wide = jnp.zeros(count + 1), np.zeros(count), np.full(count, np.inf)
        plan = Plan(before(x), jnp.zeros((STEPS, 2)), stiff_gains(model, z, NOISE, before(x)))
        path = follow(model, z, NOISE, plan, samples.u, jnp.zeros(0))
        problem = Problem((samples,), none, none, np.eye(count)[-1], -wide, wide, OWN_WEIGHT, SD)
        stage, start = Stage(model, NOISE), Iterate(z[:count], (z[count:],), (path,))
        fits.append(form(problem, [stage], start, settings))
        states.append(uncertainty(problem, stage, fits[-1])[0].covariance)
    one, two = fits
    assert one.result == ESTIMATE_RESULTS.successful
    assert two.result == ESTIMATE_RESULTS.no_information
    np.testing.assert_allclose([two.iterate.z[:2].sum(), two.iterate.z[2]], one.iterate.z, rtol=1e-6)
    np.testing.assert_allclose(two.cost, one.cost, rtol=1e-9)
    np.testing.assert_array_equal(two.covariance[:2], [[np.inf, 0.0, 0.0], [0.0, np.inf, 0.0]])
    np.testing.assert_allclose(two.covariance[2, 2], one.covariance[1, 1], rtol=1e-6)
    np.testing.assert_allclose(two.own_covariance[0], one.own_covariance[0], rtol=1e-6)
    np.testing.assert_allclose(states[1], states[0], rtol=1e-5, atol=1e-12)


# ---------------------------------------------------------------------------------------------------------------
# a pendulum in maximal coordinates: two recordings, soft to stiff


@functools.cache
def pendulum() -> tuple[Multibody, Problem, Iterate]:
    """Free swings of a pendulum with friction, from an integration of its equation; the second with a shifted zero."""
    h, steps, sd, viscous, coulomb = 0.01, 80, 2e-3, 0.05, 0.1
    scene = Scene.model_validate(
        {
            "spookax": 1,
            "step": h,
            "regularisation": {"relaxation_steps": 1.0, "v_creep": 0.02},
            "bodies": {"bob": {"mass": 1.0, "com": [0, 0, -0.3], "inertia": [0.01, 0.01, 0.001]}},
            "joints": {
                "pin": {"type": "hinge", "child": "bob", "axis": [1, 0, 0]}
                | {"friction": {"viscous": viscous, "coulomb": coulomb}}
            },
            "sensors": {"angle": {"type": "joint_position", "joint": "pin"}},
        }
    )
    system, params = build(scene)
    shared = ParameterMap(
        system,
        (Free("joints.pin.friction.viscous", 1.5 * viscous), Free("joints.pin.friction.coulomb", coulomb / 1.5)),
    )
    own = ParameterMap(system, (Free("sensors.angle.offset", 0.0, transform="identity", prior_sd=0.1),))
    model = Multibody(system, params, shared, own, ProcessNoise("bodies", 1e-2), (0,))
    rng, samples, paths = np.random.default_rng(3), [], []

    def place(q, v):
        return model.body_state(state_from_joints(system, params, {"pin": {"position": q, "rate": v}}), params.com)

    placed = jax.jit(jax.vmap(place))
    for angle, rate, offset in ((1.0, 0.0, 0.0), (-0.4, 3.0, 0.05)):
        theta = np.zeros((steps, 2))
        theta[0] = angle, rate
        for k in range(1, steps):
            theta[k] = theta[k - 1]
            for _ in range(200):
                q, v = theta[k]
                a = -(9.81 * 0.3 * np.sin(q) + viscous * v + coulomb * np.tanh(v / 1e-3)) / 0.1
                v = v + h / 200 * a
                theta[k] = q + h / 200 * v, v
        y = theta[:, 0] + offset + sd * rng.normal(size=steps)
        seen = (rng.uniform(size=(steps, 1, 1)) < 0.9).astype(float)
        samples.append(
            Samples(jnp.zeros((steps, 0)), jnp.asarray(y)[:, None, None], jnp.zeros((steps, 1)), jnp.asarray(seen))
        )
        smooth = np.convolve(np.pad(y, 2, mode="edge"), np.ones(5) / 5, mode="valid")
        plan = placed(smooth, np.gradient(smooth, h))
        paths.append(Path(plan, jnp.zeros((steps, 6)), jnp.zeros((steps, 1)), all_successful(steps)))
    z0 = shared.start()
    lower, upper = shared.bounds()
    problem = Problem(tuple(samples), z0, z0, shared.prior_weight(), lower, upper, own.prior_weight())
    return model, problem, Iterate(jnp.asarray(z0), (jnp.zeros(1), jnp.zeros(1)), tuple(paths))


PENDULUM_NOISE = Noise(jnp.asarray(1.0), jnp.array([2e-3]))


def hung(compliance: float) -> tuple[Problem, Stage, Iterate]:
    """The problem with so soft a joint, and trajectories to start from."""
    model, problem, plans = pendulum()
    model = eqx.tree_at(lambda m: m.params.relative_compliance, model, jnp.full((1, 6), compliance))
    z, noise, paths = jnp.append(plans.z, 0.0), PENDULUM_NOISE, []
    for path, s in zip(plans.paths, problem.samples, strict=True):
        plan = Plan(path.x, path.w, stiff_gains(model, z, noise, path.x))
        paths.append(follow(model, z, noise, plan, s.u, path.guess[0]))
    return problem, Stage(model, noise), plans._replace(paths=tuple(paths))


SQUARES = Settings(tolerance=1e-11, determinant=False)
JOINT = Settings(tolerance=1e-11, marginal=False)


@pytest.mark.slow
@pytest.mark.parametrize("compliance", [1e-1, 1e-2, 1e-4, 1e-6, 1e-8])
def test_both_forms_agree_from_soft_to_stiff_joints(compliance):
    problem, stage, start = hung(compliance)
    residual = fit_residual(problem, [stage], start, SQUARES)
    simulator = fit(problem, [stage], start, SQUARES)
    assert residual.result == ESTIMATE_RESULTS.successful
    assert residual.iterations <= 9
    np.testing.assert_allclose(residual.cost, simulator.cost, rtol=1e-6)
    sd = np.sqrt(np.diag(simulator.covariance))
    assert np.all(np.abs(residual.iterate.z - simulator.iterate.z) < 1e-4 * sd)
    np.testing.assert_allclose(residual.covariance, simulator.covariance, rtol=1e-3)
    for own, other, variance in zip(residual.iterate.own, simulator.iterate.own, simulator.own_covariance, strict=True):
        assert np.all(np.abs(own - other) < 1e-4 * np.sqrt(np.diag(variance)))
    np.testing.assert_allclose(residual.own_covariance, simulator.own_covariance, rtol=1e-3)
    # evidence: the same up to the prior of x_0, whose free directions are one angle and one rate of each recording:
    # a displacement of the origin by 1 m turns the projected body by m l / (J + m l^2) = 3 rad
    np.testing.assert_allclose(simulator.log_det - residual.log_det, 2 * np.log(1 + 3**2) * 2, atol=1e-3)
    if compliance < 1e-3:  # the swings are those of a rigid joint
        assert np.all(np.abs(np.asarray(residual.iterate.z) - np.log([0.05, 0.1])) < 3 * sd)


@pytest.mark.slow
def test_both_forms_agree_on_the_joint_objective():
    """Each takes the density's determinant in its own way: of the rows read backwards, or of the answer to noise."""
    problem, stage, start = hung(1e-4)
    residual, simulator = fit_residual(problem, [stage], start, JOINT), fit(problem, [stage], start, JOINT)
    squares = fit(problem, [stage], start, SQUARES)
    sd = np.sqrt(np.diag(simulator.covariance))
    assert np.max(np.abs(simulator.iterate.z - squares.iterate.z) / sd) > 0.01
    assert np.all(np.abs(residual.iterate.z - simulator.iterate.z) < 1e-4 * sd)


@pytest.mark.slow  # compiles the sweeps of another problem
def test_marginal_objective_is_least_at_the_marginal_estimate():
    """Cost + 1/2 sum log|F| with the states fitted anew on both sides of the estimate, along either parameter."""
    problem, stage, start = hung(1e-2)
    joint = fit_residual(problem, [stage], start, SQUARES)
    marginal = fit_residual(problem, [stage], joint.iterate, Settings(tolerance=1e-9, marginal=True))
    sd = np.sqrt(np.diag(joint.covariance))
    assert marginal.result == ESTIMATE_RESULTS.successful
    assert np.max(np.abs(marginal.iterate.z - joint.iterate.z) / sd) > 1e-2

    def objective(z: np.ndarray) -> float:
        held = Problem(**{**vars(problem), "lower": z, "upper": z})
        pinned = fit_residual(held, [stage], marginal.iterate._replace(z=jnp.asarray(z)), SQUARES)
        return pinned.cost + pinned.log_det / 2

    z = np.asarray(marginal.iterate.z)
    least = objective(z)
    for step in 0.3 * np.diag(sd):
        assert objective(z + step) > least < objective(z - step)


@pytest.mark.slow
def test_a_fit_that_is_cut_short_says_so():
    problem, stage, start = hung(1e-2)
    lines = []
    estimator = ResidualEstimator(problem, Settings(max_iterations=2, marginal=False), lines.append)
    short = estimator.run(start, [stage])
    assert short.result == ESTIMATE_RESULTS.iteration_limit
    assert short.iterations == 2
    assert [line.iteration for line in lines] == [0, 1, 2]
    assert lines[2].cost < lines[1].cost < lines[0].cost
    assert estimator.iterate is not None
    kept = estimator.snapshot(stage, estimator.iterate)
    assert kept.result == ESTIMATE_RESULTS.interrupted
    np.testing.assert_allclose(kept.cost, short.cost, rtol=1e-12)


def test_noise_on_the_joints_alone_is_refused():
    model, problem, plans = pendulum()
    ends = [jax.tree.map(lambda a: np.concatenate([a, a[-1:]]), path.x) for path in plans.paths]
    paths = tuple(path._replace(x=x) for path, x in zip(plans.paths, ends, strict=True))
    start = plans._replace(paths=paths)
    joints = Multibody(model.system, model.params, model.shared, model.own, ProcessNoise("joints", 1e-2), (0,))
    with pytest.raises(ValueError, match="kind: bodies"):
        fit_residual(problem, [Stage(joints, PENDULUM_NOISE)], start, JOINT)


# ---------------------------------------------------------------------------------------------------------------
# a driven mass on a slide: known gain, unknown mass and friction


SLIDE = np.array([95.11, 203.5, 20.39])  # published numbers of a positioning drive (EMPS): kg, N s/m, N
GAIN, SLIDE_SD, DENSITY, CREEP = 35.15, 2e-5, 0.2, 1e-3  # N/V, m, N sqrt(s), m/s


def drive(h: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """A voltage held over each step, and its means over the kicks."""
    t = np.arange(steps) * h
    u = 3 * np.sin(9 * t) + 2 * np.sin(23 * t + 1)
    return u, np.append(u[0], (u[1:] + u[:-1]) / 2)


def noises(seed: int, h: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Impulses [N s] and errors of the readings [m] of a recording: what the estimator takes them for."""
    impulse, error = np.random.default_rng(seed).normal(size=(2, steps))
    return DENSITY * np.sqrt(h) * impulse, SLIDE_SD * error


def stepped(seed: int, h: float, steps: int) -> np.ndarray:
    """Readings of the slide with friction at the end of each step, by its scalar equation, solved case by case."""
    (m, c, f), (_, kick) = SLIDE, drive(h, steps)
    impulse, y = noises(seed, h, steps)
    q = v = 0.0
    for k in range(steps):
        y[k] += q
        push = m * v + h * GAIN * kick[k] + impulse[k]
        v = push / (m + h * c + h * f / CREEP)
        if abs(v) > CREEP:
            v = (push - np.sign(push) * h * f) / (m + h * c)
        q += h * v
    return y


def continuous(seed: int, h: float, steps: int) -> np.ndarray:
    """Readings of the slide in continuous time, hit by an impulse at every t_k; at rest before t_0.

    Under a force held over each step and an impulse at each t_k, the second difference of the positions is what
    the kick at t_k says, exactly: a force held at random, too, would give neighbouring kicks a common part.
    """
    (m, c, f), (u, _), fine = SLIDE, drive(h, steps), 10
    impulse, y = noises(seed, h, steps)
    q = v = 0.0
    for k in range(steps):
        y[k] += q
        v += impulse[k] / m
        for _ in range(fine):
            v += h / fine / m * (GAIN * u[k] - c * v - f * np.tanh(v / 1e-4))
            q += h / fine * v
    return y


def identified(compliance: float, h: float, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mass and frictions from positions and known gain: error of their logarithms, and their covariance."""
    steps = len(y)
    scene = Scene.model_validate(
        {
            "spookax": 1,
            "step": h,
            "gravity": [0, 0, 0],
            "regularisation": {"relative_compliance": compliance, "v_creep": CREEP},
            "bodies": {"carriage": {"mass": float(SLIDE[0]), "inertia": [1.0, 1.0, 1.0]}},
            "joints": {
                "rail": {"type": "prismatic", "child": "carriage", "axis": [1, 0, 0]}
                | {"friction": {"viscous": float(SLIDE[1]), "coulomb": float(SLIDE[2])}}
            },
            "motors": {"drive": {"type": "torque", "joint": "rail", "gain": GAIN}},
            "sensors": {"encoder": {"type": "joint_position", "joint": "rail"}},
        }
    )
    system, params = build(scene)
    names = ("bodies.carriage.mass", "joints.rail.friction.viscous", "joints.rail.friction.coulomb")
    free = tuple(Free(name, float(f * v)) for name, f, v in zip(names, (1.5, 0.6, 1.5), SLIDE, strict=True))
    shared = ParameterMap(system, free)
    model = Multibody(system, params, shared, ParameterMap(system, ()), ProcessNoise("bodies", DENSITY), (0,))
    kick, seen = jnp.asarray(drive(h, steps)[1])[:, None], jnp.ones((steps, 1, 1))
    samples = Samples(kick, jnp.asarray(y)[:, None, None], jnp.zeros((steps, 1)), seen)

    # a slide is straight: the measured positions, held to the rail, are a trajectory
    place = jnp.append(jnp.asarray(y), 2 * y[-1] - y[-2])
    zero = jnp.zeros((steps + 1, 1, 3))
    rest = jax.vmap(lambda _: state_from_joints(system, params))(place)
    x = jax.vmap(lambda s: model.body_state(s, params.com))(rest)
    speed = jnp.append(place[1] - place[0], jnp.diff(place)) / h
    x = eqx.tree_at(lambda x: (x.p, x.v), x, (zero.at[:, 0, 0].set(place), zero.at[:, 0, 0].set(speed)))
    z0 = shared.start()
    lower, upper = shared.bounds()
    problem = Problem((samples,), z0, z0, shared.prior_weight(), lower, upper, np.zeros(0))
    noise = Noise(jnp.asarray(1.0), jnp.array([SLIDE_SD]))
    start = Iterate(
        jnp.asarray(z0),
        (jnp.zeros(0),),
        (Path(x, jnp.zeros((steps, 6)), jnp.zeros((steps, 1)), all_successful(steps)),),
    )
    found = fit_residual(problem, [Stage(model, noise)], start, Settings(marginal=True))
    assert found.result == ESTIMATE_RESULTS.successful
    assert found.iterations <= 20
    return np.asarray(found.iterate.z) - np.log(SLIDE), found.covariance


@pytest.mark.slow
@pytest.mark.parametrize("compliance", [1e-3, 1e-6])
def test_estimates_of_a_driven_slide_scatter_as_their_covariance_says(compliance):
    """Ten recordings of the stepped slide: squared errors in units of the covariance, 3 sd to either side."""
    total = 0.0
    for seed in range(10):
        error, covariance = identified(compliance, 5e-3, stepped(seed, 5e-3, 240))
        total += error @ np.linalg.solve(covariance, error)
    low, high = chi2.ppf(norm.cdf([-3, 3]), 30)
    assert low < total < high


@pytest.mark.slow
@pytest.mark.parametrize("compliance", [1e-3, 1e-6])
def test_mass_and_friction_of_a_driven_slide_are_recovered(compliance):
    """From the slide in continuous time, within 3 sd.

    The step takes friction at the end of a kick, h / 2 late, which makes the mass look lighter, by h c / 2 for the
    viscous part and about as much again here for the dry one: 1.1 % at 5 ms, four sd. At 0.5 ms it is half an sd.
    """
    error, covariance = identified(compliance, 5e-4, continuous(0, 5e-4, 2400))
    sd = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(error) < 3 * sd)
    assert np.all(sd < 0.05)
