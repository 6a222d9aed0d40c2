"""Directions in which a mechanism's states move along the joints of its tree.

Stiff joints leave two numbers for every freedom (how far, how fast) of the twelve of every body. States of a simulation
stay where joints are closed but for O(h^2), and nothing but the joints' compliance makes a step depend on what leads
off there. Estimators work with these numbers then: covariances, gains and derivatives of a chain of n hinges have 2 n
rows in place of 12 n. Where joints close loops, what closes them is left to the dynamics.

The twist of a body that a unit rate of an axis gives it is that of a rigid body: (angular velocity, velocity of what
would be in the world's origin), the same for all bodies that the joint carries.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float
from ..constraints import Prepared, axes, frames
from ..constraints.assemble import velocity
from ..math import rotation, small
from ..math.blocks import gathered
from ..math.product import matmul, matvec
from ..system import WORLD, Params, State, System

_STIFF = 1e-4  # largest relative compliance of a joint that is taken to hold
_MOVE_JOINTS = ("at", "child_at", "length", "radius", "relative_compliance")  # keys of numbers that move what they hold


@functools.cache
def free_axes(system: System) -> tuple[int, ...]:
    """Axes of the joints of the tree, if they say where every body is and how it moves; else none."""
    reached, found = {WORLD}, []
    for j in system.tree:
        joint = system.joints[j]
        mine = [i for i, axis in enumerate(system.axes) if axis.joint == j]
        known = all(system.axes[i].kind not in ("distance", "cardan") for i in mine)
        if joint.parent not in reached or not known or joint.num_rows + len(mine) != 6 or not all(joint.kind.holonomic):
            return ()
        reached.add(joint.child)
        found += mine
    return tuple(found) if len(reached) == system.num_bodies + 1 and not system.roots else ()


def applies(system: System, params: Params, unknown: tuple[str, ...]) -> bool:
    """Whether the states of this mechanism keep to the joints of its tree, whatever the unknowns (paths) are."""
    moved = any(path.startswith("joints.") and set(path.split(".")[2:]) & {*_MOVE_JOINTS} for path in unknown)
    stiff = np.max(np.asarray(params.relative_compliance), initial=0.0) <= _STIFF
    return bool(free_axes(system)) and bool(stiff) and not moved


@functools.cache
def _carries(system: System) -> Float[np.ndarray, "bodies axes"]:
    """1 where the joint of a free axis carries a body."""
    of = free_axes(system)
    out = np.zeros((system.num_bodies, len(of)))
    for j in system.tree:
        joint = system.joints[j]
        if joint.parent != WORLD:
            out[joint.child] = out[joint.parent]
        out[joint.child, [k for k, i in enumerate(of) if system.axes[i].joint == j]] = 1.0
    return out


class _Placed(NamedTuple):
    """What the axes do at a pose of the bodies (centres of mass)."""

    r: Float[Array, "bodies 3"]
    R: Float[Array, "bodies 3 3"]
    twist: Float[Array, "free 6"]
    b_A: Float[Array, "axes 6"]  # rows of all axes' rates
    b_B: Float[Array, "axes 6"]


def _placed(system: System, geometry: frames.Geometry, r: Float[Array, "bodies 3"], e: Float[Array, "bodies 4"]):
    kin = frames.kinematics(system, r, e, geometry)
    b_A, b_B = axes.rate_rows(system, kin)
    of = np.array(free_axes(system))
    joints = np.array([system.axes[i].joint for i in of])
    children = np.array([system.joints[j].child for j in joints])
    slides = np.array([not system.axes[i].rotational for i in of])[:, None]
    R = gathered(kin.joints.R_B, joints)
    # a turn is about a line through the joint's point, a slide has the same velocity everywhere
    along, about = gathered(b_B[:, :3], of), matvec(R, gathered(b_B[:, 3:], of))
    point = gathered(r, children) + matvec(R, gathered(kin.joints.s_B, joints))
    turn = jnp.where(slides, 0.0, about)
    shift = jnp.where(slides, along, rotation.cross(point, about))
    return _Placed(r, rotation.matrix(e), jnp.concatenate([turn, shift], axis=1), b_A, b_B)


def _rates(system: System, at: _Placed, speed: Float[Array, "bodies 6"]) -> Float[Array, " free"]:
    """Rates of the free axes for velocities of the bodies (v world, w body)."""
    return gathered(axes.rates(system, at.b_A, at.b_B, speed), np.array(free_axes(system)))


def _moved(system: System, at: _Placed, rate: Float[Array, " free"]) -> Float[Array, "bodies 6"]:
    """Velocities of the bodies (v world, w body) for rates of the free axes."""
    twist = matmul(jnp.asarray(_carries(system), dtype=rate.dtype), at.twist * rate[:, None])
    v = twist[:, 3:] + rotation.cross(twist[:, :3], at.r)
    return jnp.concatenate([v, matvec(jnp.swapaxes(at.R, 1, 2), twist[:, :3])], axis=1)


class Directions(NamedTuple):
    """Of a state, see `protocol.FreeDirections`; tangents are those of the bodies' frames, first the three numbers of
    all bodies that belong to their origins, then those that turn them.
    """

    poses: Float[Array, "half free"]
    turning: Float[Array, "half free"]  # how velocities follow poses, less what is a change of rates
    rates: Float[Array, "half free"]
    read_poses: Float[Array, "free half"]
    read_rates: Float[Array, "free half"]


def directions(system: System, prepared: Prepared, state: State) -> Directions:
    """Velocities lead along the chord from the pose before to this one (`constraints.assemble`), which in its middle m
    is along the joints: x = m + h/2 v, v = J(m) rate. What is of second order in the step is left out, but not in
    poses: a step leads what is off the joints back at once, with a velocity of one order less.
    """
    geometry, com, h = prepared.geometry, prepared.params.com, prepared.params.step
    m, here = state.moved(-h / 2), _placed(system, geometry, state.r, state.e)
    middle, speed, unit = (
        _placed(system, geometry, m.r, m.e),
        velocity(state),
        jnp.eye(len(free_axes(system)), dtype=com.dtype),
    )
    rate = _rates(system, middle, speed)
    J = jax.vmap(lambda a: _moved(system, middle, a))(unit)

    def elsewhere(d: Array) -> Array:
        e = jax.vmap(rotation.plus)(m.e, d[:, 3:])
        return _moved(system, _placed(system, geometry, m.r + d[:, :3], e), rate)

    turning = jax.vmap(lambda d: jax.jvp(elsewhere, (jnp.zeros_like(d),), (d,))[1])(J)
    seen = jnp.concatenate([jnp.zeros_like(J[..., :3]), rotation.cross(state.w[None], J[..., 3:])], axis=-1)
    poses, rates = jax.vmap(lambda a: _moved(system, here, a))(unit), J - h / 2 * turning
    by_middle = J + h / 2 * (turning - seen)  # the poses whose velocities `turning` has

    # from the centres of mass to the origins of the frames
    R = rotation.matrix(state.e)
    lever = rotation.cross(state.w, com)

    def at_frames(d: Array, turned: Array | float = 0.0) -> Array:
        """Of centres of mass, whose bodies have turned by so much; (half,)."""
        levers = matvec(R, rotation.cross(d[:, 3:], com) + turned)
        return _flat(jnp.concatenate([d[:, :3] - levers, d[:, 3:]], axis=1))

    def rates_at_frames(d: Array) -> Array:
        """At this pose and in the middle."""
        centres = jnp.concatenate([d[:, :3] + matvec(R, rotation.cross(d[:, 3:], com)), d[:, 3:]], axis=1)
        return jnp.stack([_rates(system, here, centres), _rates(system, middle, centres)])

    turning = jax.vmap(at_frames)(turning, rotation.cross(by_middle[..., 3:], lever[None])).T
    poses, by_middle, rates = (jax.vmap(at_frames)(a).T for a in (poses, by_middle, rates))
    b = jax.vmap(jax.vmap(_flat))(jax.jacrev(rates_at_frames)(jnp.zeros_like(speed)))
    to_here, to_rates = jax.vmap(small.solve, (0, None))(matmul(b, jnp.stack([by_middle, rates])), unit)
    turning, read_rates = matmul(turning, to_here), matmul(to_rates, b[1])
    return Directions(poses, turning - matmul(rates, matmul(read_rates, turning)), rates, b[0], read_rates)


def _flat(d: Float[Array, "bodies 6"]) -> Float[Array, " half"]:
    return jnp.concatenate([d[:, :3].reshape(-1), d[:, 3:].reshape(-1)])
