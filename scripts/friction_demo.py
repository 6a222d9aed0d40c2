"""Make the recordings of an unknown friction force: `python scripts/friction_demo.py` writes demo/friction/.

The load is a multisine of random phases with the JONSWAP spectrum of waves; the engine, whose dry friction really
sticks, moves the mass; readings of its displacement get white noise.
"""

from pathlib import Path

import jax.numpy as jnp
import numpy as np

import spookax as sx
from spookax.models import jonswap, multisine

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "demo/friction"
RATE = 500.0  # [Hz]
RUNS = {"train": (4.0, 1), "test": (3.0, 2)}  # length [s], seed
LOAD = 5.0  # standard deviation [N]
PERIOD = 0.4  # of the load's peak [s]


def load(time: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[N] at some times [s]."""
    omega = 0.05 * np.arange(1, 2001)  # to 100 rad/s
    density = jonswap(omega, period=PERIOD)
    return multisine(time, omega, density * LOAD**2 / (np.sum(density) * omega[0]), rng)


def main() -> None:
    """Write `train.csv` and `test.csv`."""
    sx.enable_x64()
    system, params, state = sx.load(FOLDER / "oscillator.yaml")
    h = float(params.step)
    every = round(1.0 / RATE / h)
    for name, (length, seed) in RUNS.items():
        steps = round(length / h)
        pushed = load((np.arange(steps) + 0.5) * h, np.random.default_rng(seed))
        found = sx.rollout(system, params, state, jnp.asarray(pushed)[:, None])
        time = np.arange(0, steps + 1, every) * h
        z = np.asarray(found.position)[::every, 0]
        u = load(time, np.random.default_rng(seed))
        y = z + 5e-6 * np.random.default_rng(seed + 100).normal(size=len(z))
        lines = [f"{a:.4f},{b:.6f},{c:.8f}" for a, b, c in zip(time, u, y, strict=True)]
        (FOLDER / f"{name}.csv").write_text("t [s],load [N],y [m]\n" + "\n".join(lines) + "\n", encoding="utf-8")
        v = np.asarray(found.rate)[::every, 0]
        print(f"{name}: {len(y)} samples, displacement sd {np.std(z):.3g} m, at rest {np.mean(np.abs(v) < 1e-9):.3f}")


if __name__ == "__main__":
    main()
