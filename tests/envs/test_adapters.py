"""Environments as others take them: Gymnasium, gymnax, Brax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from envs.rigs import environment

import spookax as sx

gymnasium = pytest.importorskip("gymnasium", reason="the extra `envs` is not installed")


@pytest.fixture(scope="module")
def env():
    return environment()


def test_every_task_that_ships_has_an_id():
    from spookax.envs import gym

    assert len(sx.envs.task_names()) >= 8
    for name in sx.envs.task_names():
        assert gym.gym_id(name) in gymnasium.registry
    assert gym.gym_id("furuta_swing_up") == "spookax/FurutaSwingUp-v0"


def test_the_checker_of_gymnasium_has_nothing_to_say(env, monkeypatch):
    from gymnasium.utils.env_checker import check_env

    from spookax.envs.gym import GymEnv

    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    check_env(GymEnv(env), skip_render_check=True)  # warnings are errors here
    frames = GymEnv(env, render_mode="rgb_array")
    frames.reset(seed=0)
    first = frames.render()
    for _ in range(5):
        frames.step(np.ones(1))
    later = frames.render()
    assert first is not None
    assert first.shape == (360, 480, 3)
    assert first.dtype == np.uint8
    assert (first != later).any(axis=2).sum() > 20  # it moves
    assert ((first != 255).any(axis=2)).sum() > 200
    shown = GymEnv(env, render_mode="human")
    shown.reset(seed=0)
    shown.step(np.ones(1))
    assert shown.render() is None
    assert not opened
    shown.close()
    assert len(opened) == 1
    with pytest.raises(ValueError, match="`render_mode` is one of human, rgb_array"):
        GymEnv(env, render_mode="ansi")
    with pytest.raises(gymnasium.error.ResetNeeded):
        GymEnv(env).step(np.zeros(1))


@pytest.mark.slow
def test_many_environments_move_as_single_ones_and_begin_again(env):
    from spookax.envs.gym import GymVectorEnv

    many = GymVectorEnv(env, num_envs=3)
    assert many.observation_space.shape == (3, 2)
    seen, _ = many.reset(seed=5)
    start = many._state
    assert start is not None
    actions = np.array([[1.0], [-1.0], [0.5]])
    moved, reward, terminated, truncated, _info = many.step(actions)
    for k in range(3):
        alone = jax.tree.map(lambda a, k=k: a[k], start)
        _, out = env.step(alone, 4.0 * actions[k])  # the motor's limit
        np.testing.assert_allclose(moved[k], out.observation, rtol=0, atol=1e-12)
        np.testing.assert_allclose(reward[k], out.reward, rtol=0, atol=1e-12)
    last = moved
    for _ in range(24):  # 0.5 s
        last, _, terminated, truncated, _ = many.step(actions)
    assert truncated.all()
    assert not terminated.any()
    again, reward, terminated, truncated, _ = many.step(actions)
    assert not reward.any()
    assert not truncated.any()
    assert not terminated.any()
    np.testing.assert_allclose(again[:, 0], again[:, 1], rtol=0, atol=1e-10)  # no motion yet
    assert not np.allclose(again, last)
    assert not np.allclose(again, seen)  # others than the first


@pytest.mark.slow
def test_the_form_of_gymnax(env):
    form = sx.envs.GymnaxForm(env)
    params, keys = form.default_params, jax.random.split(jax.random.PRNGKey(0), 3)
    observation, state = form.reset(keys[0], params)
    assert observation.shape == form.observation_space(params).shape

    def body(carry, key):
        state = carry
        action = form.action_space(params).sample(key)
        _observation, state, reward, done, info = form.step(key, state, action, params)
        return state, (reward, done, info["truncated"], info["discount"])

    _, (reward, done, truncated, discount) = jax.jit(lambda s, k: jax.lax.scan(body, s, k))(
        state, jax.random.split(keys[1], 27)
    )
    assert reward.dtype == jnp.float64
    np.testing.assert_array_equal(np.flatnonzero(done), [24])  # every 0.5 s
    np.testing.assert_array_equal(done, truncated)
    np.testing.assert_array_equal(discount, 1.0)


@pytest.mark.slow
def test_the_form_of_brax(env):
    """As its own wrappers use it: vectorised, with keys of theirs in `info`, each step as the last was in form."""
    form = sx.envs.BraxForm(env)
    assert (form.observation_size, form.action_size, form.dt) == (2, 1, 0.02)
    states = jax.vmap(form.reset)(jax.random.split(jax.random.PRNGKey(0), 2))
    states.info["steps"] = jnp.zeros(2)

    def body(states, action):
        states = states.replace(info=states.info | {"steps": states.info["steps"] + 1})
        moved = jax.vmap(form.step)(states, action)
        return moved, (moved.done, moved.obs)

    actions = jnp.ones((26, 2, 1))
    last, (done, seen) = jax.jit(lambda s, a: jax.lax.scan(body, s, a))(states, actions)
    assert float(last.info["steps"][0]) == 26
    np.testing.assert_array_equal(done[:24], 0.0)
    np.testing.assert_array_equal(done[24], 1.0)
    assert np.isfinite(seen).all()
