"""Unit quaternions `[w, x, y, z]`, body -> world, with the right product `e * exp(theta_body)`.

Angular velocities and tangents are in body axes, so that the mass matrix is constant (engine-math of
Marklund, Servin, Larson (2025), eqs. (2.13)-(2.16), with the angular velocity read as a body vector:
the right product belongs to body axes, the left one to world axes).

Every function is smooth at angle zero: the small-angle branch works on the *square* of the norm and the
unused branch is fed a safe number, so that no derivative of any order is NaN.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from .._typing import Array, Float, Matrix3, Quaternion, Vector3
from .product import matmul, matvec
from .selection import selected

_OF_SKEW = (0, 2, 1, 2, 1, 0, 1, 0, 2)  # which component stands where in a cross-product matrix, and its sign
_SIGNS = (0.0, -1.0, 1.0, 1.0, 0.0, -1.0, -1.0, 1.0, 0.0)

_PRODUCT = np.zeros((4, 4, 4))  # [i, j, k]: a_i b_j -> component k of the Hamilton product
for _i, _j, _k, _s in (
    *((0, n, n, 1.0) for n in range(4)),
    *((n, 0, n, 1.0) for n in range(1, 4)),
    *((n, n, 0, -1.0) for n in range(1, 4)),
    *((i, j, k, 1.0) for i, j, k in ((1, 2, 3), (2, 3, 1), (3, 1, 2))),
    *((j, i, k, -1.0) for i, j, k in ((1, 2, 3), (2, 3, 1), (3, 1, 2))),
):
    _PRODUCT[_i, _j, _k] = _s

_MATRIX = np.zeros((4, 4, 9))  # [i, j, entry]: e_i e_j -> entry of the rotation matrix, for unit e
for _i, _j, _n, _s in (
    *((1, 1, n, 1.0 if n == 0 else -1.0) for n in (0, 4, 8)),
    *((2, 2, n, 1.0 if n == 4 else -1.0) for n in (0, 4, 8)),
    *((3, 3, n, 1.0 if n == 8 else -1.0) for n in (0, 4, 8)),
    *((0, 0, n, 1.0) for n in (0, 4, 8)),
    *((1, 2, n, 2.0) for n in (1, 3)),
    *((1, 3, n, 2.0) for n in (2, 6)),
    *((2, 3, n, 2.0) for n in (5, 7)),
    *((0, 3, n, s) for n, s in ((1, -2.0), (3, 2.0))),
    *((0, 2, n, s) for n, s in ((2, 2.0), (6, -2.0))),
    *((0, 1, n, s) for n, s in ((5, -2.0), (7, 2.0))),
):
    _MATRIX[_i, _j, _n] = _s

_TABLES = {"product": _PRODUCT, "matrix": _MATRIX}

_SMALL = 1e-8  # |p|^2 below which the series are exact to rounding


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _bilinear(a: Float[Array, "... 4"], b: Float[Array, "... 4"], name: str) -> Float[Array, "... k"]:
    """sum_ij a_i b_j table_ijk."""
    pairs = a[..., :, None] * b[..., None, :]
    table = jnp.asarray(_TABLES[name].reshape(16, -1), dtype=a.dtype)
    return matmul(pairs.reshape(-1, 16), table).reshape(*pairs.shape[:-2], table.shape[1])


@functools.partial(_bilinear.defjvp, symbolic_zeros=True)
def _bilinear_jvp(name, primals, tangents):
    # One factor and the table are multiplied once, and every tangent with their small matrix.
    a, b = primals
    out = _bilinear(a, b, name)
    by_a = _TABLES[name]
    out_dot = jnp.zeros_like(out)
    for fixed, tangent, table in ((b, tangents[0], by_a), (a, tangents[1], np.swapaxes(by_a, 0, 1))):
        if not isinstance(tangent, SymbolicZero):
            size = table.shape[2]
            flat = jnp.asarray(table.transpose(1, 2, 0).reshape(4, 4 * size), dtype=a.dtype)
            half = matmul(fixed.reshape(-1, 4), flat).reshape(*fixed.shape[:-1], size, 4)
            out_dot = out_dot + matvec(half, tangent)
    return out, out_dot


def multiply(a: Float[Array, "... 4"], b: Float[Array, "... 4"]) -> Float[Array, "... 4"]:
    """Hamilton product a * b (apply b first, then a)."""
    return _bilinear(a, b, "product")


def conjugate(a: Float[Array, "... 4"]) -> Float[Array, "... 4"]:
    """Inverse rotation."""
    signs = np.array([1.0, -1.0, -1.0, -1.0], dtype=a.dtype)
    return a * signs.reshape((1,) * (a.ndim - 1) + (4,))


@jax.custom_jvp
def normalise(a: Float[Array, "... 4"]) -> Float[Array, "... 4"]:
    """Scaled to unit length."""
    return a / _norm(a)


@normalise.defjvp
def _normalise_jvp(primals, tangents):
    # What is across a, over its length: fewer operations than a quotient's and a root's derivative.
    (a,), (a_dot,) = primals, tangents
    norm = _norm(a)
    out = a / norm
    return out, (a_dot - jnp.sum(out * a_dot, axis=-1, keepdims=True) * out) / norm


def _norm(a: Float[Array, "... 4"]) -> Float[Array, "... 1"]:
    return jnp.sqrt(jnp.sum(a * a, axis=-1, keepdims=True))


def matrix(e: Float[Array, "... 4"]) -> Float[Array, "... 3 3"]:
    """Rotation matrix R with x_world = R x_body."""
    return _bilinear(e, e, "matrix").reshape(*e.shape[:-1], 3, 3)


@jax.custom_jvp
def exp(p: Float[Array, "... 3"]) -> Float[Array, "... 4"]:
    """Unit quaternion of a rotation vector p [rad]: [cos(|p|/2), p sinc(|p|/2)/2]."""
    return _exp(p)[0]


@exp.defjvp
def _exp_jvp(primals, tangents):
    # With t = |p|^2 the derivative of the cosine is -half_sinc / 4, so few operations are left.
    (p,), (p_dot,) = primals, tangents
    out, t, half_sinc = _exp(p)
    small = t < _SMALL
    slope = jnp.where(small, t / 1920 - 1 / 48, (out[..., :1] - 2 * half_sinc) / (4 * jnp.where(small, 1.0, t)))
    along = jnp.sum(p * p_dot, axis=-1, keepdims=True)
    return out, jnp.concatenate([-half_sinc / 2 * along, half_sinc * p_dot + 2 * along * slope * p], axis=-1)


def _exp(p: Float[Array, "... 3"]) -> tuple[Float[Array, "... 4"], Float[Array, "... 1"], Float[Array, "... 1"]]:
    """The quaternion, |p|^2 and sin(|p|/2)/|p|."""
    t = jnp.sum(p * p, axis=-1, keepdims=True)
    small = t < _SMALL
    norm = jnp.sqrt(jnp.where(small, 1.0, t))
    cos = jnp.where(small, 1 - t / 8 + t * t / 384, jnp.cos(norm / 2))
    half_sinc = jnp.where(small, 0.5 - t / 48, jnp.sin(norm / 2) / norm)
    return jnp.concatenate([cos, half_sinc * p], axis=-1), t, half_sinc


def log(e: Float[Array, "... 4"]) -> Float[Array, "... 3"]:
    """Rotation vector [rad] of a unit quaternion, at most pi long (the sign with e_w >= 0 is taken)."""
    e = jnp.where(e[..., :1] < 0, -e, e)
    w, u = e[..., :1], e[..., 1:]
    s = jnp.sum(u * u, axis=-1, keepdims=True)
    small = s < _SMALL
    norm = jnp.sqrt(jnp.where(small, 1.0, s))
    safe_w = jnp.where(small, w, 1.0)
    factor = jnp.where(small, 2 / safe_w - 2 * s / (3 * safe_w**3), 2 * jnp.arctan2(norm, w) / norm)
    return factor * u


def plus(e: Float[Array, "*batch 4"], theta: Float[Array, "*batch 3"]) -> Float[Array, "*batch 4"]:
    """Box-plus: e * exp(theta), renormalised (theta in body axes)."""
    return normalise(multiply(e, exp(theta)))


def minus(e1: Quaternion, e0: Quaternion) -> Vector3:
    """Box-minus: the body-axes rotation vector theta with e1 = e0 * exp(theta)."""
    return log(multiply(conjugate(e0), e1))


def skew(x: Float[Array, "... 3"]) -> Float[Array, "... 3 3"]:
    """Cross-product matrix [x], with [x] y = x × y."""
    signs = np.array(_SIGNS, dtype=x.dtype).reshape((1,) * (x.ndim - 1) + (9,))
    return (selected(x, _OF_SKEW, -1) * signs).reshape(*x.shape, 3)


def cross(a: Float[Array, "... 3"], b: Float[Array, "... 3"]) -> Float[Array, "... 3"]:
    """a × b (few operations to compile, unlike the general one of the library)."""
    shape = jnp.broadcast_shapes(a.shape, b.shape)
    return matvec(jnp.broadcast_to(skew(a), (*shape, 3)), jnp.broadcast_to(b, shape))


def axis_frame(axis: Vector3) -> Matrix3:
    """Right-handed orthonormal columns (u, v, n) with n along `axis`; a fixed choice, for build time."""
    n = axis / jnp.sqrt(jnp.sum(axis * axis))
    pick = jnp.where(jnp.abs(n[0]) < 0.9, jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 1.0, 0.0]))
    u = pick - n * jnp.dot(n, pick)
    u = u / jnp.sqrt(jnp.sum(u * u))
    return jnp.stack([u, jnp.cross(n, u), n], axis=-1)
