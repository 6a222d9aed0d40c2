"""The forms in which libraries of JAX take environments: that of gymnax and that of Brax. Neither has to be installed.

Actions are in [-1, 1] and stand for what is between a motor's limits. A trainer that sees numbers of its program change
shape or type refuses an environment, so all that comes out has the type of the environment's floats.
"""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._results import EPISODE_RESULTS
from .._typing import Array, Float
from .environment import Environment, EnvState, Episode


class Box(NamedTuple):
    """A space of numbers between bounds, as far as gymnax' trainers ask for one."""

    low: Float[np.ndarray, "..."]
    high: Float[np.ndarray, "..."]
    shape: tuple[int, ...]
    dtype: Any

    def sample(self, key: Array) -> Array:
        """Evenly between the bounds."""
        return jax.random.uniform(key, self.shape, self.dtype, self.low, self.high)

    def contains(self, x: Array) -> Array:
        """Whether all numbers are within the bounds."""
        return jnp.all((x >= self.low) & (x <= self.high))


class GymnaxForm:
    """`reset(key, params)`, `step(key, state, action, params)`: gymnax' functions.

    `params` are the environment's own arrays (`Environment.episode`), so that a trainer passes them through its program
    as it does others. Where an episode ends, the next one begins; `info` has what the last period brought.
    """

    def __init__(self, env: Environment):
        self.env = env

    @property
    def name(self) -> str:
        """Of the scene."""
        return self.env.scene.name

    @property
    def default_params(self) -> Episode:
        """The environment's arrays."""
        return self.env.episode

    @property
    def num_actions(self) -> int:
        """Numbers of an action."""
        return len(self.env.actions)

    def reset(self, key: Array, params: Episode | None = None) -> tuple[Array, EnvState]:
        """Observation and state at the start of an episode."""
        state, observation = (params or self.env.episode).reset(key)
        return observation, state

    def step(
        self, key: Array, state: EnvState, action: Array, params: Episode | None = None
    ) -> tuple[Array, EnvState, Array, Array, dict[str, Array]]:
        """Observation, state, reward, whether the episode ended, and more. The key draws the noise, and the next
        start.
        """
        episode = params or self.env.episode
        raw = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
        state = eqx.tree_at(lambda s: s.key, state, raw)
        state, out, last = episode.step_or_reset(state, _asked(episode, action))
        done = out.terminated | out.truncated
        info = {
            "discount": 1.0 - out.terminated.astype(out.reward.dtype),
            "truncated": out.truncated,
            "success": out.success,
            "failed": out.cause != EPISODE_RESULTS.successful,
            "last_observation": last,
        }
        return out.observation, state, out.reward, done, info

    def observation_space(self, params: Episode | None = None) -> Box:
        """Anything."""
        shape, dtype = (self.env.observation_size,), _dtype(self.env)
        return Box(np.full(shape, -np.inf, dtype), np.full(shape, np.inf, dtype), shape, dtype)

    def action_space(self, params: Episode | None = None) -> Box:
        """Between -1 and 1."""
        shape, dtype = (len(self.env.actions),), _dtype(self.env)
        return Box(-np.ones(shape, dtype), np.ones(shape, dtype), shape, dtype)


class BraxState(eqx.Module):
    """An episode under way, with the fields that Brax' wrappers and trainers read and replace."""

    pipeline_state: EnvState
    obs: Float[Array, " numbers"]
    reward: Float[Array, ""]
    done: Float[Array, ""]  # 0 or 1
    metrics: dict[str, Array]
    info: dict[str, Any]

    def replace(self, **changes: Any) -> "BraxState":
        """The same with other fields."""
        return dataclasses.replace(self, **changes)


class BraxForm:
    """`reset(key)`, `step(state, action)`: Brax' functions. Brax' own wrappers vectorise and begin the next episode."""

    def __init__(self, env: Environment):
        self.env = env

    @property
    def observation_size(self) -> int:
        """Numbers of an observation."""
        return self.env.observation_size

    @property
    def action_size(self) -> int:
        """Numbers of an action."""
        return len(self.env.actions)

    @property
    def backend(self) -> str:
        """The engine."""
        return "spookax"

    @property
    def dt(self) -> float:
        """The control period [s]."""
        return self.env.control_period

    @property
    def unwrapped(self) -> "BraxForm":
        """Itself."""
        return self

    def reset(self, rng: Array) -> BraxState:
        """The start of an episode."""
        state, observation = self.env.episode.reset(rng)
        zero = jnp.zeros((), observation.dtype)
        return BraxState(state, observation, zero, zero, {"success": zero}, {"truncation": zero, "failed": zero})

    def step(self, state: BraxState, action: Array) -> BraxState:
        """One control period under an action in [-1, 1]."""
        episode = self.env.episode
        moved, out = episode.step(state.pipeline_state, _asked(episode, action))
        dtype = out.reward.dtype
        done = (out.terminated | out.truncated).astype(dtype)
        failed = (out.cause != EPISODE_RESULTS.successful).astype(dtype)
        told = state.info | {"truncation": out.truncated.astype(dtype), "failed": failed}
        metrics = state.metrics | {"success": out.success.astype(dtype)}
        return BraxState(moved, out.observation, out.reward, done, metrics, told)


def _asked(episode: Episode, action: Array) -> Array:
    """Actions in the motors' units."""
    low, high = jnp.asarray(episode.actuation.low), jnp.asarray(episode.actuation.high)
    return (high + low) / 2 + (high - low) / 2 * action


def _dtype(env: Environment) -> np.dtype:
    return np.dtype(env.episode.engine.params.mass.dtype)
