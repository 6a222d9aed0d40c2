"""How often intervals hold the truth on the demo's machine: fifty recordings by the fine integration in minimal
coordinates, with torque noise and Gaussian noise of the encoders. `SPOOKAX_DRAWS` is their number.
"""

import dataclasses
import sys
from pathlib import Path

import numpy as np

from spookax._results import ESTIMATE_RESULTS
from spookax.estimation import Settings, fit
from spookax.scene import read_scene
from spookax.study.file.read import read_study
from spookax.study.file.study import Study
from spookax.study.judging.error_bars import natural
from spookax.study.recordings.recording import Recording
from spookax.study.running.setup import set_up

from .coverage import DRAWS, NORMAL
from .measure import ROOT, Row, row

sys.path.append(str(ROOT / "scripts/reference"))
from coverage_set import make

DENSITY = 2e-5  # of the torque noise [N m √s]


def run() -> list[Row]:
    """Shares of the 90 % intervals that hold the truth. Starts are 10 % off, noise levels are known."""
    data = make(DRAWS, duration=2.5, density=DENSITY, seed=1)
    demo = read_study(ROOT / "demo/furuta_study.yaml")
    paths = [path for path in demo.parameters if path in data.truth]  # without the encoder's offset, which is 0 here
    columns = {"time": "t", "inputs": {"drive": "u"}, "sensors": {"arm_encoder": "a", "pend_encoder": "b"}}
    noise = {"kind": "joints", "density": DENSITY, "estimate": False}
    parameters = {
        path: {"start": 1.1 * data.truth[path], "transform": demo.parameters[path].transform} for path in paths
    }
    study = Study.model_validate(
        {
            "spookax": 1,
            "scene": "none",
            "recordings": [{"name": "run", "file": "none.csv", **columns}],
            "parameters": parameters,
            "estimator": {"process_noise": noise, "friction_speed": [0.02, 0.002]},
        }
    )
    scene = read_scene(demo.scene_path)
    sensors = {k: v.model_copy(update={"offset": 0.0, "sd": data.sensor_sd}) for k, v in scene.sensors.items()}
    scene = scene.model_copy(update={"sensors": sensors})
    empty = Recording("run", Path("run"), data.time, {}, {}, {}, {}, "")
    stages, off, found_paths, converged = None, [], (), 0
    for u, readings in zip(data.u, data.readings, strict=True):
        seen = {"arm_encoder": readings[:, :1], "pend_encoder": readings[:, 1:]}
        setup = set_up(study, scene, [dataclasses.replace(empty, inputs={"drive": u}, sensors=seen)])
        stages = stages or setup.stages  # the same objects: nothing is compiled twice
        found = fit(setup.problem, stages, setup.start(), Settings())
        converged += bool(found.result == ESTIMATE_RESULTS.successful)
        value, sd = natural(setup, found)
        found_paths = setup.model.shared.paths
        off.append((value - np.array([data.truth[path] for path in found_paths])) / sd)
    held = 100 * np.mean(np.abs(np.array(off)) < NORMAL, axis=0)
    return [
        row("demo's machine", f"converged, of {DRAWS}", converged, "records"),
        row("demo's machine", "all parameters", float(np.mean(held)), "%"),
        *(row("demo's machine", path, float(share), "%") for path, share in zip(found_paths, held, strict=True)),
    ]
