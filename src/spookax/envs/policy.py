"""Policies: from an observation to an action, and what they do in episodes."""

import json
import os
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from .._compiled import jit
from .._typing import Array, Bool, Float
from ..stepping.batches import in_pieces, spread_of
from .environment import Environment, Episode, Outcome

_FORM = 1  # of the file of a policy
_LEAST_SPREAD = 1e-3  # of an observation that never changes


class Policy(eqx.Module):
    """A network of observations, and noise about what it says: a Gaussian whose numbers tanh brings within the limits.

    `policy(observation)` is the action without noise, `policy.sample(observation, noise)` that with standard normal
    `noise`, as smooth in the policy as it is: both in the motors' units. Observations count as they differ from
    `mean`, in `spread`.
    """

    net: eqx.nn.MLP
    log_sd: Float[Array, " actions"]
    mean: Float[Array, " numbers"]
    spread: Float[Array, " numbers"]
    middle: Float[Array, " actions"]  # of the limits of the actions
    reach: Float[Array, " actions"]  # half the distance between them

    def __init__(self, env: Environment, *, width: int = 64, depth: int = 2, sd: float = 0.4, key: Array):
        """Untrained, for the observations and actions of an environment. `sd`: of the noise at first, where the limits
        are at -1 and 1.
        """
        size, actions, dtype = env.observation_size, len(env.actions), jnp.result_type(float)
        net = eqx.nn.MLP(size, actions, width, depth, jax.nn.tanh, dtype=dtype, key=key)
        # it says little at first: actions at their limits have no derivative to speak of
        self.net = eqx.tree_at(lambda n: n.layers[-1].weight, net, replace_fn=lambda w: 0.1 * w)
        self.log_sd = jnp.full(actions, np.log(sd), dtype)
        self.mean, self.spread = jnp.zeros(size, dtype), jnp.ones(size, dtype)
        low, high = (jnp.asarray(limit, dtype) for limit in env.action_limits)
        self.middle, self.reach = (high + low) / 2, (high - low) / 2

    def __call__(self, observation: Float[Array, " numbers"]) -> Float[Array, " actions"]:
        return self.within(self.net(self.scaled(observation)))

    def sample(
        self, observation: Float[Array, " numbers"], noise: Float[Array, " actions"]
    ) -> Float[Array, " actions"]:
        """The action with this noise."""
        return self.within(self.said(observation, noise))

    def said(self, observation: Float[Array, " numbers"], noise: Float[Array, " actions"]) -> Float[Array, " actions"]:
        """What the network says with this noise, before it is brought within the limits."""
        return self.net(self.scaled(observation)) + jnp.exp(self.log_sd) * noise

    def within(self, said: Float[Array, " actions"]) -> Float[Array, " actions"]:
        """The action within the limits, which are at infinity."""
        return self.middle + self.reach * jnp.tanh(said)

    def scaled(self, observation: Float[Array, " numbers"]) -> Float[Array, " numbers"]:
        """What the network sees."""
        return (observation - self.mean) / self.spread

    def used_to(self, mean: Array, variance: Array) -> "Policy":
        """The same network for observations of this mean and variance."""
        spread = jnp.maximum(jnp.sqrt(variance), _LEAST_SPREAD)
        return eqx.tree_at(lambda p: (p.mean, p.spread), self, (mean, spread))

    def save(self, file: str | os.PathLike[str], env: Environment) -> None:
        """Write it into a file, from which `load_policy` reads it, with the names of what `env` shows it and takes."""
        head = _Head(_FORM, self.net.width_size, self.net.depth, self.mean.dtype.itemsize * 8, *_names(env))
        with open(file, "wb") as out:
            out.write((json.dumps(head._asdict()) + "\n").encode())
            eqx.tree_serialise_leaves(out, self)


class _Head(NamedTuple):
    """First line of the file of a policy."""

    form: int
    width: int
    depth: int
    bits: int  # of its floats
    observations: list[str]
    actions: list[str]


def load_policy(file: str | os.PathLike[str], env: Environment) -> Policy:
    """The policy in a file, for an environment with the same observations and actions.

    **Raises:** `ValueError` for a file that holds none, or one for other observations, actions or floats.
    """
    with open(file, "rb") as given:
        try:
            head = _Head(**json.loads(given.readline()))
        except (ValueError, TypeError):
            raise ValueError(f"{file}: this is no policy") from None
        if head.form != _FORM:
            raise ValueError(f"{file}: written by another version: train again")
        for what, said, here in zip(_Head._fields[-2:], head[-2:], _names(env), strict=True):
            if said != here:
                there, ours = ", ".join(said), ", ".join(here)
                raise ValueError(f"{file}: a policy whose {what} are {there}; here they are {ours}")
        like = Policy(env, width=head.width, depth=head.depth, key=jax.random.PRNGKey(0))
        if head.bits != like.mean.dtype.itemsize * 8:
            raise ValueError(f"{file}: a policy of {head.bits}-bit floats. `spookax.enable_x64()` makes them 64-bit")
        return eqx.tree_deserialise_leaves(given, like)


def _names(env: Environment) -> tuple[list[str], list[str]]:
    return list(env.observation_names), list(env.actions)


def play(env: Environment, policy: Callable[[Array], Array], keys: Array, periods: int | None = None) -> Outcome:
    """What a policy does in an episode for each key, all in one compiled call, on the devices over which `spread` laid
    the keys.

    **Arguments:**

    - `policy`: from an observation to an action [the motors' units]: a `Policy`, or any tree of arrays that can be
      called.
    - `periods`: control periods; to the time limit if left out. An episode that is over stands still, without reward.

    **Returns:** outcomes with leading axes of episodes and control periods.
    """
    length = int(env.episode.limit) if periods is None else periods
    if jnp.issubdtype(keys.dtype, jax.dtypes.prng_key):
        keys = jax.random.key_data(keys)
    return _play(env.episode, policy, keys, length, spread_of(keys))


@jit
def _play(episode: Episode, policy: Callable[[Array], Array], keys: Array, length: int, over: Mesh | None) -> Outcome:
    def one(key: Array) -> Outcome:
        def period(carry: tuple, _: None) -> tuple[tuple, Outcome]:
            state, observation = carry
            state, out = episode.step(state, policy(observation))
            return (state, out.observation), out

        return jax.lax.scan(period, episode.reset(key), length=length)[1]

    return in_pieces(one, (keys,), over)


def steady_success(played: Outcome, periods: int) -> Bool[np.ndarray, " episodes"]:
    """Of every episode of `play`, whether its last so many control periods were a success and it did not end itself."""
    good, ended = np.asarray(played.success)[:, -periods:], np.asarray(played.terminated)
    return np.array([a.all() and not b.any() for a, b in zip(good, ended, strict=True)])
