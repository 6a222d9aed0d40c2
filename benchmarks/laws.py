"""Which law of friction predicts best: `spookax choose-friction` on public recordings."""

from typing import Any

import yaml

import spookax as sx

from .measure import ROOT, Row, row
from .trust_sets import FOLDER, single


def _between() -> dict[str, Any]:
    """One arm that swings freely and dies away: every other window is fitted, those between are predicted."""
    data = single()
    whole = {key: value for key, value in data.fitted[0].items() if key not in ("name", "start", "stop")}
    fitted, other = (
        {**whole, "name": name, "start": start, "stop": 36.1, "windows": {"length": 4.5, "every": 2}}
        for name, start in (("odd", 0.0), ("even", 4.5))
    )
    return {"scene": str(data.scene), "recordings": [fitted], "validate": [other], "parameters": data.parameters}


def _end() -> dict[str, Any]:
    """The same: the first half is fitted, four windows of the second are predicted."""
    data = single()
    late = {**data.other[0], "name": "late", "stop": 36.665, "windows": {"length": 4.5}}
    return {"scene": str(data.scene), "recordings": data.fitted, "validate": [late], "parameters": data.parameters}


def _emps() -> dict[str, Any]:
    """A positioning axis whose force has an offset, with a scene that knows of none: a period, and eight windows."""
    scene = sx.read_scene(ROOT / "scenes/emps.yaml")
    drive = scene.motors["drive"].model_copy(update={"bias": 0.0})
    FOLDER.mkdir(parents=True, exist_ok=True)
    sx.write_scene(scene.model_copy(update={"motors": {"drive": drive}}), FOLDER / "emps_scene.yaml")
    every = {"dataset": "emps/emps_periods_1to3.csv"}
    return {
        "scene": "emps_scene.yaml",
        "defaults": {"time": "t", "every": 20, "inputs": {"drive": "u"}, "sensors": {"encoder": "q"}},
        "recordings": [{**every, "stop": 6.2}],
        "validate": [{**every, "name": "later", "start": 6.2, "stop": 18.6, "windows": {"length": 1.55}}],
        "parameters": {
            "bodies.carriage.mass": {"start": 142.7, "lower": 1, "upper": 1000},
            "joints.slide.friction.viscous": {"start": 101.8},
            "joints.slide.friction.coulomb": {"start": 30.6},
        },
        "estimator": {"process_noise": {"kind": "joints", "density": 0.1}},
    }


STUDIES = {"between": _between, "end": _end, "emps": _emps}


def run(name: str | None = None) -> list[Row]:
    """Of one of `STUDIES`, or all: the error of every law over what was held back, the chosen one marked."""
    rows: list[Row] = []
    for chosen in [name] if name else STUDIES:
        FOLDER.mkdir(parents=True, exist_ok=True)
        path = FOLDER / f"laws_{chosen}.yaml"
        path.write_text(yaml.safe_dump({"spookax": 1, **STUDIES[chosen]()}, sort_keys=False), encoding="utf-8")
        found = sx.choose_friction(path, FOLDER / f"laws_{chosen}").content
        for one in found["laws"]:
            case = f"{chosen}, {one['law']}{'*' * (one['law'] == found['chosen'])} ({one['status']}, {one['grade']})"
            rows += [row(case, f"RMS, {one['unknowns']} unknowns", rms, unit) for unit, rms in one["rms"].items()]
    return rows
