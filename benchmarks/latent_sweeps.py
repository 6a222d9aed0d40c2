"""The oscillator of Marino and Cicirello (2023) with other noise, records of other lengths and other rates, as in their
figures 13 to 15: curves in `docs/figures`, by the chain of `spookax latent` with the true mass, damping and stiffness.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.interpolate

from spookax.study.latent.fitting import fitted
from spookax.study.latent.forward import SUBSTEPS, forward
from spookax.study.latent.laws import fit_laws, for_scene
from spookax.study.latent.mechanism import Mechanism, Oscillator
from spookax.study.latent.record import Record
from spookax.study.latent.sliding import sliding_points
from spookax.study.latent.static import Read, static_friction

from .chart import curves
from .latent_setup import DAMPING, MASS, STIFFNESS, folder, nmse
from .measure import Row, row

FIGURES = Path(__file__).parents[1] / "docs/figures"
FASTEST, LONGEST, FINE = 2000, 20.0, 50  # samples a second, seconds, steps of the simulation between two samples
NOISE, RATE, LENGTH = 7.236e-6, 500, 5.0  # m, the source's; Hz, s
NOISES = (8e-7, 2.5e-6, NOISE, 2.5e-5, 7.9e-5)  # its 100 to 60 dB
LENGTHS = (2.5, 5.0, 10.0, 20.0)
RATES = (100, 250, 500, 1000, 2000)
CRAWL, SPEED = 1e-6, 3e-3  # m/s, of the law: 1 N, a 0.07 N, b 0.09 N, c 0.022


class Truth(NamedTuple):
    """At 2000 samples a second: load, displacement, velocity, friction, whether it sticks."""

    u: np.ndarray
    z: np.ndarray
    v: np.ndarray
    force: np.ndarray
    sticks: np.ndarray


def law(v):
    """Friction against a motion of speed |v| [N]."""
    s = jnp.abs(v) + CRAWL
    return 1.0 + 0.07 * jnp.log(s / SPEED) + 0.09 * jnp.log(0.022 + (SPEED + CRAWL) / s)


def truth() -> Truth:
    """Simulated with friction that really holds."""
    lines = np.genfromtxt(folder() / "load_components.csv", delimiter=",", names=True)
    lines = lines[lines["amplitude_N"] > 1e-9 * np.max(lines["amplitude_N"])]
    at = np.arange(round(LONGEST * FASTEST) + 1) / FASTEST
    u = np.zeros(len(at))
    for w, size, phase in zip(lines["omega_rad_s"], lines["amplitude_N"], lines["phase_rad"], strict=True):
        u += size * np.cos(w * at + phase)
    h = 1.0 / FASTEST / FINE
    between = scipy.interpolate.CubicSpline(at, u)(h * (np.arange((len(at) - 1) * FINE) + 0.5))

    def step(x, push):
        z, v, *_ = x
        z = z + h / 2 * v
        free = v + h / MASS * (push - DAMPING * v - STIFFNESS * z)
        bound = law(v)
        force = jnp.clip(free * MASS / h, -bound, bound)
        holds = jnp.abs(force) < bound
        v = jnp.where(holds, 0.0, free - h / MASS * force)
        return (z + h / 2 * v, v, force, holds.astype(float)), None

    def sample(x, pushes):
        after, _ = jax.lax.scan(step, x, pushes)
        return after, after

    first = (jnp.zeros(()), jnp.zeros(()), jnp.asarray(-law(0.0)), jnp.zeros(()))
    _, found = jax.jit(lambda p: jax.lax.scan(sample, first, p))(jnp.asarray(between.reshape(-1, FINE)))
    z, v, force, holds = (np.append(float(a), np.asarray(b)) for a, b in zip(first, found, strict=True))
    return Truth(u, z, v, force, holds > 0.5)


def run() -> list[Row]:
    """Curves over each, the other two as in the source."""
    made = truth()
    rows = [_checked(made)]
    sweeps = {
        "noise": ("noise of a reading [m]", [(noise, LENGTH, RATE) for noise in NOISES], 0),
        "length": ("length of the record [s]", [(NOISE, length, RATE) for length in LENGTHS], 1),
        "rate": ("samples a second [Hz]", [(NOISE, LENGTH, rate) for rate in RATES], 2),
    }
    known: dict[tuple[float, float, int], dict[str, float]] = {}
    for name, (along, points, which) in sweeps.items():
        lines: dict[str, list[tuple[float, float]]] = {}
        for point in points:
            if point not in known:
                known[point] = _scores(made, *point)
                print(point, {key: float(f"{value:.3g}") for key, value in known[point].items()}, flush=True)
            for key, value in known[point].items():
                rows.append(row(f"{name}, {point[which]:g}", key, value, "%"))
                lines.setdefault(key, []).append((point[which], value))
        text = curves(
            f"Error of the friction found against the {name}", along, "error", {f"{k} [%]": v for k, v in lines.items()}
        )
        (FIGURES / f"latent_{name}.svg").write_text(text, encoding="utf-8")
    return rows


def _checked(made: Truth) -> Row:
    """The simulation beside that of an event-driven solver."""
    wanted = np.genfromtxt(folder() / "friction_oscillator_tight.csv", delimiter=",", names=True)
    z = scipy.interpolate.CubicSpline(np.arange(len(made.z)) / FASTEST, made.z)(wanted["t"])
    return row(
        "simulation", "largest difference from the event-driven one", float(np.max(np.abs(z - wanted["z_true"]))), "m"
    )


def _scores(made: Truth, noise: float, length: float, rate: int) -> dict[str, float]:
    every, count = FASTEST // rate, round(length * rate) + 1
    at = every * np.arange(count)
    y = made.z[at] + noise * np.random.default_rng(0).normal(size=count)
    record = Record("run", at / FASTEST, 1.0 / rate, y[:, None], made.u[at, None], ("displacement",), "")
    known = Oscillator(Mechanism(MASS, DAMPING, STIFFNESS))
    found = fitted([record], known, 3, None, lambda _: None)
    [force] = found.forces
    sticks = np.argmax(force.probability, axis=1) == 1
    scores = {
        "force, NMSE": nmse(force.x[:, 2], made.force[at]),
        "force, one regime": nmse(found.alone[0].x[:, 2], made.force[at]),
        "regime": float(100 * np.mean(sticks != made.sticks[at])),
        "outside 90 % bands": float(100 * np.mean(np.abs(force.x[:, 2] - made.force[at]) > 1.645 * force.sd[:, 2])),
    }
    points, _ = sliding_points(force.x, force.sd, force.probability)
    pull = made.u[at] - STIFFNESS * force.x[:, 0] - DAMPING * force.x[:, 1]
    read = Read("displacement", y, float(np.exp(found.log[2])))
    static = static_friction(record.time, pull, force.x, force.sd, force.probability, MASS, read)
    [found_law] = fit_laws(["dieterich-ruina"], points, static)
    scene = known.scene("oscillator", [for_scene(found_law, points, static)], record.h / SUBSTEPS, force.x[0, :2])
    simulated = forward(scene, known.readings, record, record.u, force.x[0, :2])
    return scores | {"prediction, NMSE": nmse(simulated.z[:, 0], made.z[at])}
