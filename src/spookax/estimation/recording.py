"""What the simulator form does with one recording, compiled: follow a plan, linearise and filter, plan anew."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .._compiled import compiled
from .._typing import Array, Float, Scalar
from ..math import small
from ..protocol import AbstractModel, Noise, Samples
from .levels import relevelled
from .linearise import Linearised, Path, before, chunked, linearise, residuals
from .sweeps import Filtered, adjoint_smoother, covariance_filter, feedback_gains, reduced


@compiled
def first_state(model: AbstractModel, z: Array, path: Path, sd: float) -> tuple[Array, Array]:
    """(P_0, Y_0): covariance of the free directions of x_0, and how x_0 follows the parameters."""
    n = model.tangent_size
    x0 = jax.tree.map(lambda a: a[0], path.x)

    def placed(d: Array) -> Array:
        return model.local(model.start(model.retract(x0, d[:n]), model.prepare(z + d[n:])), x0)

    jac = jax.jacfwd(placed)(jnp.zeros(n + z.shape[0], dtype=z.dtype))
    T, Y0 = jac[:, :n], jac[:, n:]
    scale = jnp.concatenate([jnp.full(n // 2, sd), jnp.full(n // 2, 10 * sd)])
    half = T * scale
    return half @ half.T, Y0


class Plan(NamedTuple):
    """Noise and feedback that follow a planned trajectory: w_k + K_k (planned - actual)."""

    x: Any  # planned states x_0 ... x_(K-1)
    w: Float[Array, "steps m"]
    gains: Float[Array, "steps m n"]


@compiled
def follow(model: AbstractModel, z: Array, noise: Noise, plan: Plan, u: Array, hint: Array) -> Path:
    """Simulate a plan with its feedback; whatever the plan, the result is a trajectory of the simulator."""
    p = model.prepare(z)

    def body(carry, step):
        x, level = carry
        target, w, u, gain = step
        w = w + gain @ model.local(target, x)
        x1, level = model.step(x, p, u, w, noise, level)
        return (x1, level), (x1, w, level)

    x0 = model.start(jax.tree.map(lambda a: a[0], plan.x), p)
    _, (x, w, hint) = jax.lax.scan(body, (x0, hint), (plan.x, plan.w, u, plan.gains))
    return Path(jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), x0, x), w, hint)


@compiled
def stiff_gains(model: AbstractModel, z: Array, noise: Noise, x: Any) -> Float[Array, "steps m n"]:
    """Gains that hold a simulation to planned states at any cost: for a start, whose parameters may be far off."""
    p = model.prepare(z)
    return chunked(lambda x: model.tracking_gain(x, p, noise), x, jax.tree.leaves(x)[0].shape[0])


@compiled
def cost_of(model: AbstractModel, z: Array, noise: Noise, path: Path, samples: Samples) -> Scalar:
    """1/2 sum |w|^2 + 1/2 sum |e|^2 of one recording."""
    e = residuals(model, z, noise, path, samples)
    return (jnp.sum(path.w**2) + jnp.sum(e**2)) / 2


@compiled
def replan(
    model: AbstractModel, path: Path, lin: Linearised, f: Filtered, gains: Array, dz: Array, alpha: Array
) -> Plan:
    """The plan of the adjoint smoother for a step dz, a fraction alpha of the way."""
    dx, new_w = adjoint_smoother(lin, path.w, f, dz)
    x = jax.vmap(model.retract)(before(path.x), alpha * dx)
    return Plan(x, path.w + alpha * (new_w - path.w), gains)


@compiled
def nudged(model: AbstractModel, path: Path, lin: Linearised, f: Filtered, dz: Array) -> Path:
    """The best trajectory for parameters moved by a tiny dz, to first order."""
    (dx, dw), (dx_0, dw_0) = adjoint_smoother(lin, path.w, f, dz), adjoint_smoother(lin, path.w, f, 0 * dz)
    x = jax.vmap(model.retract)(before(path.x), dx - dx_0)
    last = jax.tree.map(lambda moved, old: jnp.concatenate([moved, old[-1:]]), x, path.x)
    return path._replace(x=last, w=path.w + dw - dw_0)


compiled_linearise = compiled(linearise)
compiled_relevelled = compiled(relevelled)
compiled_gains = compiled(feedback_gains)


@compiled
def filtered(lin: Linearised, w: Array, Y0: Array, P0: Array) -> tuple[Filtered, tuple[Array, Array, Scalar]]:
    """The filter and what it leaves of the problem: (N, g, q) in all parameters."""
    f = covariance_filter(lin, w, Y0, P0)
    return f, reduced(f)


@compiled
def noise_cost(model: AbstractModel, z: Array, path: Path, z_now: Array) -> Scalar:
    """1/2 sum |w|^2 of the noise that would have had the effect under z that the path's has under z_now."""
    p, p_now = model.prepare(z), model.prepare(z_now)

    def same(args: tuple[Any, Array]) -> Array:
        return model.same_noise(args[0], p, args[1], p_now)

    return jnp.sum(chunked(same, (before(path.x), path.w), path.w.shape[0]) ** 2) / 2


@compiled
def log_density(lin: Linearised) -> Scalar:
    """Sum log|B| of the velocities: minus the log-density of the states that unit noise leads to, but for constants."""
    B = lin.B[:, lin.B.shape[1] // 2 :]
    if B.shape[1] == B.shape[2]:  # one noise for every velocity: B' B would square its condition
        return jnp.sum(jax.vmap(small.log_abs_det)(B))
    factors = jax.vmap(lambda B: small.cholesky(B.T @ B))(B)
    return jnp.sum(jnp.log(jnp.diagonal(factors, axis1=1, axis2=2)))
