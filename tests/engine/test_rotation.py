"""Rotations: box-plus and box-minus belong together, and no derivative is lost at angle zero."""

import jax
import numpy as np
import pytest
from engine.mechanisms import compiled, quaternion_matrix

from spookax.math import rotation

EPS = np.finfo(float).eps
ANGLES = (0.0, 1e-9, 1.0, 3.1)

plus = compiled(jax.vmap(rotation.plus))
minus = compiled(jax.vmap(rotation.minus))


def draw(rng, angle, count=50):
    """Random attitudes and rotation vectors of one length."""
    e = rng.normal(size=(count, 4))
    theta = rng.normal(size=(count, 3))
    theta *= angle / np.linalg.norm(theta, axis=1, keepdims=True)
    return e / np.linalg.norm(e, axis=1, keepdims=True), theta


@pytest.mark.parametrize("angle", ANGLES)
def test_box_minus_undoes_box_plus(angle, rng):
    """The absolute error is that of a quaternion product in float64, whatever the angle; near half a turn w is small
    and its rounding grows by 1 / w."""
    e, theta = draw(rng, angle)
    np.testing.assert_allclose(minus(plus(e, theta), e), theta, rtol=0, atol=8 * EPS * max(1, angle))


@pytest.mark.parametrize("angle", ANGLES)
def test_box_plus_turns_about_body_axes(angle, rng):
    """R(e [+] theta) = R(e) exp([theta]), with the exponential by its series."""
    e, theta = draw(rng, angle)
    generator = np.cross(np.eye(3), theta[:, None, :]).swapaxes(1, 2) * -1
    series, term = np.eye(3), np.eye(3)
    for n in range(1, 40):
        term = term @ generator / n
        series = series + term
    expected = quaternion_matrix(e) @ series
    np.testing.assert_allclose(rotation.matrix(plus(e, theta)), expected, rtol=0, atol=1e-14)


def round_trip(p):
    return rotation.log(rotation.exp(p))


JACOBIANS = {"forward": jax.jacfwd, "reverse": jax.jacrev}


@pytest.mark.parametrize("mode", JACOBIANS)
def test_derivatives_at_zero_are_those_of_the_series(mode):
    """exp p = [1 - |p|^2 / 8, p / 2 - p |p|^2 / 48], log exp p = p:
    their first and second derivatives."""
    jacobian, zero = JACOBIANS[mode], np.zeros(3)
    np.testing.assert_array_equal(compiled(jacobian(rotation.exp))(zero), np.eye(4)[:, 1:] / 2)
    second = compiled(jacobian(jacobian(rotation.exp)))(zero)
    np.testing.assert_array_equal(second[0], -np.eye(3) / 4)
    np.testing.assert_array_equal(second[1:], np.zeros((3, 3, 3)))
    np.testing.assert_array_equal(compiled(jacobian(round_trip))(zero), np.eye(3))
    second = compiled(jacobian(jacobian(round_trip)))(zero)
    np.testing.assert_allclose(second, np.zeros((3, 3, 3)), rtol=0, atol=EPS)


def test_third_derivative_at_zero_is_finite():
    third = compiled(jax.jacfwd(jax.jacfwd(jax.jacfwd(round_trip))))(np.zeros(3))
    np.testing.assert_allclose(third, np.zeros((3, 3, 3, 3)), rtol=0, atol=EPS)


def test_log_after_exp_is_the_identity_on_both_sides_of_the_series(rng):
    """The switch to the series at small angles leaves no trace in value or derivative."""
    size = np.concatenate([np.logspace(-9, 0, 60), [3.0, np.pi - 1e-6]])
    p = rng.normal(size=(len(size), 3))
    p *= size[:, None] / np.linalg.norm(p, axis=1, keepdims=True)
    np.testing.assert_allclose(jax.vmap(round_trip)(p), p, rtol=1e-15, atol=1e-15)
    jacobian = compiled(jax.vmap(jax.jacfwd(round_trip)))(p)
    np.testing.assert_allclose(jacobian, np.broadcast_to(np.eye(3), jacobian.shape), rtol=0, atol=1e-14)


def test_the_antipode_is_the_same_rotation(rng):
    """e and -e are one attitude: box-minus is zero, and takes the short way elsewhere."""
    e, theta = draw(rng, 1.0)
    np.testing.assert_allclose(minus(-e, e), np.zeros((50, 3)), rtol=0, atol=4 * EPS)
    np.testing.assert_allclose(minus(-np.asarray(plus(e, theta)), e), theta, rtol=0, atol=8 * EPS)
