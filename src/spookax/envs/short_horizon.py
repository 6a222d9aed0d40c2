"""Policies learned by derivatives through the simulator, over short windows.

Every iteration differentiates the rewards of a window of every environment, with a learned value of where it ends in
place of what follows, and goes a step uphill; then the value learns from the window (Xu et al. 2022, "Accelerated
policy learning with parallel differentiable simulation", equations 4 to 7). A window is shorter than the time in which
small changes grow out of hand, and its start is a constant: this keeps derivatives useful where those of whole
episodes are not.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from .._compiled import jit
from .._typing import Array, Float
from ..stepping.batches import in_pieces, spread, spread_of
from .environment import Environment, EnvState, Episode
from .policy import Policy

_OFTEN = 20  # iterations between two files
_NEAR_LIMIT = 2.0  # tanh of it is 0.96, its derivative 0.07


@dataclasses.dataclass(frozen=True)
class ShortHorizon:
    """How a policy is learned.

    `iterations`: steps uphill; `environments`: simulated at once; `window`: control periods that are differentiated;
    `discount`: of the rewards of each period against those of the one before; `mixed`: of the rewards of several
    periods in what the value learns (lambda of TD(lambda)); `rate`, `value_rate`: of Adam, falling to nothing in a
    straight line; `value_rounds`: through the window, in `value_batches` parts; `slow`: part of the elder value that
    stays in the one behind a window; `steepest`: norm at which a gradient is cut; `saturation`: weight of squares of
    what the network says beyond 2. Its tanh is the action, which has hardly a derivative there: a policy would stay.
    """

    iterations: int = 800
    environments: int = 16
    window: int = 16
    discount: float = 0.97
    mixed: float = 0.95
    rate: float = 1e-2
    value_rate: float = 5e-3
    value_rounds: int = 8
    value_batches: int = 4
    slow: float = 0.2
    steepest: float = 1.0
    saturation: float = 0.01

    def check(self) -> None:
        """**Raises:** `ValueError` for numbers that make no sense."""
        for name in ("iterations", "environments", "window", "value_rounds", "value_batches"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {getattr(self, name)}")
        if self.environments * self.window % self.value_batches:
            raise ValueError("`value_batches` must divide `environments` times `window`")
        for name in ("discount", "mixed", "slow"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"`{name}` must be within 0 and 1, got {getattr(self, name)}")
        if not self.saturation >= 0.0:
            raise ValueError(f"`saturation` must not be negative, got {self.saturation}")


class LearningReport(NamedTuple):
    """After an iteration: mean reward of a control period, part of the environments whose last period was a success,
    norm of the gradient, part of the windows whose gradient was finite (the others are left out), control periods
    simulated so far.
    """

    iteration: int
    reward: float
    success: float
    gradient: float
    finite: float
    periods: int


@dataclasses.dataclass(frozen=True)
class Learned:
    """A policy after its training; `ended`: "all iterations" or "interrupted"."""

    policy: Policy
    history: list[LearningReport]
    ended: str


class _Nets(NamedTuple):
    policy: Policy
    value: eqx.nn.MLP
    elder: eqx.nn.MLP  # the value, behind


class _Training(NamedTuple):
    nets: _Nets
    moments: Any
    states: EnvState
    observations: Float[Array, "environments numbers"]
    key: Array
    told: Array  # number of observations in the mean and the variance
    variance: Float[Array, " numbers"]
    iteration: Array


class _Window(NamedTuple):
    """What the value learns from: observations before and after each period, rewards, and which of them count."""

    before: Float[Array, "periods numbers"]
    after: Float[Array, "periods numbers"]
    reward: Float[Array, " periods"]
    goes_on: Float[Array, " periods"]  # whether a value follows: not after the episode's own end
    last: Float[Array, " periods"]  # whether the episode ended then
    counts: Float[Array, " periods"]  # 0 where the episode was over before


def learn(
    env: Environment,
    schedule: ShortHorizon | None = None,
    *,
    key: Array,
    policy: Policy | None = None,
    report: Callable[[LearningReport], None] | None = None,
    keep: str | Path | None = None,
    devices: Sequence[Any] | None = None,
) -> Learned:
    """Learn a policy for an environment. It needs optax (the extra `envs`).

    **Arguments:**

    - `policy`: where it begins; an untrained one if left out.
    - `report`: called after every iteration. A KeyboardInterrupt from there, or Ctrl-C, ends the training with what
      there is.
    - `keep`: a file in which the state of the training lies, renewed every twenty iterations and at the end; where
      there is one, the training goes on from it.
    - `devices`: over which the environments are spread; one if left out.

    **Raises:** `ValueError` for a schedule that makes no sense, also where the devices do not divide its environments.
    """
    s = schedule or ShortHorizon()
    s.check()
    kept = None if keep is None else Path(keep)
    state = _begin(env, s, key, policy)
    if kept is not None and kept.exists():
        with kept.open("rb") as file:
            state = eqx.tree_deserialise_leaves(file, state)
    if devices is not None:
        states, observations = spread((state.states, state.observations), devices)
        state = state._replace(states=states, observations=observations)
    history: list[LearningReport] = []
    ended = "all iterations"
    try:
        while int(state.iteration) < s.iterations:
            state, told = _iteration(env.episode, state, s, spread_of(state.states))
            if np.asarray(state.states.over).any():
                state = _restarted(env, state)
            iteration = int(state.iteration)
            periods = iteration * s.environments * s.window
            history.append(LearningReport(iteration, *(float(x) for x in told), periods=periods))
            if report:
                report(history[-1])
            if kept is not None and iteration % _OFTEN == 0:
                _keep(kept, state)
    except KeyboardInterrupt:
        ended = "interrupted"
    if kept is not None:
        _keep(kept, state)
    return Learned(state.nets.policy, history, ended)


def _keep(file: Path, state: _Training) -> None:
    """In place of what is there, and never half."""
    half = file.with_name(file.name + ".half")
    with half.open("wb") as out:
        eqx.tree_serialise_leaves(out, state)
    half.replace(file)


def _optimiser(s: ShortHorizon, rate: float, per_iteration: int) -> Any:
    import optax

    falling = optax.linear_schedule(rate, 0.0, s.iterations * per_iteration)
    return optax.chain(optax.clip_by_global_norm(s.steepest), optax.adam(falling, b1=0.7, b2=0.95))


def _optimisers(s: ShortHorizon) -> tuple[Any, Any]:
    """Of the policy and of the value."""
    return _optimiser(s, s.rate, 1), _optimiser(s, s.value_rate, s.value_rounds * s.value_batches)


def _begin(env: Environment, s: ShortHorizon, key: Array, policy: Policy | None) -> _Training:
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    key, for_policy, for_value, for_starts, for_clocks = jax.random.split(key, 5)
    policy = Policy(env, key=for_policy) if policy is None else policy
    size, dtype = env.observation_size, policy.mean.dtype
    value = eqx.nn.MLP(size, "scalar", 64, 2, jax.nn.tanh, dtype=dtype, key=for_value)
    states, observations = env.reset_many(jax.random.split(for_starts, s.environments))
    # clocks that differ from the start: else all episodes would be at one and the same stage for ever
    clocks = jax.random.randint(for_clocks, (s.environments,), 0, env.episode.limit, dtype=states.count.dtype)
    states = eqx.tree_at(lambda x: x.count, states, clocks)
    # of the policy only what is learned has moments: its network and noise
    moments = tuple(
        optimiser.init(eqx.filter(of, eqx.is_inexact_array))
        for optimiser, of in zip(_optimisers(s), ((policy.net, policy.log_sd), value), strict=True)
    )
    none = jnp.zeros((), dtype)
    return _Training(
        _Nets(policy, value, value),
        moments,
        states,
        observations,
        key,
        none,
        jnp.zeros(size, dtype),
        jnp.zeros((), int),
    )


def _restarted(env: Environment, t: _Training) -> _Training:
    """The next episode of every environment whose last one is over."""
    over = np.asarray(t.states.over)
    new = env.reset_many(t.states.key)

    def chosen(a: Array, b: Array) -> Array:
        return jnp.where(over.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    states, observations = jax.tree.map(chosen, new, (t.states, t.observations))
    return t._replace(states=states, observations=observations)


@jit
def _iteration(
    episode: Episode, t: _Training, s: ShortHorizon, over: Mesh | None
) -> tuple[_Training, tuple[Array, ...]]:
    key, for_noise, for_parts = jax.random.split(t.key, 3)
    nets, actor, critic = t.nets, *_optimisers(s)
    policy = nets.policy
    noise = jax.random.normal(for_noise, (s.environments, s.window, policy.reach.shape[0]), policy.mean.dtype)
    learned, fixed = eqx.partition((policy.net, policy.log_sd), eqx.is_inexact_array)

    def gain(learned: Any, state: EnvState, observation: Array, noise: Array) -> tuple[Array, Any]:
        net, log_sd = eqx.combine(learned, fixed)
        acting = eqx.tree_at(lambda p: (p.net, p.log_sd), policy, (net, log_sd))
        return _gain(episode, acting, nets.elder, s, state, observation, noise)

    def one(state: EnvState, observation: Array, noise: Array) -> Any:
        slope, (state, observation, window, success) = jax.grad(gain, has_aux=True)(learned, state, observation, noise)
        good = jnp.all(jnp.stack([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(slope)]))
        slope = jax.tree.map(lambda g: jnp.where(good, -g, 0.0), slope)  # optax goes downhill
        return slope, good, state, observation, window, success

    slopes, good, states, observations, window, success = in_pieces(one, (t.states, t.observations, noise), over)
    part = jnp.mean(good, dtype=policy.mean.dtype)
    slope = jax.tree.map(lambda g: jnp.mean(g, axis=0) / jnp.maximum(part, 1 / s.environments), slopes)
    found, actor_moments = _moved(actor, slope, t.moments[0], learned)
    moved = eqx.tree_at(lambda p: (p.net, p.log_sd), policy, eqx.combine(found, fixed))

    targets = jax.vmap(lambda w: _targets(policy, nets.elder, s, w))(window)
    value, critic_moments = _fitted(critic, policy, nets.value, t.moments[1], s, for_parts, window, targets)
    elder = jax.tree.map(
        lambda a, b: s.slow * a + (1 - s.slow) * b if eqx.is_inexact_array(a) else a, nets.elder, value
    )

    count, mean, variance = _pooled(t, policy, window)
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(slope)))
    reward = jnp.sum(window.counts * window.reward) / jnp.sum(window.counts)
    told = reward, jnp.mean(success, dtype=reward.dtype), norm, part
    nets = _Nets(moved.used_to(mean, variance), value, elder)
    moments = actor_moments, critic_moments
    return _Training(nets, moments, states, observations, key, count, variance, t.iteration + 1), told


def _moved(optimiser: Any, slope: Any, moments: Any, learned: Any) -> tuple[Any, Any]:
    """What is learned after a step downhill, and the moments of the optimiser."""
    import optax

    with jax.numpy_dtype_promotion("standard"):  # optax's count of steps is an integer
        change, moments = optimiser.update(slope, moments)
    return optax.apply_updates(learned, change), moments


def _gain(
    episode: Episode,
    policy: Policy,
    value: eqx.nn.MLP,
    s: ShortHorizon,
    state: EnvState,
    observation: Array,
    noise: Array,
) -> tuple[Array, Any]:
    """Discounted rewards of a window and the value of where it ends; and what happened. Both are means: rewards count
    1 - discount, so that all that may ever follow adds up to what one of them is like.
    """

    def period(carry: Any, noise: Array) -> tuple[Any, tuple[_Window, Array]]:
        state, observation, total, weight = carry
        over = state.over
        said = policy.said(observation, noise)
        state, out = episode.step(state, policy.within(said))
        beyond = s.saturation * jnp.sum(jnp.maximum(jnp.abs(said) - _NEAR_LIMIT, 0.0) ** 2)
        last = (out.terminated | out.truncated) & ~over
        follows = jnp.where(last & out.truncated, _valued(policy, value, out.observation), 0.0)
        total = total + weight * jnp.where(over, 0.0, (1 - s.discount) * (out.reward - beyond) + s.discount * follows)
        flags = (~out.terminated, last, ~over)
        row = _Window(observation, out.observation, out.reward, *(flag.astype(total.dtype) for flag in flags))
        return (state, out.observation, total, s.discount * weight), (row, out.success)

    zero = jnp.zeros((), observation.dtype)
    carry, (window, success) = jax.lax.scan(period, (state, observation, zero, zero + 1), noise)
    state, observation, total, weight = carry
    total = total + jnp.where(state.over, 0.0, weight * _valued(policy, value, observation))
    return total, jax.lax.stop_gradient((state, observation, window, success[-1]))


def _valued(policy: Policy, value: eqx.nn.MLP, observation: Array) -> Array:
    return value(policy.scaled(observation))


def _targets(policy: Policy, value: eqx.nn.MLP, s: ShortHorizon, w: _Window) -> Float[Array, " periods"]:
    """What the value ought to have said: TD(lambda) within the window and the episode."""
    after = jax.vmap(lambda o: _valued(policy, value, o))(w.after) * w.goes_on

    def earlier(later: Array, row: Any) -> tuple[Array, Array]:
        reward, after, last = row
        kept = jnp.where(last > 0, after, (1 - s.mixed) * after + s.mixed * later)
        found = (1 - s.discount) * reward + s.discount * kept
        return found, found

    return jax.lax.scan(earlier, after[-1], (w.reward, after, w.last), reverse=True)[1]


def _fitted(
    optimiser: Any, policy: Policy, value: eqx.nn.MLP, moments: Any, s: ShortHorizon, key: Array, w: _Window, y: Array
) -> tuple[eqx.nn.MLP, Any]:
    """The value after some rounds through a window, by least squares."""
    learned, fixed = eqx.partition(value, eqx.is_inexact_array)
    x = jax.vmap(jax.vmap(policy.scaled))(w.before).reshape(-1, w.before.shape[-1])
    rows = x, y.reshape(-1), w.counts.reshape(-1)

    def error(learned: Any, x: Array, y: Array, counts: Array) -> Array:
        e = jax.vmap(eqx.combine(learned, fixed))(x) - y
        return jnp.sum(counts * e**2) / jnp.maximum(jnp.sum(counts), 1.0)

    def once(carry: Any, index: Array) -> tuple[Any, None]:
        learned, moments = carry
        slope = jax.grad(error)(learned, *(a[index] for a in rows))
        return _moved(optimiser, slope, moments, learned), None

    orders = jax.vmap(lambda k: jax.random.permutation(k, x.shape[0]))(jax.random.split(key, s.value_rounds))
    parts = orders.reshape(s.value_rounds * s.value_batches, -1)
    (learned, moments), _ = jax.lax.scan(once, (learned, moments), parts)
    return eqx.combine(learned, fixed), moments


def _pooled(t: _Training, policy: Policy, w: _Window) -> tuple[Array, Array, Array]:
    """Number, mean and variance of all observations so far; those after an episode's end do not count."""
    new, counts = w.before.reshape(-1, w.before.shape[-1]), w.counts.reshape(-1)
    size = jnp.sum(counts)
    some = jnp.maximum(size, 1.0)
    mean = counts @ new / some
    variance = counts @ (new - mean[None]) ** 2 / some
    count = t.told + size
    share = size / jnp.maximum(count, 1.0)
    off = mean - policy.mean
    pooled = (1 - share) * t.variance + share * variance + share * (1 - share) * off**2
    return count, policy.mean + share * off, pooled
