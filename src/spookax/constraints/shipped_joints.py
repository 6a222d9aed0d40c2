"""Violations and Jacobians of the shipped joints, all joints of one type at once.

Elementary rows (A, B: the two bodies; a, b fixed in A or B; d = x_B - x_A from A's joint point to B's, world axes;
angular velocities in body axes):

    D-row   g = (R_A a) . d           point of B stays on the plane through A's point with normal a
    T-row   g = (R_A a) . (R_B b)     two directions stay perpendicular
    Q-rows  g = 2 vec(rho), rho = (e_A c_A)^-1 (e_B c_B)     the joint frames stay parallel
    L-row   g = |d| - L                                     two points keep their distance
    sphere, disc: D-rows of the point that touches the plane, of which those along the plane bind velocities only

Source: Lacoursière (2007), Marklund, Servin, Larson (2025) section 2.2; the Jacobians are derived here and tested
against differences.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float
from ..math import rotation
from ..math.blocks import take as take_rows
from ..math.product import matmul, matvec
from ..scene.joint_types import JointKind, Part


class JointFrames(NamedTuple):
    """Both sides of a set of joints. World as a parent has r = 0, R = 1."""

    R_A: Float[Array, "joints 3 3"]
    R_B: Float[Array, "joints 3 3"]
    d: Float[Array, "joints 3"]  # from A's joint point to B's, world [m]
    s_A: Float[Array, "joints 3"]  # joint point from A's centre of mass, A axes [m]
    s_B: Float[Array, "joints 3"]
    C_A: Float[Array, "joints 3 3"]  # joint frame columns (u, v, n), A axes
    C_B: Float[Array, "joints 3 3"]
    rho: Float[Array, "joints 4"]  # rotation from A's joint frame to B's, rho_w >= 0
    length: Float[Array, " joints"]  # of distance joints, radius of rolling ones [m]


def take(frames: JointFrames, index: tuple[int, ...]) -> JointFrames:
    """Some of the joints."""
    return JointFrames(*(take_rows(a, index) for a in frames))


def _columns(C: Float[Array, "joints 3 3"], columns: tuple[int, ...]) -> Float[Array, "joints columns 3"]:
    return jnp.swapaxes(C if columns == (0, 1, 2) else jnp.stack([C[:, :, i] for i in columns], axis=2), 1, 2)


def _d_rows(f: JointFrames, columns: tuple[int, ...] = (0, 1, 2)) -> tuple[Array, Array, Array]:
    """B's point stays where it is along some columns of A's frame."""
    axes_A = _columns(f.C_A, columns)
    axes_W = matmul(axes_A, jnp.swapaxes(f.R_A, 1, 2))
    axes_B = matmul(axes_W, f.R_B)
    d_A = matvec(jnp.swapaxes(f.R_A, 1, 2), f.d)
    gap = matvec(axes_W, f.d)
    G_A = jnp.concatenate([-axes_W, rotation.cross(axes_A, (f.s_A + d_A)[:, None, :])], axis=-1)
    G_B = jnp.concatenate([axes_W, rotation.cross(f.s_B[:, None, :], axes_B)], axis=-1)
    return gap, G_A, G_B


def _t_rows(f: JointFrames, columns: tuple[int, ...], column_B: int = 2) -> tuple[Array, Array, Array]:
    """Some columns of A's frame stay perpendicular to a column of B's."""
    a_A = _columns(f.C_A, columns)
    b_B = f.C_B[:, :, column_B]
    R_AB = matmul(jnp.swapaxes(f.R_A, 1, 2), f.R_B)
    b_A = matvec(R_AB, b_B)[:, None]
    a_B = matmul(a_A, R_AB)
    gap = jnp.sum(a_A * b_A, axis=-1)
    zero = jnp.zeros_like(a_A)
    G_A = jnp.concatenate([zero, rotation.cross(a_A, b_A)], axis=-1)
    G_B = jnp.concatenate([zero, rotation.cross(b_B[:, None], a_B)], axis=-1)
    return gap, G_A, G_B


def apart(f: JointFrames) -> tuple[Float[Array, " joints"], Float[Array, "joints 6"], Float[Array, "joints 6"]]:
    """Distance of the joint points, and its rate rows. Where they coincide the rows are zero: finite, no force."""
    square = jnp.sum(f.d * f.d, axis=-1)
    differ = square > 0
    distance = jnp.sqrt(jnp.where(differ, square, 1.0))
    n_W = jnp.where(differ[:, None], f.d / distance[:, None], 0.0)
    n_A = matvec(jnp.swapaxes(f.R_A, 1, 2), n_W)
    n_B = matvec(jnp.swapaxes(f.R_B, 1, 2), n_W)
    G_A = jnp.concatenate([-n_W, rotation.cross(n_A, f.s_A)], axis=-1)
    G_B = jnp.concatenate([n_W, rotation.cross(f.s_B, n_B)], axis=-1)
    return jnp.where(differ, distance, 0.0), G_A, G_B


def _l_row(f: JointFrames) -> tuple[Array, Array, Array]:
    distance, G_A, G_B = apart(f)
    return (distance - f.length)[:, None], G_A[:, None], G_B[:, None]


def _q_rows(f: JointFrames) -> tuple[Array, Array, Array]:
    scalar, vector = f.rho[:, 0], f.rho[:, 1:]
    eye = scalar[:, None, None] * np.eye(3, dtype=vector.dtype)[None]
    cross = rotation.skew(vector)
    zero = jnp.zeros_like(eye)
    G_A = jnp.concatenate([zero, matmul(cross - eye, jnp.swapaxes(f.C_A, 1, 2))], axis=-1)
    G_B = jnp.concatenate([zero, matmul(cross + eye, jnp.swapaxes(f.C_B, 1, 2))], axis=-1)
    return 2 * vector, G_A, G_B


def _rolling(f: JointFrames, columns: tuple[int, ...], contact_W: Float[Array, "joints 3"]) -> tuple[Array, ...]:
    """B's material point where it touches (from its centre) keeps to the plane and does not slip on it."""
    touching = f._replace(d=f.d + contact_W, s_B=f.s_B + matvec(jnp.swapaxes(f.R_B, 1, 2), contact_W))
    gap, G_A, G_B = _d_rows(touching, columns)
    return jnp.where(np.arange(len(columns)) == 0, gap, 0.0), G_A, G_B


def _lowest(f: JointFrames, kind: str) -> Float[Array, "joints 3"]:
    """From the centre of a sphere or disc to the point that touches the plane, world [m]. Of a disc that lies: zero."""
    down = -matvec(f.R_A, f.C_A[:, :, 2])
    if kind == "disc":
        axle = matvec(f.R_B, f.C_B[:, :, 0])
        down = down - jnp.sum(down * axle, axis=-1, keepdims=True) * axle
        square = jnp.sum(down * down, axis=-1, keepdims=True)
        stands = square > 0
        down = jnp.where(stands, down / jnp.sqrt(jnp.where(stands, square, 1.0)), 0.0)
    return f.length[:, None] * down


def _part(part: Part, f: JointFrames) -> tuple[Array, ...]:
    match part.kind:
        case "D":
            return _d_rows(f, part.columns)
        case "T":
            return _t_rows(f, part.columns, part.child)
        case "Q":
            return _q_rows(f)
        case "L":
            return _l_row(f)
        case _:
            return _rolling(f, part.columns, _lowest(f, part.kind))


def rows(kind: JointKind, f: JointFrames) -> tuple[Array, ...]:
    """`(g, G_A, G_B)` of all joints of one type: (joints, rows), (joints, rows, 6) twice; `[m]`, `[rad]`."""
    if not kind.parts:
        nothing = jnp.zeros((f.d.shape[0], 0), dtype=f.d.dtype)
        G = jnp.zeros((*nothing.shape, 6), dtype=f.d.dtype)
        return nothing, G, G
    parts = [_part(part, f) for part in kind.parts]
    return parts[0] if len(parts) == 1 else tuple(jnp.concatenate(p, axis=1) for p in zip(*parts, strict=True))
