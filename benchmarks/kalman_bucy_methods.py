"""Every estimator on equations of motion and their readings, each as a function from a `Task` to values and standard
deviations of the unknowns. What they are told is the same.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spookax.estimation import AugmentedState, Extended, Filter, Unscented, WithParameters
from spookax.estimation.continuous import (
    Belief,
    KalmanBucyLoss,
    PhysicsLoss,
    Readings,
    Schedule,
    TrainingReport,
    networks,
    train,
)
from spookax.models import Equations
from spookax.protocol import Noise
from spookax.study.identifying.own_equations import StampGrid, first_path, identify_equations, shoot_equations

PROCESS = {"batch": 0.03, "filter": 0.1}  # scales of the models' process noise
SEGMENT = 0.15  # of multiple shooting [s]
WEIGHTS = (1.0, 0.1, 10.0)  # of the network's losses

Found = tuple[np.ndarray, np.ndarray]


class Task(NamedTuple):
    """Equations, which have the start values, and readings at stamps."""

    model: Equations
    time: np.ndarray  # [s]
    y: np.ndarray  # (k, channels)
    sd: np.ndarray  # of the readings
    x0: np.ndarray  # guess of the first state
    x0_sd: Any = 10.0  # of the guess, for the methods that look for a first trajectory
    filter_sd: tuple[float, ...] = (1.0, 3.0, 1.0, 3.0)  # the same of the filter that estimates
    P0_sd: float = 0.5  # of the networks' first covariance


def by_batch(task: Task) -> Found:
    """All readings at once."""
    asked = {"sd": task.sd, "x0": task.x0, "x0_sd": task.x0_sd, "process": PROCESS["batch"]}
    return _told(identify_equations(task.model, task.time, task.y, **asked).parameters)


def by_shooting(task: Task, segment: float | None) -> Found:
    """Least squares of the simulation error, from where the batch method begins, too."""
    asked = {"sd": task.sd, "x0": task.x0, "x0_sd": task.x0_sd, "process": PROCESS["batch"]}
    return _told(shoot_equations(task.model, task.time, task.y, segment=segment, **asked))


def by_filter(task: Task, rule: Extended | Unscented) -> Found:
    """One pass with the unknowns as states."""
    model, unknowns = task.model, len(task.model.names)
    noise = Noise(jnp.asarray(PROCESS["filter"]), jnp.asarray(task.sd))
    f = Filter(WithParameters(model, unknowns), np.zeros(0), noise, rule)
    samples = StampGrid(task.time, float(model.h)).samples(task.y, np.zeros((len(task.y), 0)), task.sd)
    z0, weight = model.unknown.start(), model.unknown.prior_weight()
    sd = np.append(task.filter_sd, np.minimum(1.0 / weight, 1.0))
    last = f.run(f.init(AugmentedState(jnp.asarray(task.x0), jnp.asarray(z0)), sd), samples).last
    own = slice(model.tangent_size, model.tangent_size + unknowns)
    z = jnp.asarray(last.x.z) + last.mean[own]
    S = np.asarray(jax.jacfwd(model.unknown.values)(z)) @ np.asarray(last.factor[own])
    return np.asarray(model.unknown.values(z)), np.linalg.norm(S, axis=1)


ONE_BY_ONE: dict[str, Callable[[Task], Found]] = {
    "batch": by_batch,
    "extended filter": lambda task: by_filter(task, Extended()),
    "unscented filter": lambda task: by_filter(task, Unscented()),
    "multiple shooting": lambda task: by_shooting(task, SEGMENT),
    "single shooting": lambda task: by_shooting(task, None),
}
NETWORKS = {"network": False, "physics-informed network": True}  # name -> whether it knows no filter


def by_networks(tasks: Sequence[Task], physics: bool) -> np.ndarray:
    """Values of all runs, trained as one batch. Their models differ in the start values alone, and they have equally
    many stamps; where a reading is NaN the equations count alone.
    """
    first = tasks[0]
    y = np.stack([task.y for task in tasks])
    given = Readings(np.stack([task.time for task in tasks]), y, np.zeros((*y.shape[:2], 0)))
    n = first.model.tangent_size
    belief = Belief(first.x0, first.P0_sd**2 * np.eye(n), first.sd, first.sd, np.asarray(PROCESS["batch"]))
    shift, scale = np.stack([_middle_and_size(task) for task in tasks], axis=1)
    z0 = np.stack([task.model.unknown.start() for task in tasks])
    nets = networks(first.model, given, belief, z0, shift, scale)
    loss = PhysicsLoss(np.full(n, 1.0)) if physics else KalmanBucyLoss(WEIGHTS, 0.0)
    trained = train(nets, loss, first.model, given, belief, Schedule(), report=_progress)
    return np.stack([np.asarray(first.model.unknown.values(jnp.asarray(z))) for z in trained.nets.z])


def _middle_and_size(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Of every state: from the readings where all are read, otherwise from the first trajectory of the batch method."""
    model, x = task.model, task.y
    if model.components != tuple(range(model.tangent_size)):
        noise = Noise(jnp.asarray(PROCESS["batch"]), jnp.asarray(task.sd))
        samples = StampGrid(task.time, float(model.h)).samples(task.y, np.zeros((len(task.y), 0)), task.sd)
        sd = np.broadcast_to(np.asarray(task.x0_sd, dtype=float), task.x0.shape)
        x = np.asarray(first_path(model, model.unknown.start(), noise, samples, task.x0, sd)[0].x)
    return np.nanmean(x, axis=0), np.nanstd(x, axis=0)


def _progress(at: TrainingReport) -> None:
    print(f"iteration {at.step}, mean loss {np.nanmean(at.loss):.4g}", flush=True)


def _told(parameters: dict[str, dict[str, float]]) -> Found:
    value, sd = (np.array([found[key] for found in parameters.values()]) for key in ("value", "sd"))
    return value, sd
