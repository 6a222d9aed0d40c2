"""`spookax latent`: from recordings of a mass on a spring to its friction force, a law, and a scene with that law."""

import datetime
import importlib.metadata
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spookax._interruption import stoppable
from spookax.scene import Scene, write_scene
from spookax.scene.explain import Finding
from spookax.study.file.read import StudyError
from spookax.study.identifying.estimate import finite_json
from spookax.study.latent.base import smoothed
from spookax.study.latent.correction import Correction, correction
from spookax.study.latent.forward import SUBSTEPS, Forward, forward, load_on, scene_of
from spookax.study.latent.laws import (
    KINDS,
    Law,
    Points,
    Static,
    fit_laws,
    for_scene,
    sliding_points,
    static_friction,
    static_of,
)
from spookax.study.latent.model import NAMES, Fitted, Force, Mechanism, Setting, fitted, scales_of
from spookax.study.latent.record import Record, read_latent, read_records
from spookax.study.latent.spec import LatentStudy

REGIMES = ("slides", "sticks", "jumps")
BAND = 1.645  # standard deviations to either side of 90 %
_PASSES = 4  # of corrections
_SETTLED = 0.3  # standard deviations
_UNITS = {"force": "N", "change": "N/sqrt(s)", "dwell": "s"}
_OF_SENSORS = {"displacement": "m", "velocity": "m/s", "acceleration": "m/s^2"}


@dataclass(frozen=True)
class LatentFit:
    """What `spookax latent` finds; `content` is that of latent.json, `states` has arrays by RUN/quantity."""

    content: dict[str, Any]
    states: dict[str, np.ndarray]
    scene: Scene

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write latent.json, states.npz, scene.yaml, and of every recording the force and the load as CSV files."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "latent.json").write_text(finite_json(self.content), encoding="utf-8")
        np.savez_compressed(folder / "states.npz", **self.states)  # pyright: ignore[reportArgumentType]
        write_scene(self.scene, folder / "scene.yaml")
        for run in self.content["runs"]:
            own = {key.removeprefix(f"{run}/"): a for key, a in self.states.items() if key.startswith(f"{run}/")}
            if "force" in own:
                _csv(folder / f"{run}_force.csv", {f"{name} [{unit}]": own[name] for name, unit in _COLUMNS.items()})
            _csv(folder / f"{run}_load.csv", {"t [s]": own["load_time"], "load [N]": own["load"]})
        return folder


_COLUMNS = {
    "time": "s",
    "displacement": "m",
    "velocity": "m/s",
    "force": "N",
    "force_sd": "N",
    "slides": "1",
    "sticks": "1",
    "jumps": "1",
}


def _csv(path: Path, columns: dict[str, np.ndarray]) -> None:
    text = ",".join(columns) + "\n"
    rows = (",".join(f"{value:.10g}" for value in row) for row in zip(*columns.values(), strict=True))
    path.write_text(text + "\n".join(rows) + "\n", encoding="utf-8")


def latent(study: LatentStudy | str | os.PathLike[str], report: Callable[[str], None] | None = None) -> LatentFit:
    """The friction force along the recordings of a study, and what follows from it.

    **Arguments:** the study or its file; `report`: called with what is done, and a place to stop.

    **Raises:** `StudyError`, `RecordingError` with everything that is wrong with the files; `KeyboardInterrupt` after a
    signal.
    """
    with stoppable() as stop:

        def told(text: str) -> None:
            stop.check()
            if report is not None:
                report(text)

        told("reading the recordings")
        study = study if isinstance(study, LatentStudy) else read_latent(study)
        records, held_back = read_records(study), read_records(study, "validate")
        if study.base:
            told("velocity of the base")
            records, held_back = [smoothed(r) for r in records], [smoothed(r) for r in held_back]
        return _latent(study, records, held_back, told)


def _latent(
    study: LatentStudy, records: list[Record], held_back: list[Record], told: Callable[[str], None]
) -> LatentFit:
    known = study.latent
    setting = setting_of(study)
    m = guess = Mechanism(known.mass, known.damping, known.stiffness)
    found = fitted(records, m, setting, known.noise, told)
    which = known.correct or [n for n in ("mass", "damping", "stiffness") if not (study.base and n == "mass")]
    fix = _corrected(records, found.forces, m, which, study.base)
    first, total = fix, dict.fromkeys(which, 0.0)
    for _ in range(_PASSES if known.correct else 0):
        total = {name: total[name] + fix.change[name] for name in which}
        m = Mechanism(**{name: max(getattr(guess, name) + total.get(name, 0.0), 1e-9) for name in Mechanism._fields})
        told("once more, with corrected " + ", ".join(which))
        found = fitted(records, m, setting, known.noise, told, start=found.log)
        fix = _corrected(records, found.forces, m, which, study.base)
        if all(abs(fix.change[name]) < _SETTLED * fix.sd[name] for name in which):
            break
    if records[0].sensor != "displacement":  # nobody reads where its zero is: friction is alike both ways
        found = found._replace(forces=[_centred(force, fix) for force in found.forces])
    told("law of friction")
    points = [sliding_points(f.x, f.sd, f.probability)[0] for f in found.forces]
    static = _static(records, found.forces)
    pooled = _pooled(points)
    if not len(pooled.speed):
        cure = "Record a motion that slides, and look whether mass, damping, stiffness and units are right."
        message = "the mass slides nowhere for sure, so that no law can be fitted"
        raise StudyError([study.located.problem(Finding(("recordings",), None, message, cure))])
    laws = fit_laws(KINDS if known.law == "auto" else [known.law], pooled, static)
    in_scene = for_scene(laws[0], pooled, static)
    told("prediction by the engine")
    h = float(np.mean([r.h for r in records])) / SUBSTEPS
    scene = scene_of(Path(study.located.file).stem, m, in_scene, h, found.forces[0].x[0, :2])
    runs: dict[str, Any] = {}
    states: dict[str, np.ndarray] = {}
    for record, force, alone in zip(records, found.forces, found.alone, strict=True):
        simulated = forward(scene, record, load_on(record, m, study.base, fix.offset), force.x[0, :2])
        runs[record.name] = {"used": True, **_run(record, force, simulated), "evidence_one_regime": alone.evidence}
        states |= _arrays(record, force, simulated)
    for record in held_back:
        told(f"prediction of {record.name}")
        _, alone = scales_of(record, m, setting)
        simulated = forward(scene, record, load_on(record, m, study.base, fix.offset), alone.x[0, :2])
        runs[record.name] = {"used": False, **_told(record, simulated)}
        states |= _simulated(record, simulated)
    grid = np.linspace(0.0, float(np.max(pooled.speed)), 201)
    for law in laws:
        states[f"law/{law.kind}"] = law.level(grid)
    states |= {"law/speed": grid, "points/speed": pooled.speed, "points/force": pooled.force, "points/sd": pooled.sd}
    content = {
        "study": Path(study.located.file).stem,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "spookax": importlib.metadata.version("spookax"),
        "mechanism": _mechanism(guess, m, which, first, fix, bool(known.correct), study.base),
        "hyperparameters": _hyperparameters(found, records[0].sensor, known.noise is not None),
        "law": _law(laws[0]) | {"in_scene": in_scene._asdict()},
        "laws": [_law(law) for law in laws],
        "static_friction": static._asdict() if static else None,
        "runs": runs,
        "settings": {
            "components": known.components,
            "sensor": records[0].sensor,
            "base": study.base,
        },
    }
    return LatentFit(content, states, scene)


def setting_of(study: LatentStudy) -> Setting:
    """What is no number in the model of a study."""
    return Setting(next(iter(study.recordings[0].sensors)), study.base, study.latent.components)


def _centred(force: Force, fix: Correction) -> Force:
    """The force without the constant that a zero of the displacement which nobody reads leaves in it."""
    x, sd = force.x.copy(), force.sd.copy()
    x[:, 0] += fix.offset
    x[:, 2] -= fix.constant
    sd[:, 2] = np.hypot(sd[:, 2], fix.constant_sd)
    return force._replace(x=x, sd=sd)


def _corrected(
    records: Sequence[Record], forces: Sequence[Force], m: Mechanism, which: Sequence[str], base: bool
) -> Correction:
    points = [sliding_points(f.x, f.sd, f.probability) for f in forces]
    return correction(records, forces, [at for _, at in points], [p.phase for p, _ in points], m, which, base)


def _static(records: Sequence[Record], forces: Sequence[Force]) -> Static | None:
    each = (static_friction(r.time, f.x, f.sd, f.probability) for r, f in zip(records, forces, strict=True))
    stops = [one for one in each if one is not None]
    if not stops:
        return None
    every = [each for one in stops for each in zip(one.values, one.sds, one.times, strict=True)]
    values, sds, times = map(list, zip(*every, strict=True))
    return static_of(values, sds, times)


def _pooled(points: Sequence[Points]) -> Points:
    phase = np.concatenate([p.phase + 1e6 * number for number, p in enumerate(points)])
    speed, force, sd = (np.concatenate([p[i] for p in points]) for i in range(3))
    return Points(speed, force, sd, phase)


def _mechanism(
    guess: Mechanism, m: Mechanism, which: Sequence[str], first: Correction, last: Correction, applied: bool, base: bool
) -> dict[str, Any]:
    units = {"mass": "kg", "damping": "N s/m", "stiffness": "N/m"}
    rows: dict[str, Any] = {
        name: {"given": float(getattr(guess, name)), "used": float(getattr(m, name)), "unit": unit}
        for name, unit in units.items()
    }
    for name in which:
        rows[name] |= {"suggested": rows[name]["used"] + last.change[name], "sd": last.sd[name]}
    return {
        "numbers": rows,
        "corrected": applied,
        "offset": last.offset if base else None,
        "first_change": first.change,
    }


def _hyperparameters(found: Fitted, sensor: str, given: bool) -> dict[str, Any]:
    sd = np.sqrt(np.diag(found.covariance))
    rows = {
        name: {
            "value": float(np.exp(log)),
            "interval": [float(np.exp(log - BAND * s)), float(np.exp(log + BAND * s))],
            "unit": _UNITS.get(name, _OF_SENSORS[sensor]),
        }
        for name, log, s in zip(NAMES, found.log, sd, strict=True)
    }
    if given:
        rows["noise"]["interval"] = None
    log_length = np.log(2.0) + 2.0 * (found.log[0] - found.log[1])
    along = np.array([2.0, -2.0, 0.0, 0.0])
    spread = BAND * float(np.sqrt(along @ found.covariance @ along))
    rows["length"] = {
        "value": float(np.exp(log_length)),
        "interval": [float(np.exp(log_length - spread)), float(np.exp(log_length + spread))],
        "unit": "s",
    }
    return {
        "converged": found.best.converged,
        "evaluations": found.best.calls,
        "log_posterior": -found.best.cost,
        **rows,
    }


def _law(law: Law) -> dict[str, Any]:
    return {"kind": law.kind, "parameters": law.parameters, "sd": law.sd, "rms": law.rms, "score": law.score}


def stops_of(time: np.ndarray, probability: np.ndarray) -> list[list[float]]:
    """Begin and end of every stop [s]: where sticking is the likeliest regime."""
    sticks = np.concatenate([[False], np.argmax(probability, axis=1) == 1, [False]])
    edges = np.flatnonzero(sticks[1:] != sticks[:-1])
    return [[float(time[a]), float(time[b - 1])] for a, b in edges.reshape(-1, 2)]


def _told(record: Record, simulated: Forward) -> dict[str, Any]:
    told = {"samples": len(record.y), "step": record.h, "missing": int(np.sum(~np.isfinite(record.y)))}
    return told | {"sha256": record.sha256, "prediction_nmse": simulated.nmse}


def _run(record: Record, force: Force, simulated: Forward) -> dict[str, Any]:
    stops = stops_of(record.time, force.probability)
    share = float(np.mean(np.argmax(force.probability, axis=1) == 1))
    return _told(record, simulated) | {"evidence": force.evidence, "sticking": share, "stops": stops}


def _arrays(record: Record, force: Force, simulated: Forward) -> dict[str, np.ndarray]:
    found = dict(zip(("displacement", "velocity", "force"), force.x.T, strict=True))
    found |= dict(zip(("displacement_sd", "velocity_sd", "force_sd"), force.sd.T, strict=True))
    found |= dict(zip(REGIMES, force.probability.T, strict=True))
    return _simulated(record, simulated) | {f"{record.name}/{key}": value for key, value in found.items()}


def _simulated(record: Record, simulated: Forward) -> dict[str, np.ndarray]:
    load = np.append(simulated.load, simulated.load[-1])  # up to the last sample
    found = {"time": record.time, "reading": record.y, "predicted": simulated.reading, "load": load}
    found["load_time"] = record.time[0] + record.h / SUBSTEPS * np.arange(len(load))
    return {f"{record.name}/{key}": value for key, value in found.items()}
