"""Continuous time: filter and smoother against the discrete ones, networks against the equations they solve."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm, solve_continuous_are

from spookax.estimation import Filter
from spookax.estimation.continuous import (
    Belief,
    KalmanBucy,
    KalmanBucyLoss,
    PhysicsLoss,
    Readings,
    Schedule,
    least_squares,
    networks,
    train,
)
from spookax.estimation.continuous.moment_networks import quadrature
from spookax.models import Equations, Free
from spookax.protocol import ModelError, Noise
from spookax.study.identifying.own_equations import StampGrid, elsewhere, identify_equations, shoot_equations

TIME = np.array([0.0, 0.1, 0.25, 0.3, 0.55, 0.6, 0.9, 1.0])  # with a gap
Y = np.sin(3 * TIME)[:, None]
Y[3] = np.nan
U = np.cos(TIME)[:, None]
P0 = np.diag([0.5, 2.0])


def swing(x, u, p):
    return jnp.stack([x[1], -p.k * jnp.sin(x[0]) - p.c * x[1] + u[0]])


def pendulum(step, density=0.5):
    unknown = [Free("k", 9.0), Free("c", 0.3)]
    return Equations(swing, unknown, step=step, density=[0.0, density], read=[0], inputs=1)


def kalman_bucy(sd=0.1):
    model = pendulum(0.1)
    return KalmanBucy(model, model.unknown.start(), Noise(jnp.ones(()), jnp.array([sd])))


def differences(discrete, continuous):
    return [float(np.max(np.abs(np.asarray(a) - np.asarray(b)))) for a, b in zip(discrete, continuous, strict=True)]


def test_the_discrete_filter_and_smoother_come_to_the_continuous_ones_with_second_order():
    bucy = kalman_bucy()
    found = bucy.run(TIME, Y, np.zeros(2), P0, U)
    smoothed = bucy.smooth(found, Y, U)
    limit = found.moments.mean, found.moments.sd, smoothed.mean, smoothed.sd, found.log_likelihood
    far = []
    for h in (0.05, 0.0125):
        model = pendulum(h)
        grid, f = StampGrid(TIME, h), Filter(model, bucy.z, bucy.noise)
        r = f.run(f.init(np.zeros(2), np.sqrt(np.diag(P0))), grid.samples(Y, U, np.array([0.1])), trail=True)
        s, at = f.smooth(r), grid.of_stamp
        far.append(differences((r.x[at], r.sd[at], s.x[at], s.sd[at], r.log_likelihood), limit))
    orders = np.log(np.array(far[0]) / far[1]) / np.log(4.0)
    assert np.all(far[1] < np.array([1e-3, 1e-3, 1e-3, 1e-3, 1e-2]))
    assert np.all((orders > 1.7) & (orders < 2.4)), orders


def test_a_signal_is_the_limit_of_samples_with_first_order():
    root = 0.05  # of the spectral density
    bucy, stamps = kalman_bucy(root), np.linspace(0, 1, 6)
    y, u = (lambda t: jnp.sin(3 * t)[None]), (lambda t: jnp.cos(t)[None])
    found = bucy.follow(stamps, y, np.zeros(2), P0, u)
    smoothed = bucy.smooth_signal(found, y, u)
    limit = found.moments.mean[1:], found.moments.sd[1:], smoothed.mean, smoothed.sd
    far = []
    for h in (0.02, 0.005):
        time = np.arange(0, 1 + h / 2, h)
        f = Filter(pendulum(h), bucy.z, Noise(jnp.ones(()), jnp.array([root / np.sqrt(h)])))
        samples = StampGrid(time, h).samples(np.sin(3 * time)[:, None], np.cos(time)[:, None], np.ones(1))
        r = f.run(f.init(np.zeros(2), np.sqrt(np.diag(P0))), samples, trail=True)
        s, at = f.smooth(r), np.round(stamps / h).astype(int)
        far.append(differences((r.x[at][1:], r.sd[at][1:], s.x[at], s.sd[at]), limit))
    orders = np.log(np.array(far[0]) / far[1]) / np.log(4.0)
    assert np.all((orders > 0.8) & (orders < 1.3)), orders


def test_a_long_signal_leads_to_the_steady_covariance():
    def fall(x, u, p):
        return jnp.stack([x[1], -p.k * x[0]])

    model = Equations(fall, [Free("k", 4.0)], step=0.1, density=[0.0, 0.7], read=[0])
    bucy = KalmanBucy(model, model.unknown.start(), Noise(jnp.ones(()), jnp.array([0.2])))
    found = bucy.follow(np.array([0.0, 20.0]), lambda t: jnp.zeros(1), np.zeros(2), np.eye(2))
    A = np.array([[0.0, 1.0], [-4.0, 0.0]])
    steady = solve_continuous_are(A.T, np.array([[1.0], [0.0]]), np.diag([0.0, 0.49]), np.array([[0.04]]))
    np.testing.assert_allclose(found.moments.covariance[-1], steady, rtol=1e-5, atol=1e-7)


def test_equations_are_identified_from_irregular_stamps_with_inputs(rng):
    truth, dt = pendulum(0.01), rng.uniform(0.01, 0.05, 127)
    time = np.concatenate([[0.0], np.cumsum(dt)])
    u = np.sin(2 * time)[:, None]
    p, x, states = truth.prepare(jnp.asarray(truth.unknown.start())), jnp.array([1.0, 0.0]), []
    step = jax.jit(lambda x, u, h: truth.step(x, p, jnp.append(u, h), jnp.zeros(1), Noise(1.0, 1.0), None)[0])
    for k in range(128):
        states.append(x)
        for _ in range(5):
            x = step(x, u[k], dt[min(k, 126)] / 5)
    y = np.array(states)[:, :1] + 0.01 * rng.normal(size=(128, 1))
    y[40:50] = np.nan
    unknown = [Free("k", 5.0), Free("c", 0.6)]
    model = Equations(swing, unknown, step=0.03, density=[0.0, 0.01], read=[0], inputs=1)
    found = identify_equations(model, time, y, u, sd=[0.01])
    assert found.message == ""
    for name, true in (("k", 9.0), ("c", 0.3)):
        got = found.parameters[name]
        assert abs(got["value"] - true) < 4 * got["sd"] < 0.4 * true
    off = (found.states - np.array(states)) / found.sd
    assert np.mean(np.abs(off) < 2) > 0.8  # neighbours err alike: fewer than 95 in a hundred, but not far fewer


def test_other_starts_are_anywhere_in_a_box_and_a_factor_of_three_off_elsewhere(rng):
    unknown = [Free("k", 9.0), Free("share", 2.9, 2.0, 3.0, "box")]
    model = Equations(lambda x, u, p: -p.k * p.share * x, unknown, step=0.1, density=[0.5], read=[0])
    z0 = model.unknown.start()
    k, share = np.array([model.unknown.values(jnp.asarray(elsewhere(model, z0, rng))) for _ in range(200)]).T
    assert 3.0 <= k.min() < 3.3
    assert 24.0 < k.max() <= 27.0
    assert 2.0 < share.min() < 2.05
    assert 2.95 < share.max() < 3.0
    assert abs(np.mean(share) - 2.5) < 0.08  # four standard deviations of the mean of 200


# ---------------------------------------------------------------------------------------------------------------
# networks


def test_the_quadrature_is_exact_to_the_third_degree(rng):
    m, U = rng.normal(size=3), np.triu(rng.normal(size=(3, 3)))
    points, weight = quadrature(jnp.asarray(m), jnp.asarray(U))
    P = U.T @ U
    np.testing.assert_allclose(weight * jnp.sum(points, axis=0), m, rtol=1e-12)
    np.testing.assert_allclose(weight * (points - m[None]).T @ (points - m[None]), P, rtol=1e-12, atol=1e-12)
    third = m[0] ** 2 * m[1] + m[1] * P[0, 0] + 2 * m[0] * P[0, 1]  # E[x0^2 x1]
    np.testing.assert_allclose(weight * jnp.sum(points[:, 0] ** 2 * points[:, 1]), third, rtol=1e-10)


def decaying():
    return Equations(lambda x, u, p: -p.a * x, [Free("a", 2.0)], step=0.01, density=[0.5], read=[0])


class Exact:
    """Moments of the filter of dx = -a x dt + q dW without readings, in place of networks."""

    middle, span = 0.5, 0.5

    def __init__(self, z):
        self.z, self.shift = z, jnp.zeros(1)

    def mean(self, t):
        return jnp.exp(-2.0 * t)[None]

    def covariance(self, t):
        return (0.0625 + (1.0 - 0.0625) * jnp.exp(-4.0 * t))[None, None]

    def factor(self, t):
        return jnp.sqrt(self.covariance(t))


def test_losses_vanish_on_the_solution_of_the_equations():
    model = decaying()
    z, nothing = jnp.asarray(model.unknown.start()), jnp.array([jnp.nan])
    belief = Belief(np.ones(1), np.eye(1), np.array([0.1]), np.array([0.1]), np.ones(()))
    t = jnp.asarray(0.3)

    @eqx.filter_jit
    def losses(loss, z):
        exact = Exact(z)
        return loss(exact, model, belief, t, nothing, jnp.zeros(0)), loss.at_start(exact, belief, jnp.zeros(()))

    for loss in (KalmanBucyLoss(), PhysicsLoss(np.ones(1))):
        on_the_way, at_start = losses(loss, z)
        assert float(on_the_way) < 1e-5
        assert float(at_start) < 1e-5
        assert float(losses(loss, z + 0.1)[0]) > 1e-3


@pytest.fixture(scope="module")
def trainable():
    rng = np.random.default_rng(1)
    time = np.linspace(0, 1, 60)
    y = np.exp(-2.0 * time)[None, :, None] + 0.02 * rng.normal(size=(2, 60, 1))
    readings = Readings(np.stack([time] * 2), y, np.zeros((2, 60, 0)))
    belief = Belief(np.ones(1), 0.01 * np.eye(1), np.array([0.02]), np.array([0.02 * np.sqrt(1 / 60)]), np.array(0.1))
    model = decaying()
    nets = networks(
        model,
        readings,
        belief,
        np.log([[1.0], [4.0]]),
        y.mean(axis=1),
        y.std(axis=1),
        width=12,
        depth=1,
        waves=2,
        quickest=4.0,
    )
    return nets, model, readings, belief


def test_a_batch_of_runs_is_trained_stopped_and_gone_on_with(trainable, tmp_path):
    nets, model, readings, belief = trainable
    loss, whole = KalmanBucyLoss((1.0, 0.1, 10.0), 0.0), Schedule(900, 20, 1e-2, data_first=200, piece=300)
    at_once = train(nets, loss, model, readings, belief, whole)
    np.testing.assert_allclose(np.exp(np.asarray(at_once.nets.z)), 2.0, atol=0.2)
    assert not at_once.failed.any()

    def stop(report):
        if report.step == 500:  # 200 along the readings, and a piece
            raise KeyboardInterrupt

    kept = tmp_path / "state"
    assert train(nets, loss, model, readings, belief, whole, report=stop, keep=kept).ended == "interrupted"
    gone_on = train(nets, loss, model, readings, belief, whole, keep=kept)
    np.testing.assert_allclose(gone_on.nets.z, at_once.nets.z, rtol=1e-10)
    assert at_once.best().mean(jnp.asarray(0.5)).shape == (1,)


def test_moments_go_on_beyond_the_last_reading(trainable):
    _, model, readings, belief = trainable
    time = np.broadcast_to(np.linspace(0, 1.5, 90), (2, 90))
    y = np.full((2, 90, 1), np.nan)
    y[:, :60] = readings.y
    y[:, :60] += np.exp(-2.0 * time[:, :60, None]) - np.exp(-2.0 * readings.time[:, :, None])  # at these stamps
    further = Readings(time, y, np.zeros((2, 90, 0)))
    middle, size = np.nanmean(y, axis=1), np.nanstd(y, axis=1)
    sizes = {"width": 12, "depth": 1, "waves": 2, "quickest": 4.0}
    nets = networks(model, further, belief, np.log([[1.0], [4.0]]), middle, size, **sizes)
    loss, whole = KalmanBucyLoss((1.0, 0.1, 10.0), 0.0), Schedule(1500, 30, 1e-2, data_first=200, piece=500)
    best = train(nets, loss, model, further, belief, whole).best()
    mean = eqx.filter_jit(lambda nets, t: nets.mean(t))
    for t in (1.2, 1.4):  # what the equations make of the end of the readings
        assert abs(float(mean(best, jnp.asarray(t))[0]) - np.exp(-2 * t)) < 0.02


def test_squares_are_minimised_by_levenberg_and_marquardts_method(trainable):
    _, model, readings, belief = trainable
    middle, size, sizes = readings.y.mean(axis=1), readings.y.std(axis=1), {"width": 3, "depth": 1, "waves": 0}
    nets = networks(model, readings, belief, np.log([[1.0], [4.0]]), middle, size, **sizes)
    loss = PhysicsLoss(np.ones(1))
    assert least_squares(nets, loss, model, readings, belief, 5).ended == "all steps"
    found = least_squares(nets, loss, model, readings, belief, 1000)
    assert found.ended == "settled"
    np.testing.assert_allclose(np.exp(np.asarray(found.nets.z)), 2.0, atol=0.1)  # both runs, from either side

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def whole(z, nets, samples):
        nets = eqx.tree_at(lambda n: n.z, nets, z)
        each = jax.vmap(lambda t, y, u: loss(nets, model, belief, t, y, u))(*map(jnp.asarray, samples))
        return jnp.mean(each)

    for run, told in enumerate(found.loss):
        samples = [a[run] for a in readings]
        of = found.run(run)
        value, slope = whole(of.z, of, samples)
        np.testing.assert_allclose(value, told, rtol=1e-10)
        assert abs(float(slope[0])) < 1e-3 * told  # a minimum: no unknown would gain anything


# ---------------------------------------------------------------------------------------------------------------
# what is refused


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"P0": np.array([[1.0, 2.0], [2.0, 1.0]])}, "eigenvalue -1"),
        ({"P0": np.ones(2)}, "numpy.diag makes one"),
        ({"x0": np.zeros(3)}, "2 components"),
        ({"x0": np.array([np.nan, 0.0])}, "`drift` returned"),
        ({"time": TIME[::-1]}, "must ascend"),
        ({"y": Y[:3]}, "must have the shape"),
    ],
)
def test_bad_input_is_one_clear_error(given, said):
    arguments = {"time": TIME, "y": Y, "x0": np.zeros(2), "P0": P0, "u": U} | given
    with pytest.raises(ModelError, match=said):
        kalman_bucy().run(**arguments)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"drift": lambda x, u, p: x[:1]}, r"`drift` must return an array of shape \(2\), got \(1,\)"),
        ({"read": lambda x, p: x[0]}, "`read` must return"),
        ({"read": [2]}, "components 0 to 1"),
        ({"density": [0.0, -1.0]}, "at least zero"),
        ({"step": 0.0}, "above 0 s"),
    ],
)
def test_functions_that_do_not_fit_are_refused(given, said):
    arguments = {"drift": swing, "unknown": [Free("k", 9.0), Free("c", 0.3)], "step": 0.1, "density": [0.0, 1.0]}
    with pytest.raises(ModelError, match=said):
        Equations(**(arguments | {"read": [0], "inputs": 1} | given))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"y": np.zeros((3, 1))}, r"`y` must have the shape \(64, 1\)"),
        ({"sd": [0.0]}, "`sd` must be above zero"),
        ({"x0": [0.0]}, r"`x0` must have the shape \(2,\)"),
        ({"x0_sd": [1.0, 1.0, 1.0]}, "`x0_sd` must be a number or 2"),
        ({"x0_sd": -1.0}, "`x0_sd` must be above zero"),
        ({}, r"`drift` returned \[0.0, nan\] at the state \[0.0, 0.0\]"),
    ],
)
def test_an_identification_of_equations_refuses_what_it_cannot_use(given, said):
    def broken(x, u, p):
        return jnp.stack([x[1], -p.k * jnp.sqrt(x[0] - 1.0)])

    model = Equations(broken, [Free("k", 9.0)], step=0.1, density=[0.0, 1.0], read=[0])
    arguments = {"time": 0.1 * np.arange(64), "y": np.zeros((64, 1)), "sd": [0.1]} | given
    for estimate in (identify_equations, shoot_equations):
        with pytest.raises(ModelError, match=said):
            estimate(model, **arguments)


def test_a_step_with_its_own_length_is_the_exact_flow_to_fourth_order():
    model = Equations(
        lambda x, u, p: jnp.stack([x[1], -p.k * x[0]]), [Free("k", 4.0)], step=1.0, density=[0, 1], read=[0]
    )
    p, x = model.prepare(jnp.asarray(model.unknown.start())), np.array([1.0, 0.5])
    far = []
    for h in (0.2, 0.1):
        got, _ = model.step(
            jnp.asarray(x), p, jnp.array([h]), jnp.zeros(1), Noise(jnp.ones(()), jnp.ones(1)), jnp.zeros(0)
        )
        far.append(np.max(np.abs(got - expm(h * np.array([[0.0, 1.0], [-4.0, 0.0]])) @ x)))
    assert 4.7 < np.log2(far[0] / far[1]) < 5.3
