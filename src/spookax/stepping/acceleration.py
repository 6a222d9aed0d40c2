"""The limit of the step as h goes to zero: accelerations under joints that are perfectly stiff.

    D a - G' lam + sum kappa b' (b a) = f,      G a = -(dG/dt) v - d(drive)/dt

in the symbols of the step's rows (docs/engine.md), with the forces and rotors of the joint axes. There is no such limit
where a force depends on the velocity through a set (dry friction) or a motion jumps (stops).
"""

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float
from ..constraints import Prepared, Rows, air, axes, boxes, frames, motors
from ..constraints.assemble import axis_motion, node_rates, scatter, velocity, violations
from ..constraints.prepared import mass_matrix
from ..math import rotation
from ..math.product import matvec
from ..system import BoxKind, State, System
from . import saddle

_COMPLIANCE = 1e-9  # of redundant rows beside the bodies': what keeps closed loops regular
_WHY = {
    BoxKind.friction: "dry friction, whose force jumps where a joint begins to move",
    BoxKind.lower: "a stop",
    BoxKind.upper: "a stop",
    BoxKind.motor: "a motor whose force is bounded and depends on the rate",
    BoxKind.element: "elasto-slide elements",
}


def why_undefined(system: System) -> str | None:
    """What keeps a mechanism from having accelerations that are a function of its state; None if nothing does."""
    for row in system.boxes:
        if row.kind is BoxKind.own:
            return f"the row '{system.bounded[row.number].name}' of one's own has bounds"
        return f"the axis '{system.axes[row.line].name}' has {_WHY[row.kind]}"
    if system.contacts.pairs:
        return "surfaces may touch (`contacts`)"
    return "a motor has a delay" if system.history else None


def accelerations(
    system: System, prepared: Prepared, state: State, command: Float[Array, " motors"], push: Float[Array, " axes"]
) -> tuple[Float[Array, "bodies 6"], Float[Array, " axes"]]:
    """Of all bodies (world, body axes) and of the axes' coordinates [m/s^2 and rad/s^2], under commands and further
    forces on the axes [N m or N]; pose and velocity of `state` at the same time.

    **Raises:** `ValueError` for a mechanism that has none, see `why_undefined`.
    """
    if (why := why_undefined(system)) is not None:
        raise ValueError(f"no acceleration is defined: {why}")
    params, h, v = prepared.params, prepared.params.step, velocity(state)

    def there(dt: Array) -> tuple[Array, Array, frames.Kinematics]:
        """G v + drive and the axes' rates at a pose along the motion, the velocities kept."""
        e = rotation.multiply(state.e, rotation.exp(dt * state.w))
        kin = frames.kinematics(system, state.r + dt * state.v, e, prepared.geometry)
        b_A, b_B, rate, position = axis_motion(system, kin, state.near, v)
        found = violations(system, params, kin, (b_A, b_B), position, state.time + dt)
        return node_rates(system, found.G, v) + found.drive, rate, kin

    (_, rate, kin), (bend, rate_bend, _) = jax.jvp(there, (jnp.zeros_like(h),), (jnp.ones_like(h),))
    b_A, b_B, _, position = axis_motion(system, kin, state.near, v)
    found = violations(system, params, kin, (b_A, b_B), position, state.time)

    torque = jnp.cross(matvec(prepared.J, state.w), state.w)  # -w x J w
    force = jnp.concatenate([params.mass[:, None] * jnp.broadcast_to(prepared.gravity, state.v.shape), torque], axis=-1)
    if system.air:
        force = force + air.resistance(system, prepared, v).force
    if system.axes:
        _, servo = motors.implicit(system, params)
        on_axes = (
            motors.impulses(system, params, command, rate, position) / h
            - h / 4 * servo * rate  # what impulses have of it for the step's mean of three positions
            - prepared.damping / h * rate
            - params.drag * jnp.abs(rate) * rate
            - params.stiffness * (position - params.rest)
            - params.armature * rate_bend
            + push
        )
        force = force + scatter(system, b_A, b_B, on_axes)
    scale = prepared.sigma / params.relative_compliance
    others = jnp.full((len(system.node_rows) - len(system.joints), system.width), jnp.mean(1 / params.mass))
    scale = jnp.concatenate([scale, others])
    none = jnp.zeros((0, 6), dtype=v.dtype)
    rows = Rows(
        D=mass_matrix(params, prepared.J),
        p=-force,
        kappa=params.armature,
        b_A=b_A,
        b_B=b_B,
        b_own=none,
        b_own_ahead=none,
        G=found.G,
        G_ahead=found.G,
        sigma=jnp.where(np.asarray(system.filled), _COMPLIANCE * scale, 1.0),
        a=jnp.where(np.asarray(system.filled), bend, 0.0),
        box=boxes.empty(system, v.dtype),
        contacts=None,
        position=position,
    )
    a, _ = saddle.refined_solve(system, saddle.factor(system, rows), rows)
    return a, axes.rates(system, b_A, b_B, a) + rate_bend if system.axes else rate_bend
