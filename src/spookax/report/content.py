"""What the report says in words and tables, worked out from an estimate."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..scene.paths import network_of
from .numbers import finite, measured, number, percent, unit, with_unit
from .signals import Signal

GRADES = ("good", "fair", "bad")  # the worst last
STATUS = {
    "converged": ("good", "The identification converged"),
    "stopped": ("fair", "The identification was stopped before it converged"),
    "interrupted": ("fair", "The identification was interrupted before it converged"),
    "iteration_limit": ("fair", "The identification reached its limit of iterations before it converged"),
    "local_minimum": ("fair", "The identification converged, but does not explain the recordings"),
    "no_information": ("fair", "The identification converged, but the recordings do not tell all parameters"),
    "unphysical": ("fair", "The identification converged to numbers that no body has"),
    "no_progress": ("bad", "The identification failed: it did not reach a minimum"),
    "stuck_at_start": ("bad", "The identification failed: no step from the start lowered the cost"),
    "step_failed": ("bad", "The identification failed: the simulator did not solve all steps"),
    "nonfinite": ("bad", "The identification failed: the simulation diverged"),
    "failed": ("bad", "The identification failed"),
}
STRONG_CORRELATION = 0.95
MOST_OUTLIERS = 30  # that are listed
LARGE_SHIFT = 1.0  # of an estimate when the step is halved [standard deviations]


@dataclass(frozen=True)
class ParameterRow:
    """One line of the parameter table, as text."""

    path: str
    unit: str
    start: str
    value: str
    sd: str
    relative_sd: str
    interval: str  # both ends, and how they were found if not from the standard deviation
    lower: str
    upper: str
    at_bound: str  # "lower" or "upper" with the end of the one-sided interval, or empty
    change: str
    tied: str  # the expression that it follows from, or empty


@dataclass(frozen=True)
class Caution:
    """Something that a reader should know before using the numbers."""

    kind: str
    text: str
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProcessRow:
    """The process noise of the mechanism, or of one joint, as text."""

    source: str
    sd: str
    unit: str


@dataclass(frozen=True)
class InnovationRow:
    """How far the innovations of one signal are from white noise."""

    run: str
    signal: str
    rms: str
    correlation: str
    outliers: str


@dataclass(frozen=True)
class OutlierRow:
    """A reading that was set aside, as text."""

    run: str
    signal: str
    time: str
    value: str
    predicted: str
    unit: str
    off: str


def outlier_rows(outliers: Mapping[str, Any], runs: Mapping[str, Any]) -> list[OutlierRow]:
    """The table of readings that were set aside, the first of them."""
    rows = []
    for reading in outliers["readings"][:MOST_OUTLIERS]:
        told = runs[reading["recording"]]["signals"][reading["sensor"]]["unit"].split(", ")
        component = f" {reading['component'] + 1}" if len(told) > 1 else ""
        rows.append(
            OutlierRow(
                run=reading["recording"],
                signal=f"{reading['sensor']}{component}",
                time=number(reading["time"], 6),
                value=number(reading["value"]),
                predicted=number(reading["predicted"]),
                unit=unit(told[min(reading["component"], len(told) - 1)]),
                off=number(reading["off"], 3),
            )
        )
    return rows


def verdict(status: str) -> tuple[str, str]:
    """Class (good, fair, bad) and sentence of a status."""
    return STATUS.get(status, ("bad", f"The identification ended with the status “{status}”"))


def parameter_rows(parameters: Mapping[str, Mapping[str, Any]]) -> list[ParameterRow]:
    """The parameter table, without the weights of networks: their friction is drawn."""
    return [_parameter_row(path, parameter) for path, parameter in parameters.items() if not network_of(path)]


def networks(parameters: Iterable[str]) -> dict[str, int]:
    """Path of the weights of every network that is among some parameters, and how many they are."""
    return Counter(whole for path in parameters if (whole := network_of(path)))


def _parameter_row(path: str, parameter: Mapping[str, Any]) -> ParameterRow:
    value, sd, start = (finite(parameter.get(key)) for key in ("value", "sd", "start"))
    change = ""
    if value is not None and start is not None:
        change = f"{100 * (value - start) / abs(start):+.3g} %" if start else f"{value - start:+.3g}"
    bound = bound_hit(parameter)
    if bound and parameter.get("interval"):
        bound, sd = f"{bound}, {_allowed(parameter, bound)}", None
    return ParameterRow(
        path=path,
        unit=unit(parameter.get("unit")),
        start=number(start),
        value=measured(value, sd),
        sd=number(sd, 2),
        relative_sd=percent(sd / abs(value), 2) if value and sd is not None else number(None),
        interval=_interval(parameter),
        lower=number(parameter.get("lower")),
        upper=number(parameter.get("upper")),
        at_bound=bound,
        change=change or number(None),
        tied=parameter.get("tied", ""),
    )


def _interval(parameter: Mapping[str, Any]) -> str:
    if not (ends := parameter.get("interval")):
        return number(None)
    # infinite ends are null in a file
    low, high = (side * math.inf if end is None else end for side, end in zip((-1, 1), ends, strict=True))
    kind = {"profile": ", profile", "one-sided": ", one-sided", "unchecked": ", unchecked"}.get(
        parameter.get("interval_kind", ""), ""
    )
    return f"{number(low)} to {number(high)}{kind}"


def _allowed(parameter: Mapping[str, Any], side: str) -> str:
    low, high = (finite(end) for end in parameter["interval"])
    return f"up to {number(high)}" if side == "lower" else f"down to {number(low)}"


def bound_hit(parameter: Mapping[str, Any]) -> str:
    """Which bound a value lies on, as the estimate says or else to a millionth: "lower", "upper" or empty."""
    if "at_bound" in parameter:
        return parameter["at_bound"]
    value = finite(parameter.get("value"))
    bounds = {side: finite(parameter.get(side)) for side in ("lower", "upper")}
    if value is None:
        return ""
    width = (bounds["upper"] or 0.0) - (bounds["lower"] or 0.0)
    near = 1e-6 * min(abs(width), abs(value)) if width else 0.0
    for side, bound in bounds.items():
        if bound is not None and math.isclose(value, bound, rel_tol=1e-6, abs_tol=near):
            return side
    return ""


def cautions(estimate: Mapping[str, Any]) -> Iterator[Caution]:
    """What limits the use of an estimate, the worst first. Of single weights of networks nothing is said."""
    parameters = {path: p for path, p in (estimate.get("parameters") or {}).items() if not network_of(path)}
    checks = estimate.get("checks") or {}
    for group in checks.get("gauge") or ():
        message = group.get("message", "")
        unnamed = tuple(path for path in group.get("paths", ()) if path not in message)
        yield Caution("Not determined", message, unnamed)
    for path, parameter in parameters.items():
        if side := bound_hit(parameter):
            bound = with_unit(number(parameter.get(side, parameter.get("value"))), parameter.get("unit"))
            text = f"It lies on its {side} bound, {bound}"
            text += f"; the recordings allow {_allowed(parameter, side)} (95 %)." if parameter.get("interval") else "."
            yield Caution("On a bound", text, (path,))
    for path, half in (checks.get("half_step") or {}).items():
        shift = finite(half.get("shift_in_sd"))
        if path in parameters and shift is not None and abs(shift) > LARGE_SHIFT:
            text = f"Half the time step moves it by {number(abs(shift), 2)} standard deviations, to "
            text += with_unit(number(half.get("value")), parameters[path].get("unit"))
            text += ". Its interval allows for that; identify with a smaller step."
            yield Caution("Biased by the time step", text, (path,))
    for path, other in (checks.get("suspicion") or {}).items():
        shift = finite(other.get("shift_in_sd"))
        if path in parameters and shift is not None and abs(shift) > LARGE_SHIFT:
            text = f"If the likeliest fault is there, it is {number(abs(shift), 2)} standard deviations off, which its "
            yield Caution("Biased by what the model lacks", f"{text}interval allows for.", (path,))
    yield from _strong_correlations(estimate.get("correlation") or {})
    for path, parameter in parameters.items():
        value, sd = finite(parameter.get("value")), finite(parameter.get("sd"))
        if value is not None and sd is not None and abs(value) < 2 * sd and not bound_hit(parameter):
            text = "Zero lies within two standard deviations: these recordings say little about it."
            yield Caution("Poorly determined", text, (path,))


def _strong_correlations(correlation: Mapping[str, Any]) -> Iterator[Caution]:
    paths = correlation.get("paths") or []
    matrix = correlation.get("matrix") or []
    for i, row in enumerate(matrix):
        for j in range(i):
            value = finite(row[j])
            single = not network_of(paths[i]) and not network_of(paths[j])
            if single and value is not None and abs(value) > STRONG_CORRELATION:
                text = f"Correlation {number(value, 3)}: the recordings tell them apart badly."
                yield Caution("Strongly correlated", text, (paths[j], paths[i]))


def process_rows(noise: Mapping[str, Any]) -> list[ProcessRow]:
    """The table of the process noise: one line, or one for every joint where each has a level of its own."""
    kind, density, per = noise.get("kind"), noise.get("process_density"), noise.get("process_unit")
    if isinstance(density, Mapping) and isinstance(per, Mapping):
        return [ProcessRow(f"process, impulses on {n}", number(x), unit(per[n])) for n, x in density.items()]
    return [ProcessRow(f"process, impulses on {kind}" if kind else "process", number(density), unit(per))]


def normalised_innovations(runs: Mapping[str, list[Signal]]) -> dict[str, np.ndarray]:
    """Innovations of each sensor, every signal of every run divided by its own spread."""
    pooled: dict[str, list[np.ndarray]] = {}
    for signal in (signal for run in runs.values() for signal in run):
        z = _normalised(signal)
        if z.size:
            pooled.setdefault(signal.sensor, []).append(z)
    return {sensor: np.concatenate(values) for sensor, values in pooled.items()}


def innovation_rows(runs: Mapping[str, list[Signal]]) -> list[InnovationRow]:
    """The table of innovations, of signals that have some."""
    rows = []
    for run, signal in ((run, signal) for run, own in runs.items() for signal in own):
        z = _normalised(signal)
        if z.size == 0:
            continue
        rows.append(
            InnovationRow(
                run=run,
                signal=signal.label,
                rms=number(np.sqrt(np.mean(_innovations(signal) ** 2)), 3),
                correlation=f"{np.corrcoef(z[1:], z[:-1])[0, 1]:.2f}",
                outliers=percent(np.mean(np.abs(z) > 3), 2),
            )
        )
    return rows


def _innovations(signal: Signal) -> np.ndarray:
    values = np.zeros(0) if signal.innovation is None else signal.innovation
    return values[np.isfinite(values)]


def _normalised(signal: Signal) -> np.ndarray:
    """Innovations in units of their spread: half the distance between their 16th and 84th percentiles.

    For normal numbers that is the standard deviation, and a few outliers do not change it. Empty if there are
    fewer than 3 innovations or most are equal.
    """
    values = _innovations(signal)
    if values.size < 3:
        return np.zeros(0)
    low, middle, high = np.percentile(values, [15.87, 50.0, 84.13])
    return (values - middle) / ((high - low) / 2) if high > low else np.zeros(0)
