"""Charts as SVG text: sweeps (one panel for each parameter, its estimate and one standard deviation either way), curves
over logarithmic axes, states over time with bands, and shares of several runs with their range.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

COLUMNS = 3
WIDTH, HEIGHT = 240, 172  # of a panel [px]
LEFT, RIGHT, TOP, BOTTOM = 50, 12, 26, 30  # margins in a panel
HEAD = 34
INK, GREY, RULE, BLUE, ORANGE = "#1a2330", "#5c6775", "#dfe5ec", "#0063a6", "#c8500a"
LARGEST = 1.0  # deviation that a panel shows; what lies farther off is drawn at its edge


@dataclasses.dataclass(frozen=True)
class Point:
    """One estimate over its reference; `good`: whether the identification converged."""

    x: float
    ratio: float
    sd: float
    good: bool


def chart(title: str, label: str, panels: Mapping[str, Sequence[Point]], nominal: float | None) -> str:
    """SVG of panels over one logarithmic axis; a dashed line marks the nominal setting."""
    rows = -(-len(panels) // COLUMNS)
    width, height = COLUMNS * WIDTH, HEAD + rows * HEIGHT
    parts = _begun(title, width, height)
    for i, (name, points) in enumerate(panels.items()):
        parts.append(f'<g transform="translate({i % COLUMNS * WIDTH} {HEAD + i // COLUMNS * HEIGHT})">')
        parts += _panel(name, label, points, nominal)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


COLOURS = (BLUE, ORANGE, "#2b7a44", "#8a4fa3", "#a66a00", "#5b6fa8", "#b3261e", "#3f4a56")


def curves(title: str, along: str, what: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """SVG of points (x, y > 0) joined by lines, both axes logarithmic; what is not finite is left out."""
    width, height, right, bottom = 700, 400, 490, 350
    points = [(math.log10(x), math.log10(y)) for line in lines.values() for x, y in line if 0 < y < math.inf]
    left, low = min(x for x, _ in points), math.floor(min(y for _, y in points))
    far, high = max(x for x, _ in points), max(math.ceil(max(y for _, y in points)), low + 1)

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + 10 + (right - LEFT - 20) * (math.log10(x) - left) / (far - left or 1.0)
        return across, bottom - (bottom - HEAD - 10) * (math.log10(y) - low) / (high - low)

    parts = _begun(title, width, height)
    for k in range(low, high + 1):
        y = place(10**left, 10.0**k)[1]
        parts += [_line(LEFT, y, right, y, RULE), _text(LEFT - 6, y + 4, f"{10.0**k:g}", "end", colour=GREY, size=10)]
    for x in sorted({x for line in lines.values() for x, _ in line}):
        parts.append(
            _text(
                place(x, 1.0)[0], bottom + 16, f"{x:.0f}" if x >= 1000 else f"{x:.3g}", "middle", colour=GREY, size=10
            )
        )
    parts += [_text(right, bottom + 34, along, "end", colour=GREY), _text(LEFT, HEAD, what, colour=GREY)]
    for i, (name, line) in enumerate(lines.items()):
        colour = COLOURS[i % len(COLOURS)]
        at = [place(x, y) for x, y in line if 0 < y < math.inf]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        parts.append(f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.8" fill="{colour}"/>' for x, y in at]
        y = HEAD + 20 + 18 * i
        parts += [_line(right + 8, y - 4, right + 24, y - 4, colour, 'stroke-width="2"'), _text(right + 30, y, name)]
    return "\n".join([*parts, "</svg>", ""])


class Spread(NamedTuple):
    """Values between 0 and 1 over x > 0: the middle of several, and how far they reach."""

    x: np.ndarray
    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray


def spreads(title: str, along: str, lines: Mapping[str, Spread]) -> str:
    """SVG of parts of a whole over a logarithmic axis, each with a band from the least to the largest."""
    width, height, right, bottom = 640, 320, 500, 270
    every = np.concatenate([line.x for line in lines.values()])
    low, high = math.floor(10 * math.log10(every.min())) / 10, math.ceil(10 * math.log10(every.max())) / 10

    def path(x: np.ndarray, y: np.ndarray) -> str:
        across = LEFT + (right - LEFT) * (np.log10(x) - low) / (high - low)
        up = bottom - (bottom - HEAD - 14) * y
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(across, up, strict=True))

    parts = _begun(title, width, height)
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = bottom - (bottom - HEAD - 14) * part
        parts += [_line(LEFT, y, right, y, RULE), _text(LEFT - 6, y + 4, f"{part:.0%}", "end", colour=GREY, size=10)]
    for mark in (m * 10.0**k for k in range(math.floor(low), math.ceil(high)) for m in (1, 2, 5)):
        if low <= math.log10(mark) <= high:
            x = LEFT + (right - LEFT) * (math.log10(mark) - low) / (high - low)
            parts.append(_text(x, bottom + 16, f"{mark:.0e}".replace("e+0", "e"), "middle", colour=GREY, size=10))
    parts.append(_text(right, bottom + 34, along, "end", colour=GREY))
    for i, (name, line) in enumerate(lines.items()):
        colour, y = COLOURS[i % len(COLOURS)], HEAD + 20 + 18 * i
        around = path(np.append(line.x, line.x[::-1]), np.append(line.low, line.high[::-1]))
        parts.append(f'<polygon points="{around}" fill="{colour}" fill-opacity="0.18"/>')
        middle = path(line.x, line.middle)
        parts.append(f'<polyline points="{middle}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        parts += [_line(right + 8, y - 4, right + 24, y - 4, colour, 'stroke-width="2"'), _text(right + 30, y, name)]
    return "\n".join([*parts, "</svg>", ""])


class Band(NamedTuple):
    """A state over time: what is true, what was read (may be nothing), mean and standard deviation of an estimate."""

    time: np.ndarray
    true: np.ndarray
    read: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


def bands(title: str, panels: Mapping[str, Band]) -> str:
    """SVG of states over time, each with a band of two standard deviations."""
    width, each, right = 640, 130, 630
    parts = _begun(title, width, HEAD + each * len(panels) + 10)
    for i, (name, b) in enumerate(panels.items()):
        top, bottom = HEAD + each * i + 18, HEAD + each * (i + 1) - 12
        shown = np.concatenate([b.true, b.read[np.isfinite(b.read)], b.mean])
        low, high = float(shown.min()), float(shown.max())

        def path(y: np.ndarray, t: np.ndarray, span=(top, bottom, low, high), ends=(b.time[0], b.time[-1])) -> str:
            x = LEFT + (right - LEFT) * (t - ends[0]) / (ends[1] - ends[0])
            up = span[1] - (span[1] - span[0]) * (np.clip(y, span[2], span[3]) - span[2]) / (span[3] - span[2])
            return " ".join(f"{a:.1f},{c:.1f}" for a, c in zip(x, up, strict=True))

        around = path(np.concatenate([b.mean - 2 * b.sd, (b.mean + 2 * b.sd)[::-1]]), np.append(b.time, b.time[::-1]))
        there = np.isfinite(b.read)
        dots = [pair.split(",") for pair in path(b.read[there], b.time[there]).split()]
        parts += [_text(LEFT, top - 5, name), _line(LEFT, bottom, right, bottom, RULE)]
        parts += [f'<circle cx="{x}" cy="{y}" r="0.9" fill="#aab4c2"/>' for x, y in dots]
        parts.append(f'<polygon points="{around}" fill="{BLUE}" fill-opacity="0.25"/>')
        parts.append(f'<polyline points="{path(b.true, b.time)}" fill="none" stroke="{ORANGE}" stroke-width="1.2"/>')
        parts.append(f'<polyline points="{path(b.mean, b.time)}" fill="none" stroke="{BLUE}" stroke-width="1"/>')
        for value, y in ((low, bottom), (high, top + 8)):
            parts.append(_text(LEFT - 6, y, f"{value:.3g}", "end", colour=GREY, size=10))
    return "\n".join([*parts, "</svg>", ""])


def _begun(title: str, width: int, height: int) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, -apple-system, Segoe UI, Roboto, Arial, sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(LEFT, 22, title, size=14, weight="bold"),
    ]


def _panel(name: str, label: str, points: Sequence[Point], nominal: float | None) -> list[str]:
    logs = [math.log10(p.x) for p in points]
    low, high = min(logs), max(logs)
    pad = 0.08 * (high - low)
    reach = max((abs(p.ratio - 1) + p.sd for p in points if math.isfinite(p.ratio + p.sd)), default=LARGEST)
    step = _step(min(max(reach, 1e-4), LARGEST))
    reach = math.ceil(min(max(reach, 1e-4), LARGEST) / step) * step
    inner, bottom = WIDTH - LEFT - RIGHT, HEIGHT - BOTTOM

    def at_x(log: float) -> float:
        return LEFT + inner * (log - low + pad) / (high - low + 2 * pad)

    def at_y(deviation: float) -> float:
        held = max(-reach, min(reach, deviation))
        return TOP + (bottom - TOP) * (reach - held) / (2 * reach)

    parts = [_text(10, TOP - 8, name, size=11 if len(name) < 34 else 10, weight="600")]
    count = round(reach / step)
    for k in range(-count, count + 1):
        y = at_y(k * step)
        colour = GREY if k == 0 else RULE
        parts.append(_line(LEFT, y, WIDTH - RIGHT, y, colour))
        parts.append(_text(LEFT - 6, y + 4, f"{100 * k * step:+.3g} %" if k else "0", "end", colour=GREY, size=10))
    for p, log in zip(points, logs, strict=True):
        parts.append(_text(at_x(log), bottom + 12, f"{p.x:.{3 if p.x > 0.01 else 2}g}", "middle", colour=GREY, size=9))
    parts.append(_text(WIDTH - RIGHT, HEIGHT - 5, label, "end", colour=GREY, size=10))
    if nominal is not None and low - pad <= math.log10(nominal) <= high + pad:
        x = at_x(math.log10(nominal))
        parts.append(_line(x, TOP, x, bottom, GREY, 'stroke-dasharray="3 3"'))
    shown = [(at_x(log), p) for p, log in zip(points, logs, strict=True) if math.isfinite(p.ratio + p.sd)]
    joined = " ".join(f"{x:.1f},{at_y(p.ratio - 1):.1f}" for x, p in shown)
    parts.append(f'<polyline points="{joined}" fill="none" stroke="{BLUE}" stroke-opacity="0.35"/>')
    for x, p in shown:
        y, colour = at_y(p.ratio - 1), BLUE if p.good else ORANGE
        parts.append(_line(x, at_y(p.ratio - 1 - p.sd), x, at_y(p.ratio - 1 + p.sd), colour, 'stroke-width="2"'))
        fill = "#ffffff" if abs(p.ratio - 1) > reach or not p.good else colour
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{fill}" stroke="{colour}" stroke-width="1.5"/>')
    return parts


def _step(reach: float) -> float:
    """Distance of grid lines: 1, 2 or 5 times a power of ten, two or three to either side."""
    power = 10.0 ** math.floor(math.log10(reach / 2))
    return next(f * power for f in (1, 2, 5, 10) if reach / (f * power) <= 2.5)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" {more}/>'


def _text(
    x: float, y: float, text: str, anchor: str = "start", *, colour: str = INK, size: int = 11, weight: str = "normal"
) -> str:
    look = f'text-anchor="{anchor}" fill="{colour}" font-size="{size}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escape(text)}</text>'
