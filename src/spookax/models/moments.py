"""Two or three principal moments of a body as unknowns, among all possible bodies.

Moments J_x, J_y, J_z belong to a body if and only if the second moments about its planes are not negative,

    s_x = (J_y + J_z - J_x) / 2 >= 0, and so on;   J_x = s_y + s_z, and so on

(Wensing, Kim and Slotine, IEEE RA-L 3 (2018), eq. 13, for a diagonal inertia). So these are searched over: each as
`scale sinh(z)`, z > 0, linear near zero, where rods and plates are. A moment that is known, J_k = s_i + s_j, leaves one
of the two free: s_i = z J_k, 0 <= z <= 1.
"""

import jax.numpy as jnp
import numpy as np

from .._typing import AnyArray, Array, Float
from ..scene.inertia import MOMENTS

_THIN = 1e-3  # of the sum of all: the scale of a second moment that starts at or near zero
_LEAST = 1e-6  # of its scale: where a second moment ends


def _known(parts: tuple[str, ...]) -> int | None:
    """Index of the moment that is not unknown."""
    rest = [i for i, name in enumerate(MOMENTS) if name not in parts]
    return rest[0] if rest else None


def _second(moments: tuple[float, ...]) -> np.ndarray:
    return sum(moments) / 2 - np.array(moments)


def _scales(start: Float[AnyArray, " 3"]) -> Float[AnyArray, " 3"]:
    second = start.sum() / 2 - start
    return second.clip(_THIN * second.sum())


def encode(parts: tuple[str, ...], start: tuple[float, ...], moments: tuple[float, ...]) -> list[float]:
    """z of a body's inertia, whose moments xx, yy, zz come first; `start`: of the search, which gives the scales."""
    second, k = np.maximum(_second(moments[:3]), 0.0), _known(parts)
    z = np.arcsinh(second / _scales(np.array(start)))
    if k is None:
        return [float(value) for value in z]
    return [float(second[(k + 1) % 3] / start[k]), float(z[k])]


def bounds(parts: tuple[str, ...]) -> tuple[list[float], list[float]]:
    """Lower and upper ends of z."""
    if _known(parts) is None:
        return [_LEAST] * 3, [np.inf] * 3
    return [0.0, _LEAST], [1.0, np.inf]


def values(parts: tuple[str, ...], start: Float[Array, " 3"], z: Float[Array, " n"]) -> Float[Array, " n"]:
    """The unknown moments. [kg m^2]"""
    scales, k = _scales(start), _known(parts)
    if k is None:
        second = scales * jnp.sinh(z)
        return second.sum() - second
    i, j = (k + 1) % 3, (k + 2) % 3
    one, own = z[0] * start[k], scales[k] * jnp.sinh(z[1])
    moments = {MOMENTS[i]: start[k] - one + own, MOMENTS[j]: one + own}
    return jnp.stack([moments[name] for name in parts])
