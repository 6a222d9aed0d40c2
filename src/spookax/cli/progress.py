"""What came of a command, in a few lines."""

from collections.abc import Iterable, Mapping
from typing import Any

import typer

from ..report.content import networks
from ..report.numbers import MISSING, units, with_sd
from ..scene.paths import network_of
from ..study.identifying.estimate import Estimate
from ..study.tracking.filter_recordings import Tracking

_FARTHEST = 3  # outliers of a sensor that are told


def tracking_text(found: Tracking) -> str:
    """Parameters at the end with standard deviations, and what the innovations of every recording say."""
    lines = []
    if found.content["settings"]["parameters"] == "estimated":
        listed = {path: p for path, p in found.parameters.items() if not network_of(path)}
        width = max(map(len, ["parameter", *listed]))
        lines.append(f"{'parameter':{width}} {'start':>12} {'at the end':>12} {'sd':>9}  unit")
        for path, p in listed.items():
            numbers = f"{p['start']:12.5g} {p['value']:12.5g} {p['sd']:9.2g}"
            lines.append(f"{path:{width}} {numbers}  {p['unit']}{_tied(p)}")
        lines += _weights(found.parameters)
    for name, run in found.content["runs"].items():
        for sensor, signal in run["signals"].items():
            lines.append(
                f"{name}, {sensor}: RMS error one step ahead {signal['rms_ahead']:.3g} {units(signal['unit'])}"
            )
        if modes := run.get("modes"):
            likeliest = max(modes, key=lambda mode: modes[mode]["last"])
            text = ", ".join(f"{mode} {100 * told['share']:.3g} %" for mode, told in modes.items())
            lines.append(f"{name}: most probable {text} of the time; at the end {likeliest}")
        text = f"{name}: log-likelihood {run['log_likelihood']:.8g}, innovations squared {run['nis']:.3f} (1 expected)"
        lines.append(text + (f", {len(run['faults'])} steps out of the ordinary" if run["faults"] else ""))
    return "\n".join(lines)


def result_text(estimate: Estimate) -> str:
    """Parameters with standard deviations, what is not determined, and how well each signal is met."""
    content: dict[str, Any] = estimate.to_json()
    listed = {path: found for path, found in estimate.parameters.items() if not network_of(path)}
    width = max(map(len, ["parameter", *listed]))
    lines = [f"{'parameter':{width}} {'start':>12} {'estimate':>12} {'sd':>9}  unit"]
    for path, found in listed.items():
        bound = found.get("at_bound")
        numbers = f"{found['start']:12.5g} {found['value']:12.5g} " + (f"{'':9}" if bound else f"{found['sd']:9.2g}")
        note = _one_sided(found) if bound else _profile(found)
        lines.append(f"{path:{width}} {numbers}  {found['unit']}{_tied(found)}{note}")
    lines += _weights(estimate.parameters)
    lines += [f"caution: {group['message']}" for group in content["checks"]["gauge"]]
    for run, entry in content["runs"].items():
        for sensor, signal in entry["signals"].items():
            lines.append(
                f"{run}, {sensor}: RMS error {signal['rms']:.3g} {units(signal['unit'])} along the estimate, "
                f"{signal['rms_open_loop']:.3g} simulated from the start"
            )
    lines += _outliers(content.get("outliers") or {})
    lines += validation_lines(content.get("validation") or {})
    if told := content.get("trust"):
        lines += ["", f"{told['sentence']}.", *(f"- {reason}" for reason in told["reasons"])]
    if found := content.get("diagnosis"):
        lines.append(found["sentence"])
    return "\n".join(lines)


def _outliers(found: Mapping[str, Any]) -> list[str]:
    """How many readings of every sensor were set aside, and those that are farthest off."""
    lines = []
    for sensor, counts in found.get("sensors", {}).items():
        own = [reading for reading in found["readings"] if reading["sensor"] == sensor][:_FARTHEST]
        worst = ", ".join(f"{r['recording']} at {r['time']:.6g} s ({r['off']:+.3g} sd)" for r in own)
        text = f"{sensor}: {counts['set_aside']} of {counts['of']} readings set aside as outliers"
        lines.append(text + (f", farthest off {worst}" if worst else ""))
    return lines


def validation_lines(runs: Mapping[str, Any]) -> list[str]:
    """How well recordings that an identification has not seen are predicted; those that cannot be foretold to their
    end over stretches as well.
    """
    lines: list[str] = []
    for run, entry in runs.items():
        whole, stretches = entry["signals"], entry.get("stretches")
        lines += [
            f"{run}, {s}: {_errors(found)}, predicted over {entry['horizon']:.3g} s" for s, found in whole.items()
        ]
        if stretches:
            over = f"predicted {stretches['count']} times over {stretches['seconds']:.3g} s"
            of_stretches = stretches["signals"].items()
            lines += [f"{run}, {s}: {_errors(found | {'unit': whole[s]['unit']})}, {over}" for s, found in of_stretches]
    return lines


def _errors(signal: Mapping[str, Any], of: str = "") -> str:
    rms, nrmse, fit = (signal[key + of] for key in ("rms", "nrmse", "fit"))
    return f"RMS error {rms:.3g} {units(signal['unit'])}, NRMSE {100 * nrmse:.3g} %, fit {fit:.1f} %"


def prediction_lines(content: Mapping[str, Any]) -> list[str]:
    """The numbers of `prediction.json`."""
    runs = content["runs"]
    lines = validation_lines(runs)
    if steps := content["steps"]:
        ahead = f"{steps} step{'s' * (steps > 1)} ahead, {steps * content['step']:.3g} s"
        for run, entry in runs.items():
            lines += [f"{run}, {s}: {_errors(signal, '_ahead')}, {ahead}" for s, signal in entry["signals"].items()]
    return lines + [f"{run}: took part in the identification" for run, entry in runs.items() if entry["seen"]]


def comparison_text(found: Mapping[str, Any]) -> str:
    """A table for every recording and sensor: errors of the candidates, the least marked, and of a held reading."""
    lines = []
    names = [*found["candidates"], "last reading, held"]
    width = max(map(len, names)) + 1
    for run, entry in found["runs"].items():
        for sensor, signal in entry["signals"].items():
            unit = units(signal["unit"])
            lines += [""] * bool(lines) + [f"{run}, {sensor}: predicted over {entry['horizon']:.3g} s"]
            lines.append(f"  {'':{width}} {'RMS ' + f'[{unit}]':>14} {'NRMSE [%]':>10} {'fit [%]':>9}")
            for name in found["candidates"]:
                rms, nrmse, fit = (signal[key][name] for key in ("rms", "nrmse", "fit"))
                star = "*" if name == signal["best"] else ""
                note = "  took part in its identification" * (name in entry["seen"])
                lines.append(f"  {name + star:{width}} {rms:14.4g} {100 * nrmse:10.4g} {fit:9.4g}{note}")
            lines.append(f"  {names[-1]:{width}} {signal['rms_held']:14.4g}")
    return "\n".join(lines)


def methods_text(found: Mapping[str, Any]) -> str:
    """Parameters of all methods side by side; errors of their predictions and times; what failed, and why."""
    methods, listed = found["methods"], {p: v for p, v in found["parameters"].items() if not network_of(p)}
    names = list(methods)
    told = {(path, name): row["parameters"].get(path) for name, row in methods.items() for path in listed}
    cells = {key: with_sd(p["value"], p["sd"]) if p else MISSING for key, p in told.items()}
    labels = {path: f"{path} [{p['unit']}]" for path, p in listed.items()}
    width = max(map(len, ["parameter", *labels.values()]))
    wide = {name: max(len(name), *(len(cells[path, name]) for path in listed)) for name in names} if listed else {}
    lines = [f"{'parameter':{width}} {'start':>10}" + "".join(f"  {name:>{wide[name]}}" for name in names)]
    for path, p in listed.items():
        row = "".join(f"  {cells[path, name]:>{wide[name]}}" for name in names)
        lines.append(f"{labels[path]:{width}} {p['start']:10.4g}{row}")
    mean, count = found["mean"], len(found["runs"])
    seen = "held back" if found["held_back"] else "that the methods have seen: none is held back"
    lines += ["", f"mean RMS error of {count} recording{'s' * (count != 1)} {seen}, simulated with the inputs alone"]
    heads = [f"{sensor} [{units(m['unit'])}]" for sensor, m in mean.items()]
    lines.append(
        f"  {'':{10}}" + "".join(f" {h:>{max(len(h), 11)}}" for h in heads) + "  diverged  time [s]  compiling [s]"
    )
    for name, row in methods.items():
        errors = "".join(
            f" {_rms(m['mean'].get(name), m['best'] == name):>{max(len(h), 11)}}"
            for h, m in zip(heads, mean.values(), strict=True)
        )
        gone = "" if row["diverged"] is None else f"{row['diverged']} of {count}"
        lines.append(f"  {name:10}{errors}  {gone:>8}  {row['seconds']:8.1f}  {row['compiling']:13.1f}")
    failed = [name for name, row in methods.items() if row["status"] != "done"]
    if failed:
        lines.append(f"{len(failed)} of {len(methods)} methods failed or cannot serve this study")
    for name, row in methods.items():
        status = "" if row["status"] == "done" else f"{row['status'].replace('_', ' ')}: "
        lines += [f"{name}: {status}{row['message']}"] if status or row["message"] else []
    return "\n".join(lines)


def _rms(value: float | None, best: bool) -> str:
    return MISSING if value is None else f"{value:.4g}" + "*" * best


def choice_text(found: Mapping[str, Any]) -> str:
    """A table of laws, the best first, the chosen one marked; and what speaks against each."""
    laws = found["laws"]
    of_units = list(dict.fromkeys(unit for one in laws for unit in one["rms"]))
    width = max([len(one["law"]) for one in laws] + [3]) + 1
    heads = "".join(f" {'RMS ' + f'[{units(unit)}]':>14}" for unit in of_units)
    lines = [f"friction of {', '.join(found['joints'])}; predicted: {', '.join(found['held_back'])}"]
    lines.append(f"  {'law':{width}}{heads} {'fit [%]':>9} {'unknowns':>8}  status")
    for one in laws:
        star = "*" if one["law"] == found["chosen"] else ""
        errors = "".join(f" {one['rms'].get(unit, float('nan')):14.4g}" for unit in of_units)
        status = (
            one["status"].replace("_", " ") + {"good": "", "fair": ", with care", "bad": ", do not use"}[one["grade"]]
        )
        lines.append(f"  {one['law'] + star:{width}}{errors} {one['fit']:9.4g} {one['unknowns']:8d}  {status}")
    for one in laws:
        reasons = [one["caution"]] * bool(one["caution"]) + [f"{path} is at its bound." for path in one["at_bound"]]
        lines += [f"{one['law']}: {reason}" for reason in reasons]
    if found["chosen"] != found["best"]:
        lines.append(
            f"{found['chosen']} is the simplest that the recordings held back do not tell from {found['best']}."
        )
    return "\n".join(lines)


def _tied(parameter: Mapping[str, Any]) -> str:
    return f"  = {parameter['tied']}" if "tied" in parameter else ""


def _one_sided(parameter: Mapping[str, Any]) -> str:
    (low, high), side = parameter["interval"], parameter["at_bound"]
    allowed = f"up to {high:.5g}" if side == "lower" else f"down to {low:.5g}"
    return f"  at its {side} bound; the recordings allow {allowed} (95 %)"


def _profile(parameter: Mapping[str, Any]) -> str:
    """The interval where it is not that of the standard deviation."""
    if parameter.get("interval_kind") != "profile":
        return ""
    low, high = parameter["interval"]
    return f"  between {low:.4g} and {high:.4g} (90 %, by the cost)"


def _weights(parameters: Iterable[str]) -> list[str]:
    return [f"{path}: {count} weights" for path, count in networks(parameters).items()]


def say_end(estimate: Estimate) -> None:
    """How the identification ended, on stderr if not well."""
    if estimate.status == "converged":
        typer.echo("converged")
    else:
        typer.echo(f"{estimate.status.replace('_', ' ')}: {estimate.message}", err=True)
