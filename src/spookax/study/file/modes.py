"""The modes of a study: one scene with other numbers, between which the mechanism switches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg

from ..._compiled import on_device
from ..._typing import AnyArray, Float
from ...models import Multibody, ParameterMap
from ...system import locate
from .study import Mode, Recursive


def transition(settings: Recursive, h: float) -> Float[np.ndarray, "modes modes"]:
    """Probabilities of a mode (column) a step of length h [s] after a mode (row).

    A mode lasts for an exponentially distributed time, whose mean is its dwell time T_i, and then goes to each of the
    others alike: rates Q_ij = 1 / (T_i (n - 1)) and Q_ii = -1 / T_i, probabilities expm(Q h). Two steps of h / 2 make
    one of h.
    """
    assert settings.switching is not None
    given, names = settings.switching.dwell_time, list(settings.modes)
    rate = 1.0 / np.array([given[name] if isinstance(given, dict) else given for name in names])
    others = (1.0 - np.eye(len(names))) / (len(names) - 1)
    probability = np.maximum(scipy.linalg.expm(rate[:, None] * (others - np.eye(len(names))) * h), 0.0)
    return probability / probability.sum(axis=1, keepdims=True)  # to the last digit


def first_probability(settings: Recursive) -> Float[np.ndarray, " modes"]:
    """Probability of every mode before the first reading of a recording."""
    assert settings.switching is not None
    given, names = settings.switching.initial, list(settings.modes)
    if given is None:
        return np.full(len(names), 1.0 / len(names))
    probability = np.array([given[name] for name in names])
    return probability / probability.sum()


def described(settings: Recursive) -> dict[str, dict[str, Any]]:
    """Mode -> the numbers it sets, mean dwell time [s], probability before the first reading; for `tracking.json`."""
    if settings.switching is None:
        return {}
    dwell, initial = settings.switching.dwell_time, first_probability(settings)
    return {
        name: {
            "set": dict(mode.set),
            "dwell_time": dwell[name] if isinstance(dwell, dict) else dwell,
            "initial": float(probability),
        }
        for (name, mode), probability in zip(settings.modes.items(), initial, strict=True)
    }


def in_mode(model: Multibody, mode: Mode, held: AnyArray | None) -> Multibody:
    """The model in a mode.

    `held`: shared parameters (z) that are no states; the mode's numbers take the place of those, too, and the shared
    parameters of the model that is returned are none.
    """
    params, shared = model.params, model.shared
    if held is not None:
        params, shared = shared.apply(params, on_device(held)), ParameterMap(model.system, ())
    for path, value in mode.set.items():
        params = locate(model.system, path).set(params, on_device(value))
    return Multibody(model.system, params, shared, model.own, model.noise, model.sensors)


def changes(
    names: Sequence[str], time: np.ndarray, probability: Float[np.ndarray, "steps modes"], sure: float = 0.9
) -> list[dict[str, Any]]:
    """When a mode became surer than `sure` that is not the one before: `time` [s] and `mode`."""
    at = np.flatnonzero(probability.max(axis=1) > sure)
    mode = np.argmax(probability[at], axis=1)
    new = np.flatnonzero(np.diff(mode, prepend=-1))
    return [{"time": float(time[at[k]]), "mode": names[mode[k]]} for k in new]
