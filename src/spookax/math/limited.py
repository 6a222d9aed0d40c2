"""A number between two bounds of equal size, whose derivative at a bound is that of the inside."""

import jax
import jax.numpy as jnp

from .._typing import Array


@jax.custom_jvp
def limited(d: Array, reach: Array) -> Array:
    """d limited to [-reach, reach]; where |d| = reach its derivative is that of d."""
    return jnp.clip(d, -reach, reach)


@limited.defjvp
def _limited_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (d, reach), (d_dot, reach_dot) = primals, tangents
    return limited(d, reach), jnp.where(jnp.abs(d) <= reach, d_dot, jnp.sign(d) * reach_dot)
