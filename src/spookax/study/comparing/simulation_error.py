"""Least squares of the simulation error of a study's recordings, by single and by multiple shooting."""

from collections.abc import Sequence

import numpy as np

from ...estimation.batch.shooting import Shot, segmented, shoot, shots
from ...models import Multibody
from ...scene import Scene
from ..file.study import Study
from ..recordings.recording import Recording
from ..running.setup import Setup, set_up


def simulation_error(
    study: Study, scene: Scene, recordings: Sequence[Recording], other: np.ndarray | None = None
) -> np.ndarray | None:
    """Parameters by least squares of the simulation error, in the coordinates of the search; single shooting.

    `other`: where to begin beside the study's starts; the better end counts. None if no simulation near there stays
    finite. The last trial is taken, settled or not.
    """
    setup = set_up(study, scene, list(recordings))
    found = shot(setup, None, [z for z in (setup.problem.z0, other) if z is not None])
    return found.z if np.isfinite(found.cost) else None


def shot(setup: Setup, segment: float | None, starts: Sequence[np.ndarray]) -> Shot:
    """Shooting from some starts in the coordinates of the search, the best end. `segment`: length of the segments of
    multiple shooting; None for one segment a recording. [s]
    """
    stage, p = setup.stages[-1], setup.problem
    assert isinstance(stage.model, Multibody)
    length = None if segment is None else max(round(segment / float(setup.scene.step)), 1)
    pieces = segmented(p.samples, [path.x for path, _ in setup.plans()], length)
    z = np.clip(starts[0], p.lower, p.upper)
    prior, bounds = (p.prior, p.weight), (p.lower, p.upper)
    return shoot(shots(stage.model, stage.noise, pieces, z, prior, bounds, p.own_weight), starts)
