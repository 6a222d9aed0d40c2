"""Records of simulated oscillators with dry friction, drawn at random: many at once, each with its own numbers."""

from typing import NamedTuple

import numpy as np

from spookax.models.multisine import jonswap, multisine

SUBSTEPS = 20


class Drawn(NamedTuple):
    """Records; leading axis: records. Units are SI."""

    h: np.ndarray  # step
    mass: np.ndarray
    damping: np.ndarray
    stiffness: np.ndarray
    law: list[str]
    u: np.ndarray  # (records, samples): load
    y: np.ndarray  # reading of the displacement
    z: np.ndarray
    v: np.ndarray
    force: np.ndarray
    sticks: np.ndarray
    static: np.ndarray  # what the law holds at rest [N]
    noise: np.ndarray  # standard deviation of a reading


def drawn(count: int, samples: int, seed: int) -> Drawn:
    """Masses over a factor of ten, periods from 0.15 to 0.5 s, damping of 0.5 to 10 % of the critical one, the law
    Coulomb's, Stribeck's or that of Dieterich and Ruina, its level a quarter to two thirds of the load's standard
    deviation, noise of 1/3000 to 1/500 of the displacement's standard deviation.
    """
    rng = np.random.default_rng(seed)

    def between(low: float, high: float) -> np.ndarray:
        return np.exp(rng.uniform(np.log(low), np.log(high), count))

    mass, turn = between(0.5, 5.0), 2.0 * np.pi / between(0.15, 0.5)
    stiffness, damping = mass * turn**2, 2.0 * between(0.005, 0.1) * mass * turn
    peak = between(0.6, 2.0) * turn  # of the load, about the resonance
    h = 2.0 * np.pi / peak / between(120.0, 300.0)
    size = between(1.0, 10.0)
    level = size * between(0.25, 0.65)
    time = np.arange(samples * SUBSTEPS) + 0.5
    load, at_samples = np.empty((count, samples * SUBSTEPS)), np.empty((count, samples))
    for i in range(count):
        omega = np.linspace(0.0, 8.0 * peak[i], 401)[1:]
        density = jonswap(omega, period=2.0 * np.pi / peak[i])
        density *= size[i] ** 2 / (np.sum(density) * omega[0])
        state = rng.bit_generator.state
        load[i] = multisine(time * h[i] / SUBSTEPS, omega, density, rng)
        rng.bit_generator.state = state
        at_samples[i] = multisine(np.arange(samples) * h[i], omega, density, rng)
    kind = rng.integers(0, 3, count)
    speed = 0.3 * size / np.sqrt(mass * stiffness)  # about what the mass moves with
    excess, fade = level * between(0.1, 0.4), speed * between(0.03, 0.3)
    a, b, c, reference = 0.07 * level, 0.09 * level, 0.022, 0.01 * speed

    def law(v: np.ndarray) -> np.ndarray:
        s = np.abs(v) + 1e-4 * reference
        stribeck = level + excess * np.exp(-((v / fade) ** 2))
        return np.select(
            [kind == 0, kind == 1], [level, stribeck], level + a * np.log(s / reference) + b * np.log(c + reference / s)
        )

    z, v = np.zeros(count), np.zeros(count)
    dt = h / SUBSTEPS
    found = np.empty((4, samples, count))
    for k in range(samples):
        found[:2, k] = z, v
        for i in range(SUBSTEPS):
            z = z + dt / 2 * v
            free = v + dt / mass * (load[:, k * SUBSTEPS + i] - damping * v - stiffness * z)
            bound = law(v)
            force = np.clip(free * mass / dt, -bound, bound)
            stuck = np.abs(force) < bound
            v = np.where(stuck, 0.0, free - dt / mass * force)
            z = z + dt / 2 * v
            if i == 0:
                found[2:, k] = force, stuck
    z, v, force, stuck = np.moveaxis(found, 2, 1)
    noise = np.std(z, axis=1) / between(500.0, 3000.0)
    y = z + noise[:, None] * rng.normal(size=z.shape)
    names = [("Coulomb", "Stribeck", "Dieterich-Ruina")[i] for i in kind]
    return Drawn(
        h, mass, damping, stiffness, names, at_samples, y, z, v, force, stuck > 0.5, law(np.zeros(count)), noise
    )
