"""The double pendulum of Nagel and Huber (2021), Table I: forty draws, every estimator on the same readings.

Truth: their equation (19), whose damping the model (18) lacks, by Runge and Kutta's method at 2e-5 s; lengths and mass
ratio uniform in [0, 1], angles in +-pi/4, at rest; 3000 samples of all four states in 3 s with a standard deviation of
0.5. Every estimator begins at the same random parameters, drawn from [0.05, 0.95], and is told nothing of the state.
"""

import os
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spookax.models.double_pendulum import DAMPING, double_pendulum, drift

from .kalman_bucy_methods import NETWORKS, ONE_BY_ONE, Task, Trial, by_networks, on_processor
from .measure import Row, row, table

SEEDS = (*range(10), *range(100, 130))
SAMPLES, LENGTH, SD, FINE = 3000, 3.0, 0.5, 50
NAMES = ("l1", "l2", "M")
FAILED = 0.5  # an error of a parameter as large as this is no estimate
COARSE = 0.003  # longest step [s]
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
        """Each so many-th sample; steps of at most 3 ms, so that nothing depends on the distance of samples."""
        step = min(every * LENGTH / SAMPLES, COARSE)
        return self._replace(x=self.x[::every], y=self.y[::every], time=self.time[::every], step=step)

    @property
    def task(self) -> Task:
        """With the source's model, whose states are all read."""
        return Task(double_pendulum(self.step, tuple(self.start)), self.time, self.y, np.full(4, SD), np.zeros(4))


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
    with on_processor():
        x = np.asarray(_truth(jnp.asarray(theta), jnp.array([phi[0], 0.0, phi[1], 0.0])))
    y = x + SD * rng.normal(size=x.shape)
    return Draw(theta, x, y, rng.uniform(0.05, 0.95, 3), TIME)


def run(part: str = "table") -> list[Row]:
    """Mean, spread, median and largest absolute errors; runs that fail are part of them, and counted."""
    if part == "networks":
        return trials(NETWORKS)
    if part == "time":
        return _time(draw(SEEDS[1]))
    draws, rows = [draw(seed) for seed in SEEDS], []
    theta = np.stack([d.theta for d in draws])
    for name, method in ONE_BY_ONE.items():
        began = time.perf_counter()
        found = np.array([method(d.task) for d in draws])
        rows += _rows(name, found[:, 0], theta, (time.perf_counter() - began) / len(draws), found[:, 1])
        print(table(rows), flush=True)
    return rows


def trials(asked: Mapping[str, Trial]) -> list[Row]:
    """The table's rows of networks, each trained in every way that is asked for."""
    draws = [draw(seed) for seed in SEEDS[: int(os.environ.get("SPOOKAX_RUNS", len(SEEDS)))]]
    theta, rows = np.stack([d.theta for d in draws]), []
    for name, trial in asked.items():
        began = time.perf_counter()
        found = by_networks([d.task for d in draws], trial)
        rows += _rows(f"{name}, {len(draws)} runs", found, theta, (time.perf_counter() - began) / len(draws), None)
        print(table(rows[-14:]), flush=True)
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
    """Every method on 500 samples, first call and best of ten later; shooting finds some of its programs compiled."""
    rows, task = [], d._replace(x=d.x[::6], y=d.y[::6], time=d.time[::6], step=6 * LENGTH / SAMPLES).task
    for name, method in ONE_BY_ONE.items():
        seconds, processor = [], []
        for _ in range(11):
            began, busy = time.perf_counter(), time.process_time()
            method(task)
            seconds.append(time.perf_counter() - began)
            processor.append(time.process_time() - busy)
        case = f"{name}, 500 samples"
        rows.append(row(case, "cold", seconds[0], "s"))
        rows.append(row(case, "compiled", min(seconds[1:]), "s"))
        rows.append(row(case, "compiled, processor time", min(processor[1:]), "s"))
    for name, trial in NETWORKS.items():
        began = time.perf_counter()
        by_networks([task], trial)
        rows.append(row(f"{name}, 500 samples", "training with compilation", time.perf_counter() - began, "s"))
    return rows
