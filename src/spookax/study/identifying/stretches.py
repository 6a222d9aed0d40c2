"""Recordings that nobody can foretell to their end, as of unstable and chaotic motions: predicted stretch by stretch.

A motion that feedback has kept from falling leaves every simulation of it after a while, the best one too: its error
over the whole recording says nothing of a model. So such a recording is predicted as well in stretches, each of which
begins with readings that tell its state and goes on as long as the estimate's posterior can tell it.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...scene import Scene
from ..file.study import RecordingSpec, Study
from ..judging.bands import foretold
from ..recordings.recording import Recording
from .estimate import Estimate
from .predict import Identified, Prediction, errors, predict_recording

_MOST = 12  # of a recording; more of them lie apart
_OF_FORETOLD = 0.5  # where a stretch begins less is known of the state than where the recording does
_OF_HEAD = 2.0  # at least: as much is simulated as is read


def in_stretches(
    study: Study, estimate: Estimate, prediction: Prediction, spec: RecordingSpec, *, scene: Scene | None = None
) -> dict[str, Any] | None:
    """How well a recording is met in stretches; None where its `prediction` is foretold to the end, or nothing tells.

    **Returns:** `foretold`: until when after its start a simulation from the posterior tells the sensor that it tells
    least [s]; `seconds` of a stretch; their `count`; of `signals`, by sensor, the `errors` over all stretches, without
    the readings that told the states.
    """
    recording, head = prediction.recording, prediction.head
    noise = {name: np.array(level) for name, level in estimate.content["noise"].get("assumed", {}).items()}
    told = [
        foretold(recording.time, recording.sensors[name], sd, noise.get(name, 0.0))
        for name, sd in prediction.sd.items()
    ]
    least = min((time for time in told if time is not None), default=None)
    begin, end = float(recording.time[0]), float(recording.time[-1])
    if least is None or (seconds := max(_OF_FORETOLD * least, _OF_HEAD * head)) >= end - begin:
        return None
    firsts = np.linspace(begin, end - seconds, min(_MOST, int((end - begin) / seconds)))
    parts = [recording.part((recording.time >= first) & (recording.time <= first + seconds)) for first in firsts]
    if not (parts := [part for part in parts if _tells(part, head)]):
        return None
    # what the study says of the start is said of the recording's
    spec, found = spec.model_copy(update={"initial": {}}), Identified.by(estimate)
    found = dataclasses.replace(found, posterior=None)  # no bands
    measured: dict[str, list[np.ndarray]] = {name: [] for name in prediction.simulated}
    simulated: dict[str, list[np.ndarray]] = {name: [] for name in prediction.simulated}
    for part in parts:
        one = predict_recording(study, found, part, spec, scene=scene, fit_seconds=head)
        late = one.clean.time > one.clean.time[0] + head
        for name, readings in one.simulated.items():
            measured[name].append(one.clean.sensors[name][late])
            simulated[name].append(readings[late])
    signals = {name: errors(*(np.concatenate(a[name]) for a in (measured, simulated))) for name in measured}
    return {"foretold": least, "seconds": seconds, "count": len(parts), "signals": signals}


def _tells(part: Recording, head: float) -> bool:
    """Whether its first readings, of all sensors, tell where a stretch starts, and others follow."""
    if not part.time.size or part.time[-1] - part.time[0] <= head:  # a gap
        return False
    early = part.time <= part.time[0] + head
    return all(np.isfinite(readings[early]).any() for readings in part.sensors.values())


def validate(
    study: Study, estimate: Estimate, scene: Scene, recordings: Sequence[Recording]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The recordings under `validate` in a study as its estimate predicts them: the `validation` of estimate.json, and
    arrays of states.npz.
    """
    content, states = {}, {}
    for recording, spec in zip(recordings, study.validation, strict=True):
        prediction = predict_recording(study, estimate, recording, spec, scene=scene)
        stretches = in_stretches(study, estimate, prediction, spec, scene=scene)
        content[recording.name] = prediction.content() | {"stretches": stretches}
        states |= prediction.states()
    return content, states
