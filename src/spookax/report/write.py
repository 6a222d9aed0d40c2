"""Write the report of an estimate, and the page of a filter."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import markupsafe
import numpy as np
from plotly.offline import get_plotlyjs

from ..scene.paths import network_of
from . import numbers
from .charts import (
    Figure,
    band_chart,
    convergence_chart,
    correlation_chart,
    innovation_chart,
    methods_chart,
    signal_chart,
    whiteness_chart,
)
from .contacts import contact_charts
from .content import (
    GRADES,
    cautions,
    innovation_rows,
    networks,
    normalised_innovations,
    outlier_rows,
    parameter_rows,
    process_rows,
    verdict,
)
from .latent_charts import MEANINGS, latent_cautions, latent_charts, law_of
from .signals import Signal, signals
from .svg import svg
from .tracking import tracking_charts

DRAWN = 8
"""Recordings of a comparison that are drawn, the first ones; the table has all."""

SETTINGS = {
    "form": "form of the estimator",
    "objective": "objective",
    "step": "time step [s]",
    "friction_speed": "friction speed [rad/s or m/s]",
    "iterations": "iterations",
    "cost": "cost at the end",
}


def write_report(folder: str | os.PathLike[str], estimate: Mapping[str, Any], states: Mapping[str, np.ndarray]) -> Path:
    """Write `report.html` into the folder of an estimate.

    **Arguments:**

    - `folder`: made if there is none.
    - `estimate`: the content of `estimate.json`. What a failed identification does not have may be missing.
    - `states`: the content of `states.npz`; `{}` if there is none.

    **Returns:** the file. It carries all that it needs: the browser loads nothing else, and may not.
    """
    path = Path(folder) / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_render(estimate, states), encoding="utf-8")
    return path


def _render(estimate: Mapping[str, Any], states: Mapping[str, np.ndarray]) -> str:
    runs = estimate.get("runs") or {}
    correlation = estimate.get("correlation") or {}
    noise = estimate.get("noise") or {}
    drawn = _drawn("signal", runs, states)
    by_run = {run: list(own.values()) for run, own in drawn.items()}
    validation = estimate.get("validation") or {}
    predicted = _drawn("validation", validation, states)
    charts: dict[str, Figure | None] = {
        name: signal_chart(signal) for own in (*drawn.values(), *predicted.values()) for name, signal in own.items()
    }
    touching, touched = (
        contact_charts("contact", runs, states),
        contact_charts("validation-contact", validation, states),
    )
    charts |= _charts_of(touching) | _charts_of(touched)
    for i, (axis, curve) in enumerate((estimate.get("friction") or {}).items()):
        speed, level, sd = (np.array(curve[key]) for key in ("speed", "level", "sd"))
        along = f"speed [{numbers.unit(curve['speed_unit'])}]"
        charts[f"friction-{i}"] = band_chart(f"{axis}: friction", numbers.unit(curve["unit"]), speed, level, sd, along)
    kept = [i for i, path in enumerate(correlation.get("paths") or []) if not network_of(path)]
    charts["correlation"] = correlation_chart(
        [correlation["paths"][i] for i in kept], [[correlation["matrix"][i][j] for j in kept] for i in kept]
    )
    steps = [step for step in estimate.get("convergence") or [] if step.get("phase") != "intervals"]
    charts["convergence"] = convergence_chart(steps)
    charts["innovations"] = innovation_chart(normalised_innovations(by_run))
    diagnosis = estimate.get("diagnosis") or {}
    whiteness, outliers = _whiteness(diagnosis), estimate.get("outliers")
    charts |= whiteness

    grade, sentence = verdict(str(estimate.get("status")))
    grade = max(grade, (estimate.get("trust") or {}).get("grade", grade), key=GRADES.index)
    return _page(
        "report.html",
        charts,
        estimate=estimate,
        grade=grade,
        sentence=sentence,
        parameters=parameter_rows(estimate.get("parameters") or {}),
        networks=networks(estimate.get("parameters") or {}),
        warnings=list(cautions(estimate)),
        half_step=(estimate.get("checks") or {}).get("half_step"),
        runs=runs,
        noise=noise,
        process=process_rows(noise),
        sensor_units=_sensor_units(runs),
        validation=validation,
        predicted=predicted,
        touching=_captions_of(touching),
        touched=_captions_of(touched),
        settings={name: estimate[key] for key, name in SETTINGS.items() if estimate.get(key) is not None},
        drawn=drawn,
        innovations=innovation_rows(by_run),
        diagnosis=diagnosis,
        whiteness=list(whiteness),
        outliers=outliers,
        outlier_rows=outlier_rows(outliers, runs) if outliers else [],
    )


def _whiteness(diagnosis: Mapping[str, Any]) -> dict[str, Figure | None]:
    """Charts of what innovations correlate with, of every sensor in every run."""
    charts: dict[str, Figure | None] = {}
    for run, told in (diagnosis.get("runs") or {}).items():
        for sensor, lines in told["sensors"].items():
            if lines["auto"]:
                title, cross = f"{run}, {sensor}", {name: line for name, line in lines["cross"].items() if line}
                chart = whiteness_chart(title, told["lag"], lines["auto"], cross, lines["limit"])
                charts[f"whiteness-{len(charts)}"] = chart
    return charts


def write_tracking(
    folder: str | os.PathLike[str], tracking: Mapping[str, Any], states: Mapping[str, np.ndarray]
) -> Path:
    """Write `tracking.html`, the page of a recording that was filtered or smoothed, into a folder.

    **Arguments:** the folder, made if there is none; the contents of `tracking.json` and of `states.npz`.

    **Returns:** the file, which needs nothing else.
    """
    path = Path(folder) / "tracking.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    runs = tracking.get("runs") or {}
    drawn = {run: tracking_charts(f"run-{i}", run, tracking, states) for i, run in enumerate(runs)}
    unlisted = networks(tracking.get("parameters") or {})
    contents = {"tracking": tracking, "runs": runs, "drawn": _captions_of(drawn), "networks": unlisted}
    page = _page("tracking.html", _charts_of(drawn), **contents)
    path.write_text(page, encoding="utf-8")
    return path


def write_prediction(
    folder: str | os.PathLike[str], prediction: Mapping[str, Any], states: Mapping[str, np.ndarray]
) -> Path:
    """Write `prediction.html`, the page of recordings that an estimate predicts, into a folder.

    **Arguments:** the folder, made if there is none; the content of `prediction.json`; arrays by RECORDING/quantity.

    **Returns:** the file, which needs nothing else.
    """
    path = Path(folder) / "prediction.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    steps, runs = prediction["steps"], prediction["runs"]
    ahead = f"{steps} step{'s' * (steps > 1)} ahead" if steps else ""
    drawn = _drawn("prediction", runs, states, "ahead")
    charts: dict[str, Figure | None] = {
        name: signal_chart(signal, ahead) for own in drawn.values() for name, signal in own.items()
    }
    touched = contact_charts("contact", runs, states)
    charts |= _charts_of(touched)
    contents = {"prediction": prediction, "runs": runs, "drawn": drawn, "touched": _captions_of(touched)}
    page = _page("prediction.html", charts, ahead=ahead, **contents)
    path.write_text(page, encoding="utf-8")
    return path


def write_comparison(
    folder: str | os.PathLike[str], comparison: Mapping[str, Any], states: Mapping[str, np.ndarray]
) -> Path:
    """Write `comparison.html`, the page of methods side by side, into a folder.

    **Arguments:** the folder, made if there is none; the content of `comparison.json`; arrays by RECORDING/quantity.

    **Returns:** the file, which needs nothing else.
    """
    path = Path(folder) / "comparison.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    charts: dict[str, Figure | None] = {}
    drawn: dict[str, dict[str, str]] = {}
    for run in list(comparison["runs"])[:DRAWN]:
        by = {m: list(signals(run, comparison["runs"], states, m)) for m in comparison["methods"]}
        by = {m: own for m, own in by.items() if any(s.estimated is not None for s in own)}
        for i, signal in enumerate(next(iter(by.values()), [])):
            name, title = f"method-{len(charts)}", f"{run}, {signal.label}"
            lines = {m: own[i].estimated for m, own in by.items()}
            charts[name] = methods_chart(title, numbers.unit(signal.unit), signal.time, signal.measured, lines)
            drawn.setdefault(run, {})[name] = f"{title}: measured, and predicted by every method."
    paths = [path for path in comparison["parameters"] if not network_of(path)]
    weights = networks(comparison["parameters"])
    page = _page("comparison.html", charts, comparison=comparison, drawn=drawn, paths=paths, networks=weights)
    path.write_text(page, encoding="utf-8")
    return path


def write_latent(folder: str | os.PathLike[str], content: Mapping[str, Any], states: Mapping[str, np.ndarray]) -> Path:
    """Write `latent.html`, the page of an unknown friction force, and every chart of it as an SVG file.

    **Arguments:** the folder, made if there is none; the content of `latent.json`; arrays by RECORDING/quantity.

    **Returns:** the page, which needs nothing else.
    """
    path = Path(folder) / "latent.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    charts: dict[str, Figure | None] = {}
    laws: dict[str, str] = {}
    drawn: dict[str, dict[str, str]] = {}
    for i, contact in enumerate(content["contacts"]):
        laws[f"law-{i}"], chart = law_of(contact, content, states)
        charts[f"law-{i}"] = chart
        name = "law" if len(content["contacts"]) == 1 else f"{contact}_law"
        (path.parent / f"{name}.svg").write_text(svg(chart), encoding="utf-8")
    for i, run in enumerate(content["runs"]):
        for name, (text, chart) in latent_charts(run, content, states).items():
            charts[f"run-{i}-{name}"] = chart
            drawn.setdefault(run, {})[f"run-{i}-{name}"] = text
            (path.parent / f"{run}_{name}.svg").write_text(svg(chart), encoding="utf-8")
    captions = {"laws": laws, "runs": drawn}
    page = _page(
        "latent.html", charts, latent=content, captions=captions, meanings=MEANINGS, cautions=latent_cautions(content)
    )
    path.write_text(page, encoding="utf-8")
    return path


def _page(template: str, charts: Mapping[str, Figure | None], **contents: Any) -> str:
    """A page from a template, with its charts."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("spookax.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    for text in (numbers.number, numbers.levels, numbers.percent, numbers.unit, numbers.units, numbers.with_sd):
        environment.filters[text.__name__] = text
    environment.tests["weight"] = network_of
    figures = {name: chart for name, chart in charts.items() if chart is not None}
    return environment.get_template(template).render(
        charts=figures, figures=_script_json(figures), plotly=markupsafe.Markup(get_plotlyjs()), **contents
    )


def _charts_of(drawn: Mapping[str, Mapping[str, tuple[str, Figure]]]) -> dict[str, Figure | None]:
    """Name of a chart -> itself, of all runs."""
    return {name: chart for own in drawn.values() for name, (_, chart) in own.items()}


def _captions_of(drawn: Mapping[str, Mapping[str, tuple[str, Figure]]]) -> dict[str, dict[str, str]]:
    """Run -> name of a chart -> its caption."""
    return {run: {name: caption for name, (caption, _) in own.items()} for run, own in drawn.items()}


def _drawn(
    prefix: str, runs: Mapping[str, Any], states: Mapping[str, np.ndarray], along: str = "estimated"
) -> dict[str, dict[str, Signal]]:
    """Run -> name of a chart -> its signal."""
    return {
        run: {f"{prefix}-{r}-{i}": signal for i, signal in enumerate(signals(run, runs, states, along))}
        for r, run in enumerate(runs)
    }


def _sensor_units(runs: Mapping[str, Any]) -> dict[str, str]:
    """Units of the sensors of all runs."""
    listed = {sensor: s.get("unit") for run in runs.values() for sensor, s in (run.get("signals") or {}).items()}
    return {sensor: numbers.units(unit) for sensor, unit in listed.items()}


def _script_json(data: Any) -> markupsafe.Markup:
    """JSON that can stand in a script element: nothing in it ends the element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return markupsafe.Markup(text.replace("<", "\\u003c"))
