"""Readings predicted some steps ahead, from the states that a filter knows by then."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._compiled import compiled
from ..._typing import Array
from ...estimation import Filter
from ...estimation.batch import step_blocks
from ...estimation.batch.one_recording import first_state
from ...estimation.linearise import chunked
from ...models import Multibody
from ...protocol import Noise, Samples
from ...protocol.asked import first_guess
from .passes import by_filter


@dataclasses.dataclass(frozen=True)
class Ahead:
    """Readings some steps ahead, by sensor as in `Prediction`, from the time `begin` on [s]; NaN before."""

    begin: float
    readings: dict[str, np.ndarray]

    def judged(self, measured: np.ndarray, time: np.ndarray) -> np.ndarray:
        """What was measured from `begin` on; NaN before."""
        return np.where(time[:, None] < self.begin, np.nan, measured)


def steps_ahead(
    model: Multibody, z: np.ndarray, noise: Noise, x0: Any, sd: float, samples: Samples, steps: int
) -> np.ndarray:
    """Readings (steps, slots, channels) in every step k, given those up to and in step k - `steps` and all inputs.

    An extended Kalman filter goes through the recording with parameters and noise levels held; from each of its states
    the model is simulated without noise.

    **Arguments:** `x0`: about where it starts; `sd`: standard deviation of its positions [rad or m], of rates ten times
    as much.

    **Returns:** NaN in the first `steps` steps.
    """
    x, P0, _ = first_state(model, z, x0, np.asarray(sd))
    value, vector = np.linalg.eigh(np.asarray(P0))
    kalman = Filter(model, z, noise)
    known = by_filter(kalman, kalman.init(x, vector * np.sqrt(np.maximum(value, 0.0))), samples, smooth=False).x
    count = samples.u.shape[0]
    # past the end, the last input and place are repeated: a block has one length, and nothing of it is returned
    later = np.minimum(np.arange(count)[:, None] + np.arange(steps + 1), count - 1)
    one = functools.partial(_simulated, model, z, noise)
    parts = step_blocks.mapped(
        one,
        step_blocks.split(known),
        step_blocks.split(np.asarray(samples.u)[later]),
        step_blocks.split(np.asarray(samples.s)[later[:, -1]]),
    )
    found = np.asarray(step_blocks.joined(parts))
    return np.concatenate([np.full((min(steps, count), *found.shape[1:]), np.nan), found[: max(count - steps, 0)]])


@compiled
def _simulated(model: Multibody, z: Array, noise: Noise, x: Any, u: Array, s: Array) -> Array:
    """Readings at the places `s` in the last of the steps that begin at states x with inputs u."""
    p = model.prepare(z)
    none = jnp.zeros(model.noise_size)

    def one(begin: tuple[Any, Array, Array]) -> Array:
        x, u, s = begin

        def step(carry: tuple[Any, Any, Array], u: Array) -> tuple[tuple[Any, Any, Array], None]:
            _, x, guess = carry
            x1, guess = model.step(x, p, u, none, noise, guess)
            return (x, x1, guess), None

        (x, x1, _), _ = jax.lax.scan(step, (x, x, first_guess(model)), u)
        return jax.vmap(lambda s: model.observe(x, x1, p, s))(s)

    return chunked(one, (x, u, s), s.shape[0])
