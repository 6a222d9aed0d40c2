"""Write the demo's recordings and their truth: `python scripts/reference/make_demo.py`.

The machine is `TRUTH`, integrated by `furuta.py` at 10 µs, far from the step and the method of `spookax`.
Both encoders add Gaussian noise and then round to whole counts; the pendulum's has a zero offset. Nothing
else is added.

`train.csv` is designed so that all thirteen unknowns show. It begins with slow motion in which the arm
sticks and slides against its cable (dry friction, cable, tilt, zero offset) and goes on with faster
motion through the pendulum's resonance (inertias, viscous friction, gain). `--information` prints how
well each could be known from it at best: the Cramér-Rao bound without process noise, the initial state
unknown, from central differences of the simulated recording.
"""

import argparse
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from furuta import SCENE_PATHS, Furuta, simulate

TRUTH = Furuta(
    arm_inertia=1.5e-3,
    arm_length=0.12,
    mass=0.1,
    com=0.08,
    swing_inertia=6.0e-4,
    transverse_inertia=4.2e-4,
    axial_inertia=3.0e-4,
    arm_viscous=5.0e-4,
    pendulum_viscous=1.5e-4,
    arm_coulomb=7.5e-3,
    pendulum_coulomb=2.0e-4,
    gain=0.02,
    tilt_x=0.05,
    tilt_y=-0.07,
    stiffness=3.0e-3,
    rest=0.5,
)
OFFSET = 0.03  # of the pendulum's encoder [rad]
START = (0.0, 0.0, 0.0, 0.0)  # φ, α [rad] and rates [rad/s]; the pendulum is let go near its equilibrium
SENSOR_SD = 1.0e-3  # [rad]
QUANTUM = 2 * math.pi / 8192  # one count of an encoder [rad]
SAMPLE_TIME = 5e-3  # [s]
SAMPLES = 2001
TIME = SAMPLE_TIME * np.arange(SAMPLES)
STEP = 1e-5  # [s]
SEEDS = {"train": 20, "test": 21}

DEMO = Path(__file__).parents[2] / "demo"


def _blend(x: np.ndarray) -> np.ndarray:
    x = np.clip(x, 0, 1)
    return x * x * (3 - 2 * x)


def training_input() -> np.ndarray:
    """Slow sines until 4 s, then faster sines and steps; random phases and levels. [V], shape (n,)"""
    rng = np.random.default_rng(SEEDS["train"])
    t = TIME

    def sines(amplitude, frequencies):
        phases = rng.uniform(0, 2 * np.pi, len(frequencies))
        waves = [np.sin(2 * np.pi * f * t + phase) for f, phase in zip(frequencies, phases, strict=True)]
        return amplitude * np.sum(waves, axis=0)

    slow = sines(0.742, (0.1, 0.165)) * _blend(t / 0.3)
    fast = sines(0.722, (0.45, 0.73, 1.0))
    steps = np.repeat(rng.uniform(-0.7, 0.7, SAMPLES // 120 + 1), 120)[:SAMPLES]
    to_fast = _blend((t - 4) / 0.5)
    return np.round((1 - to_fast) * slow + to_fast * (fast + steps), 4)


def validation_input() -> np.ndarray:
    """A chirp from 0.15 to 1.2 Hz until 6 s, then steps of 0.5 s. [V], shape (n,)"""
    rng = np.random.default_rng(SEEDS["test"])
    t = TIME
    chirp = 1.5 * np.sin(2 * np.pi * (0.15 * t + (1.2 - 0.15) * t**2 / 12))
    steps = np.repeat(rng.uniform(-1.5, 1.5, SAMPLES // 100 + 1), 100)[:SAMPLES]
    return np.round(np.where(t < 6, chirp, steps), 4)


def measure(angles: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Both encoders' readings of true angles (n, 2): offset, Gaussian noise, whole counts. [rad]"""
    noisy = angles + np.array([0.0, OFFSET]) + rng.normal(0.0, SENSOR_SD, angles.shape)
    return QUANTUM * np.round(noisy / QUANTUM)


def recording(name: str, step: float = STEP) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Input (n,) [V], readings (n, 2) [rad] and true angles (n, 2) [rad] of "train" or "test"."""
    u = {"train": training_input, "test": validation_input}[name]()
    angles = np.asarray(simulate(TRUTH, u, start=START, sample_time=SAMPLE_TIME, step=step)[0])
    return u, measure(angles, np.random.default_rng([SEEDS[name], 1])), angles


def parameters() -> dict[str, float]:
    """The thirteen unknowns by their path in the scene file."""
    values = {path: float(getattr(TRUTH, field)) for path, field in SCENE_PATHS.items()}
    return values | {"sensors.pend_encoder.offset": OFFSET}


def information(u: np.ndarray, step: float = 5e-5) -> dict[str, float]:
    """Smallest possible standard deviation of each unknown, in its unit, from a recording with input `u`."""
    point = np.array([*TRUTH, *START], float)
    first_state = len(TRUTH)
    unknown = [Furuta._fields.index(field) for field in SCENE_PATHS.values()]
    index = np.array(unknown + list(range(first_state, len(point))))
    delta = np.where(index < first_state, 1e-4 * np.abs(point[index]), 1e-5)
    step_out = delta[:, None] * np.eye(len(point))[index]

    def run(x):
        machine, start = Furuta(*x[:first_state]), x[first_state:]
        return simulate(machine, u, start=start, sample_time=SAMPLE_TIME, step=step)[0]

    ahead, behind = (np.asarray(jax.vmap(run)(jnp.asarray(point + way * step_out))) for way in (1, -1))
    slopes = (ahead - behind) / (2 * delta[:, None, None])
    offset = np.zeros_like(slopes[:1])
    offset[..., 1] = 1
    columns = np.concatenate([slopes[: len(unknown)], offset, slopes[len(unknown) :]])
    noise = math.hypot(SENSOR_SD, QUANTUM / math.sqrt(12))  # rounding to whole counts counts as noise
    whitened = columns.reshape(len(columns), -1).T / noise
    sd = np.sqrt(np.diag(np.linalg.inv(whitened.T @ whitened)))
    return dict(zip(parameters(), map(float, sd), strict=False))


def write(folder: Path) -> None:
    """Write train.csv, test.csv and truth.json."""
    for name in SEEDS:
        u, readings, _ = recording(name)
        rows = zip(TIME, u, *readings.T, strict=True)
        lines = [f"{t:.3f},{x:.4f},{arm:.6f},{pend:.6f}\n" for t, x, arm, pend in rows]
        header = "t [s],u [V],q_arm [rad],q_pend [rad]\n"
        (folder / f"{name}.csv").write_text(header + "".join(lines), encoding="utf-8")
    truth = {
        "made_by": "scripts/reference/make_demo.py",
        "parameters": parameters(),
        "known": {
            "bodies.pendulum.mass": TRUTH.mass,
            "bodies.pendulum.com.z": -float(TRUTH.com),
            "bodies.pendulum.inertia.zz": TRUTH.axial_inertia,
            "joints.elbow.at.x": TRUTH.arm_length,
            "gravity.z": -float(TRUTH.gravity),
        },
        "initial": {
            "shoulder": {"position": START[0], "rate": START[2]},
            "elbow": {"position": START[1], "rate": START[3]},
        },
        "noise": {
            "sensor_sd": SENSOR_SD,
            "quantum": QUANTUM,
            "process_density": 0.0,
        },
        "seeds": SEEDS,
        "integration_step": STEP,
    }
    (folder / "truth.json").write_text(json.dumps(truth, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Write the files, or print what the training recording tells about each unknown."""
    parser = argparse.ArgumentParser(description="Write the recordings of the demo and their truth.")
    parser.add_argument("--out", type=Path, default=DEMO, help="folder to write to")
    parser.add_argument("--information", action="store_true", help="print standard deviations instead")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if not options.information:
        write(options.out)
        return
    sd = information(training_input())
    print(f"{'parameter':36}{'truth':>11}{'sd':>10}{'relative':>10}")
    for path, value in parameters().items():
        print(f"{path:36}{value:11.4g}{sd[path]:10.1e}{100 * sd[path] / abs(value):9.3f} %")


if __name__ == "__main__":
    main()
