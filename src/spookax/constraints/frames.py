"""Where the joint frames of both sides are, for a state."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float
from ..math import rotation
from ..math.blocks import gathered
from ..math.product import matvec
from ..system import Params, System
from .shipped_joints import JointFrames


class Geometry(eqx.Module):
    """Joint frames fixed in the bodies, seen from the centres of mass; depends on parameters only."""

    s_A: Float[Array, "joints 3"]
    s_B: Float[Array, "joints 3"]
    q_A: Float[Array, "joints 4"]
    q_B: Float[Array, "joints 4"]
    C_A: Float[Array, "joints 3 3"]
    C_B: Float[Array, "joints 3 3"]
    length: Float[Array, " joints"]


class Kinematics(NamedTuple):
    """Poses of a state with the world appended as the last body (index -1), and both sides of every joint."""

    r: Float[Array, "bodies+1 3"]
    e: Float[Array, "bodies+1 4"]
    joints: JointFrames


def geometry(system: System, params: Params) -> Geometry:
    """Joint points relative to the centres of mass (world: as given) and joint axes."""
    com = jnp.concatenate([params.com, jnp.zeros_like(params.com[:1])])
    nb = system.num_bodies
    parents = np.array([j.parent for j in system.joints], dtype=int) % (nb + 1)
    children = np.array([j.child for j in system.joints], dtype=int)
    return Geometry(
        s_A=params.at - gathered(com, parents),
        s_B=params.child_at - gathered(com, children),
        q_A=params.parent_frame,
        q_B=params.child_frame,
        C_A=rotation.matrix(params.parent_frame),
        C_B=rotation.matrix(params.child_frame),
        length=params.length,
    )


def kinematics(system: System, r: Float[Array, "bodies 3"], e: Float[Array, "bodies 4"], g: Geometry) -> Kinematics:
    """Where both sides of every joint are."""
    r = jnp.concatenate([r, jnp.zeros_like(r[:1])])
    e = jnp.concatenate([e, jnp.zeros_like(e[:1]).at[:, 0].set(1.0)])
    nb, nj = system.num_bodies, len(system.joints)
    ends = np.array([j.parent for j in system.joints] + [j.child for j in system.joints], dtype=int) % (nb + 1)
    R = gathered(rotation.matrix(e), ends)
    s = jnp.concatenate([g.s_A, g.s_B])
    point = gathered(r, ends) + matvec(R, s)
    side = rotation.multiply(gathered(e, ends), jnp.concatenate([g.q_A, g.q_B]))
    rho = rotation.multiply(rotation.conjugate(side[:nj]), side[nj:])
    rho = jnp.where(rho[:, :1] < 0, -rho, rho)
    frames = JointFrames(R[:nj], R[nj:], point[nj:] - point[:nj], g.s_A, g.s_B, g.C_A, g.C_B, rho, g.length)
    return Kinematics(r, e, frames)
