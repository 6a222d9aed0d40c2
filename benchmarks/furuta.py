"""The real Furuta pendulum: each driven recording predicted open loop from what the others say about the rig."""

import dataclasses
import json
from typing import Any

import spookax as sx
from spookax.study.file.against_scene import sensor_dimensions
from spookax.study.identifying.predict import predict_open_loop
from spookax.study.recordings.recording import Recording

from .measure import OUT, ROOT, Row, row

STUDY = ROOT / "studies/furuta_odrive.yaml"
LIMITS = {  # NRMSE of arm and pendulum that were set as goals
    "sin_1V": (0.25, 0.27),
    "sin_4V": (0.03, 0.14),
    "step_0p97V_2023": (0.10, 0.42),
    "step_2V": (0.05, 0.60),
    "step_4V": (0.03, None),
}
OTHERS = "drive"  # the motor that all recordings but one command
SECONDS = 12.0  # of the prediction; its start is fitted on the first 0.3


def run() -> list[Row]:
    """RMS error over the standard deviation of the measured angle, for every recording left out."""
    study = sx.load_study(STUDY)
    scene = sx.read_scene(study.scene_path)
    recordings = sx.read_recordings(study, sensor_dimensions(scene))
    rows, numbers = [], {}
    for i, (spec, left_out) in enumerate(zip(study.recordings, recordings, strict=True)):
        rest = [*recordings[:i], *recordings[i + 1 :]]
        specs = [*study.recordings[:i], *study.recordings[i + 1 :]]
        known = study.model_copy(update={"recordings": specs})
        if OTHERS not in left_out.inputs:  # the gain that it alone tells of is taken for that of the others
            known = known.model_copy(update={"parameters": without(known.parameters, *left_out.inputs)})
            spec = spec.model_copy(update={"inputs": {OTHERS: "u"}})
            left_out = dataclasses.replace(left_out, inputs={OTHERS: next(iter(left_out.inputs.values()))})
        found = sx.identify(known, recordings=rest, scene=scene)
        numbers[left_out.name] = {"status": found.status, **found.to_json()}
        errors = predict_open_loop(known, found, _start(left_out), spec, scene=scene)
        for (sensor, error), limit in zip(errors.items(), LIMITS[left_out.name], strict=True):
            against = {} if limit is None else {"over": limit, "to": f"limit {limit}"}
            rows.append(row(f"without {left_out.name}", f"{sensor}, NRMSE", error["nrmse"], "", **against))
            print(rows[-1], flush=True)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "furuta_estimates.json").write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
    return rows


def without(parameters: dict[str, Any], motor: str) -> dict[str, Any]:
    """The study's parameters but for those of a motor."""
    return {path: spec for path, spec in parameters.items() if not path.startswith(f"motors.{motor}.")}


def _start(recording: Recording) -> Recording:
    """The first seconds of a recording."""
    here = recording.time <= recording.time[0] + SECONDS
    return dataclasses.replace(
        recording,
        time=recording.time[here],
        inputs={name: values[here] for name, values in recording.inputs.items()},
        sensors={name: values[here] for name, values in recording.sensors.items()},
    )
