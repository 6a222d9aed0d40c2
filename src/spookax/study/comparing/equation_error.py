"""Least squares of the equation error: the baseline that an identification has to beat.

Readings are smoothed and differentiated first, as for the classical inverse dynamic identification model (Gautier and
Poignet, Control Engineering Practice 9 (2001)); then the parameters are those with which one step of the simulator,
from each smoothed state, changes the rates of the joints as the readings do. That needs no trajectories and no noise
levels, and takes the states for exact: noise and smoothing bias it. The error is one of accelerations, lest unknown
inertias weigh it.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

from ..._compiled import compiled
from ..._typing import Array, Float
from ...estimation.batch import step_blocks
from ...estimation.linearise import chunked
from ...models import Multibody
from ...protocol import Noise
from ...protocol.asked import first_guess
from ...scene import Scene
from ..file.study import Study
from ..recordings.recording import Recording
from ..running.setup import Setup, set_up

_MEAN = 10  # steps that the error is averaged over, lest the noise of second derivatives drown it
_EVALUATIONS = 50


class EquationErrorFit(NamedTuple):
    """Parameters in the coordinates of the search."""

    z: Float[np.ndarray, " p"]
    covariance: Float[np.ndarray, "p p"]  # of z, as if the errors were independent; infinite for what keeps its start


def equation_error(study: Study, scene: Scene, recordings: Sequence[Recording]) -> EquationErrorFit | None:
    """Parameters by least squares of the equation error.

    None if the readings do not tell the motion of all axes. What has no part in a step (offsets of sensors) stays at
    its start.
    """
    return least_squares_of(set_up(study, scene, list(recordings)))


def least_squares_of(setup: Setup) -> EquationErrorFit | None:
    """The same of a study that is set up."""
    plans = setup.plans()
    if not all(all(measured) for _, measured in plans):
        return None

    p = setup.problem
    start = np.clip(p.z0, p.lower, p.upper)

    @functools.lru_cache(maxsize=1)  # error and slope of one point are asked for one after the other
    def both(z: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
        found = [_averaged(setup, i, path.x, np.array(z)) for i, (path, _) in enumerate(plans)]
        error, slope = (np.concatenate(part) for part in zip(*found, strict=True))
        return error, slope

    told = np.any(both(tuple(start))[1] != 0, axis=0)

    def at(some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        z = start.copy()
        z[told] = some
        error, slope = both(tuple(z))
        return error, slope[:, told]

    if told.any():
        ends = p.lower[told], p.upper[told]
        slope: Any = lambda z: at(z)[1]  # noqa: E731 (the library's annotation knows names of methods only)
        found = least_squares(lambda z: at(z)[0], start[told], slope, bounds=ends, x_scale="jac", max_nfev=_EVALUATIONS)
        start[told] = found.x
        covariance = np.diag(np.full(len(start), np.inf))
        size = np.linalg.norm(found.jac, axis=0)
        size = np.where(size > 0, size, 1.0)
        scaled = found.jac / size
        variance = 2 * found.cost / max(len(found.fun) - told.sum(), 1)
        covariance[np.ix_(told, told)] = variance * np.linalg.pinv(scaled.T @ scaled) / size / size[:, None]
        return EquationErrorFit(start, covariance)
    return EquationErrorFit(start, np.diag(np.full(len(start), np.inf)))


def _averaged(setup: Setup, index: int, x: Any, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Error of the accelerations of a recording and its slope in z, averaged over neighbouring steps."""
    stage, u = setup.stages[-1], np.asarray(setup.problem.samples[index].u)
    assert isinstance(stage.model, Multibody)
    now, then = (jax.tree.map(lambda a, cut=cut: np.asarray(a)[cut], x) for cut in (slice(None, -1), slice(1, None)))
    one = functools.partial(_error, stage.model, z, stage.noise)
    parts = step_blocks.mapped(one, *map(step_blocks.split, (now, then, u)))
    error, slope = step_blocks.joined(parts)
    count = (int(setup.grids[index].step_of[-1]) - 1) // _MEAN  # what comes after the last reading fills a block up
    error, slope = (
        np.asarray(a)[: count * _MEAN].reshape(count, _MEAN, *a.shape[1:]).mean(axis=1) for a in (error, slope)
    )
    return error.ravel(), slope.reshape(-1, z.size)


@compiled
def _error(model: Multibody, z: Array, noise: Noise, now: Any, then: Any, u: Array) -> tuple[Array, Array]:
    """Predicted minus planned acceleration of every axis, (steps, axes) [rad/s^2 or m/s^2], and its slope in z."""

    def one(z: Array, x: Any, x1: Any, u: Array) -> Float[Array, " axes"]:
        p = model.prepare(jnp.concatenate([z, jnp.zeros(model.own.size)]))
        after, _ = model.step(x, p, u, jnp.zeros(model.noise_size), noise, first_guess(model))
        return (model.rates(after, p) - model.rates(x1, p)) / model.duration(p)

    def both(data: tuple[Any, Any, Array]) -> tuple[Array, Array]:
        slope, error = jax.jacfwd(lambda z: (one(z, *data),) * 2, has_aux=True)(z)
        return error, slope

    return chunked(both, (now, then, u), u.shape[0])
