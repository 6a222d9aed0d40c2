"""Simulations of a recording with the model of its estimate, and what its sensors read there."""

import functools
from typing import Any

import jax
import numpy as np

from ..._compiled import compiled
from ...estimation.batch import step_blocks
from ...estimation.batch.one_recording import Plan, follow
from ...estimation.batch.step_blocks import joined, split, split_path
from ...estimation.linearise import Path, after, before
from ...models import Multibody
from ...protocol import Noise, Samples


@compiled
def _predictions(model: Multibody, z: jax.Array, path: Path, s: jax.Array) -> jax.Array:
    p = model.prepare(z)
    return jax.vmap(lambda x, x1, s: jax.vmap(lambda s: model.observe(x, x1, p, s))(s))(
        before(path.x), after(path.x), s
    )


def predictions(model: Multibody, z: np.ndarray, path: Path, samples: Samples) -> np.ndarray:
    """Predicted readings (steps, slots, channels) along a trajectory."""

    one = functools.partial(_predictions, model, z)
    return np.asarray(joined(step_blocks.mapped(one, split_path(path), split(samples.s))))


def open_loop(model: Multibody, z: np.ndarray, noise: Noise, x0: Any, samples: Samples) -> Path:
    """Simulation from x_0 without noise and without feedback."""
    steps, n, m = samples.u.shape[0], model.tangent_size, model.noise_size
    x = jax.tree.map(lambda a: np.broadcast_to(a, (steps, *a.shape)), x0)
    plan = Plan(x, np.zeros((steps, m)), [np.zeros((end - begin, m, n)) for begin, end in step_blocks.spans(steps)])
    return follow(model, z, noise, plan, samples.u, np.zeros(len(model.system.boxes)))
