"""A pendulum as a nonlinear model, and recordings of it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from spookax.protocol import AbstractVectorModel, Noise, Samples, StepDuration


class Pendulum(AbstractVectorModel, StepDuration):
    """Angle and rate; z = (damping, log of gravity over length); reads sin(angle) as a camera from the side would."""

    h: float = 0.05
    tangent_size: int = eqx.field(static=True, default=2)
    noise_size: int = eqx.field(static=True, default=1)
    num_channels: int = eqx.field(static=True, default=1)

    @property
    def reads_pair(self):
        return False

    def prepare(self, z):
        return z[0], jnp.exp(z[1])

    def duration(self, p):
        return jnp.asarray(self.h)

    def step(self, x, p, u, w, noise, guess):
        damping, stiffness = p
        rate = x[1] + self.h * (u[0] - damping * x[1] - stiffness * jnp.sin(x[0])) + noise.process * self.h**0.5 * w[0]
        return jnp.stack([x[0] + self.h * rate, rate]), guess

    def observe(self, x, x1, p, s):
        return jnp.sin(x[:1])


PENDULUM, PENDULUM_Z = Pendulum(), np.array([0.3, 2.0])
LEVELS = Noise(jnp.asarray(0.2), jnp.array([0.05]))


@jax.jit
def _step(x: jax.Array, u: jax.Array, w: jax.Array) -> jax.Array:
    return PENDULUM.step(x, PENDULUM.prepare(PENDULUM_Z), u, w, LEVELS, None)[0]


def swing(rng: np.random.Generator, steps: int, start=(1.0, 0.0)) -> tuple[Samples, np.ndarray]:
    """Readings and true states."""
    u = rng.normal(size=(steps, 1))
    x, states = np.asarray(start), []
    for k in range(steps):
        states.append(x)
        x = _step(x, u[k], rng.normal(size=1))
    states = np.array(states)
    y = np.sin(states[:, :1]) + 0.05 * rng.normal(size=(steps, 1))
    return jax.device_put(Samples(u, y[:, None], np.zeros((steps, 1)), np.ones((steps, 1, 1)))), states
