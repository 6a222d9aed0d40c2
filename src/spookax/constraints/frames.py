"""Where the joint frames of both sides are, for a state."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from .._typing import Array, Float
from ..math import rotation
from ..system import Params, System
from .joints import JointFrames


class Geometry(eqx.Module):
    """Joint frames fixed in the bodies, seen from the centres of mass; depends on parameters only."""

    s_A: Float[Array, "joints 3"]
    s_B: Float[Array, "joints 3"]
    q_A: Float[Array, "joints 4"]
    q_B: Float[Array, "joints 4"]
    C_A: Float[Array, "joints 3 3"]
    C_B: Float[Array, "joints 3 3"]


class Kinematics(NamedTuple):
    """Poses of a state with the world appended as the last body (index -1), and the geometry they carry."""

    r: Float[Array, "bodies+1 3"]
    e: Float[Array, "bodies+1 4"]
    R: Float[Array, "bodies+1 3 3"]
    geometry: Geometry


def geometry(system: System, params: Params) -> Geometry:
    """Joint points relative to the centres of mass (world: as given) and joint axes."""
    com = jnp.concatenate([params.com, jnp.zeros_like(params.com[:1])])
    parents = jnp.array([j.parent for j in system.joints], dtype=int)
    children = jnp.array([j.child for j in system.joints], dtype=int)
    return Geometry(
        s_A=params.at - com[parents],
        s_B=params.child_at - com[children],
        q_A=params.parent_frame,
        q_B=params.child_frame,
        C_A=rotation.matrix(params.parent_frame),
        C_B=rotation.matrix(params.child_frame),
    )


def kinematics(r: Float[Array, "bodies 3"], e: Float[Array, "bodies 4"], fixed: Geometry) -> Kinematics:
    """Rotation matrices and the world as an extra body."""
    r = jnp.concatenate([r, jnp.zeros_like(r[:1])])
    e = jnp.concatenate([e, jnp.zeros_like(e[:1]).at[:, 0].set(1.0)])
    return Kinematics(r, e, rotation.matrix(e), fixed)


def joint_frames(system: System, kin: Kinematics) -> JointFrames:
    """Both sides of every joint."""
    parents = jnp.array([j.parent for j in system.joints], dtype=int)
    children = jnp.array([j.child for j in system.joints], dtype=int)
    g = kin.geometry
    R_A, R_B = kin.R[parents], kin.R[children]
    d = kin.r[children] + jnp.einsum("jab,jb->ja", R_B, g.s_B) - kin.r[parents] - jnp.einsum("jab,jb->ja", R_A, g.s_A)
    side_A = rotation.multiply(kin.e[parents], g.q_A)
    side_B = rotation.multiply(kin.e[children], g.q_B)
    rho = rotation.multiply(rotation.conjugate(side_A), side_B)
    rho = jnp.where(rho[:, :1] < 0, -rho, rho)
    return JointFrames(R_A, R_B, d, g.s_A, g.s_B, g.C_A, g.C_B, rho)
