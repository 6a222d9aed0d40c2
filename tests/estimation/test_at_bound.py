"""What is known of parameters at a bound, and of the others beside them."""

import numpy as np
import pytest
from scipy.integrate import quad

from spookax._results import ESTIMATE_RESULTS
from spookax.estimation.batch.at_bound import LEVEL, cut_off
from spookax.estimation.batch.problem import Problem, posterior

FINE = ESTIMATE_RESULTS.successful


def problem(lower: np.ndarray, upper: np.ndarray, weight: float = 1e-3) -> Problem:
    none, p = np.zeros(0), len(lower)
    return Problem((), np.zeros(p), np.zeros(p), np.full(p, weight), lower, upper, none)


@pytest.mark.parametrize(("slope", "curvature"), [(0.0, 4.0), (1.0, 1.0), (20.0, 1.0), (3000.0, 1.0), (2.0, 0.0)])
def test_moments_and_reach_of_a_gaussian_that_is_cut_off(slope, curvature):
    rms, reach = cut_off(*(np.array([x]) for x in (slope, curvature, np.inf)))
    end = 40 / np.hypot(slope, np.sqrt(curvature))

    def integral(power: int, to: float = end) -> float:
        return quad(lambda t: t**power * np.exp(-slope * t - curvature * t**2 / 2), 0, to, epsabs=0)[0]

    # the asymptotic form takes over where its error is 1e-5
    assert rms[0] == pytest.approx(np.sqrt(integral(2) / integral(0)), rel=1e-5)
    assert integral(0, float(reach[0])) / integral(0) == pytest.approx(LEVEL, rel=1e-5)


def test_the_other_bound_limits_what_is_not_known():
    rms, reach = cut_off(np.zeros(2), np.zeros(2), np.array([3.0, np.inf]))
    assert list(rms) == list(reach) == [3.0, np.inf]


@pytest.mark.parametrize("slope", [0.0, 0.7, 50.0])
def test_the_others_follow_one_that_is_at_its_bound(rng, slope):
    """Moments about the estimate of a Gaussian on the half space t >= 0, by draws."""
    A = rng.normal(size=(5, 3))
    N, z = A.T @ A, np.array([0.3, 1.0, -0.2])
    lower = np.array([-np.inf, 1.0, -np.inf])
    found = posterior(
        problem(lower, np.full(3, np.inf)), z, N, np.array([0.0, slope, 0.0]), ESTIMATE_RESULTS.successful
    )
    cov, k = np.linalg.inv(N), 1 / np.linalg.inv(N)[1, 1]
    t = np.linspace(0, 12 / np.hypot(slope, np.sqrt(k)), 20001)
    density = np.exp(-slope * t - k * t**2 / 2)
    square = np.sum(density * t**2) / np.sum(density)
    gain = cov[:, 1] / cov[1, 1]
    held = cov - np.outer(cov[:, 1], cov[:, 1]) / cov[1, 1]
    np.testing.assert_allclose(found.covariance, held + square * np.outer(gain, gain), rtol=1e-3, atol=1e-4)
    sd = np.sqrt(np.diag(found.covariance))
    assert np.all(sd > 0)
    assert np.all(sd**2 <= np.diag(cov) * 1.001)  # not wider than without the bound
    assert np.all(sd[[0, 2]] >= np.sqrt(np.diag(held))[[0, 2]])  # nor narrower than with the parameter fixed
    assert list(np.sign(found.reach)) == [0, 1, 0]


def test_upper_bounds_reach_down_and_several_may_be_met(rng):
    A = rng.normal(size=(6, 3))
    N, z = A.T @ A, np.array([2.0, 0.0, -1.0])
    lower, upper = np.array([-np.inf, -np.inf, -1.0]), np.array([2.0, np.inf, np.inf])
    slope = np.array([-1.0, 0.0, 2.0])
    found = posterior(problem(lower, upper), z, N, slope, FINE)
    assert list(np.sign(found.reach)) == [-1, 0, 1]
    assert np.all(np.linalg.eigvalsh(found.covariance) > 0)


def test_what_nothing_is_known_of_has_no_other_end():
    lower, upper = np.array([0.0, -np.inf]), np.full(2, np.inf)
    found = posterior(
        problem(lower, upper, 0.0), np.zeros(2), np.diag([0.0, 4.0]), np.zeros(2), ESTIMATE_RESULTS.successful
    )
    assert np.isinf(found.reach[0])
    assert np.isinf(found.covariance[0, 0])
    assert found.covariance[1, 1] == 0.25
    assert found.result == ESTIMATE_RESULTS.no_information
