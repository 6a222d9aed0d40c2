"""Weights of readings: what all others predict of one, by dense algebra; and the law that they follow."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import norm

from spookax.estimation import Linearised, covariance_filter
from spookax.estimation.batch import reading_weights
from spookax.estimation.batch.problem import Part
from spookax.protocol import Samples

STEPS, N, M, C = 12, 4, 2, 2
P0 = np.diag([1.0, 0.5, 4.0, 2.0])


def filtered(lin: Linearised) -> Part:
    f = covariance_filter(lin, np.zeros((STEPS, M)), np.zeros((N, 0)), P0)  # pyright: ignore[reportArgumentType]
    return Part([lin], np.zeros((N, 0)), P0, [f], [], np.zeros((0, 0)), np.zeros(0), np.zeros(()))


@pytest.fixture
def lin(rng: np.random.Generator) -> Linearised:
    A, B = rng.normal(size=(STEPS, N, N)) / 2, rng.normal(size=(STEPS, N, M))
    H, J, e = rng.normal(size=(STEPS, C, N)), rng.normal(size=(STEPS, C, M)), rng.normal(size=(STEPS, C))
    return Linearised(A, B, np.zeros((STEPS, N, 0)), H, J, np.zeros((STEPS, C, 0)), e)  # pyright: ignore


def test_what_all_other_readings_predict_of_one(rng, lin):
    """Against the conditional mean and variance of the joint normal of all readings, each as noisy as it is weighed."""
    root = rng.uniform(0.1, 1.0, (STEPS, 1, C))
    root[3, 0, 1] = 1e-5
    (weighed,) = reading_weights.rescaled([lin], root)
    error, variance = (a.reshape(-1) for a in reading_weights.left_out(filtered(weighed), root))
    # readings in terms of x_0 and the noises, which have unit variance
    x, rows = np.eye(N, N + STEPS * M) * np.sqrt(np.diag(P0))[:, None], []
    for k in range(STEPS):
        w = np.eye(M, N + STEPS * M, N + k * M)
        rows.append(lin.H[k] @ x + lin.J[k] @ w)
        x = lin.A[k] @ x + lin.B[k] @ w
    G, y = np.concatenate(rows), np.reshape(lin.e, -1)
    V = G @ G.T + np.diag(root.reshape(-1) ** -2)
    for i in range(len(y)):
        others = np.delete(np.arange(len(y)), i)
        gain = np.linalg.solve(V[np.ix_(others, others)], V[others, i])
        assert error[i] == pytest.approx(y[i] - gain @ y[others], rel=1e-5)
        assert variance[i] == pytest.approx(1 + G[i] @ G[i] - gain @ V[others, i], rel=1e-4)


def reweighted(lin: Linearised, share: float, weight: float = 1.0) -> np.ndarray:
    shape = (STEPS, 1, C)
    samples = Samples(np.zeros((STEPS, 1)), np.zeros(shape), np.zeros((STEPS, 1)), np.full(shape, weight))  # pyright: ignore
    (root,) = reading_weights.reweighted(share, [filtered(lin)], [samples], [np.ones(shape)])
    return root.reshape(STEPS, C)


@pytest.fixture
def silent(lin) -> Callable[..., Linearised]:
    """Readings of nothing but their own noise, so that none tells of another; most of them small."""
    e = np.full((STEPS, C), 0.5)
    return lambda *first: lin._replace(
        H=0 * lin.H, J=0 * lin.J, e=np.concatenate([first, e.flat[len(first) :]]).reshape(STEPS, C)
    )


@pytest.mark.parametrize("share", [0.002, 0.02, 0.2])
def test_a_weight_is_the_probability_that_a_reading_is_not_wild(silent, share):
    errors = np.array([0.0, 1.0, 3.0, -3.5, 4.0, 6.0])
    good, wild = (1 - share) * norm.pdf(errors), share * norm.pdf(errors, scale=10.0)
    found = reweighted(silent(*errors), share).flat[:6] ** 2
    np.testing.assert_allclose(found, np.maximum(good / (good + wild), 1e-10), rtol=1e-9)


def test_however_far_off_a_reading_is_it_has_no_say(silent):
    errors = np.array([1e2, 1e6, 1e12])
    root = reweighted(silent(*errors), 0.02).flat[:3]
    assert np.all(root > 0)
    assert np.all(root * errors <= 1.001e-3)


def test_where_most_readings_are_off_it_is_the_model(silent, lin):
    """All errors a hundred times as large: the same weights as if the noise were so much larger."""
    small = reweighted(silent(3.0, 4.0, 6.0)._replace(), 0.02)
    large = silent(3.0, 4.0, 6.0)
    spread = 0.6745 / 0.5  # errors whose median is that of their noise
    found = reweighted(large._replace(e=100 * large.e), 0.02)
    expected = reweighted(large._replace(e=spread * large.e), 0.02)
    np.testing.assert_allclose(found**2, expected**2, atol=1e-8)
    assert small[5, 1] > 0.9


def test_readings_that_do_not_exist_are_not_judged(silent):
    assert np.all(reweighted(silent(100.0), 0.02, weight=0.0) == 1.0)


def test_a_reading_that_is_set_aside_does_not_count(silent):
    root = reweighted(silent(100.0), 0.02).reshape(STEPS, 1, C)
    np.testing.assert_allclose(reading_weights.counts(np.ones_like(root), root), [STEPS - 1, STEPS], rtol=0.01)
