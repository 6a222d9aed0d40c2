"""How far the time step biases an estimate: where half the step would lead, by one step of the iteration.

The trajectories of the estimate are taken over to a grid twice as fine and followed there; the linear problem along
them tells the parameters that half the step asks for. From a minimum so near, one step goes nearly all the way, and it
costs what two iterations of the identification do. Nothing is compiled for it.
"""

import dataclasses
from typing import Any

import jax
import numpy as np

from ...estimation import Settings, Stage
from ...estimation.batch.bounded_step import box_step
from ...estimation.batch.one_recording import Plan, follow, stiff_gains
from ...estimation.batch.problem import Fit, Iterate
from ...estimation.batch.simulator_form import Estimator
from ...estimation.linearise import Path, all_successful, before
from ...models import Multibody
from ...models.multibody import BodyState
from ..file.study import Study
from ..running.setup import Setup, set_up


def half_step_shift(study: Study, setup: Setup, fit: Fit, settings: Settings) -> np.ndarray | None:
    """Change of the shared parameters z of a fit that has converged, at half the time step; None where the simulation
    there runs away.

    `settings`: those that the fit ended with.
    """
    slots = setup.problem.samples[0].y.shape[1]
    half = set_up(study, setup.scene, list(setup.recordings), step=float(setup.scene.step) / 2, slots=slots)
    half = half.replaced(fit.iterate.z)
    model = half.stages[-1].model
    assert isinstance(model, Multibody)
    roots = tuple(
        new.placed(old.taken(root), slots, 1.0)
        for old, new, root in zip(setup.grids, half.grids, fit.root_weights, strict=True)
    )
    estimator = Estimator(dataclasses.replace(half.problem, root_weights=roots), settings)
    stage, paths = Stage(model, fit.noise), []
    for own, path, samples in zip(fit.iterate.own, fit.iterate.paths, half.problem.samples, strict=True):
        z = np.concatenate([fit.iterate.z, own])
        plan = _finer(path, samples.u.shape[0])
        gains = stiff_gains(model, z, fit.noise, before(plan.x))
        paths.append(follow(model, z, fit.noise, Plan(before(plan.x), plan.w, gains), samples.u, plan.guess[0]))
    it = Iterate(fit.iterate.z, fit.iterate.own, tuple(paths))
    linear = estimator.linear(stage, it, estimator.kept_at_the_end(stage))
    p = half.problem
    # what is left of the slope at the fit's own step is none of the step's doing
    shift = box_step(linear.N, linear.g + fit.slope, p.lower - it.z, p.upper - it.z, 0.0)
    return shift if np.isfinite(shift).all() else None


def _finer(path: Path, steps: int) -> Path:
    """A trajectory on a grid with two steps for each of its own, as far as it goes; then it stays. Velocities belong to
    the middle of the step that has led to a state.
    """
    x = jax.tree.map(np.asarray, path.x)

    def twice(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Rows of both in turn: of the old steps and of the new ones between, to the state after the last."""
        rows = np.stack([first, second], axis=1).reshape(2 * len(first), *first.shape[1:])[: steps + 1]
        return np.concatenate([rows, np.repeat(rows[-1:], steps + 1 - len(rows), axis=0)])

    def places(a: np.ndarray) -> np.ndarray:
        return twice(a[:-1], (a[:-1] + a[1:]) / 2)

    def speeds(a: np.ndarray) -> np.ndarray:
        return twice((3 * a[:-1] + a[1:]) / 4, (a[:-1] + 3 * a[1:]) / 4)

    turned = np.where(np.sum(x.e[1:] * x.e[:-1], axis=-1, keepdims=True) < 0, -x.e[1:], x.e[1:])
    e = twice(x.e[:-1], x.e[:-1] + turned)
    e = e / np.linalg.norm(e, axis=-1, keepdims=True)
    rows = (places(x.p), e, speeds(x.v), speeds(x.w), twice(x.near[:-1], x.near[:-1]), places(x.c))
    finer = BodyState(*rows)  # pyright: ignore[reportArgumentType]  # host arrays

    def held(a: Any) -> np.ndarray:
        rows = np.repeat(np.asarray(a), 2, axis=0)[:steps]
        return np.concatenate([rows, np.zeros((steps - len(rows), *rows.shape[1:]))])

    # whitened impulses of two steps add up to that of one
    return Path(finer, held(path.w) / np.sqrt(2), held(path.guess), all_successful(steps))
