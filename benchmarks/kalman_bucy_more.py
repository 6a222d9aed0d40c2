"""More of the double pendulum of Nagel and Huber (2021): errors against the sampling frequency (their figure 3b) and
states with bands (their figure 4).
"""

import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from spookax.models.double_pendulum import double_pendulum
from spookax.study.identifying.own_equations import identify_equations

from .chart import Band, bands, curves
from .kalman_bucy import LENGTH, SAMPLES, SD, TIME, Draw, draw
from .kalman_bucy_methods import NETWORKS, ONE_BY_ONE, PROCESS, RESTARTED, Found, Task, by_networks
from .measure import OUT, ROOT, Row, row

EVERY = (333, 99, 33, 9, 3, 1)  # samples of 1 ms: 3 Hz to 1 kHz; all but the last are steps of 3 ms apart
SEEDS = (0, 1, 2, 3, 5)
FIGURES = ROOT / "docs/figures"


def run(part: str = "rates") -> list[Row]:
    """`rates`, `start_rates`, `network_rates` or `states`; each draws an SVG file, the first three share one."""
    if part == "states":
        return _states()
    return _network_rates() if part == "network_rates" else _rates(RESTARTED if part == "start_rates" else ONE_BY_ONE)


def _rates(methods: Mapping[str, Callable[[Task], Found]]) -> list[Row]:
    """Mean of the three absolute errors over the draws, at every frequency; a draw that fails counts as one."""
    draws, rows = [draw(seed) for seed in SEEDS], []
    for name, method in methods.items():
        rows += _told(name, [np.array([method(d.thinned(every).task)[0] for d in draws]) for every in EVERY], draws)
    return rows


def _network_rates() -> list[Row]:
    """The same, draws of all frequencies in one batch."""
    draws, rows = [draw(seed) for seed in SEEDS], []
    gaps = [_with_gaps(d, every).task for every in EVERY for d in draws]
    for name, trial in NETWORKS.items():
        rows += _told(name, list(by_networks(gaps, trial).reshape(len(EVERY), len(draws), -1)), draws)
    return rows


def _told(name: str, found: Sequence[np.ndarray], draws: list[Draw]) -> list[Row]:
    """The errors of a method, which join those that other runs have left, and the chart of all."""
    errors = [[1000 / every, _error(of, draws)] for every, of in zip(EVERY, found, strict=True)]
    print(name, " ".join(f"{rate:.3g} Hz {error:.3g}" for rate, error in errors), flush=True)
    kept = OUT / "kalman_bucy_rates_drawn.json"
    lines = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    lines[name] = errors
    lines = {method: lines[method] for method in (*ONE_BY_ONE, *RESTARTED, *NETWORKS) if method in lines}
    OUT.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(lines), encoding="utf-8")
    title = "Double pendulum: error of l1, l2 and M against the sampling frequency"
    svg = curves(title, "samples per second [Hz]", "mean absolute error", lines)
    (FIGURES / "kalman_bucy_rates.svg").write_text(svg, encoding="utf-8")
    return [row(name, f"mean error at {rate:.3g} Hz", error, "") for rate, error in errors]


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
