"""A thousand episodes of every task that ships under random actions: whether numbers stay finite, whether a step that
fails ends its episode with its cause, and whether episodes are the same again, in a batch and alone.
"""

import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import spookax as sx
from spookax._results import EPISODE_RESULTS
from spookax.envs.environment import Episode
from spookax.stepping.rollout import in_pieces

from .measure import Row, row

EPISODES = 1000
ALONE, SHORT = 4, 0.5  # episodes that are also run alone, and the time up to which rounding has not grown [s]


class Played(NamedTuple):
    """Of every episode."""

    finite: jax.Array  # whether all observations and rewards were
    failed: jax.Array  # whether a step failed
    unreported: jax.Array  # whether one did and the episode went on, or ended without its cause
    periods: jax.Array  # up to its end
    early: jax.Array  # an observation after a short time
    last: jax.Array  # its last observation
    total: jax.Array  # sum of its rewards


def run(part: str | None = None) -> list[Row]:
    """Of every task, or one."""
    return [line for name in ([part] if part else sx.envs.task_names()) for line in _task(name)]


def played(env: sx.envs.Environment, keys: jax.Array) -> Played:
    """Episodes under actions that are drawn evenly within their limits, anew in every period."""
    return _played(env.episode, keys, int(env.episode.limit), round(SHORT / env.control_period))


@sx.jit
def _played(episode: Episode, keys: jax.Array, length: int, short: int) -> Played:
    low, high = jnp.asarray(episode.actuation.low), jnp.asarray(episode.actuation.high)

    def one(key: jax.Array) -> Played:
        begin, draws = jax.random.split(key)
        state, observation = episode.reset(begin)

        def period(carry, given):
            state, finite, failed, unreported, early, total = carry
            k, key = given
            drawn = jax.random.uniform(key, low.shape, observation.dtype)
            state, out = episode.step(state, low + (high - low) * drawn)
            finite &= jnp.all(jnp.isfinite(out.observation)) & jnp.isfinite(out.reward)
            fails = out.cause != EPISODE_RESULTS.successful
            unreported |= fails & ~(out.terminated & state.over)
            early = jnp.where(k == short, out.observation, early)
            return (state, finite, failed | fails, unreported, early, total + out.reward), out.observation

        yes, zero = jnp.ones((), bool), jnp.zeros((), observation.dtype)
        begun = state, yes, ~yes, ~yes, observation, zero
        ended, seen = jax.lax.scan(period, begun, (jnp.arange(1, length + 1), jax.random.split(draws, length)))
        state, finite, failed, unreported, early, total = ended
        return Played(finite, failed, unreported, state.count, early, seen[-1], total)

    return in_pieces(one, (keys,))


def _task(name: str) -> list[Row]:
    env = sx.envs.make(name)
    keys = jax.random.split(jax.random.PRNGKey(0), EPISODES)
    began = time.perf_counter()
    found = jax.tree.map(np.asarray, played(env, keys))
    seconds = time.perf_counter() - began
    again = jax.tree.map(np.asarray, played(env, keys))
    same = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(found, again, strict=True))
    singly = np.concatenate([np.asarray(played(env, keys[i : i + 1]).early) for i in range(ALONE)])
    off = np.max(np.abs(singly - found.early[:ALONE]) / np.maximum(1.0, np.abs(singly)))
    return [
        row(name, "episodes", EPISODES, ""),
        row(name, "with a number that is not finite", float((~found.finite).sum()), ""),
        row(name, "with a step that failed", float(found.failed.sum()), ""),
        row(name, "where that did not end it with its cause", float(found.unreported.sum()), ""),
        row(name, "episodes that come out otherwise the second time", float(not same), ""),
        row(name, f"alone and in the batch after {SHORT:g} s, apart at most", float(off), ""),
        row(name, "mean length", float(found.periods.mean() * env.control_period), "s"),
        row(name, "time, with compilation", seconds, "s"),
    ]
