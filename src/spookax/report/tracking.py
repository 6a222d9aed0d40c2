"""Charts of a recording that was filtered or smoothed, over one time axis."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..scene.paths import network_of
from .charts import Figure, band_chart, points_chart, share_chart
from .numbers import unit
from .signals import signals


def tracking_charts(
    prefix: str, run: str, tracking: Mapping[str, Any], states: Mapping[str, np.ndarray]
) -> dict[str, tuple[str, Figure]]:
    """Name -> caption and chart, of a run: modes, joints, innovations, parameters."""
    time, own = states[f"{run}/state_time"], f"{run}/"
    found: dict[str, tuple[str, Figure]] = {}

    def bands(key: str, title: str, units: Mapping[str, str]) -> None:
        for i, name in enumerate(_names(states, f"{own}{key}/")):
            value, sd = states[f"{own}{key}/{name}"], states[f"{own}{key}_sd/{name}"]
            if network_of(name) or np.ptp(value) <= 1e-6 * np.max(
                sd
            ):  # a constant that all readings have told of: the table has it
                continue
            chart = band_chart(f"{name}{title}", unit(units.get(name, "")), time, value, sd)
            caption = f"Run {run}, {name}{title}, with a band of two standard deviations."
            found[f"{prefix}-{key}-{i}"] = caption, chart

    if modes := _names(states, f"{own}probability/"):
        chart = share_chart("modes", time, {mode: states[f"{own}probability/{mode}"] for mode in modes})
        found[f"{prefix}-modes"] = f"Run {run}: probability of every mode; they sum to one.", chart
    of = {path: p.get("unit") or "" for path, p in (tracking.get("parameters") or {}).items()}
    axes = dict(tracking["axes"])
    bands("position", ": position", axes)
    bands("rate", ": rate", {axis: f"{text}/s" for axis, text in axes.items()})
    for i, signal in enumerate(signals(run, tracking["runs"], states)):
        if signal.innovation is None:
            continue
        there = np.isfinite(signal.innovation)
        chart = points_chart(f"{signal.label}: innovation", signal.time[there], signal.innovation[there], (-2, 2))
        caption = f"Run {run}, {signal.label}: innovations in their own standard deviation, 95 % between the lines."
        found[f"{prefix}-innovation-{i}"] = caption, chart
    size = states[f"{own}nis_size"]
    there = size > 0
    nis = points_chart("innovations squared", time[there], states[f"{own}nis"][there] / size[there], (1,))
    caption = f"Run {run}: squared innovations of every step, each in units of its variance, divided by their number."
    found[f"{prefix}-nis"] = caption, nis
    bands("parameter", "", of)
    return found


def _names(states: Mapping[str, np.ndarray], prefix: str) -> list[str]:
    return [key.removeprefix(prefix) for key in states if key.startswith(prefix)]
