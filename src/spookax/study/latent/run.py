"""`spookax latent`: from recordings of a mass on a spring to its friction force, a law, and a scene with that law."""

import datetime
import importlib.metadata
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spookax._interruption import Stop, stoppable
from spookax.scene import Scene, write_scene
from spookax.scene.explain import Finding
from spookax.study.file.read import StudyError
from spookax.study.identifying.estimate import finite_json
from spookax.study.latent.base import smoothed
from spookax.study.latent.correction import Correction, correction
from spookax.study.latent.fitting import Fitted, fitted
from spookax.study.latent.forward import SUBSTEPS, Forward, forward, load_on, scene_of
from spookax.study.latent.laws import KINDS, Law, fit_laws, for_scene
from spookax.study.latent.record import Record, read_latent, read_records
from spookax.study.latent.sampling import blackjax_module
from spookax.study.latent.section import LatentStudy
from spookax.study.latent.sliding import Points, sliding_points
from spookax.study.latent.spread import spread_of
from spookax.study.latent.static import Static, static_friction, static_of
from spookax.study.latent.switching_model import Force, Mechanism, Setting, scales_of
from spookax.study.latent.unfinished import Unfinished, digest

REGIMES = ("slides", "sticks", "jumps")
_PASSES = 4  # of corrections
_SETTLED = 0.3  # standard deviations


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


def latent(
    study: LatentStudy | str | os.PathLike[str],
    report: Callable[[str], None] | None = None,
    keep: str | os.PathLike[str] | None = None,
    resume: bool = False,
) -> LatentFit:
    """The friction force along the recordings of a study, and what follows from it.

    **Arguments:** the study or its file; `report`: called with what is done, and a place to stop; `keep`: a folder for
    what is computed on the way, from which `resume` goes on after a stop.

    **Raises:** `StudyError`, `RecordingError` with everything that is wrong with the files; `FileError` if there is
    nothing to resume from; `KeyboardInterrupt` after a signal.
    """
    with stoppable() as stop:
        told("reading the recordings", stop, report)
        study = study if isinstance(study, LatentStudy) else read_latent(study)
        if study.latent.hyperparameters == "sample":
            _check_sampler(study)
        records, held_back = read_records(study), read_records(study, "validate")
        unfinished = Unfinished(None if keep is None else Path(keep), digest(study, records))
        if resume:
            unfinished.read()

        def say(text: str) -> None:
            if unfinished.written:
                stop.kept = f"{keep} has what was computed, and --resume goes on"
            told(text, stop, report)

        if study.base:
            say("velocity of the base")
            records, held_back = [smoothed(r) for r in records], [smoothed(r) for r in held_back]
        return _latent(study, records, held_back, say, unfinished)


def told(text: str, stop: Stop, report: Callable[[str], None] | None) -> None:
    """Say what is done, and stop if that was asked for."""
    stop.check()
    if report is not None:
        report(text)


def _check_sampler(study: LatentStudy) -> None:
    try:
        blackjax_module()
    except ImportError as missing:
        message, cure = str(missing).split(". ", 1)
        problem = Finding(("latent", "hyperparameters"), "sample", message, cure)
        raise StudyError([study.located.problem(problem)]) from None


class _Corrected(NamedTuple):
    """Mechanism and force after the last pass of corrections, what the first one said, what is left."""

    m: Mechanism
    found: Fitted
    first: dict[str, float]
    fix: Correction


def _passes(
    study: LatentStudy, records: list[Record], which: Sequence[str], say: Callable[[str], None], kept: Unfinished
) -> _Corrected:
    known, setting = study.latent, setting_of(study)
    guess = {"mass": known.mass, "damping": known.damping, "stiffness": known.stiffness}
    if not len(kept.total):
        kept.total = np.zeros(len(which))
    while True:
        change = dict(zip(which, map(float, kept.total), strict=True))
        m = Mechanism(**{n: max(a + change[n], 1e-9) if change.get(n) else a for n, a in guess.items()})
        found = fitted(records, m, setting, known.noise, say, kept)
        fix = _corrected(records, found.forces, m, which, study.base)
        more = np.array([fix.change[name] for name in which])
        if not kept.passes:
            kept.first = more
        settled = all(abs(fix.change[name]) < _SETTLED * fix.sd[name] for name in which)
        if not known.correct or kept.passes == _PASSES or (kept.passes and settled):
            return _Corrected(m, found, dict(zip(which, map(float, kept.first), strict=True)), fix)
        kept.next_pass(kept.total + more, found.log)
        say("once more, with corrected " + ", ".join(which))


def _latent(
    study: LatentStudy,
    records: list[Record],
    held_back: list[Record],
    say: Callable[[str], None],
    unfinished: Unfinished,
) -> LatentFit:
    known, setting = study.latent, setting_of(study)
    guess = Mechanism(known.mass, known.damping, known.stiffness)
    which = known.correct or [n for n in ("mass", "damping", "stiffness") if not (study.base and n == "mass")]
    m, found, first, fix = _passes(study, records, which, say, unfinished)
    spread = spread_of(found, known, say, unfinished)
    found = found._replace(forces=spread.forces)
    if records[0].sensor != "displacement":  # nobody reads where its zero is: friction is alike both ways
        found = found._replace(forces=[_centred(force, fix) for force in found.forces])
    say("law of friction")
    points = [sliding_points(f.x, f.sd, f.probability)[0] for f in found.forces]
    static = _static(records, found.forces, m, study.base)
    pooled = _pooled(points)
    if not len(pooled.speed):
        cure = "Record a motion that slides, and look whether mass, damping, stiffness and units are right."
        message = "the mass slides nowhere for sure, so that no law can be fitted"
        raise StudyError([study.located.problem(Finding(("recordings",), None, message, cure))])
    laws = fit_laws(KINDS if known.law == "auto" else [known.law], pooled, static)
    in_scene = for_scene(laws[0], pooled, static)
    say("prediction by the engine")
    h = float(np.mean([r.h for r in records])) / SUBSTEPS
    scene = scene_of(Path(study.located.file).stem, m, in_scene, h, found.forces[0].x[0, :2])
    runs: dict[str, Any] = {}
    states: dict[str, np.ndarray] = {}
    for record, force, alone in zip(records, found.forces, found.alone, strict=True):
        simulated = forward(scene, record, load_on(record, m, study.base, fix.offset), force.x[0, :2])
        runs[record.name] = {"used": True, **_run(record, force, simulated), "evidence_one_regime": alone.evidence}
        states |= _arrays(record, force, simulated)
    for record in held_back:
        say(f"prediction of {record.name}")
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
        "hyperparameters": spread.told(found, records[0].sensor, known.noise is not None),
        "law": _law(laws[0]) | {"in_scene": in_scene._asdict()},
        "laws": [_law(law) for law in laws],
        "static_friction": static._asdict() if static else None,
        "runs": runs,
        "settings": {
            "components": known.components,
            "sensor": records[0].sensor,
            "base": study.base,
            "hyperparameters": known.hyperparameters,
        },
    }
    return LatentFit(content, states | spread.states(), scene)


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


def _static(records: Sequence[Record], forces: Sequence[Force], m: Mechanism, base: bool) -> Static | None:
    stops = []
    for r, f in zip(records, forces, strict=True):
        pull = load_on(r, m, base, 0.0) - float(m.stiffness) * f.x[:, 0]
        stops.append(static_friction(r.time, pull, f.x, f.sd, f.probability, float(m.mass), float(m.damping)))
    every = [each for one in stops if one for each in zip(one.values, one.sds, one.times, strict=True)]
    if not every:
        return None
    values, sds, times = map(list, zip(*every, strict=True))
    return static_of(values, sds, times)


def _pooled(points: Sequence[Points]) -> Points:
    phase = np.concatenate([p.phase + 1e6 * number for number, p in enumerate(points)])
    speed, force, sd = (np.concatenate([p[i] for p in points]) for i in range(3))
    return Points(speed, force, sd, phase)


def _mechanism(
    guess: Mechanism,
    m: Mechanism,
    which: Sequence[str],
    first: dict[str, float],
    last: Correction,
    applied: bool,
    base: bool,
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
        "first_change": first,
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
    found["load_time"] = record.time[0] + simulated.step * np.arange(len(load))
    return {f"{record.name}/{key}": value for key, value in found.items()}
