"""What the rows of every step share: geometry, inertia, regularisation, and what is linear and implicit on an axis."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float
from ..math import rotation
from ..math.blocks import inverse, take
from ..math.product import matmul, matvec
from ..system import Params, System
from ..system.params import inertia_matrix
from . import frames, motors

_RINGING = 300.0  # z = h c / mass at which damping is half way from the mean of both rates to the new rate


class Prepared(eqx.Module):
    """What depends on parameters only; computed once per rollout."""

    params: Params
    geometry: frames.Geometry
    J: Float[Array, "bodies 3 3"]
    gravity: Float[Array, " 3"]  # in the axes of the tilted base
    sigma: Float[Array, "joints rows"]  # one in rows that a joint does not have
    gamma: Float[Array, "joints rows"]
    mobility: Float[Array, " axes"]  # scale of b M^-1 b^T [1/(kg m^2) or 1/kg]
    kappa: Float[Array, " axes"]  # what is linear and implicit on an axis, without drag [kg m^2 or kg]
    damping: Float[Array, " axes"]  # h c of linear damping [kg m^2 or kg]
    brake: Float[Array, " axes"]  # what it takes of the rate before the step [kg m^2 or kg]
    air_mass: Float[Array, "aired 2"]  # of the bodies of `System.air`: mass and least inertia in size [kg, kg m^2]
    slow: Float[Array, " axes"]  # speed that weight gives in two steps: slower impacts do not bounce [rad/s or m/s]


def base_gravity(params: Params) -> Float[Array, " 3"]:
    """Gravity seen from the base, which is turned by R_y(tilt y) R_x(tilt x)."""
    turn = rotation.multiply(
        rotation.exp(jnp.stack([jnp.zeros_like(params.tilt[1]), params.tilt[1], jnp.zeros_like(params.tilt[1])])),
        rotation.exp(jnp.stack([params.tilt[0], jnp.zeros_like(params.tilt[0]), jnp.zeros_like(params.tilt[0])])),
    )
    return matvec(rotation.matrix(turn).T, params.gravity)


def prepare(system: System, params: Params) -> Prepared:
    """Inertia matrices, joint geometry and regularisation.

    Sigma = 4 eps gamma / h^2 is given relative to the inverse effective mass, rho (w_A + w_B), see `_mobilities`.
    """
    geometry = frames.geometry(system, params)
    J = inertia_matrix(params.inertia)
    length, angle = _mobilities(system, params, geometry, J)
    lengths = np.zeros((len(system.joints), system.width), dtype=bool)
    for j, joint in enumerate(system.joints):
        lengths[j, : joint.num_rows] = joint.kind.lengths
    sigma = params.relative_compliance * jnp.where(lengths, length[:, None], angle[:, None])
    sigma = jnp.where(system.filled[: len(system.joints)], sigma, 1.0)
    of_axes = [axis.joint for axis in system.axes]
    turns = np.array([axis.rotational for axis in system.axes], dtype=bool)
    mobility = jnp.where(turns, take(angle, of_axes), take(length, of_axes))
    h = params.step
    viscous, stiffness = params.viscous, params.stiffness
    if any(motor.implicit for motor in system.motors):
        damping, servo = motors.implicit(system, params)
        viscous, stiffness = viscous + damping, stiffness + servo
    damped = h * viscous
    weight = late(damped / (1 / mobility + params.armature))
    kappa = damped * weight + params.armature + h * h * stiffness / 4
    gravity, gamma = base_gravity(params), 1 / (1 + 4 * params.relaxation)
    fall = 2 * h * jnp.sqrt(jnp.sum(params.gravity**2))
    slow = fall * jnp.where(turns, jnp.sqrt(mobility / take(length, of_axes)), 1.0)
    return Prepared(
        params,
        geometry,
        J,
        gravity,
        sigma,
        gamma,
        mobility,
        kappa,
        damped,
        damped * (1 - weight),
        _air_mass(system, params, J),
        slow,
    )


def _air_mass(system: System, params: Params, J: Float[Array, "bodies 3 3"]) -> Float[Array, "aired 2"]:
    if not system.air:
        return jnp.zeros((0, 2), dtype=J.dtype)
    loose = jnp.trace(jax.vmap(inverse)(take(J, system.air)), axis1=-2, axis2=-1)
    return jnp.stack([take(params.mass, system.air), 3 / loose], axis=-1)


def _mobilities(
    system: System, params: Params, geometry: frames.Geometry, J: Float[Array, "bodies 3 3"]
) -> tuple[Float[Array, " joints"], Float[Array, " joints"]]:
    """Inverse effective masses of both sides of every joint, of its points and of its frames, added.

    w = 1/m + 2/9 |s|^2 tr J^-1 for lengths, w = tr J^-1 / 3 for angles: the mean of diag(G M^-1 G^T) over orientations,
    so that the compliance is a constant of the mechanism. A direction in which a body hardly resists (a thin rod about
    its own axis, a point mass on a lever) would rule the mean and make the others soft: w is at most three times the
    harmonic mean, 3 / tr (1/m + [s] J^-1 [s]^T)^-1 and 3 / tr J.
    """
    world = jnp.zeros_like(params.mass[:1])
    if not system.joints:
        return world[:0], world[:0]
    free = jax.vmap(inverse)(J)
    loose = jnp.trace(free, axis1=-2, axis2=-1)
    turn = jnp.concatenate([jnp.minimum(loose / 3, 9 / jnp.trace(J, axis1=-2, axis2=-1)), world])

    def of_point(bodies: list[int], s: Float[Array, "joints 3"]) -> Float[Array, " joints"]:
        held = np.array(bodies) == system.num_bodies
        body = np.where(held, 0, bodies).tolist()
        cross, mass = rotation.skew(s), take(params.mass, body)
        moved = matmul(matmul(cross, take(free, body)), jnp.swapaxes(cross, -1, -2))
        full = moved + np.eye(3, dtype=J.dtype)[None] / mass[:, None, None]
        harmonic = 3 / jnp.trace(jax.vmap(inverse)(full), axis1=-2, axis2=-1)
        mean = 1 / mass + 2 / 9 * jnp.sum(s * s, axis=-1) * take(loose, body)
        return jnp.where(held, 0.0, jnp.minimum(mean, 3 * harmonic))

    A = [joint.parent % (system.num_bodies + 1) for joint in system.joints]
    B = [joint.child for joint in system.joints]
    return of_point(A, geometry.s_A) + of_point(B, geometry.s_B), take(turn, A) + take(turn, B)


def late(z: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """Weight of the new rate in linear damping, the rest that of the old one, for z = h c / mass.

    The mean of both is second order, and lets strong damping ring: the rate changes by A = (1 - z/2) / (1 + z/2) in a
    step. A little more of the new rate, growing with z, keeps the order, and |A| below 0.75 where A is negative.
    """
    return 0.5 + 0.5 * z / (z + _RINGING)


def damping(
    system: System, prepared: Prepared, rate: Float[Array, " axes"]
) -> tuple[Float[Array, " axes"], Float[Array, " axes"]]:
    """(kappa, brake) of every axis in a step from these rates. [kg m^2 or kg]

    Quadratic drag C is made linear about the rate w before the step: the impulse -h C |w| (w + 2 late (w+ - w)). With
    late = 1/2 that is -h C |w| w+, second order in h, and 1/w+ = 1/w + h C / mass, as in free decay. It has its part in
    `late`: as viscous friction of 2 C |w|.
    """
    if not system.drags:
        return prepared.kappa, prepared.brake
    params = prepared.params
    drag = params.step * params.drag * jnp.abs(rate)
    both = prepared.damping + 2 * drag
    weight = late(both / (1 / prepared.mobility + params.armature))
    return prepared.kappa + (prepared.brake - prepared.damping) + both * weight, both * (1 - weight) - drag


def mass_matrix(params: Params, J: Float[Array, "bodies 3 3"]) -> Float[Array, "bodies 6 6"]:
    """Mass and turning block of every body."""
    linear = params.mass[:, None, None] * np.eye(3, dtype=J.dtype)[None]
    zero = jnp.zeros_like(linear)
    return jnp.concatenate([jnp.concatenate([linear, zero], axis=-1), jnp.concatenate([zero, J], axis=-1)], axis=-2)


def inverse_masses(
    prepared: Prepared, G: Float[Array, "sides rows 6"], bodies: list[int]
) -> Float[Array, "sides rows"]:
    """diag(G M^-1 G^T) of Jacobians with one body each."""
    linear = jnp.sum(G[..., :3] ** 2, axis=-1) / take(prepared.params.mass, bodies)[:, None]
    turn = matmul(G[..., 3:], take(jax.vmap(inverse)(prepared.J), bodies))
    return linear + jnp.sum(turn * G[..., 3:], axis=-1)
