"""Tasks and the files that say them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from envs.rigs import environment, scene, task

import spookax as sx
from spookax import envs
from spookax._results import EPISODE_RESULTS
from spookax.envs import task_files
from spookax.scene import FileError, read_scene, write_scene
from spookax.scene.located import load_located, validate
from spookax.stepping.rollout import in_pieces


@pytest.mark.parametrize("name", envs.task_names())
def test_a_task_that_ships_names_what_its_scene_has(name):
    file = task_files._folder() / f"{name}.yaml"
    given = validate(load_located(file), task_files.TaskFile)
    mechanism = read_scene(file.parent / given.scene)
    assert set(given.actions) <= set(mechanism.motors)
    axes = mechanism.free_axes()
    if given.task.type == "configuration":
        for key in ("goal", "weight", "rate_weight", "start_rate", "at", "within"):
            assert set(getattr(given.task, key)) <= set(axes), key
    assert set(given.task.start) <= set(axes)
    for names in (given.observation.cos_sin, getattr(given.observation, "differences", [])):
        assert set(names) <= set(mechanism.sensors)


FILE = {
    "spookax": 1,
    "scene": "driven.yaml",
    "task": {"type": "configuration", "goal": {"pivot": 3.14}},
    "actions": {"drive": 4.0},
    "control_period": 0.02,
}


@pytest.fixture
def folder(tmp_path):
    write_scene(scene(), tmp_path / "driven.yaml")
    return tmp_path


def _written(folder, **changes):
    file = folder / "swing.yaml"
    file.write_text(yaml.safe_dump(FILE | changes, sort_keys=False))
    return file


def test_a_task_file_makes_an_environment_and_arguments_take_its_place(folder):
    env = envs.make(_written(folder), control_period=0.05, time_limit=1.0)
    assert (env.control_period, int(env.episode.limit), env.actions) == (0.05, 20, ("drive",))
    assert env.scene.name == "driven"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scene": "other.yaml"}, r"swing.yaml:2: scene: no such file"),
        ({"task": {"type": "configuration"}}, r"swing.yaml:3: task.*goal"),
        ({"task": {"type": "swing", "goal": {}}}, r"swing.yaml:4: task.*'swing'|type"),
        ({"actions": {}}, r"swing.yaml:\d+: actions"),
        ({"action_dely": 0.1}, r"action_dely"),
        ({"time_limit": -1}, r"time_limit: must be"),
    ],
)
def test_a_task_file_is_refused_with_line_and_cure(folder, changes, message):
    with pytest.raises(FileError, match=message):
        envs.make(_written(folder, **changes))


def test_what_does_not_fit_the_scene_is_refused_with_the_file(folder):
    with pytest.raises(ValueError, match=r"swing.yaml: the scene has no motor 'drvie'. Did you mean `drive`"):
        envs.make(_written(folder, actions={"drvie": 1.0}))
    with pytest.raises(ValueError, match=r"there is no task 'furuta'. Did you mean `furuta_balance`"):
        envs.make("furuta")


@sx.jit
def _moment_at(episode, angle, rate):
    state = sx.state_from_joints(episode.system, episode.engine.params, {"pivot": {"position": angle, "rate": rate}})
    memory = jnp.array([0.1, 0.0, -0.2])
    return envs.Moment.of(episode.system, episode.engine, state, state, jnp.asarray(0.25), memory)


def _moment(env, angle, rate=0.0):
    return _moment_at(env.episode, np.asarray(angle), np.asarray(rate))


def test_rewards_are_what_the_documentation_says():
    env = environment()
    upright = task(rate_weight={"pivot": 0.1}, action_weight=0.5, within={"pivot": (-4.0, 4.0)}, tolerance=0.1)
    after = _moment(env, np.pi - 0.3, 2.0)
    reward = upright.reward(after, jnp.array([0.4]), after)
    np.testing.assert_allclose(reward, 1 - (1 - np.cos(0.3)) - 0.1 * 4 - 0.5 * 0.16, rtol=1e-9)
    assert not bool(upright.succeeds(after))
    turned = _moment(env, -np.pi + 0.05)
    assert bool(upright.succeeds(turned))  # a turn earlier is upright, too
    assert not bool(upright.ends(turned))
    assert bool(upright.ends(_moment(env, 4.1)))
    way = envs.Point("rod", (0, 0, -1.0), (0, 0, 0), circle={"x": 0.3, "z": 0.2}, turn=1.0, scale=0.5, tolerance=0.1)
    there = _moment(
        env, 0.0
    )  # the tip is 1 m below; a quarter of a turn has gone: the target is 0.2 m above its middle
    tells = way.tells(there)
    np.testing.assert_allclose([tells[f"target.{x}"] for x in "xyz"], [0.1, 0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose([tells[f"off.{x}"] for x in "xyz"], [-0.1, 0.0, -1.0], atol=1e-12)
    np.testing.assert_allclose(way.reward(there, jnp.zeros(1), there), np.exp(-np.hypot(0.1, 1.0) / 0.5), rtol=1e-9)


PUCK = {"mass": 0.2, "inertia": (1e-3, 1e-3, 1e-3), "initial": {"position": (1.0, 0.5, 0.3), "rotation": (0, 0.3, 0)}}


def test_a_free_body_starts_where_the_scene_says_and_the_task_shifts_it():
    mechanism = scene()
    bodies = {name: body.model_dump(exclude_unset=True) for name, body in mechanism.bodies.items()} | {"puck": PUCK}
    mechanism = scene(bodies=bodies)
    way = envs.Point("puck", (0, 0, 0), (0, 0, 0), shift=(0.1, 0.2, 0.0))
    env = environment(scene=mechanism, task=way)
    keys = jax.random.split(jax.random.key(0), 40)
    states, told = env.reset_many(keys)
    place = np.asarray(states.past.r)[:, 0, list(mechanism.bodies).index("puck")]
    off = place - np.array(PUCK["initial"]["position"])
    assert (np.abs(off) <= [0.1, 0.2, 0.0]).all()
    assert (np.ptp(off, axis=0) > [0.1, 0.2, -1]).all()
    # the names belong to the numbers
    seen = dict(zip(env.observation_names, np.asarray(told).T, strict=True))
    np.testing.assert_allclose(seen["off.x"], place[:, 0], atol=1e-12)
    np.testing.assert_allclose(seen["target.x"], 0.0, atol=1e-12)
    tied = environment(scene=mechanism, task=envs.Standing("puck", 0.3))
    moment = tied.episode.moment(tied.reset(jax.random.key(0))[0])
    assert float(moment.up("puck")) == pytest.approx(np.cos(0.3))
    assert not bool(tied.episode.task.succeeds(moment))  # it leans by more than 0.2


def test_standing_is_rewarded_as_the_documentation_says():
    env = environment()
    after = _moment(env, 0.4, 2.0)  # the rod's frame is at its pivot, its centre of mass half a metre below
    up, speed = np.cos(0.4), 2.0 * 0.5 * np.cos(0.4)
    task = envs.Standing("rod", 0.1, scale=0.5, velocity=(0.2, 0.0), velocity_scale=1.5, action_weight=0.5)
    slip = float(after.velocity("rod")[0]) - 0.2
    assert abs(slip + 0.2) == pytest.approx(speed, rel=0.05)
    expected = np.exp(-((0.1 / 0.5) ** 2)) * (1 + up) / 2 * np.exp(-((slip / 1.5) ** 2)) - 0.5 * 0.16
    np.testing.assert_allclose(task.reward(after, jnp.array([0.4]), after), expected, rtol=1e-9)
    for changes, success in (({}, False), ({"tilt": 0.5}, True), ({"tilt": 0.5, "velocity": (9.0, 0.0)}, False)):
        given = {"tolerance": 0.2, "velocity": (0.2, 0.0), "velocity_scale": 1.5} | changes
        assert bool(envs.Standing("rod", 0.1, **given).succeeds(after)) is success
    assert not bool(task.ends(after))
    assert bool(envs.Standing("rod", 0.1, within=(0.05, 1.0)).ends(after))
    with pytest.raises(ValueError, match="no body 'rode'"):
        environment(task=envs.Standing("rode", 0.1))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cart_pole_balance", "pendubot_swing_up", "five_bar_path"])
def test_random_actions_break_nothing(name):
    """Stops, friction and a closed loop: finite numbers, and no failed step that is not the end of its episode."""
    env = envs.make(name, time_limit=2.0)
    low, high = env.action_limits

    def one(episode, key):
        key, begin = jax.random.split(key)
        state, _ = episode.reset(begin)

        def body(state, key):
            state, out = episode.step(state, jax.random.uniform(key, low.shape, minval=low, maxval=high))
            failed = out.cause != EPISODE_RESULTS.successful
            return state, (out.observation, out.reward, failed, out.terminated)

        return jax.lax.scan(body, state, jax.random.split(key, int(env.episode.limit)))[1]

    @sx.jit
    def run(episode, keys):
        return in_pieces(lambda key: one(episode, key), (keys,))

    seen, reward, failed, ended = run(env.episode, jax.random.split(jax.random.PRNGKey(0), 24))
    assert np.isfinite(seen).all()
    assert np.isfinite(reward).all()
    assert (np.asarray(ended) | ~np.asarray(failed)).all()
    assert np.asarray(failed).mean() == 0.0
