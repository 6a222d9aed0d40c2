"""Noise levels from the evidence of the linearised problem (the states and parameters integrated out).

-log p(y | levels) = 1/2 sum nu' F^-1 nu at the best parameters + 1/2 sum log |F| + sum log(sd of every reading),
evaluated by filtering again with scaled noise; nothing is linearised anew.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from .._typing import Array, Float, Scalar
from ..estimation import Problem, Stage, covariance_filter
from ..estimation.linearise import Linearised
from ..estimation.simulator_form import Iterate, initial_covariance, sweep
from ..estimation.sweeps import reduced
from ..math import small

_RANGE = np.log(1e3)  # a level moves by at most this factor per round


@eqx.filter_jit
def _evidence(
    lin: Linearised, w: Array, Y0: Array, P0: Array, weight: Float[Array, " p"], offset: Array, levels: Array
) -> Scalar:
    """-log evidence of one recording at levels relative to the present ones: [process, channels] (logs)."""
    process = jnp.exp(levels[0])
    channel = jnp.tile(jnp.exp(levels[1:]), lin.e.shape[1] // (levels.shape[0] - 1))
    B = process * lin.B
    H, J = lin.H / channel[:, None], process * lin.J / channel[:, None]
    D, e = lin.D / channel[:, None], lin.e / channel
    f = covariance_filter(Linearised(lin.A, B, lin.C, H, J, D, e), w / process, Y0, P0)
    N, g, q = reduced(f)
    N = N + jnp.diag(weight**2)
    g = g - weight**2 * offset
    best = small.solve(N, g[:, None])[:, 0] if g.shape[0] else g
    return q - jnp.dot(g, best) / 2 + f.log_det / 2


def estimate_levels(
    stage: Stage, problem: Problem, it: Iterate, process: bool, sensors: bool
) -> tuple[float, np.ndarray]:
    """Factors on the process noise and on every channel's sd that the evidence asks for (1 where not estimated)."""
    channels = int(problem.samples[0].y.shape[-1])
    data = []
    for own, path, samples in zip(it.own, it.paths, problem.samples, strict=True):
        z = jnp.concatenate([it.z, own])
        lin, _, _ = sweep(stage.model, z, stage.noise, path, samples, problem.initial_sd)
        x0 = jax.tree.map(lambda a: a[0], path.x)
        P0, Y0 = initial_covariance(stage.model, z, x0, problem.initial_sd)
        weight = jnp.concatenate([jnp.asarray(problem.weight), jnp.asarray(problem.own_weight)])
        mean = jnp.concatenate([jnp.asarray(problem.prior), jnp.zeros_like(own)])
        seen = np.asarray(samples.seen).sum(axis=(0, 1))
        data.append((lin, path.w, Y0, P0, weight, z - mean, seen))
    chosen = np.concatenate([[process], np.full(channels, sensors)])

    def cost(x: np.ndarray) -> float:
        levels = np.zeros(1 + channels)
        levels[chosen] = np.clip(x, -_RANGE, _RANGE)
        total = 0.0
        for lin, w, Y0, P0, weight, offset, seen in data:
            total += float(_evidence(lin, w, Y0, P0, weight, offset, jnp.asarray(levels))) + float(seen @ levels[1:])
        return total if np.isfinite(total) else 1e300

    count = int(chosen.sum())
    if count == 0:
        return 1.0, np.ones(channels)
    simplex = np.vstack([np.zeros(count), np.log(2.0) * np.eye(count)])
    options = {"initial_simplex": simplex, "xatol": 0.02, "fatol": 0.02, "maxiter": 30 * count}
    best = minimize(cost, np.zeros(count), method="Nelder-Mead", options=options).x
    levels = np.zeros(1 + channels)
    levels[chosen] = np.clip(best, -_RANGE, _RANGE)
    return float(np.exp(levels[0])), np.exp(levels[1:])
