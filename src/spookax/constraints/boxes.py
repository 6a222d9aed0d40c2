"""Rows with bounds on the axes: dry friction, stops, motors with a largest force. Unknown x, impulse `force` x:

    w = rate (b v+) + slack x + offset,   lower <= x <= upper,   w >= 0 at lower, <= 0 at upper, = 0 between

| row | force | rate | slack | offset | x |
|---|---|---|---|---|---|
| dry friction | F = h f + bearing |lam| | 1 | v_creep | 0 | -1 .. 1, or .. `backward` where that is another level |
| stop, beyond it (e: position - stop) | 1 | 1 | Sigma | 4 gamma e / h | 0 .. inf lower, -inf .. 0 upper |
| stop, before it | 1 | 1 | Sigma | e / h: the step ends at the stop | the same |
| motor with a largest force f | h f | kappa | h f | -push, see `drive` | -1 .. 1 |
| element, spring k and reach d, deflection c | h k d | 1 | 4 d / h | 4 c / h - (b v if it sticks) | -1 .. 1 |

Source: Marklund, Servin, Larson (2025), eqs. (2.19)-(2.22). The rows of a motor are multiplied by its kappa, so that
it may be zero. Those of a stop lack Spook's gamma b v, which lets part of the speed of an impact pass: what happens to
that speed is said by the restitution (`stepping.impacts`), or it is lost.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Bool, Float
from ..math import network
from ..math.blocks import take
from ..math.limited import limited
from ..system import Params, System


class Box(eqx.Module):
    """Rows with bounds of one step (see the module's head), in the order of `System.boxes`."""

    force: Float[Array, " boxes"]
    rate: Float[Array, " boxes"]
    slack: Float[Array, " boxes"]
    offset: Float[Array, " boxes"]
    lower: Float[Array, " boxes"]
    upper: Float[Array, " boxes"]
    bearing: Float[Array, " bearings"]  # of `System.bearings`: friction impulse per impulse across the axis


def empty(system: System, dtype: jnp.dtype) -> Box:
    """Rows that never push."""
    zero, one = jnp.zeros(len(system.boxes), dtype=dtype), jnp.ones(len(system.boxes), dtype=dtype)
    return Box(zero, one, one, zero, -one, one, jnp.zeros(len(system.bearings), dtype=dtype))


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
    ratio = jnp.abs(rate[index]) / params.stribeck_speed[index]
    safe = jnp.where(ratio > 0, ratio, 1.0)
    power = jnp.where(ratio > 0, safe ** params.stribeck_exponent[index], 0.0)
    level = params.coulomb[index] + params.stribeck_excess[index] * jnp.exp(-power)
    for n, learned in enumerate(system.networks):
        speed, force = params.learned_speed[n], params.learned_force[n]
        layers = network.layers(params.weights[learned.begin : learned.end], learned.sizes)
        for axis in learned.axes:
            inputs = [jnp.abs(rate[axis]) / speed]
            for name in learned.sees:
                if name == "load":
                    inputs.append(jnp.abs(_load(system, params, axis, command, rate, position)) / force)
                else:
                    inputs += [jnp.cos(position[axis]), jnp.sin(position[axis])]
            # never negative: friction only takes energy
            more = force * jax.nn.softplus(network.output(layers, jnp.stack(inputs)))
            level = level.at[system.friction_axes.index(axis)].add(more)
    return level


def _load(
    system: System,
    params: Params,
    axis: int,
    command: Float[Array, " motors"],
    rate: Float[Array, " axes"],
    position: Float[Array, " axes"],
) -> Float[Array, ""]:
    """What the motors of an axis give at the present rate, `bias` and cogging left out. [N m or N]"""
    out = jnp.zeros_like(params.step)
    for m, motor in enumerate(system.motors):
        if motor.axis == axis:
            push, kappa = drive(system, params, m, command[m], rate[axis], position[axis])
            force, most = (push - kappa * rate[axis]) / params.step, params.max_force[m]
            out = out + (jnp.clip(force, -most, most) if motor.bounded else force)
    return out


def _lower(system: System) -> np.ndarray:
    return np.array([row.kind == "lower" for row in system.boxes], dtype=bool)


def _beyond(system: System, params: Params, position: Float[Array, " axes"]) -> Float[Array, " boxes"]:
    """Position of the axis minus that of its stop, for every row with bounds; means nothing for other rows."""
    at = system.box_axes
    return take(position, at) - jnp.where(_lower(system), take(params.lower, at), take(params.upper, at))


def reached(system: System, params: Params, position: Float[Array, " axes"]) -> Bool[Array, " boxes"]:
    """Whether an axis is at its stop or beyond; means nothing for rows of other kinds."""
    beyond = _beyond(system, params, position)
    return jnp.where(_lower(system), beyond <= 0, beyond >= 0)


def elastic(system: System, slow: Float[Array, " axes"], rate: Float[Array, " axes"]) -> Bool[Array, " boxes"]:
    """Whether an axis goes towards its stop fast enough to bounce off it; means nothing for rows of other kinds."""
    at = system.box_axes
    toward = jnp.where(_lower(system), -take(rate, at), take(rate, at))
    return (toward > take(slow, at)) & np.array([system.axes[i].bounces for i in at], dtype=bool)


def drive(
    system: System,
    params: Params,
    motor: int,
    command: Float[Array, ""],
    rate: Float[Array, ""],
    position: Float[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """(push, kappa) of a motor, whose impulse is push - kappa (b v+): its law over a step, in the form of Spook."""
    h, kind = params.step, system.motors[motor].type
    if kind == "position":
        quarter = h * h * params.servo[motor] / 4
        push = h * params.servo[motor] * (command - position) + quarter * rate
        return push, h * params.back_emf[motor] + quarter
    gain = params.back_emf[motor] if kind == "velocity" else params.gain[motor]
    return h * (gain * command), h * params.back_emf[motor] if kind != "torque" else jnp.zeros_like(h)


def stretched(
    system: System, params: Params, deflection: Float[Array, " elements"], rate: Float[Array, " axes"]
) -> Float[Array, " elements"]:
    """Deflections after a step at these rates, what goes beyond their reach slipped away. [rad or m]"""
    moved = deflection + params.step * take(rate, [element.axis for element in system.elements])
    return limited(moved, params.element_reach)


def rows(
    system: System,
    params: Params,
    mobility: Float[Array, " axes"],
    slow: Float[Array, " axes"],
    command: Float[Array, " motors"],
    rate: Float[Array, " axes"],
    position: Float[Array, " axes"],
    deflection: Float[Array, " elements"],
) -> Box:
    """The rows at a state; `mobility`, `slow`: as in `Prepared`."""
    h = params.step
    parts: list[tuple[Array, Array, Array, Array, Array, Array]] = []
    if system.friction_axes:
        force = h * dry_friction(system, params, command, rate, position)
        one = jnp.ones_like(force)
        upper = one
        if system.backward_axes:
            upper = one.at[np.array([system.friction_axes.index(i) for i in system.backward_axes])].set(params.backward)
        parts.append((force, one, params.v_creep * one, jnp.zeros_like(force), -one, upper))
    stops = system.boxes_of("lower", "upper")
    if len(stops):
        at, low = [system.box_axes[i] for i in stops], _lower(system)[stops]
        beyond, at_stop = _beyond(system, params, position)[stops], reached(system, params, position)[stops]
        gamma = 1 / (1 + 4 * take(params.stop_relaxation, at))
        slack = take(params.stop_compliance * mobility, at)
        offset = jnp.where(at_stop, 4 * gamma, 1.0) / h * beyond
        # one that bounces is not led back faster than it leaves by itself, or nothing would rest on it
        away = jnp.maximum(jnp.where(low, take(rate, at), -take(rate, at)), take(slow, at))
        bounces = np.array([system.axes[i].bounces for i in at], dtype=bool)
        offset = jnp.where(at_stop & bounces, jnp.clip(offset, -away, away), offset)
        # one that will bounce is not slowed down before
        far = jnp.where(~at_stop & elastic(system, slow, rate)[stops], 0.0, jnp.inf)
        one = jnp.ones_like(offset)
        parts.append((one, one, slack, offset, jnp.where(low, 0.0, -far), jnp.where(low, far, 0.0)))
    for i in system.boxes_of("motor"):
        row = system.boxes[i]
        push, kappa = drive(system, params, row.motor, command[row.motor], rate[row.axis], position[row.axis])
        force, one = h * params.max_force[row.motor], jnp.ones_like(h)
        parts.append((force[None], kappa[None], force[None], -push[None], -one[None], one[None]))
    if system.elements:
        reach, here = params.element_reach, take(rate, [element.axis for element in system.elements])
        # Spook's spring: its force is that of the mean of three deflections, as long as it does not slip
        offset = 4 / h * deflection - jnp.where(jnp.abs(deflection) < reach, here, 0.0)
        one = jnp.ones_like(reach)
        parts.append((h * params.element_stiffness * reach, one, 4 / h * reach, offset, -one, one))
    if not parts:
        return empty(system, rate.dtype)
    bearing = take(params.bearing, [system.friction_axes[i] for i in system.bearings])
    return Box(*map(jnp.concatenate, zip(*parts, strict=True)), bearing=bearing)
