"""Tasks whose mechanisms touch something: simple controllers do them, from what the agent is told."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spookax as sx
from spookax import envs
from spookax._results import EPISODE_RESULTS
from spookax.stepping.rollout import in_pieces

EPISODES = 8


@pytest.fixture(autouse=True)
def _in_32_bits():
    """As environments are used."""
    with jax.enable_x64(False):
        yield


def played(env: envs.Environment, controller):
    """Outcomes of some episodes under `controller(names of numbers -> value, control period)`."""

    @sx.jit
    def run(episode, keys):
        def one(key):
            def period(carry, k):
                state, seen = carry
                told = dict(zip(env.observation_names, seen, strict=True))
                state, out = episode.step(state, controller(told, k).astype(seen.dtype))
                return (state, out.observation), out

            return jax.lax.scan(period, episode.reset(key), jnp.arange(int(env.episode.limit)))[1]

        return in_pieces(one, (keys,))

    out = run(env.episode, jax.random.split(jax.random.PRNGKey(1), EPISODES))
    assert np.isfinite(out.observation).all()
    assert np.all(np.asarray(out.cause == EPISODE_RESULTS.successful))
    return jax.tree.map(np.asarray, (out.success, out.terminated, out.reward))


@pytest.mark.slow
def test_a_quadruped_gets_up_by_its_servos():
    env = envs.make("quadruped_stand_up")
    folded, standing = (jnp.tile(jnp.array([0.0, swing, -2 * swing]), 4) for swing in (1.4, 0.6))
    success, ended, _ = played(env, lambda told, k: folded + jnp.clip(k / 50, 0, 1) * (standing - folded))
    assert success[:, -50:].all()
    assert not success[:, 0].any()
    assert not ended.any()


def to_the_target(told, k):
    """Get behind the box and push it, the slower the nearer it is."""
    tip, speed = (
        jnp.stack([told[f"{form}along_encoder{end}"], told[f"{form}across_encoder{end}"]])
        for form, end in (("", ""), ("d ", "/dt"))
    )
    box, off = jnp.stack([told["camera.0"], told["camera.1"]]), jnp.stack([told["off.x"], told["off.y"]])
    distance = jnp.sqrt(off @ off + 1e-6)
    ahead = -off / distance
    along = (tip - box) @ ahead
    aside = tip - box - along * ahead
    behind = box - (0.11 + jnp.where(along > -0.09, 0.05, 0.0)) * ahead
    lined_up = (jnp.sqrt(aside @ aside + 1e-9) < 0.03) & (along < 0)
    push = tip - aside + ahead * jnp.minimum(0.07, 0.05 + 0.2 * distance)
    aim = jnp.where(lined_up, push, behind)
    return 60 * (jnp.where(distance < 0.012, tip, aim) - tip) - 12 * speed


@pytest.mark.slow
def test_a_box_is_pushed_to_where_it_is_asked_for():
    success, _, reward = played(envs.make("box_push"), to_the_target)
    assert success[:, -1].all()
    assert not success[:, 0].any()
    assert (reward[:, -1] > reward[:, 0]).all()


HIP, THIGH, SHANK = 0.05, 0.1, 0.16


def foot(q):
    """Where the shanks meet, from the middle of the hip, forward and up."""
    left = jnp.array([-HIP, 0.0]) + THIGH * jnp.stack([jnp.cos(q[0]), -jnp.sin(q[0])])
    right = jnp.array([HIP, 0.0]) + THIGH * jnp.stack([jnp.cos(q[1]), -jnp.sin(q[1])])
    between = right - left
    down = jnp.stack([between[1], -between[0]]) / jnp.sqrt(between @ between)
    height = jnp.sqrt(jnp.maximum(SHANK**2 - between @ between / 4, 1e-6))
    return (left + right) / 2 + height * jnp.where(down[1] < 0, 1, -1) * down


def hops(told, k):
    """Raibert's three parts: where to land by the speed, a spring while on the ground, more push the lower it hops."""
    q, turning = (
        jnp.stack([told[f"{form}{side}_encoder{end}"] for side in ("left", "right")])
        for form, end in (("", ""), ("d ", "/dt"))
    )
    at, jac = foot(q), jax.jacfwd(foot)(q)
    moving, forward, rising = jac @ turning, told["d forward/dt"], told["d height/dt"]
    landing = 0.07 * forward + 0.08 * (forward - 0.5)
    swung = jnp.stack([120 * (landing - at[0]) - 2.5 * moving[0], 300 * (-0.2 - at[1]) - 5 * moving[1]])
    apex = told["height"] + rising * jnp.abs(rising) / (2 * 9.81)
    push = jnp.where(rising > 0, jnp.clip(150 * (0.26 - apex), -10, 10), 0.0)
    sprung = jnp.stack([jnp.zeros_like(push), 600 * (-0.2 - at[1]) - push])
    return jac.T @ jnp.where(told["height"] + at[1] < 0.015, sprung, swung)


@pytest.mark.slow
def test_a_hopper_goes_forward():
    success, ended, reward = played(envs.make("hopper_forward"), hops)
    assert not ended.any()
    assert success[:, 100:].mean() > 0.8
    assert reward[:, 100:].mean() > 0.5
