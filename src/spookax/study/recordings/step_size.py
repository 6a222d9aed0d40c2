"""The time step of a study whose scene names none: from how fast bodies turn in its recordings."""

import math
from collections.abc import Sequence

from spookax.scene.model import Scene
from spookax.study.file.study import Study
from spookax.study.recordings.doubts import fastest_turn
from spookax.study.recordings.recording import Recording

_TURN = 0.025  # in a step, of the fastest body [rad]
_SHORTEST = 5e-4  # [s]
_ROUNDING = 1e-9


def chosen_step(study: Study, scene: Scene, recordings: Sequence[Recording]) -> float:
    """The time step h with which a study computes [s].

    Its own, or that of its scene. Where neither names one, the scene's default, or less, so that the fastest body turns
    by 0.025 rad in a step, as recorded: errors of trajectories and of what is identified from them are of first order
    in h. At least 0.5 ms, of the series 1, 2, 5.
    """
    if study.estimator.step is not None or "step" in scene.model_fields_set:
        return study.estimator.step or scene.step
    wild = study.estimator.outliers or 0.0
    rate = max((fastest_turn(scene, r, wild, 2 * scene.step) for r in recordings), default=0.0)
    most = scene.step if rate == 0 else min(scene.step, max(_SHORTEST, _TURN / rate))
    power = 10.0 ** math.floor(math.log10(most) + _ROUNDING)
    return next(float(f"{part * power:.3g}") for part in (5, 2, 1) if part * power <= most * (1 + _ROUNDING))
