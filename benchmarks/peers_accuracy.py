"""Energy of a chain without friction and gap of a closed loop, of the package and of its peers at the same step."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import spookax as sx
from spookax.constraints import prepare
from spookax.math import rotation

from . import peer
from .measure import Row, compile_now, row
from .mechanisms import Mechanism, four_bar, level
from .peers_engines import engines

STEP, DURATION = 0.005, 10.0  # s
RELAXATIONS = {2.0: "robust", 1.0: "accurate", 0.25: "stiff"}  # relaxation steps; 2 is the default
CHAIN, LOOP = "chain of 4, level, 10 s", "four_bar, released, 10 s"


def run() -> list[Row]:
    """Rows of the chain and of the loop."""
    return [*_chain(_released(level())), *_loop(_released(four_bar()))]


def _released(mechanism: Mechanism) -> Mechanism:
    """The mechanism at the step of this comparison, without input."""
    return dataclasses.replace(mechanism, scene=mechanism.scene.model_copy(update={"step": STEP}), amplitude=0.0)


def _trajectories(mechanism: Mechanism) -> dict[str, tuple[sx.System, sx.Params, sx.Trajectory]]:
    """One for each relaxation, by its name."""
    system, params, state = mechanism.load()
    controls = jnp.asarray(mechanism.controls(1, round(DURATION / STEP))[0])
    rollout = compile_now(lambda params, state: sx.rollout(system, params, state, controls, throw=False), params, state)
    found = {}
    for relaxation, preset in RELAXATIONS.items():
        changed = dataclasses.replace(params, relaxation=jnp.full_like(params.relaxation, relaxation))
        trajectory = rollout.call(changed, state)
        assert int(trajectory.failed_step) < 0, f"{mechanism.name}: a step failed"
        found[f"relaxation_steps {relaxation:g} ({preset})"] = system, changed, trajectory
    return found


def _chain(mechanism: Mechanism) -> list[Row]:
    """Errors of the energy, relative to the largest kinetic energy of the same run."""
    rows: list[Row] = []
    for label, (system, params, trajectory) in _trajectories(mechanism).items():
        rows += _energy_rows(label, *energies(system, params, trajectory))
    if not peer.mujoco():
        return rows
    for name, integrator in (("Euler", "mjINT_EULER"), ("RK4", "mjINT_RK4")):
        integrators = peer.mujoco().mjtIntegrator
        mujoco = peer.Mujoco.of(mechanism, integrator=getattr(integrators, integrator))
        position, rate = mujoco.rollout(mechanism.controls(1, round(DURATION / STEP)))
        start = np.zeros((1, position.shape[2]))
        kinetic, potential = mujoco.energies(np.vstack([start, position[0]]), np.vstack([start, rate[0]]))
        rows += _energy_rows(f"{mujoco.label} {name}", kinetic, potential)
    mujoco = peer.Mujoco.of(mechanism)
    for engine in engines(mechanism):
        position, rate = engine.motion(round(DURATION / STEP))
        start = np.zeros((1, position.shape[1]))
        rows += _energy_rows(engine.label, *mujoco.energies(np.vstack([start, position]), np.vstack([start, rate])))
    return rows


def _energy_rows(label: str, kinetic: np.ndarray, potential: np.ndarray) -> list[Row]:
    energy = kinetic + potential
    off = (energy - energy[0]) / kinetic.max()
    return [
        row(CHAIN, f"energy error, the most, {label}", float(np.abs(off).max()), "largest kinetic"),
        row(CHAIN, f"energy error at the end, {label}", float(off[-1]), "largest kinetic"),
    ]


def energies(system: sx.System, params: sx.Params, trajectory: sx.Trajectory) -> tuple[np.ndarray, np.ndarray]:
    """Kinetic and potential energy of a trajectory, without its last time, where the rate is extrapolated [J]."""
    prepared = prepare(system, params)
    v, w, r = trajectory.v[:-1], trajectory.w[:-1], trajectory.r[:-1]
    kinetic = jnp.einsum("b,nbi,nbi->n", params.mass, v, v) + jnp.einsum("nbi,bij,nbj->n", w, prepared.J, w)
    return np.asarray(kinetic) / 2, -np.asarray(jnp.einsum("b,nbi,i->n", params.mass, r, prepared.gravity))


def _loop(mechanism: Mechanism) -> list[Row]:
    """The most that the points of a joint are apart."""
    rows = [
        row(LOOP, f"largest gap, {label}", gap(*found) * 1e6, "µm") for label, found in _trajectories(mechanism).items()
    ]
    if not peer.mujoco():
        return rows
    mujoco, controls = peer.Mujoco.of(mechanism), mechanism.controls(1, round(DURATION / STEP))
    rows.append(row(LOOP, f"largest gap, {mujoco.label}", mujoco.gap(mujoco.rollout(controls)[0][0]) * 1e6, "µm"))
    if peer.mjx():
        mjx = peer.Mjx.of(mujoco)
        position, _ = jax.jit(mjx.rollout)(mjx.model, mjx.data, jnp.asarray(controls[0]))
        rows.append(row(LOOP, f"largest gap, {mjx.label}", mujoco.gap(np.asarray(position)) * 1e6, "µm"))
    return rows


def gap(system: sx.System, params: sx.Params, trajectory: sx.Trajectory) -> float:
    """The most that the two points of any joint are apart over a trajectory [m]."""
    origins, turns = trajectory.origins(params), rotation.matrix(trajectory.e)
    largest = 0.0
    for j, joint in enumerate(system.joints):
        near, far = (
            at[j] if body < 0 else origins[:, body] + turns[:, body] @ at[j]
            for body, at in ((joint.parent, params.at), (joint.child, params.child_at))
        )
        largest = max(largest, float(jnp.max(jnp.linalg.norm(near - far, axis=-1))))
    return largest
