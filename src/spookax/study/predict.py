"""Open-loop prediction of a recording that an identification has not seen."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from ..estimation import Settings, Stage, blocks, fit
from ..models import Multibody
from ..protocol import Noise
from ..scene import Scene, read_scene
from .estimate import Estimate
from .model import RecordingSpec, Study
from .output import as_read, open_loop, predictions
from .recording import Recording
from .setup import Setup, set_up


def predict_open_loop(
    study: Study,
    estimate: Estimate,
    recording: Recording,
    spec: RecordingSpec,
    *,
    scene: Scene | None = None,
    fit_seconds: float = 0.3,
) -> dict[str, dict[str, float]]:
    """Simulate a recording from its first `fit_seconds` on and compare.

    The initial state and the offsets that `spec` frees are fitted on the first `fit_seconds` only, with the parameters
    and noise levels of the estimate; then the recorded inputs are simulated, without feedback. What the
    identification has compiled is used again.

    **Arguments:**

    - `study`, `scene`: those of the identification (the scene that the study names, unless it was another).
    - `spec`: what the columns of the recording mean; all samples count (`every` is for identification).

    **Returns:** sensor -> `rms` of the error [unit of the sensor] and `nrmse`, relative to the standard deviation of
    the measured signal.
    """
    scene = scene or read_scene(study.scene_path)
    alone = study.model_copy(update={"recordings": [spec.model_copy(update={"every": 1})]})
    whole = set_up(alone, scene, [recording])
    (samples,), (grid,) = whole.problem.samples, whole.grids
    # the readings of the first seconds, in as many steps as the identification's programs work on at a time
    here = recording.time <= recording.time[0] + fit_seconds
    first = dataclasses.replace(
        recording,
        time=recording.time[here],
        inputs={name: values[here] for name, values in recording.inputs.items()},
        sensors={name: values[here] for name, values in recording.sensors.items()},
    )
    begun = set_up(alone, scene, [first], least=blocks.spans(grid.steps)[0][1])
    z = estimate.checkpoint["z"]
    levels = Noise(jnp.asarray(estimate.checkpoint["process"]), jnp.asarray(_sensor_levels(estimate, begun)))
    stage = Stage(begun.stages[-1].model, levels)
    stages = (Stage(stage.model, begun.stages[0].noise), stage)
    held = dataclasses.replace(begun.problem, z0=z, prior=z, lower=z, upper=z)
    begun = dataclasses.replace(begun, problem=held, stages=stages)
    found = fit(held, stages, begun.start(), Settings(20, determinant=False))
    z = np.concatenate([z, found.iterate.own[0]])
    x0 = jax.tree.map(lambda a: np.asarray(a)[0], found.iterate.paths[0].x)
    model = whole.stages[-1].model
    assert isinstance(model, Multibody)
    path = open_loop(model, z, levels, x0, samples)
    simulated = predictions(model, z, path, samples)[grid.step_of, grid.slot_of]
    errors, column = {}, 0
    for sensor in whole.sensors:
        size = whole.system.sensors[whole.system.sensor_index(sensor)].size
        measured = recording.sensors[sensor]
        predicted = as_read(measured, simulated[:, column : column + size])
        rms = float(np.sqrt(np.nanmean((measured - predicted) ** 2)))
        errors[sensor] = {"rms": rms, "nrmse": rms / float(np.nanstd(measured))}
        column += size
    return errors


def _sensor_levels(estimate: Estimate, setup: Setup) -> np.ndarray:
    """Standard deviations of the channels as the estimate has them, else as given."""
    found, levels, column = estimate.content["noise"]["sensors"], [], 0
    for name in setup.sensors:
        size = setup.system.sensors[setup.system.sensor_index(name)].size
        levels += found.get(name, setup.sensor_sd[column : column + size])
        column += size
    return np.array(levels)
