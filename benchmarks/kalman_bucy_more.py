"""More of the double pendulum of Nagel and Huber (2021): errors against the sampling frequency (their figure 3b),
states with bands (their figure 4), and what their method could not do.
"""

import time
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np

from spookax.models import Equations, Free
from spookax.models.double_pendulum import GRAVITY, double_pendulum, drift, spread
from spookax.study.identifying.own_equations import EquationsEstimate, identify_equations

from .chart import Band, bands, curves
from .kalman_bucy import COARSE, DAMPING, LENGTH, NAMES, ONE_BY_ONE, PROCESS, SAMPLES, SD, TIME, Draw, by_networks, draw
from .measure import OUT, Row, row

EVERY = (333, 100, 33, 10, 3, 1)  # samples of 1 ms: 3 Hz to 1 kHz
SEEDS = (0, 1, 2, 3, 5)
NETWORK_SEEDS = (0, 1, 2)
ENCODER = 0.02  # standard deviation of a reading where angles alone are read [rad]
X0_SD = (1.0, 3.0, 1.0, 3.0)  # of the first state, for the filter that finds a trajectory [rad, rad/s]


def run(part: str = "rates") -> list[Row]:
    """`rates`, `states` or `beyond`; the first two write an SVG file, too."""
    return {"rates": _rates, "states": _states, "beyond": _beyond}[part]()


def _rates() -> list[Row]:
    """Mean of the three absolute errors over the draws, at every frequency; a draw that fails counts as one."""
    lines: dict[str, list[tuple[float, float]]] = {}
    rows, draws = [], [draw(seed) for seed in SEEDS]
    for name, method in ONE_BY_ONE.items():
        for every in EVERY:
            found = np.array([method(d.thinned(every))[0] for d in draws])
            lines.setdefault(name, []).append((1000 / every, _error(found, draws)))
            print(name, lines[name][-1], flush=True)
    some = [draw(seed) for seed in NETWORK_SEEDS]
    gaps = [_with_gaps(d, every) for every in EVERY for d in some]  # all frequencies in one batch
    for name, physics in (("network", False), ("physics-informed network", True)):
        found = by_networks(gaps, physics).reshape(len(EVERY), len(some), -1)
        lines[name] = [(1000 / every, _error(of, some)) for every, of in zip(EVERY, found, strict=True)]
        print(name, lines[name], flush=True)
    for name, line in lines.items():
        rows += [row(name, f"mean error at {rate:.3g} Hz", error, "") for rate, error in line]
    OUT.mkdir(parents=True, exist_ok=True)
    title = "Double pendulum: error of l1, l2 and M against the sampling frequency"
    svg = curves(title, "samples per second [Hz]", "mean absolute error", lines)
    (OUT / "kalman_bucy_rates.svg").write_text(svg, encoding="utf-8")
    return rows


def _error(found: np.ndarray, draws: list[Draw]) -> float:
    error = np.abs(found - np.stack([d.theta for d in draws]))
    return float(np.mean(np.minimum(np.where(np.isfinite(error), error, 1.0), 1.0)))


def _with_gaps(d: Draw, every: int) -> Draw:
    """All stamps, most without readings: networks look at the equations there."""
    y = np.full_like(d.y, np.nan)
    y[::every] = d.y[::every]
    return d._replace(y=y)


def _states() -> list[Row]:
    """The batch method's states of one draw with their bands, and how many of the true ones lie in them."""
    d = draw(SEEDS[0])
    found = identify_equations(
        double_pendulum(LENGTH / SAMPLES, tuple(d.start)), TIME, d.y, sd=[SD] * 4, process=PROCESS["batch"]
    )
    names = ("angle 1 [rad]", "rate 1 [rad/s]", "angle 2 [rad]", "rate 2 [rad/s]")
    thin = slice(None, None, 6)
    panels = {
        name: Band(TIME[thin], *(a[thin, i] for a in (d.x, d.y, found.states, found.sd)))
        for i, name in enumerate(names)
    }
    OUT.mkdir(parents=True, exist_ok=True)
    svg = bands("Double pendulum: readings, true states, and the batch method's with two standard deviations", panels)
    (OUT / "kalman_bucy_states.svg").write_text(svg, encoding="utf-8")
    off = np.abs(found.states - d.x) / found.sd
    rows = [
        row(name, "true states within 2 sd", 100 * float(np.mean(off[:, i] < 2)), "%") for i, name in enumerate(names)
    ]
    rms = np.sqrt(np.mean((found.states - d.x) ** 2, axis=0))
    return rows + [row(name, "RMS error of the state", float(rms[i]), "") for i, name in enumerate(names)]


def _beyond() -> list[Row]:
    """What the source could not do, by the batch method on its draws: one arm's angle alone; irregular stamps with a
    gap; eight unknowns, of a pendulum whose damping, joint offsets and gravity are unknown, too.

    Angles alone are read with a standard deviation of 0.02 rad: in the source's noise of 0.5, with swings of at most
    pi / 4, one of them says nothing.
    """
    rows: list[Row] = []
    rng = np.random.default_rng(1)
    irregular = np.sort(rng.choice(np.flatnonzero((TIME < 1.2) | (TIME > 1.6)), 600, replace=False))
    every = np.arange(SAMPLES)[::2]
    cases = {
        "angle of the first arm alone": (_damped, (0,), every, ENCODER),
        "both angles": (_damped, (0, 2), every, ENCODER),
        "irregular stamps, a gap of 0.4 s": (_damped, (0, 1, 2, 3), irregular, SD),
        "eight unknowns": (_eight, (0, 1, 2, 3), every, SD),
    }
    for name, (model, read, at, sd) in cases.items():
        errors, within, began = [], [], time.perf_counter()
        for d in (draw(seed) for seed in SEEDS):
            y = (d.x + sd / SD * (d.y - d.x))[at][:, read]
            found = identify_equations(
                model(d, read), TIME[at], y, sd=[sd] * len(read), process=PROCESS["batch"], x0_sd=X0_SD
            )
            error, told = _off(found, d)
            errors.append(error)
            within.append(error < 2 * told)
        for i, parameter in enumerate(NAMES):
            rows.append(row(name, f"median error of {parameter}", float(np.median([e[i] for e in errors])), ""))
        rows.append(row(name, "errors within 2 sd", 100 * float(np.mean(within)), "%"))
        rows.append(row(name, "time of a run, compilation shared", (time.perf_counter() - began) / len(SEEDS), "s"))
    return rows


def _off(found: EquationsEstimate, d: Draw) -> tuple[np.ndarray, np.ndarray]:
    value, sd = (np.array([found.parameters[n][key] for n in NAMES]) for key in ("value", "sd"))
    return np.abs(value - d.theta), sd


def _damped(d: Draw, read: tuple[int, ...]) -> Equations:
    """The source's model with its damping unknown, too."""
    unknown = [Free("l1", d.start[0]), Free("l2", d.start[1]), Free("M", d.start[2], 0.0, 1.0, "box")]
    unknown.append(Free("c", 2 * DAMPING, prior_sd=2.0))
    return Equations(lambda x, u, p: drift(x, u, p, p.c), unknown, step=COARSE / 2, density=spread, read=read, states=4)


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

    return Equations(rate, unknown, step=COARSE / 2, density=spread, read=seen, states=4)
