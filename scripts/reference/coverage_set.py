"""Recordings of the demo's Furuta pendulum under torque noise, for the coverage of confidence intervals.

Each recording has its own input, initial state, torque noise and encoder noise. The torques are white
noise of the stated density σ [N m √s] at both joints: independent from one interval Δ to the next,
constant within it, with the standard deviation σ/√Δ, so that the impulse over a time T has the standard
deviation σ √T whatever Δ is. The encoders add Gaussian noise and nothing else: neither quantisation nor
offset.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from furuta import SCENE_PATHS, Furuta, simulate
from make_demo import TRUTH


@dataclass(frozen=True)
class CoverageSet:
    """Recordings of one machine, and what they were made with."""

    time: np.ndarray  # (n,) [s]
    u: np.ndarray  # (count, n) input, held over each sample [V]
    readings: np.ndarray  # (count, n, 2) arm and pendulum encoder [rad]
    angles: np.ndarray  # (count, n, 2) true angles [rad]
    rates: np.ndarray  # (count, n, 2) true rates [rad/s]
    truth: dict[str, float]  # by path in demo/furuta.yaml; the pendulum encoder's offset is 0
    density: float  # of the torque noise at each joint [N m √s]
    sensor_sd: float  # [rad]


def inputs(count: int, time: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sines at random phases from 0.2 to 1 Hz plus random steps every 0.5 s. [V], shape (count, n)"""
    frequencies = np.array([0.2, 0.45, 0.73, 1.0])
    phases = rng.uniform(0, 2 * np.pi, (count, 4, 1))
    sines = 0.65 * np.sin(2 * np.pi * frequencies[:, None] * time + phases).sum(axis=1)
    which = np.floor(time / 0.5).astype(int)
    return sines + rng.uniform(-0.7, 0.7, (count, which[-1] + 1))[:, which]


def make(
    count: int = 50,
    *,
    duration: float = 5.0,
    sample_time: float = 5e-3,
    density: float = 2e-5,
    interval: float = 1e-3,
    sensor_sd: float = 1e-3,
    step: float = 5e-5,
    seed: int = 0,
    machine: Furuta = TRUTH,
) -> CoverageSet:
    """`count` recordings of `duration` [s], all integrated at once.

    **Arguments:**

    - `density`: of the torque noise at each joint. [N m √s]
    - `interval`: time over which a noise torque is constant; divides `sample_time`. [s]
    - `sensor_sd`: standard deviation of each encoder reading. [rad]
    - `step`: largest integration step. [s]
    """
    rng = np.random.default_rng(seed)
    time = sample_time * np.arange(round(duration / sample_time) + 1)
    held = round(sample_time / interval)
    u = inputs(count, time, rng)
    start = np.concatenate([rng.uniform(-0.2, 0.2, (count, 2)), rng.uniform(-0.5, 0.5, (count, 2))], axis=1)
    torque = rng.normal(0.0, density / np.sqrt(sample_time / held), (count, len(time), held, 2))
    noise = rng.normal(0.0, sensor_sd, (count, len(time), 2))

    def run(u, start, torque):
        return simulate(machine, u, start=start, sample_time=sample_time, step=step, torque_noise=torque)

    angles, rates = jax.vmap(run)(jnp.asarray(u), jnp.asarray(start), jnp.asarray(torque))
    truth = {path: float(getattr(machine, field)) for path, field in SCENE_PATHS.items()}
    angles, rates = np.asarray(angles), np.asarray(rates)
    return CoverageSet(time, u, angles + noise, angles, rates, truth, density, sensor_sd)
