"""What is refused before anything is computed: drifts and covariances that no filter could work with."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._typing import AnyArray, Float
from ...protocol import AbstractContinuousModel, ModelError

_ROUNDING = 1e-9  # of the largest eigenvalue: below minus that, one is negative


def covariance(name: str, P: AnyArray, size: int, *, definite: bool = False) -> Float[np.ndarray, "n n"]:
    """P as an array, or a clear error: of another shape, not symmetric, with a direction of negative variance.

    `definite`: every direction has to have a variance.
    """
    P = np.asarray(P, dtype=float)
    if P.ndim == 1:
        raise ModelError(f"`{name}` must be a covariance matrix ({size}, {size}), got {P.shape}: numpy.diag makes one")
    if P.shape != (size, size):
        raise ModelError(f"`{name}` must have the shape ({size}, {size}), got {P.shape}")
    if not np.all(np.isfinite(P)) or np.max(np.abs(P - P.T), initial=0.0) > _ROUNDING * np.max(np.abs(P), initial=0.0):
        raise ModelError(f"`{name}` must be finite and symmetric, got {P.tolist()}")
    least, most = np.linalg.eigvalsh(P)[[0, -1]] if size else (0.0, 0.0)
    if least < -_ROUNDING * abs(most) or (definite and not least > _ROUNDING * most):
        wanted = "positive definite" if definite else "positive semidefinite"
        raise ModelError(f"`{name}` must be {wanted}, but has the eigenvalue {least:.3g}: give every state a variance")
    return (P + P.T) / 2


def model(given: Any, z: AnyArray, x: AnyArray, u: AnyArray) -> None:
    """A clear error for a model without a drift, and for a drift of another shape or with NaN at a state."""
    if not isinstance(given, AbstractContinuousModel):
        raise ModelError(
            f"{type(given).__name__} has no drift: continuous time needs an `AbstractContinuousModel`, such as "
            "`Equations`, or `JointMotion` of a scene"
        )
    x, n = np.asarray(x, dtype=float), given.tangent_size
    if x.shape != (n,):
        raise ModelError(f"the first state must have {n} components, got the shape {x.shape}")
    if np.shape(u)[-1] != given.inputs:
        raise ModelError(f"the drift takes {given.inputs} inputs, got {np.shape(u)[-1]}")
    u = np.atleast_2d(np.asarray(u, dtype=float))[0]
    p = given.prepare(jnp.asarray(z))
    for name, call, shape in (
        ("drift", lambda: given.drift(jnp.asarray(x), p, jnp.asarray(u)), (n,)),
        ("spread", lambda: given.spread(jnp.asarray(x), p), (n, given.noise_size)),
        ("read", lambda: given.read(jnp.asarray(x), p), (given.num_channels,)),
    ):
        found = jax.eval_shape(call).shape
        if found != shape:
            raise ModelError(f"`{name}` must return an array of shape {shape}, got {found}")
        if not np.all(np.isfinite(value := np.asarray(jax.jit(call)()))):
            raise ModelError(
                f"`{name}` returned {value.tolist()} at the state {x.tolist()} with z = {np.asarray(z).tolist()}: "
                "begin elsewhere, or mend the equations there"
            )
