"""Noise levels by likelihood: those under which a filter expected what it read."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import OptimizeResult, minimize

from ..._compiled import compiled
from ..._typing import Array
from ...protocol import Noise, Samples
from .filter import Filter
from .step_rules import Belief


@dataclasses.dataclass(frozen=True)
class Tuned:
    """Noise levels of largest likelihood."""

    noise: Noise
    sd: np.ndarray  # standard deviations of the logarithms of the levels: process first, then sensors
    log_likelihood: float
    converged: bool


@compiled
def _value(logs: Array, f: Filter, belief: Belief, samples: Samples, sizes: tuple[int, int]) -> Array:
    noise = _scaled(f.noise, logs, sizes)
    return -f.with_noise(noise).run(belief, samples).log_likelihood


@compiled
def _slope(logs: Array, f: Filter, belief: Belief, samples: Samples, sizes: tuple[int, int]):
    # forward mode: the levels are few, and nothing of the recording has to be kept
    def value(logs: Array) -> tuple[Array, Array]:
        out = _value(logs, f, belief, samples, sizes)
        return out, out

    slope, out = jax.jacfwd(value, has_aux=True)(logs)
    return out, slope


def _scaled(noise: Noise, logs: Array, sizes: tuple[int, int]) -> Noise:
    process, sensor = sizes
    factor = jnp.exp(logs)
    scaled = noise.process * factor[:process].reshape(jnp.shape(noise.process)) if process else noise.process
    return Noise(scaled, noise.sensor * factor[process:] if sensor else noise.sensor)


def tune(
    f: Filter,
    belief: Belief,
    samples: Samples,
    *,
    process: bool = True,
    sensors: bool = True,
    report: Callable[[float], None] | None = None,
) -> Tuned:
    """Noise levels that maximise the likelihood of a recording, started at the filter's own.

    **Arguments:**

    - `process`, `sensors`: which levels are free: the model's process noise (as many as `noise.process` has), and the
      standard deviation of every channel.
    - `report`: called with the log-likelihood of every iteration.

    Levels are searched by their logarithm (BFGS with the filter's own derivative), so they stay positive. A level that
    the recording does not determine has a large `sd`.
    """
    sizes = int(np.size(f.noise.process)) if process else 0, int(np.size(f.noise.sensor)) if sensors else 0
    count = sum(sizes)
    if not count:
        raise ValueError("nothing to tune: both `process` and `sensors` are off")

    def objective(logs: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = _slope(jnp.asarray(logs), f, belief, samples, sizes)
        return float(value), np.asarray(slope)

    def tell(intermediate_result: OptimizeResult) -> None:
        if report:
            report(-float(intermediate_result.fun))

    found = minimize(objective, np.zeros(count), jac=True, method="BFGS", callback=tell)
    curvature = _curvature(objective, found.x)
    noise = _scaled(f.noise, jnp.asarray(found.x), sizes)
    sd = np.sqrt(np.maximum(np.diag(np.linalg.pinv(curvature, hermitian=True)), 0.0))
    settled = bool(found.success) or bool(np.max(np.abs(found.jac)) < 1e-3 * (1 + abs(found.fun)))
    return Tuned(noise, sd, -float(found.fun), settled)


def _curvature(objective: Callable[[np.ndarray], tuple[float, np.ndarray]], x: np.ndarray) -> np.ndarray:
    """Second derivative, by central differences of the slope."""
    rows = []
    for i in range(len(x)):
        step = np.zeros_like(x)
        step[i] = 1e-3
        rows.append((objective(x + step)[1] - objective(x - step)[1]) / 2e-3)
    H = np.array(rows)
    return (H + H.T) / 2
