"""Two real double pendulums, one with encoders, one on camera: every method on the same windows, what it predicts of
others, and base parameters by the batch method from parts of the data.

Base parameters are what a free swing knows: with A = m1 a1^2 + I1 + m2 L1^2 they are B = m2 L1 a2, C = m2 a2^2 + I2,
G1 = (m1 a1 + m2 L1) g and G2 = m2 a2 g, all over A (a from a joint to a centre of mass, I about it).
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import spookax as sx
from spookax.scene import Scene
from spookax.study.comparing.method_names import NAMES
from spookax.study.comparing.methods import Comparison, compare_methods
from spookax.study.file.against_scene import input_dimensions, sensor_dimensions
from spookax.study.file.study import Study
from spookax.study.identifying.predict import Identified, predict_recording
from spookax.study.recordings.recording import Recording, read_recordings
from spookax.study.running.setup import set_up

from .measure import Row, row, table
from .trust_sets import FOLDER, SETS, Set, on_camera

G = 9.81  # [m/s^2]
BASE = ("B/A", "C/A", "G1/A [1/s^2]", "G2/A [1/s^2]")
RUNS = ("03", "07", "12", "18")  # of the camera
# the smoother's parameters are the filter's, and dry friction has no drift, which networks need
METHODS = tuple(name for name in NAMES if name not in ("smoother", "network"))


def run(part: str = "") -> list[Row]:
    """`double`, `double_air` (the arms meet air), `ibm_camera`, or all three; also `ibm_shaken`. `SET.base` and
    `SET.methods` do one half.
    """
    name, _, half = part.partition(".")
    rows: list[Row] = []
    for chosen in [name] if name else ("double", "double_air", "ibm_camera"):
        rows += _methods(chosen) if half != "base" else []
        rows += _base(chosen) if half != "methods" else []
    return rows


def _methods(name: str) -> list[Row]:
    data, rows = SETS[name](), []
    path = _written(name, data, data.fitted, data.other)
    compared = compare_methods(path, METHODS, report=lambda text: print(text, flush=True))
    for method, told in compared.content["methods"].items():
        rows.append(
            row(f"{name}, {method}", f"time ({told['status']}; {told['message'] or '-'})", told["seconds"], "s")
        )
        found = {p: v["value"] for p, v in told["parameters"].items()}
        if found:
            rows += [_row(name, method, p, v) for p, v in zip(BASE, _base_of(path, found), strict=True)]
        each = [_errors(compared.states, run, method) for run in compared.content["runs"]]
        if method in compared.scenes and each:
            rows += _of_arms(f"{name}, {method}", "predicted", np.array(each))
    print(table(rows), flush=True)
    return rows + (_along(name, path, compared) if "camera" in name else [])


def _along(name: str, path: Path, compared: Comparison) -> list[Row]:
    """Errors along simulations from the state that fits a whole window best, which is how the camera's data were judged
    where they come from: what is left is the model's and the camera's, not that of a state that 0.1 s tell."""
    study = sx.load_study(path)
    scene = sx.read_scene(study.scene_path)
    ahead = study.model_copy(update={"recordings": study.validation})
    windows = list(zip(study.validation, _read(ahead, scene), strict=True))
    setup, rows = set_up(study, scene, _read(study, scene)), []
    levels = {name: [sensor.sd] for name, sensor in scene.sensors.items()}
    for method in compared.scenes:
        told = compared.content["methods"][method]["parameters"]
        z = setup.model.shared.encode([told[p]["value"] for p in setup.model.shared.paths])
        process = np.asarray(setup.stages[-1].noise.process)
        found = Identified(z, process, levels, float(setup.scene.step), setup.friction_speed[-1])
        each = []
        for spec, window in windows:
            length = float(window.time[-1] - window.time[0])
            p = predict_recording(study, found, window, spec, scene=scene, fit_seconds=length)
            each.append(_errors(p.states(), window.name, "open_loop"))
        rows += _of_arms(f"{name}, {method}", "along a whole window", np.array(each))
        print(table(rows[-9:]), flush=True)
    return rows


def _read(study: Study, scene: Scene) -> list[Recording]:
    return read_recordings(study, sensor_dimensions(scene), inputs=input_dimensions(scene))


def _of_arms(case: str, what: str, each: np.ndarray) -> list[Row]:
    told = (("mean", np.mean), ("median", np.median), ("largest", np.max))
    errors = {"arm 1": each[:, 0], "arm 2": each[:, 1], "both": np.sqrt(np.mean(each**2, axis=1))}
    return [
        row(case, f"{arm}, {what}, {name} error of {len(each)}", float(call(of)), "rad")
        for arm, of in errors.items()
        for name, call in told
    ]


def _errors(states: dict[str, np.ndarray], run: str, method: str) -> np.ndarray:
    """Root mean squares of the errors of both arms' angles against the vertical, over the whole recording."""
    read, told = (
        np.cumsum([np.ravel(states[f"{run}/{of}/encoder{i}"]) for i in (1, 2)], axis=0) for of in ("measured", method)
    )
    return np.sqrt(np.nanmean((told - read) ** 2, axis=1))


def _base(name: str) -> list[Row]:
    """Base parameters of each fitted window of the encoders' set, of six windows of each run of the camera's."""
    data, found, began = SETS[name](), [], time.perf_counter()
    groups = [[window] for window in data.fitted]
    if name.startswith("ibm"):
        begin, apart = (0.0, 5.0) if name == "ibm_shaken" else (10.0, 4.0)
        groups = [on_camera(run, begin, apart, 6, 0.5) for run in RUNS]
    rows: list[Row] = []
    for group in groups:
        path = _written(f"{name}_part", data, group, [])
        estimate = sx.identify(sx.load_study(path))
        values = {p: v["value"] for p, v in estimate.parameters.items()}
        found.append(_base_of(path, values))
        print(
            group[0]["name"], estimate.status, dict(zip(BASE, np.round(found[-1], 4).tolist(), strict=True)), flush=True
        )
        if estimate.status != "converged":
            rows.append(row(f"{name}, batch", f"{group[0]['name']}: {estimate.status}", np.nan, ""))
    for i, what in enumerate(BASE):
        of = np.array(found)[:, i]
        rows += [
            _row(name, "batch", f"{what}, mean of {len(of)}", of.mean()),
            _row(name, "batch", f"{what}, sd", of.std(ddof=1)),
        ]
    return [*rows, row(f"{name}, batch", "time of a part", (time.perf_counter() - began) / len(groups), "s")]


def _row(name: str, method: str, what: str, value: float) -> Row:
    return row(f"{name}, {method}", what, float(value), "")


def _written(name: str, data: Set, recordings: Sequence[Any], validate: Sequence[Any]) -> Path:
    content = {"spookax": 1, "scene": str(data.scene), "recordings": recordings, "parameters": data.parameters}
    path = FOLDER / f"{name}_methods.yaml"
    path.write_text(yaml.safe_dump(content | ({"validate": validate} if validate else {})), encoding="utf-8")
    return path


def _base_of(study: Path, found: dict[str, float]) -> np.ndarray:
    """From the scene's numbers and those that were found."""
    scene = sx.read_scene(sx.load_study(study).scene_path)
    first, second = scene.bodies["arm1"], scene.bodies["arm2"]

    def of(body: Any, name: str) -> tuple[float, float, float]:
        com = found.get(f"bodies.{name}.com.z", body.com[2])
        return body.mass, abs(com), found[f"bodies.{name}.inertia.yy"]  # pyright: ignore[reportArgumentType]

    (m1, a1, I1), (m2, a2, I2) = of(first, "arm1"), of(second, "arm2")
    L1 = abs(found.get("joints.joint2.at.z", scene.joints["joint2"].at[2]))
    A = m1 * a1**2 + I1 + m2 * L1**2
    return np.array([m2 * L1 * a2, m2 * a2**2 + I2, (m1 * a1 + m2 * L1) * G, m2 * a2 * G]) / A
