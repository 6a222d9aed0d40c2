"""The double pendulum of point masses on rods, as the equations of the third source write it.

**Source:** T. Nagel, M. F. Huber, *Kalman-Bucy-informed neural network for system identification* (2021), equations
(18) and (19), after T. Stachowiak, T. Okada, *A numerical analysis of chaos in the double pendulum*, Chaos, Solitons &
Fractals 29 (2006). The two equations are solved for the accelerations.
"""

from typing import Any

import jax.numpy as jnp

from .._typing import Array, Float
from .equations import Equations
from .parameters import Free

GRAVITY = 9.81  # [m/s^2]
DAMPING = 0.05  # of the truth in the source, which its model leaves out [1/s]


def mass_matrix(x: Float[Array, " 4"], p: Any) -> Float[Array, "2 2"]:
    """What multiplies the two accelerations in (18), each equation as it is printed."""
    c = jnp.cos(x[0] - x[2])
    one = jnp.ones_like(c)
    return jnp.stack([jnp.stack([one, p.M * p.l2 / p.l1 * c]), jnp.stack([p.l1 / p.l2 * c, one])])


def _inverse(x: Float[Array, " 4"], p: Any) -> Float[Array, "2 2"]:
    L = mass_matrix(x, p)
    det = 1.0 - L[0, 1] * L[1, 0]
    return jnp.stack([jnp.stack([L[1, 1], -L[0, 1]]), jnp.stack([-L[1, 0], L[0, 0]])]) / det


def drift(x: Float[Array, " 4"], u: Array, p: Any, damping: Any = 0.0) -> Float[Array, " 4"]:
    """dx/dt of x = (angle 1, its rate, angle 2, its rate), angles from hanging [rad, rad/s]; p has l1, l2 [m] and
    M = m2 / (m1 + m2).

    `damping`: on both rates, or of each [1/s]; 0.05 gives (19).
    """
    c = jnp.broadcast_to(jnp.asarray(damping), (2,))
    s = jnp.sin(x[0] - x[2])
    force = jnp.stack(
        [
            -p.M * p.l2 / p.l1 * x[3] ** 2 * s - GRAVITY / p.l1 * jnp.sin(x[0]) - c[0] * x[1],
            p.l1 / p.l2 * x[1] ** 2 * s - GRAVITY / p.l2 * jnp.sin(x[2]) - c[1] * x[3],
        ]
    )
    a = jnp.sum(_inverse(x, p) * force[None], axis=1)
    return jnp.stack([x[1], a[0], x[3], a[1]])


def spread(x: Float[Array, " 4"], p: Any) -> Float[Array, "4 2"]:
    """Noise on the right-hand sides of (18), before they are solved for the accelerations: one level then serves any M,
    while an acceleration answers to the same force the more the closer M is to one. [rad/s^2 per root of hertz]
    """
    G = _inverse(x, p)
    return jnp.stack([jnp.zeros(2), G[0], jnp.zeros(2), G[1]])


def double_pendulum(
    step: float = 1e-3, start: tuple[float, float, float] = (0.5, 0.5, 0.5), read: tuple[int, ...] = (0, 1, 2, 3)
) -> Equations:
    """The source's model (18): l1, l2 [m] and M unknown, `read` of the components of the state.

    `Noise.process` scales noise of 1 rad/s^2 per root of hertz on both equations.
    """
    unknown = [Free("l1", start[0]), Free("l2", start[1]), Free("M", start[2], 0.0, 1.0, "box")]
    return Equations(drift, unknown, step=step, density=spread, read=read, states=4)
