"""The user's rows with bounds: what acts along the lines that follow the axes, see `System.own_lines`.

A unilateral row says that its gap stays open: before it closes it may go to zero within the step, and beyond that it is
led back. Its rate is that of the end of the step, as with rows that bind positions without bounds; that of a row for a
speed is that of its middle. Both have the compliance of the user's other rows.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float, Scalar
from ..math.blocks import in_order, sums, take
from ..system import Params, State, System
from . import custom, frames
from .prepared import Prepared, inverse_masses


class Own(NamedTuple):
    """These rows at a state: w = b_ahead v+ + slack x + offset, see `boxes`. x are impulses, or parts of a level."""

    b: Float[Array, "own_sides 6"]
    b_ahead: Float[Array, "own_sides 6"]
    slack: Float[Array, " own"]
    offset: Float[Array, " own"]
    lower: Float[Array, " own"]
    upper: Float[Array, " own"]
    growth: Float[Array, " followed"]  # level per impulse, of every line and each that it follows


def unilateral(system: System) -> np.ndarray:
    """Which of the user's lines are those of gaps, (own,)."""
    return np.array([system.bounded[b].holonomic for b, _ in system.own_lines], dtype=bool)


def rows(system: System, prepared: Prepared, state: State, kin: frames.Kinematics) -> Own:
    """The rows of the step from `state`, whose kinematics are `kin`."""
    params, h = prepared.params, prepared.params.step
    v = jnp.concatenate([state.v, state.w], axis=-1)
    if not system.own_lines:
        return Own(*(jnp.zeros((0, 6), dtype=v.dtype),) * 2, *(jnp.zeros(0, dtype=v.dtype),) * 5)
    here, b = _linearised(system, params, kin, state.time)

    def later(dt: Scalar) -> tuple[Array, Array]:
        there = state.moved(dt)
        return _linearised(system, params, frames.kinematics(system, there.r, there.e, prepared.geometry), there.time)

    gap_row = unilateral(system)
    b_ahead, gap, speed = b, jnp.zeros_like(here), jnp.zeros_like(here)
    relaxation = take(params.row_relaxation, _numbers(system))
    if gap_row.any():
        after, ahead = later(h)
        b_ahead = jnp.where(gap_row[[line for line, _ in system.own_sides]][:, None], ahead, b)
        pulled = jnp.where(here > 0, 1.0, 4 / (1 + 4 * relaxation))
        gap = pulled / h * here + (after - here) / h - rates(system, b_ahead, v)
    if not gap_row.all():
        middle, halfway = later(h / 2)
        speed = middle + rates(system, halfway, v) - rates(system, b, v)
    bodies = [body for _, body in system.own_sides]
    mobility = sums(inverse_masses(prepared, b[:, None], bodies)[:, 0], _sides_of_line(system))
    slack = take(params.row_compliance, _numbers(system)) * mobility
    lower, upper = _limits(system, params, here)
    unit, follows = h, follows_others(system)
    if follows.any():
        slack, unit = jnp.where(follows, params.v_creep, slack), jnp.where(follows, 1.0, h)
    offset = jnp.where(gap_row, gap, speed)
    return Own(b, b_ahead, slack, offset, unit * lower, unit * upper, _growth(system, params, here))


def follows_others(system: System) -> np.ndarray:
    """Which of the user's lines have a level that others give, (own,)."""
    return np.array([bool(system.bounded[b].follows) for b, _ in system.own_lines], dtype=bool)


def rates(system: System, b: Float[Array, "own_sides 6"], v: Float[Array, "bodies 6"]) -> Float[Array, " own"]:
    """b v of every own line."""
    return sums(jnp.sum(b * take(v, [body for _, body in system.own_sides]), axis=-1), _sides_of_line(system))


def pushes(system: System, b: Float[Array, "own_sides 6"], amount: Float[Array, " own"]) -> Float[Array, "bodies 6"]:
    """Impulses b^T amount on the bodies."""
    groups = [[i for i, (_, body) in enumerate(system.own_sides) if body == k] for k in range(system.num_bodies)]
    return sums(b * take(amount, [line for line, _ in system.own_sides])[:, None], groups)


def gaps(system: System, params: Params, r: Float[Array, "bodies 3"], e: Float[Array, "bodies 4"]) -> Array:
    """g of the user's unilateral rows, infinite for rows of speeds, (own,). [m or rad]"""
    if not system.own_lines:
        return jnp.zeros(0, dtype=r.dtype)
    kin = frames.kinematics(system, r, e, frames.geometry(system, params))
    found, _ = _linearised(system, params, kin, jnp.zeros((), dtype=r.dtype))
    return jnp.where(unilateral(system), found, jnp.inf)


def _linearised(system: System, params: Params, kin: frames.Kinematics, time: Scalar) -> tuple[Array, Array]:
    """g of unilateral rows, -gamma(t) of the others, (own,); Jacobians (own_sides, 6)."""
    found = custom.linearised(system, params, kin, _bounded(system), time)
    lines = [(i, row) for batch in found for i in batch.members for row in range(batch.value.shape[1])]
    sides = [
        (i, row, side)
        for batch in found
        for i in batch.members
        for side in range(batch.J.shape[1])
        for row in range(batch.J.shape[2])
    ]
    values, jacobians = [batch.value.reshape(-1) for batch in found], [batch.J.reshape(-1, 6) for batch in found]
    return in_order(values, lines), in_order(jacobians, sides)


def _bounded(system: System) -> range:
    """The rows with bounds among `System.own_rows`."""
    return range(len(system.constraints), len(system.own_rows))


def _of_numbers(
    system: System, params: Params, which: Sequence[int], law: Callable[[Any, Mapping[str, Scalar]], Array]
) -> Array:
    """`law(row, values)`, numbers of every row alone, of some of `System.own_rows`, one row behind the other."""
    parts, keys = [], []
    for members in custom.alike(system, which):
        found = custom.together(system, params, members, functools.partial(law, system.own_rows[members[0]]))
        parts.append(found.reshape(-1, *found.shape[2:]))
        keys += [(i, k) for i in members for k in range(found.shape[1])]
    return in_order(parts, keys)


def _limits(system: System, params: Params, like: Array) -> tuple[Array, Array]:
    """Lowest and highest force of every row. [N or N m]"""

    def law(row: Any, values: Mapping[str, Scalar]) -> Float[Array, "rows 2"]:
        ends = row.limits(values) if isinstance(row, custom.AbstractBounded) else (0.0, jnp.inf)
        of_rows = [jnp.broadcast_to(jnp.asarray(end, dtype=like.dtype), (row.num_rows,)) for end in ends]
        return jnp.stack(of_rows, axis=-1)

    found = _of_numbers(system, params, _bounded(system), law)
    return found[:, 0], found[:, 1]


def _growth(system: System, params: Params, like: Array) -> Array:
    """`factors` of all rows that follow others, in the order of `System.following`."""
    which = [i for i in _bounded(system) if system.own_rows[i].follows]
    if not which:
        return jnp.zeros(0, dtype=like.dtype)

    def law(row: Any, values: Mapping[str, Scalar]) -> Float[Array, " factors"]:
        return jnp.broadcast_to(row.factors(values), (row.num_rows, len(row.follows))).reshape(-1).astype(like.dtype)

    return _of_numbers(system, params, which, law)


def _numbers(system: System) -> list[int]:
    """For every own line the number of its row among all of the user's."""
    return [len(system.constraints) + b for b, _ in system.own_lines]


def _sides_of_line(system: System) -> list[list[int]]:
    lines = [line for line, _ in system.own_sides]
    return [[i for i, line in enumerate(lines) if line == k] for k in range(len(system.own_lines))]
