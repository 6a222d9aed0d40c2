"""The rows of one step as data. `stepping.spook` solves them, `stepping.inverse` evaluates them: they cannot differ.

Unknowns: body velocities v+ (6 each), joint impulses lam, and x of the rows with bounds, with impulse F x:

    D v+ + sum_axes kappa b^T (b v+) - G^T lam - b^T F x - J^T cone + p = 0       balance of impulses
    G_ahead v+ + Sigma lam + a = 0                                    joints and user rows
    dry friction, stops, motors with a largest force: `boxes`; contacts, cone a function of J v+: `contacts`

kappa = h c + J_r + h^2 k / 4 collects what is linear and implicit on an axis: viscous friction (and quadratic drag,
made linear at the rate before the step, see `damping`), rotor inertia and the Spook form of a spring, with the row's
own impulse eliminated (same equations as separate rows, no division by a coefficient that may be zero). Friction
impulses are scaled by their bound F = h f, so that the bounds are constants and F = 0 needs no special case.

Rows that bind positions are linearised where the step will end, forces act where it begins: see `_ahead`.

Source: Marklund, Servin, Larson (2025), eqs. (2.8)-(2.11), (2.17)-(2.19), (2.25)-(2.26), with +h(f + f_g).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float, Scalar
from ..math import rotation
from ..math.blocks import in_order, joined, sums, take
from ..math.product import matvec
from ..system import Params, State, System
from . import air, axes, bounded, boxes, contact_rows, custom, frames, gyro, motors, shipped_joints
from .boxes import Box
from .prepared import Prepared, damping, inverse_masses, mass_matrix


class Rows(eqx.Module):
    """One step as data (see the module's head). Impulses; `nodes` are joints, couplings, user rows.

    All nodes have as many rows as the largest. Rows that a node does not have say 0 v + 1 lam + 0 = 0.
    """

    D: Float[Array, "bodies 6 6"]
    p: Float[Array, "bodies 6"]
    kappa: Float[Array, " lines"]
    b_A: Float[Array, "axes 6"]
    b_B: Float[Array, "axes 6"]
    b_own: Float[Array, "own_sides 6"]  # Jacobians of the user's lines, along which forces act
    b_own_ahead: Float[Array, "own_sides 6"]  # those of their rates
    G: Float[Array, "edges rows 6"]  # Jacobian of every (node, body) of `System.edges`, along which forces act
    G_ahead: Float[Array, "edges rows 6"]  # that of the rows: of holonomic ones a step ahead
    sigma: Float[Array, "nodes rows"]
    a: Float[Array, "nodes rows"]
    box: Box
    contacts: contact_rows.Contacts | None  # None in a mechanism without
    position: Float[Array, " axes"]  # unwrapped coordinates at t_k; not part of the equations
    cross: Float[Array, " discs"] | None = None  # kappa between the two lines of every disc, see `stepping.discs`


def velocity(state: State) -> Float[Array, "bodies 6"]:
    """Stacked (v, w)."""
    return jnp.concatenate([state.v, state.w], axis=-1)


def scatter(
    system: System, b_A: Float[Array, "axes 6"], b_B: Float[Array, "axes 6"], amount: Float[Array, " axes"]
) -> Float[Array, "bodies 6"]:
    """Impulses b^T amount on the bodies."""
    return sums(jnp.concatenate([b_A, b_B]) * jnp.concatenate([amount, amount])[:, None], system.axes_of_body)


def joint_rows(
    system: System, kin: frames.Kinematics
) -> tuple[Float[Array, "joints rows"], Float[Array, "joint_edges rows 6"]]:
    """Violation of every joint, and the Jacobians of its edges; rows that a joint does not have are zero."""
    parts: tuple[list[Array], ...] = ([], [], [])
    order: list[int] = []
    for kind in dict.fromkeys(j.kind for j in system.joints):
        members = [i for i, j in enumerate(system.joints) if j.kind == kind]
        for part, found in zip(
            parts, shipped_joints.rows(kind, shipped_joints.take(kin.joints, tuple(members))), strict=True
        ):
            missing = [(0, 0), (0, system.width - found.shape[1])] + [(0, 0)] * (found.ndim - 2)
            part.append(jnp.pad(found, missing))
        order += members
    if not order:
        return jnp.zeros((0, system.width), dtype=kin.r.dtype), jnp.zeros((0, system.width, 6), dtype=kin.r.dtype)
    back = [order.index(i) for i in range(len(order))]
    gap, G_A, G_B = (take(jnp.concatenate(part) if len(part) > 1 else part[0], back) for part in parts)
    held = [j for j, joint in enumerate(system.joints) if joint.parent >= 0]
    return gap, jnp.concatenate([G_B, take(G_A, held)]) if held else G_B


class Violations(NamedTuple):
    """What every constraint node says at a pose. `gap`: g of holonomic rows, `drive`: -gamma(t) of the others."""

    gap: Float[Array, "nodes rows"]
    drive: Float[Array, "nodes rows"]
    G: Float[Array, "edges rows 6"]


def violations(
    system: System,
    params: Params,
    kin: frames.Kinematics,
    axis_rows: tuple[Float[Array, "axes 6"], Float[Array, "axes 6"]],
    position: Float[Array, " axes"],
    time: Scalar,
) -> Violations:
    """Joints, couplings and user rows at a pose, with the rate rows and unwrapped positions of the axes there."""
    gap, G = joint_rows(system, kin)
    gaps, drives, jacobians = [gap], [jnp.zeros_like(gap)], [G]
    if system.couplings:
        gap, G = axes.coupling_rows(system, params, *axis_rows, position)
        gaps.append(_filled_up(system, gap[:, None]))
        drives.append(jnp.zeros_like(gaps[-1]))
        jacobians.append(_filled_up(system, G[:, None]))
    if system.constraints:
        batches = custom.linearised(system, params, kin, range(len(system.constraints)), time)
        values = [_filled_up(system, batch.value) for batch in batches]
        found = in_order(values, [i for batch in batches for i in batch.members])
        binds = np.array([row.holonomic for row in system.constraints], dtype=bool)[:, None]
        gaps.append(jnp.where(binds, found, 0.0))
        drives.append(jnp.where(binds, 0.0, found))
        of_edges = [(i, side) for batch in batches for i in batch.members for side in range(batch.J.shape[1])]
        blocks = [_filled_up(system, batch.J.reshape(-1, *batch.J.shape[2:])) for batch in batches]
        jacobians.append(in_order(blocks, of_edges))
    # nodes of rows with bounds have no rows of their own, nor do bodies in nodes that are only followed
    missing = len(system.edges) - sum(part.shape[0] for part in jacobians)
    if system.bounded:
        gaps.append(jnp.zeros((len(system.bounded), system.width), dtype=kin.r.dtype))
        drives.append(gaps[-1])
    if missing:
        jacobians.append(jnp.zeros((missing, system.width, 6), dtype=kin.r.dtype))
    return Violations(*map(joined, (gaps, drives, jacobians)))


def _filled_up(system: System, rows: Float[Array, "nodes rows ..."]) -> Float[Array, "nodes width ..."]:
    """Rows of nodes, and zeros for those that they do not have."""
    return jnp.pad(rows, [(0, 0), (0, system.width - rows.shape[1])] + [(0, 0)] * (rows.ndim - 2))


def assemble(
    system: System,
    prepared: Prepared,
    state: State,
    command: Float[Array, " motors"],
    impulse: Float[Array, "bodies 6"],
) -> Rows:
    """Rows of the step from `state` under motor commands (mean over the step's kick) and extra body impulses.

    `impulse`: world force and body torque, each times time [N s, N m s].
    """
    params, h = prepared.params, prepared.params.step
    kin = frames.kinematics(system, state.r, state.e, prepared.geometry)
    v = velocity(state)

    b_A, b_B, rate, position = axis_motion(system, kin, state.near, v)
    here = violations(system, params, kin, (b_A, b_B), position, state.time)
    gap, _, G = here
    sigma, gamma = prepared.sigma, prepared.gamma
    others = len(system.node_rows) - len(system.joints)
    if others:
        compliance = jnp.concatenate([params.coupling_compliance, params.row_compliance])
        relaxation = jnp.concatenate([params.coupling_relaxation, params.row_relaxation])
        mobility = jnp.where(system.filled[-others:], compliance[:, None] * _mobility(system, prepared, G, others), 1.0)
        late = jnp.broadcast_to(1 / (1 + 4 * relaxation)[:, None], mobility.shape)
        sigma, gamma = jnp.concatenate([sigma, mobility]), jnp.concatenate([gamma, late])
    a, G_ahead = gap, G
    if system.edges:
        slope, G_ahead = _ahead(system, prepared, state, here, position + h * rate)
        speed = node_rates(system, G, v)
        a = gamma * (4 / h * gap - (2 * speed - slope)) + slope - node_rates(system, G_ahead, v)
        if not np.all(system.holonomic):
            a = jnp.where(system.holonomic, a, _slip_ahead(system, prepared, state) - speed)
        if np.any(system.in_loops):
            # where a loop passes a pose with dependent rows, G_ahead may have another sign than G: see docs/engine.md
            turned = _mobility(system, prepared, G_ahead - G, len(system.node_rows))
            sigma = sigma + jnp.where(system.in_loops[:, None] & system.filled, turned / 4, 0.0)

    free, block = jax.vmap(gyro.free_motion, (0, 0, None))(state.w, prepared.J, h)
    D = mass_matrix(params, block)
    falls = state.v + h * prepared.gravity[None]
    kick = jnp.concatenate([params.mass[:, None] * falls, matvec(block, free)], axis=-1)
    if system.air:
        resistance = air.resistance(system, prepared, v)
        D, kick = D + resistance.block, kick + resistance.brake

    kappa = prepared.kappa
    if system.axes:
        kappa, brake = damping(system, prepared, rate)
        spring = h * h * params.stiffness / 4
        push = (
            motors.impulses(system, params, command, rate, position)
            - h * params.stiffness * (position - params.rest)
            + (params.armature + spring - brake) * rate
        )
        if any(axis.bends for axis in system.axes):
            push = push - params.armature * _bend(system, prepared, state)
        kick = kick + scatter(system, b_A, b_B, push)
    own = bounded.rows(system, prepared, state, kin)
    if system.own_lines:
        kappa = jnp.concatenate([kappa, jnp.zeros_like(own.offset)])
    box = boxes.rows(system, boxes.Here(prepared, command, rate, position, state.deflection, own))
    touch = contact_rows.rows(system, params, state.r, state.e, v) if system.contacts.pairs else None
    return Rows(D, -(kick + impulse), kappa, b_A, b_B, own.b, own.b_ahead, G, G_ahead, sigma, a, box, touch, position)


def _ahead(
    system: System, prepared: Prepared, state: State, here: Violations, near: Float[Array, " axes"]
) -> tuple[Float[Array, "nodes rows"], Float[Array, "edges rows 6"]]:
    """How fast every violation changes, on average, over a step with the present velocities; its Jacobian at the end.

    With g at q_k and g' a step of v_k ahead, (g' - g) / h + G' (v+ - v_k) is the mean rate of g over the coming step
    but for (h / 2) d2g[v+ - v_k, v+ - v_k]: a row for it instead of G v+ leaves no gap where the motion is curved.
    That over the step before is G v_k - ((g' - g) / h - G v_k) but for (h^2 / 3) d3g[v_k, v_k, v_k], on the side that
    dissipates. Rows that bind velocities keep their Jacobian, see `_slip_ahead`.
    """
    there = _violations_after(system, prepared, state, prepared.params.step, near)
    slope = (there.gap - here.gap) / prepared.params.step
    if np.all(system.holonomic):
        return slope, there.G
    binds = system.holonomic[[node for node, _ in system.edges]]
    return slope, jnp.where(binds[:, :, None], there.G, here.G)


def _slip_ahead(system: System, prepared: Prepared, state: State) -> Float[Array, "nodes rows"]:
    """G v - gamma half a step ahead, at the present velocities: where the new ones belong (else a first-order error).

    With that of the present, G v+ + (G_half - G) v - gamma_half = 0 is G_half v+ = gamma_half to second order, and
    keeps one Jacobian for the rows and for their forces.
    """
    half = prepared.params.step / 2
    there = _violations_after(system, prepared, state, half, state.near)
    return there.drive + node_rates(system, there.G, velocity(state))


def _violations_after(
    system: System, prepared: Prepared, state: State, dt: Scalar, near: Float[Array, " axes"]
) -> Violations:
    """What the nodes say a time `dt` later along the present velocities."""
    there = state.moved(dt)
    kin = frames.kinematics(system, there.r, there.e, prepared.geometry)
    b_A, b_B, _, position = axis_motion(system, kin, near, velocity(state))
    return violations(system, prepared.params, kin, (b_A, b_B), position, there.time)


def node_rates(
    system: System, G: Float[Array, "edges rows 6"], v: Float[Array, "bodies 6"]
) -> Float[Array, "nodes rows"]:
    """G v of every constraint node."""
    return sums(matvec(G, take(v, [body for _, body in system.edges])), system.edges_of_node)


def _bend(system: System, prepared: Prepared, state: State) -> Float[Array, " axes"]:
    """What the rates change in a step because their rows do, the velocities kept: (d/dt b) v h, which rotors feel.

    Those of an axis that simply turns do not change.
    """
    h, v = prepared.params.step, velocity(state)

    def rates(time: Array) -> Array:
        e = rotation.multiply(state.e, rotation.exp(time * state.w))
        kin = frames.kinematics(system, state.r + time * state.v, e, prepared.geometry)
        return axes.rates(system, *axes.rate_rows(system, kin), v)

    _, change = jax.jvp(rates, (jnp.zeros_like(h),), (h,))
    return jnp.where(np.array([axis.bends for axis in system.axes]), change, 0.0)


def axis_motion(
    system: System, kin: frames.Kinematics, near: Float[Array, " axes"], v: Float[Array, "bodies 6"]
) -> tuple[Float[Array, "axes 6"], Float[Array, "axes 6"], Float[Array, " axes"], Float[Array, " axes"]]:
    """Rate rows, rates and unwrapped positions of all axes; empty for a mechanism without."""
    if not system.axes:
        rows, numbers = jnp.zeros((0, 6), dtype=v.dtype), jnp.zeros(0, dtype=v.dtype)
        return rows, rows, numbers, numbers
    b_A, b_B = axes.rate_rows(system, kin)
    return b_A, b_B, axes.rates(system, b_A, b_B, v), axes.coordinates(system, kin, near)


def _mobility(
    system: System, prepared: Prepared, G: Float[Array, "edges rows 6"], last: int
) -> Float[Array, "last rows"]:
    """diag(G M^-1 G^T) of the last nodes."""
    groups = system.edges_of_node[-last:]
    numbers = [i for group in groups for i in group]
    mine = [[numbers.index(i) for i in group] for group in groups]
    return sums(inverse_masses(prepared, take(G, numbers), [system.edges[i][1] for i in numbers]), mine)
