"""The free coordinate of hinges and sliders: value, rate row. Springs, friction, motors and sensors read it."""

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float
from ..math import rotation
from ..math.product import matvec
from ..system import System
from .frames import Kinematics
from .joints import JointFrames, take


def _axis_frames(system: System, kin: Kinematics) -> tuple[JointFrames, np.ndarray]:
    index = tuple(axis.joint for axis in system.axes)
    rotational = np.array([axis.rotational for axis in system.axes])
    return take(kin.joints, index), rotational


def wrapped(system: System, kin: Kinematics) -> Float[Array, " axes"]:
    """Angle in (-pi, pi] or displacement [rad or m] of every axis."""
    f, rotational = _axis_frames(system, kin)
    angle = 2 * jnp.arctan2(f.rho[:, 3], f.rho[:, 0])
    slide = jnp.sum(f.d * matvec(f.R_A, f.C_A[:, :, 2]), axis=1)
    return jnp.where(rotational, angle, slide)


def coordinates(system: System, kin: Kinematics, near: Float[Array, " axes"]) -> Float[Array, " axes"]:
    """Unwrapped coordinate of every axis [rad or m]: the turn nearest to `near`, which carries no derivative."""
    value, turn = wrapped(system, kin), 2 * jnp.pi
    rotational = np.array([axis.rotational for axis in system.axes])
    turns = jax.lax.stop_gradient(jnp.round((near - value) / turn))
    return value + jnp.where(rotational, turn * turns, 0.0)


def harmonic(
    system: System, axis: int, order: float, factors: Float[Array, " 2"], position: Float[Array, "*batch axes"]
) -> Float[Array, "*batch"]:
    """What repeats `order` times per turn (hinge) or per metre (prismatic joint) of an axis, at unwrapped positions."""
    phase = order * position[..., axis] * (1 if system.axes[axis].rotational else 2 * jnp.pi)
    return factors[0] * jnp.cos(phase) + factors[1] * jnp.sin(phase)


def encoder(
    system: System, cyclic: Float[Array, "cyclic 2"], sensor: int, position: Float[Array, "*batch axes"]
) -> Float[Array, "*batch"]:
    """Position that an encoder sees at unwrapped positions [rad or m]: with its cyclic error, without its offset."""
    axis = system.sensors[sensor].target
    seen = position[..., axis]
    for (s, order), factors in zip(system.cyclic, cyclic, strict=True):
        if s == sensor:
            seen = seen + harmonic(system, axis, order, factors, position)
    return seen


def rate_rows(system: System, kin: Kinematics) -> tuple[Float[Array, "axes 6"], Float[Array, "axes 6"]]:
    """Rows b_A, b_B with rate = b_A . (v, w)_A + b_B . (v, w)_B [rad/s or m/s]."""
    f, rotational = _axis_frames(system, kin)
    n_A = f.C_A[:, :, 2]
    n_B = f.C_B[:, :, 2]
    to_A, to_B = jnp.swapaxes(f.R_A, 1, 2), jnp.swapaxes(f.R_B, 1, 2)
    n_W = matvec(f.R_A, n_A)
    d_A = matvec(to_A, f.d)
    zero = jnp.zeros_like(n_A)
    hinge_A = matvec(to_A, matvec(f.R_B, n_B))
    slide_B = rotation.cross(f.s_B, matvec(to_B, n_W))
    pick = rotational[:, None]
    b_A = jnp.concatenate(
        [jnp.where(pick, zero, -n_W), jnp.where(pick, -hinge_A, rotation.cross(n_A, f.s_A + d_A))], axis=-1
    )
    b_B = jnp.concatenate([jnp.where(pick, zero, n_W), jnp.where(pick, n_B, slide_B)], axis=-1)
    return b_A, b_B


def rates(
    system: System, b_A: Float[Array, "axes 6"], b_B: Float[Array, "axes 6"], velocity: Float[Array, "bodies 6"]
) -> Float[Array, " axes"]:
    """Rate of every axis for stacked body velocities (v world, w body)."""
    padded = jnp.concatenate([velocity, jnp.zeros_like(velocity[:1])])
    nb = system.num_bodies
    parents = np.array([system.joints[a.joint].parent for a in system.axes], dtype=int) % (nb + 1)
    children = np.array([system.joints[a.joint].child for a in system.axes], dtype=int)
    return jnp.sum(b_A * padded[parents] + b_B * padded[children], axis=-1)
