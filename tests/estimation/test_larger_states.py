"""States large enough for LAPACK: filter and smoother beside covariances and dense least squares, at any condition."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.filters import Linear
from spookax.estimation import Filter, FixedLag, smooth_iterated
from spookax.math import smoother
from spookax.protocol import Noise, Samples

close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-10)

STEPS, N, Q = 40, 9, 4


def linear(rng: np.random.Generator, channels: int, forced: int = N, dtype=float) -> Linear:
    """Slowly turning and decaying states, the first `forced` of them with a noise of their own or shared ones."""
    A = 0.98 * np.linalg.qr(np.eye(N) + 0.3 * rng.normal(size=(N, N)))[0]
    B = 0.3 * rng.normal(size=(N, Q)) * (np.arange(N) < forced)[:, None]
    C = rng.normal(size=(channels, N))
    return Linear(N, Q, channels, *(jnp.asarray(a, dtype) for a in (A, B, C)))


def recording(rng: np.random.Generator, model: Linear, sd: float, x: np.ndarray, steps: int = STEPS) -> Samples:
    """One reading in four missing."""
    A, B, C = map(np.asarray, (model.A, model.B, model.C))
    y = []
    for _ in range(steps):
        y.append(C @ x + sd * rng.normal(size=model.num_channels))
        x = A @ x + B @ rng.normal(size=Q)
    seen = (rng.uniform(size=(steps, 1, model.num_channels)) < 0.75).astype(float)
    return jax.device_put(Samples(np.zeros((steps, 0)), np.array(y)[:, None], np.zeros((steps, 1)), seen))


def filter_of(model: Linear, sd: float, process: float = 1.0) -> Filter:
    return Filter(model, np.zeros(0), Noise(jnp.asarray(process), jnp.full(model.num_channels, sd)))


def textbook(model: Linear, samples: Samples, sd: float, P: np.ndarray):
    """Kalman filter and Rauch-Tung-Striebel smoother in covariances; the log-likelihood."""
    A, B, C = map(np.asarray, (model.A, model.B, model.C))
    x, filtered, predicted, total = np.zeros(N), [], [], 0.0
    for y, seen in zip(np.asarray(samples.y[:, 0]), np.asarray(samples.weight[:, 0]), strict=True):
        H, e = C[seen > 0], y[seen > 0] - C[seen > 0] @ x
        F = H @ P @ H.T + sd**2 * np.eye(len(H))
        K = np.linalg.solve(F, H @ P).T
        total -= 0.5 * (e @ np.linalg.solve(F, e) + np.linalg.slogdet(2 * np.pi * F)[1])
        x, P = x + K @ e, P - K @ F @ K.T
        filtered.append((x, P))
        x, P = A @ x, A @ P @ A.T + B @ B.T
        predicted.append((x, P))
    smoothed = [predicted[-1]]
    for (x, P), (x1, P1) in zip(filtered[::-1], predicted[::-1], strict=True):
        G = np.linalg.solve(P1, A @ P).T
        later, known = smoothed[-1]
        smoothed.append((x + G @ (later - x1), P + G @ (known - P1) @ G.T))
    return filtered, smoothed[::-1], total


def least_squares(model: Linear, samples: Samples, sd: float, sd0: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Smoothed states and standard deviations from all whitened rows at once, by singular values."""
    steps = len(samples.u)
    size, G, maps, rows, rhs = N + Q * steps, np.eye(N, N + Q * steps) * sd0[:, None], [], [], []
    for k in range(steps):
        maps.append(G)
        rows.append(np.asarray(samples.weight[k, 0])[:, None] * (model.C @ G) / sd)
        rhs.append(np.asarray(samples.weight[k, 0]) * samples.y[k, 0] / sd)
        G = model.A @ G + model.B @ np.eye(Q, size, N + Q * k)
    maps = np.array([*maps, G])
    U, s, V = np.linalg.svd(np.concatenate([np.eye(size), *rows]), full_matrices=False)
    xi = V.T @ ((U.T @ np.concatenate([np.zeros(size), *rhs])) / s)
    return maps @ xi, np.linalg.norm(maps @ (V.T / s), axis=2)


@pytest.mark.parametrize("channels", [1, 3, 6])
def test_filter_and_smoother_are_those_of_the_textbook(channels, rng):
    """Means, covariances and likelihood, with up to more readings a step than are taken at once."""
    model, sd, sd0 = linear(rng, channels), 0.2, np.linspace(0.5, 2.0, N)
    samples = recording(rng, model, sd, sd0 * rng.normal(size=N))
    f = filter_of(model, sd)
    found = f.run(f.init(np.zeros(N), sd0), samples, trail=True)
    assert found.trail is not None
    filtered, smoothed, total = textbook(model, samples, sd, np.diag(sd0**2))
    close(found.x, [x for x, _ in filtered])
    S = found.trail.filtered()
    close(S @ np.swapaxes(S, 1, 2), [P for _, P in filtered])
    close(found.sd, np.linalg.norm(S, axis=2))
    close(found.log_likelihood, total)
    back = f.smooth(found)
    close(back.x, [x for x, _ in smoothed])
    close(back.factor @ np.swapaxes(back.factor, 1, 2), [P for _, P in smoothed])


@pytest.mark.parametrize("forced", [N, 3, 0], ids=["noise everywhere", "in three states", "none"])
@pytest.mark.parametrize(("known", "sd"), [(1.0, 0.1), (1e5, 1e-3), (1e-6, 1.0), (1e4, 1e-5)], ids=str)
def test_states_of_which_little_or_all_is_known(known, sd, forced, rng):
    """Priors from sure to ignorant and sensors that tell much more, against least squares by singular values."""
    model = linear(rng, 2, forced)
    sd0 = known * np.where(np.arange(N) == 1, 1e-3, 1.0) * (np.arange(N) != 4)  # one state is known exactly
    samples = recording(rng, model, sd, sd0 * rng.normal(size=N))
    f = filter_of(model, sd)
    found = f.smooth(f.run(f.init(np.zeros(N), sd0), samples, trail=True))
    x, spread = least_squares(model, samples, sd, sd0)
    digits = 1e-9 + 1e-13 * known / sd  # what the condition of the rows leaves to any algorithm
    close(found.sd, spread, rtol=digits, atol=1e-12 * known)
    assert np.all(np.abs(found.x - x) <= digits * (spread + np.abs(x)) + 1e-12 * known)


def test_readings_without_a_residual(rng):
    """Readings that fit to the last digit leave nothing beside the unknowns in the smoother's triangles."""
    model, sd0 = linear(rng, 3), np.full(N, 2.0)
    still = Samples(*(jnp.zeros((STEPS, *shape)) for shape in [(0,), (1, 3), (1,)]), jnp.ones((STEPS, 1, 3)))
    f = filter_of(model, 0.1)
    back = f.smooth(f.run(f.init(np.zeros(N), sd0), still, trail=True))
    _, smoothed, _ = textbook(model, still, 0.1, np.diag(sd0**2))
    close(back.x, 0.0)
    close(back.factor @ np.swapaxes(back.factor, 1, 2), [P for _, P in smoothed])


@pytest.mark.parametrize("forced", [N, 3])
def test_single_precision_over_thousands_of_steps(forced, rng):
    """P_0 = 10 and little noise: finite, and the same as in double precision to a thousandth."""
    spreads = {}
    for dtype in (np.float32, np.float64):
        model = linear(np.random.default_rng(1), 2, forced, dtype)
        y = np.random.default_rng(2).normal(size=(3000, 1, 2))
        arrays = np.zeros((3000, 0)), y, np.zeros((3000, 1)), np.ones_like(y)
        samples = Samples(*(jax.device_put(a.astype(dtype)) for a in arrays))
        f = Filter(model, jnp.zeros(0, dtype), Noise(jnp.asarray(1e-3, dtype), jnp.full(2, 0.1, dtype)))
        found = f.run(f.init(jnp.zeros(N, dtype), jnp.full(N, 10.0**0.5, dtype)), samples, trail=True)
        back = f.smooth(found)
        assert found.sd.dtype == back.sd.dtype == back.factor.dtype == dtype
        for a in (found.x, found.sd, found.log_likelihood, back.x, back.sd, back.factor):
            assert np.all(np.isfinite(a))
        assert np.all(np.asarray(found.sd) > 0)
        assert np.all(np.asarray(back.sd) > 0)
        spreads[dtype] = np.concatenate([found.sd, back.sd])
    close(spreads[np.float32], spreads[np.float64], rtol=1e-3, atol=0)


def _told(logs, model, samples, sd, sd0):
    """What a filter and its smoother find, as three numbers of each, at levels changed by these logarithms."""
    f = filter_of(model, sd * jnp.exp(logs[0]), jnp.exp(logs[1]))
    found = f.run(f.init(jnp.zeros(N), sd0 * jnp.exp(logs[2])), samples, trail=True)
    back = f.smooth(found)
    filtered = found.log_likelihood + jnp.sum(found.x**2) + jnp.sum(found.last.factor**2)
    told = jnp.stack([filtered, jnp.sum(back.x**2), jnp.sum(back.sd)])
    return told, told


# every case calls these, for the values beside the slopes, too: numbers are arguments, lest each of them is compiled
_forward, _reverse = (jax.jit(of(_told, has_aux=True)) for of in (jax.jacfwd, jax.jacrev))


@pytest.mark.parametrize("exact", [False, True], ids=["regular", "one state known exactly"])
def test_likelihood_and_beliefs_have_the_slopes_of_their_differences(exact, rng):
    """In the levels of the noise and of what is known at the start, in both modes, whatever way a triangle is found;
    filtered and smoothed."""
    model, sd = linear(rng, 2, 3), 0.2
    sd0 = np.linspace(0.5, 2.0, N) * np.where(exact, np.arange(N) != 4, 1)
    samples = recording(rng, model, sd, sd0 * rng.normal(size=N), 12)

    at, eps, case = np.array([0.1, -0.2, 0.05]), 1e-5, (model, samples, sd, sd0)
    central = [(_forward(at + eps * d, *case)[1] - _forward(at - eps * d, *case)[1]) / (2 * eps) for d in np.eye(3)]
    close(_forward(at, *case)[0], np.transpose(central), rtol=1e-6)
    close(_reverse(at, *case)[0], np.transpose(central), rtol=1e-6)


def _gap(rng):
    """A recording without readings for a while, and a prior that knows nothing: predictions that smoothing shrinks."""
    model = linear(rng, 2, N)
    model = dataclasses.replace(model, A=jnp.asarray(model.A) * 1.3 / 0.98)  # what nobody reads grows
    steps = 120
    samples = recording(rng, model, 0.1, np.zeros(N), steps)
    seen = np.asarray(samples.weight) * ((np.arange(steps) < 40) | (np.arange(steps) > 70))[:, None, None]
    f = filter_of(model, 0.1)
    return f, f.run(f.init(np.zeros(N), np.full(N, 1e3)), samples._replace(weight=jnp.asarray(seen)), trail=True)


def test_ways_to_smooth_agree(rng):
    """Adjoint rows, rows on the states and information matrices, with stretches on which the first have no digits."""
    _, found = _gap(rng)
    assert found.trail is not None
    arguments = found.trail.path, found.last.mean, found.last.factor
    (d, S), *others = (
        map(np.asarray, jax.jit(way)(*arguments))
        for way in (smoother._by_rows, smoother._by_adjoints, smoother._by_information)
    )
    for (other, T), digits in zip(others, (1e-8, 1e-5), strict=True):
        sd = np.linalg.norm(S, axis=2)
        close((other - d) / sd, 0.0, atol=digits)
        unit = S / sd[:, :, None], T / sd[:, :, None]
        P, Q = (a @ np.swapaxes(a, 1, 2) for a in unit)
        close(Q, P, atol=digits)


def test_rows_on_the_states_are_for_what_later_readings_settle(rng, monkeypatch):
    """The last step, states of which nothing is known, those in a gap: the others are found by adjoint rows."""
    monkeypatch.setattr(smoother, "_combined", lambda mean, factor, rows: (mean * jnp.nan, factor * jnp.nan))

    def by_rows(found):
        d, _ = jax.jit(lambda *path: smoother._by_adjoints(*path))(found.trail.path, found.last.mean, found.last.factor)
        return np.any(np.isnan(np.asarray(d)), axis=1)

    after_a_gap = by_rows(_gap(rng)[1])
    assert all(after_a_gap[[0, 60, 119]])
    assert not all(after_a_gap[75:119])  # from rows on the state back to adjoint ones
    f = filter_of(linear(rng, 3), 0.2)
    samples = recording(rng, f.model, 0.2, rng.normal(size=N), 120)
    regular = by_rows(f.run(f.init(np.zeros(N), np.ones(N)), samples, trail=True))
    assert regular[119]
    assert np.mean(regular) < 0.1


def test_batches_are_the_single_runs(rng):
    """Of beliefs, one of them singular."""
    model, f = linear(rng, 3, 3), filter_of(linear(rng, 3, 3), 0.2)
    samples = recording(rng, model, 0.2, rng.normal(size=N))
    sds = np.stack([np.ones(N), np.full(N, 1e3), 1.0 * (np.arange(N) != 4)])

    def smoothed(sd):
        found = f.run(f.init(jnp.zeros(N), sd), samples, trail=True)
        back = f.smooth(found)
        return found.x, found.log_likelihood, back.x, back.sd

    batch, alone = jax.jit(jax.vmap(smoothed))(sds), [smoothed(sd) for sd in sds]
    for a, b in zip(batch, zip(*alone, strict=True), strict=True):
        close(a, b, rtol=1e-9, atol=1e-9)


def test_smoothers_agree(rng):
    """With a fixed lag as long as the recording, in parallel, and about a path: all are the one smoother."""
    model, sd0 = linear(rng, 3), np.full(N, 2.0)
    samples = recording(rng, model, 0.2, 2 * rng.normal(size=N))
    f = filter_of(model, 0.2)
    belief = f.init(np.zeros(N), sd0)
    back = f.smooth(f.run(belief, samples, trail=True))
    for parallel in (False, True):
        again = smooth_iterated(f, belief, samples, iterations=1, parallel=parallel)
        close(again.x, back.x)
        close(again.sd, back.sd)
    lagged = FixedLag(f, STEPS - 1)
    window, told = lagged.init(belief), []
    for k in range(STEPS):
        window, *told = lagged.step(window, samples.u[k], samples.y[k], samples.weight[k])
    close(told[0], back.x[0])
    close(told[1], back.sd[0])


def test_a_gate_leaves_out_what_it_refuses(rng):
    """A fault among six readings: the step is as if nothing had been seen."""
    model, sd = linear(rng, 6), 0.2
    samples = recording(rng, model, sd, rng.normal(size=N))
    samples = samples._replace(weight=samples.weight.at[20].set(1.0), y=samples.y.at[20, 0, 3].add(1e3))
    f = filter_of(model, sd)
    gated = Filter(model, f.z, f.noise, gate=1e3)
    belief = f.init(np.zeros(N), np.ones(N))
    kept = gated.run(belief, samples)
    without = f.run(belief, samples._replace(weight=samples.weight.at[20].set(0.0)))
    assert list(np.flatnonzero(kept.innovation.accepted == 0)) == [20]
    close(kept.x, without.x)
    close(kept.sd, without.sd)
