"""The networks that solve the Kalman-Bucy equations, for the recordings of a study: one pair of networks for each, with
the unknowns in common.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np

from ...models import JointMotion, Multibody, ParameterMap
from ..judging.output import axis_readings
from ..running.setup import Setup

_FOLLOWED = 0.02  # of the spread of a reading: what networks of time follow at best
_BATCH = 150  # samples of all recordings in an iteration
_LEAST_BATCH = 25
_WAVES = 16, 64  # frequencies, at least and at most
_POWER = 0.999  # share of a reading's power below the quickest frequency
_WEIGHTS = (1.0, 0.1, 10.0)  # of the losses, as for the source's double pendulum (benchmarks/kalman_bucy.py)
_JUMP = 0.5  # of its range, which an input that jumps moves by between two stamps
_FIRST = 0.1  # standard deviation of the first state, in its spread


def by_networks(setup: Setup, iterations: int, report: Callable[[str], None] | None = None) -> tuple[np.ndarray, str]:
    """Parameters in the coordinates of the search, and why the training ended.

    Offsets that recordings have of their own stay zero, priors and bounds count for nothing until the end.

    **Raises:** `ModelError` for a scene without a drift in continuous time; `ImportError` without the extra
    `continuous`.
    """
    import optax  # noqa: F401 (where the extra is missing it fails before anything is computed)

    from ...estimation.continuous import Belief, KalmanBucyLoss, Readings, Schedule, networks, train

    model, levels, p = setup.stages[-1].model, setup.stages[-1].noise, setup.problem
    assert isinstance(model, Multibody)
    motion = JointMotion(eqx.tree_at(lambda m: m.own, model, ParameterMap(setup.system, ())))
    z, own = np.clip(p.z0, p.lower, p.upper), np.zeros(model.own.size)
    time, y, u = _stamps(setup)
    states = [np.concatenate(axis_readings(model, np.append(z, own), path.x)[:2], axis=1) for path, _ in setup.plans()]
    shift, scale = (np.stack([call(x, axis=0) for x in states]) for call in (np.mean, np.std))
    scale = np.maximum(scale, 1e-3 * np.max(scale))
    spread = np.nanstd(np.concatenate(list(y)), axis=0)
    sd = np.maximum(np.asarray(levels.sensor), _FOLLOWED * np.where(np.isfinite(spread), spread, 0.0))
    first = np.diag((_FIRST * scale.mean(axis=0)) ** 2)
    belief = Belief(np.zeros(motion.tangent_size), first, sd, sd, np.asarray(levels.process))
    given = Readings(time, y, u)
    quickest = _quickest(time[0], y[0])
    length = float(np.max(time[:, -1] - time[:, 0]))
    waves = int(np.clip(np.ceil(quickest * length / np.pi), *_WAVES))
    starts = np.tile(z, (len(time), 1))
    nets = networks(motion, given, belief, starts, shift, scale, waves=waves, quickest=quickest)
    schedule = Schedule(steps=iterations, batch=max(_BATCH // len(time), _LEAST_BATCH), data_first=iterations // 6)

    def said(at: Any) -> None:
        if report:
            report(f"network, iteration {at.step} of {iterations}, loss {np.mean(at.loss):.4g}")

    found = train(nets, KalmanBucyLoss(_WEIGHTS, 0.0), motion, given, belief, schedule, shared=True, report=said)
    if found.ended == "interrupted":
        raise KeyboardInterrupt
    return np.clip(np.asarray(found.nets.z)[0], p.lower, p.upper), found.ended


def jumping(setup: Setup) -> list[str]:
    """Motors whose inputs jump. Networks are smooth functions of time: they round what a jump does to the motion, and
    the parameters pay for it.
    """
    return [
        m.name for m in setup.system.motors if any(jumps(r.inputs[m.name]) for r in setup.clean if m.name in r.inputs)
    ]


def jumps(u: np.ndarray) -> bool:
    """Whether numbers in a row change by a large part of their range at once."""
    return len(u) > 2 and float(np.max(np.abs(np.diff(u)))) > _JUMP * float(np.ptp(u))


def _stamps(setup: Setup) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Time, readings and inputs of all recordings, each filled up with its last stamp, where nothing is read."""
    motors = [m.name for m in setup.system.motors]
    longest = max(len(r.time) for r in setup.clean)
    found = []
    for r in setup.clean:
        y = np.concatenate([r.sensors[name] for name in setup.sensors], axis=1)
        u = np.stack([r.inputs[name] if name in r.inputs else np.zeros(len(r.time)) for name in motors], axis=-1)
        more = longest - len(r.time)
        rows = (np.pad(r.time - r.time[0], (0, more), mode="edge"), np.pad(u, ((0, more), (0, 0)), mode="edge"))
        found.append((rows[0], np.pad(y, ((0, more), (0, 0)), constant_values=np.nan), rows[1]))
    time, y, u = (np.stack(part) for part in zip(*found, strict=True))
    return time, y, u


def _quickest(time: np.ndarray, y: np.ndarray) -> float:
    """Frequency below which most of the power of the readings of a recording lies. [rad/s]"""
    even = np.linspace(time[0], np.max(time), len(time))
    power = np.zeros(len(even) // 2 + 1)
    for column in y.T:
        there = np.isfinite(column)
        if there.sum() > 3:
            held = np.interp(even, time[there], column[there])
            power += np.abs(np.fft.rfft((held - held.mean()) * np.hanning(len(even)))) ** 2 / (np.var(held) or 1.0)
    share = np.cumsum(power) / (np.sum(power) or 1.0)
    cycle = 2 * np.pi / (even[-1] - even[0])
    return float(cycle * max(np.searchsorted(share, _POWER), 4))
