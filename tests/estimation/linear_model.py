"""Two coupled masses with forces, linear in states and parameters: what any sweep does to it can be written out."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from spookax.protocol import AbstractResidualModel, Noise, PlanTracking, Samples, Transition

H = 0.1
MASS = np.diag([2.0, 0.5])
STIFFNESS = np.array([[30.0, -10.0], [-10.0, 20.0]])
DAMPING = np.array([[0.6, -0.2], [-0.2, 0.4]])
AMOUNT = 0.1  # impulse of unit noise
SENSOR_SD = np.array([0.02, 0.05, 0.1])  # both positions, rate of the first mass
NOISE = Noise(jnp.asarray(1.0), jnp.asarray(SENSOR_SD))


class Masses(NamedTuple):
    q: jax.Array
    v: jax.Array


class LinearModel(AbstractResidualModel, PlanTracking):
    """z = (force on either mass, offset of the first sensor)."""

    tangent_size: int = eqx.field(static=True, default=4)
    noise_size: int = eqx.field(static=True, default=2)
    num_channels: int = eqx.field(static=True, default=3)

    def prepare(self, z):
        return z

    def step(self, x, p, u, w, noise, guess):
        push = H * (p[:2] + u - STIFFNESS @ x.q) + AMOUNT * noise.process * w
        v = np.linalg.inv(MASS + H * DAMPING) @ (MASS @ x.v + push)
        return Masses(x.q + H * v, v), guess

    def observe(self, x, x1, p, s):
        rate = (0.5 - s) * x.v + (0.5 + s) * x1.v
        return jnp.concatenate([x1.q - (1 - s) * H * x1.v, rate[:1]]) + jnp.array([1.0, 0.0, 0.0]) * p[2]

    def difference(self, y, predicted):
        return y - predicted

    def retract(self, x, d):
        return Masses(x.q + d[:2], x.v + d[2:])

    def local(self, x1, x0):
        return jnp.concatenate([x1.q - x0.q, x1.v - x0.v])

    def tracking_gain(self, x, p, noise):
        return jnp.concatenate([0.3 / H * MASS, jnp.asarray(MASS)], axis=1) / (AMOUNT * noise.process)

    def earlier(self, x, p):
        return Masses(x.q - H * x.v, x.v)

    def joined(self, x, x1, p):
        return Masses(x1.q, (x1.q - x.q) / H)

    def transition(self, x, x1, p, u, noise):
        push = H * (p[:2] + u - STIFFNESS @ x.q - DAMPING @ x1.v)
        w = (MASS @ (x1.v - x.v) - push) / (AMOUNT * noise.process)
        return Transition(w, jnp.zeros(0), jnp.zeros(0))

    def restore(self, x, x1, p, u, noise, impulse):
        x1 = self.joined(x, x1, p)
        return x1, self.transition(x, x1, p, u, noise)


def recording(rng: np.random.Generator, steps: int, force: np.ndarray, offset: float) -> tuple[Samples, Masses]:
    """Noisy readings at irregular places, one in four missing, and the true states."""
    model, x, states, rows = LinearModel(), Masses(np.array([1.0, -0.5]), np.zeros(2)), [], []
    z, u, s = np.append(force, offset), rng.normal(size=(steps, 2)), rng.uniform(size=(steps, 1))
    for k in range(steps):
        states.append(x)
        x1, _ = model.step(x, z, u[k], rng.normal(size=2), NOISE, None)
        rows.append(model.observe(x, x1, z, s[k, 0]))
        x = x1
    y = np.array(rows) + SENSOR_SD * rng.normal(size=(steps, 3))
    seen = (rng.uniform(size=(steps, 1, 3)) < 0.75).astype(float)
    states = jax.tree.map(lambda *a: np.stack(a), *states, x)
    return jax.device_put((Samples(u, y[:, None], s, seen), states))
