"""Environments per second beside MJX and MuJoCo, and what the gradient of an episode costs in time and memory.

The mechanism is the demo's Furuta pendulum. An environment has more to do than its peers, which only step: noise of
encoders, reward, limits, and the next episode where one ends.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import spookax as sx
from spookax.stepping.rollout import in_pieces

from . import peer
from .measure import MIB, Row, beside, compile_now, row, timed
from .mechanisms import furuta, repeated

SUBSTEPS = 5
BATCHES = {1: 200, 256: 20, 4096: 4}  # environments: control periods in a call
HORIZONS = (50, 200, 800)  # control periods of an episode that is differentiated
BUDGET = 4.0  # of the repetitions of one call [s]


def run(part: str = "") -> list[Row]:
    """Rows of both parts, or of one."""
    return [line for name, rows in PARTS.items() if part in ("", name) for line in rows()]


def environment(time_limit: float = 10.0) -> sx.envs.Environment:
    """The mechanism with the task of swinging up, at a control rate of a fifth of the steps."""
    scene = furuta().scene
    upright = sx.envs.Configuration({"elbow": np.pi}, weight={"elbow": 0.5}, start={"elbow": 0.1, "shoulder": 0.1})
    (drive,) = scene.motors
    period = SUBSTEPS * scene.step
    return sx.envs.Environment(
        scene, upright, actions={drive: 4.0}, control_period=period, time_limit=round(time_limit / period) * period
    )


def speed() -> list[Row]:
    """Control periods per second under given actions, of so many environments on all threads."""
    env, rows = environment(), []
    for size, periods in BATCHES.items():
        rows += _batch(env, size, periods)
    return rows


def _batch(env: sx.envs.Environment, size: int, periods: int) -> list[Row]:
    low, high = env.action_limits
    drawn = np.random.default_rng(0).uniform(low, high, (periods, size, len(low)))
    actions = jnp.asarray(drawn)
    states, _ = env.reset_many(jax.random.split(jax.random.PRNGKey(0), size))

    @sx.jit
    def ours(episode: Any, states: Any, actions: Any) -> Any:
        def one(state: Any, actions: Any) -> Any:
            def period(state: Any, action: Any) -> Any:
                state, out, _ = episode.step_or_reset(state, action)
                return state, (out.observation, out.reward)

            return jax.lax.scan(period, state, actions)

        return in_pieces(one, (states, jnp.swapaxes(actions, 0, 1)))

    found = timed(lambda: ours(env.episode, states, actions), BUDGET)
    done = size * periods
    theirs = {}
    if peer.mujoco():
        mujoco = peer.Mujoco.of(furuta())
        held = np.repeat(np.swapaxes(drawn, 0, 1), SUBSTEPS, axis=1)
        threads = 1 if size == 1 else peer.all_threads()
        theirs[mujoco.label] = done / timed(lambda: mujoco.rollout(held, threads), BUDGET).best
        if peer.mjx():
            mjx = peer.Mjx.of(mujoco)
            many = jax.vmap(mjx.rollout, in_axes=(None, 0, 0)) if size > 1 else mjx.rollout
            data = repeated(mjx.data, size) if size > 1 else mjx.data
            other = compile_now(many, mjx.model, data, jnp.asarray(held if size > 1 else held[0]))
            given = jnp.asarray(held if size > 1 else held[0])
            theirs[mjx.label] = done / timed(lambda: other.call(mjx.model, data, given), BUDGET).best
    return beside(f"batch of {size}", "control periods per second", "1/s", done / found.best, theirs)


def gradients() -> list[Row]:
    """Of the mean reward of an episode by its actions: time over that of the episode, memory against the horizon."""
    found = [_gradient(horizon) for horizon in HORIZONS]
    exponent = np.polyfit(np.log(HORIZONS), np.log([size for _, size in found]), 1)[0]
    return [
        *(line for rows, _ in found for line in rows),
        row("memory", "exponent of the horizon", float(exponent), ""),
    ]


def _gradient(horizon: int) -> tuple[list[Row], float]:
    """Rows of an episode of so many control periods, and what its gradient needs besides [bytes]."""
    env = environment(horizon * SUBSTEPS * furuta().scene.step)
    state, _ = env.reset(jax.random.PRNGKey(0))
    actions = 0.5 * jnp.sin(jnp.arange(horizon) / 20.0)[:, None]

    def reward(actions: Any, episode: Any, state: Any) -> Any:
        def period(state: Any, action: Any) -> Any:
            state, out = episode.step(state, action)
            return state, out.reward

        return jnp.mean(sx.envs.checkpointed_scan(period, state, actions)[1])

    given = actions, env.episode, state
    forward, slope = compile_now(reward, *given), compile_now(jax.grad(reward), *given)
    alone = timed(lambda: forward.call(*given), BUDGET).processor
    both = timed(lambda: slope.call(*given), BUDGET).processor
    memory = slope.temporary or np.nan
    case = f"episode of {horizon} control periods"
    rows = [
        row(case, "processor time", alone * 1e3, "ms"),
        row(case, "gradient by its actions", both * 1e3, "ms", over=alone * 1e3, to="the episode"),
        row(case, "temporary memory of the gradient", memory / MIB, "MiB"),
    ]
    return rows, memory


PARTS = {"speed": speed, "gradients": gradients}
