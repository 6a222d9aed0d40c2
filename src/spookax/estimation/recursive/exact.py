"""The rule for models that are linear and say how."""

import jax.numpy as jnp

from ...protocol import AbstractLinearModel
from .step_rules import AbstractRule, Belief, Context, Move, Reading


class Exact(AbstractRule):
    """The model's own matrices (`AbstractLinearModel`): what `Extended` finds by differentiating, at less cost."""

    def readings(self, at: Context, belief: Belief, reading: Reading):
        own = _model(at).linear(at.p, at.u, at.noise)
        scale = reading.weight / at.noise.sensor[None]
        H = scale[:, :, None] * own.C[None]
        y = scale * (reading.y - (own.d + own.C @ belief.x)[None])
        return H.reshape(-1, H.shape[-1]), y.reshape(-1), None

    def motion(self, at: Context, belief: Belief) -> Move:
        own = _model(at).linear(at.p, at.u, at.noise)
        n = own.A.shape[0]
        zero, none = jnp.zeros(n, dtype=own.A.dtype), jnp.zeros((n, 0), dtype=own.A.dtype)
        x1 = own.A @ (belief.x + belief.mean) + own.b
        return Move(x1, zero, belief.guess, belief.result, own.A, own.S, none, -own.A @ belief.mean)

    def noises(self, model):
        return model.noise_size


def _model(at: Context) -> AbstractLinearModel:
    if not isinstance(at.model, AbstractLinearModel):
        raise TypeError(f"the rule `Exact` is for models that are linear, not {type(at.model).__name__}: use Extended")
    return at.model
