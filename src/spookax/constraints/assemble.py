"""The rows of one step as data. `stepping.spook` solves them, `stepping.inverse` evaluates them: they cannot differ.

Unknowns: body velocities v+ (6 each), joint impulses lam, dry-friction levels x in [-1, 1] with impulse F x:

    D v+ + sum_axes kappa b^T (b v+) - G^T lam - b^T F x + p = 0       balance of impulses
    G v+ + Sigma lam + a = 0                                          joints and user rows
    b v+ + v_creep x = w,   w >= 0 at x = -1, <= 0 at x = 1, = 0 inside   dry friction

kappa = h c + J_r + h^2 k / 4 collects what is linear and implicit on an axis: viscous friction, rotor inertia and
the Spook form of a spring, with the row's own impulse eliminated (same equations as separate rows, no division by a
coefficient that may be zero). Friction impulses are scaled by their bound F = h f, so that the bounds are constants
and F = 0 needs no special case.

Source: Marklund, Servin, Larson (2025), eqs. (2.8)-(2.11), (2.17)-(2.19), (2.25)-(2.26), with +h(f + f_g).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float, Scalar
from ..math import rotation
from ..math.block_sparse import inverse
from ..math.product import matmul, matvec
from ..scene.kinds import KINDS
from ..system import Params, State, System
from ..system.params import inertia_matrix
from . import axes, custom, frames, gyro, joints


class Prepared(eqx.Module):
    """What depends on parameters only; computed once per rollout."""

    params: Params
    geometry: frames.Geometry
    J: Float[Array, "bodies 3 3"]
    gravity: Float[Array, " 3"]  # in the axes of the tilted base
    sigma: tuple[Float[Array, " rows"], ...]  # one per joint
    gamma: Float[Array, " joints"]
    axis_damping: Float[Array, " axes"]  # viscous plus back-EMF [N m s/rad or N s/m]


class Rows(eqx.Module):
    """One step as data (see the module's head). Impulses; `nodes` are joints, couplings, user rows."""

    D: Float[Array, "bodies 6 6"]
    p: Float[Array, "bodies 6"]
    kappa: Float[Array, " axes"]
    b_A: Float[Array, "axes 6"]
    b_B: Float[Array, "axes 6"]
    G: tuple[tuple[Float[Array, "rows 6"], ...], ...]  # per node, per body of it
    sigma: tuple[Float[Array, " rows"], ...]
    a: tuple[Float[Array, " rows"], ...]
    bound: Float[Array, " friction"]  # F = h f [N m s or N s]
    creep: Scalar
    position: Float[Array, " axes"]  # unwrapped coordinates at t_k; not part of the equations


def base_gravity(params: Params) -> Float[Array, " 3"]:
    """Gravity seen from the base, which is turned by R_y(tilt y) R_x(tilt x)."""
    turn = rotation.multiply(
        rotation.exp(jnp.stack([jnp.zeros_like(params.tilt[1]), params.tilt[1], jnp.zeros_like(params.tilt[1])])),
        rotation.exp(jnp.stack([params.tilt[0], jnp.zeros_like(params.tilt[0]), jnp.zeros_like(params.tilt[0])])),
    )
    return matvec(rotation.matrix(turn).T, params.gravity)


def prepare(system: System, params: Params) -> Prepared:
    """Inertia matrices, joint geometry and regularisation.

    Sigma = 4 eps gamma / h^2 is given relative to the inverse effective mass at the joint point:
    rho (1/m_A + 1/m_B + 2/9 (|s_A|^2 tr J_A^-1 + |s_B|^2 tr J_B^-1)) for lengths, rho (tr J_A^-1 + tr J_B^-1)/3 for
    angles: the mean of diag(G M^-1 G^T) over orientations, so that the compliance is a constant of the mechanism.
    """
    geometry = frames.geometry(system, params)
    J = inertia_matrix(params.inertia)
    J_trace = jnp.trace(jax.vmap(inverse)(J), axis1=-2, axis2=-1)
    inverse_mass = jnp.concatenate([1 / params.mass, jnp.zeros_like(params.mass[:1])])
    inverse_J = jnp.concatenate([J_trace, jnp.zeros_like(J_trace[:1])])
    sigma = []
    for j, joint in enumerate(system.joints):
        A, B = joint.parent, joint.child
        lever = jnp.sum(geometry.s_A[j] ** 2) * inverse_J[A] + jnp.sum(geometry.s_B[j] ** 2) * inverse_J[B]
        length = inverse_mass[A] + inverse_mass[B] + 2 / 9 * lever
        angle = (inverse_J[A] + inverse_J[B]) / 3
        is_length = jnp.array(KINDS[joint.type].lengths)
        sigma.append(params.relative_compliance[j] * jnp.where(is_length, length, angle))
    damping = params.viscous
    for m, motor in enumerate(system.motors):
        damping = damping.at[motor.axis].add(params.back_emf[m])
    return Prepared(params, geometry, J, base_gravity(params), tuple(sigma), 1 / (1 + 4 * params.relaxation), damping)


def motor_forces(
    system: System, params: Params, command: Float[Array, " motors"], position: Float[Array, " axes"]
) -> Float[Array, " axes"]:
    """Torque or force of every axis from its motors: gain * u + bias + cogging (back-EMF is in the damping)."""
    force = jnp.zeros(len(system.axes), dtype=params.mass.dtype)
    for m, motor in enumerate(system.motors):
        force = force.at[motor.axis].add(params.gain[m] * command[m] + params.bias[m])
    for (m, order), factors in zip(system.cogging, params.cogging, strict=True):
        axis = system.motors[m].axis
        force = force.at[axis].add(axes.harmonic(system, axis, order, factors, position))
    return force


def dry_friction(system: System, params: Params, rate: Float[Array, " axes"]) -> Float[Array, " friction"]:
    """Coulomb level plus Stribeck excess at the present rate, per friction axis [N m or N]."""
    index = np.array(system.friction_axes, dtype=int)
    ratio = jnp.abs(rate[index]) / params.stribeck_speed[index]
    safe = jnp.where(ratio > 0, ratio, 1.0)
    power = jnp.where(ratio > 0, safe ** params.stribeck_exponent[index], 0.0)
    return params.coulomb[index] + params.stribeck_excess[index] * jnp.exp(-power)


def velocity(state: State) -> Float[Array, "bodies 6"]:
    """Stacked (v, w)."""
    return jnp.concatenate([state.v, state.w], axis=-1)


def scatter(
    system: System, b_A: Float[Array, "axes 6"], b_B: Float[Array, "axes 6"], amount: Float[Array, " axes"]
) -> Float[Array, "bodies 6"]:
    """Impulses b^T amount on the bodies."""
    out = jnp.zeros((system.num_bodies + 1, 6), dtype=b_A.dtype)
    parents, children = system.axis_ends()
    out = out.at[parents % (system.num_bodies + 1)].add(b_A * amount[:, None]).at[children].add(b_B * amount[:, None])
    return out[:-1]


def poses_of(system: System, params: Params, kin: frames.Kinematics, names: tuple[str, ...]) -> tuple:
    """Poses of the named bodies for a user row."""
    com = jnp.concatenate([params.com, jnp.zeros_like(params.com[:1])])
    index = [-1 if name == "world" else system.bodies.index(name) for name in names]
    return tuple(custom.Pose(kin.r[i], kin.e[i], com[i]) for i in index)


def joint_rows(system: System, kin: frames.Kinematics) -> tuple[list[Array], list[tuple[Array, ...]]]:
    """Violation and Jacobians of every joint; the world's Jacobian is left out."""
    f = kin.joints
    gaps: list[Array] = [jnp.zeros(0)] * len(system.joints)
    jacobians: list[tuple[Array, ...]] = [()] * len(system.joints)
    for kind in dict.fromkeys(j.type for j in system.joints):
        members = [i for i, j in enumerate(system.joints) if j.type == kind]
        gap, G_A, G_B = joints.rows(kind, joints.take(f, tuple(members)))
        for row, i in enumerate(members):
            gaps[i] = gap[row]
            jacobians[i] = (G_B[row],) if system.joints[i].parent < 0 else (G_A[row], G_B[row])
    return gaps, jacobians


def node_bodies(system: System) -> tuple[tuple[int, ...], ...]:
    """Body numbers of every constraint node, in the order of its Jacobians (the world left out)."""
    of_joints = tuple((j.child,) if j.parent < 0 else (j.parent, j.child) for j in system.joints)
    of_couplings = tuple(system.coupled_bodies(c) for c in system.couplings)
    of_rows = tuple(tuple(system.bodies.index(n) for n in c.bodies if n != "world") for c in system.constraints)
    return of_joints + of_couplings + of_rows


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

    gaps, G = joint_rows(system, kin)
    sigma = list(prepared.sigma)
    a = [
        4 * prepared.gamma[j] / h * gaps[j] - prepared.gamma[j] * _speed(system, G[j], (joint.parent, joint.child), v)
        for j, joint in enumerate(system.joints)
    ]
    b_A, b_B, rate, position = axis_motion(system, kin, state.near, v)
    for c, (gap, jac) in enumerate(zip(*axes.coupling_rows(system, params, b_A, b_B, position), strict=True)):
        index = system.coupled_bodies(system.couplings[c])
        gamma = 1 / (1 + 4 * params.coupling_relaxation[c])
        G.append(jac)
        a.append(4 * gamma / h * gap - gamma * _speed(system, jac, index, v))
        sigma.append(params.coupling_compliance[c] * _inverse_mass(params, prepared.J, jac, index))
    for c, row in enumerate(system.constraints):
        bias, jac = custom.linearise(row, poses_of(system, params, kin, row.bodies), params.rows[c], state.time)
        index = tuple(-1 if n == "world" else system.bodies.index(n) for n in row.bodies)
        jac = tuple(block for block, i in zip(jac, index, strict=True) if i >= 0)
        gamma = 1 / (1 + 4 * params.row_relaxation[c])
        if isinstance(row, custom.AbstractHolonomic):
            bias = 4 * gamma / h * bias - gamma * _speed(system, jac, index, v)
        G.append(jac)
        a.append(bias)
        sigma.append(params.row_compliance[c] * _inverse_mass(params, prepared.J, jac, index))

    free, block = jax.vmap(gyro.free_motion, (0, 0, None))(state.w, prepared.J, h)
    linear = params.mass[:, None, None] * jnp.eye(3, dtype=v.dtype)
    zero = jnp.zeros_like(linear)
    D = jnp.concatenate([jnp.concatenate([linear, zero], axis=-1), jnp.concatenate([zero, block], axis=-1)], axis=-2)
    kick = jnp.concatenate([params.mass[:, None] * (state.v + h * prepared.gravity), matvec(block, free)], axis=-1)

    if system.axes:
        spring = h * h * params.stiffness / 4
        kappa = h * prepared.axis_damping + params.armature + spring
        push = (
            h * motor_forces(system, params, command, position)
            - h * params.stiffness * (position - params.rest)
            + (params.armature + spring) * rate
        )
        kick = kick + scatter(system, b_A, b_B, push)
        bound = h * dry_friction(system, params, rate)
    else:
        kappa = bound = jnp.zeros(0, dtype=v.dtype)
    return Rows(
        D, -(kick + impulse), kappa, b_A, b_B, tuple(G), tuple(sigma), tuple(a), bound, params.v_creep, position
    )


def axis_motion(
    system: System, kin: frames.Kinematics, near: Float[Array, " axes"], v: Float[Array, "bodies 6"]
) -> tuple[Float[Array, "axes 6"], Float[Array, "axes 6"], Float[Array, " axes"], Float[Array, " axes"]]:
    """Rate rows, rates and unwrapped positions of all axes; empty for a mechanism without."""
    if not system.axes:
        rows, numbers = jnp.zeros((0, 6), dtype=v.dtype), jnp.zeros(0, dtype=v.dtype)
        return rows, rows, numbers, numbers
    b_A, b_B = axes.rate_rows(system, kin)
    return b_A, b_B, axes.rates(system, b_A, b_B, v), axes.coordinates(system, kin, near)


def _speed(system: System, jacobians: tuple[Array, ...], index: tuple[int, ...], v: Array) -> Array:
    bodies = [i for i in index if i >= 0]
    return sum((matvec(jac, v[i]) for jac, i in zip(jacobians, bodies, strict=True)), jnp.zeros(jacobians[0].shape[0]))


def _inverse_mass(params: Params, J: Array, jacobians: tuple[Array, ...], index: tuple[int, ...]) -> Array:
    """diag(G M^-1 G^T) of a user row."""
    bodies = [i for i in index if i >= 0]
    total = jnp.zeros(jacobians[0].shape[0])
    for jac, i in zip(jacobians, bodies, strict=True):
        total = total + jnp.sum(jac[:, :3] ** 2, axis=1) / params.mass[i]
        total = total + jnp.sum(matmul(jac[:, 3:], inverse(J[i])) * jac[:, 3:], axis=1)
    return total
