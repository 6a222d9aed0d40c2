"""What the innovations of a fit say in words: whether they are white, and which fault of a recording to look for."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from ..._compiled import compiled
from ..._typing import Array
from ...estimation.batch.problem import Fit
from ...estimation.recursive.innovations import ljung_box
from ...models import Multibody
from ...system import Params
from ..recordings.blemishes import blemishes
from ..running.setup import Setup
from .half_step import HalfStep
from .misread import Misread
from .set_aside import kept, used
from .signatures import Explained, Key, explained, signatures

LEVEL = 0.01  # of every test, over all its lags
LIMIT = 2.576  # of a correlation, over the root of the number of products: 99 % lines
_LAGS = 40  # samples
_MOST = 0.1  # of a recording: more lags than that are few products
_GAIN = 12.0  # least rise of the log-likelihood that is a suspicion [nats]
_SHARE = 0.01  # of the innovations' square, the same
_REST = 0.1  # of the first suspicion's gain: what explains less is not told
_OFF = 0.02  # relative error of a scale that is worth a word
_FACTORS = {180 / math.pi: "degrees and radians", 1000.0: "a thousandth", 60.0: "minutes and seconds"}
_NEAR = math.log(1.7)  # of a known factor
_WHOLE = 0.2  # of a sample: what a delay may be above a whole number of them and count as that
_CERTAIN = 1e6  # gain of what is seen without a fit [nats]


class Suspect(NamedTuple):
    """A fault by its kind: `where` it is, by how much it raises the log-likelihood [nats], what speaks for it and what
    to do.
    """

    kind: str
    where: str
    gain: float
    share: float | None
    text: str
    cure: str


_CURES = {
    "gaps": "Cut the recording into windows between the gaps.",
    "saturation": "Leave those readings empty; if the mechanism has a stop there, give the joint limits.",
    "outliers": "Write `outliers: 0.02` under `estimator`, or leave those readings empty.",
    "sign": "Turn the sign of the column, or of the axis in the scene.",
    "unit": "Check the unit in the header of the column.",
    "scale": "Check the calibration of the column, or make the gain a parameter.",
    "zero": "Make the sensor's offset a parameter.",
    "delay": "Shift the column in time: `{{column: NAME, shift: {:.6g}}}`.",
    "clock": "Check that inputs and sensors were stamped by one clock.",
    "drift": "Use shorter windows with `offsets`, or another sensor.",
    "step": "Write `step: {:g}` under `estimator`.",
    "friction": "Try another friction law for this joint.",
}


def diagnosis(setup: Setup, states: Mapping[str, np.ndarray], found: list[Suspect]) -> dict[str, Any]:
    """The `diagnosis` of `estimate.json`.

    **Arguments:** the arrays of `states.npz` with innovations; the `suspects`.

    **Returns:** `sentence`; `white`: whether no test speaks against it; `runs`: correlations of the innovations in
    every run, with p-values; `suspects`, the first suspicion first.
    """
    runs = {r.name: _correlations(r.time, r.inputs, dict(_innovations(r.name, states))) for r in setup.recordings}
    tested = [s["p"] for run in runs.values() for s in run["sensors"].values() if s["p"] is not None]
    white = all(p > LEVEL for p in tested)
    free = all(s["free_of_inputs"] for run in runs.values() for s in run["sensors"].values())
    return {
        "sentence": _sentence(white, free, found) if tested else _suspicion("There are no innovations to test.", found),
        "white": white,
        "free_of_inputs": free,
        "runs": runs,
        "suspects": [s._asdict() for s in found],
    }


def _innovations(run: str, states: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    prefix = f"{run}/innovation/"
    for key, values in states.items():
        if key.startswith(prefix):
            yield key.removeprefix(prefix), np.nan_to_num(values)


def _correlations(
    time: np.ndarray, inputs: Mapping[str, np.ndarray], innovations: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Correlations of innovations with their own past and with inputs, against the lag in samples.

    A positive lag means that the input came before the innovation.
    """
    lags = max(1, min(_LAGS, int(_MOST * len(time))))
    told: dict[str, Any] = {}
    for name, columns in innovations.items():
        own, by_input, p, limit = [], {}, None, 1.0
        for e in columns.T:
            there = e != 0  # readings that are missing are zero
            if there.sum() < 3 * lags:
                continue
            p_here = ljung_box(e, lags)[1]
            p = p_here if p is None else min(p, p_here)
            limit = LIMIT / math.sqrt(float(there.sum()))
            own.append(_against(e, e, range(1, lags + 1)))
            for motor, u in inputs.items():
                by_input.setdefault(motor, []).append(
                    _against(e, np.where(there, u - u.mean(), 0.0), range(-lags, lags + 1))
                )
        cross = {motor: _largest(lines) for motor, lines in by_input.items()}
        # the level of each lag, so that all of them together have LEVEL
        strict = _normal_limit(LEVEL / max(1, (2 * lags + 1) * len(cross))) / LIMIT * limit
        told[name] = {
            "p": p,
            "auto": _largest(own),
            "cross": cross,
            "limit": limit,
            "free_of_inputs": all(max(map(abs, line)) < strict for line in cross.values()),
        }
    return {"lag": float(np.median(np.diff(time))), "lags": lags, "sensors": told}


def _normal_limit(p: float) -> float:
    return float(-special.ndtri(p / 2))


def _against(e: np.ndarray, u: np.ndarray, lags: Iterable[int]) -> np.ndarray:
    """Correlation of e_k with u_(k - lag)."""
    scale = math.sqrt(float(e @ e) * float(u @ u))
    n = len(e)
    return np.array([e[max(l, 0) : n + min(l, 0)] @ u[max(-l, 0) : n - max(l, 0)] for l in lags]) / (scale or 1.0)


def _largest(lines: list[np.ndarray]) -> list[float]:
    """Of the numbers of a sensor the one that correlates most."""
    return max(lines, key=lambda line: float(np.max(np.abs(line)))).tolist() if lines else []


def suspects(
    setup: Setup, fit: Fit, told: list[Explained], wrong: Misread | None = None, half_step: HalfStep | None = None
) -> list[Suspect]:
    """What may be wrong, the likeliest first: each kind once, where it shows most.

    **Arguments:** the fit; its `explanations`; a sign or unit with which it would have gone well, if one was found;
    what half the time step would change, if that is known.
    """
    found = [*_at_sight(setup, fit), *_from_parameters(setup, fit)]
    if wrong is not None:
        found.append(_misread(wrong))
    if half_step is not None and half_step.gain > _GAIN and half_step.share > _SHARE:
        found.append(_long_step(setup, half_step))
    found += _from_innovations(told, setup, _params(setup, fit)) if told else ()
    best: dict[str, Suspect] = {}
    for suspect in sorted(found, key=lambda s: -s.gain):
        best.setdefault(suspect.kind, suspect)
    ranked = list(best.values())
    return [s for s in ranked if s.gain > _REST * min(ranked[0].gain, _CERTAIN / 10)]


def _at_sight(setup: Setup, fit: Fit) -> Iterator[Suspect]:
    for i, recording in enumerate(setup.recordings):
        found = list(blemishes(recording))
        if setup.outliers:  # what was set aside is mended, and no gap
            rest = kept(setup, fit, i)
            found = [b for b in found if b.kind == "gaps"]
            found += [b for b in blemishes(rest) if b.kind == "saturation"]
            found += [b for b in blemishes(used(rest, setup, fit, i)) if b.kind == "outliers"]
        for kind, where, count, text in found:
            place = f"{where} in {recording.name}" if where else recording.name
            yield Suspect(kind, where, _CERTAIN + count, None, f"{place}: {text}", _CURES[kind])


def _from_parameters(setup: Setup, fit: Fit) -> Iterator[Suspect]:
    """Gains that have come out with another sign than they began with, or far away from it."""
    shared, gain = setup.model.shared, ".gain"
    paths = list(shared.paths)
    values = np.asarray(_params(setup, fit).gain)
    for m, motor in enumerate(setup.system.motors):
        path = f"motors.{motor.name}{gain}"
        start = float(np.asarray(setup.params.gain)[m])
        if path not in paths or not start:
            continue
        ratio = float(values[m]) / start
        if ratio < 0:
            text = f"{path} has come out as {values[m]:.3g}, with the sign opposite to its start"
            yield Suspect("sign", motor.name, _CERTAIN, None, text, _CURES["sign"])
        elif name := _known(ratio):
            text = f"{path} has come out {_times(ratio)} its start, about the factor between {name}"
            yield Suspect("unit", motor.name, _CERTAIN, None, text, _CURES["unit"])


def _misread(wrong: Misread) -> Suspect:
    better = f"a rough fit misses {100 * wrong.ratio:.2g} % as much"
    if wrong.factor < 0:
        return Suspect("sign", wrong.channel, 2 * _CERTAIN, None, f"{wrong.channel}: turned, {better}", _CURES["sign"])
    text = f"{wrong.channel}: multiplied by {wrong.factor:.3g}, {better}"
    return Suspect("unit", wrong.channel, 2 * _CERTAIN, None, text, _CURES["unit"])


def _long_step(setup: Setup, half_step: HalfStep) -> Suspect:
    step = float(setup.scene.step)
    text = f"{step:g} s is long for this motion: half of it explains {100 * half_step.share:.2g} % of the innovations"
    return Suspect("step", "", half_step.gain, half_step.share, text, _CURES["step"].format(step / 2))


def _params(setup: Setup, fit: Fit) -> Params:
    return _physical(setup.model, np.concatenate([fit.iterate.z, np.zeros(setup.model.own.size)]))


@compiled
def _physical(model: Multibody, z: Array) -> Params:
    return model.physical(z)


def _known(ratio: float) -> str:
    """What a factor, or its inverse, is usually due to."""
    if not ratio > 0:
        return ""
    for factor, name in _FACTORS.items():
        if abs(abs(math.log(ratio)) - math.log(factor)) < _NEAR:
            return name
    return ""


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times" if ratio >= 1 else f"1/{1 / ratio:.3g} of"


def explanations(setup: Setup, fit: Fit, states: Mapping[str, np.ndarray]) -> list[Explained]:
    """What every fault explains of the innovations, the best first; nothing where the fit has no innovations.

    `states`: the arrays of `states.npz` with estimated readings.
    """
    if fit.parts is None or not (np.all(np.isfinite(fit.information)) and np.isfinite(fit.cost)):
        return []
    assert isinstance(setup.model, Multibody)
    params, columns = _params(setup, fit), []
    for recording, grid in zip(setup.recordings, setup.grids, strict=True):
        prefix = f"{recording.name}/estimated/"
        estimated = {k.removeprefix(prefix): v for k, v in states.items() if k.startswith(prefix)}
        columns.append(signatures(setup, recording, grid, estimated, params))
    return explained(setup, fit, columns)


def _from_innovations(found: list[Explained], setup: Setup, params: Params) -> Iterator[Suspect]:
    for key, gain, share, size, _ in found:
        if gain > _GAIN and share > _SHARE:
            kind, text = _words(key, size)
            if kind:
                where = key.where or "sensors"
                text = f"{where}: {text}, which explains {100 * share:.2g} % of the innovations"
                cure = _delay_cure(setup, params, key, size) if kind == "delay" else _CURES[kind]
                yield Suspect(kind, key.where, gain, share, text, cure)


def _words(key: Key, size: float) -> tuple[str, str]:
    factor = 1 + size
    if key.kind == "scale":
        return ("scale", f"numbers are {factor:.3g} times what they should be") if abs(size) > _OFF else ("", "")
    if key.kind == "delay":
        late = _late(key, size)
        if key.form:  # of an input
            return "delay", f"acts {abs(late):.2g} s {'later' if late > 0 else 'earlier'} than its column and delay say"
        return "delay", f"{abs(late):.2g} s {'late' if late > 0 else 'early'} against the others"
    if key.kind == "clock":
        fast = abs(size * float(key.form or 1.0))
        return "clock", f"the clocks of inputs and sensors differ by {100 * fast:.2g} %"
    return {
        "sign": ("sign", "the sign is turned"),
        "unit": ("unit", f"numbers are {_times(factor)} what they should be"),
        "zero": ("zero", f"zero is off by {size:.2g}"),
        "drift": ("drift", f"the zero drifts by {size:.2g}"),
        "friction": ("friction", f"friction depends on {key.form} in another way"),
    }[key.kind]


def _late(key: Key, size: float) -> float:
    """By how much an input acts, or readings are, later than the fit has them [s]."""
    return size * float(key.form or 1.0)


def _delay_cure(setup: Setup, params: Params, key: Key, size: float) -> str:
    """The line of the study that makes a delay unknown, beginning with what was seen. None has a negative one: the
    column is shifted by as many samples as it takes, and a delay tells what that is too much.
    """
    if key.form:  # of an input
        section, given = "motors", params.delay[[m.name for m in setup.system.motors].index(key.where)]
    else:
        section, given = "sensors", params.age[setup.system.sensor_index(key.where)]
    late, path = _late(key, size), f"{section}.{key.where}.delay"
    if (start := float(given) + late) > 0:
        return f"Write `{path}: {{start: {start:.2g}}}` under `parameters`, or shift the column."
    apart = max(float(np.median(np.diff(recording.time))) for recording in setup.recordings)
    samples = max(1, math.ceil(-late / apart - _WHOLE))
    before = next((r.shifts[key.where] for r in setup.recordings if key.where in r.shifts), 0.0)
    cure = _CURES["delay"].format(before + (-samples if key.form else samples) * apart)
    left = samples * apart + late
    if left <= _WHOLE * apart:
        return cure
    return f"{cure} That is {left:.2g} s too far: write `{path}: {{start: {float(given) + left:.2g}}}`, too."


def _sentence(white: bool, free: bool, found: list[Suspect]) -> str:
    how = "white" if white else "not white"
    how += "" if free else ", and they follow the inputs"
    return _suspicion(f"Innovations are {how}.", found)


def _suspicion(text: str, found: list[Suspect]) -> str:
    """With the first of what was found."""
    return f"{text} First suspicion: {found[0].kind}, {found[0].text}. {found[0].cure}" if found else text
