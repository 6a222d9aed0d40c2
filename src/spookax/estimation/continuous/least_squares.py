"""Networks fitted by Levenberg and Marquardt's method, where the loss is one of squares."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._compiled import compiled
from ..._typing import Array
from ...protocol import AbstractContinuousModel
from .moment_networks import Belief, Networks, PhysicsLoss, Readings
from .training import Trained

_SETTLED = 1e-8  # relative change of weights and loss at which to stop


def least_squares(
    nets: Networks,
    loss: PhysicsLoss,
    model: AbstractContinuousModel,
    readings: Readings,
    belief: Belief,
    steps: int = 100,
) -> Trained:
    """Minimise the loss over all samples at once by Levenberg and Marquardt's method (optimistix), each run (leading
    axis of `nets` and `readings`) from where its networks are, best after some training by Adam.

    The Jacobian has a column for each weight of the means' network and a row for each residual: some thousand weights
    and readings take gigabytes. Weights of the covariance's network have no part in this loss and stay.
    """
    free = nets.mean_net, nets.z
    arrays, rest = eqx.partition(free, eqx.is_inexact_array)
    given = jax.tree.map(jnp.asarray, readings)
    found, cost, settled = _fit(arrays, given, rest, nets, loss, model, belief, steps)
    mean_net, z = eqx.combine(found, rest)
    fitted = eqx.tree_at(lambda n: (n.mean_net, n.z), nets, (mean_net, z))
    ended = "settled" if bool(np.all(np.asarray(settled))) else "all steps"
    return Trained(fitted, np.asarray(cost), [], ended)


@compiled
def _fit(
    arrays: Any,
    readings: Readings,
    rest: Any,
    nets: Networks,
    loss: PhysicsLoss,
    model: Any,
    belief: Belief,
    steps: int,
) -> tuple[Any, Array, Array]:
    """Weights and unknowns at the end, the mean loss of a sample, and whether it settled: one run after the other."""
    import lineax as lx
    import optimistix as optx

    own, other = eqx.partition(nets, eqx.is_array)
    solver = optx.LevenbergMarquardt(rtol=_SETTLED, atol=_SETTLED, linear_solver=lx.Normal(lx.Cholesky()))

    def one(given: tuple[Any, Readings, Any]) -> tuple[Any, Array, Array]:
        arrays, samples, own = given
        nets = eqx.combine(own, other)

        def errors(arrays: Any, _: Any) -> Array:
            now = eqx.tree_at(lambda n: (n.mean_net, n.z), nets, eqx.combine(arrays, rest))
            return jax.vmap(lambda t, y, u: loss.residuals(now, model, belief, t, y, u))(*samples)

        found = optx.least_squares(errors, solver, arrays, options={"jac": "fwd"}, max_steps=steps, throw=False)
        cost = jnp.sum(errors(found.value, None) ** 2) / samples.time.shape[0]
        return found.value, cost, found.result == optx.RESULTS.successful

    return jax.lax.map(one, (arrays, readings, own))
