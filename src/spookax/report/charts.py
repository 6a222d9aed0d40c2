"""Charts as plotly.js figures: dictionaries of data and layout."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from ..estimation.batch.profile import TAIL
from ..estimation.batch.reading_weights import KEPT
from .numbers import finite, unit
from .signals import Signal
from .thin import thin

Figure = dict[str, Any]

MEASURED, ESTIMATED, OPEN_LOOP, INK, RULE = "#aab4c2", "#0063a6", "#c8500a", "#1a2330", "#e3e8ee"
SHARES = ("#7fb0d8", "#e8a33d", "#6fa86f", "#c58ab8", "#97a3b2", "#d9705f", "#c9b94f", "#5b6fa8")
_TOP, _BOTTOM = 64, 46  # margins [px]


def signal_chart(signal: Signal, estimated: str = "estimated") -> Figure:
    """Measured, estimated (by what name) and open loop above what remains of the measured, over one time axis."""
    layout = _layout(400) | {"hovermode": "x", "annotations": [_heading(signal.label, 1)]}
    layout["legend"] = {"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom"}
    span: dict[str, Any] = {"range": [float(signal.time[0]), float(signal.time[-1])]}
    layout["xaxis"] = _axis(anchor="y", showticklabels=False, **span)
    layout["xaxis2"] = _axis(anchor="y2", matches="x", title="time [s]", **span)
    layout["yaxis"] = _axis(anchor="x", domain=[0.36, 1], title=unit(signal.unit))
    layout["yaxis2"] = _axis(anchor="x2", domain=[0, 0.31], title="residual")
    sparse = bool(np.mean(np.isfinite(signal.measured)) < 0.5)
    look: dict[str, Any] = {"mode": "lines", "line": {"color": MEASURED, "width": 4}}
    if sparse:
        look = {"mode": "markers", "marker": {"color": "#66707e", "size": 5}}
    kept = signal.measured
    if signal.weight is not None:
        kept = np.where(signal.weight < KEPT, np.nan, signal.measured)
    data = [_curve(signal.time, kept, 1, name="measured", **look)]
    if (wild := np.isfinite(signal.measured) & ~np.isfinite(kept)).any():
        look = {"mode": "markers", "marker": {"color": OPEN_LOOP, "size": 7, "symbol": "x-thin-open"}}
        data.append(_curve(signal.time[wild], signal.measured[wild], 1, name="set aside", **look))
    for name, values, colour, dash in (
        ("open loop", signal.open_loop, OPEN_LOOP, "dash"),
        (estimated, signal.estimated, ESTIMATED, "solid"),
    ):
        if values is None:
            continue
        look = {"mode": "lines", "line": {"color": colour, "width": 1.6, "dash": dash}}
        data.append(_curve(signal.time, values, 1, name=name, legendgroup=name, **look))
        if sparse:
            look = {"mode": "markers", "marker": {"color": colour, "size": 4}}
        if name == "open loop" and signal.open_loop_sd is not None:
            data += foretold_band(signal)
        residual = kept - values
        data.append(_curve(signal.time, residual, 2, name=name, legendgroup=name, showlegend=False, **look))
    return {"data": data, "layout": layout}


def methods_chart(title: str, unit_text: str, time: np.ndarray, measured: np.ndarray, by: Mapping[str, Any]) -> Figure:
    """Measured values and what each of some methods predicts. A prediction far beyond what was measured is cut off."""
    layout = _layout(360) | {"hovermode": "x", "annotations": [_heading(title, 1)]}
    layout["legend"] = {"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom"}
    layout["xaxis"] = _axis(title="time [s]", range=[float(time[0]), float(time[-1])])
    low, high = float(np.nanmin(measured)), float(np.nanmax(measured))
    margin = 0.5 * (high - low) or 1.0
    layout["yaxis"] = _axis(title=unit_text, range=[low - margin, high + margin])
    data = [_curve(time, measured, 1, name="measured", mode="lines", line={"color": MEASURED, "width": 5})]
    for (name, values), colour in zip(by.items(), cycle((ESTIMATED, OPEN_LOOP, *SHARES[2:])), strict=False):
        data.append(_curve(time, values, 1, name=name, mode="lines", line={"color": colour, "width": 1.4}))
    return {"data": data, "layout": layout}


def contact_chart(title: str, time: np.ndarray, forces: np.ndarray) -> Figure:
    """Normal force and friction (n, 2) of a pair of surfaces over time."""
    layout = _layout(260) | {"hovermode": "x", "annotations": [_heading(title, 1)]}
    layout["legend"] = {"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom"}
    layout["xaxis"] = _axis(title="time [s]", range=[float(time[0]), float(time[-1])])
    layout["yaxis"] = _axis(title="N")
    kinds = ("normal force", ESTIMATED, "solid"), ("friction", OPEN_LOOP, "dash")
    data = [
        _curve(time, forces[:, i], 1, name=name, mode="lines", line={"color": colour, "width": 1.4, "dash": dash})
        for i, (name, colour, dash) in enumerate(kinds)
    ]
    return {"data": data, "layout": layout}


def foretold_band(signal: Signal) -> list[dict[str, Any]]:
    """Where 90 % of the posterior's simulations lie, as far as the signal reaches and half as far again."""
    assert signal.open_loop is not None
    assert signal.open_loop_sd is not None
    low, high = float(np.nanmin(signal.measured)), float(np.nanmax(signal.measured))
    room = (high - low) / 2
    edges = (signal.open_loop + side * TAIL * signal.open_loop_sd for side in (-1, 1))
    below, above = (np.clip(edge, low - room, high + room) for edge in edges)
    look: dict[str, Any] = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "legendgroup": "open loop"}
    return [
        _curve(signal.time, below, 1, name="5 %", showlegend=False, **look),
        _curve(
            signal.time,
            above,
            1,
            name="95 %",
            showlegend=False,
            fill="tonexty",
            fillcolor="rgba(200, 80, 10, 0.2)",
            **look,
        ),
    ]


def band_chart(
    title: str, unit_text: str, time: np.ndarray, value: np.ndarray, sd: np.ndarray, along: str = "time [s]"
) -> Figure:
    """A state over time, or over what `along` says, with a band of two standard deviations. Where that is wide for a
    moment, as at a start that is hardly known, the chart cuts it off.
    """
    layout = _layout(300) | {"hovermode": "x", "showlegend": False, "annotations": [_heading(title, 1)]}
    layout["xaxis"] = _axis(title=along, range=[float(time[0]), float(time[-1])])
    low, high = min(value.min(), np.quantile(value - 2 * sd, 0.02)), max(value.max(), np.quantile(value + 2 * sd, 0.98))
    margin = 0.05 * (high - low) or 1.0
    layout["yaxis"] = _axis(title=unit_text, range=[float(low - margin), float(high + margin)], exponentformat="power")
    edge: dict[str, Any] = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    data = [
        _curve(time, value - 2 * sd, 1, name="-2 sd", **edge),
        _curve(time, value + 2 * sd, 1, name="+2 sd", fill="tonexty", fillcolor="rgba(0, 99, 166, 0.2)", **edge),
        _curve(time, value, 1, name=title, mode="lines", line={"color": ESTIMATED, "width": 1.6}),
    ]
    return {"data": data, "layout": layout}


def points_chart(title: str, time: np.ndarray, value: np.ndarray, levels: Sequence[float]) -> Figure:
    """Points over time, and lines at some levels."""
    layout = _layout(260) | {"hovermode": "closest", "showlegend": False, "annotations": [_heading(title, 1)]}
    span = [float(time[0]), float(time[-1])] if len(time) else [0.0, 1.0]
    layout["xaxis"], layout["yaxis"] = _axis(title="time [s]", range=span), _axis()
    data = [_curve(time, value, 1, name=title, mode="markers", marker={"color": "#66707e", "size": 3})]
    line = {"mode": "lines", "line": {"color": OPEN_LOOP, "width": 1.2}, "hoverinfo": "skip"}
    data += [_curve(span, np.full(2, level), 1, name=f"{level:g}", **line) for level in levels]
    return {"data": data, "layout": layout}


def law_chart(
    title: str,
    unit_text: str,
    points: tuple[np.ndarray, np.ndarray],
    speed: np.ndarray,
    laws: Mapping[str, np.ndarray],
    level: tuple[str, float, float] | None = None,
    along: str = "speed [m/s]",
) -> Figure:
    """Points of a force over the speed, and laws for it, the first one drawn thick. `level`: name, height and standard
    deviation of what holds at speed zero.
    """
    layout = _layout(360) | {"hovermode": "closest", "annotations": [_heading(title, 1)]}
    layout["legend"] = {"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom"}
    low, high = float(np.min(points[1])), float(np.max(points[1]))
    if level is not None:
        low, high = min(low, level[1] - level[2]), max(high, level[1] + level[2])
    margin = 0.1 * (high - low) or 1.0
    fastest = float(speed[-1])
    layout["xaxis"] = _axis(title=along, range=[-0.02 * fastest, 1.02 * fastest])
    layout["yaxis"] = _axis(title=unit_text, range=[low - margin, high + margin])
    kept = np.unique(np.linspace(0, len(points[0]) - 1, 3000).astype(int))
    look: dict[str, Any] = {"mode": "markers", "marker": {"color": MEASURED, "size": 4}}
    data = [_curve(points[0][kept], points[1][kept], 1, name="samples", **look)]
    for (name, values), colour in zip(laws.items(), cycle((ESTIMATED, *SHARES[1:])), strict=False):
        width = 2.4 if name == next(iter(laws)) else 1.2
        data.append(_curve(speed, values, 1, name=name, mode="lines", line={"color": colour, "width": width}))
    if level is not None:
        name, at, sd = level
        look = {
            "mode": "lines+markers",
            "line": {"color": OPEN_LOOP, "width": 2},
            "marker": {"color": OPEN_LOOP, "size": 6},
        }
        data.append(_curve(np.zeros(3), np.array([at - sd, at, at + sd]), 1, name=name, **look))
    return {"data": data, "layout": layout}


def share_chart(title: str, time: np.ndarray, shares: Mapping[str, np.ndarray]) -> Figure:
    """What shares one whole over time, such as the probabilities of modes, one on top of the other."""
    layout = _layout(260) | {"hovermode": "x unified", "annotations": [_heading(title, 1)]}
    layout["legend"] = {"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom"}
    layout["legend"]["traceorder"] = "normal"
    layout["xaxis"] = _axis(title="time [s]", range=[float(time[0]), float(time[-1])])
    layout["yaxis"] = _axis(range=[0, 1])
    index = np.arange(len(time))  # areas on top of each other need the same points
    limit = max(4000 // len(shares), 4)
    kept = np.unique(np.concatenate([thin(index, values, limit)[0] for values in shares.values()]))
    data = [
        _curve(time[kept], values[kept], 1, name=name, mode="lines", stackgroup="shares", fillcolor=colour)
        | {"line": {"color": colour, "width": 0}, "hovertemplate": "%{y:.3f}"}
        for (name, values), colour in zip(shares.items(), cycle(SHARES), strict=False)
    ]
    return {"data": data, "layout": layout}


def convergence_chart(steps: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Cost and damping over the iterations, on logarithmic axes.

    Fits that follow each other, whose iterations begin anew, stand side by side. A cost with determinant terms may be
    negative; then its excess over the lowest is drawn. None if there is no iteration with a cost.
    """
    steps = [step for step in steps if finite(step.get("cost")) is not None]
    if not steps:
        return None
    own = np.array([step.get("iteration", i) for i, step in enumerate(steps)])
    begins = np.flatnonzero(np.diff(own) < 0) + 1
    before = np.zeros(len(own), dtype=int)
    before[begins] = own[begins - 1] + 1 - own[begins]
    # a number that is none, which interrupts the line
    iteration = np.insert((own + np.cumsum(before)).astype(float), begins, np.nan)
    cost = np.array([float(step["cost"]) for step in steps])
    title = "cost"
    if cost.min() <= 0:
        cost, title = cost - cost.min(), "cost above the lowest"
    damping = np.array([finite(step.get("damping")) or np.nan for step in steps])
    layout = _layout(400) | {"showlegend": False}
    layout["xaxis"] = _axis(anchor="y", showticklabels=False)
    layout["xaxis2"] = _axis(anchor="y2", matches="x", title="iteration", tickformat="d")
    layout["yaxis"] = _axis(domain=[0.42, 1], title=title, type="log", exponentformat="power")
    layout["yaxis2"] = _axis(domain=[0, 0.34], title="damping", type="log", exponentformat="power", anchor="x2")
    data = [
        _curve(iteration, np.insert(np.where(values > 0, values, np.nan), begins, np.nan), row, name=name)
        | {"mode": "lines+markers", "line": {"color": colour, "width": 2}, "marker": {"size": 7}}
        for row, values, name, colour in ((1, cost, title, ESTIMATED), (2, damping, "damping", "#66707e"))
    ]
    return {"data": data, "layout": layout}


def correlation_chart(paths: Sequence[str], matrix: Any) -> Figure | None:
    """Correlations of the parameters as a map from -1 to 1. None if there are none."""
    values = np.array([[finite(x) for x in row] for row in matrix], dtype=float)
    if not np.any(np.isfinite(values)):
        return None
    side = max(26 * len(paths), 160)
    layout = _layout(side + 220) | {"margin": {"l": 8, "r": 8, "t": 36, "b": 8}}
    ticks = {"tickmode": "array", "tickvals": list(range(len(paths))), "ticktext": list(paths)}
    layout["xaxis"] = _axis(showgrid=False, ticks="", tickangle=-45, automargin=True) | ticks
    layout["yaxis"] = _axis(showgrid=False, ticks="", autorange="reversed", automargin=True) | ticks
    heat = {
        "type": "heatmap",
        "z": [_json(row) for row in values],
        "zmin": -1,
        "zmax": 1,
        "colorscale": [
            [0, "#8a3800"],
            [0.25, "#e8a33d"],
            [0.5, "#ffffff"],
            [0.75, "#6aaed6"],
            [1, "#084a8c"],
        ],
        "xgap": 1,
        "ygap": 1,
        "customdata": [[[row, column] for column in paths] for row in paths],
        "hovertemplate": "%{customdata[0]}<br>%{customdata[1]}<br>%{z:.3f}<extra></extra>",
        "colorbar": {"thickness": 14, "tickvals": [-1, -0.5, 0, 0.5, 1], "outlinewidth": 0},
    }
    if len(paths) <= 16:
        heat |= {"texttemplate": "%{z:.2f}", "textfont": {"size": 10}}
    return {"data": [heat], "layout": layout}


def innovation_chart(samples: Mapping[str, np.ndarray]) -> Figure | None:
    """Histograms of innovations, one panel per sensor, and the normal density. None without samples.

    **Arguments:** `samples`: sensor -> normalised innovations. Those beyond 5 are counted in the outermost
    bars.
    """
    samples = {sensor: z for sensor, z in samples.items() if z.size}
    if not samples:
        return None
    edges = np.linspace(-5, 5, 41)
    grid = np.linspace(-5, 5, 121)
    normal = np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi)
    columns = min(3, len(samples))
    rows = -(-len(samples) // columns)
    layout = _layout(rows * 230 + 60) | {"showlegend": False, "bargap": 0.04, "annotations": []}
    data: list[dict[str, Any]] = []
    for i, (sensor, z) in enumerate(samples.items()):
        row, column = divmod(i, columns)
        left, right = (column + 0.04) / columns, (column + 0.92) / columns
        bottom, top = 1 - (row + 0.84) / rows, 1 - (row + 0.06) / rows
        k = _nth(i + 1)
        layout[f"xaxis{k}"] = _axis(domain=[left, right], anchor=f"y{k}", range=[-5, 5], title="innovation / spread")
        layout[f"yaxis{k}"] = _axis(domain=[bottom, top], anchor=f"x{k}", rangemode="tozero")
        layout["annotations"].append(_heading(sensor, top, left))
        density = np.histogram(np.clip(z, -4.999, 4.999), edges, density=True)[0]
        bars = {"type": "bar", "marker": {"color": "#7fb0d8"}, "name": "innovations"}
        line = {"mode": "lines", "line": {"color": INK, "width": 1.5}, "hoverinfo": "skip"}
        data.append(_curve((edges[:-1] + edges[1:]) / 2, density, i + 1) | bars)
        data.append(_curve(grid, normal, i + 1, name="normal") | line)
    return {"data": data, "layout": layout}


def whiteness_chart(
    title: str, lag: float, own: Sequence[float], cross: Mapping[str, Sequence[float]], limit: float
) -> Figure:
    """Correlations of innovations with their past, above those with every input; 99 % of them lie between the lines.

    `lag`: time from one lag to the next [s]; `own`: from lag 1 on; `cross`: from -n to n, positive where the input came
    first.
    """
    layout = _layout(340 if cross else 240) | {"hovermode": "closest", "annotations": [_heading(title, 1)]}
    layout["legend"] = {"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom"}
    layout["xaxis"], layout["yaxis"] = _axis(anchor="y"), _axis(domain=[0.6, 1] if cross else [0, 1], title="own past")
    curves = [(1, "own past", lag * np.arange(1, len(own) + 1), np.array(own), ESTIMATED)]
    if cross:
        layout["xaxis2"] = _axis(anchor="y2", title="lag [s]")
        layout["yaxis2"] = _axis(anchor="x2", domain=[0, 0.44], title="input")
        for (name, line), colour in zip(cross.items(), cycle(SHARES)):
            n = len(line) // 2
            curves.append((2, name, lag * np.arange(-n, n + 1), np.array(line), colour))
    else:
        layout["xaxis"] = _axis(anchor="y", title="lag [s]")
    look: dict[str, Any] = {"mode": "lines", "line": {"color": OPEN_LOOP, "width": 1.2}, "hoverinfo": "skip"}
    data = []
    for row, name, x, y, colour in curves:
        data.append(_curve(x, y, row, name=name) | {"mode": "lines+markers", "line": {"color": colour, "width": 1.2}})
        for level in (limit, -limit):
            data.append(_curve(x[[0, -1]], np.full(2, level), row, name="99 %", showlegend=False, **look))
    return {"data": data, "layout": layout}


def _layout(height: float) -> dict[str, Any]:
    return {
        "height": round(height),
        "margin": {"l": 92, "r": 16, "t": _TOP, "b": _BOTTOM},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "font": {
            "family": "system-ui, -apple-system, Segoe UI, Roboto, Arial, sans-serif",
            "size": 13,
            "color": INK,
        },
        "dragmode": "zoom",
    }


def _axis(title: str = "", **others: Any) -> dict[str, Any]:
    look = {"gridcolor": RULE, "zerolinecolor": "#c6cfd9", "linecolor": "#97a3b2", "showline": True}
    heading = {"title": {"text": title, "standoff": 6}} if title else {}
    return look | {"ticks": "outside", "tickcolor": "#97a3b2"} | heading | others


def _heading(text: str, y: float, x: float = 0.0) -> dict[str, Any]:
    place = {"x": x, "xref": "paper", "xanchor": "left", "y": y, "yref": "paper", "yanchor": "bottom"}
    return place | {"text": f"<b>{text}</b>", "showarrow": False, "font": {"size": 13}}


def _curve(x: Any, y: np.ndarray, row: int, **others: Any) -> dict[str, Any]:
    x, y = thin(np.asarray(x, dtype=float), y)
    place = {"xaxis": f"x{_nth(row)}", "yaxis": f"y{_nth(row)}"}
    return {"type": "scatter", "x": _json(x, 9), "y": _json(y), **place, **others}


def _nth(n: int) -> str:
    """How plotly counts axes: x, x2, x3, ..."""
    return "" if n == 1 else str(n)


def _json(values: Iterable[float], digits: int = 6) -> list[float | None]:
    return [float(f"{x:.{digits}g}") if np.isfinite(x) else None for x in values]
