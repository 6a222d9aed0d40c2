"""`spookax latent`: from recordings of a mechanism that rubs to its friction forces, laws, and a scene with them."""

import datetime
import importlib.metadata
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from spookax._interruption import Stop, stoppable
from spookax._typing import Float
from spookax.models.linear import SENSORS, LinearMechanism
from spookax.scene.explain import Finding
from spookax.study.file.read import StudyError
from spookax.study.latent.correction import Correction, correction
from spookax.study.latent.fitting import Fitted, fitted
from spookax.study.latent.forward import SUBSTEPS, Forward, forward
from spookax.study.latent.known import known_of
from spookax.study.latent.laws import KINDS, Law, SceneLaw, fit_laws, for_scene
from spookax.study.latent.mechanism import AbstractKnown, Oscillator
from spookax.study.latent.of_scene import OfScene
from spookax.study.latent.outcome import (
    LatentFit,
    contact_arrays,
    contact_told,
    force_arrays,
    run_arrays,
    run_told,
    used_told,
)
from spookax.study.latent.record import Record, read_latent, read_records
from spookax.study.latent.sampling import blackjax_module
from spookax.study.latent.scene_correction import scene_correction
from spookax.study.latent.section import LatentStudy
from spookax.study.latent.sliding import Points, sliding_points
from spookax.study.latent.spread import spread_of
from spookax.study.latent.static import Read, Static, static_friction, static_of
from spookax.study.latent.switching_model import Force, scales_of
from spookax.study.latent.unfinished import Unfinished, digest

_PASSES = 4  # of corrections
_SETTLED = 0.3  # standard deviations


def latent(
    study: LatentStudy | str | os.PathLike[str],
    report: Callable[[str], None] | None = None,
    keep: str | os.PathLike[str] | None = None,
    resume: bool = False,
) -> LatentFit:
    """The friction force along the recordings of a study, and what follows from it.

    **Arguments:** the study or its file; `report`: called with what is done, and a place to stop; `keep`: a folder for
    what is computed on the way, from which `resume` goes on after a stop.

    **Raises:** `StudyError`, `SceneError`, `RecordingError` with everything that is wrong with the files; `FileError`
    if there is nothing to resume from; `KeyboardInterrupt` after a signal.
    """
    with stoppable() as stop:
        told("reading the recordings", stop, report)
        study = study if isinstance(study, LatentStudy) else read_latent(study)
        if study.latent.hyperparameters == "sample":
            _check_sampler(study)
        known = known_of(study)
        scene = known.given if isinstance(known, OfScene) else None
        records, held_back = (read_records(study, key, scene) for key in ("recordings", "validate"))
        unfinished = Unfinished(None if keep is None else Path(keep), digest(study, scene, records))
        if resume:
            unfinished.read()

        def say(text: str) -> None:
            if unfinished.written:
                stop.kept = f"{keep} has what was computed, and --resume goes on"
            told(text, stop, report)

        if study.base or study.latent.bases:
            say("velocity of the base")
        used, kept_back = ([(r, known.seen(r)) for r in some] for some in (records, held_back))
        return _latent(study, known, used, kept_back, say, unfinished)


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


class _Passed(NamedTuple):
    """Mechanism and force after the last pass of corrections, what the first one said, what is left."""

    known: AbstractKnown
    found: Fitted
    first: dict[str, float]
    fix: Correction


def _passes(
    study: LatentStudy,
    given: AbstractKnown,
    records: Sequence[Record],
    say: Callable[[str], None],
    kept: Unfinished,
) -> _Passed:
    """Forces by the mechanism as it is; with those of its numbers that are guesses corrected, and once more."""
    own = study.latent
    which = own.correct
    if isinstance(given, Oscillator):
        which = which or [name for name in given.numbers if not (given.base and name == "mass")]
    if not len(kept.total):
        kept.total = np.zeros(len(which))
    while True:
        known = given.with_changes(dict(zip(which, map(float, kept.total), strict=True)))
        found = fitted(records, known, own.components, own.noise, say, kept)
        fix = _corrected(records, found.forces, known, which)
        more = np.array([fix.change[name] for name in which])
        if not kept.passes:
            kept.first = more
        settled = all(abs(fix.change[name]) < _SETTLED * fix.sd[name] for name in which)
        if not own.correct or kept.passes == _PASSES or (kept.passes and settled):
            return _Passed(known, found, dict(zip(which, map(float, kept.first), strict=True)), fix)
        kept.next_pass(kept.total + more, found.log)
        say("once more, with corrected " + ", ".join(which))


class _Contact(NamedTuple):
    """What was found of a contact along all records."""

    forces: list[Force]
    points: Points
    static: Static | None
    laws: list[Law]
    in_scene: SceneLaw


def _latent(
    study: LatentStudy,
    known: AbstractKnown,
    records: Sequence[tuple[Record, Record]],
    held_back: Sequence[tuple[Record, Record]],
    say: Callable[[str], None],
    unfinished: Unfinished,
) -> LatentFit:
    own, seen = study.latent, [record for _, record in records]
    given = known
    known, found, first, fix = _passes(study, known, seen, say, unfinished)
    spread = spread_of(found, own, say, unfinished)
    found = found._replace(forces=[without_zeros(force, known, seen[0], fix) for force in spread.forces])
    records, held_back = ([(r, known.from_zeros(s, fix.zeros)) for r, s in some] for some in (records, held_back))
    seen = [record for _, record in records]
    if isinstance(known, Oscillator) and known.readings[0].kind != "displacement":
        found = found._replace(forces=[_centred(force, fix) for force in found.forces])  # friction is alike both ways
    say("law of friction")
    contacts = {
        contact.name: _contact(study, number, contact.name, seen, found, known)
        for number, contact in enumerate(known.contacts)
    }
    say("prediction by the engine")
    h, q = float(np.mean([r.h for r in seen])) / SUBSTEPS, len(known.point)
    start = found.forces[0].x[0, : 2 * q] + np.append(known.point, np.zeros(q))
    scene = known.scene(Path(study.located.file).stem, [c.in_scene for c in contacts.values()], h, start)
    runs: dict[str, Any] = {}
    states: dict[str, np.ndarray] = {}

    def predicted(record: Record, seen: Record, x: Float[np.ndarray, " n"]) -> Forward:
        at = x[: 2 * q] + np.append(known.point, np.zeros(q))
        return forward(scene, known.readings, record, known.loads(seen), at)

    for number, (record, own_seen) in enumerate(records):
        simulated = predicted(record, own_seen, found.forces[number].x[0])
        by_contact = {name: contact.forces[number] for name, contact in contacts.items()}
        runs[record.name] = {"used": True} | run_told(record, known, simulated)
        runs[record.name] |= used_told(record, by_contact, found.alone[number])
        states |= run_arrays(record, known, simulated)
        for (name, force), place in zip(by_contact.items(), known.contacts, strict=True):
            force = force._replace(x=force.x + np.array([known.point[place.coordinate], 0.0, 0.0]))
            states |= force_arrays(record.name, name, force)
    for record, own_seen in held_back:
        say(f"prediction of {record.name}")
        _, alone = scales_of(own_seen, known.linear(), known.setting(own.components))
        simulated = predicted(record, own_seen, alone.x[0])
        runs[record.name] = {"used": False} | run_told(record, known, simulated)
        states |= run_arrays(record, known, simulated)
    for name, contact in contacts.items():
        states |= contact_arrays(name, contact.laws, contact.points)
    content = {
        "study": Path(study.located.file).stem,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "spookax": importlib.metadata.version("spookax"),
        "mechanism": _mechanism(given, known, seen, found, first, fix, bool(own.correct)),
        "hyperparameters": spread.told(found, known, own.noise is not None),
        "contacts": {
            contact.name: contact_told(contact.units, c.laws, c.in_scene, c.static)
            for contact, c in zip(known.contacts, contacts.values(), strict=True)
        },
        "sensors": {reading.name: reading.unit for reading in known.readings},
        "runs": runs,
        "settings": {
            "components": own.components,
            "base": study.base,
            "hyperparameters": own.hyperparameters,
        },
    }
    return LatentFit(content, states | spread.states(known, found.posterior.setting), scene)


def _contact(
    study: LatentStudy, number: int, name: str, seen: Sequence[Record], found: Fitted, known: AbstractKnown
) -> _Contact:
    setting = found.posterior.setting
    forces = [f.of(number, setting) for f in found.forces]
    points = _pooled([sliding_points(f.x, f.sd, f.probability)[0] for f in forces])
    static = _static(number, seen, found, forces)
    if not len(points.speed):
        what = "the mass" if isinstance(known, Oscillator) else f"joint '{name}'"
        cure = "Record a motion that slides, and look whether the mechanism's numbers and units are right."
        message = f"{what} slides nowhere for sure, so that no law can be fitted"
        raise StudyError([study.located.problem(Finding(("recordings",), None, message, cure))])
    own = study.latent.law
    laws = fit_laws(KINDS if own == "auto" else [own], points, static)
    return _Contact(forces, points, static, laws, for_scene(laws[0], points, static))


def _centred(force: Force, fix: Correction) -> Force:
    """The force without the constant that a zero of the displacement which nobody reads leaves in it."""
    x, sd = force.x.copy(), force.sd.copy()
    x[:, 0] += fix.offset
    x[:, 2] -= fix.constant
    sd[:, 2] = np.hypot(sd[:, 2], fix.constant_sd)
    return force._replace(x=x, sd=sd)


def without_zeros(force: Force, known: AbstractKnown, seen: Record, fix: Correction) -> Force:
    """The force without what wrong zeros of bases that move leave in it: it does the same as they do."""
    m, every = known.linear(), np.eye(len(fix.zeros))
    units = [(seen.u - known.from_zeros(seen, list(one)).u)[0] for one in every]
    E, B = np.asarray(m.E), np.asarray(m.B)
    left = [-np.linalg.lstsq(E, B @ unit, rcond=None)[0] for unit in units]
    x, sd = force.x.copy(), force.sd.copy()
    for own, zero, zero_sd in zip(left, fix.zeros, fix.zeros_sd, strict=True):
        x[:, m.size :] -= own * zero
        sd[:, m.size :] = np.hypot(sd[:, m.size :], own * zero_sd)
    return force._replace(x=x, sd=sd)


def _corrected(
    records: Sequence[Record], forces: Sequence[Force], known: AbstractKnown, which: Sequence[str]
) -> Correction:
    if isinstance(known, OfScene):
        return scene_correction(records, forces, known)
    assert isinstance(known, Oscillator)
    points = [sliding_points(f.x, f.sd, f.probability) for f in forces]
    places, phases = [at for _, at in points], [p.phase for p, _ in points]
    return correction(records, forces, places, phases, known.m, which, known.base)


def _static(number: int, records: Sequence[Record], found: Fitted, own: Sequence[Force]) -> Static | None:
    """Of one contact, from all its stops."""
    setting, stops = found.posterior.setting, []
    place = setting.contacts[number]
    channel = min((SENSORS.index(kind), k) for k, (kind, of) in enumerate(setting.reads) if of == place)[1]
    noise = float(np.exp(setting.split(jnp.asarray(found.log))[2][channel]))
    for r, whole, f in zip(records, found.forces, own, strict=True):
        mass, pull = pull_on(number, found.posterior.m, r.u, whole.x)
        read = Read(setting.reads[channel][0], r.y[:, channel], noise)
        stops.append(static_friction(r.time, pull, f.x, f.sd, f.probability, mass, read))
    every = [each for one in stops if one for each in zip(one.values, one.sds, one.times, strict=True)]
    if not every:
        return None
    values, sds, times = map(list, zip(*every, strict=True))
    return static_of(values, sds, times)


def pull_on(
    number: int, m: LinearMechanism, u: Float[np.ndarray, "k inputs"], x: Float[np.ndarray, "k n"]
) -> tuple[float, Float[np.ndarray, " k"]]:
    """What a contact has to move, and what does all but its own friction to it: its rate grows with their ratio."""
    s, F, B, E = (np.asarray(a) for a in (m.slip[number], m.F, m.B, m.E))
    mass = -1.0 / float(s @ E[:, number])
    others = x[:, m.size :].copy()
    others[:, number] = 0.0
    return mass, mass * (x[:, : m.size] @ (s @ F) + u @ (s @ B) + others @ (s @ E))


def _pooled(points: Sequence[Points]) -> Points:
    phase = np.concatenate([p.phase + 1e6 * number for number, p in enumerate(points)])
    speed, force, sd = (np.concatenate([p[i] for p in points]) for i in range(3))
    return Points(speed, force, sd, phase)


def _mechanism(
    guess: AbstractKnown,
    known: AbstractKnown,
    seen: Sequence[Record],
    found: Fitted,
    first: dict[str, float],
    last: Correction,
    applied: bool,
) -> dict[str, Any]:
    """Its numbers with corrections; of a scene the point and how far the linear model is off."""
    used = known.numbers
    rows: dict[str, Any] = {
        name: {"given": value, "used": used[name][0], "unit": unit} for name, (value, unit) in guess.numbers.items()
    }
    for name in last.change:
        rows[name] |= {"suggested": rows[name]["used"] + last.change[name], "sd": last.sd[name]}
    told = {"scene": None, "numbers": rows, "corrected": applied, "first_change": first}
    if not isinstance(known, OfScene):
        return told | {"offset": last.offset if last.zeros else None}
    off = np.sqrt(np.mean([known.bend(f.x, r) ** 2 for f, r in zip(found.forces, seen, strict=True)], axis=0))
    bend = {contact.name: float(a) for contact, a in zip(known.contacts, off, strict=True)}
    point = dict(zip(known.names, map(float, known.point), strict=True))
    zeros = {base.name: zero for base, zero in zip(known.bases, last.zeros, strict=True)}
    return told | {"scene": known.given.name, "point": point, "linearisation": bend, "zeros": zeros}
