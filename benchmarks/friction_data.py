"""Recordings of a mass with Stribeck friction: the published example, a second version of it, and one that sticks.

**Source:** "Learning Friction Dynamics with Neural Networks", an example of LowLevelParticleFilters.jl, before and
after its friction was changed from a step to a drift. Numbers and order of events as its text has them: 2001 inputs
of 0.1 s applied twice, sample i at time 0.1 i with i from 1, noise of 0.01 on position and velocity.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

STEP = 0.1  # [s]
HALF = 2001  # samples of the inputs, which are applied twice
MIDDLE = 1999  # index of the sample that the source calls t = 200
SENSOR = 0.01  # standard deviation of both readings [m, m/s]
FINE = 200  # steps of the fine truth in one of the recording

GRID = (np.arange(200) + 0.5) / 100  # speeds 0.005 ... 1.995 on which friction curves are compared [m/s]


class FrictionData(NamedTuple):
    """One recording and the truth behind it."""

    u: np.ndarray  # (4002,) [N]
    y: np.ndarray  # (4002, 2) position and velocity as read
    x: np.ndarray  # (4002, 2) as they were
    middle: float  # factor on the friction at t = 200
    end: float  # and at the end


def stribeck(v: np.ndarray) -> np.ndarray:
    """True friction of a speed > 0. [N]"""
    return 1.0 + np.exp(-np.abs(v) / 0.1) + 0.5 * np.abs(v)


def inputs(rng: np.random.Generator) -> np.ndarray:
    """Slow oscillation, square wave, random force, chirp: applied twice. [N]"""
    i = np.arange(1, HALF + 1)
    t, quarter = (i - 1) * STEP, HALF // 4
    chirp = 0.05 + 0.2 * (i - 3 * HALF // 4) / quarter
    parts = [3.0 * np.cos(0.1 * t), 5.0 * np.sign(np.sin(0.5 * t)), 2.0 * rng.normal(size=HALF)]
    kind = np.select([i < quarter, i < HALF // 2, i < 3 * HALF // 4], [0, 1, 2], 3)
    u = np.choose(kind, [*parts, 4.0 * np.sin(2 * np.pi * chirp * t)])
    return np.concatenate([u, u])


def step_change(t: float) -> float:
    """The published version: friction 1.3 times as large after t = 200."""
    return 1.3 if t > 200 else 1.0


def linear_drift(t: float) -> float:
    """The later version: friction grows evenly, by 30 % in 400 s."""
    return 1.0 + 0.3 * t / 400


def _chattering(x: tuple[float, float], u: float, factor: float) -> tuple[float, float]:
    """One Runge-Kutta step of 0.1 s across whatever sign the velocity has: the source's truth."""

    def rate(v: float) -> tuple[float, float]:
        if abs(v) < 1e-6:
            return v, u
        return v, u - factor * (math.copysign(1.0, v) * (1.0 + math.exp(-abs(v) / 0.1)) + 0.5 * v)

    h, (q, v) = STEP, x
    k1 = rate(v)
    k2 = rate(v + h / 2 * k1[1])
    k3 = rate(v + h / 2 * k2[1])
    k4 = rate(v + h * k3[1])
    return q + h / 6 * (k1[0] + 2 * k2[0] + 2 * k3[0] + k4[0]), v + h / 6 * (k1[1] + 2 * k2[1] + 2 * k3[1] + k4[1])


def _sticking(x: tuple[float, float], u: float, factor: float) -> tuple[float, float]:
    """Two hundred steps of 0.5 ms, backward Euler: v is zero as long as the force does not exceed static friction."""
    h, (q, v) = STEP / FINE, x
    for _ in range(FINE):
        push = v + h * u
        if abs(push) <= h * factor * 2.0:
            v = 0.0
            if abs(u) <= factor * 2.0:  # nothing happens until the force changes
                return q, 0.0
            continue
        speed = abs(v)
        for _ in range(3):  # of a contraction by h * 10 = 5e-3
            speed = abs(push) - h * factor * (1.0 + math.exp(-speed / 0.1) + 0.5 * speed)
        v = speed if push > 0 else -speed
        q += h * v
    return q, v


VERSIONS: dict[str, tuple[Callable[..., tuple[float, float]], Callable[[float], float]]] = {
    "step": (_chattering, step_change),
    "drift": (_chattering, linear_drift),
    "fine": (_sticking, step_change),
}


def friction_data(seed: int, version: str = "step") -> FrictionData:
    """A recording: `step` and `drift` as published, `fine` the first with a truth that sticks."""
    step, change = VERSIONS[version]
    rng = np.random.default_rng(seed)
    u = inputs(rng)
    x, states = (0.0, 0.0), []
    for i, force in enumerate(u, start=1):
        states.append(x)
        x = step(x, float(force), change(i * STEP))
    truth = np.array(states, dtype=float)
    y = truth + SENSOR * rng.normal(size=truth.shape)
    return FrictionData(u, y, truth, change((MIDDLE + 1) * STEP), change(len(u) * STEP))


def curve_error(learned: np.ndarray, factor: float, speeds: np.ndarray = GRID, above: float = 0.0) -> float:
    """RMS difference of a friction curve at some speeds from `factor` times the truth, at speeds above a limit. [N]"""
    here = above < speeds
    return float(np.sqrt(np.mean((learned - factor * stribeck(speeds))[here] ** 2)))
