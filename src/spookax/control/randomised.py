"""Gradients of a function that is smoothed by random arguments: for searches through contact and dry friction.

The gradient of a simulation is that of what touches, slides and sticks as it does. What a body that is not reached, or
that sticks, would do under other inputs is not in it. The mean over random inputs is smooth, and has a gradient that
knows of both: g(x) = E f(x + s xi), xi normal with independent parts.

Sources: Suh, Pang, Tedrake (2022), "Bundled gradients through contact via randomized smoothing"; Suh, Simchowitz,
Zhang, Tedrake (2022), "Do differentiable simulators give better policy gradients?".
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .._typing import Array, Float


class Randomised(NamedTuple):
    """The mean of a function over random arguments, its gradient, and the standard deviations of both by chance."""

    value: Float[Array, ""]
    gradient: Float[Array, "*shape"]
    value_sd: Float[Array, ""]
    gradient_sd: Float[Array, "*shape"]


def randomised_gradient(
    f: Callable[[Array], Array],
    x: Float[Array, "*shape"],
    sd: Float[Array, "*#shape"] | float,
    *,
    key: Array,
    pairs: int = 64,
    by: Literal["values", "slopes"] = "values",
) -> Randomised:
    """Value and gradient of E f(x + sd xi), from `pairs` of arguments on both sides of `x`.

    **Arguments:**

    - `f`: a number of an array; called for many at once (`jax.vmap`).
    - `sd`: how far around `x` is smoothed, in the units of `x`. More is smoother, and farther from f.
    - `by`: `values` weighs differences of values and needs no derivative of f. It is right on the average for any f
      with jumps, and its scatter grows with the number of arguments. `slopes` takes the mean of the gradients of f: it
      scatters less, and knows nothing of jumps.

    **Raises:** `ValueError` for fewer than two pairs, an `sd` that is not positive, and another `by`.
    """
    if pairs < 2:
        raise ValueError(f"`pairs` must be at least 2 for a scatter to be told, got {pairs}")
    if by not in ("values", "slopes"):
        raise ValueError(f"`by` must be 'values' or 'slopes', got {by!r}")
    if not isinstance(sd, Tracer) and not np.all(np.asarray(sd) > 0):
        raise ValueError(f"`sd` must be positive, got {sd}")
    x = jnp.asarray(x)
    xi = jax.random.normal(key, (pairs, *x.shape), dtype=x.dtype)
    scale = jnp.broadcast_to(jnp.asarray(sd, dtype=x.dtype), x.shape)[None]
    off = scale * xi
    both = jnp.concatenate([x[None] + off, x[None] - off])
    if by == "slopes":
        values, slopes = jax.vmap(jax.value_and_grad(f))(both)
        each = (slopes[:pairs] + slopes[pairs:]) / 2
    else:
        values = jax.vmap(f)(both)
        difference = (values[:pairs] - values[pairs:]).reshape(pairs, *[1] * x.ndim)
        each = difference / 2 * xi / scale
    means = (values[:pairs] + values[pairs:]) / 2
    chance = [jnp.std(a, axis=0, ddof=1) / jnp.sqrt(jnp.asarray(pairs, dtype=x.dtype)) for a in (means, each)]
    return Randomised(jnp.mean(means), jnp.mean(each, axis=0), *chance)
