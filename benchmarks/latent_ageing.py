"""Friction with a memory: the law of Dieterich and Ruina with the state theta that ages,

    f = a asinh(v / (2 V) exp((F + b log(V theta / L)) / a)),   theta' = 1 - |v| theta / L.

It has no regimes: at rest it creeps, by micrometres a second and less, and what it takes to break away grows with the
logarithm of the time at rest. The chain of `spookax latent` is given its displacement, and no law.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spookax.models import jonswap, multisine
from spookax.study.latent.fitting import fitted
from spookax.study.latent.laws import KINDS, fit_laws
from spookax.study.latent.mechanism import Mechanism, Oscillator
from spookax.study.latent.outcome import stops_of
from spookax.study.latent.record import Record
from spookax.study.latent.sliding import sliding_points
from spookax.study.latent.static import Read, static_friction

from .latent_setup import nmse
from .measure import Row, row

MASS, DAMPING, STIFFNESS = 1.0, 5.0, 500.0
F, A, B, SPEED, LENGTH = 1.0, 0.02, 0.06, 3e-3, 2e-4  # N, N, N, m/s, m
H, SAMPLES, SUBSTEPS, NOISE = 0.002, 2500, 50, 7e-6  # s, -, -, m
CREEPS = 1e-4  # m/s: slower is called sticking
SEEDS = (1, 2, 3)


class Truth(NamedTuple):
    """At the samples: load, displacement, velocity, friction, age [s]."""

    u: np.ndarray
    z: np.ndarray
    v: np.ndarray
    force: np.ndarray
    age: np.ndarray


def friction(v, age):
    """The law."""
    return A * jnp.arcsinh(v / (2.0 * SPEED) * jnp.exp((F + B * jnp.log(SPEED * age / LENGTH)) / A))


def truth(seed: int) -> Truth:
    """Implicit steps in the velocity, exact ones in the age."""
    h, omega = H / SUBSTEPS, 0.1 * np.arange(1, 601)
    density = jonswap(omega, period=0.45)
    density *= 2.0**2 / (np.sum(density) * 0.1)
    fine, at = (np.arange(SAMPLES * SUBSTEPS) + 0.5) * h, np.arange(SAMPLES) * H
    push, u = (multisine(t, omega, density, np.random.default_rng(seed)) for t in (fine, at))

    def step(x, push):
        z, v, age, _ = x
        z = z + h / 2 * v
        free = v + h / MASS * (push - STIFFNESS * z)

        def over(v):
            return v - free + h / MASS * (DAMPING * v + friction(v, age))

        def halved(_, ends):
            low, high = ends
            middle = (low + high) / 2
            above = over(middle) > 0
            return jnp.where(above, low, middle), jnp.where(above, middle, high)

        low, high = jax.lax.fori_loop(0, 60, halved, (jnp.minimum(free, 0.0), jnp.maximum(free, 0.0)))
        v = (low + high) / 2
        force, fast = friction(v, age), jnp.maximum(jnp.abs(v), 1e-15)
        age = LENGTH / fast - (LENGTH / fast - age) * jnp.exp(-fast * h / LENGTH)
        return (z + h / 2 * v, v, age, force), None

    def sample(x, pushes):
        return jax.lax.scan(step, x, pushes)[0], x

    first = (jnp.zeros(()), jnp.zeros(()), jnp.asarray(0.1), jnp.zeros(()))
    _, found = jax.jit(lambda p: jax.lax.scan(sample, first, p))(jnp.asarray(push.reshape(SAMPLES, SUBSTEPS)))
    z, v, age, force = map(np.asarray, found)
    return Truth(u, z, v, force, age)


def run() -> list[Row]:
    """Of three loads."""
    return [each for seed in SEEDS for each in _scores(seed)]


def _scores(seed: int) -> list[Row]:
    made, group, time = truth(seed), f"load {seed}", H * np.arange(SAMPLES)
    y = made.z + NOISE * np.random.default_rng(seed).normal(size=SAMPLES)
    record = Record("run", time, H, y[:, None], made.u[:, None], ("displacement",), "")
    found = fitted([record], Oscillator(Mechanism(MASS, DAMPING, STIFFNESS)), 3, None, lambda _: None)
    [force], [alone] = found.forces, found.alone
    creeps = np.abs(made.v) < CREEPS
    inside = np.abs(force.x[:, 2] - made.force) < 1.645 * force.sd[:, 2]
    rows = [
        row(group, "force, NMSE", nmse(force.x[:, 2], made.force), "%"),
        row(group, "force, one regime", nmse(alone.x[:, 2], made.force), "%"),
        row(group, "samples in the 90 % bands", float(100 * np.mean(inside)), "%"),
        row(group, "slower than 0.1 mm/s", float(100 * np.mean(creeps)), "%"),
        row(group, "regime error", float(100 * np.mean((np.argmax(force.probability, axis=1) == 1) != creeps)), "%"),
    ]
    points, _ = sliding_points(force.x, force.sd, force.probability)
    pull = made.u - STIFFNESS * force.x[:, 0] - DAMPING * force.x[:, 1]
    read = Read("displacement", y, float(np.exp(found.log[2])))
    static = static_friction(time, pull, force.x, force.sd, force.probability, MASS, read)
    best, *_ = fit_laws(KINDS, points, static)
    rows.append(row(group, f"law ({best.kind}), rms of its error over the speeds", _off(best, points.speed), "N"))
    if static is not None:
        for value, sd, at in zip(static.values, static.sds, static.times, strict=True):
            near = np.abs(time - at) < 0.04
            true, age = float(np.max(np.abs(made.force[near]))), float(np.max(made.age[near]))
            rows.append(row(group, f"broke away at {at:.3f} s after {1e3 * age:.0f} ms, true {true:.3f}", value, "N"))
            rows.append(row(group, "sd of it", sd, "N"))
    rows.append(row(group, "stops", float(len(stops_of(force.probability, np.isfinite(y)))), ""))
    return rows


def _off(law, speed: np.ndarray) -> float:
    """From the steady law, age L / v."""
    steady = np.asarray(friction(jnp.asarray(speed), LENGTH / jnp.asarray(speed)))
    return float(np.sqrt(np.mean((law.level(speed) - steady) ** 2)))
