"""What wrong numbers of a scene leave in the forces at its contacts, and their corrections.

With guesses p^ the forces F that are found make the accelerations of the true numbers p and forces f,

    a(p^, F) = a(p, f),   so to first order   F = f + (da/df)^-1 da/dp (p - p^)   at every contact,

which for a mass on a spring is (30) of the source, there exact. It carries over to numbers that act on contacts alone:
what a number does to another joint no force at a contact can make up for, and it is told as a misfit, not as a force.
A wrong zero of what reads a base is one more such number, the same at all times.

**Source:** Marino and Cicirello (2023), equations 27 to 33 and 37, for one mass.
"""

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from spookax._compiled import compiled
from spookax._typing import Array, Float
from spookax.models import JointMotion
from spookax.scene.explain import Finding
from spookax.study.latent.correction import Correction, by_phases, levels
from spookax.study.latent.of_scene import OfScene, rates
from spookax.study.latent.record import Record
from spookax.study.latent.sliding import sliding_points
from spookax.study.latent.switching_model import Force

_LEAST = 1e-9  # of the accelerations, that a number has to move
_BESIDE = 1e-4  # of what a number does, that may be done to joints without a contact


def scene_correction(records: Sequence[Record], forces: Sequence[Force], known: OfScene) -> Correction:
    """Least squares over samples of sliding at every contact; errors within a phase of sliding go together.

    **Arguments:** `records`, `forces`: as the linear model takes them and found with it.
    """
    setting, unit = known.setting(1), known.motion.of.shared.prior_units()
    count, shared = len(known.contacts), len(unit) + len(known.bases)
    still = dict.fromkeys(known.guesses, 0.0)
    no_zeros = (0.0,) * len(known.bases)
    nothing = Correction(still, still, 0.0, 0.0, 0.0, no_zeros, no_zeros)
    if not shared:
        return nothing
    left = [_left(known, force, record) for force, record in zip(forces, records, strict=True)]
    rows, wanted, phase = [], [], []
    for c in range(count):
        own = [force.of(c, setting) for force in forces]
        points = [sliding_points(force.x, force.sd, force.probability) for force in own]
        along = np.concatenate([f.x[at] for f, (_, at) in zip(own, points, strict=True)])
        if not len(along):
            continue
        speed, size = (float(np.sqrt(np.mean(along[:, i] ** 2))) for i in (1, 2))
        level = np.column_stack(list(levels(along[:, 1], speed).values()))
        X = np.zeros((len(along), count * level.shape[1] + shared))
        X[:, c * level.shape[1] : (c + 1) * level.shape[1]] = level
        X[:, -shared:] = np.concatenate([a[at, c] for a, (_, at) in zip(left, points, strict=True)])
        rows.append(X / size)
        wanted.append(along[:, 2] / size)
        phase += [p.phase + 1e6 * number + 1e9 * c for number, (p, _) in enumerate(points)]
    if not rows:
        return nothing
    A, covariance = by_phases(*map(np.concatenate, (rows, wanted, phase)))
    found, sd = A[-shared:], np.sqrt(np.diag(covariance))[-shared:]
    change, sds = (dict(zip(known.guesses, map(float, a), strict=False)) for a in (found, sd))
    zeros, zeros_sd = (tuple(map(float, a[len(unit) :])) for a in (found, sd))
    return Correction(change, sds, 0.0, 0.0, 0.0, zeros, zeros_sd)


def untold(known: OfScene) -> Iterator[Finding]:
    """Numbers that are to be corrected, and that the forces at the contacts do not tell, at some drawn states."""
    if not known.guesses:
        return
    rng, q, draws = np.random.default_rng(0), len(known.point), 8
    x = np.append(known.point, np.zeros(q)) + rng.normal(size=(draws, 2 * q)) * np.repeat([0.1, 1.0], q)
    u, push = rng.normal(size=(draws, len(known.motors))), rng.normal(size=(draws, q))
    whole, z = tuple(map(jnp.asarray, (x, u, push))), jnp.asarray(known.motion.of.shared.start())
    size = np.linalg.norm(np.asarray(rates(known.motion, z, *whole))[:, q:])
    force, _, moved, by_push = map(np.asarray, _made_up(known.motion, z, *whole))
    others = [i for i in range(q) if i not in [contact.coordinate for contact in known.contacts]]
    for i, path in enumerate(known.guesses):
        loc, all_in = ("latent", "correct", i), np.linalg.norm(moved[:, :, i])
        beside = [k for k in others if np.linalg.norm(by_push[:, :, k] * force[:, k, i, None]) > _BESIDE * all_in]
        if all_in < _LEAST * size:
            yield Finding(loc, path, "has no effect on the accelerations of the joints", "Take it out.")
        elif beside:
            names = ", ".join(known.names[k] for k in beside)
            message = f"acts on {names}, where no friction is sought: no force at the contacts makes up for it"
            yield Finding(loc, path, message, "Take it out; `spookax identify` finds such a number.")


def _left(known: OfScene, force: Force, record: Record) -> Float[np.ndarray, "k contacts p"]:
    """What is in the force at a contact for every number that is too small by one, and for every base that is read too
    high by one.
    """
    shared = known.motion.of.shared
    by_z, by_u, _, _ = map(
        np.asarray, _made_up(known.motion, jnp.asarray(shared.start()), *known.along(force.x, record))
    )
    at = [contact.coordinate for contact in known.contacts]
    by_z = by_z / shared.prior_units()
    for base, rate in zip(known.bases, known.rates_of_bases(record), strict=True):
        # its command is u + c / k u', which changes with c and k
        for key, more in (("damping", rate / base.stiffness), ("stiffness", -base.lag * rate / base.stiffness)):
            if (path := f"motors.{base.name}.{key}") in known.guesses:
                by_z[:, :, known.guesses.index(path)] += by_u[:, :, base.motor] * more[:, None]
    return np.concatenate([-by_z[:, at], by_u[:, at][:, :, [base.motor for base in known.bases]]], axis=2)


@compiled
def _made_up(motion: JointMotion, z: Array, x: Array, u: Array, push: Array) -> tuple[Array, Array, Array, Array]:
    """Along a motion: forces on the axes that do the same as numbers (a column for each) and as commands, and the
    accelerations by numbers and by forces.
    """
    count = motion.noise_size

    def one(x: Array, u: Array, push: Array) -> tuple[Array, Array, Array, Array]:
        def a(z: Array, u: Array, push: Array) -> Array:
            return motion.rate(x, motion.prepare(z), u, push)[count:]

        by_z, by_u, by_push = jax.jacfwd(a, (0, 1, 2))(z, u, push)
        return jnp.linalg.solve(by_push, by_z), jnp.linalg.solve(by_push, by_u), by_z, by_push

    return jax.vmap(one)(x, u, push)
