"""Policies: what they compute, keep and do, and how derivatives through the simulator teach them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from documentation.pages import ROOT, blocks
from envs.rigs import environment, task
from jax.flatten_util import ravel_pytree

from spookax import envs
from spookax.envs import short_horizon
from spookax.envs.short_horizon import _gain, _pooled, _targets, _Window

pytestmark = pytest.mark.quick
KEY = jax.random.PRNGKey(0)
SMALL = {"environments": 4, "window": 5, "value_rounds": 2, "value_batches": 2}


@pytest.fixture(scope="module")
def env():
    """Starts that swing by themselves, and a goal that is near: a few iterations change something."""
    return environment(task=task(goal={"pivot": 0.6}, start={"pivot": 0.2}), observation=envs.Coordinates())


@pytest.fixture(scope="module")
def policy(env):
    return envs.Policy(env, width=8, depth=1, key=KEY)


def test_actions_are_within_the_limits_and_noise_moves_them_as_its_derivative_says(env, policy):
    low, high = env.action_limits
    for observation in 1e3 * np.random.default_rng(1).normal(size=(20, env.observation_size)):
        action = policy.sample(observation, jnp.full(1, 2.0))
        assert np.all(action >= low)
        assert np.all(action <= high)
    o, noise, step = jnp.ones(env.observation_size), jnp.full(1, 0.3), 1e-6
    slope = jax.jvp(lambda n: policy.sample(o, n), (noise,), (jnp.ones(1),))[1]
    difference = (policy.sample(o, noise + step) - policy.sample(o, noise - step)) / (2 * step)
    np.testing.assert_allclose(slope, difference, rtol=1e-7)
    np.testing.assert_allclose(policy.sample(o, jnp.zeros(1)), policy(o), rtol=1e-14)


def test_a_policy_comes_back_from_its_file(env, policy, tmp_path):
    used = policy.used_to(jnp.full(env.observation_size, 0.2), jnp.full(env.observation_size, 4.0))
    used.save(tmp_path / "pivot.policy", env)
    again = envs.load_policy(tmp_path / "pivot.policy", env)
    assert eqx.tree_equal(again, used)


def test_a_file_that_is_no_policy_of_this_environment_is_refused(env, policy, tmp_path):
    (tmp_path / "text").write_text("no policy")
    with pytest.raises(ValueError, match="text: this is no policy"):
        envs.load_policy(tmp_path / "text", env)
    policy.save(tmp_path / "other.policy", env)
    with pytest.raises(ValueError, match=r"other.policy: a policy whose observations are .*; here they are now, late"):
        envs.load_policy(tmp_path / "other.policy", environment())


def test_play_is_one_episode_after_the_other(env, policy):
    keys = jax.random.split(KEY, 3)
    played = envs.play(env, policy, keys)
    assert played.reward.shape == (3, int(env.episode.limit))
    state, observation = env.reset(keys[1])
    for k in range(4):
        state, out = env.step(state, policy(observation))
        observation = out.observation
        np.testing.assert_allclose(played.observation[1, k], observation, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(played.reward[1, k], out.reward, rtol=1e-9)
    assert bool(played.truncated[:, -1].all())


def test_success_has_to_last_and_failures_do_not_count():
    flags = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 1]], dtype=bool)
    none = np.zeros_like(flags)
    failed = none.copy()
    failed[2, 0] = True
    played = envs.Outcome(none, none, failed, none, flags, none)
    assert list(envs.steady_success(played, 2)) == [True, False, False]


@pytest.fixture(scope="module")
def gain(env, policy):
    """Value and derivative of a window's gain, by the parameters of the network as one vector."""
    value = eqx.nn.MLP(env.observation_size, "scalar", 8, 1, jnp.tanh, key=jax.random.PRNGKey(3))
    noise = jax.random.normal(jax.random.PRNGKey(4), (6, 1))
    flat, whole = ravel_pytree(eqx.filter(policy.net, eqx.is_inexact_array))
    rest = eqx.filter(policy.net, eqx.is_inexact_array, inverse=True)
    schedule = envs.ShortHorizon(window=6, discount=0.9)

    @jax.jit
    def found(flat, key, clock):
        def of(flat):
            acting = eqx.tree_at(lambda p: p.net, policy, eqx.combine(whole(flat), rest))
            state, observation = env.episode.reset(key)
            state = eqx.tree_at(lambda s: s.count, state, clock)
            return _gain(env.episode, acting, value, schedule, state, observation, noise)

        return jax.value_and_grad(of, has_aux=True)(flat)

    return flat, found, value, schedule


@pytest.mark.slow
@pytest.mark.parametrize("clock", [0, 22])
def test_the_gradient_of_a_window_is_that_of_differences(env, gain, clock):
    """Also of one in which the time of the episode runs out: its limit is 25 periods."""
    flat, found, _, _ = gain
    assert int(env.episode.limit) == 25
    clock = jnp.asarray(clock, jnp.int32)
    (_, (state, _, window, _)), slope = found(flat, KEY, clock)
    assert bool(state.over) == (clock == 22)
    assert int(window.counts.sum()) == (3 if clock == 22 else 6)
    way = jax.random.normal(jax.random.PRNGKey(5), flat.shape)
    step = 1e-5
    (up, _), _ = found(flat + step * way, KEY, clock)
    (down, _), _ = found(flat - step * way, KEY, clock)
    np.testing.assert_allclose(slope @ way, (up - down) / (2 * step), rtol=1e-6)


@pytest.mark.slow
def test_what_a_window_gains_is_the_sum_of_its_rewards_and_what_the_value_says(env, gain, policy):
    flat, found, value, s = gain
    for clock in (0, 22):
        (total, (*_, w, _)), _ = found(flat, KEY, jnp.asarray(clock, jnp.int32))
        length = int(w.counts.sum())
        expected = sum((1 - s.discount) * s.discount**k * float(w.reward[k]) for k in range(length))
        # the last observation of the episode, or of the window
        expected += s.discount**length * float(value(policy.scaled(w.after[length - 1])))
        np.testing.assert_allclose(total, expected, rtol=1e-12)


@pytest.mark.slow
def test_a_policy_at_a_limit_is_led_back(env, gain):
    """Where tanh has no derivative left the squares of what is said beyond it have one."""
    flat, found, _, s = gain
    stuck = flat.at[-1].set(6.0)  # what the last layer adds
    (_, (*_, window, _)), slope = found(stuck, KEY, jnp.asarray(0, jnp.int32))
    assert bool(window.counts.all())
    weight = (1 - s.discount) * s.discount ** np.arange(6)
    assert -2.5 * 2 * s.saturation * weight.sum() > slope[-1] > -5.5 * 2 * s.saturation * weight.sum()


def test_targets_of_the_value_are_returns_where_only_rewards_count(env, policy):
    """TD(1): discounted rewards to the end of the episode, and from there the value if only time ran out."""
    value = eqx.nn.MLP(2, "scalar", 4, 1, jnp.tanh, key=KEY)
    s = envs.ShortHorizon(discount=0.8, mixed=1.0)
    rng = np.random.default_rng(2)
    after = jnp.asarray(rng.normal(size=(4, 2)))
    reward = jnp.asarray(rng.normal(size=4))
    last = jnp.array([0.0, 1.0, 0.0, 0.0])
    for goes_on in (jnp.array([1.0, 0.0, 1.0, 1.0]), jnp.ones(4)):  # the second period ends it by itself, or by time
        w = _Window(after, after, reward, goes_on, last, jnp.ones(4))
        found = _targets(policy, value, s, w)
        behind = float(goes_on[1] * value(policy.scaled(after[1])))
        second = 0.2 * reward[1] + 0.8 * behind
        np.testing.assert_allclose(found[0], 0.2 * reward[0] + 0.8 * second, rtol=1e-12)
        np.testing.assert_allclose(found[1], second, rtol=1e-12)
        end = float(value(policy.scaled(after[3])))
        np.testing.assert_allclose(found[2], 0.2 * reward[2] + 0.8 * (0.2 * reward[3] + 0.8 * end), rtol=1e-12)


def test_observations_are_scaled_by_all_of_them_so_far(policy):
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=(2, 3, 5, 2))
    counts = np.ones((3, 5))
    counts[1, 2:] = 0.0  # an episode that ended: what stands still there is no observation
    first[1, 2:] = 100.0
    size = policy.mean.shape[0]
    t = short_horizon._Training(*[None] * 5, jnp.zeros(()), jnp.zeros(size), None)  # pyright: ignore
    nothing = np.full((3, 5, 2), 7.0), np.zeros((3, 5))
    for given, told in ((first, counts), nothing, (second, np.ones((3, 5)))):
        w = _Window(jnp.asarray(given), *[None] * 4, jnp.asarray(told))  # pyright: ignore
        count, mean, variance = _pooled(t, policy, w)
        t, policy = t._replace(told=count, variance=variance), policy.used_to(mean, variance)
    both = np.concatenate([first[counts > 0], second.reshape(-1, 2)])
    np.testing.assert_allclose(policy.mean, both.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(policy.spread, both.std(axis=0), rtol=1e-12)


@pytest.fixture(scope="module")
def trained(env, policy, tmp_path_factory):
    keep = tmp_path_factory.mktemp("kept") / "training"
    schedule = envs.ShortHorizon(iterations=4, **SMALL)
    return envs.learn(env, schedule, key=KEY, policy=policy, keep=keep), keep


@pytest.mark.slow
def test_training_that_was_interrupted_goes_on_where_it_was(env, policy, trained, tmp_path):
    def stop(told):
        if told.iteration == 2:
            raise KeyboardInterrupt

    schedule = envs.ShortHorizon(iterations=4, **SMALL)
    options = {"key": KEY, "policy": policy, "keep": tmp_path / "training"}
    first = envs.learn(env, schedule, report=stop, **options)
    assert (first.ended, len(first.history)) == ("interrupted", 2)
    second = envs.learn(env, schedule, **options)
    assert (second.ended, [told.iteration for told in second.history]) == ("all iterations", [3, 4])
    for a, b in zip(jax.tree.leaves(second.policy), jax.tree.leaves(trained[0].policy), strict=True):
        if eqx.is_array(a):
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_reports_count_and_are_finite(trained):
    history = trained[0].history
    assert [told.periods for told in history] == [20, 40, 60, 80]
    assert all(np.isfinite(told).all() and told.finite == 1.0 for told in history)


def test_a_schedule_that_makes_no_sense_is_refused(env):
    with pytest.raises(ValueError, match="`window` must be at least 1, got 0"):
        envs.learn(env, envs.ShortHorizon(window=0), key=KEY)
    with pytest.raises(ValueError, match="`value_batches` must divide"):
        envs.learn(env, envs.ShortHorizon(environments=3, window=5), key=KEY)
    with pytest.raises(ValueError, match="`discount` must be within 0 and 1"):
        envs.learn(env, envs.ShortHorizon(discount=1.1), key=KEY)
    with pytest.raises(ValueError, match="`saturation` must not be negative, got -1"):
        envs.learn(env, envs.ShortHorizon(saturation=-1.0), key=KEY)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_policy_is_learned_as_the_page_says(tmp_path, monkeypatch):
    """To hold the pendulum where it does not stay by itself, and where it takes two thirds of the motor's torque."""
    (tmp_path / "tasks").symlink_to(ROOT / "tasks")
    monkeypatch.chdir(tmp_path)
    (block,) = [b for b in blocks("docs/environments.md") if b.how.endswith("as_the_page_says")]
    names: dict = {}
    exec(compile(block.text, block.place, "exec"), names)
    assert np.mean(envs.steady_success(names["played"], 150)) >= 0.95
    before = envs.play(names["env"], envs.Policy(names["env"], key=KEY), jax.random.split(KEY, 20))
    assert not envs.steady_success(before, 150).any()
