"""A base that moves and is read with noise: smoothed beforehand, as `spookax latent` does, or among the states of the
switching model, the coupled form (`models.on_base`).

A mass on a spring and a damper that its base carries, with 1 N of Coulomb's friction. Hyperparameters of the force are
those that `spookax latent` finds, those of the base its own evidence's.
"""

import jax.numpy as jnp
import numpy as np

from spookax.models import jonswap, multisine, on_base
from spookax.protocol import Samples
from spookax.study.latent.base import base_motion
from spookax.study.latent.fitting import fitted
from spookax.study.latent.mechanism import Mechanism, Oscillator
from spookax.study.latent.record import Record
from spookax.study.latent.switching_model import Data, Scales, Setting, force_of_regimes

from .latent_setup import nmse
from .measure import Row, row

MASS, DAMPING, STIFFNESS, FRICTION = 1.0, 5.0, 500.0, 1.0
H, SAMPLES, SUBSTEPS, NOISE = 0.002, 1500, 20, 7e-6  # s, -, -, m
NOISES = (7e-6, 7e-5, 3e-4)  # of the base's sensor [m]; the base moves by 4 mm


def run() -> list[Row]:
    """For three sensors of the base."""
    rng = np.random.default_rng(3)
    u, z, force = _truth(rng)
    read, own = rng.normal(size=(2, SAMPLES))
    return [each for noise in NOISES for each in _scores(noise, u + noise * own, z + NOISE * read, force)]


def _truth(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Displacement of the base and of the mass, friction; it really holds."""
    h, omega = H / SUBSTEPS, 0.1 * np.arange(1, 401)
    density = jonswap(omega, period=0.45)
    density *= 4e-3**2 / (np.sum(density) * 0.1)
    base = multisine(np.arange(SAMPLES * SUBSTEPS) * h, omega, density, rng)
    push = STIFFNESS * base + DAMPING * np.gradient(base, h)
    z, v, rows = 0.0, 0.0, []
    for i, load in enumerate(push):
        free = v + h / MASS * (load - DAMPING * v - STIFFNESS * z)
        f = np.clip(free * MASS / h, -FRICTION, FRICTION)
        if i % SUBSTEPS == 0:
            rows.append((z, f))
        v = free - h / MASS * f
        z += h * v
    return base[::SUBSTEPS], *np.array(rows).T


def _scores(noise: float, base: np.ndarray, y: np.ndarray, force: np.ndarray) -> list[Row]:
    known = Oscillator(Mechanism(MASS, DAMPING, STIFFNESS), base=True)
    record = Record("run", H * np.arange(SAMPLES), H, y[:, None], base[:, None], ("displacement",), "")
    found = fitted([known.seen(record)], known, 3, None, lambda _: None)
    [before] = found.forces
    motion = base_motion(base, record)
    own, [scales] = found.posterior.setting, found.posterior.scales
    whole = on_base(known.linear(), motion.jerk)
    setting = Setting((*own.reads, ("base", 0)), own.contacts, own.components)
    readings = jnp.asarray(np.column_stack([y, base]))[:, None]
    samples = Samples(jnp.zeros((SAMPLES, 0)), readings, jnp.zeros((SAMPLES, 1)), jnp.ones((SAMPLES, 1, 2)))
    data = Data(jnp.asarray(H), None, jnp.zeros((SAMPLES, 0)), samples)
    rates = np.std(motion.u, axis=0)
    start, spread = np.array([base[0], 0.0, 0.0]), np.array([noise, rates[1], rates[1] ** 2 / rates[0]])
    x0, sd = (np.insert(np.asarray(a), 2, more) for a, more in ((scales.x0, start), (scales.sd, spread)))
    level = jnp.append(scales.noise, motion.noise)
    wider = Scales(scales.velocity, scales.force, level, jnp.asarray(x0), jnp.asarray(sd))
    log = np.insert(found.log, 3, np.log(motion.noise))
    after = force_of_regimes(log, whole, data, wider, setting)
    rows, group = [], f"noise of {1e6 * noise:g} um"
    for name, x, sd in (
        ("smoothed beforehand", before.x[:, -1], before.sd[:, -1]),
        ("among the states", after.x[:, -1], after.sd[:, -1]),
    ):
        rows.append(row(group, f"force, NMSE, {name}", nmse(x, force), "%"))
        rows.append(row(group, f"in the 90 % bands, {name}", float(100 * np.mean(np.abs(x - force) < 1.645 * sd)), "%"))
    return rows
