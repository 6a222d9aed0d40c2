"""Make the recordings of unknown friction forces: `python scripts/friction_demo.py` writes those in demo/friction/.

Loads are multisines of random phases with the JONSWAP spectrum of waves; the engine, whose dry friction really sticks,
moves the masses; readings of their displacements get white noise.
"""

from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import spookax as sx
from spookax.models import jonswap, multisine

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "demo/friction"
RATE = 500.0  # [Hz]
NOISE = 5e-6  # of a reading [m]


class Run(NamedTuple):
    """A recording: its scene, its length [s], the seed of its loads, and of every load its column, its standard
    deviation [N] and the period of its peak [s].
    """

    scene: str
    length: float
    seed: int
    loads: tuple[tuple[str, float, float], ...]
    columns: tuple[str, ...]


RUNS = {
    "train": Run("oscillator", 4.0, 1, (("load", 5.0, 0.4),), ("y",)),
    "test": Run("oscillator", 3.0, 2, (("load", 5.0, 0.4),), ("y",)),
    "sledges": Run("sledges", 3.0, 6, (("push", 2.5, 0.45), ("pull", 1.6, 0.3)), ("lower", "upper")),
}


def load(time: np.ndarray, rng: np.random.Generator, size: float, period: float) -> np.ndarray:
    """[N] at some times [s]."""
    omega = 0.05 * np.arange(1, 2001)  # to 100 rad/s
    density = jonswap(omega, period=period)
    return multisine(time, omega, density * size**2 / (np.sum(density) * omega[0]), rng)


def main() -> None:
    """Write a CSV file for each."""
    sx.enable_x64()
    for name, run in RUNS.items():
        system, params, state = sx.load(FOLDER / f"{run.scene}.yaml")
        h = float(params.step)
        every = round(1.0 / RATE / h)
        steps = round(run.length / h)

        def loads(time: np.ndarray, run: Run = run) -> np.ndarray:
            rng = np.random.default_rng(run.seed)
            return np.column_stack([load(time, rng, size, period) for _, size, period in run.loads])

        found = sx.rollout(system, params, state, jnp.asarray(loads((np.arange(steps) + 0.5) * h)))
        time = np.arange(0, steps + 1, every) * h
        z = np.asarray(found.position)[::every]
        y = z + NOISE * np.random.default_rng(run.seed + 100).normal(size=z.shape)
        header = ["t [s]", *(f"{column} [N]" for column, *_ in run.loads), *(f"{column} [m]" for column in run.columns)]
        lines = [",".join(header)]
        for a, b, c in zip(time, loads(time), y, strict=True):
            lines.append(",".join([f"{a:.4f}", *(f"{v:.6f}" for v in b), *(f"{v:.8f}" for v in c)]))
        (FOLDER / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        rest = np.mean(np.abs(np.asarray(found.rate)[::every]) < 1e-5, axis=0)
        print(f"{name}: {len(y)} samples, displacement sd {np.std(z, axis=0)} m, at rest {rest}")


if __name__ == "__main__":
    main()
