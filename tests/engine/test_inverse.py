"""Inverse dynamics is the step read backwards, and the two residuals differ by M_Sigma."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import compiled, furuta, place

from spookax.constraints import assemble, prepare
from spookax.stepping import forward_residual, inverse_dynamics, saddle, step

COUNT = 40
FRICTION = {
    "shoulder": {"coulomb": 0.02, "viscous": 1e-3},
    "elbow": {"coulomb": 0.005, "viscous": 1e-4, "stribeck": {"excess": 0.002, "speed": 0.1}},
}


def dense(blocks, sizes):
    """The block matrix of a step as one array."""
    return jnp.concatenate(
        [
            jnp.concatenate(
                [blocks.get([(i, j)])[0] if (i, j) in blocks else jnp.zeros((a, b)) for j, b in enumerate(sizes)],
                axis=1,
            )
            for i, a in enumerate(sizes)
        ]
    )


def stacked(state):
    return jnp.concatenate([state.v, state.w], axis=-1)


@functools.partial(compiled, static_argnums=0)
@functools.partial(jax.vmap, in_axes=(None, None, 0, 0, 0, 0))
def transitions(system, params, state, command, impulse, dv):
    """One step with an extra impulse, read backwards; one without, both residuals of a velocity `dv` beside it."""
    prepared = prepare(system, params)
    n = 6 * system.num_bodies

    after, info = step(system, prepared, state, command, impulse)
    v1 = stacked(after).reshape(-1)
    rows = assemble(system, prepared, state, command, impulse)
    K = dense(saddle.blocks(system, rows), system.pattern.sizes)
    D, A, sigma = K[:n, :n], -K[:n, n:].T, jnp.diagonal(K[n:, n:])
    terms = (D @ v1, rows.p, A.T @ info.joint_impulses.reshape(-1), impulse)
    kicked = {
        "friction": info.levels,
        "inverse": inverse_dynamics(system, prepared, state, stacked(after), command),
        "size": jnp.stack([jnp.abs(x).max() for x in terms]).max(),
    }

    free, info = step(system, prepared, state, command)
    b = saddle.box_columns(system, rows).reshape(n, -1)
    stiffness = jnp.where(jnp.abs(info.levels) < 1, rows.box.force / rows.box.slack, 0.0)
    M_sigma = D + A.T @ (K[n:, :n] / sigma[:, None]) + (b * stiffness[None]) @ b.T
    beside = stacked(free) + dv
    rate = saddle.box_rates(system, rows, beside) / rows.box.slack
    residual = forward_residual(system, prepared, state, beside, command)
    return kicked, {
        "friction": info.levels,
        "same": (jnp.abs(info.levels) < 1) == (jnp.abs(rate) < 1),
        "forward": M_sigma @ residual.reshape(-1),
        "inverse": inverse_dynamics(system, prepared, state, beside, command).reshape(-1),
    }


def draw(seed, *, moving, v_creep, dv):
    """Random states, commands, impulses [N s, N m s] and velocities [m/s, rad/s]; joints at rest unless `moving`."""
    rng = np.random.default_rng(seed)
    system, params = furuta(**FRICTION, v_creep=v_creep)
    states = []
    for _ in range(COUNT):
        q, rate = rng.uniform(-3, 3, 2), moving * rng.choice([-1, 1], 2) * rng.uniform(2, 5, 2)
        joints = zip(("shoulder", "elbow"), q, rate, strict=True)
        states.append(place(system, params, {n: {"position": x, "rate": v} for n, x, v in joints}))
    state = jax.tree.map(lambda *x: np.stack(x), *states)
    impulse = 2e-3 * rng.normal(size=(COUNT, 2, 6)) * (1 if moving else 0.01)
    command = rng.uniform(-0.02, 0.02, (COUNT, 1))
    found = transitions(system, params, state, command, impulse, dv * rng.normal(size=(COUNT, 2, 6)))
    return jax.tree.map(np.asarray, (*found, impulse))


CASES = {
    "sliding": {"seed": 0, "moving": True, "v_creep": 1e-6, "dv": 1e-3},
    "starting": {"seed": 1, "moving": False, "v_creep": 1e-6, "dv": 1e-3},
    # a wide creep speed, so that a small change of velocity does not break away
    "creeping": {"seed": 2, "moving": False, "v_creep": 1e-3, "dv": 1e-6},
}


@pytest.mark.parametrize("case", CASES)
def test_inverse_dynamics_of_a_step_returns_the_applied_impulse(case):
    """To 1e-10, in the maximum norm, of the largest momentum or impulse in the balance.

    Multipliers are (G v + a) / Sigma: the last digit of a velocity is about eps |v| / Sigma in an impulse, 1e-11 of the
    momentum at a relative compliance of 1e-6. Measured: at most 4e-11.
    """
    kicked, _, impulse = draw(**CASES[case])
    sticks = np.abs(kicked["friction"]) < 1
    assert sticks.any() == (case != "sliding")
    assert not sticks.all()
    assert np.all(np.abs(impulse).max(axis=(1, 2)) > 1e-4 * kicked["size"]), "the impulse counts in the balance"
    error = np.abs(kicked["inverse"] - impulse).max(axis=(1, 2)) / kicked["size"]
    assert error.max() < 1e-10


@pytest.mark.parametrize("case", ["sliding", "creeping"])
def test_m_sigma_times_the_forward_residual_is_the_impulse_residual(case):
    """Relative to 1e-8, for unchanged sticking and sliding: M_Sigma = D + G^T Sigma^-1 G + b^T (F / v_creep) b with the
    friction rows that stick."""
    _, beside, _ = draw(**CASES[case])
    same = np.all(beside["same"], axis=1)
    assert same.mean() > 0.9
    assert np.any(np.abs(beside["friction"][same]) < 1) == (case == "creeping")
    forward, inverse = beside["forward"][same], beside["inverse"][same]
    error = np.abs(forward - inverse).max(axis=1) / np.abs(inverse).max(axis=1)
    assert error.max() < 1e-8
