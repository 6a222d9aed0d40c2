"""Charts with one pair of axes as SVG files, for where no browser draws them: curves, points, bands, areas."""

from html import escape
from typing import Any

import numpy as np

from .charts import INK, RULE, Figure

_WIDTH = 900
_FONT = "system-ui, -apple-system, Segoe UI, Roboto, Arial, sans-serif"
_LETTER = 7.2  # its width in the legend [px]


def svg(figure: Figure) -> str:
    """The text of an SVG file, which may stand inside another: charts of one height share the frame that clips them."""
    layout = figure["layout"]
    height, margin = layout["height"], layout["margin"]
    left, right = margin["l"], _WIDTH - margin["r"]
    top, bottom = margin["t"], height - margin["b"]
    spans = [_span(figure, axis) for axis in ("x", "y")]

    def at(values: Any, axis: int) -> np.ndarray:
        low, high = spans[axis]
        share = (np.array([np.nan if v is None else v for v in values], dtype=float) - low) / (high - low)
        return left + share * (right - left) if axis == 0 else bottom - share * (bottom - top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'font-family="{_FONT}" font-size="13" fill="{INK}">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<clipPath id="inside{height}"><rect x="{left}" y="{top}" width="{right - left}" height="{bottom - top}"/>'
        "</clipPath>",
    ]
    for axis in (0, 1):
        for tick in _ticks(*spans[axis]):
            place = float(at([tick], axis)[0])
            if axis == 0:
                parts.append(f'<path d="M{place:.1f} {top}V{bottom}" stroke="{RULE}"/>')
                parts.append(f'<text x="{place:.1f}" y="{bottom + 17}" text-anchor="middle">{tick:.6g}</text>')
            else:
                parts.append(f'<path d="M{left} {place:.1f}H{right}" stroke="{RULE}"/>')
                parts.append(f'<text x="{left - 7}" y="{place + 4:.1f}" text-anchor="end">{tick:.6g}</text>')
    parts.append(f'<g clip-path="url(#inside{height})">')
    before, floor = None, None
    for curve in figure["data"]:
        x, y = at(curve["x"], 0), np.array([np.nan if v is None else v for v in curve["y"]], dtype=float)
        if curve.get("stackgroup"):
            below = np.zeros_like(y) if floor is None else floor
            floor = below + y
            parts.append(_area(x, at(floor, 1), x, at(below, 1), curve["fillcolor"]))
            continue
        place = at(y, 1)
        if curve.get("fill") == "tonexty" and before is not None:
            parts.append(_area(x, place, *before, curve["fillcolor"]))
        before = x, place
        line = curve.get("line", {})
        if "lines" in curve.get("mode", "lines") and line.get("width", 1.6) > 0:
            parts.append(_line(x, place, line))
        if "markers" in curve.get("mode", ""):
            marker = curve["marker"]
            dots = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in zip(x, place, strict=True) if np.isfinite(a + b))
            parts.append(
                f'<path d="{dots}" stroke="{marker["color"]}" stroke-width="{marker["size"]}" stroke-linecap="round"/>'
            )
    parts.append("</g>")
    parts.append(
        f'<rect x="{left}" y="{top}" width="{right - left}" height="{bottom - top}" fill="none" stroke="#97a3b2"/>'
    )
    parts += _words(figure, left, right, top, bottom)
    return "\n".join([*parts, "</svg>\n"])


def _span(figure: Figure, axis: str) -> tuple[float, float]:
    given = figure["layout"][f"{axis}axis"].get("range")
    if given is not None:
        return float(given[0]), float(given[1])
    values = np.concatenate([[v for v in curve[axis] if v is not None] for curve in figure["data"]])
    low, high = float(np.min(values)), float(np.max(values))
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


def _ticks(low: float, high: float) -> np.ndarray:
    """Five to ten round numbers within a span."""
    rough = (high - low) / 6.0
    size = 10.0 ** np.floor(np.log10(rough))
    step = size * min((1.0, 2.0, 5.0, 10.0), key=lambda s: abs(np.log(s * size / rough)))
    ticks = step * np.arange(np.ceil(low / step), np.floor(high / step) + 1)
    return np.where(np.abs(ticks) < 1e-9 * step, 0.0, ticks)


def _line(x: np.ndarray, y: np.ndarray, look: dict[str, Any]) -> str:
    path, pen = [], "M"
    for a, b in zip(x, y, strict=True):
        if np.isfinite(a + b):
            path.append(f"{pen}{a:.1f} {b:.1f}")
            pen = "L"
        else:
            pen = "M"
    dash = ' stroke-dasharray="6 4"' if look.get("dash") == "dash" else ""
    return f'<path d="{"".join(path)}" fill="none" stroke="{look["color"]}" stroke-width="{look["width"]}"{dash}/>'


def _area(x: np.ndarray, y: np.ndarray, x0: np.ndarray, y0: np.ndarray, colour: str) -> str:
    edge = [*zip(x, y, strict=True), *zip(x0[::-1], y0[::-1], strict=True)]
    return f'<path d="M{"L".join(f"{a:.1f} {b:.1f}" for a, b in edge if np.isfinite(a + b))}Z" fill="{colour}"/>'


def _words(figure: Figure, left: float, right: float, top: float, bottom: float) -> list[str]:
    """Heading, titles of the axes, legend."""
    layout, words = figure["layout"], []
    for note in layout["annotations"]:
        text = escape(note["text"].removeprefix("<b>").removesuffix("</b>"))
        words.append(f'<text x="{left}" y="{top - 8}" font-weight="bold">{text}</text>')
    for axis in ("x", "y"):
        if title := layout[f"{axis}axis"].get("title"):
            text = escape(title["text"])
            if axis == "x":
                words.append(f'<text x="{(left + right) / 2}" y="{bottom + 38}" text-anchor="middle">{text}</text>')
            else:
                y = (top + bottom) / 2
                words.append(f'<text transform="translate(18 {y}) rotate(-90)" text-anchor="middle">{text}</text>')
    if layout.get("showlegend", True) and "legend" in layout:
        x = right
        for curve in reversed([c for c in figure["data"] if c.get("showlegend", True)]):
            colour = curve.get("fillcolor") or curve.get("line", {}).get("color") or curve["marker"]["color"]
            x -= _LETTER * len(curve["name"]) + 12
            words.append(f'<text x="{x}" y="{top - 8}">{escape(curve["name"])}</text>')
            words.append(f'<path d="M{x - 20} {top - 13}h14" stroke="{colour}" stroke-width="5"/>')
            x -= 26
    return words
