"""Public recordings under the defaults, beside the evidence's process noise and next to none: which predicts best?"""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import spookax as sx
from spookax.study import Study
from spookax.study.file.against_scene import sensor_dimensions
from spookax.study.identifying.predict import predict_open_loop

from . import trust_driven as driven
from .measure import Row, row
from .trust_sets import FOLDER, MORE_SETS, SETS, Set

RULES: dict[str, dict[str, Any] | None] = {
    "default": None,
    "evidence": {"process_noise": {"estimate": True}},
    "simulation error": {
        "process_noise": {"density": 1e-7, "estimate": False},
        "sensor_noise": {"estimate": True},
        "noise_scale": [1000, 100, 10, 1],
    },
}


def run(name: str | None = None) -> list[Row]:
    """Of every set, or one: errors of the predictions, what the estimate says of itself, and its time."""
    if name == "servo":
        return driven.servo()
    rows: list[Row] = []
    for chosen in [name] if name else SETS:
        data = (SETS | MORE_SETS)[chosen]()
        for rule, estimator in RULES.items():
            rows += _one(chosen, rule, data, estimator)
    return rows if name else rows + driven.servo()


def _study(name: str, data: Set, recordings: list[dict[str, Any]], estimator: dict[str, Any] | None) -> Study:
    content = {"spookax": 1, "scene": str(data.scene), "recordings": recordings, "parameters": data.parameters}
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}_study.yaml"
    path.write_text(yaml.safe_dump(content | ({"estimator": estimator} if estimator else {})), encoding="utf-8")
    return sx.load_study(path)


def _one(name: str, rule: str, data: Set, estimator: dict[str, Any] | None) -> list[Row]:
    study = _study(f"{name}_fitted", data, data.fitted, estimator)
    began = time.perf_counter()
    estimate = sx.identify(study)
    seconds = time.perf_counter() - began
    case, trust = f"{name}, {rule}", estimate.content["trust"]
    rows = [row(case, f"identified ({estimate.status}, {trust['grade']})", seconds, "s")]
    others = _study(f"{name}_other", data, data.other, estimator)
    scene, errors = sx.read_scene(others.scene_path), {}
    for spec, recording in zip(others.recordings, sx.read_recordings(others, sensor_dimensions(scene)), strict=True):
        for sensor, error in predict_open_loop(others, estimate, recording, spec, scene=scene, fit_seconds=0.3).items():
            errors.setdefault(sensor, []).append(error["rms"])
    for sensor, values in errors.items():
        unit = {"angle": "rad", "length": "m"}.get(sensor_dimensions(scene)[sensor][0], "")
        rows.append(row(case, f"{sensor}: mean error of {len(values)} predictions", float(np.mean(values)), unit))
        rows.append(row(case, f"{sensor}: median", float(np.median(values)), unit))
        rows.append(row(case, f"{sensor}: largest", float(np.max(values)), unit))
    if name == "dfki_double":
        rows += driven.double(Path(os.environ["SPOOKAX_DATA"]), estimate)
    for line in rows:
        print(line, flush=True)
    for reason in trust["reasons"]:
        print(f"  {reason}", flush=True)
    return rows
