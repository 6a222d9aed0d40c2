"""Synthetic recordings of a pendulum on a torque motor whose truth is known, integrated 200 times finer than sampled.

The integrator is not the package's: leap-frog in the angle with forces at half steps, and of dry friction the exact
proximal step, so that a joint sticks. All records of a case are integrated at once.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

H, SAMPLES, FINER = 5e-3, 1024, 200  # of the readings [s], and integration steps between two of them
SD = 1e-3  # of the encoder [rad]
MASS, COM, INERTIA, G = 1.0, 0.3, 0.02, 9.81

Vector = np.ndarray  # one number for each record


@dataclasses.dataclass(frozen=True)
class Truth:
    """Numbers of the pendulum: friction [N m s, N m, N m s^2], offset of its encoder and tilt of its base [rad]."""

    viscous: float = 0.05
    coulomb: float = 0.03
    drag: float = 0.0
    offset: float = 0.02
    tilt: float = 0.0

    def numbers(self) -> dict[str, float]:
        """By path in the scene."""
        return {
            "bodies.bob.inertia.xx": INERTIA,
            "bodies.bob.com.z": -COM,
            "joints.pin.friction.viscous": self.viscous,
            "joints.pin.friction.coulomb": self.coulomb,
            "sensors.angle.offset": self.offset,
            "motors.drive.gain": 1.0,
            "tilt.x": self.tilt,
        }


Control = Callable[[int, Vector, Vector], Vector]  # sample, readings, those before -> torques [N m]


def records(
    truth: Truth, angle: Vector, rate: Vector, control: Control, rng: np.random.Generator
) -> tuple[Vector, Vector]:
    """Torques (held from sample to sample) and readings of the encoder, (samples, records)."""
    h, inertia = H / FINER, INERTIA + MASS * COM**2
    torque, reading = np.zeros((SAMPLES, len(angle))), np.zeros((SAMPLES, len(angle)))
    noise = SD * rng.standard_normal(torque.shape)
    q, v = angle.copy(), rate.copy()
    for k in range(SAMPLES):
        reading[k] = q + truth.offset + noise[k]
        torque[k] = control(k, reading[k], reading[max(k - 1, 0)])
        for _ in range(FINER):
            q = q + h / 2 * v
            # gravity, turned the other way by a tilt about the pin's axis, sees the angle to the vertical
            force = torque[k] - MASS * G * COM * np.sin(q + truth.tilt) - truth.drag * np.abs(v) * v
            v = (v + h * force / inertia) / (1 + h * truth.viscous / inertia)
            v = np.sign(v) * np.maximum(np.abs(v) - h * truth.coulomb / inertia, 0.0)
            q = q + h / 2 * v
    return torque, reading


def excitation(count: int, rng: np.random.Generator, size: float) -> Control:
    """A chirp and steps, both at random; `size` of the steps [N m]."""
    t = H * np.arange(SAMPLES)[:, None]
    steps = np.repeat(rng.uniform(-size, size, (SAMPLES // 64, count)), 64, axis=0)
    f, phase = rng.uniform(0.4, 0.8, count), rng.uniform(0, 6, count)
    u = steps + rng.uniform(size, 1.5 * size, count) * np.sin(2 * np.pi * (f + 0.12 * t) * t + phase)
    return lambda k, _, __: u[k]


def balance(count: int, rng: np.random.Generator) -> Control:
    """Holds the pendulum upright by the angle and a filtered difference, with dither of random signs."""
    dither = 0.4 * np.repeat(rng.choice([-1.0, 1.0], (SAMPLES // 16, count)), 16, axis=0)
    rate = np.zeros(count)

    def control(k: int, now: Vector, before: Vector) -> Vector:
        rate[:] = 0.8 * rate + 0.2 * (now - before) / H
        return -8.0 * (now - np.pi) - 1.2 * rate + dither[k]

    return control


def released(k: int, now: Vector, before: Vector) -> Vector:
    """No torque."""
    del k, before
    return np.zeros_like(now)
