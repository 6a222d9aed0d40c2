"""The free coordinates of joints: value, rate row. Springs, friction, motors, couplings and sensors read them.

Turns about n are read off the rotation between the joint frames, those of a universal joint off the direction of one
side's axis in the other's frame (exact where the joint holds, and regular at every angle); slides are the distance of
the joint points along a column of the parent's frame, lines the distance of the points.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float
from ..math import rotation
from ..math.block_sparse import take as take_rows
from ..math.product import matvec
from ..system import Params, System
from .frames import Kinematics
from .joints import JointFrames, apart, take


def _axis_frames(system: System, kin: Kinematics) -> JointFrames:
    return take(kin.joints, tuple(axis.joint for axis in system.axes))


def _by_kind(system: System, values: dict[str, Callable[[], Array]]) -> Array:
    """For every axis what its kind says; kinds that no axis has are not computed."""
    present = [kind for kind in values if any(axis.kind == kind for axis in system.axes)]
    out = values[present[0]]()
    for kind in present[1:]:
        pick = np.array([axis.kind == kind for axis in system.axes])
        out = jnp.where(pick.reshape(-1, *(1,) * (out.ndim - 1)), values[kind](), out)
    return out


def _slide_columns(system: System, C: Float[Array, "axes 3 3"]) -> Float[Array, "axes 3"]:
    """The column along which an axis slides."""
    columns = np.array([axis.column for axis in system.axes])
    return C[:, :, 2] if np.all(columns == 2) else C[np.arange(len(columns)), :, columns]


def wrapped(system: System, kin: Kinematics) -> Float[Array, " axes"]:
    """Angle in (-pi, pi] or displacement [rad or m] of every axis."""
    f = _axis_frames(system, kin)

    def turn() -> Array:
        return 2 * jnp.arctan2(f.rho[:, 3], f.rho[:, 0])

    def slide() -> Array:
        return jnp.sum(f.d * matvec(f.R_A, _slide_columns(system, f.C_A)), axis=1)

    def first() -> Array:  # u_B in A's joint frame
        u_A = matvec(jnp.swapaxes(f.C_A, 1, 2), matvec(jnp.swapaxes(f.R_A, 1, 2), matvec(f.R_B, f.C_B[:, :, 0])))
        return jnp.arctan2(u_A[:, 1], u_A[:, 0])

    def second() -> Array:  # n_A in B's joint frame
        n_B = matvec(jnp.swapaxes(f.C_B, 1, 2), matvec(jnp.swapaxes(f.R_B, 1, 2), matvec(f.R_A, f.C_A[:, :, 2])))
        return jnp.arctan2(n_B[:, 1], n_B[:, 2])

    return _by_kind(
        system, {"turn": turn, "slide": slide, "first": first, "second": second, "distance": lambda: apart(f)[0]}
    )


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
    f = _axis_frames(system, kin)
    to_A, to_B = jnp.swapaxes(f.R_A, 1, 2), jnp.swapaxes(f.R_B, 1, 2)
    zero = jnp.zeros_like(f.d)

    def about(n_A: Array, n_B: Array) -> Array:
        return jnp.stack([jnp.concatenate([zero, -n_A], axis=-1), jnp.concatenate([zero, n_B], axis=-1)], axis=1)

    def of_B(column: int) -> Array:
        n_B = f.C_B[:, :, column]
        return about(matvec(to_A, matvec(f.R_B, n_B)), n_B)

    def slide() -> Array:
        n_A = _slide_columns(system, f.C_A)
        n_W = matvec(f.R_A, n_A)
        on_A = jnp.concatenate([-n_W, rotation.cross(n_A, f.s_A + matvec(to_A, f.d))], axis=-1)
        on_B = jnp.concatenate([n_W, rotation.cross(f.s_B, matvec(to_B, n_W))], axis=-1)
        return jnp.stack([on_A, on_B], axis=1)

    def first() -> Array:
        n_A = f.C_A[:, :, 2]
        return about(n_A, matvec(to_B, matvec(f.R_A, n_A)))

    def distance() -> Array:
        _, on_A, on_B = apart(f)
        return jnp.stack([on_A, on_B], axis=1)

    both = _by_kind(
        system,
        {"turn": lambda: of_B(2), "slide": slide, "first": first, "second": lambda: of_B(0), "distance": distance},
    )
    return both[:, 0], both[:, 1]


def rates(
    system: System, b_A: Float[Array, "axes 6"], b_B: Float[Array, "axes 6"], velocity: Float[Array, "bodies 6"]
) -> Float[Array, " axes"]:
    """Rate of every axis for stacked body velocities (v world, w body)."""
    padded = jnp.concatenate([velocity, jnp.zeros_like(velocity[:1])])
    parents, children = system.axis_ends()
    on_parents = take_rows(padded, (parents % (system.num_bodies + 1)).tolist())
    return jnp.sum(b_A * on_parents + b_B * take_rows(velocity, children.tolist()), axis=-1)


def coupling_rows(
    system: System,
    params: Params,
    b_A: Float[Array, "axes 6"],
    b_B: Float[Array, "axes 6"],
    position: Float[Array, " axes"],
) -> tuple[list[Float[Array, " 1"]], list[tuple[Float[Array, "1 6"], ...]]]:
    """g = position of the driven axis - ratio * that of the driver - offset, and its Jacobians, per coupling."""
    gaps, jacobians = [], []
    for c, coupling in enumerate(system.couplings):
        ratio = params.ratio[c] * coupling.per
        gap = position[coupling.driven] - ratio * position[coupling.driver] - params.coupling_offset[c]
        blocks = {body: jnp.zeros(6, dtype=b_A.dtype) for body in system.coupled_bodies(coupling)}
        for axis, factor in ((coupling.driven, 1.0), (coupling.driver, -ratio)):
            for body, b in zip(system.ends(axis), (b_A[axis], b_B[axis]), strict=True):
                if body >= 0:
                    blocks[body] = blocks[body] + factor * b
        gaps.append(gap[None])
        jacobians.append(tuple(block[None] for block in blocks.values()))
    return gaps, jacobians
