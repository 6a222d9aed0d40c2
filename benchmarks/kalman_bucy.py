"""The double pendulum of Nagel and Huber (2021), Table I: forty draws, every estimator on the same readings.

Truth: their equation (19), whose damping the model (18) lacks, by Runge and Kutta's method at 2e-5 s; lengths and mass
ratio uniform in [0, 1], angles in +-pi/4, at rest; 3000 samples of all four states in 3 s with a standard deviation of
0.5. Every estimator begins at the same random parameters, drawn from [0.05, 0.95], and is told nothing of the state.
"""

import os
import time
from types import SimpleNamespace
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
    networks,
    train,
)
from spookax.models.double_pendulum import DAMPING, double_pendulum, drift
from spookax.protocol import Noise
from spookax.study.identifying.own_equations import StampGrid, identify_equations, shoot_equations

from .measure import Row, row

SEEDS = (*range(10), *range(100, 130))
SAMPLES, LENGTH, SD, FINE = 3000, 3.0, 0.5, 50
NAMES = ("l1", "l2", "M")
PROCESS = {"batch": 0.03, "filter": 0.1}  # root of the density on the right-hand sides [rad/s^2 per root of hertz]
SEGMENT = 0.15  # of multiple shooting [s]
RUNS = 8  # of the networks, the first draws; SPOOKAX_RUNS asks for more
FAILED = 0.5  # an error of a parameter as large as this is no estimate


COARSE = 0.004  # longest step [s]
TIME = np.arange(SAMPLES) * LENGTH / SAMPLES


class Draw(NamedTuple):
    """One run of the table, or some of its samples."""

    theta: np.ndarray
    x: np.ndarray
    y: np.ndarray
    start: np.ndarray
    time: np.ndarray
    step: float = LENGTH / SAMPLES

    def thinned(self, every: int) -> "Draw":
        """Each so many-th sample; steps of at most 4 ms, so that nothing depends on the distance of samples."""
        step = min(every * LENGTH / SAMPLES, COARSE)
        return self._replace(x=self.x[::every], y=self.y[::every], time=self.time[::every], step=step)


@jax.jit
def _truth(theta: jax.Array, x0: jax.Array) -> jax.Array:
    p, h = SimpleNamespace(l1=theta[0], l2=theta[1], M=theta[2]), LENGTH / SAMPLES / FINE

    def rate(x: jax.Array) -> jax.Array:
        return drift(x, jnp.zeros(0), p, DAMPING)

    def step(x: jax.Array, _: Any) -> tuple[jax.Array, None]:
        k1 = rate(x)
        k2 = rate(x + h / 2 * k1)
        k3 = rate(x + h / 2 * k2)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + rate(x + h * k3)), None

    def sample(x: jax.Array, _: Any) -> tuple[jax.Array, jax.Array]:
        return jax.lax.scan(step, x, length=FINE)[0], x

    return jax.lax.scan(sample, x0, length=SAMPLES)[1]


def draw(seed: int) -> Draw:
    """Parameters, true states, readings and a start."""
    rng = np.random.default_rng(seed)
    theta, phi = rng.uniform(0, 1, 3), rng.uniform(-np.pi / 4, np.pi / 4, 2)
    x = np.asarray(_truth(jnp.asarray(theta), jnp.array([phi[0], 0.0, phi[1], 0.0])))
    y = x + SD * rng.normal(size=x.shape)
    return Draw(theta, x, y, rng.uniform(0.05, 0.95, 3), TIME)


def by_batch(d: Draw) -> tuple[np.ndarray, np.ndarray]:
    """Values and standard deviations."""
    model = double_pendulum(d.step, tuple(d.start))
    found = identify_equations(model, d.time, d.y, sd=[SD] * 4, process=PROCESS["batch"])
    both = np.array([[found.parameters[n][key] for n in NAMES] for key in ("value", "sd")])
    return both[0], both[1]


def by_filter(d: Draw, rule: Extended | Unscented) -> tuple[np.ndarray, np.ndarray]:
    """One pass with the parameters as states."""
    model = double_pendulum(d.step, tuple(d.start))
    noise = Noise(jnp.asarray(PROCESS["filter"]), jnp.full(4, SD))
    f = Filter(WithParameters(model, 3), np.zeros(0), noise, rule)
    samples = StampGrid(d.time, float(model.h)).samples(d.y, np.zeros((len(d.y), 0)), np.full(4, SD))
    belief = f.init(
        AugmentedState(jnp.zeros(4), jnp.asarray(model.unknown.start())), np.array([1.0, 3.0, 1.0, 3.0] + [1.0] * 3)
    )
    last = f.run(belief, samples).last
    z = jnp.asarray(last.x.z) + last.mean[4:7]
    slope = np.asarray(jax.jacfwd(model.unknown.values)(z))
    S = slope @ np.asarray(last.factor[4:7])
    return np.asarray(model.unknown.values(z)), np.linalg.norm(S, axis=1)


def by_shooting(d: Draw, segment: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Least squares of the simulation error, from where the batch method begins, too."""
    model = double_pendulum(d.step, tuple(d.start))
    found = shoot_equations(model, d.time, d.y, sd=[SD] * 4, process=PROCESS["batch"], segment=segment)
    both = np.array([[found[n][key] for n in NAMES] for key in ("value", "sd")])
    return both[0], both[1]


ONE_BY_ONE = {
    "batch": by_batch,
    "extended filter": lambda d: by_filter(d, Extended()),
    "unscented filter": lambda d: by_filter(d, Unscented()),
    "multiple shooting": lambda d: by_shooting(d, SEGMENT),
    "single shooting": lambda d: by_shooting(d, None),
}


def by_networks(draws: list[Draw], physics: bool) -> np.ndarray:
    """Values of all runs, trained as one batch. Where a draw has NaN for readings the equations count alone."""
    model = double_pendulum(LENGTH / SAMPLES)
    y = np.stack([d.y for d in draws])
    given = Readings(np.stack([TIME] * len(draws)), y, np.zeros((len(draws), SAMPLES, 0)))
    z0 = np.stack([double_pendulum(1e-3, tuple(d.start)).unknown.start() for d in draws])
    belief = Belief(np.zeros(4), SD**2 * np.eye(4), np.full(4, SD), np.full(4, SD), np.asarray(PROCESS["batch"]))
    nets = networks(model, given, belief, z0, np.nanmean(y, axis=1), np.nanstd(y, axis=1))
    loss = PhysicsLoss(np.full(4, 1.0)) if physics else KalmanBucyLoss((1.0, 0.1, 10.0), 0.0)
    trained = train(nets, loss, model, given, belief, Schedule())
    return np.stack([np.asarray(model.unknown.values(jnp.asarray(z))) for z in trained.nets.z])


def run(part: str = "table") -> list[Row]:
    """Mean, spread, median and largest absolute errors; runs that fail are part of them, and counted."""
    draws = [draw(seed) for seed in SEEDS]
    theta = np.stack([d.theta for d in draws])
    if part == "time":
        return _time(draws[1])
    rows = []
    if part == "table":
        for name, method in ONE_BY_ONE.items():
            began = time.perf_counter()
            found = np.array([method(d) for d in draws])
            rows += _rows(name, found[:, 0], theta, (time.perf_counter() - began) / len(draws), found[:, 1])
        return rows
    count = int(os.environ.get("SPOOKAX_RUNS", str(RUNS)))
    for name, physics in (("network", False), ("physics-informed network", True)):
        began = time.perf_counter()
        found = by_networks(draws[:count], physics)
        rows += _rows(f"{name}, {count} runs", found, theta[:count], (time.perf_counter() - began) / count, None)
    return rows


def _rows(name: str, found: np.ndarray, theta: np.ndarray, seconds: float, sd: np.ndarray | None) -> list[Row]:
    error = np.abs(found - theta)
    error = np.where(np.isfinite(error), error, np.inf)
    failed = np.any(error > FAILED, axis=1)
    rows = []
    for i, parameter in enumerate(NAMES):
        e = error[:, i]
        told = (("mean", np.mean(e)), ("spread", np.std(e)), ("median", np.median(e)), ("largest", np.max(e)))
        rows += [row(name, f"error of {parameter}, {what}", float(value), "") for what, value in told]
    if sd is not None:
        rows.append(row(name, "errors within 2 sd", 100 * float(np.mean(error < 2 * sd)), "%"))
    rows.append(row(name, f"runs off by more than {FAILED}", float(np.sum(failed)), ""))
    return [*rows, row(name, "time of a run, compilation shared", seconds, "s")]


def _time(d: Draw) -> list[Row]:
    """The batch method on 500 samples, cold and compiled."""
    model = double_pendulum(6 * LENGTH / SAMPLES, tuple(d.start))
    seconds = []
    for _ in range(4):
        began = time.perf_counter()
        identify_equations(model, TIME[::6], d.y[::6], sd=[SD] * 4, process=PROCESS["batch"])
        seconds.append(time.perf_counter() - began)
    return [
        row("batch, 500 samples", "cold", seconds[0], "s"),
        row("batch, 500 samples", "compiled", min(seconds[1:]), "s"),
    ]
