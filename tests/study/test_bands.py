"""Draws from a posterior for bands of a simulation."""

import numpy as np
import pytest

from spookax.study.judging.bands import DRAWS, directions, drawn
from spookax.study.judging.posterior import without


@pytest.mark.parametrize("size", [3, DRAWS, 40])
def test_directions_are_at_right_angles_and_equally_long(size):
    found = directions(size)
    assert found.shape == (min(size, DRAWS), size)
    np.testing.assert_allclose(found @ found.T, size * np.eye(len(found)), rtol=0, atol=1e-12 * size)


def test_as_many_draws_as_numbers_have_their_covariance():
    root = np.random.default_rng(3).normal(size=(3, 3))
    covariance, z = root @ root.T, np.array([1.0, -2.0, 0.5])
    found = drawn(z, covariance, np.zeros(3), (np.full(3, -np.inf), np.full(3, np.inf)), DRAWS - 3)
    moved = found.z - z
    np.testing.assert_allclose(moved.T @ moved / DRAWS, covariance, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(moved.T @ found.rest / DRAWS, 0.0, atol=1e-12)


def test_draws_stay_within_bounds_and_on_their_side_of_one():
    z, bounds = np.array([0.0, 5.0]), (np.array([0.0, 4.9]), np.array([9.0, 5.1]))
    found = drawn(z, np.eye(2), np.array([1.0, 0.0]), bounds, 12).z
    assert np.all((found >= bounds[0]) & (found <= bounds[1]))
    assert found[:, 0].max() > 0


def test_a_direction_that_is_not_determined_is_left_out_of_a_covariance(rng):
    """Nothing moves along it, the rest as before; rounding of a large variance leaves no negative ones behind."""
    root = rng.normal(size=(3, 3))
    covariance, free = root @ root.T, np.array([0.6, -0.8, 0.0])
    rest = np.eye(3) - np.outer(free, free)
    np.testing.assert_allclose(without(covariance, free), rest @ covariance @ rest, rtol=0, atol=1e-14)
    alone = without(1e4 * np.outer(free, free) + np.diag([0.0, 0.0, 0.01]), free)
    np.testing.assert_array_equal(alone, alone.T)
    assert np.all(np.diag(alone) >= 0)
    np.testing.assert_allclose(alone, np.diag([0.0, 0.0, 0.01]), rtol=0, atol=1e-11)
    unknown = without(np.diag([1.0, 1.0, np.inf]), free)
    assert unknown[2, 2] == np.inf
    assert np.all(np.isfinite(unknown[:2, :2]))
