"""Unit quaternions `[w, x, y, z]`, body -> world, with the right product `e * exp(theta_body)`.

Angular velocities and tangents are in body axes, so that the mass matrix is constant (engine-math of
Marklund, Servin, Larson (2025), eqs. (2.13)-(2.16), with the angular velocity read as a body vector:
the right product belongs to body axes, the left one to world axes).

Every function is smooth at angle zero: the small-angle branch works on the *square* of the norm and the
unused branch is fed a safe number, so that no derivative of any order is NaN.
"""

import jax.numpy as jnp

from .._typing import Array, Float, Matrix3, Quaternion, Vector3

_SMALL = 1e-8  # |p|^2 below which the series are exact to rounding


def multiply(a: Float[Array, "... 4"], b: Float[Array, "... 4"]) -> Float[Array, "... 4"]:
    """Hamilton product a * b (apply b first, then a)."""
    aw, av = a[..., :1], a[..., 1:]
    bw, bv = b[..., :1], b[..., 1:]
    w = aw * bw - jnp.sum(av * bv, axis=-1, keepdims=True)
    return jnp.concatenate([w, aw * bv + bw * av + jnp.cross(av, bv)], axis=-1)


def conjugate(a: Float[Array, "... 4"]) -> Float[Array, "... 4"]:
    """Inverse rotation."""
    return jnp.concatenate([a[..., :1], -a[..., 1:]], axis=-1)


def normalise(a: Float[Array, "... 4"]) -> Float[Array, "... 4"]:
    """Scaled to unit length."""
    return a / jnp.sqrt(jnp.sum(a * a, axis=-1, keepdims=True))


def matrix(e: Float[Array, "... 4"]) -> Float[Array, "... 3 3"]:
    """Rotation matrix R with x_world = R x_body."""
    w, x, y, z = (e[..., i] for i in range(4))
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return jnp.stack([jnp.stack(r, axis=-1) for r in rows], axis=-2)


def exp(p: Float[Array, "... 3"]) -> Float[Array, "... 4"]:
    """Unit quaternion of a rotation vector p [rad]: [cos(|p|/2), p sinc(|p|/2)/2]."""
    t = jnp.sum(p * p, axis=-1, keepdims=True)
    small = t < _SMALL
    norm = jnp.sqrt(jnp.where(small, 1.0, t))
    cos = jnp.where(small, 1 - t / 8 + t * t / 384, jnp.cos(norm / 2))
    half_sinc = jnp.where(small, 0.5 - t / 48, jnp.sin(norm / 2) / norm)
    return jnp.concatenate([cos, half_sinc * p], axis=-1)


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


def plus(e: Quaternion, theta: Vector3) -> Quaternion:
    """Box-plus: e * exp(theta), renormalised (theta in body axes)."""
    return normalise(multiply(e, exp(theta)))


def minus(e1: Quaternion, e0: Quaternion) -> Vector3:
    """Box-minus: the body-axes rotation vector theta with e1 = e0 * exp(theta)."""
    return log(multiply(conjugate(e0), e1))


def skew(x: Float[Array, "... 3"]) -> Float[Array, "... 3 3"]:
    """Cross-product matrix [x], with [x] y = x × y."""
    a, b, c = x[..., 0], x[..., 1], x[..., 2]
    o = jnp.zeros_like(a)
    rows = [[o, -c, b], [c, o, -a], [-b, a, o]]
    return jnp.stack([jnp.stack(r, axis=-1) for r in rows], axis=-2)


def axis_frame(axis: Vector3) -> Matrix3:
    """Right-handed orthonormal columns (u, v, n) with n along `axis`; a fixed choice, for build time."""
    n = axis / jnp.sqrt(jnp.sum(axis * axis))
    pick = jnp.where(jnp.abs(n[0]) < 0.9, jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 1.0, 0.0]))
    u = pick - n * jnp.dot(n, pick)
    u = u / jnp.sqrt(jnp.sum(u * u))
    return jnp.stack([u, jnp.cross(n, u), n], axis=-1)
