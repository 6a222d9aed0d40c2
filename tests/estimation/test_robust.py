"""Standard deviations for innovations that are not white: long-run variances of series whose answer is known."""

import numpy as np
import pytest

from spookax.estimation.batch.robust import long_run_variance


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, -0.5])
def test_of_an_autoregressive_series(rng, correlation):
    """x_k = a x_(k-1) + e_k: the variance of the sum of n numbers is n / (1 - a)^2, at least that of white ones."""
    length, found = 4000, []
    for _ in range(100):
        e, x = rng.normal(size=length), np.zeros(length)
        for k in range(1, length):
            x[k] = correlation * x[k - 1] + e[k]
        found.append(long_run_variance([x]))
    expected = length * max(1 / (1 - correlation) ** 2, 1 / (1 - correlation**2))
    # a window of five correlation times leaves out exp(-5/2) of their tail at most, and draws spread by sqrt(2 / 100)
    assert np.mean(found) == pytest.approx(expected, rel=0.1)


def test_series_add_up_and_constants_say_nothing(rng):
    x, y = rng.normal(size=(2, 3000))
    both = long_run_variance([x, y + 3.0])
    assert both == pytest.approx(long_run_variance([x]) + long_run_variance([y]), rel=0.1)
    assert long_run_variance([np.ones(50)]) == 0.0
