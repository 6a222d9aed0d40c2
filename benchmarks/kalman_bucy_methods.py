"""Every estimator on equations of motion and their readings, each as a function from a `Task` to values and standard
deviations of the unknowns. What they are told is the same.
"""

from collections.abc import Callable, Mapping, Sequence
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
    least_squares,
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


def on_processor() -> Any:
    """What steps one after the other would wait for an accelerator at each."""
    return jax.default_device(jax.devices("cpu")[0])


def by_batch(task: Task, restarts: int = 0) -> Found:
    """All readings at once."""
    asked = {"sd": task.sd, "x0": task.x0, "x0_sd": task.x0_sd, "process": PROCESS["batch"], "restarts": restarts}
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


class Trial(NamedTuple):
    """How networks are trained. The source does not publish its sizes, weights and rates."""

    physics: bool = False  # the plain physics-informed network, which knows no filter
    sizes: Mapping[str, Any] = {}  # of `networks`
    schedule: Schedule = Schedule()
    starts: int = 1  # of each task, the further ones a factor of three off the first; the least loss counts
    weights: tuple[float, float, float] = WEIGHTS
    per_second: bool = False  # whether R of the gain is that of a signal, not of a sample as in the source
    squares: int = 0  # iterations of Levenberg and Marquardt's method at the end, of the physics-informed network


RESTARTED: dict[str, Callable[[Task], Found]] = {"batch, best of 7 starts": lambda task: by_batch(task, 6)}
NETWORKS = {"network": Trial(), "physics-informed network": Trial(physics=True)}


def by_networks(tasks: Sequence[Task], trial: Trial) -> np.ndarray:
    """Values of all runs, trained as one batch. Their models differ in the start values alone, and they have equally
    many stamps; where a reading is NaN the equations count alone.
    """
    first, runs = tasks[0], np.repeat(np.arange(len(tasks)), trial.starts)
    y = np.stack([task.y for task in tasks])
    stamps, inputs = np.stack([task.time for task in tasks]), np.zeros((*y.shape[:2], 0))
    given = Readings(*(a[runs] for a in (stamps, y, inputs)))
    n = first.model.tangent_size
    between = np.sqrt((first.time[-1] - first.time[0]) / (len(first.time) - 1)) if trial.per_second else 1.0
    density = first.sd * between
    belief = Belief(first.x0, first.P0_sd**2 * np.eye(n), first.sd, density, np.asarray(PROCESS["batch"]))
    shift, scale = np.stack([_middle_and_size(task) for task in tasks], axis=1)[:, runs]
    z0 = np.stack([task.model.unknown.start() for task in tasks])[runs]
    further = np.arange(len(runs)) % trial.starts != 0
    z0 = z0 + further[:, None] * np.log(3.0) * np.random.default_rng(0).normal(size=z0.shape)
    nets = networks(first.model, given, belief, z0, shift, scale, **trial.sizes)
    physics = PhysicsLoss(np.full(n, 1.0))
    loss = physics if trial.physics else KalmanBucyLoss(trial.weights, 0.0)
    trained = train(nets, loss, first.model, given, belief, trial.schedule, report=_progress)
    if trial.squares:
        trained = least_squares(trained.nets, physics, first.model, given, belief, trial.squares)
    ends = np.where(trained.failed, np.inf, trained.loss).reshape(len(tasks), trial.starts)
    best = np.arange(len(tasks)) * trial.starts + np.argmin(ends, axis=1)
    return np.stack([np.asarray(first.model.unknown.values(z)) for z in trained.nets.z[best]])


def _middle_and_size(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Of every state: from the readings where all are read, otherwise from the first trajectory of the batch method."""
    model, x = task.model, task.y
    if model.components != tuple(range(model.tangent_size)):
        noise = Noise(jnp.asarray(PROCESS["batch"]), jnp.asarray(task.sd))
        samples = StampGrid(task.time, float(model.h)).samples(task.y, np.zeros((len(task.y), 0)), task.sd)
        sd = np.broadcast_to(np.asarray(task.x0_sd, dtype=float), task.x0.shape)
        with on_processor():
            x = np.asarray(first_path(model, model.unknown.start(), noise, samples, task.x0, sd)[0].x)
    return np.nanmean(x, axis=0), np.nanstd(x, axis=0)


def _progress(at: TrainingReport) -> None:
    print(f"iteration {at.step}, mean loss {np.nanmean(at.loss):.4g}", flush=True)


def _told(parameters: dict[str, dict[str, float]]) -> Found:
    value, sd = (np.array([found[key] for found in parameters.values()]) for key in ("value", "sd"))
    return value, sd
