"""More of the double pendulum of Nagel and Huber (2021): errors against the sampling frequency (their figure 3b) and
states with bands (their figure 4).
"""

import numpy as np

from spookax.models.double_pendulum import double_pendulum
from spookax.study.identifying.own_equations import identify_equations

from .chart import Band, bands, curves
from .kalman_bucy import LENGTH, SAMPLES, SD, TIME, Draw, draw
from .kalman_bucy_methods import NETWORKS, ONE_BY_ONE, PROCESS, by_networks
from .measure import OUT, ROOT, Row, row

EVERY = (333, 99, 33, 9, 3, 1)  # samples of 1 ms: 3 Hz to 1 kHz; all but the last are steps of 3 ms apart
SEEDS = (0, 1, 2, 3, 5)
NETWORK_SEEDS = (0, 1, 2)
FIGURES = ROOT / "docs/figures"


def run(part: str = "rates") -> list[Row]:
    """`rates` or `states`; both write an SVG file, too."""
    return {"rates": _rates, "states": _states}[part]()


def _rates() -> list[Row]:
    """Mean of the three absolute errors over the draws, at every frequency; a draw that fails counts as one."""
    lines: dict[str, list[tuple[float, float]]] = {}
    draws, some = ([draw(seed) for seed in seeds] for seeds in (SEEDS, NETWORK_SEEDS))
    for name, method in ONE_BY_ONE.items():
        found = [np.array([method(d.thinned(every).task)[0] for d in draws]) for every in EVERY]
        lines[name] = [(1000 / every, _error(of, draws)) for every, of in zip(EVERY, found, strict=True)]
        _drawn(name, lines)
    gaps = [_with_gaps(d, every).task for every in EVERY for d in some]  # all frequencies in one batch
    for name, physics in NETWORKS.items():
        found = by_networks(gaps, physics).reshape(len(EVERY), len(some), -1)
        lines[name] = [(1000 / every, _error(of, some)) for every, of in zip(EVERY, found, strict=True)]
        _drawn(name, lines)
    return [
        row(name, f"mean error at {rate:.3g} Hz", error, "") for name, line in lines.items() for rate, error in line
    ]


def _drawn(name: str, lines: dict[str, list[tuple[float, float]]]) -> None:
    """The chart with the methods that have run."""
    print(name, " ".join(f"{rate:.3g} Hz {error:.3g}" for rate, error in lines[name]), flush=True)
    title = "Double pendulum: error of l1, l2 and M against the sampling frequency"
    svg = curves(title, "samples per second [Hz]", "mean absolute error", lines)
    (FIGURES / "kalman_bucy_rates.svg").write_text(svg, encoding="utf-8")


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
