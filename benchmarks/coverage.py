"""How often intervals hold the truth: N synthetic records of each case, fitted under the defaults from starts 30 % off.

`SPOOKAX_DRAWS` is N, 50 when left out. A case counts every parameter of every record; where a record does not tell a
combination, whether the estimate says so.
"""

import dataclasses
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import yaml

import spookax as sx

from .coverage_records import COM, INERTIA, MASS, SAMPLES, SD, Control, H, Truth, balance, excitation, records, released
from .measure import OUT, Row, row

FOLDER = OUT / "coverage"
DRAWS = int(os.environ.get("SPOOKAX_DRAWS", "50"))
NORMAL = 1.6448536269514722  # standard deviations on either side that hold 90 %

_COM, _INERTIA, _GAIN = "bodies.bob.com.z", "bodies.bob.inertia.xx", "motors.drive.gain"
_VISCOUS, _COULOMB = "joints.pin.friction.viscous", "joints.pin.friction.coulomb"
_OFFSET, _TILT = "sensors.angle.offset", "tilt.x"
_FRICTION = (_VISCOUS, _COULOMB)


@dataclasses.dataclass(frozen=True)
class Case:
    """`control` makes the torques of N records, `start` their angles and rates; `unknown`: what is sought;
    `untold`: of these, the ones of which a record only tells a combination; `wild`: share of the readings.
    """

    truth: Truth
    control: Callable[[int, np.random.Generator], Control]
    angle: tuple[float, float]
    unknown: tuple[str, ...]
    untold: tuple[str, ...] = ()
    wild: float = 0.0


def _driven(count: int, rng: np.random.Generator) -> Control:
    return excitation(count, rng, 0.8)


def _released(count: int, rng: np.random.Generator) -> Control:
    return released


_HANGING = Case(Truth(), _driven, (-0.5, 0.5), (_INERTIA, _COM, *_FRICTION, _OFFSET))
_BALANCED = Case(Truth(), balance, (np.pi - 0.05, np.pi + 0.05), (_INERTIA, _COM, *_FRICTION, _OFFSET))
_STICKING = Case(Truth(coulomb=0.15), _released, (1.0, 1.6), (_INERTIA, *_FRICTION, _OFFSET))
CASES = {
    "hanging": _HANGING,
    "near upright": Case(Truth(), _released, (np.pi - 0.15, np.pi - 0.05), (_INERTIA, *_FRICTION, _OFFSET)),
    "balanced": _BALANCED,
    "sticking": _STICKING,
    "drag": dataclasses.replace(_HANGING, truth=Truth(drag=0.002)),
    "outliers": dataclasses.replace(_HANGING, wild=0.02),
    "balanced, tilted base": dataclasses.replace(
        _BALANCED,
        truth=Truth(tilt=0.03),
        unknown=(_INERTIA, _COM, *_FRICTION, _OFFSET, _TILT),
        untold=(_OFFSET, _TILT),
    ),
    "ring-down, no known torque": dataclasses.replace(
        _STICKING,
        unknown=(_INERTIA, _COM, *_FRICTION, _OFFSET),
        untold=(_INERTIA, _COM, *_FRICTION),
    ),
}


def _scene(truth: Truth) -> dict[str, Any]:
    """As known before the identification: all that is not sought is right."""
    friction = {"viscous": truth.viscous, "coulomb": truth.coulomb}
    return {
        "spookax": 1,
        "bodies": {"bob": {"mass": MASS, "com": [0, 0, -COM], "inertia": [INERTIA, INERTIA, INERTIA]}},
        "joints": {"pin": {"type": "hinge", "child": "bob", "axis": [1, 0, 0], "friction": friction}},
        "motors": {"drive": {"type": "torque", "joint": "pin", "gain": 1.0}},
        "sensors": {"angle": {"type": "joint_position", "joint": "pin", "sd": SD}},
    }


def _start(path: str, value: float, rng: np.random.Generator) -> float:
    if path in (_OFFSET, _TILT):
        return 0.0
    return value * float(rng.choice([0.7, 1.3]))


def drawn(name: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Torques and readings (samples, records) of a case."""
    case, rng = CASES[name], np.random.default_rng([7, *map(ord, name)])
    control = case.control(count, rng)
    angle, rate = rng.uniform(*case.angle, count), rng.uniform(-0.05, 0.05, count)
    torque, reading = records(case.truth, angle, rate, control, rng)
    wild = rng.uniform(size=reading.shape) < case.wild
    return torque, reading + wild * rng.choice([-1, 1], reading.shape) * rng.uniform(0.02, 0.5, reading.shape)


def identified(name: str, torque: np.ndarray, reading: np.ndarray, seed: int) -> sx.Estimate:
    """One record, as a study of files."""
    case, rng, stem = CASES[name], np.random.default_rng([8, seed]), _stem(name)
    FOLDER.mkdir(parents=True, exist_ok=True)
    columns = np.column_stack([H * np.arange(SAMPLES), torque, reading])
    header = "t [s],u [N m],angle [rad]"
    np.savetxt(FOLDER / f"{stem}.csv", columns, "%.9g", ",", header=header, comments="")
    (FOLDER / f"{stem}.yaml").write_text(yaml.safe_dump(_scene(case.truth)), encoding="utf-8")
    recording = {"file": f"{stem}.csv", "time": "t", "inputs": {"drive": "u"}, "sensors": {"angle": "angle"}}
    truth = case.truth.numbers()
    study = {
        "spookax": 1,
        "scene": f"{stem}.yaml",
        "recordings": [recording],
        "parameters": {path: {"start": _start(path, truth[path], rng)} for path in case.unknown},
        **({"estimator": {"outliers": case.wild}} if case.wild else {}),
    }
    path = FOLDER / f"{stem}_study.yaml"
    path.write_text(yaml.safe_dump(study), encoding="utf-8")
    return sx.identify(sx.load_study(path))


def covers(parameter: dict[str, Any], truth: float) -> bool:
    """Whether the 90 % interval of a parameter holds a number."""
    low, high = parameter.get("interval") or (parameter["value"] + side * NORMAL * parameter["sd"] for side in (-1, 1))
    return low <= truth <= high


def says_so(estimate: sx.Estimate, untold: tuple[str, ...]) -> bool:
    """Whether an estimate names all of some parameters as told in combination only."""
    told = [set(group["paths"]) for group in estimate.content["checks"]["gauge"]]
    return any(set(untold) <= paths for paths in told)


def run(part: str | None = None) -> list[Row]:
    """Of every case, or one: shares of the intervals that hold the truth."""
    rows: list[Row] = []
    for name in CASES:
        if part in (None, _stem(name)):
            rows += _one(name)
    if not rows:
        raise SystemExit(f"no case {part}; there are {', '.join(map(_stem, CASES))}")
    return rows


def _stem(name: str) -> str:
    """A case as a name of files, and on the command line."""
    return name.replace(" ", "_").replace(",", "")


def _one(name: str) -> list[Row]:
    case, truth = CASES[name], CASES[name].truth.numbers()
    torque, reading = drawn(name, DRAWS)
    held: dict[str, list[bool]] = {path: [] for path in case.unknown}
    said, converged = 0, 0
    for i in range(DRAWS):
        began = time.perf_counter()
        estimate = identified(name, torque[:, i], reading[:, i], i)
        seconds = time.perf_counter() - began
        errors = []
        for path, results in held.items():
            found = estimate.parameters[path]
            results.append(covers(found, truth[path]))
            errors.append(f"{(found['value'] - truth[path]) / max(found['sd'], 1e-300):+.1f}")
        said += says_so(estimate, case.untold)
        converged += estimate.status == "converged"
        print(f"{name} {i}: {seconds:.1f} s, {estimate.status}, off by sd: {' '.join(errors)}", flush=True)
    every = [hit for results in held.values() for hit in results]
    rows = [
        row(name, f"converged, of {DRAWS}", converged, "records"),
        row(name, "all parameters", 100 * float(np.mean(every)), "%"),
    ]
    rows += [row(name, path, 100 * float(np.mean(results)), "%") for path, results in held.items()]
    if case.untold:
        rows.append(row(name, f"says what is not told, of {DRAWS}", said, "records"))
    return rows
