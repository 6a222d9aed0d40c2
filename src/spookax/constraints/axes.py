"""The free coordinates of joints: value, rate row. Springs, friction, motors, couplings and sensors read them.

Single turns are read off the rotation between the joint frames, those of a joint with two off the direction of one
side's axis in the other's frame (exact where the joint holds, and regular at every angle), three as Cardan angles
(singular where the second is a right angle); slides are the distance of the joint points along a column of the parent's
frame, lines the distance of the points. A ball joint has no angles: components of the rotation vector as positions and
of the angular velocity as rates, which belong together as power and energy do: k theta along theta is a spring.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float
from ..math import rotation
from ..math.blocks import sums
from ..math.blocks import take as take_rows
from ..math.product import matmul, matvec
from ..system import Axis, Params, System
from .frames import Kinematics
from .shipped_joints import JointFrames, apart, take

_GIMBAL_LOCK = 0.01  # cosine of the second of three turns below which their rates stay bounded


def _by_kind(
    system: System, kin: Kinematics, of_kind: dict[str, Callable[[JointFrames, tuple[Axis, ...]], Array]]
) -> Array:
    """For every axis what its kind says, all of one kind at once."""
    out: list[Array] = []
    order: list[int] = []
    for kind in dict.fromkeys(axis.kind for axis in system.axes):
        members = [i for i, axis in enumerate(system.axes) if axis.kind == kind]
        chosen = tuple(system.axes[i] for i in members)
        out.append(of_kind[kind](take(kin.joints, tuple(axis.joint for axis in chosen)), chosen))
        order += members
    return out[0] if len(out) == 1 else take_rows(jnp.concatenate(out), [order.index(i) for i in range(len(order))])


def _column(C: Float[Array, "axes rows columns"], columns: list[int]) -> Float[Array, "axes rows"]:
    """One column for every axis."""
    same = all(column == columns[0] for column in columns)
    if same:
        return C[:, :, columns[0]]
    rows, of_all = jnp.swapaxes(C, 1, 2), C.shape[2]
    return take_rows(rows.reshape(-1, rows.shape[2]), [i * of_all + column for i, column in enumerate(columns)])


def _own(f: JointFrames, chosen: tuple[Axis, ...], side: str) -> Float[Array, "axes 3"]:
    """The column of every axis in the parent's (`A`) or the child's (`B`) axes."""
    return _column(f.C_A if side == "A" else f.C_B, [axis.column for axis in chosen])


def _turn(f: JointFrames, chosen: tuple[Axis, ...]) -> Float[Array, " axes"]:
    about = _column(f.rho[:, None, :], [1 + axis.column for axis in chosen])[:, 0]
    return 2 * jnp.arctan2(about, f.rho[:, 0])


def _slide(f: JointFrames, chosen: tuple[Axis, ...]) -> Float[Array, " axes"]:
    return jnp.sum(f.d * matvec(f.R_A, _own(f, chosen, "A")), axis=1)


def _first(f: JointFrames, chosen: tuple[Axis, ...]) -> Float[Array, " axes"]:
    """Where the child's axis points in A's joint frame, about the parent's."""
    i, k = (np.eye(3)[[getattr(axis, side) for axis in chosen]] for side in ("column", "other"))
    k_B = _column(f.C_B, [axis.other for axis in chosen])
    k_A = matvec(jnp.swapaxes(f.C_A, 1, 2), matvec(jnp.swapaxes(f.R_A, 1, 2), matvec(f.R_B, k_B)))
    return jnp.arctan2(jnp.sum(k_A * np.cross(i, k), axis=1), jnp.sum(k_A * k, axis=1))


def _second(f: JointFrames, chosen: tuple[Axis, ...]) -> Float[Array, " axes"]:
    """Where the parent's axis points in B's joint frame, about the child's."""
    k, i = (np.eye(3)[[getattr(axis, side) for axis in chosen]] for side in ("column", "other"))
    i_A = _column(f.C_A, [axis.other for axis in chosen])
    i_B = matvec(jnp.swapaxes(f.C_B, 1, 2), matvec(jnp.swapaxes(f.R_B, 1, 2), matvec(f.R_A, i_A)))
    return jnp.arctan2(jnp.sum(i_B * np.cross(i, k), axis=1), jnp.sum(i_B * i, axis=1))


def _cardan(f: JointFrames, chosen: tuple[Axis, ...]) -> Float[Array, " axes"]:
    """Angles of R_x R_y R_z, the rotation between the joint frames."""
    R = matmul(matmul(jnp.swapaxes(f.C_A, 1, 2), jnp.swapaxes(f.R_A, 1, 2)), matmul(f.R_B, f.C_B))
    square = R[:, 0, 0] ** 2 + R[:, 0, 1] ** 2
    cos = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)
    y = jnp.arctan2(R[:, 0, 2], cos)
    angles = jnp.stack([jnp.arctan2(-R[:, 1, 2], R[:, 2, 2]), y, jnp.arctan2(-R[:, 0, 1], R[:, 0, 0])], axis=1)
    return _column(angles[:, None, :], [axis.column for axis in chosen])[:, 0]


def _spin(f: JointFrames, chosen: tuple[Axis, ...]) -> Float[Array, " axes"]:
    return _column(rotation.log(f.rho)[:, None, :], [axis.column for axis in chosen])[:, 0]


def wrapped(system: System, kin: Kinematics) -> Float[Array, " axes"]:
    """Angle in (-pi, pi] or displacement [rad or m] of every axis."""
    if not system.axes:
        return kin.r[:0, 0]
    values = {"turn": _turn, "slide": _slide, "first": _first, "second": _second, "cardan": _cardan, "spin": _spin}
    return _by_kind(system, kin, {**values, "distance": lambda f, _: apart(f)[0]})


def coordinates(system: System, kin: Kinematics, near: Float[Array, " axes"]) -> Float[Array, " axes"]:
    """Unwrapped coordinate of every axis [rad or m]: the turn nearest to `near`, which carries no derivative."""
    value, turn = wrapped(system, kin), 2 * jnp.pi
    counted = np.array([axis.turns for axis in system.axes])
    turns = jax.lax.stop_gradient(jnp.round((near - value) / turn))
    return value + jnp.where(counted, turn * turns, 0.0)


def harmonics(
    system: System, of: Sequence[int], order: Sequence[float], factors: Float[Array, "k 2"], seen: Float[Array, " k"]
) -> Float[Array, " k"]:
    """What repeats `order` times per turn (hinge) or per metre (prismatic joint) of the axes `of`, where these are seen
    at unwrapped positions."""
    times = np.array([n * (1 if system.axes[i].rotational else 2 * np.pi) for i, n in zip(of, order, strict=True)])
    phase = seen * times.astype(seen.dtype)
    return factors[:, 0] * jnp.cos(phase) + factors[:, 1] * jnp.sin(phase)


def encoders(
    system: System, cyclic: Float[Array, "cyclic 2"], sensors: Sequence[int], position: Float[Array, " sensors"]
) -> Float[Array, " sensors"]:
    """What encoders see at unwrapped positions of their axes [rad or m]: with their cyclic errors, without offsets."""
    mine = [i for i, (sensor, _) in enumerate(system.cyclic) if sensor in sensors]
    if not mine:
        return position
    owner = [list(sensors).index(system.cyclic[i][0]) for i in mine]
    of, order = [system.sensors[sensors[k]].target for k in owner], [system.cyclic[i][1] for i in mine]
    errors = harmonics(system, of, order, take_rows(cyclic, mine), take_rows(position, owner))
    return position + sums(errors, [[i for i, k in enumerate(owner) if k == n] for n in range(len(sensors))])


def _about(n_A: Float[Array, "axes 3"], n_B: Float[Array, "axes 3"]) -> Float[Array, "axes 2 6"]:
    """Rows of the relative angular velocity along a direction that is given in the axes of both bodies."""
    zero = jnp.zeros_like(n_A)
    return jnp.stack([jnp.concatenate([zero, -n_A], axis=-1), jnp.concatenate([zero, n_B], axis=-1)], axis=1)


def _about_child(f: JointFrames, chosen: tuple[Axis, ...]) -> Float[Array, "axes 2 6"]:
    n_B = _own(f, chosen, "B")
    return _about(matvec(jnp.swapaxes(f.R_A, 1, 2), matvec(f.R_B, n_B)), n_B)


def _about_parent(f: JointFrames, chosen: tuple[Axis, ...]) -> Float[Array, "axes 2 6"]:
    n_A = _own(f, chosen, "A")
    return _about(n_A, matvec(jnp.swapaxes(f.R_B, 1, 2), matvec(f.R_A, n_A)))


def _about_cardan(f: JointFrames, chosen: tuple[Axis, ...]) -> Float[Array, "axes 2 6"]:
    """Rows dual to the axes of the three turns, x of A, y between, z of B; bounded where y is nearly a right angle."""
    to_B = matmul(jnp.swapaxes(f.R_B, 1, 2), f.R_A)
    x, z = f.C_A[:, :, 0], matvec(jnp.swapaxes(to_B, 1, 2), f.C_B[:, :, 2])
    y = rotation.cross(z, x)
    square = jnp.maximum(jnp.sum(y * y, axis=-1, keepdims=True), _GIMBAL_LOCK**2)
    duals = jnp.stack([rotation.cross(y, z) / square, y / jnp.sqrt(square), rotation.cross(x, y) / square], axis=-1)
    n_A = _column(duals, [axis.column for axis in chosen])
    return _about(n_A, matvec(to_B, n_A))


def _along(f: JointFrames, chosen: tuple[Axis, ...]) -> Float[Array, "axes 2 6"]:
    n_A = _own(f, chosen, "A")
    n_W = matvec(f.R_A, n_A)
    moved = f.s_A + matvec(jnp.swapaxes(f.R_A, 1, 2), f.d)
    on_A = jnp.concatenate([-n_W, rotation.cross(n_A, moved)], axis=-1)
    on_B = jnp.concatenate([n_W, rotation.cross(f.s_B, matvec(jnp.swapaxes(f.R_B, 1, 2), n_W))], axis=-1)
    return jnp.stack([on_A, on_B], axis=1)


def _apart(f: JointFrames, chosen: tuple[Axis, ...]) -> Float[Array, "axes 2 6"]:
    del chosen
    _, on_A, on_B = apart(f)
    return jnp.stack([on_A, on_B], axis=1)


def rate_rows(system: System, kin: Kinematics) -> tuple[Float[Array, "axes 6"], Float[Array, "axes 6"]]:
    """Rows b_A, b_B with rate = b_A . (v, w)_A + b_B . (v, w)_B [rad/s or m/s]."""
    if not system.axes:
        none = jnp.zeros((0, 6), dtype=kin.r.dtype)
        return none, none
    turning = {"turn": _about_child, "spin": _about_child, "first": _about_parent, "second": _about_child}
    both = _by_kind(system, kin, {**turning, "cardan": _about_cardan, "slide": _along, "distance": _apart})
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
) -> tuple[Float[Array, " couplings"], Float[Array, "sides 6"]]:
    """g = position of the driven axis - ratio * that of the driver - offset of every coupling, and its Jacobian for
    each of its bodies (`System.coupled_bodies`), coupling by coupling.
    """
    every = system.couplings
    if not every:
        return position[:0], b_A[:0]
    driven, driver = [coupling.driven for coupling in every], [coupling.driver for coupling in every]
    ratio = params.ratio * np.array([coupling.per for coupling in every], dtype=float).astype(position.dtype)
    gap = take_rows(position, driven) - ratio * take_rows(position, driver) - params.coupling_offset
    # what turns with which factor: (coupling, body), place in both sides of all axes, whether it drives
    parts = [
        ((c, body), system.side(axis, body), drives)
        for c, coupling in enumerate(every)
        for axis, drives in ((coupling.driven, False), (coupling.driver, True))
        for body in system.bodies_of(axis)
    ]
    owners, places, drives = (list(column) for column in zip(*parts, strict=True))
    factor = jnp.where(np.array(drives), -take_rows(ratio, [c for c, _ in owners]), 1.0)
    terms = factor[:, None] * take_rows(jnp.concatenate([b_A, b_B]), places)
    sides = [(c, body) for c, coupling in enumerate(every) for body in system.coupled_bodies(coupling)]
    return gap, sums(terms, [[i for i, owner in enumerate(owners) if owner == side] for side in sides])
