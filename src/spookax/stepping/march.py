"""Steps one after the other, from a state with velocities at t_0: the half kick and all steps are one loop.

Leap-frog starts with velocities at t_0 - h/2. They are moved there such that their mean with those of the first step
are the given ones: that is how a rate is read everywhere, so that a state that was read replays. With S the step from
v_-, that is the root of v_- + S(v_-) = 2 v_0 by averaged iteration

    v_- <- v_0 + (v_- - S(v_-)) / 2,

each of which gains a factor h on free motion and (1 - gamma) / 2 on the joint rows, where G v_- is half of what
curvature makes of it in a step. The iterations are the first steps of the loop, which is compiled once for both.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from .._results import STEP_RESULTS
from .._typing import Array, Float, Int
from ..complementarity import AbstractMLCPSolver
from ..constraints import Prepared
from ..math import counted
from ..system import State, System
from .felt import nothing_felt
from .spook import StepInfo, step

HALF_KICK_STEPS = 10


class March(NamedTuple):
    """States and what the steps said; leading axis: steps."""

    start: State  # before the first step, with velocities at t_0 - h/2
    states: State  # after every step
    info: StepInfo
    last: State
    result: STEP_RESULTS  # of the first step that failed
    failed: Int[Array, ""]  # its number, -1 if none did


def march(
    system: System,
    prepared: Prepared,
    state: State,
    commands: Float[Array, "steps motors"],
    impulses: Float[Array, "steps bodies 6"] | None = None,
    *,
    half_kick: bool = True,
    solver: AbstractMLCPSolver | None = None,
    count: Int[Array, ""] | None = None,
) -> March:
    """One step for each of the commands and impulses (as `step` takes them), of which there is one at least.

    `half_kick`: the velocities of `state` are those at t_0, instead of t_0 - h/2. `count`: of the commands that count,
    the first; without derivatives in reverse mode.
    """
    size, kicks, state = commands.shape[0], HALF_KICK_STEPS if half_kick else 0, nothing_felt(system, state)

    def with_kicks(inputs: Array) -> Array:
        return jnp.concatenate([jnp.broadcast_to(inputs[:1], (kicks, *inputs.shape[1:])), inputs])

    def body(carry, inputs):
        now, guess, result, failed = carry
        k, command, impulse = inputs
        moves = k >= 0 if half_kick else True
        first = half_kick and k <= 0
        after, info = step(
            system, prepared, now, command, impulse, solver=solver, guess=guess, bounce=moves, first=first
        )
        if half_kick:
            back = kicked(state, now, after)
            after = jax.tree.map(lambda a, b: jnp.where(moves, a, b), after, back)
        fails = (failed < 0) & (info.result != STEP_RESULTS.successful) & moves
        result = STEP_RESULTS.where(fails, info.result, result)
        return (after, info.levels, result, jnp.where(fails, k, failed)), (after, info)

    inputs = jnp.arange(-kicks, size), *jax.tree.map(with_kicks, (commands, impulses))
    guess = jnp.zeros(len(system.boxes), dtype=state.r.dtype)
    carry = state, guess, STEP_RESULTS.successful, jnp.array(-1)
    if count is None:
        (last, _, result, failed), (states, info) = jax.lax.scan(body, carry, inputs)
    else:
        (last, _, result, failed), (states, info) = counted.scan(body, carry, inputs, 0, count + kicks)
    start = jax.tree.map(lambda a: a[kicks - 1], states) if half_kick else state
    states, info = jax.tree.map(lambda a: a[kicks:], (states, info))
    return March(start, states, info, last, result, failed)  # pyright: ignore[reportArgumentType]


def kicked(start: State, now: State, ahead: State) -> State:
    """The next iterate of the half kick from `start`: `now`, whose step leads to `ahead`, with other velocities."""
    v, w = (v_0 + (v - v_1) / 2 for v_0, v, v_1 in zip(*map(_velocities, (start, now, ahead)), strict=True))
    return eqx.tree_at(_velocities, now, (v, w))


def _velocities(state: State) -> tuple[Any, Any]:  # arrays, or what `tree_at` puts in their place
    return state.v, state.w


def half_kick_back(
    system: System,
    prepared: Prepared,
    state: State,
    command: Float[Array, " motors"],
    solver: AbstractMLCPSolver | None = None,
) -> State:
    """Velocities moved from t_0 to t_0 - h/2, for a program with its own loop over `step`."""
    return march(system, prepared, state, command[None], solver=solver).start
