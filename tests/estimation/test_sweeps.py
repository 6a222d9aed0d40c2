"""Sweeps, noise levels and the simulator form on linear models: textbook recursions and dense algebra in numpy."""

import functools
from typing import TypeVar

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
from scipy import integrate
from scipy.optimize import minimize

from spookax import estimation
from spookax._results import ESTIMATE_RESULTS
from spookax.estimation import Problem, Settings, Stage, fit
from spookax.estimation.batch import step_blocks, sweeps
from spookax.estimation.batch.levels import Evidence, at_present, estimate_levels
from spookax.estimation.batch.one_recording import filtered, gains_of, linearised, nudged
from spookax.estimation.batch.problem import Iterate
from spookax.estimation.batch.uncertainty import state_uncertainty
from spookax.estimation.linearise import Path, all_successful, before
from spookax.protocol import AbstractModel, Noise, Samples

T = TypeVar("T")
pytestmark = pytest.mark.timeout(300)

MODEL = LinearModel()
FORCE = np.array([1.5, -0.7])
STEPS = 30
close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-11)
# one program each: called as they are they compile the body of every loop again
linearise = eqx.filter_jit(estimation.linearise)
covariance_filter = eqx.filter_jit(estimation.covariance_filter)
adjoint_smoother = eqx.filter_jit(estimation.adjoint_smoother)
feedback_gains = eqx.filter_jit(sweeps.feedback_gains)
reduced = eqx.filter_jit(sweeps.reduced)
smoothed_covariance = eqx.filter_jit(sweeps.smoothed_covariance)

# ---------------------------------------------------------------------------------------------------------------
# one linearisation, and what dense algebra makes of it


@eqx.filter_jit
def simulated(
    model: AbstractModel, x: Masses, z: np.ndarray | jax.Array, u: jax.Array, w: jax.Array, noise: Noise = NOISE
) -> Path:
    """A trajectory of the simulator, by the textbook loop."""

    def body(x, step):
        x1, _ = model.step(x, jnp.asarray(z), *step, noise, jnp.zeros(0))
        return x1, x1

    start = jax.tree.map(jnp.asarray, x)
    _, states = jax.lax.scan(body, start, (u, w))
    return Path(
        jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, states),
        w,
        jnp.zeros((len(u), 0)),
        all_successful(len(u)),
    )


@eqx.filter_jit
def observed(model: AbstractModel, z: np.ndarray | jax.Array, path: Path, s: jax.Array) -> jax.Array:
    """What the sensors read without noise, once a step."""
    after = jax.tree.map(lambda a: a[1:], path.x)
    return jax.vmap(lambda x, x1, s: model.observe(x, x1, jnp.asarray(z), s))(before(path.x), after, s[:, 0])


class Sweep:
    """A linearisation along some trajectory, with a prior of x_0 that leans on the parameters."""

    def __init__(self, rng: np.random.Generator, steps: int = STEPS):
        self.samples, _ = recording(rng, steps, FORCE, 0.2)
        path = simulated(
            MODEL, Masses(np.ones(2), np.zeros(2)), np.zeros(3), self.samples.u, rng.normal(size=(steps, 2))
        )
        self.w, self.path = path.w, path
        self.lin = linearise(MODEL, jnp.zeros(3), NOISE, path, self.samples)
        root = rng.normal(size=(4, 4))
        self.P0 = jnp.asarray(root @ root.T + 0.1 * np.eye(4))
        self.Y0 = jnp.asarray(rng.normal(size=(4, 3)))
        self.filtered = covariance_filter(self.lin, self.w, self.Y0, self.P0)


@pytest.fixture
def sweep(rng) -> Sweep:
    return Sweep(rng)


def numpied(tree: T) -> T:
    return jax.tree.map(np.asarray, tree)


def dense(sweep: Sweep, first: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Residuals R X + c in X = (dx_first, dw_first ..., dz), and the states as maps of X: dx_k = M_k X."""
    lin, w = jax.tree.map(lambda a: np.asarray(a)[first:], sweep.lin), np.asarray(sweep.w)[first:]
    (steps, n, m), p = lin.B.shape, lin.C.shape[2]
    total = n + steps * m + p
    unit = np.eye(total)
    dw, dz = unit[n:-p].reshape(steps, m, total), unit[-p:]
    white = np.linalg.inv(np.linalg.cholesky(sweep.P0))
    rows, c, maps = [white @ (unit[:n] - np.asarray(sweep.Y0) @ dz)], [np.zeros(n)], [unit[:n]]
    for k in range(steps):
        rows += [dw[k], -lin.H[k] @ maps[k] - lin.J[k] @ dw[k] - lin.D[k] @ dz]
        c += [w[k], lin.e[k]]
        maps.append(lin.A[k] @ maps[k] + lin.B[k] @ dw[k] + lin.C[k] @ dz)
    return np.vstack(rows), np.concatenate(c), np.array(maps)


def test_a_sweep_is_the_rauch_tung_striebel_smoother(sweep):
    """Written out for xi_k = (dx_k, dw_k), so that readings in the middle of a step need nothing special."""
    lin, w = numpied(sweep.lin), np.asarray(sweep.w)
    mean = np.concatenate([np.zeros(4), -w[0]])
    P = np.zeros((6, 6))
    P[:4, :4], P[4:, 4:] = sweep.P0, np.eye(2)
    filtered, predicted, steps = [], [], []
    for k in range(STEPS):
        C = np.hstack([lin.H[k], lin.J[k]])
        predicted.append((mean, P))
        gain = P @ C.T @ np.linalg.inv(C @ P @ C.T + np.eye(3))
        mean, P = mean + gain @ (lin.e[k] - C @ mean), P - gain @ C @ P
        filtered.append((mean, P))
        if k + 1 < STEPS:
            steps.append(np.vstack([np.hstack([lin.A[k], lin.B[k]]), np.zeros((2, 6))]))
            mean, P = steps[k] @ mean, steps[k] @ P @ steps[k].T
            mean[4:], P[4:, 4:] = -w[k + 1], np.eye(2)
    smoothed = [filtered[-1]]
    for k in reversed(range(STEPS - 1)):
        (mean, P), (ahead, P_ahead) = filtered[k], predicted[k + 1]
        gain = P @ steps[k].T @ np.linalg.inv(P_ahead)
        later, P_later = smoothed[0]
        smoothed.insert(0, (mean + gain @ (later - ahead), P + gain @ (P_later - P_ahead) @ gain.T))

    dx, new_w = adjoint_smoother(sweep.lin, sweep.w, sweep.filtered, jnp.zeros(3))
    close(dx, [mean[:4] for mean, _ in smoothed])
    close(new_w, w + [mean[4:] for mean, _ in smoothed])
    covariance = smoothed_covariance(sweep.lin, sweep.filtered, jnp.zeros((3, 3)))
    close(covariance, [P[:4, :4] for _, P in smoothed])
    close(sweep.filtered.P, [P[:4, :4] for _, P in predicted])


def test_the_reduced_problem_is_dense_joint_least_squares(sweep, rng):
    R, c, maps = dense(sweep)
    normal, right = R.T @ R, -R.T @ c
    states = np.linalg.solve(normal[:-3, :-3], np.column_stack([normal[:-3, -3:], right[:-3]]))
    N, g, q = reduced(sweep.filtered)
    close(N, normal[-3:, -3:] - normal[-3:, :-3] @ states[:, :-1])
    close(g, right[-3:] - normal[-3:, :-3] @ states[:, -1])
    at_zero = np.append(states[:, -1], np.zeros(3))
    close(q, np.sum((R @ at_zero + c) ** 2) / 2)

    # with a prior of the parameters
    weight = rng.uniform(0.5, 2.0, size=3)
    R, c = np.vstack([R, np.hstack([np.zeros((3, R.shape[1] - 3)), np.diag(weight)])]), np.append(c, np.zeros(3))
    best, P = np.linalg.lstsq(R, -c, rcond=None)[0], np.linalg.inv(R.T @ R)
    dz = np.linalg.solve(N + np.diag(weight**2), g)
    cov_z = np.linalg.inv(N + np.diag(weight**2))
    close(dz, best[-3:])
    close(cov_z, P[-3:, -3:])
    dx, new_w = adjoint_smoother(sweep.lin, sweep.w, sweep.filtered, dz)
    close(dx, maps[:-1] @ best)
    close(new_w - sweep.w, best[4:-3].reshape(-1, 2))
    covariance = smoothed_covariance(sweep.lin, sweep.filtered, cov_z)
    close(covariance, maps[:-1] @ P @ np.swapaxes(maps[:-1], 1, 2))


def test_sum_of_log_determinants_is_that_of_the_readings(sweep):
    R, _, _ = dense(sweep)
    readings = R[4:].reshape(STEPS, 5, -1)[:, 2:].reshape(3 * STEPS, -1)[:, :-3]
    prior = np.eye(readings.shape[1])
    prior[:4, :4] = sweep.P0
    close(np.sum(sweep.filtered.log_det), np.linalg.slogdet(readings @ prior @ readings.T + np.eye(3 * STEPS))[1])


def test_information_form_says_the_same(sweep):
    """Normal equations in (x_k, z), carried forward by eliminating w_k."""
    lin, w, f = numpied(sweep.lin), np.asarray(sweep.w), numpied(sweep.filtered)
    lean = np.hstack([np.eye(4), -np.asarray(sweep.Y0)])
    info, vector = lean.T @ np.linalg.solve(sweep.P0, lean), np.zeros(7)
    for k in range(STEPS):
        P = np.linalg.inv(info[:4, :4])
        close(f.P[k], P, rtol=1e-8)
        close(f.m[k], P @ vector[:4], rtol=1e-8)
        close(f.Y[k], -P @ info[:4, 4:], rtol=1e-8)
        reading = np.hstack([lin.H[k], lin.D[k], lin.J[k]])
        wide = reading.T @ reading + np.diag([0.0] * 7 + [1.0] * 2)
        wide[:7, :7] += info
        right = np.append(vector, -w[k]) + reading.T @ lin.e[k]
        back = np.eye(9)  # (x_k, z, w_k) of (x_k+1, z, w_k)
        back[:4] = np.linalg.solve(lin.A[k], np.hstack([np.eye(4), -lin.C[k], -lin.B[k]]))
        wide, right = back.T @ wide @ back, back.T @ right
        out = np.linalg.solve(wide[7:, 7:], np.column_stack([wide[7:, :7], right[7:]]))
        info, vector = wide[:7, :7] - wide[:7, 7:] @ out[:, :-1], right[:7] - wide[:7, 7:] @ out[:, -1]
    out = np.linalg.solve(info[:4, :4], np.column_stack([info[:4, 4:], vector[:4]]))
    N, g, _ = reduced(sweep.filtered)
    close(N, info[4:, 4:] - info[4:, :4] @ out[:, :-1], rtol=1e-8)
    close(g, vector[4:] - info[4:, :4] @ out[:, -1], rtol=1e-8)


def test_feedback_is_the_best_answer_to_a_departure(sweep, rng):
    """From the optimal plan: what dense least squares changes in the noise that remains, for x_k off by delta."""
    R, c, maps = dense(sweep)
    plan = np.linalg.lstsq(R, -c, rcond=None)[0]
    gains = np.asarray(feedback_gains(sweep.lin))
    assert np.max(np.abs(gains)) > 1.0
    for k in (0, 3, 10, 20, STEPS - 2, STEPS - 1):
        tail, c_tail, _ = dense(sweep, k)
        tail, c_tail = tail[4:], c_tail[4:]  # x_k is what it is
        delta = rng.normal(size=4)
        there = np.concatenate([maps[k] @ plan + delta, plan[4 + 2 * k :]])
        change = np.linalg.lstsq(tail[:, 4:-3], -(tail @ there + c_tail), rcond=None)[0]
        close(gains[k] @ -delta, change[:2], rtol=1e-8)


def test_what_was_not_seen_does_not_matter(sweep):
    missing = np.asarray(sweep.samples.weight) == 0
    assert 0.1 < np.mean(missing) < 0.4
    strange = sweep.samples._replace(y=np.where(missing, np.nan, sweep.samples.y))
    lin = linearise(MODEL, jnp.zeros(3), NOISE, sweep.path, strange)
    for a, b in zip(jax.tree.leaves(lin), jax.tree.leaves(sweep.lin), strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.all(np.asarray(lin.H)[missing[:, 0]] == 0)
    # rows that are not there at all: gains from the channels of one step and no other
    alone = sweep.samples._replace(
        weight=np.where(np.arange(STEPS) == 10, 1.0, 0.0)[:, None, None] * np.ones(missing.shape)
    )
    lin = linearise(MODEL, jnp.zeros(3), NOISE, sweep.path, alone)
    gains = np.asarray(feedback_gains(lin))
    assert np.all(gains[11:] == 0)
    short = jax.tree.map(lambda a: a[:11], numpied(lin))
    close(gains[:11], feedback_gains(short))


# ---------------------------------------------------------------------------------------------------------------
# noise levels


def test_blocks_are_the_whole(sweep, rng, monkeypatch):
    """Every sweep in three blocks hands on what it needs: the results are those of one piece."""
    monkeypatch.setattr(step_blocks, "BLOCK", STEPS // 3)
    lin = linearised(MODEL, jnp.zeros(3), NOISE, sweep.path, sweep.samples)
    assert len(lin) == 3
    for found, wanted in zip(*map(jax.tree.leaves, (step_blocks.joined(lin), sweep.lin)), strict=True):
        close(found, wanted)
    f, left = filtered(lin, sweep.w, sweep.Y0, sweep.P0)
    for found, wanted in zip(step_blocks.joined(f), sweep.filtered, strict=True):
        close(found, wanted)
    for found, wanted in zip(left, reduced(sweep.filtered), strict=True):
        close(found, wanted)
    close(np.concatenate(gains_of(lin)), feedback_gains(sweep.lin))
    root = rng.normal(size=(3, 3))
    covariance = root @ root.T
    known = state_uncertainty(lin, f, covariance)
    close(known.covariance, smoothed_covariance(sweep.lin, sweep.filtered, covariance))
    # the trajectory that a step of the parameters asks for, less the one that none asks for
    dz = 1e-3 * rng.normal(size=3)
    path = nudged(MODEL, sweep.path, lin, f, dz)
    (dx, dw), (dx_0, dw_0) = (adjoint_smoother(sweep.lin, sweep.w, sweep.filtered, d) for d in (dz, 0 * dz))
    close(path.w - sweep.path.w, dw - dw_0)
    states = np.concatenate(
        [np.asarray(a) for a in jax.tree.leaves(jax.tree.map(np.subtract, path.x, sweep.path.x))], 1
    )
    close(states[:-1], dx - dx_0)
    assert not states[-1].any()
    first = known.first
    close(first.moves @ dz, (dx - dx_0)[0])
    close(first.covariance, smoothed_covariance(sweep.lin, sweep.filtered, 0 * covariance)[0])


LONG = 1500
ONES = np.ones(4)


def noisy(rng: np.random.Generator, factors: np.ndarray) -> Samples:
    """A long recording whose noise is `factors` times what is assumed (process, sensors)."""
    u, s = jnp.asarray(rng.normal(size=(LONG, 2))), jnp.asarray(rng.uniform(size=(LONG, 1)))
    z = np.append(FORCE, 0.2)
    path = simulated(MODEL, Masses(np.zeros(2), np.zeros(2)), z, u, factors[0] * rng.normal(size=(LONG, 2)))
    y = np.asarray(observed(MODEL, z, path, s)) + factors[1:] * SENSOR_SD * rng.normal(size=(LONG, 3))
    seen = (rng.uniform(size=(LONG, 1, 3)) < 0.75).astype(float)
    return Samples(u, jnp.asarray(y[:, None]), s, jnp.asarray(seen))


def surprise(samples: Samples, levels: jax.Array) -> jax.Array:
    """-log likelihood at logs of the factors: a Kalman filter for (q, v, w, z) that takes one reading at a time."""
    factor = jnp.exp(levels)
    S = np.linalg.inv(MASS + H * DAMPING)
    rate = jnp.concatenate([-H * S @ STIFFNESS, S @ MASS, AMOUNT * factor[0] * S], axis=1)
    rate = jnp.concatenate([rate, H * S, jnp.zeros((2, 1))], axis=1)  # v+ of (q, v, w, z), but for the input
    eye = jnp.eye(9)
    step = jnp.concatenate([eye[:2] + H * rate, rate, jnp.zeros((2, 9)), eye[6:]])

    def body(carry, row):
        m, P, total = carry
        u, y, s, seen = row
        push = H * S @ u
        after = jnp.concatenate([eye[:2] + s * H * rate, (0.5 - s) * eye[2:3] + (0.5 + s) * rate[:1]])
        C = after + jnp.zeros((3, 9)).at[0, 8].set(1.0)
        known = jnp.concatenate([s * H * push, (0.5 + s) * push[:1]])

        def reading(carry, row):
            m, P, total = carry
            C, sd, off, seen = row
            F = C @ P @ C + sd**2
            nu, gain = off - C @ m, seen * P @ C / F
            total = total + seen * (nu**2 / F + jnp.log(F)) / 2
            return (m + gain * nu, P - jnp.outer(gain, C @ P), total), None

        (m, P, total), _ = jax.lax.scan(reading, (m, P, total), (C, factor[1:] * SENSOR_SD, y - known, seen))
        m = step @ m + jnp.concatenate([H * push, push, jnp.zeros(5)])
        P = step @ P @ step.T + jnp.diag(jnp.array([0.0] * 4 + [1.0] * 2 + [0.0] * 3))
        return (m, P, total), None

    P = jnp.diag(jnp.array([1.0, 1.0, 100.0, 100.0, 1.0, 1.0, 1e6, 1e6, 1e6]))
    rows = (samples.u, samples.y[:, 0], samples.s[:, 0], samples.weight[:, 0])
    return jax.lax.scan(body, (jnp.zeros(9), P, jnp.zeros(())), rows)[0][2]


@jax.jit
def slope_and_curvature(samples: Samples, levels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """First and second derivatives of `surprise`."""

    def slope(levels: jax.Array) -> tuple[jax.Array, jax.Array]:
        gradient = jax.grad(surprise, 1)(samples, levels)
        return gradient, gradient

    return jax.jacfwd(slope, has_aux=True)(levels)[::-1]


def evidence(samples: Samples) -> Evidence:
    """As the estimator hands it over, at the right parameters but from a trajectory without noise."""
    z = np.append(FORCE, 0.2)
    path = simulated(MODEL, Masses(np.zeros(2), np.zeros(2)), z, samples.u, jnp.zeros((LONG, 2)))
    lin = linearise(MODEL, jnp.asarray(z), NOISE, path, samples)
    P0 = jnp.diag(jnp.array([1.0, 1.0, 100.0, 100.0]))
    seen = np.asarray(samples.weight).sum(axis=(0, 1))
    return Evidence(step_blocks.split(at_present(lin)), path.w, P0, seen)


SEARCH = 0.05  # what the search for the levels settles for


@pytest.mark.parametrize(
    ("process", "sensors", "factors"),
    [
        pytest.param(True, False, [3.0, 1.0, 1.0, 1.0], marks=pytest.mark.slow),
        pytest.param(True, False, [0.1, 1.0, 1.0, 1.0], marks=pytest.mark.slow),
        pytest.param(False, True, [1.0, 0.5, 2.0, 1.0], marks=pytest.mark.slow),
        (True, True, [0.5, 1.5, 0.7, 3.0]),
    ],
)
def test_noise_levels_are_found_within_their_sampling_error(rng, monkeypatch, process, sensors, factors):
    monkeypatch.setattr(step_blocks, "BLOCK", LONG // 3)
    factors = np.array(factors)
    data = [noisy(rng, factors) for _ in range(2)]
    found = np.append(*estimate_levels([evidence(samples) for samples in data], process, sensors))
    free = np.array([process, sensors, sensors, sensors])
    np.testing.assert_array_equal(found[~free], ONES[~free])
    truth = jnp.log(jnp.asarray(factors))
    slopes, curvatures = zip(*[slope_and_curvature(samples, truth) for samples in data], strict=True)
    gradient, hessian = np.sum(slopes, axis=0)[free], np.sum(curvatures, axis=0)[np.ix_(free, free)]
    sd = np.sqrt(np.diag(np.linalg.inv(hessian)))
    error = np.log(found / factors)[free]
    assert np.all(sd < 0.15)
    assert np.all(np.abs(error) < 3 * sd + SEARCH)
    # the most likely levels, by a Newton step from the truth
    assert np.all(np.abs(error + np.linalg.solve(hessian, gradient)) < sd + SEARCH)


# ---------------------------------------------------------------------------------------------------------------
# the iteration on the same model: two recordings with their own first states and offsets share the forces

WEIGHT, PRIOR, OWN_WEIGHT = np.array([0.3, 0.1]), np.array([1.0, 0.5]), np.array([2.0])
INITIAL_SD = 30.0
OWN = 4 + 2 * STEPS + 1  # unknowns of one recording: x_0, noises, offset


def linear_rows(samples: Samples, unknowns: jax.Array) -> jax.Array:
    """All whitened residuals of a recording at (x_0, w, own offset, forces), by simulation."""
    w, z = unknowns[4 : OWN - 1].reshape(-1, 2), jnp.roll(unknowns[OWN - 1 :], -1)
    path = simulated(MODEL, Masses(unknowns[:2], unknowns[2:4]), z, samples.u, w)
    readings = observed(MODEL, z, path, samples.s)
    e = (samples.weight * (samples.y - readings[:, None]) / SENSOR_SD[None, None]).reshape(-1)
    return jnp.concatenate([unknowns[4 : OWN - 1], e, OWN_WEIGHT * z[2:]])


@jax.jit
def linear_problem(samples: Samples) -> tuple[jax.Array, jax.Array]:
    """(R, c) of `linear_rows`."""
    rows = functools.partial(linear_rows, samples)
    zero = jnp.zeros(OWN + 2)
    return jax.jacfwd(rows)(zero), rows(zero)


def all_rows(data: list[Samples]) -> tuple[np.ndarray, np.ndarray]:
    """(R, c) of the residuals R X + c of both recordings; forces last."""
    rows, at = [], []
    for i, samples in enumerate(data):
        part, c = map(np.asarray, linear_problem(samples))
        wide = np.zeros((part.shape[0], 2 * OWN + 2))
        wide[:, i * OWN : (i + 1) * OWN], wide[:, 2 * OWN :] = part[:, :OWN], part[:, OWN:]
        rows.append(wide)
        at.append(c)
    rows.append(np.hstack([np.zeros((2, 2 * OWN)), np.diag(WEIGHT)]))
    return np.vstack(rows), np.concatenate([*at, -WEIGHT * PRIOR])


def mean_square(slope, curvature):
    """Of t >= 0 under the density exp(-slope t - curvature t^2 / 2), by quadrature."""
    scale = 1 / max(slope, np.sqrt(curvature))

    def density(s):
        return np.exp(-slope * scale * s - curvature * (scale * s) ** 2 / 2)

    weights = [integrate.quad(lambda s, n=n: s**n * density(s), 0, np.inf)[0] for n in (0, 2)]
    return scale**2 * weights[1] / weights[0]


@pytest.mark.parametrize("marginal", [True, False])
@pytest.mark.parametrize("block", [STEPS, STEPS // 3])
@pytest.mark.parametrize(
    ("lower", "upper"),
    [((-np.inf, -np.inf), (np.inf, np.inf)), ((-np.inf, -np.inf), (0.5, np.inf)), ((-np.inf, 0.0), (np.inf, 1.0))],
)
def test_the_iteration_ends_at_dense_least_squares(rng, monkeypatch, marginal, block, lower, upper):
    """Determinants do not depend on parameters that enter linearly. A bound that cuts the optimum off is met."""
    monkeypatch.setattr(step_blocks, "BLOCK", block)
    lower, upper = np.array(lower), np.array(upper)
    data = [recording(rng, STEPS, FORCE, offset)[0] for offset in (0.2, -0.3)]
    problem = Problem(
        samples=tuple(data),
        z0=np.full(2, 0.1),
        prior=PRIOR,
        weight=WEIGHT,
        lower=lower,
        upper=upper,
        own_weight=OWN_WEIGHT,
        initial_sd=INITIAL_SD,
    )
    z0, rest = jnp.full(2, 0.1), Masses(np.zeros(2), np.zeros(2))
    paths = tuple(simulated(MODEL, rest, np.append(z0, 0.0), samples.u, jnp.zeros((STEPS, 2))) for samples in data)
    start = Iterate(z0, (jnp.zeros(1), jnp.zeros(1)), paths)
    found = fit(problem, [Stage(MODEL, NOISE)], start, Settings(tolerance=1e-13, marginal=marginal))
    assert found.result == ESTIMATE_RESULTS.successful

    R, c = all_rows(data)
    z = np.linalg.lstsq(R, -c, rcond=None)[0][-2:]
    held = (z < lower) | (z > upper)
    assert held.sum() == np.isfinite(np.append(lower, upper)).any()
    at = np.where(held, np.clip(z, lower, upper), 0.0)
    free = np.append(np.ones(2 * OWN, dtype=bool), ~held)
    c = c + R[:, 2 * OWN :] @ at
    best = np.zeros(2 * OWN + 2)
    best[free] = np.linalg.lstsq(R[:, free], -c, rcond=None)[0]
    # the prior of x_0 is about wherever x_0 is: no part of the cost, but of the covariance
    information, P = R.T @ R, np.zeros((2 * OWN + 2,) * 2)
    for i in range(2):
        first = np.arange(i * OWN, i * OWN + 4)
        information[first, first] += 1 / (INITIAL_SD * np.array([1, 1, 10, 10])) ** 2
    P[np.ix_(free, free)] = np.linalg.inv(information[np.ix_(free, free)])

    for i in 2 * OWN + np.flatnonzero(held):  # beyond the bound nothing is: the others follow a Gaussian cut off there
        follow = np.zeros(2 * OWN + 2)
        follow[free] = -np.linalg.solve(information[np.ix_(free, free)], information[free, i])
        follow[i] = 1.0
        slope, curvature = abs(R[:, i] @ (R @ best + c)), follow @ information @ follow
        width = (upper - lower)[i - 2 * OWN]
        P += np.outer(follow, follow) * min(mean_square(slope, curvature), width**2)

    tight = functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-8)
    tight(found.iterate.z, best[-2:] + at)
    np.testing.assert_array_equal(np.asarray(found.iterate.z)[held], at[held])
    tight(found.covariance, P[-2:, -2:])
    tight(found.cost, np.sum((R @ best + c) ** 2) / 2)
    for i, (own, path, variance) in enumerate(
        zip(found.iterate.own, found.iterate.paths, found.own_covariance, strict=True)
    ):
        mine = best[i * OWN : (i + 1) * OWN]
        tight(np.concatenate([path.x.q[0], path.x.v[0], path.w.reshape(-1), own]), mine)
        last = (i + 1) * OWN - 1
        tight(variance, P[last : last + 1, last : last + 1])


# ---------------------------------------------------------------------------------------------------------------
# a mass with a damper: unknown where it matters for the determinants

COUNT, TRUE = 60, np.log([2.0, 3.0])
SENSOR = 0.02
SLIDE_NOISE = Noise(jnp.asarray(1.0), jnp.array([SENSOR]))


class Slide(AbstractModel):
    """z = (log mass, log damping) of a mass under a known force and impulses; its position is read."""

    tangent_size: int = eqx.field(static=True, default=2)
    noise_size: int = eqx.field(static=True, default=1)
    num_channels: int = eqx.field(static=True, default=1)

    def prepare(self, z):
        return jnp.exp(z)

    def step(self, x, p, u, w, noise, guess):
        v = (p[0] * x.v + H * u + AMOUNT * noise.process * w) / (p[0] + H * p[1])
        return Masses(x.q + H * v, v), guess

    def observe(self, x, x1, p, s):
        return x.q + s * H * x1.v

    def difference(self, y, predicted):
        return y - predicted

    def retract(self, x, d):
        return Masses(x.q + d[:1], x.v + d[1:])

    def local(self, x1, x0):
        return jnp.concatenate([x1.q - x0.q, x1.v - x0.v])


SLIDE = Slide()


def slide_data(rng: np.random.Generator, z: np.ndarray = TRUE) -> Samples:
    u = jnp.asarray(20 * np.sin(0.7 * np.arange(COUNT))[:, None])
    s = jnp.asarray(rng.uniform(size=(COUNT, 1)))
    path = simulated(SLIDE, Masses(np.ones(1), np.zeros(1)), np.exp(z), u, jnp.asarray(rng.normal(size=(COUNT, 1))))
    y = np.asarray(observed(SLIDE, np.exp(z), path, s))
    y = y + SENSOR * rng.normal(size=y.shape)
    return Samples(u, jnp.asarray(y[:, None]), s, jnp.ones((COUNT, 1, 1)))


def slide_surprise(samples: Samples, objective: str, z: np.ndarray) -> float:
    """-log density of the readings with a flat prior of x_0 (marginal), or the joint density at its largest, or
    the least cost alone, of z and all readings at once."""
    m, c = np.exp(z)
    u, s, y = np.asarray(samples.u)[:, 0], np.asarray(samples.s)[:, 0], np.asarray(samples.y)[:, 0, 0]
    decay = m / (m + H * c)
    lag = np.arange(COUNT)[:, None] - np.arange(COUNT)
    velocity = np.tril(decay ** np.maximum(lag, 0)) / (m + H * c)  # v_k+1 of impulses
    earlier = H * np.vstack([np.zeros(COUNT), np.cumsum(velocity, axis=0)[:-1]])
    position = earlier + s[:, None] * H * velocity  # readings of impulses
    coast = decay ** (np.arange(COUNT) + 1)
    first = np.column_stack([np.ones(COUNT), H * (np.append(0.0, np.cumsum(coast)[:-1]) + s * coast)])
    S = AMOUNT**2 * position @ position.T + SENSOR**2 * np.eye(COUNT)
    rest = y - position @ (H * u)
    weighed = np.linalg.solve(S, np.column_stack([first, rest]))
    information = first.T @ weighed[:, :2]
    x0 = np.linalg.solve(information, weighed[:, :2].T @ rest)
    cost = (rest - first @ x0) @ np.linalg.solve(S, rest - first @ x0) / 2
    if objective == "marginal":
        return cost + np.linalg.slogdet(S)[1] / 2 + np.linalg.slogdet(information)[1] / 2
    return cost + (COUNT * np.log(AMOUNT / (m + H * c)) if objective == "joint" else 0.0)


@pytest.mark.parametrize("marginal", [True, False])
@pytest.mark.parametrize("recordings", [1, 3])
def test_determinants_of_a_mass_count(rng, marginal, recordings):
    """The estimate is the most likely one, by a search over the exact likelihood; least squares alone is elsewhere."""
    data = [slide_data(rng) for _ in range(recordings)]
    z0, none = np.log([1.0, 1.0]), np.zeros(2)
    paths = tuple(
        simulated(SLIDE, Masses(np.zeros(1), np.zeros(1)), np.exp(z0), samples.u, jnp.zeros((COUNT, 1)))
        for samples in data
    )
    problem = Problem(tuple(data), z0, none, none, np.full(2, -np.inf), np.full(2, np.inf), np.zeros(0), 1e3)
    start = Iterate(jnp.asarray(z0), (jnp.zeros(0),) * recordings, paths)
    found = fit(problem, [Stage(SLIDE, SLIDE_NOISE)], start, Settings(tolerance=1e-9, marginal=marginal))
    assert found.result == ESTIMATE_RESULTS.successful
    sd = np.sqrt(np.diag(found.covariance))

    def least(objective: str) -> np.ndarray:
        options = {"xatol": 1e-7, "fatol": 1e-10, "maxiter": 2000}
        return minimize(
            lambda z: sum(slide_surprise(samples, objective, z) for samples in data),
            TRUE,
            method="Nelder-Mead",
            options=options,
        ).x

    best = least("marginal" if marginal else "joint")
    error = np.abs(np.asarray(found.iterate.z) - best) / sd
    assert np.all(error < 1e-3), error
    assert np.max(np.abs(least("cost") - best) / sd) > 0.01
    if marginal:
        assert np.all(np.abs(best - TRUE) < 3 * sd)
