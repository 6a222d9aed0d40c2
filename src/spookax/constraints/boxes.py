"""Rows with bounds: dry friction, stops, motors with a largest force, elements on the axes, and the user's own.

Each acts along a line (`System.boxes`) with the Jacobian b. Unknown x, impulse `force` x:

    w = rate (b v+) + slack x + offset,   lower <= x <= upper,   w >= 0 at lower, <= 0 at upper, = 0 between

| row | force | rate | slack | offset | x |
|---|---|---|---|---|---|
| dry friction | h f, and what it follows | 1 | v_creep | 0 | -1 .. 1, or .. `backward` where that is another level |
| that of two slides (`System.discs`) | the same | 1 | v_creep | 0 | both in the unit disc, see `stepping.discs` |
| stop, beyond it (e: position - stop) | 1 | 1 | Sigma | 4 gamma e / h | 0 .. inf lower, -inf .. 0 upper |
| stop, before it | 1 | 1 | Sigma | e / h: the step ends at the stop | the same |
| motor with a largest force f | h f | kappa | h f | -push, see `motors` | -1 .. 1 |
| element, spring k and reach d, deflection c | h k d | 1 | 4 d / h | 4 c / h - (b v if it sticks) | -1 .. 1 |
| the user's own, see `bounded` | 1 | 1 | Sigma | of its gap or speed | h times its limits |
| the same that follows others | only what it follows | 1 | v_creep | of its speed | its limits |

A level may grow with other impulses: the force of a row is `force`, and for each of its entries in `System.following`
`growth` times the size of the impulses that are followed. Those across the axis of a bearing make its dry friction.

Contacts are a supplier, too (`contact_rows`), with the same parts under other names: a Jacobian whose bodies may be
data, `sigma` for slack, `c` for offset. Their bound is no interval but a cone, so they stand beside these rows in the
step, and `stepping.contact` solves both together.

Source: Marklund, Servin, Larson (2025), eqs. (2.19)-(2.22). The rows of a motor are multiplied by its kappa, so that
it may be zero. Those of a stop lack Spook's gamma b v, which lets part of the speed of an impact pass: what happens to
that speed is said by the restitution (`stepping.impacts`), or it is lost.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Bool, Float
from ..math import network
from ..math.blocks import gathered, take
from ..math.limited import limited
from ..system import BoxKind, Params, System
from . import bounded, motors
from .prepared import Prepared


class Box(eqx.Module):
    """Rows with bounds of one step (see the module's head), in the order of `System.boxes`."""

    force: Float[Array, " boxes"]
    rate: Float[Array, " boxes"]
    slack: Float[Array, " boxes"]
    offset: Float[Array, " boxes"]
    lower: Float[Array, " boxes"]
    upper: Float[Array, " boxes"]
    growth: Float[Array, " followed"]  # of `System.following`: force per size of what is followed


def empty(system: System, dtype: jnp.dtype) -> Box:
    """Rows that never push."""
    zero, one = jnp.zeros(len(system.boxes), dtype=dtype), jnp.ones(len(system.boxes), dtype=dtype)
    return Box(zero, one, one, zero, -one, one, jnp.zeros(len(system.following), dtype=dtype))


def dry_friction(
    system: System,
    params: Params,
    command: Float[Array, " motors"],
    rate: Float[Array, " axes"],
    position: Float[Array, " axes"],
) -> Float[Array, " friction"]:
    """Coulomb level, Stribeck excess and what networks add at the present rate, per friction axis. [N m or N]

    That against motion forward; `backward` is said by the bounds of the rows.
    """
    index = np.array(system.friction_axes, dtype=int)
    ratio = jnp.abs(gathered(rate, index)) / gathered(params.stribeck_speed, index)
    safe = jnp.where(ratio > 0, ratio, 1.0)
    power = jnp.where(ratio > 0, safe ** gathered(params.stribeck_exponent, index), 0.0)
    level = gathered(params.coulomb, index) + gathered(params.stribeck_excess, index) * jnp.exp(-power)
    groups: dict[tuple[tuple[int, ...], tuple[str, ...]], list[tuple[int, int]]] = {}
    for n, learned in enumerate(system.networks):
        groups.setdefault((learned.sizes, learned.sees), []).extend((n, axis) for axis in learned.axes)
    for (sizes, sees), members in groups.items():  # networks that differ in their numbers only
        of, at = [n for n, _ in members], [axis for _, axis in members]
        speed, force = take(params.learned_speed, of), take(params.learned_force, of)
        inputs = [jnp.abs(take(rate, at)) / speed]
        for name in sees:
            if name == "load":
                inputs.append(jnp.abs(motors.on_axes(system, params, at, command, rate, position)) / force)
            else:
                inputs += [jnp.cos(take(position, at)), jnp.sin(take(position, at))]
        weights = gathered(
            params.weights, np.array([range(system.networks[n].begin, system.networks[n].end) for n in of])
        )
        found = jax.vmap(lambda w, x, sizes=sizes: network.output(network.layers(w, sizes), x))(
            weights, jnp.stack(inputs, axis=1)
        )
        # never negative: friction only takes energy
        places = np.array([system.friction_axes.index(axis) for axis in at])
        level = level.at[places].add(force * jax.nn.softplus(found))
    return level


def _stops(system: System) -> tuple[list[int], np.ndarray]:
    """Axis of every stop, and which of them are lower ones."""
    chosen = [system.boxes[i] for i in system.boxes_of(BoxKind.lower, BoxKind.upper)]
    return [row.line for row in chosen], np.array([row.kind is BoxKind.lower for row in chosen], dtype=bool)


def _beyond(system: System, params: Params, position: Float[Array, " axes"]) -> Float[Array, " stops"]:
    """Position of the axis minus that of its stop."""
    at, low = _stops(system)
    return take(position, at) - jnp.where(low, take(params.lower, at), take(params.upper, at))


def reached(system: System, params: Params, position: Float[Array, " axes"]) -> Bool[Array, " stops"]:
    """Whether an axis is at its stop or beyond."""
    beyond = _beyond(system, params, position)
    return jnp.where(_stops(system)[1], beyond <= 0, beyond >= 0)


def elastic(system: System, slow: Float[Array, " axes"], rate: Float[Array, " axes"]) -> Bool[Array, " stops"]:
    """Whether an axis goes towards its stop fast enough to bounce off it."""
    at, low = _stops(system)
    toward = jnp.where(low, -take(rate, at), take(rate, at))
    return (toward > take(slow, at)) & np.array([system.axes[i].bounces for i in at], dtype=bool)


def stretched(
    system: System, params: Params, deflection: Float[Array, " elements"], rate: Float[Array, " axes"]
) -> Float[Array, " elements"]:
    """Deflections after a step at these rates, what goes beyond their reach slipped away. [rad or m]"""
    moved = deflection + params.step * take(rate, [element.axis for element in system.elements])
    return limited(moved, params.element_reach)


class Here(NamedTuple):
    """What the rows of a step are made from."""

    prepared: Prepared
    command: Float[Array, " motors"]
    rate: Float[Array, " axes"]
    position: Float[Array, " axes"]
    deflection: Float[Array, " elements"]
    own: bounded.Own


class Part(NamedTuple):
    """The rows of one supplier, in the order in which `System.boxes` names them."""

    force: Float[Array, " rows"]
    rate: Float[Array, " rows"]
    slack: Float[Array, " rows"]
    offset: Float[Array, " rows"]
    lower: Float[Array, " rows"]
    upper: Float[Array, " rows"]


def rows(system: System, here: Here) -> Box:
    """The rows at a state."""
    suppliers = (_friction, _of_stops, _motors, _elements, _own)
    parts = [part for supply in suppliers if (part := supply(system, here)) is not None]
    if not parts:
        return empty(system, here.rate.dtype)
    growth = take(here.prepared.params.bearing, system.bearings)
    if bounded.follows_others(system).any():
        growth = jnp.concatenate([growth, here.own.growth])
    return Box(*map(jnp.concatenate, zip(*parts, strict=True)), growth=growth)


def _friction(system: System, here: Here) -> Part | None:
    if not system.friction_axes:
        return None
    params, rate = here.prepared.params, here.rate
    if system.discs:  # whose level is that of the speed
        pairs = np.array(system.box_lines)[np.array(system.discs)]
        square = jnp.sum(rate[pairs] ** 2, axis=1, keepdims=True)
        speed = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)
        rate = rate.at[pairs].set(jnp.broadcast_to(speed, pairs.shape), unique_indices=True)
    force = params.step * dry_friction(system, params, here.command, rate, here.position)
    one = jnp.ones_like(force)
    upper = one
    if system.backward_axes:
        upper = one.at[np.array([system.friction_axes.index(i) for i in system.backward_axes])].set(params.backward)
    return Part(force, one, params.v_creep * one, jnp.zeros_like(force), -one, upper)


def _of_stops(system: System, here: Here) -> Part | None:
    at, low = _stops(system)
    if not at:
        return None
    params, slow, rate = here.prepared.params, here.prepared.slow, here.rate
    beyond, at_stop = _beyond(system, params, here.position), reached(system, params, here.position)
    gamma = 1 / (1 + 4 * take(params.stop_relaxation, at))
    slack = take(params.stop_compliance * here.prepared.mobility, at)
    offset = jnp.where(at_stop, 4 * gamma, 1.0) / params.step * beyond
    # one that bounces is not led back faster than it leaves by itself, or nothing would rest on it
    away = jnp.maximum(jnp.where(low, take(rate, at), -take(rate, at)), take(slow, at))
    bounces = np.array([system.axes[i].bounces for i in at], dtype=bool)
    offset = jnp.where(at_stop & bounces, jnp.clip(offset, -away, away), offset)
    # one that will bounce is not slowed down before
    far = jnp.where(~at_stop & elastic(system, slow, rate), 0.0, jnp.inf)
    one = jnp.ones_like(offset)
    return Part(one, one, slack, offset, jnp.where(low, 0.0, -far), jnp.where(low, far, 0.0))


def _motors(system: System, here: Here) -> Part | None:
    which = [system.boxes[i].number for i in system.boxes_of(BoxKind.motor)]
    if not which:
        return None
    params = here.prepared.params
    push, kappa = motors.laws(system, params, which, here.command, here.rate, here.position)
    force = params.step * take(params.max_force, which)
    one = jnp.ones_like(force)
    return Part(force, kappa, force, -push, -one, one)


def _elements(system: System, here: Here) -> Part | None:
    if not system.elements:
        return None
    params, h, reach = here.prepared.params, here.prepared.params.step, here.prepared.params.element_reach
    rate = take(here.rate, [element.axis for element in system.elements])
    # Spook's spring: its force is that of the mean of three deflections, as long as it does not slip
    offset = 4 / h * here.deflection - jnp.where(jnp.abs(here.deflection) < reach, rate, 0.0)
    one = jnp.ones_like(reach)
    return Part(h * params.element_stiffness * reach, one, 4 / h * reach, offset, -one, one)


def _own(system: System, here: Here) -> Part | None:
    if not system.own_lines:
        return None
    one = jnp.ones_like(here.own.offset)
    force = jnp.where(bounded.follows_others(system), 0.0, one)
    return Part(force, one, here.own.slack, here.own.offset, here.own.lower, here.own.upper)
