"""What Nagel and Huber (2021) could not do, by every method that can: one arm's angle alone; irregular stamps with a
gap; eight unknowns, of a pendulum whose damping, joint offsets and gravity are unknown, too; a pendulum on a spring
whose angle alone is read.

Angles alone are read with a standard deviation of 0.02 rad: in the source's noise of 0.5, with swings of at most
pi / 4, one of them says nothing.
"""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spookax.models import Equations, Free
from spookax.models.double_pendulum import DAMPING, GRAVITY, drift, spread

from .kalman_bucy import COARSE, NAMES, SAMPLES, SD, TIME, Draw, draw
from .kalman_bucy_methods import NETWORKS, ONE_BY_ONE, RESTARTED, Task, by_networks
from .measure import Row, row, table

SEEDS = (0, 1, 2, 3, 5)
ENCODER = 0.02  # standard deviation of a reading where an angle alone is read [rad]
X0_SD = (1.0, 3.0, 1.0, 3.0)  # of the first state [rad, rad/s]
OFF = 0.5  # relative error of a parameter that is no estimate


class Case(NamedTuple):
    """Tasks of some draws, the unknowns that are judged, and their true values."""

    tasks: list[Task]
    names: tuple[str, ...]
    true: np.ndarray  # (draws, names)


def run(part: str = "") -> list[Row]:
    """All cases, or that of a name; `CASE.networks` has networks alone, `CASE.starts` the batch method's restarts."""
    wanted, _, kind = part.partition(".")
    rows: list[Row] = []
    for name in [wanted] if wanted else CASES:
        case = CASES[name]()
        for method, call in {"": ONE_BY_ONE, "starts": RESTARTED, "networks": {}}[kind].items():
            began = time.perf_counter()
            found = [call(task) for task in case.tasks]
            value, sd = (_judged(case, [one[k] for one in found]) for k in (0, 1))
            rows += _rows(f"{name}, {method}", case, value, sd, time.perf_counter() - began)
            print(table(rows[-len(case.names) - 3 :]), flush=True)
        for method, trial in NETWORKS.items() if kind == "networks" else ():
            began = time.perf_counter()
            value = _judged(case, list(by_networks(case.tasks, trial)))
            rows += _rows(f"{name}, {method}", case, value, None, time.perf_counter() - began)
            print(table(rows[-len(case.names) - 2 :]), flush=True)
    return rows


def _judged(case: Case, found: list[np.ndarray]) -> np.ndarray:
    """Columns of the unknowns that are judged."""
    columns = [case.tasks[0].model.names.index(name) for name in case.names]
    return np.stack(found)[:, columns]


def _rows(name: str, case: Case, value: np.ndarray, sd: np.ndarray | None, seconds: float) -> list[Row]:
    error = np.abs(value - case.true)
    error = np.where(np.isfinite(error), error, np.inf)
    rows = [row(name, f"median error of {p}", float(np.median(error[:, i])), "") for i, p in enumerate(case.names)]
    if sd is not None:
        rows.append(row(name, "errors within 2 sd", 100 * float(np.mean(error < 2 * sd)), "%"))
    failed = np.any(error > OFF * np.abs(case.true), axis=1)
    rows.append(row(name, f"runs off by more than {100 * OFF:.0f} %", float(np.sum(failed)), f"of {len(value)}"))
    return [*rows, row(name, "time of a run, compilation shared", seconds / len(value), "s")]


def _pendulums(
    model: Callable[[Draw, tuple[int, ...]], Equations], read: tuple[int, ...], at: np.ndarray, sd: float
) -> Case:
    tasks, true = [], []
    for d in (draw(seed) for seed in SEEDS):
        y = (d.x + sd / SD * (d.y - d.x))[at][:, read]
        tasks.append(Task(model(d, read), TIME[at], y, np.full(len(read), sd), np.zeros(4), X0_SD, X0_SD))
        true.append(d.theta)
    return Case(tasks, NAMES, np.stack(true))


def _irregular() -> np.ndarray:
    """600 stamps at random, none between 1.2 and 1.6 s."""
    rng = np.random.default_rng(1)
    return np.sort(rng.choice(np.flatnonzero((TIME < 1.2) | (TIME > 1.6)), 600, replace=False))


def _damped(d: Draw, read: tuple[int, ...]) -> Equations:
    """The source's model with its damping unknown, too."""
    unknown = [Free("l1", d.start[0]), Free("l2", d.start[1]), Free("M", d.start[2], 0.0, 1.0, "box")]
    unknown.append(Free("c", 2 * DAMPING, prior_sd=2.0))
    return Equations(lambda x, u, p: drift(x, u, p, p.c), unknown, step=COARSE, density=spread, read=read, states=4)


def _eight(d: Draw, read: tuple[int, ...]) -> Equations:
    """Lengths, mass ratio, two dampings, gravity, and where both angles are zero."""
    unknown = [Free("l1", d.start[0]), Free("l2", d.start[1]), Free("M", d.start[2], 0.0, 1.0, "box")]
    unknown += [Free("c1", 2 * DAMPING, prior_sd=2.0), Free("c2", 2 * DAMPING, prior_sd=2.0)]
    unknown.append(Free("g", 1.05 * GRAVITY, prior_sd=0.05))  # lengths and gravity scale each other: it needs a prior
    unknown += [Free(f"zero{i}", 0.0, transform="identity", prior_sd=0.2) for i in (1, 2)]

    def rate(x, u, p):
        scaled = SimpleNamespace(l1=p.l1 * GRAVITY / p.g, l2=p.l2 * GRAVITY / p.g, M=p.M)
        return drift(x, u, scaled, jnp.stack([p.c1, p.c2]))

    def seen(x, p):
        return x + jnp.stack([p.zero1, jnp.zeros_like(p.zero1), p.zero2, jnp.zeros_like(p.zero2)])

    return Equations(rate, unknown, step=COARSE, density=spread, read=seen, states=4)


ELASTIC = ("length", "stiffness", "damping")


def elastic(x: jax.Array, u: jax.Array, p: Any) -> jax.Array:
    """Rate of (stretch [m] and its rate, angle from hanging [rad] and its rate) of a mass on a spring of rest length
    `length` [m], with `stiffness` over mass [1/s^2] and `damping` of the stretch [1/s]."""
    r = p.length + x[0]
    stretch = r * x[3] ** 2 + GRAVITY * jnp.cos(x[2]) - p.stiffness * x[0] - p.damping * x[1]
    return jnp.stack([x[1], stretch, x[3], -(2 * x[1] * x[3] + GRAVITY * jnp.sin(x[2])) / r])


def _elastic() -> Case:
    """The angle alone, each 10 ms over 3 s; starts are off by up to a factor of 1.5."""
    tasks, true, h, skip = [], [], 5e-4, 20
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        theta = np.array([rng.uniform(0.3, 0.8), rng.uniform(60.0, 150.0), rng.uniform(0.1, 0.5)])
        p = SimpleNamespace(**dict(zip(ELASTIC, theta, strict=True)))
        begin = np.array([GRAVITY / theta[1] + 0.05, 0.0, rng.uniform(0.6, 1.0), 0.0])

        def step(x: jax.Array, _: Any, p: Any = p) -> tuple[jax.Array, jax.Array]:
            k1 = elastic(x, x, p)
            k2 = elastic(x + h / 2 * k1, x, p)
            k3 = elastic(x + h / 2 * k2, x, p)
            return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + elastic(x + h * k3, x, p)), x

        x = np.asarray(jax.lax.scan(step, jnp.asarray(begin), length=300 * skip)[1])[::skip]
        start = theta * 1.5 ** rng.uniform(-1, 1, 3)
        unknown = [Free(name, float(value)) for name, value in zip(ELASTIC, start, strict=True)]
        model = Equations(elastic, unknown, step=0.01, density=[0.0, 1.0, 0.0, 1.0], read=[2])
        y = x[:, 2:3] + ENCODER / 2 * rng.normal(size=(len(x), 1))
        guess, sd = np.array([0.1, 0.0, 0.0, 0.0]), (0.1, 0.5, 1.0, 3.0)
        tasks.append(Task(model, 0.01 * np.arange(len(x)), y, np.full(1, ENCODER / 2), guess, sd, sd, 0.2))
        true.append(theta)
    return Case(tasks, ELASTIC, np.stack(true))


EACH_THIRD = np.arange(SAMPLES)[::3]
CASES: dict[str, Callable[[], Case]] = {
    "one_angle": lambda: _pendulums(_damped, (0,), EACH_THIRD, ENCODER),
    "irregular": lambda: _pendulums(_damped, (0, 1, 2, 3), _irregular(), SD),
    "eight": lambda: _pendulums(_eight, (0, 1, 2, 3), EACH_THIRD, SD),
    "elastic": _elastic,
}
