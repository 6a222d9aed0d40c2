"""Motors whose commands act later than they are given.

A state keeps the commands of the last steps, each held over its step. Without delay the kick at t_k gets the mean of
the commands on both of its sides. A delay shifts that: commands weigh as a quadratic B-spline about t_k - delay says,
which at whole steps is again the mean of two, and smooth in between. Its area, mean and spread are the same wherever
it lies: nothing of an impulse is lost, it is late by the delay, and no part of a step suits a recording better than
another. Straight lines would spread it by up to half a step or not at all, and readings would tell these apart.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .._typing import AnyArray, Array, Bool, Float
from ..system import Params, State, System

_ROUNDING = 1e-9  # steps by which a delay may be longer than what is kept


def delayed(
    system: System, params: Params, state: State, command: Float[Array, " motors"], first: Bool[Array, ""] | bool
) -> Float[Array, " motors"]:
    """What acts in the kick of a step over which `command` is held; NaN for a delay beyond the commands that are kept.

    `first`: the kick is the half from t_0 to t_0 + h/2.

    **Raises:** `ValueError` for a state that keeps no commands.
    """
    kept, late = _kept(system, state), params.delay / params.step
    number = jnp.arange(system.history + 1, dtype=late.dtype)[:, None]
    weight = _spline(number - (late[None] + 0.5))
    now = weight[0]  # of the half kick twice as much, lest a command from t_0 on do more than in what is left of time
    halved = jnp.where(number == 0, 2 * now, weight * ((1 - 2 * now) / (1 - now))[None])
    acting = jnp.sum(jnp.where(first, halved, weight) * jnp.concatenate([command[None], kept]), axis=0)
    return jnp.where(late <= longest(system) + _ROUNDING, acting, jnp.nan)


def _spline(x: Array) -> Array:
    """The quadratic B-spline: 1/2 at both ends of its middle piece, nothing beyond 3/2."""
    away = jnp.abs(x)
    return jnp.where(away < 0.5, 0.75 - x**2, jnp.maximum(1.5 - away, 0.0) ** 2 / 2)


def remembered(system: System, before: State, after: State, command: Float[Array, " motors"]) -> State:
    """`after` a step from `before`, with its command among those that are kept."""
    if not system.history:
        return after
    kept = jnp.concatenate([command[None], _kept(system, before)[:-1]])
    return eqx.tree_at(lambda s: s.commands, after, kept)


def longest(system: System) -> float:
    """The longest delay that states keep commands for [steps]."""
    return max(system.history - 1.0, 0.0)


def check_delays(system: System, params: Params) -> None:
    """**Raises:** `ValueError` for a delay, where its number is known by now, that is longer than the commands kept."""
    delay, step = params.delay, params.step
    if not system.motors or isinstance(delay, Tracer) or isinstance(step, Tracer):
        return
    steps: AnyArray = np.asarray(delay) / np.asarray(step)[..., None]
    worst = steps.reshape(-1, len(system.motors)).max(axis=0)
    wrong = np.flatnonzero(worst > longest(system) + _ROUNDING)
    if wrong.size:
        kept = f"{longest(system):g} steps" if system.history else "no motor"
        raise ValueError(
            f"motors.{system.motors[wrong[0]].name}.delay is {worst[wrong[0]]:.6g} steps, but the system was built for "
            f"a delay of {kept}: build it from a scene with this delay and step"
        )


def _kept(system: System, state: State) -> Float[Array, "history motors"]:
    expected = (system.history, len(system.motors))
    if state.commands is None or jnp.shape(state.commands) != expected:
        found = "none" if state.commands is None else f"the shape {jnp.shape(state.commands)}"
        raise ValueError(
            f"a motor has a delay, so that the state needs `commands` of the shape {expected} (steps, motors), got "
            f"{found}: make it by `state_from_joints`"
        )
    return state.commands
