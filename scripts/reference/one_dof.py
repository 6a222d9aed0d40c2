"""A mass with viscous and dry friction, driven by gain times input: sampled exactly, many runs at once.

    m v' = K u + w - d v + f,   x' = v,   f = -F sign(v) in motion, any |f| <= F at rest

Input u and noise force w are piecewise constant, so the motion between their jumps is known in closed
form: with c = d/m, the constant force g = K u + w, sliding direction s and a = (g - F s)/m,

    v(t) = v0 e^(-ct) + a t φ1(ct),    x(t) = x0 + v0 t φ1(ct) + a t² φ2(ct)
    φ1(z) = (1 - e^-z)/z,              φ2(z) = (1 - φ1(z))/z

A rate reaches zero at t = log(1 - c v0/a)/c if a opposes it, at most once while g is constant. From there
the mass stays if |g| <= F, else it slides the way g pushes. Nothing is approximated but by rounding.
Nothing here imports `spookax`.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class OneDof:
    """Constants in SI units; F = 0 gives a linear system."""

    mass: float = 1.0  # [kg]
    viscous: float = 1.0  # d [N s/m]
    coulomb: float = 0.0  # F [N]
    gain: float = 1.0  # K [N per unit of input]


def _phi1(z: np.ndarray) -> np.ndarray:
    series = 1 - z / 2 + z**2 / 6
    return np.where(np.abs(z) < 1e-6, series, -np.expm1(-z) / np.where(z == 0, 1, z))


def _phi2(z: np.ndarray) -> np.ndarray:
    series = 1 / 2 - z / 6 + z**2 / 24 - z**3 / 120 + z**4 / 720
    return np.where(np.abs(z) < 1e-2, series, (1 - _phi1(z)) / np.where(z == 0, 1, z))


def _slide(system: OneDof, x, v, a, t):
    z = system.viscous / system.mass * t
    return x + v * t * _phi1(z) + a * t**2 * _phi2(z), v * np.exp(-z) + a * t * _phi1(z)


def advance(system: OneDof, x: np.ndarray, v: np.ndarray, force: np.ndarray, t: float) -> tuple[np.ndarray, np.ndarray]:
    """Position [m] and rate [m/s] after a time `t` under constant forces [N]; any equal shapes."""
    c = system.viscous / system.mass
    start = np.where(np.abs(force) > system.coulomb, np.sign(force), 0.0)  # way of sliding from rest
    way = np.where(v != 0, np.sign(v), start)
    a = np.where(way != 0, (force - system.coulomb * way) / system.mass, 0.0)
    stops = v * a < 0
    ratio = np.where(stops, -v / np.where(stops, a, 1), 0.0)  # time to stop without damping
    z = c * ratio
    until = ratio * np.where(z < 1e-8, 1 - z / 2, np.log1p(z) / np.where(z > 0, z, 1))
    stops &= until < t
    first = np.where(stops, until, t)
    x1, v1 = _slide(system, x, v, a, first)
    v1 = np.where(stops, 0.0, v1)
    again = np.where(stops & (start != 0), (force - system.coulomb * start) / system.mass, 0.0)
    x2, v2 = _slide(system, x1, v1, again, t - first)
    return np.where(stops, x2, x1), np.where(stops, v2, v1)


def simulate(
    system: OneDof,
    u: np.ndarray,
    sample_time: float,
    *,
    noise: np.ndarray | None = None,
    x0: np.ndarray | float = 0.0,
    v0: np.ndarray | float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Positions [m] and rates [m/s] at the sample times, shape `(runs, n)`.

    **Arguments:**

    - `u`: input, shape `(n,)` or `(runs, n)`; `u[..., k]` acts from t_k to t_k+1.
    - `sample_time`: t_k+1 - t_k. [s]
    - `noise`: noise force, shape `(runs, n, k)`: k equal intervals to a sample (see `white_forces`). [N]
    - `x0`, `v0`: initial position [m] and rate [m/s], numbers or shape `(runs,)`.
    """
    u = np.atleast_2d(u)
    noise = np.zeros((*u.shape, 1)) if noise is None else noise
    runs, n, held = np.broadcast_shapes((*u.shape, 1), noise.shape)
    x, v = np.broadcast_to(x0, runs).astype(float), np.broadcast_to(v0, runs).astype(float)
    states = np.empty((2, runs, n))
    for k in range(n):
        states[:, :, k] = x, v
        for i in range(held):
            x, v = advance(system, x, v, system.gain * u[:, k] + noise[:, k, i], sample_time / held)
    return states[0], states[1]


def white_forces(
    rng: np.random.Generator, shape: tuple[int, int, int], density: float, sample_time: float
) -> np.ndarray:
    """Forces `(runs, n, k)`, constant over each of k intervals to a sample. [N]

    Their impulse over a time T has the standard deviation `density` √T; `density` in N √s.
    """
    return rng.normal(0.0, density / np.sqrt(sample_time / shape[2]), shape)
