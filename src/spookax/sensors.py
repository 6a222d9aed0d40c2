"""What sensors read of two neighbouring states: for estimators between them, for environments at the later one.

Poses live at t_k, velocities half a step before (leap-frog). A reading at t_k + s h takes what lies around it: the
poses of k + 1 moved back along their own velocity, and the line through the velocities at t_k - h/2 and t_k + h/2. At
s = 1 nothing later than t_k+1 has a part in it, so that this is what a controller may know then: the pose itself, and
the rate of the last step carried half a step on.

A force of contacts is that of the step between the two states, whatever s is.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ._typing import Array, Float, Scalar
from .constraints import Prepared, axes, frames
from .constraints.assemble import velocity
from .math import rotation
from .math.blocks import in_order, take
from .math.product import matvec
from .system import State, System


def readings(
    system: System,
    engine: Prepared,
    sensors: tuple[int, ...],
    now: State,
    after: State,
    s: Scalar | Float[Array, " channels"],
) -> Float[Array, " channels"]:
    """What sensors say at t_k + s h, without their offsets; what one with a `delay` says then is that much older."""
    groups: dict[tuple[str, bool], list[int]] = {}
    for place, i in enumerate(sensors):
        groups.setdefault((system.sensors[i].type, system.sensors[i].delayed), []).append(place)
    delays = any(delayed for _, delayed in groups)
    begin = np.cumsum([0, *(system.sensors[i].size for i in sensors)]).tolist()
    parts, order, moment = [], [], None
    for (kind, delayed), places in groups.items():
        mine = [sensors[place] for place in places]
        if kind == "contact_force":
            assert after.felt is not None  # every state of such a mechanism has it
            found = take(after.felt, [system.force_sensors.index(i) for i in mine])
        elif delays:  # each reads a time of its own
            at = take(s, [begin[p] for p in places]) if jnp.ndim(s) else jnp.broadcast_to(s, (len(places),))
            if delayed:
                at = at - take(engine.params.age, mine) / engine.params.step
            late = jax.vmap(functools.partial(between, system, engine, now, after, delayed=delayed))(at)
            found = _read(system, engine, kind, mine, late, True)
        else:
            moment = moment or between(system, engine, now, after, s[0] if jnp.ndim(s) else s)
            found = _read(system, engine, kind, mine, moment, False)
        parts.append(found.reshape(-1))
        order += [(p, k) for p in places for k in range(system.sensors[sensors[p]].size)]
    return in_order(parts, order)


def _read(
    system: System,
    engine: Prepared,
    kind: str,
    mine: list[int],
    moment: tuple[State, Array | None, Array | None],
    each: bool,
) -> Float[Array, "mine ..."]:
    """What sensors of one type read at a moment; `each`: of moments of their own, along a first axis."""
    there, position, rate = moment
    targets = [system.sensors[i].target for i in mine]

    def of_target(values: Array) -> Array:
        return values[np.arange(len(mine)), np.array(targets)] if each else take(values, targets)

    if kind == "joint_position":
        return axes.encoders(system, engine.params.cyclic, mine, of_target(position))  # pyright: ignore
    if kind == "joint_rate":
        return of_target(rate)  # pyright: ignore
    e = of_target(there.e)
    R = rotation.matrix(e)
    origin = of_target(there.r) - matvec(R, take(engine.params.com, targets))
    if kind == "body_pose":
        return jnp.concatenate([origin, rotation.log(e)], axis=1)
    return origin + matvec(R, take(engine.params.point, mine))


def between(
    system: System, engine: Prepared, now: State, after: State, s: Scalar | float, delayed: bool = False
) -> tuple[State, Array | None, Array | None]:
    """The state at t_k + s h, positions and rates of all axes (None without axes).

    Poses are those of k + 1 moved back by (1 - s) h along its own velocity, which is exactly q_k box-plus s h
    v_(k+1); rates interpolate the velocities at t_k - h/2 and t_k + h/2. A delayed reading may lie elsewhere:
    poses are those of the parabola through k - 1, k and k + 1, right to third order in h.
    """
    h = engine.params.step
    if delayed:
        ahead = s >= 0
        bend = h * s * jnp.where(ahead, s - 1, s + 1) / 2
        base = jax.tree.map(lambda a, b: jnp.where(ahead, a, b), after, now)
        dt = h * jnp.where(ahead, s - 1, s)
        r = base.r + dt * base.v + bend * (after.v - now.v)
        e = rotation.plus(base.e, dt * base.w + bend * (after.w - now.w))
        there = eqx.tree_at(lambda x: (x.r, x.e), base, (r, e))
    else:
        there = after.moved(-(1 - s) * h)
    if not system.axes:
        return there, None, None
    kin = frames.kinematics(system, there.r, there.e, engine.geometry)
    speed = (0.5 - s) * velocity(now) + (0.5 + s) * velocity(after)
    rate = axes.rates(system, *axes.rate_rows(system, kin), speed)
    return there, axes.coordinates(system, kin, after.near), rate
