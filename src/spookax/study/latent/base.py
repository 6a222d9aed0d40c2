"""Displacement and velocity of a base whose displacement alone is read."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spookax._typing import Array, Float, Scalar
from spookax.estimation import Exact, Filter
from spookax.math.linear_sde import discretised
from spookax.models import LinearGaussian, LinearGaussianSteps
from spookax.protocol import Noise, Samples
from spookax.study.latent.evidence import maximum
from spookax.study.latent.record import Record


class BaseMotion(NamedTuple):
    """Displacement and velocity [m, m/s]; root of the density of what changes the acceleration [m/s^2/sqrt(s)], and
    standard deviation of a reading [m], both of the largest evidence.
    """

    u: Float[np.ndarray, "k 2"]
    jerk: float
    noise: float


def smoothed(record: Record) -> Record:
    """The record with displacement and velocity of its base in place of what was read."""
    return dataclasses.replace(record, u=base_motion(record.u[:, 0], record).u)


def base_motion(reading: Float[np.ndarray, " k"], record: Record) -> BaseMotion:
    """The motion of a base from readings of its displacement at the times of a record.

    A smoother of a point whose acceleration changes by white noise; how fast, and the noise of the readings, are those
    of the largest evidence. Source: Marino and Cicirello (2023), (38), where the acceleration itself is white.
    """
    count, unit = len(reading), float(np.std(reading)) or 1.0
    y = (reading - np.mean(reading)) / unit
    F, B, C = jnp.eye(3, k=1), jnp.zeros((3, 1)), jnp.array([[1.0, 0.0, 0.0]])
    lengths, number = record.lengths

    def smoother(log: Array) -> Filter:
        G = jnp.array([[0.0], [0.0], [1.0]]) * jnp.exp(log[0])
        if record.even:
            step = discretised(F, B, G, 1.0)
            model = LinearGaussian(step.A, step.b, step.S, C)
        else:
            step = jax.vmap(lambda length: discretised(F, B, G, length))(jnp.asarray(lengths / record.h))
            model = LinearGaussianSteps(step.A, step.b, step.S, C)
        return Filter(model, jnp.zeros(0), Noise(jnp.asarray(1.0), jnp.exp(log[1:])), Exact())

    u = jnp.zeros((count, 1)) if record.even else jnp.asarray(np.column_stack([np.zeros(count), number]))
    weight = jnp.asarray(np.isfinite(record.y[:, :1]), dtype=float)[:, None]
    samples = Samples(u, jnp.asarray(y)[:, None, None], jnp.zeros((count, 1)), weight)
    x0, sd = jnp.array([y[0], 0.0, 0.0]), jnp.ones(3)

    def cost(log: Array) -> Scalar:
        f = smoother(log)
        return -jnp.sum(f.run(f.init(x0, sd), samples).innovation.log_likelihood)

    rough = max(float(np.std(np.diff(y, 3))) / np.sqrt(20.0), 1e-9)  # white noise: 1 + 9 + 9 + 1
    log = maximum(cost, np.log([rough, rough])).at
    f = smoother(jnp.asarray(log))
    x = np.asarray(f.smooth(f.run(f.init(x0, sd), samples, trail=True)).x)[:-1]
    u = np.column_stack([np.mean(reading) + unit * x[:, 0], unit / record.h * x[:, 1]])
    return BaseMotion(u, float(np.exp(log[0])) * unit / record.h**2.5, float(np.exp(log[1])) * unit)
