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
from spookax.estimation.batch.profile import TAIL
from spookax.report.content import verdict

FIGURES = Path(__file__).parents[1] / "docs/figures"
INK, GREY, RULE, MEASURED, OPEN_LOOP = "#1a2330", "#5c6775", "#dfe5ec", "#0063a6", "#c8500a"
GRADES = {"good": "#2e7d32", "fair": "#b26a00", "bad": "#b3261e"}
WIDTH, LEFT, RIGHT, HEIGHT = 900, 64, 884, 120
EVERY = 4  # n-th sample is drawn
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
        kind = {"normal": "", "profile": "profile", "one-sided": "one-sided, at a bound"}[found["interval_kind"]]
        cells = (path, f"{found['value']:.4g} {found['unit']}", f"{low:.4g} to {high:.4g}", kind)
        parts += [_text(x, y, cell, 11.5) for x, cell in zip((16, 260, 400, 580), cells, strict=True)]
    (run,) = content["runs"]
    read, simulated = (estimate.states[f"{run}/{key}/angle"][:, 0] for key in ("measured", "open_loop"))
    band = estimate.states.get(f"{run}/open_loop_sd/angle")
    band = np.zeros_like(read) if band is None else TAIL * band[:, 0]
    parts += _chart(
        y + 30, "angle [rad]: read (blue), simulated from the start with its 90 % band", read, simulated, band
    )
    parts += _chart(y + 185, "read − simulated [rad]", read - simulated, None, band, 60)
    box = f'viewBox="0 0 {WIDTH} {y + 260:.0f}" font-family="system-ui, sans-serif"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box}>\n<rect width="100%" height="100%" fill="#ffffff"/>'
    return "\n".join([head, *parts, "</svg>", ""])


def _chart(
    top: float, title: str, read: np.ndarray, simulated: np.ndarray | None, band: np.ndarray, height: float = HEIGHT
) -> list[str]:
    """Over all samples; the band is about what is simulated, or about zero."""
    low, high = float(np.min(read)), float(np.max(read))
    middle = np.zeros_like(read) if simulated is None else simulated
    some = slice(None, None, EVERY)
    x = np.linspace(LEFT, RIGHT, len(read))[some]

    def line(values: np.ndarray) -> list[str]:
        y = top + 10 + height * (high - np.clip(values[some], low, high)) / (high - low)
        return [f"{a:.0f},{b:.1f}" for a, b in zip(x, y, strict=True)]

    around = " ".join([*line(middle - band), *reversed(line(middle + band))])
    parts = [_text(LEFT, top, title, 11, GREY)]
    parts += [_text(8, top + 14 + height * share, f"{high - share * (high - low):.2g}", 10, GREY) for share in (0, 1)]
    parts.append(f'<polygon points="{around}" fill="{OPEN_LOOP}" fill-opacity="0.25"/>')
    for values, colour in ((read, MEASURED), (middle, OPEN_LOOP)):
        parts.append(f'<polyline points="{" ".join(line(values))}" fill="none" stroke="{colour}" stroke-width="1.2"/>')
    return parts


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
