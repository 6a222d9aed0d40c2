"""The functional environment: its motion is the simulator's, its readings those of a causal observer."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from envs.rigs import DELAY, STEP, SUBSTEPS, environment, scene, task

import spookax as sx
from spookax import envs
from spookax._results import EPISODE_RESULTS
from spookax.constraints import prepare

PERIODS = 12


@pytest.fixture(scope="module")
def env():
    return environment(action_delay=3 * STEP)


@pytest.fixture(scope="module")
def episode(env):
    """States and outcomes under random actions."""
    actions = np.random.default_rng(1).uniform(-6, 6, (PERIODS, 1))
    state, first = env.reset(jax.random.key(3))
    states, outcomes = [state], []
    for action in actions:
        state, outcome = env.step(state, action)
        states.append(state)
        outcomes.append(outcome)
    return actions, states, first, outcomes


def _rollout(env, start, actions):
    """The same by the simulator: actions within their limits, held over two steps, three steps late."""
    told = np.concatenate([np.zeros((3, 1)), np.repeat(np.clip(actions, -4, 4), SUBSTEPS, axis=0)])
    system, params = env.episode.system, env.episode.engine.params
    return sx.rollout(system, params, start, told[: PERIODS * SUBSTEPS], half_kick=False)


def test_the_motion_is_that_of_a_rollout_under_the_same_commands(env, episode):
    actions, states, _, outcomes = episode
    run = _rollout(env, jax.tree.map(lambda a: a[0], states[0].past), actions)
    position = np.array([env.episode.moment(s).position for s in states])
    np.testing.assert_allclose(position, run.position[::SUBSTEPS], rtol=0, atol=1e-12)
    # the rate of a rollout at its last time is what is known there, too
    np.testing.assert_allclose(env.episode.moment(states[-1]).rate, run.rate[-1], rtol=0, atol=1e-11)
    assert not any(bool(o.terminated) for o in outcomes)


def test_a_late_sensor_reads_the_motion_that_much_earlier(env, episode):
    _, states, first, outcomes = episode
    observed = np.array([first, *(o.observation for o in outcomes)])
    assert DELAY == 2.5 * STEP
    assert env.observation_names == ("now", "late")
    angle = np.array([env.episode.moment(s).position[0] for s in states])
    np.testing.assert_allclose(observed[:, 0], angle, rtol=0, atol=1e-10)
    # two and a half steps ago, by the parabola through the steps around it
    start = jax.tree.map(lambda a: a[0], states[0].past)
    q = np.asarray(_rollout(env, start, episode[0]).position[:, 0])
    for k in range(3, PERIODS + 1):
        j = k * SUBSTEPS - 3
        np.testing.assert_allclose(observed[k, 1], (6 * q[j] + 3 * q[j + 1] - q[j - 1]) / 8, rtol=0, atol=1e-9)
        assert abs(observed[k, 1] - angle[k]) > 1e-3, "no motion to tell the two apart"


def test_before_its_delay_a_late_sensor_reads_the_start(episode):
    _, _states, first, outcomes = episode
    np.testing.assert_allclose(first[1], first[0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(outcomes[0].observation[1], first[0], rtol=0, atol=1e-10)


def test_the_same_key_is_the_same_episode_and_a_batch_is_many(env, episode):
    _actions, _states, _first, _outcomes = episode
    keys = jax.random.split(jax.random.key(7), 3)
    batch, seen = env.reset_many(keys)
    again, also = env.reset_many(keys)
    np.testing.assert_array_equal(seen, also)
    push = np.linspace(-4, 4, 3)[:, None]
    _moved, out = env.step_many(batch, push, again=True)
    _same, repeated = env.step_many(again, push, again=True)
    np.testing.assert_array_equal(out.observation, repeated.observation)
    for k in range(3):
        state, observation = env.reset(keys[k])
        np.testing.assert_allclose(seen[k], observation, rtol=0, atol=1e-13)
        _, alone = env.step(state, push[k])
        np.testing.assert_allclose(out.observation[k], alone.observation, rtol=0, atol=1e-12)
        np.testing.assert_allclose(out.reward[k], alone.reward, rtol=0, atol=1e-12)
    assert len(set(np.asarray(seen[:, 0]).tolist())) == 3


def test_what_is_no_number_ends_the_episode_with_its_cause_and_the_rest_stays(env):
    state, first = env.reset(jax.random.key(0))
    moved, out = env.step(state, np.array([np.nan]))
    assert bool(out.terminated)
    assert not bool(out.truncated)
    assert out.cause == EPISODE_RESULTS.nonfinite_action
    assert "NaN or an infinity" in EPISODE_RESULTS[out.cause]
    np.testing.assert_allclose(out.observation, first, rtol=0, atol=1e-10)
    still, out = env.step(moved, np.array([1.0]))  # and stands still
    assert bool(out.terminated)
    assert out.cause == EPISODE_RESULTS.nonfinite_action
    assert float(out.reward) == 0.0
    np.testing.assert_array_equal(still.past.r, state.past.r)


def test_a_step_that_fails_ends_the_episode_with_its_cause(env):
    state, _ = env.reset(jax.random.key(0))
    endless = jnp.asarray(np.full(3, np.inf))
    heavy = eqx.tree_at(lambda e: e.engine.params.gravity, env.episode, endless)
    heavy = eqx.tree_at(lambda e: e.engine.gravity, heavy, endless)
    _moved, out = sx.envs.environment._step(heavy, state, jnp.zeros(1))
    assert bool(out.terminated)
    assert out.cause == EPISODE_RESULTS.nonfinite_velocity
    assert np.isfinite(out.observation).all()
    assert np.isfinite(out.reward)


def test_the_time_limit_truncates_and_another_episode_begins(env):
    short = eqx.tree_at(lambda e: e.limit, env.episode, np.asarray(2, dtype=np.int32))
    states, _ = env.reset_many(jax.random.split(jax.random.key(0), 3))
    push = jnp.asarray(np.linspace(-4, 4, 3)[:, None])
    states, out = sx.envs.environment._step_many(short, states, push, True, None)
    assert not np.asarray(out.truncated).any()
    old = np.asarray(out.observation)
    states, out = sx.envs.environment._step_many(short, states, push, True, None)
    assert np.asarray(out.truncated).all()
    assert not np.asarray(out.terminated).any()
    assert not np.asarray(states.count).any()
    new = np.asarray(out.observation)
    np.testing.assert_allclose(new[:, 0], new[:, 1], rtol=0, atol=1e-10)  # no motion yet
    assert abs(new - old).max(axis=1).min() > 1e-3


def test_actions_keep_their_limits_rates_and_delay():
    env = environment(actions={"drive": (-1.0, 4.0)}, action_rates={"drive": 50.0}, action_delay=3 * STEP)
    drives, system = env.episode.actuation, env.episode.system
    assert drives.kept == 2
    earlier, period = drives.first(), jnp.asarray(SUBSTEPS * STEP)
    told = []
    for asked in (10.0, 10.0, -10.0, -10.0, -10.0, -10.0, -10.0):
        command, earlier = drives.commands(system, earlier, jnp.array([asked]), period)
        told += command[:, 0].tolist()
    acting = [1.0, 2.0, 1.0, 0.0, -1.0, -1.0, -1.0]  # by 50 / s in 0.02 s, down to -1
    np.testing.assert_allclose(told, ([0.0] * 3 + np.repeat(acting, SUBSTEPS).tolist())[: len(told)], atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": {"drvie": 1.0}}, r"no motor 'drvie'. Did you mean `drive`"),
        ({"actions": {}}, "names no motor"),
        ({"actions": {"drive": (1.0, 1.0)}}, "grow from low to high"),
        ({"action_rates": {"other": 1.0}}, "names 'other', which is not among"),
        ({"control_period": 0.015}, "`control_period` must be a multiple of the step of 0.01 s, got 0.015 s"),
        ({"action_delay": 0.004}, "`action_delay` must be a multiple of the step of 0.01 s, got 0.004 s"),
        ({"time_limit": 0.51}, "`time_limit` must be a multiple"),
        ({"observation": envs.Sensors(("encoder",))}, "no sensor 'encoder'"),
        ({"observation": envs.Sensors(cos_sin=("other",))}, "has no sensor 'other'"),
        ({"observation": envs.Coordinates((), ())}, "observation is of nothing"),
        ({"observation": envs.Coordinates(("pivto",))}, "no joint coordinate 'pivto'. Did you mean `pivot`"),
        ({"task": task(goal={"elbow": 0.0})}, "no joint coordinate 'elbow'"),
        ({"task": envs.Point("rodd", (0, 0, 0), (0, 0, 0))}, "no body 'rodd'. Did you mean `rod`"),
        ({"scene": scene(sensors={})}, "the observation has no sensor"),
        ({"randomise": envs.Uniform({"bodies.rod.mas": 0.1})}, "no parameter 'bodies.rod.mas'"),
    ],
)
def test_bad_input_gets_one_clear_error(changes, message):
    with pytest.raises(ValueError, match=message):
        environment(**changes)


def test_an_action_of_another_shape_is_refused(env):
    state, _ = env.reset(jax.random.key(0))
    with pytest.raises(ValueError, match=r"shape \(1,\) \(motors: drive\), got \(2,\)"):
        env.step(state, np.zeros(2))


def _return(episode, key, actions):
    """Sum of rewards of an episode."""
    state, _ = episode.reset(key)

    def body(state, action):
        state, out = episode.step(state, action)
        return state, (out.reward, out.terminated)

    _, (reward, over) = jax.lax.scan(body, state, actions)
    return jnp.sum(reward), over


@pytest.mark.slow
def test_the_gradient_of_a_return_is_its_central_difference():
    """Dry friction, a rail with stops and a motor that lags: by all actions and by a mass, no friction switching."""
    cart = sx.read_scene(Path(__file__).parents[2] / "scenes/cart_pole.yaml")
    drive = envs.Configuration({"pivot": np.pi}, weight={"rail": 0.5}, at={"pivot": 1.0}, start={"pivot": 0.1})
    env = envs.Environment(cart, drive, actions={"belt": 12.0}, control_period=0.02, action_delay=0.005)
    actions = np.linspace(6.0, 9.0, 30)[:, None]  # one way: the cart slides all the time
    key = jax.random.PRNGKey(2)

    def of(mass, actions):
        engine = prepare(env.episode.system, eqx.tree_at(lambda p: p.mass, env.episode.engine.params, mass))
        return _return(eqx.tree_at(lambda e: e.engine, env.episode, engine), key, actions)

    mass = env.episode.engine.params.mass
    (_, over), slopes = sx.jit(jax.value_and_grad(of, argnums=(0, 1), has_aux=True))(mass, jnp.asarray(actions))
    assert not np.asarray(over).any()
    way = np.random.default_rng(0).normal(size=actions.shape)
    call, d = sx.jit(lambda mass, actions: of(mass, actions)[0]), 1e-5
    by_actions = (call(mass, actions + d * way) - call(mass, actions - d * way)) / (2 * d)
    heavier = np.array([0.0, d])
    by_mass = (call(mass + heavier, actions) - call(mass - heavier, actions)) / (2 * d)
    assert abs(float(by_actions)) > 1e-3
    assert abs(float(by_mass)) > 1e-3
    np.testing.assert_allclose(np.sum(slopes[1] * way), by_actions, rtol=1e-5)
    np.testing.assert_allclose(slopes[0][1], by_mass, rtol=1e-5)


@pytest.mark.slow
def test_32_bits_move_as_64_do_and_joints_are_softer():
    softer = {"regularisation": {"relative_compliance": 1e-4, "v_creep": 1e-3}}

    def run(**changes):
        env = environment(scene=scene(**changes), time_limit=1.0, task=task(start_rate={}, start={}))
        actions = jnp.asarray(4 * np.sin(np.arange(40) / 4)[:, None], dtype=env.episode.engine.params.mass.dtype)
        reward, _ = sx.jit(_return)(env.episode, jax.random.PRNGKey(0), actions)
        return env, float(reward)

    _, expected = run(**softer)
    with jax.enable_x64(False):
        small, found = run()
    assert small.episode.engine.params.mass.dtype == jnp.float32
    assert small.scene.regularisation.relative_compliance == 1e-4
    assert environment().scene.regularisation.relative_compliance == 1e-6
    # 40 rewards after up to 80 steps, each rounded to 1e-7 of an angle of up to 3 rad
    np.testing.assert_allclose(found, expected, rtol=0, atol=40 * 80 * 3 * np.finfo(np.float32).eps)
