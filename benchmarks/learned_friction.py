"""Friction learnt by a network inside known mechanics, as slow states of a filter and as most likely constants.

Five fixed seeds; medians with ranges, since single runs are chaotic. Curves: RMS difference of friction at |v| <= 2 at
the source's own speeds (100 from -3 to 3), at t = 200 and at the end, and at 200 speeds evenly over (0, 2), a tenth of
which lie in the peak below 0.2. Velocity: RMS of predicted less measured, one step ahead, all samples.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spookax._compiled import compiled
from spookax.estimation import AugmentedState, Drift, Filter, Recursion, SlowFilter, WithParameters, most_likely
from spookax.models.neural_friction import (
    AbstractFriction,
    AbstractStepper,
    FrictionMass,
    NeuralFriction,
    RungeKutta,
    Sticking,
    StribeckFriction,
)
from spookax.protocol import Noise, Samples

from .friction_data import GRID, HALF, MIDDLE, SENSOR, STEP, FrictionData, curve_error, friction_data
from .measure import Row, row, timed

SEEDS = range(5)
SPREAD = 3.0**0.5
ACROSS, NETWORK = RungeKutta(), NeuralFriction()
STRIBECK_START = np.array([0.0, 0.0, np.log(0.3), 0.0])
RANGES = ("t = 200", "end", "velocity", "seconds")
FIRST_SD = 10.0**0.5
BATCH_STARTS = 4
BATCH_VARIANCE = 1e-4  # process noise a step


@dataclasses.dataclass(frozen=True)
class Case:
    """What is filtered and how; variances a step, as the source gives them."""

    version: str = "step"
    spread: float | None = SPREAD
    stepper: AbstractStepper = ACROSS
    law: AbstractFriction = NETWORK
    start: str = "rich"
    process: float = 1e-3
    walk: float = 1e-6
    sensor: float = SENSOR
    dtype: Any = np.float64
    published: str = ""


SOURCE: dict[str, Any] = {"spread": None, "walk": 1e-4, "sensor": 0.05}
STICKS: dict[str, Any] = {"version": "fine", "stepper": Sticking(10)}
CASES = {
    "step: source's settings, plain start": Case(**SOURCE, start="plain", published="0.260, 0.146, 0.0295"),
    "step: source's settings": Case(**SOURCE, published="0.097, 0.156, 0.0277"),
    "step: source's settings, f32": Case(**SOURCE, dtype=np.float32, published="0.107, 0.154, 0.0277"),
    "step: derivatives": Case(spread=None, published="0.067, 0.076, 0.0225"),
    "step": Case(),
    "step, f32": Case(dtype=np.float32),
    "step: sticking": Case(stepper=Sticking(10)),
    "step: Stribeck, four parameters": Case(law=StribeckFriction(), published="0.164"),
    "drift: source's settings": Case("drift", **SOURCE, published="0.125, 0.161"),
    "drift": Case("drift"),
    "fine: source's settings": Case("fine", **SOURCE, published="0.30-0.40, 0.46-1.6"),
    "fine: steps across": Case("fine"),
    "fine: sticking, derivatives": Case(**STICKS, spread=None),
    "fine: sticking": Case(**STICKS),
    "fine: sticking, f32": Case(**STICKS, dtype=np.float32),
    "fine: sticking, Stribeck": Case(**STICKS, law=StribeckFriction()),
}
BATCH = {
    "batch, step": (Case(), False),
    "batch, fine: sticking": (Case(**STICKS), False),
    "batch, step, exact slope": (Case(), True),
}
BATCH_OTHERS = {"batch, step": "all speeds 0.023-0.043, above 0.2 0.004-0.010"}
FURTHER_SEEDS = range(5, 65)
FURTHER = {
    "step": Case(),
    "step: walk 1e-7": Case(walk=1e-7),
    "step: process noise 3e-4": Case(process=3e-4),
    "step: derivatives": CASES["step: derivatives"],
}
GOALS = [("step", 0.07, 0.08, 0.0225), ("fine: sticking", 0.3, 0.3, 0.0225)]


class Scores(NamedTuple):
    """Of every seed."""

    middle: np.ndarray  # curve at t = 200, the source's speeds [N]
    end: np.ndarray  # and at the end
    even: np.ndarray  # at t = 200, speeds evenly
    even_end: np.ndarray
    above: np.ndarray  # at t = 200, speeds above 0.2
    above_end: np.ndarray
    velocity: np.ndarray  # [m/s]
    log_likelihood: np.ndarray


SOURCE_GRID = np.linspace(-3, 3, 100)
SOURCE_GRID = SOURCE_GRID[(SOURCE_GRID > 0) & (SOURCE_GRID <= 2)]


def model_of(case: Case, process: float | None = None) -> FrictionMass:
    """The mass of a case."""
    density = np.full(2, np.sqrt((process or case.process) / STEP))
    return FrictionMass(case.law, STEP, density, stepper=case.stepper, dtype=case.dtype)


def filter_of(case: Case, process: float | None = None) -> SlowFilter:
    """The filter of a case."""
    drift = Drift(jnp.asarray(np.sqrt(case.walk / STEP), case.dtype), jnp.asarray(1e-4, case.dtype))
    noise = Noise(jnp.ones((), case.dtype), jnp.full(2, case.sensor, case.dtype))
    return SlowFilter(WithParameters(model_of(case, process), case.law.size, drift), noise, spread=case.spread)


def samples_of(case: Case, data: FrictionData, count: int | None = None) -> Samples:
    """The recording, or its first samples."""
    u, y = data.u[:count, None], data.y[:count, None]
    arrays = u, y, np.zeros((len(u), 1)), np.ones((len(u), 1, 2))
    return Samples(*(jnp.asarray(a, case.dtype) for a in arrays))


def start_of(case: Case, seed: int, *attempt: int) -> tuple[AugmentedState, np.ndarray]:
    """First state and parameters, and their standard deviations."""
    law = case.law
    z = (
        law.draw(np.random.default_rng([1000 + seed, *attempt]), case.start)
        if isinstance(law, NeuralFriction)
        else STRIBECK_START
    )
    sd = np.append([FIRST_SD, FIRST_SD], np.ones(law.size))
    return AugmentedState(np.zeros(2, case.dtype), jnp.asarray(z, case.dtype)), sd.astype(case.dtype)


def filtered(case: Case, data: FrictionData, seed: int, *attempt: int, count: int | None = None) -> Recursion:
    """One recording through the filter of a case."""
    f = filter_of(case)
    return f.run(f.init(*start_of(case, seed, *attempt)), samples_of(case, data, count))


@compiled
def _ahead(model: FrictionMass, noise: Noise, x: jax.Array, z: jax.Array, u: jax.Array) -> jax.Array:
    def one(x, z, u):
        return model.step(x, model.prepare(z), u, jnp.zeros_like(x), noise, jnp.zeros(0))[0]

    return jax.vmap(one)(x, z, u)


def curves(law: AbstractFriction, z: np.ndarray, factor: float) -> tuple[float, float, float]:
    """Errors of a learnt curve at the source's speeds, evenly, and evenly above 0.2."""
    both = np.concatenate([SOURCE_GRID, GRID])
    source, even = np.split(np.asarray(law.curve(jnp.asarray(z, float), jnp.asarray(both))), [SOURCE_GRID.size])
    return curve_error(source, factor, SOURCE_GRID), curve_error(even, factor), curve_error(even, factor, above=0.2)


def scores(case: Case, seeds: range = SEEDS) -> Scores:
    """A case filtered for every seed."""
    found = []
    for seed in seeds:
        data = friction_data(seed, case.version)
        r = filtered(case, data, seed)
        f, z, u = filter_of(case), np.asarray(r.x.z), samples_of(case, data).u
        ahead = _ahead(f.model.model, f.noise, r.x.x[:-1], r.x.z[:-1], u[:-1])
        velocity = np.sqrt(np.mean((np.asarray(ahead, float)[:, 1] - data.y[1:, 1]) ** 2))
        middle, end = curves(case.law, z[MIDDLE], data.middle), curves(case.law, z[-1], data.end)
        pairs = [value for both in zip(middle, end, strict=True) for value in both]
        found.append([*pairs, velocity, float(r.log_likelihood)])
    return Scores(*np.array(found).T)


def batch(case: Case, seed: int, exact: bool = False) -> tuple[np.ndarray, float, float]:
    """Most likely constant weights for the first 200 s, from the best of some filters; log-likelihood, seconds."""
    began, data = time.perf_counter(), friction_data(seed, case.version)
    tries = [filtered(case, data, seed, i, count=HALF) for i in range(BATCH_STARTS)]
    best = max(tries, key=lambda r: float(r.log_likelihood))
    samples, z = samples_of(case, data, HALF), np.asarray(best.x.z[-1])
    x0, sd = np.zeros(2), np.ones(2)
    found = most_likely(filter_of(case, BATCH_VARIANCE), x0, sd, z, samples, z_sd=1.0, iterations=40)
    if exact:
        found = most_likely(
            filter_of(case, BATCH_VARIANCE), x0, sd, found.z, samples, z_sd=1.0, iterations=25, exact=True
        )
    return found.z, found.cost, time.perf_counter() - began


class BatchScores(NamedTuple):
    """Of every seed: curves as in `Scores` [N], and seconds."""

    middle: np.ndarray
    even: np.ndarray
    above: np.ndarray
    seconds: np.ndarray


def batch_scores(case: Case | None = None, exact: bool = False, seeds: range = SEEDS) -> BatchScores:
    """`batch` for every seed."""
    case, rows = case or Case(), []
    for seed in seeds:
        z, _, seconds = batch(case, seed, exact)
        rows.append([*curves(case.law, z, friction_data(seed, case.version).middle), seconds])
    return BatchScores(*np.array(rows).T)


def _line(name: str, columns: dict[str, np.ndarray], published: str = "") -> Row:
    line: Row = {"case": name}
    for quantity, values in columns.items():
        line[quantity] = float(np.median(values))
        if quantity in RANGES:
            line[f"{quantity}, range"] = f"{np.min(values):.3g}-{np.max(values):.3g}"
    return line | {"others": published or None}


def _times() -> list[Row]:
    rows: list[Row] = []
    for name, case in {
        "derivatives": Case(spread=None),
        "derivatives, f32": Case(spread=None, dtype=np.float32),
        "sigma points": Case(),
        "sigma points, f32": Case(dtype=np.float32),
        "sigma points, sticking": Case(**STICKS),
    }.items():
        data, f = friction_data(0), filter_of(case)
        belief, samples = f.init(*start_of(case, 0)), samples_of(case, data)
        began = time.process_time()
        jax.block_until_ready(f.run(belief, samples))
        first, run = time.process_time() - began, timed(_call(f, belief, samples))
        rows.append(row(name, "4002 steps, 105 states", run.best, "s", median=run.median, over=0.15, to="goal 0.15 s"))
        rows.append(row(name, "the same, processor time", run.processor, "s", over=0.15, to="goal 0.15 s"))
        rows.append(row(name, "compile, processor time", first - run.processor, "s", over=3.0, to="goal 3 s"))
    case, data = Case(spread=None), friction_data(0)
    f = filter_of(case)
    dense, samples = Filter(f.model, np.zeros(0), f.noise), samples_of(case, data, 50)
    belief = dense.init(*start_of(case, 0))
    run = timed(_call(dense, belief, samples), least=3)
    rows.append(row("dense square root", "4002 steps, from 50", run.best / 50 * 4002, "s"))
    rows.append(row("dense square root", "the same, processor time", run.processor / 50 * 4002, "s"))
    return rows


def _call(f: Any, belief: Any, samples: Samples) -> Callable[[], Any]:
    return lambda: f.run(belief, samples)


def run(part: str) -> list[Row]:
    """`filters`: times, curves and predictions of every case; `batch`: constant weights, most likely; `seeds`: sixty
    further seeds, with settings that might predict velocities better.
    """
    rows = _times() if part == "filters" else []
    for name, case in CASES.items() if part == "filters" else ():
        s = scores(case)
        columns = {"t = 200": s.middle, "end": s.end, "even": s.even, "even, end": s.even_end}
        columns |= {"above 0.2": s.above, "above 0.2, end": s.above_end, "velocity": s.velocity}
        rows.append(_line(name, columns, case.published))
    for name, case in FURTHER.items() if part == "seeds" else ():
        s = scores(case, FURTHER_SEEDS)
        rows.append(_line(name, {"t = 200": s.middle, "end": s.end, "velocity": s.velocity}))
    for name, (case, exact) in BATCH.items() if part == "batch" else ():
        b = batch_scores(case, exact)
        columns = {"t = 200": b.middle, "even": b.even, "above 0.2": b.above, "seconds": b.seconds}
        rows.append(_line(name, columns, BATCH_OTHERS.get(name, "")))
        print(rows[-1], flush=True)
    return rows
