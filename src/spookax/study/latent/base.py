"""Displacement and velocity of a base whose displacement alone is read."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from spookax._typing import Array, Float, Scalar
from spookax.estimation import Exact, Filter
from spookax.math.linear_sde import discretised
from spookax.models import LinearGaussian
from spookax.protocol import Noise, Samples
from spookax.study.latent.evidence import maximum
from spookax.study.latent.record import Record


def smoothed(record: Record) -> Record:
    """The record with displacement and velocity of its base in place of what was read."""
    return dataclasses.replace(record, u=base_motion(record.u[:, 0], record.h))


def base_motion(reading: Float[np.ndarray, " k"], h: float) -> Float[np.ndarray, "k 2"]:
    """Displacement and velocity of a base from readings of its displacement [m, m/s].

    A smoother of a point whose acceleration changes by white noise; how fast, and the noise of the readings, are those
    of the largest evidence. Source: Marino and Cicirello (2023), (38), where the acceleration itself is white.
    """
    count, unit = len(reading), float(np.std(reading)) or 1.0
    y = (reading - np.mean(reading)) / unit
    F, B = jnp.eye(3, k=1), jnp.zeros((3, 1))

    def smoother(log: Array) -> Filter:
        step = discretised(F, B, jnp.array([[0.0], [0.0], [1.0]]) * jnp.exp(log[0]), 1.0)
        model = LinearGaussian(step.A, step.b, step.S, jnp.array([[1.0, 0.0, 0.0]]))
        return Filter(model, jnp.zeros(0), Noise(jnp.asarray(1.0), jnp.exp(log[1:])), Exact())

    samples = Samples(
        jnp.zeros((count, 1)), jnp.asarray(y)[:, None, None], jnp.zeros((count, 1)), jnp.ones((count, 1, 1))
    )
    x0, sd = jnp.array([y[0], 0.0, 0.0]), jnp.ones(3)

    def cost(log: Array) -> Scalar:
        f = smoother(log)
        return -jnp.sum(f.run(f.init(x0, sd), samples).innovation.log_likelihood)

    rough = max(float(np.std(np.diff(y, 3))) / np.sqrt(20.0), 1e-9)  # white noise: 1 + 9 + 9 + 1
    f = smoother(jnp.asarray(maximum(cost, np.log([rough, rough])).at))
    x = np.asarray(f.smooth(f.run(f.init(x0, sd), samples, trail=True)).x)[:-1]
    return np.column_stack([np.mean(reading) + unit * x[:, 0], unit / h * x[:, 1]])
