"""The law of friction with a pyramid of four sides in place of the cone: equation (2.24) at one place of contact.

lam_n = max(0, y_n) with y = -(J v+ + c) / Sigma, and four impulses lam_j >= 0 along D_j = t1, t2, -t1, -t2 with

    D_j v+ + Sigma (lam_j + s) >= 0,   mu lam_n - sum lam_j >= 0,   s >= 0,   each complementary to lam_j or s

For a given velocity that has one solution: (lam_t1, lam_t2) is the point of |lam_t1| + |lam_t2| <= mu lam_n that is
nearest to y_t. Nothing is lagged, but the law has axes: what slides along one of them, or in a plane with one, feels
Coulomb's law, and what slides otherwise is held as by a corner of the pyramid.

Source: Marklund, Servin, Larson (2025), eq. (2.24) as in docs/engine.md, Errata; Delta = 0.
"""

import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float

# impulses along n, t1, t2 from the variables of a place: lam_n, the four along D_j, s
SPREAD = np.array([[1, 0, 0, 0, 0, 0], [0, 1, 0, -1, 0, 0], [0, 0, 1, 0, -1, 0]], dtype=float)


def answer(y: Float[Array, "points 3"], mu: Float[Array, " points"]) -> tuple[Float[Array, "points 3"], Array]:
    """lam at y, and its derivative by y, (points, 3, 3). [N s]

    At a tie (an impulse along D_j that has just become zero, or has just reached the bound) that of one side.
    """
    normal, across = y[:, 0], y[:, 1:]
    held = mu * normal
    size, sign = jnp.abs(across), jnp.where(across < 0, -1.0, 1.0).astype(y.dtype)
    excess = jnp.sum(size, axis=1) - held
    slides, half = excess > 0, excess / 2
    corner = slides & (half >= jnp.min(size, axis=1))  # one direction takes all
    larger = jnp.stack([size[:, 0] >= size[:, 1], size[:, 0] < size[:, 1]], axis=1)
    whole = jnp.where(larger, sign, 0.0)
    inside = jnp.where(slides[:, None], sign * (size - half[:, None]), across)
    lam_t = jnp.where(corner[:, None], whole * held[:, None], inside)
    lam = jnp.concatenate([normal[:, None], lam_t], axis=1)

    share = jnp.where(corner[:, None], whole, jnp.where(slides[:, None], sign / 2, 0.0))
    one = jnp.eye(2, dtype=y.dtype)[None]
    turned = jnp.where(slides[:, None, None], one - sign[:, :, None] * sign[:, None, :] / 2, one)
    turned = jnp.where(corner[:, None, None], 0.0, turned)
    of_normal = jnp.concatenate([jnp.ones_like(held)[:, None], mu[:, None] * share], axis=1)[:, :, None]
    slope = jnp.concatenate([of_normal, jnp.pad(turned, ((0, 0), (1, 0), (0, 0)))], axis=2)
    presses = normal > 0
    return jnp.where(presses[:, None], lam, 0.0), jnp.where(presses[:, None, None], slope, 0.0)
