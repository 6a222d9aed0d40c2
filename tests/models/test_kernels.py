"""Gaussian processes as state spaces: covariances, stationarity, exact steps."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg

from spookax.math import linear_sde
from spookax.models import (
    Contact,
    LinearGaussian,
    Matern,
    Periodic,
    SquaredExponential,
    friction_regimes,
    on_base,
    oscillator,
    quasi_periodic,
)
from spookax.models.linear import alike
from spookax.protocol import Noise

discretised = jax.jit(linear_sde.discretised)  # called as it is it compiles every operation
close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-10)
LAG, SD, LENGTH, PERIOD = np.linspace(0.0, 3.0, 13), 1.3, 0.7, 1.1


def matern(order: int, lag=LAG, length=LENGTH) -> np.ndarray:
    """Rasmussen and Williams (2006), equations 4.14, 4.17."""
    r = np.sqrt(2 * order + 1) * lag / length
    return [np.exp(-r), (1 + r) * np.exp(-r), (1 + r + r**2 / 3) * np.exp(-r)][order]


def periodic(length: float) -> np.ndarray:
    return np.exp(-2 * np.sin(np.pi * LAG / PERIOD) ** 2 / length**2)


def covariance(kernel) -> jax.Array:
    return jax.jit(jax.vmap(kernel.covariance))(LAG)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_matern_kernels_are_exact(order):
    close(covariance(Matern(SD, LENGTH, order)), SD**2 * matern(order))


@pytest.mark.parametrize(("order", "error"), [(4, 0.025), (6, 0.005)])
def test_squared_exponential_is_as_near_as_its_docstring_says(order, error):
    found = covariance(SquaredExponential(SD, LENGTH, order)) / SD**2
    np.testing.assert_allclose(found, np.exp(-(LAG**2) / (2 * LENGTH**2)), atol=error)


def test_periodic_and_quasi_periodic_kernels():
    np.testing.assert_allclose(covariance(Periodic(SD, 0.9, PERIOD, 10)), SD**2 * periodic(0.9), atol=1e-9)
    wanted = SD**2 * periodic(0.9) * matern(1, length=2.0)
    np.testing.assert_allclose(covariance(quasi_periodic(SD, 0.9, PERIOD, 2.0, 10)), wanted, atol=1e-9)


def test_sums_and_products_add_and_multiply():
    a, b = Matern(SD, LENGTH, 1), Matern(0.8, 0.3)
    first, second = SD**2 * matern(1), 0.64 * matern(0, length=0.3)
    close(covariance(a + b), first + second)
    close(covariance(a * b), first * second)


def test_a_step_keeps_a_stationary_process():
    for kernel in (Matern(SD, LENGTH, 2), Matern(1.2, 0.3) * Matern(SD, LENGTH, 1)):
        own = kernel.state_space()
        P = own.S @ own.S.T
        step = discretised(own.F, jnp.zeros((len(P), 1)), own.G, 0.37)
        close(step.A @ P @ step.A.T + step.S @ step.S.T, P)


def test_steps_are_those_of_the_block_exponentials():
    """Van Loan (1978), in scipy; the noise's covariance loses digits there, at most of its smallest entry."""
    mechanism = oscillator(1.0, 5.0, 500.0)
    F = np.zeros((3, 3))
    F[:2, :2], F[:2, 2:], F[2, 2] = mechanism.F, mechanism.E, -1 / 0.133
    G, B = np.array([[0.0], [0.0], [4.0]]), np.array([[0.0], [1.0], [0.0]])
    for h, digits in ((0.002, 1e-12), (0.3, 1e-9)):
        step = discretised(jnp.asarray(F), jnp.asarray(B), jnp.asarray(G), h)
        both = scipy.linalg.expm(h * np.block([[F, B], [np.zeros((1, 4))]]))
        close(np.column_stack([step.A, step.b]), both[:3])
        V = scipy.linalg.expm(h * np.block([[-F, G @ G.T], [np.zeros((3, 3)), F.T]]))
        np.testing.assert_allclose(step.S @ step.S.T, V[3:, 3:].T @ V[:3, 3:], rtol=digits)


def test_a_free_mass_under_white_noise_has_the_textbooks_covariance():
    h, q = 0.5, 2.0
    F, G = jnp.array([[0.0, 1.0], [0.0, 0.0]]), jnp.array([[0.0], [np.sqrt(q)]])
    step = discretised(F, jnp.array([[0.0], [1.0]]), G, h)
    close(step.A, [[1, h], [0, 1]])
    close(step.b[:, 0], [h**2 / 2, h])
    close(step.S @ step.S.T, q * np.array([[h**3 / 3, h**2 / 2], [h**2 / 2, h]]))


def test_two_steps_make_one_of_their_length():
    own = Matern(SD, LENGTH, 1).state_space()
    B = jnp.ones((2, 1))
    a, b, both = (discretised(own.F, B, own.G, h) for h in (0.1, 0.25, 0.35))
    close(b.A @ a.A, both.A)
    close(b.A @ a.b + b.b, both.b)
    close(b.A @ a.S @ (b.A @ a.S).T + b.S @ b.S.T, both.S @ both.S.T)


def test_what_sensors_read_of_an_oscillator():
    mechanism = oscillator(2.0, 3.0, 50.0, ("displacement", "velocity", "acceleration"))
    z, v, u, f = 0.1, -0.4, 7.0, 1.5
    read = mechanism.C @ jnp.array([z, v]) + mechanism.D @ jnp.array([u]) + mechanism.L @ jnp.array([f])
    close(read, [z, v, (u - 3.0 * v - 50.0 * z - f) / 2.0])
    base = oscillator(2.0, 3.0, 50.0, base=True)
    close(base.B @ jnp.array([0.1, 0.4]), [0.0, (50.0 * 0.1 + 3.0 * 0.4) / 2.0])


def test_what_acts_while_a_force_is_forgotten():
    """A free mass that an unknown constant force pushes over the step; in the source no force does."""
    m, h, sd = 2.0, 0.1, 1.4
    mechanism, kernel = oscillator(m, 0.0, 0.0), Matern(3.0, 1.0)
    for meanwhile in (0.0, sd):
        forgets = friction_regimes.models(mechanism, [Contact(kernel, 0.5, meanwhile=meanwhile)], h)[
            friction_regimes.RESET
        ]
        close(forgets.A, [[1, h, 0], [0, 1, 0], [0, 0, 0]])
        pushed = meanwhile / m * np.array([h**2 / 2, h, 0.0])
        close(forgets.S @ forgets.S.T, np.outer(pushed, pushed) + np.diag([0.0, 0.0, 0.25]))


def test_a_base_among_the_states():
    """Against fine steps of the oscillator along a base whose jerk is zero; held by friction it needs what the base
    pulls."""
    m, c, k, h = 2.0, 3.0, 50.0, 0.05
    whole = on_base(oscillator(m, c, k, ("displacement", "acceleration"), base=True), 0.0)
    z, v, u, du, ddu = start = np.array([0.1, -0.4, 0.2, 1.5, -7.0])
    contacts = [Contact(Matern(1e-12, 1.0), 1.0)]
    slides, sticks, _ = friction_regimes.models(whole, contacts, h)

    def slope(t, x):
        push = k * (u + du * t + ddu * t**2 / 2 - x[0]) + c * (du + ddu * t - x[1])
        return [x[1], push / m]

    after = scipy.integrate.solve_ivp(slope, (0.0, h), [z, v], rtol=1e-12, atol=1e-14).y[:, -1]
    base = [u + du * h + ddu * h**2 / 2, du + ddu * h, ddu]
    close(slides.A @ np.append(start, 0.0), [*after, *base, 0.0])
    close(whole.C @ start, [z, slope(0.0, [z, v])[1], u])
    close(sticks.A @ np.append(start, 0.0), [z, 0.0, *base, k * (base[0] - z) + c * base[1]])
    noisy = on_base(oscillator(m, c, k, base=True), 2.0)
    S = discretised(noisy.F, noisy.B, noisy.G, h).S
    textbook = [[h**5 / 20, h**4 / 8, h**3 / 6], [h**4 / 8, h**3 / 3, h**2 / 2], [h**3 / 6, h**2 / 2, h]]
    np.testing.assert_allclose((S @ S.T)[2:, 2:], 4.0 * np.array(textbook), rtol=1e-9)


def test_models_of_different_sizes_are_filled_up():
    small, large = (
        LinearGaussian(np.eye(2), np.ones((2, 1)), np.eye(2), np.ones((1, 2))),
        LinearGaussian(np.eye(3), np.ones((3, 1)), np.ones((3, 1)), np.ones((1, 3))),
    )
    filled, same = alike([small, large])
    assert (filled.tangent_size, filled.noise_size) == (same.tangent_size, same.noise_size) == (3, 2)
    close(filled.A, np.diag([1.0, 1.0, 0.0]))
    close(filled.C, [[1.0, 1.0, 0.0]])


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"length.*must be positive, got -1"):
        Matern(1.0, -1.0)
    assert np.isnan(jax.jit(lambda length: Matern(1.0, length).length)(-1.0))
    with pytest.raises(ValueError, match="order 0, 1 or 2"):
        Matern(1.0, 1.0, 3)
    with pytest.raises(ValueError, match="must read one of displacement"):
        oscillator(1.0, 1.0, 1.0, ("jerk",))
    with pytest.raises(ValueError, match="must be two of 0 to 0"):
        on_base(oscillator(1.0, 1.0, 1.0), 1.0)
    with pytest.raises(ValueError, match="mass of an oscillator must be positive"):
        oscillator(0.0, 1.0, 1.0)


def test_steps_of_several_lengths_are_those_of_each(rng):
    """Two half steps of a sliding contact are a whole one; the last input says which length a step has."""
    contact, mechanism = Contact(Matern(SD, LENGTH), SD), oscillator(1.0, 5.0, 500.0)
    every = friction_regimes.models(mechanism, [contact], np.array([0.004, 0.002]))
    whole, x = friction_regimes.models(mechanism, [contact], 0.004), rng.normal(size=3)
    noise = Noise(jnp.asarray(1.0), jnp.ones(1))
    for several, one in zip(every, whole, strict=True):
        step, wanted = several.linear(None, jnp.array([0.7, 0.0]), noise), one.linear(None, jnp.array([0.7]), noise)
        for a, b in zip(step, wanted, strict=True):
            close(a, b)
    half = every[0].linear(None, jnp.array([0.7, 1.0]), noise)
    step = whole[0].linear(None, jnp.array([0.7]), noise)
    close(half.A @ (half.A @ x + half.b) + half.b, step.A @ x + step.b)
    root = np.concatenate([half.A @ half.S, half.S], axis=1)
    np.testing.assert_allclose(root @ root.T, step.S @ step.S.T, rtol=1e-9, atol=1e-22)
