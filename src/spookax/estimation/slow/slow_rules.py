"""How the filter of many slow parameters makes a step and its readings linear, in the state and in the parameters.

In the parameters always by derivatives in reverse mode: readings and states are few. In the state, which is small, by
derivatives or by sigma points, for motions with jumps (dry friction).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._results import STEP_RESULTS, worst
from ..._typing import Array, Float
from ...math import small
from ...protocol import AbstractModel, Noise
from ...protocol.asked import replayed, stepped
from ..linearise import backwards
from ..recursive.step_rules import Context, Reading


class SlowBelief(eqx.Module):
    """What is believed about state and parameters: x box-plus d, and z as the mean of the parameters.

    (d, w) has the mean `mean` and the covariance P_aa; w is there where readings depend on the noise of their step,
    a = (d, w); else a = d.
    """

    x: Any
    z: Float[Array, " p"]
    mean: Float[Array, " a"]
    P_aa: Float[Array, "a a"]
    P_za: Float[Array, "p a"]
    P_zz: Float[Array, "p p"]
    guess: Float[Array, " h"]
    result: STEP_RESULTS  # how the last step ended


class ReadingRows(NamedTuple):
    """Readings as rows H_a a + H_z (z - z_now) + n = y, n ~ N(0, 1); no H_z where they do not depend on z."""

    H_a: Float[Array, "c a"]
    H_z: Float[Array, "c p"] | None
    y: Float[Array, " c"]


class InnovationGains(NamedTuple):
    """What the readings of a step say beside their prediction: with F = L L' of the rows, and P before them."""

    nu: Float[Array, " c"]  # innovations, each given those before it, in its own standard deviation
    V_a: Float[Array, "a c"]  # (P H' L^-T) of a and of z: P - V V' is what is left
    V_z: Float[Array, "p c"]
    W_a: Float[Array, "c a"]  # L^-1 H
    W_z: Float[Array, "c p"] | None


class SlowMotion(NamedTuple):
    """A step as d+ = M (a - mean) + C (z - z_now) + E v, v ~ N(0, 1), about the state `x` that it leads to."""

    M: Float[Array, "n a"]
    C: Float[Array, "n p"]
    E: Float[Array, "n v"]
    x: Any
    guess: Float[Array, " h"]
    result: STEP_RESULTS


def rows_of(
    model: AbstractModel, belief: SlowBelief, u: Array, reading: Reading, noise: Noise, a: Array, dz: Array
) -> ReadingRows:
    """The readings linearised at (a, z + dz)."""

    def context(dz: Array) -> Context:
        return Context(model, model.prepare(belief.z + dz), noise, u)

    guess = context(dz).moved(belief.x, a, belief.guess)[1] if model.reads_pair else belief.guess

    def read(a: Array, dz: Array) -> Array:
        at = context(dz)
        d, w = at.split(a)
        x = x1 = model.retract(belief.x, d)
        if model.reads_pair:
            x1 = replayed(model, x, at.p, u, w, noise, guess)
        return at.residual(x, x1, reading)

    if not _depends(lambda dz: read(a, dz), dz):
        e, (J_a,) = backwards(lambda a: read(a, dz), a)
        return ReadingRows(-J_a, None, e - J_a @ a)
    e, (J_a, J_z) = backwards(read, a, dz)
    return ReadingRows(-J_a, -J_z, e - J_a @ a - J_z @ dz)


def by_derivative(model: AbstractModel, belief: SlowBelief, u: Array, noise: Noise) -> SlowMotion:
    """The motion by its derivative at the mean."""
    at = Context(model, model.prepare(belief.z), noise, u)
    d, w = at.split(belief.mean)
    x1, guess, result = at.moved(belief.x, belief.mean, belief.guess)

    def again(d: Array, w: Array, z: Array) -> Array:
        return model.local(replayed(model, model.retract(belief.x, d), model.prepare(z), u, w, noise, guess), x1)

    _, (A, B, C) = backwards(again, d, w, belief.z)
    if model.reads_pair:
        none = jnp.zeros((d.shape[0], 0), dtype=d.dtype)
        return SlowMotion(jnp.concatenate([A, B], axis=1), C, none, x1, guess, result)
    return SlowMotion(A, C, B, x1, guess, result)


def by_sigma_points(model: AbstractModel, belief: SlowBelief, u: Array, noise: Noise, spread: float) -> SlowMotion:
    """The motion by sigma points in a, as `Unscented` places them; in z by the derivative of their average.

    Needs a P_aa of full rank.
    """
    at, k = Context(model, model.prepare(belief.z), noise, u), belief.mean.shape[0]
    centre = 1.0 - k / spread**2
    if centre < -1e-9:
        raise ValueError(f"sigma points: {k} directions need a spread of at least {k**0.5:.4g}, got {spread:g}")
    x1, guess, _ = at.moved(belief.x, belief.mean, belief.guess)
    S = small.cholesky(belief.P_aa)
    points = belief.mean[None] + jnp.concatenate([jnp.zeros_like(S[:1]), spread * S.T, -spread * S.T])

    def ended(a: Array, w: Array, p: Any) -> tuple[Array, STEP_RESULTS]:
        x, _, result = stepped(model, model.retract(belief.x, at.split(a)[0]), p, u, w, noise, belief.guess)
        return model.local(x, x1), result

    def average(z: Array) -> tuple[Array, tuple[Array, STEP_RESULTS]]:
        p = model.prepare(z)
        values, results = jax.vmap(lambda a: ended(a, at.split(a)[1], p))(points)
        return centre * values[0] + jnp.sum(values[1:], axis=0) / (2.0 * spread**2), (values, results)

    shift, back, (values, results) = jax.vjp(average, belief.z, has_aux=True)
    (C,) = jax.vmap(back)(jnp.eye(shift.shape[0], dtype=shift.dtype))
    middle, plus, minus = values[0], values[1 : k + 1], values[k + 1 :]
    M = small.solve_upper(S.T, (plus - minus) / (2.0 * spread)).T
    bend = ((plus + minus) / 2.0 - shift[None]).T / spread
    E = jnp.concatenate([bend, max(centre, 0.0) ** 0.5 * (middle - shift)[:, None]], axis=1)
    if not model.reads_pair:
        _, (by_w,) = backwards(lambda w: ended(belief.mean, w, at.p)[0], at.split(belief.mean)[1])
        E = jnp.concatenate([E, by_w], axis=1)
    return SlowMotion(M, C, E, model.retract(x1, shift), guess, worst(results))


def _depends(function: Callable[[Array], Array], x: Array) -> bool:
    """Whether the function reads its argument, as its trace tells; calls inside it count as if they read everything."""
    jaxpr = jax.make_jaxpr(function)(x).jaxpr
    reached = set(jaxpr.invars)
    for equation in jaxpr.eqns:
        if any(not hasattr(v, "val") and v in reached for v in equation.invars):
            reached.update(equation.outvars)
    return any(not hasattr(v, "val") and v in reached for v in jaxpr.outvars)
