"""Draw what reports say of one good and three bad runs: `python scripts/reports.py [NAME ...]` fills `docs/figures/`.

The runs are synthetic recordings of a pendulum from the coverage benchmark: as they should be, with the input's sign
turned, with the input 30 ms late, and without a torque that would tell the scale of the masses. Minutes.
"""

import sys
import textwrap
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import spookax as sx
from benchmarks import coverage
from spookax.report.charts import INK, Figure, foretold_band, methods_chart
from spookax.report.content import verdict
from spookax.report.signals import Signal, signals
from spookax.report.svg import svg

FIGURES = Path(__file__).parents[1] / "docs/figures"
GRADES = {"good": "#2e7d32", "fair": "#b26a00", "bad": "#b3261e"}
WIDTH = 900
KINDS = {"normal": "", "profile": "profile", "unchecked": "unchecked", "one-sided": "one-sided, at a bound"}
RUNS = {  # case of the benchmark, factor on its input, samples by which that is recorded late
    "good": ("hanging", 1.0, 0),
    "sign": ("hanging", -1.0, 0),
    "late": ("hanging", 1.0, 6),
    "scale": ("ring-down, no known torque", 1.0, 0),
}


def report(name: str) -> str:
    """Identify one of `RUNS` and draw its verdict, its parameters and its simulation beside the readings."""
    case, factor, late = RUNS[name]
    torque, reading = coverage.drawn(case, 1)
    estimate = coverage.identified(case, factor * np.roll(torque[:, 0], late), reading[:, 0], 0)
    content = estimate.to_json()
    told, y = content["trust"], 24.0
    sentence = f"{verdict(estimate.status)[1]}. {told['sentence']}{':' if told['reasons'] else '.'}"
    parts = [_text(16, y, sentence, 14, GRADES[told["grade"]], "bold")]
    for line in [f"– {reason}" for reason in told["reasons"]] + [content["diagnosis"]["sentence"]]:
        for row in textwrap.wrap(line, 135):
            y += 17
            parts.append(_text(16, y, row, 11.5))
    y += 12
    for path, found in estimate.parameters.items():
        y += 17
        low, high = found["interval"]
        cells = (
            path,
            f"{found['value']:.4g} {found['unit']}",
            f"{low:.4g} to {high:.4g}",
            KINDS[found["interval_kind"]],
        )
        parts += [_text(x, y, cell, 11.5) for x, cell in zip((16, 260, 400, 580), cells, strict=True)]
    (run,) = content["runs"]
    (signal,) = signals(run, content["runs"], estimate.states)
    for chart in charts(signal):
        y += 20
        parts.append(svg(chart).replace("<svg ", f'<svg y="{y:.0f}" ', 1))
        y += chart["layout"]["height"]
    box = f'viewBox="0 0 {WIDTH} {y:.0f}" font-family="system-ui, sans-serif"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box}>\n<rect width="100%" height="100%" fill="#ffffff"/>'
    return "\n".join([head, *parts, "</svg>", ""])


def charts(signal: Signal) -> list[Figure]:
    """The angle with its simulation from the start, and what is between the two."""
    assert signal.open_loop is not None
    apart, sd = signal.measured - signal.open_loop, signal.open_loop_sd
    title = "simulated from the start" + ("" if sd is None else ", with its 90 % band")
    first = methods_chart(title, "angle [rad]", signal.time, signal.measured, {"simulated": signal.open_loop})
    first["layout"]["height"] = 300
    if sd is not None:
        first["data"] += foretold_band(signal)
    second = methods_chart("read - simulated", "angle [rad]", signal.time, apart, {})
    second["layout"] |= {"height": 200, "showlegend": False}
    return [first, second]


def _text(x: float, y: float, text: str, size: float, colour: str = INK, weight: str = "normal") -> str:
    return (
        f'<text x="{x:g}" y="{y:.0f}" font-size="{size:g}" fill="{colour}" font-weight="{weight}">{escape(text)}</text>'
    )


def main() -> None:
    """Write the pictures."""
    sx.enable_x64()
    for name in sys.argv[1:] or RUNS:
        (FIGURES / f"report_{name}.svg").write_text(report(name), encoding="utf-8")
        print(f"wrote docs/figures/report_{name}.svg", flush=True)


if __name__ == "__main__":
    main()
