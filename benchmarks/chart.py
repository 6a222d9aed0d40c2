"""Charts of sweeps as SVG text: one panel for each parameter, its estimate and one standard deviation either way."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from html import escape

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
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, -apple-system, Segoe UI, Roboto, Arial, sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(LEFT, 22, title, size=14, weight="bold"),
    ]
    for i, (name, points) in enumerate(panels.items()):
        parts.append(f'<g transform="translate({i % COLUMNS * WIDTH} {HEAD + i // COLUMNS * HEIGHT})">')
        parts += _panel(name, label, points, nominal)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


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
