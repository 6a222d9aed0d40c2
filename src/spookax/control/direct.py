"""Optimal trajectories of a mechanism under limits of its inputs: a direct method, by optimistix.

The states of all control periods are unknowns beside the inputs, and that each follows from the one before is a
condition: the search may pass through trajectories that are torn, which helps where small changes of early inputs grow.
Conditions are held by an augmented Lagrangian whose problems are of least squares, and the limits by u = middle +
half sin v.

**Source:** J. Nocedal, S. J. Wright, "Numerical optimization" (2006), 17.3 (augmented Lagrangian); J. T. Betts,
"Practical methods for optimal control" (2010), chapter 4 (states as unknowns).
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx

from .._compiled import compiled, on_device
from .._typing import AnyArray, Array, Float, Scalar
from ..system import Params, System
from .lqr import local
from .optimal import Cost, Optimal, Status, posed, simulated
from .plant import Plant
from .trajectory import Iterate, backward, followed

_GAP, _SMALLER, _LEAST = 1.0, 0.3, 1e-3  # what a gap of one costs as much as: first, factor between rounds, last
_STEPS = 50  # of Levenberg and Marquardt's method in a round
_SETTLED = 1e-4  # relative change at which a round ends


class _Unknowns(NamedTuple):
    x: Array  # (periods, size), without the start
    v: Array  # (periods, inputs)


class _Given(NamedTuple):
    """`push`: multipliers of the gaps, times their size."""

    plant: Plant
    tangent: Plant
    cost: Cost
    start: Array
    lower: Array
    upper: Array
    push: Array
    gap: Scalar

    def inputs(self, v: Array) -> Array:
        middle, half = (self.upper + self.lower) / 2, (self.upper - self.lower) / 2
        return middle[None] + half[None] * jnp.sin(v)


def direct(
    system: System,
    params: Params,
    start: Mapping[str, float],
    goal: Mapping[str, float],
    *,
    periods: int,
    limits: Mapping[str, float | tuple[float, float]],
    weight: Mapping[str, float] | None = None,
    rate_weight: Mapping[str, float] | None = None,
    input_weight: float | Mapping[str, float] = 1e-2,
    final_weight: float = 100.0,
    motors: tuple[str, ...] | None = None,
    steps: int = 1,
    dry_friction: bool = True,
    guess: Float[AnyArray, "periods inputs"] | None = None,
    max_rounds: int = 20,
    tolerance: float = 1e-6,
    report: Callable[[int, float, float], None] | None = None,
) -> Optimal:
    """The problem of `ilqr`, with the states as unknowns beside the inputs; it may end in another local minimum.

    The result is simulated: the inputs with the feedback about the trajectory that was found.

    **Arguments:** as `ilqr`, and

    - `max_rounds`: problems of least squares, between which the gaps are drawn together.
    - `tolerance`: gap between a state and what follows from the one before, at which to stop [rad, m; rad/s, m/s].
    - `report`: called after every round with its number, the cost, the largest gap.

    **Raises:** `ValueError` as `ilqr`.
    """
    problem = posed(
        system, params, start, goal, periods, limits, weight, rate_weight, input_weight, final_weight, motors, steps,
        dry_friction, guess,
    )  # fmt: skip
    plant, cost = problem.plant, problem.cost
    middle, half = (problem.upper + problem.lower) / 2, (problem.upper - problem.lower) / 2
    x, first = simulated(plant, cost, on_device(problem.start), on_device(problem.first))
    if not np.isfinite(first):
        raise ValueError("the simulation with the first inputs runs away: give a `guess`, or a smaller step")
    now = _Unknowns(x[1:], on_device(np.arcsin(np.clip((problem.first - middle) / half, -1.0, 1.0))))
    bounds = on_device(problem.lower), on_device(problem.upper)
    given = _Given(plant, problem.tangent, cost, x[0], *bounds, jnp.zeros_like(x[1:]), on_device(np.asarray(_GAP)))
    costs, gap = [float(first)], _GAP
    status: Status = "iteration_limit"
    for count in range(1, max_rounds + 1):
        now, push, total, apart = _round(now, given)
        costs.append(float(total))
        if report:
            report(count, costs[-1], float(apart))
        if float(apart) <= tolerance:
            status = "converged"
            break
        smaller = max(_SMALLER * gap, _LEAST)
        given = given._replace(push=push * smaller / gap, gap=on_device(np.asarray(smaller)))
        gap = smaller
    states, inputs = jnp.concatenate([given.start[None], now.x]), given.inputs(now.v)
    A, B, _ = local(problem.tangent, states[:-1], inputs)
    x, u, K, total = _simulated(given, states, inputs, A, B)
    return problem.found(x, u, K, [*costs, float(total)], status)


@compiled
def _round(now: _Unknowns, given: _Given) -> tuple[_Unknowns, Array, Scalar, Scalar]:
    """Unknowns after a problem of least squares, multipliers for the next one, the cost, the largest gap."""
    solver = optx.LevenbergMarquardt(rtol=_SETTLED, atol=_SETTLED, linear_solver=lx.Normal(lx.Cholesky()))
    options = {"jac": "fwd"}
    found: Any = optx.least_squares(_errors, solver, now, args=given, options=options, max_steps=_STEPS, throw=False)
    states = jnp.concatenate([given.start[None], found.value.x])
    gaps = _gaps(found.value, given)
    total = given.cost.total(states, given.inputs(found.value.v))
    return found.value, given.push + gaps / given.gap, total, jnp.max(jnp.abs(gaps))


def _errors(now: _Unknowns, given: _Given) -> Float[Array, " errors"]:
    """Half the sum of their squares is the augmented Lagrangian."""
    cost = given.cost
    off = jnp.concatenate([given.start[None], now.x]) - cost.goal[None]
    parts = (
        _gaps(now, given) / given.gap + given.push,
        jnp.sqrt(cost.Q)[None] * off[:-1],
        jnp.sqrt(cost.R)[None] * given.inputs(now.v),
        jnp.sqrt(cost.F) * off[-1],
    )
    return jnp.concatenate([jnp.ravel(part) for part in parts])


def _gaps(now: _Unknowns, given: _Given) -> Float[Array, "periods size"]:
    before = jnp.concatenate([given.start[None], now.x[:-1]])
    return now.x - _ahead((before, given.inputs(now.v)), (given.plant, given.tangent))


@eqx.filter_custom_jvp
def _ahead(points: tuple[Array, Array], plants: tuple[Plant, Plant]) -> Float[Array, "periods size"]:
    """What follows from every state and input; each depends on its own alone, and so does its derivative."""
    return jax.vmap(plants[0].next)(*points)


@_ahead.def_jvp
def _ahead_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x, u), plants = primals
    A, B = jax.vmap(plants[1].slopes)(x, u)
    dx, du = tangents[0]
    moved = sum(jnp.einsum("kij,kj->ki", M, d) for M, d in ((A, dx), (B, du)) if d is not None)
    return _ahead((x, u), plants), jnp.asarray(moved)


@compiled
def _simulated(given: _Given, x: Array, u: Array, A: Array, B: Array) -> tuple[Array, Array, Array, Scalar]:
    """States, inputs, feedback and cost of the mechanism that is kept to a trajectory."""
    now = Iterate(x, u, jnp.zeros((*u.shape, x.shape[1]), x.dtype), jnp.zeros((), x.dtype))
    none = jnp.zeros((), x.dtype)
    policy = backward(given.cost, now, A, B, given.lower, given.upper, none)
    x, u = followed(given.plant, now, policy, given.lower, given.upper, none)
    return x, u, policy.K, given.cost.total(x, u)
