"""Open-loop prediction of a recording that an identification has not seen."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from ..estimation import Settings, fit
from ..scene import Scene
from .model import RecordingSpec, Study
from .output import open_loop, predictions
from .recording import Recording
from .setup import set_up


def predict_open_loop(
    scene: Scene, recording: Recording, spec: RecordingSpec, fit_seconds: float = 0.3
) -> dict[str, dict[str, float]]:
    """Simulate a recording from its first `fit_seconds` on and compare.

    The initial state and the offsets that `spec` frees are fitted on the first `fit_seconds` only, with every
    parameter of the scene as it is; then the scene is simulated with the recorded inputs, without feedback.

    **Returns:** sensor -> `rms` of the error [unit of the sensor] and `nrmse`, relative to the standard deviation of
    the measured signal.
    """
    start = recording.time <= recording.time[0] + fit_seconds
    short = dataclasses.replace(
        recording,
        time=recording.time[start],
        inputs={k: v[start] for k, v in recording.inputs.items()},
        sensors={k: v[start] for k, v in recording.sensors.items()},
    )
    study = Study.model_validate(
        {
            "spookax": 1,
            "scene": "scene",
            "recordings": [spec.model_dump(exclude_none=True, exclude={"start", "stop", "every"})],
            "parameters": {"gravity.z": {"start": scene.gravity[2], "prior_sd": 1e-9, "transform": "identity"}},
            "estimator": {"friction_speed": [max(scene.regularisation.v_creep, 1e-3)]},
        }
    )
    setup = set_up(study, scene, [short])
    stage = setup.stages[-1]
    found = fit(setup.problem, [stage], setup.start(), Settings(20, determinant=False))
    whole = set_up(study, scene, [recording])
    z = jnp.concatenate([found.iterate.z, found.iterate.own[0]])
    x0 = jax.tree.map(lambda a: a[0], found.iterate.paths[0].x)
    model = whole.model
    path = open_loop(model, z, stage.noise, x0, whole.problem.samples[0])
    grid = whole.grids[0]
    simulated = np.asarray(predictions(model, z, path, whole.problem.samples[0]))[grid.step_of, grid.slot_of]
    errors, column = {}, 0
    for sensor in whole.sensors:
        size = whole.system.sensors[whole.system.sensor_index(sensor)].size
        measured = recording.sensors[sensor]
        rms = float(np.sqrt(np.nanmean((measured - simulated[:, column : column + size]) ** 2)))
        errors[sensor] = {"rms": rms, "nrmse": rms / float(np.nanstd(measured))}
        column += size
    return errors
