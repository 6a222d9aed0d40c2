"""How far the time step biases an estimate: where half the step would lead, by one step of the iteration.

The trajectories of the estimate are taken over to a grid twice as fine and followed there. The noise that this takes
and the readings that are missed then stand in the linear problem of the estimate, two half steps as one step of it:
what it asks of the parameters is the shift, and by how much innovations are smaller then is the step's share of them.
Jacobians differ by the order of the step, which changes the shift by as small a part of itself. Nothing is linearised
and nothing compiled for it. Where something may hit, an impact lies in one of the half steps, and the finer
trajectories are linearised themselves.
"""

import dataclasses
from typing import NamedTuple

import jax
import numpy as np

from ..._typing import Float
from ...estimation import Settings, Stage
from ...estimation.batch.all_recordings import AllRecordings
from ...estimation.batch.bounded_step import box_step
from ...estimation.batch.one_recording import Plan, filtered, follow, residuals_of, stiff_gains
from ...estimation.batch.problem import Fit, Part
from ...estimation.batch.reading_weights import weighed
from ...estimation.batch.simulator_form import Estimator
from ...estimation.batch.step_blocks import joined, split
from ...estimation.batch.uncertainty import parts_of
from ...estimation.linearise import Path, before
from ...models import Multibody
from ...models.multibody import BodyState
from ...protocol import Samples
from ...system import System
from ..file.study import Study
from ..recordings.grid import Grid
from ..running.setup import Setup, set_up


class HalfStep(NamedTuple):
    """What half the time step changes.

    `shift`: of the shared parameters z; `gain`: rise of the log-likelihood [nats]; `share`: of the innovations' square
    that goes.
    """

    shift: Float[np.ndarray, " p"]
    gain: float
    share: float


def at_half_step(study: Study, setup: Setup, fit: Fit, settings: Settings) -> HalfStep | None:
    """What half the time step changes of a fit that has converged; None where the simulation there runs away.

    `settings`: those that the fit ended with.
    """
    slots = setup.problem.samples[0].y.shape[1]
    half = set_up(study, setup.scene, list(setup.recordings), step=float(setup.scene.step) / 2, slots=slots)
    half = half.replaced(fit.iterate.z)
    model, p = half.stages[-1].model, setup.problem
    assert isinstance(model, Multibody)
    roots = tuple(
        new.placed(old.taken(root), slots, 1.0)
        for old, new, root in zip(setup.grids, half.grids, fit.root_weights, strict=True)
    )
    readings, it, stage = weighed(half.problem, roots), fit.iterate, Stage(model, fit.noise)

    def finer(own: np.ndarray, path: Path, fine: Grid, samples: Samples) -> Path:
        z = np.concatenate([it.z, own])
        gains = np.asarray(joined(stiff_gains(model, z, fit.noise, before(path.x))))
        return follow(model, z, fit.noise, _finer(path, gains, fine.steps), samples.u, path.guess[0])

    def told(part: Part, own: np.ndarray, followed: Path, grid: Grid, fine: Grid, samples: Samples) -> Part:
        z = np.concatenate([it.z, own])
        missed = residuals_of(model, z, fit.noise, followed, samples).reshape(samples.y.shape)
        e = grid.placed(fine.taken(missed), slots).reshape(grid.steps, -1)
        # the whitened impulse of one step that does what those of its halves do
        w = _of_length(np.asarray(followed.w), 2 * grid.steps).reshape(grid.steps, 2, -1).sum(axis=1) / np.sqrt(2)
        lin = [lin._replace(e=block) for lin, block in zip(part.lin, split(e), strict=True)]
        N, g, q = filtered(lin, w, part.Y0, part.P0)[1]
        return part._replace(N=N, g=g, q=q)

    recordings = AllRecordings(p, settings)
    parts = parts_of(p, Stage(setup.stages[-1].model, fit.noise), fit)
    paths = recordings.each(finer, list(zip(it.own, it.paths, half.grids, readings, strict=True)))
    if _hits(model.system):
        estimator = Estimator(dataclasses.replace(half.problem, root_weights=roots), settings)
        linear = estimator.linear(stage, it._replace(paths=tuple(paths)), estimator.kept_at_the_end(stage))
    else:
        each = zip(parts, it.own, paths, setup.grids, half.grids, readings, strict=True)
        linear = recordings.reduced(it, recordings.each(told, list(each)))
    z = fit.iterate.z
    # what is left of the slope at the fit's own step is none of the step's doing
    g, whole = linear.g + fit.slope, recordings.reduced(it, list(parts)).q
    shift = box_step(linear.N, g, p.lower - z, p.upper - z, 0.0)
    gain = whole - linear.q + float(g @ shift - shift @ linear.N @ shift / 2)
    return HalfStep(shift, gain, gain / whole) if np.isfinite(shift).all() and np.isfinite(gain) else None


def _hits(system: System) -> bool:
    """Whether velocities may jump: surfaces, stops, rows with bounds of one's own."""
    return bool(system.contacts.pairs or any(axis.stops for axis in system.axes) or system.own_lines)


def _finer(path: Path, gains: np.ndarray, steps: int) -> Plan:
    """A plan on a grid with two steps for each of a trajectory, as far as that goes; then it stays. Feedback has its
    say once in the two, so that their noises are alike but for what corrects an error of one step.
    """
    x = jax.tree.map(np.asarray, path.x)

    def early(a: np.ndarray) -> np.ndarray:
        # velocities belong to the middle of the step that has led to a state, and that is half as long now
        return (3 * a[:-1] + a[1:]) / 4

    now = before(x)
    planned = BodyState(now.p, now.e, early(x.v), early(x.w), now.near, now.c)  # pyright: ignore[reportArgumentType]

    def held(a: np.ndarray) -> np.ndarray:
        return np.repeat(a, 2, axis=0)[:steps]

    def stays(a: np.ndarray) -> np.ndarray:
        a = held(a)
        return np.concatenate([a, np.repeat(a[-1:], steps - len(a), axis=0)])

    once = np.stack([gains, np.zeros_like(gains)], axis=1).reshape(-1, *gains.shape[1:])
    # whitened impulses of two steps add up to that of one
    w = _of_length(held(np.asarray(path.w)) / np.sqrt(2), steps)
    return Plan(jax.tree.map(stays, planned), w, split(_of_length(once, steps)))


def _of_length(a: np.ndarray, count: int) -> np.ndarray:
    """The first rows, or all of them and then zeros."""
    return np.concatenate([a[:count], np.zeros((max(count - len(a), 0), *a.shape[1:]))])
