"""What sensors read of two neighbouring states: for estimators between them, for environments at the later one.

Poses live at t_k, velocities half a step before (leap-frog). A reading at t_k + s h takes what lies around it: the
poses of k + 1 moved back along their own velocity, and the line through the velocities at t_k - h/2 and t_k + h/2. At
s = 1 nothing later than t_k+1 has a part in it, so that this is what a controller may know then: the pose itself, and
the rate of the last step carried half a step on.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from ._typing import Array, Float, Scalar
from .constraints import Prepared, axes, frames
from .constraints.assemble import velocity
from .math import rotation
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
    out: list[Array] = []
    there = place = rate = None
    column, delays = 0, any(system.sensors[i].delayed for i in sensors)
    for i in sensors:
        sensor = system.sensors[i]
        if there is None or delays:
            at = s[column] if jnp.ndim(s) else s
            if sensor.delayed:
                at = at - engine.params.age[i] / engine.params.step
            there, place, rate = between(system, engine, now, after, at, sensor.delayed)
        column += sensor.size
        if sensor.type == "joint_position":
            out.append(axes.encoder(system, engine.params.cyclic, i, place)[None])  # pyright: ignore
        elif sensor.type == "joint_rate":
            out.append(rate[sensor.target][None])  # pyright: ignore
        else:
            R = rotation.matrix(there.e[sensor.target])
            origin = there.r[sensor.target] - matvec(R, engine.params.com[sensor.target])
            if sensor.type == "body_pose":
                out += [origin, rotation.log(there.e[sensor.target])]
            else:
                out.append(origin + matvec(R, engine.params.point[i]))
    return jnp.concatenate(out)


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
