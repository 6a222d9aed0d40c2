"""Write the recordings of the tutorial: `python scripts/reference/make_motor.py`. Nothing here imports `spookax`.

A geared motor turns an arm with a weight in the vertical plane; the arm hangs at angle 0:

    J q'' = K u - d q' - D |q'| q' - m g l sin q + f,    f = -F sign(q') in motion, any |f| <= F at rest

J has the rotor's inertia through the gear in it and d the back-EMF. The motion is integrated by the classical
Runge-Kutta method at `STEP`; a rate that changes sign becomes exactly zero, and the arm stays while the other torques
are within F. The encoder's zero is off (`OFFSET`), it is read with noise and in whole counts; the log has degrees and
milliseconds, as logs do. What the scene of the tutorial does not know are `K`, `d`, `F`, `ROTOR` and `OFFSET`; `D` is a
little air drag that the tutorial's model does not have.
"""

import argparse
import math
from pathlib import Path

import numpy as np

MASS, COM, ABOUT_COM = 0.35, 0.19, 2.0e-3  # bar and weight together: [kg], [m] from the shaft, [kg m^2]
ROTOR = 4.6e-3  # [kg m^2]
K, d, F, D = 0.083, 0.127, 0.115, 1.5e-3  # [N m/V], [N m s/rad], [N m], [N m s^2/rad^2]
OFFSET = 0.055  # [rad]
INERTIA = ABOUT_COM + MASS * COM**2 + ROTOR
NOISE, COUNT = 8e-4, 2 * math.pi / 4096  # [rad]
SAMPLE, STEP = 5e-3, 5e-5  # [s]
DURATIONS, SEEDS = {"train": 10.0, "test": 6.0}, {"train": 3, "test": 4}
OUT = Path(__file__).parents[2] / "demo/motor"


def voltage(name: str) -> np.ndarray:
    """What the amplifier is told, one number a sample [V]: slow and fast sines, then steps; or steps that hold."""
    rng = np.random.default_rng(SEEDS[name])
    t = np.arange(0, DURATIONS[name] + SAMPLE / 2, SAMPLE)
    if name == "test":
        return np.round(np.repeat(rng.uniform(-10, 10, t.size // 150 + 1), 150)[: t.size], 2)
    slow = 7.5 * np.sin(2 * np.pi * 0.25 * t)
    fast = 5.0 * np.sin(2 * np.pi * 1.1 * t) + 3.0 * np.sin(2 * np.pi * 2.3 * t + 1.0)
    steps = np.repeat(rng.uniform(-9, 9, t.size // 100 + 1), 100)[: t.size]
    return np.round(np.where(t < 4, slow, np.where(t < 7, fast, steps)), 2)


def acceleration(q: float, v: float, u: float, way: float) -> float:
    """Of the arm while it slides the given way [rad/s^2]."""
    return (K * u - d * v - D * abs(v) * v - MASS * 9.81 * COM * math.sin(q) - F * way) / INERTIA


def advance(q: float, v: float, u: float) -> tuple[float, float]:
    """Angle and rate a `STEP` later."""
    push = K * u - MASS * 9.81 * COM * math.sin(q)
    if v == 0.0 and abs(push) <= F:
        return q, 0.0
    way = math.copysign(1.0, v if v != 0.0 else push)
    h = STEP
    a1 = acceleration(q, v, u, way)
    v2, v3 = v + h / 2 * a1, 0.0
    a2 = acceleration(q + h / 2 * v, v2, u, way)
    v3 = v + h / 2 * a2
    a3 = acceleration(q + h / 2 * v2, v3, u, way)
    v4 = v + h * a3
    a4 = acceleration(q + h * v3, v4, u, way)
    q1, v1 = q + h / 6 * (v + 2 * v2 + 2 * v3 + v4), v + h / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
    return (q + v * v / (v - v1) * h / 2, 0.0) if v * v1 < 0 else (q1, v1)


def angles(u: np.ndarray) -> np.ndarray:
    """True angles at the samples [rad]; the arm begins at rest, hanging."""
    q, v, found = 0.0, 0.0, []
    for volts in u:
        found.append(q)
        for _ in range(round(SAMPLE / STEP)):
            q, v = advance(q, v, float(volts))
    return np.array(found)


def recording(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Input [V] and what the encoder reads [rad] of "train" or "test"."""
    u = voltage(name)
    noisy = angles(u) + OFFSET + np.random.default_rng([SEEDS[name], 1]).normal(0.0, NOISE, u.size)
    return u, COUNT * np.round(noisy / COUNT)


def main() -> None:
    """Write train.csv and test.csv."""
    parser = argparse.ArgumentParser(description="Write the recordings of the tutorial.")
    parser.add_argument("--out", type=Path, default=OUT, help="folder to write to")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    for name in DURATIONS:
        u, read = recording(name)
        lines = [
            f"{1e3 * SAMPLE * k:.0f},{volts:.2f},{math.degrees(angle):.2f}\n"
            for k, (volts, angle) in enumerate(zip(u, read, strict=True))
        ]
        (folder / f"{name}.csv").write_text("t [ms],u [V],angle [deg]\n" + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
