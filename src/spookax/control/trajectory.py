"""Optimal trajectories of a mechanism under limits of its inputs: iterative LQR through the simulator.

A trajectory that exists is improved: the mechanism is linearised along it, the linear-quadratic problem of the
deviations is solved backwards in time with the inputs in their limits, and the feedback that this gives is simulated
forwards.

**Source:** Tassa, Mansard and Todorov (2014), control-limited differential dynamic programming; with the Gauss-Newton
curvature of Li and Todorov (2004). The box problem of every period is that of `spookax.complementarity`.
"""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._compiled import compiled, on_device
from .._typing import AnyArray, Array, Float
from ..complementarity import MLCP, BlockPivoting, free_rows, solve_mlcp
from ..math import small
from ..system import Params, System
from .lqr import local
from .optimal import Cost, Optimal, Status, posed, simulated
from .plant import Plant

_FRACTIONS = 0.5 ** np.arange(10)  # of a step, all simulated at once
_ENOUGH = 1e-4  # of the promised gain
_LEAST, _MOST, _FACTOR = 1e-6, 1e10, 4.0  # damping: below the first it is zero; beyond the second nothing goes on


class Policy(NamedTuple):
    """Changes of the inputs, feedback, what the cost gains by a fraction a of them (a first - a^2 second)."""

    k: Array
    K: Array
    first: Array
    second: Array


class Iterate(NamedTuple):
    """A trajectory, the feedback about it, and what it costs."""

    x: Array
    u: Array
    K: Array
    cost: Array


def ilqr(
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
    max_iterations: int = 300,
    tolerance: float = 1e-6,
    report: Callable[[int, float, float], None] | None = None,
) -> Optimal:
    """Inputs that bring a mechanism from one configuration to another and keep it there, within their limits.

    The cost, over `periods` control periods of length h, is half of

        h sum(weight (q - goal)^2 + rate_weight q'^2 + input_weight u^2) + final_weight (weight (q - goal)^2 + ...)_end.

    It ends in a local minimum: another `guess` may lead to a better one.

    **Arguments:**

    - `start`: coordinate -> position, at rest, the others at zero [rad or m]; `goal` the same. An angle is not
      taken modulo a turn: the goal says which way round.
    - `limits`: motor -> largest size of its input, or (least, largest) [the motors' units].
    - `weight`: coordinate -> weight of its position; 1 for all if left out. `rate_weight`: 0.1 for all if left out.
    - `input_weight`: of every motor's input, one number or motor -> number; positive.
    - `final_weight`: of the end beside a second of the way.
    - `motors`, `steps`: see `Plant`.
    - `dry_friction`: without it derivatives are those of a mechanism that does not stick; simulated is the real one.
    - `guess`: first inputs; small and random if left out, which moves what rests.
    - `tolerance`: relative decrease of the cost at which to stop.
    - `report`: called after every iteration with its number, the cost, the part of the step that was taken (0: none).

    **Raises:** `ValueError` as `Plant`, and for names, shapes, weights and limits that make no sense.
    """
    problem = posed(
        system, params, start, goal, periods, limits, weight, rate_weight, input_weight, final_weight, motors, steps,
        dry_friction, guess,
    )  # fmt: skip
    plant, cost = problem.plant, problem.cost
    bounds, u = (on_device(problem.lower), on_device(problem.upper)), on_device(problem.first)
    x, first = simulated(plant, cost, on_device(problem.start), u)
    now = Iterate(x, u, on_device(np.zeros((*u.shape, plant.size))), first)
    if not np.isfinite(now.cost):
        raise ValueError("the simulation with the first inputs runs away: give a `guess`, or a smaller step")
    damping, costs = 1.0, [float(now.cost)]
    status: Status = "iteration_limit"
    for iteration in range(1, max_iterations + 1):
        A, B, _ = local(problem.tangent, now.x[:-1], now.u)
        new, fraction, promised = _improved(plant, cost, now, A, B, *bounds, on_device(np.asarray(damping)))
        now, accepted = new, float(fraction) > 0
        costs.append(float(now.cost))
        gain, promise = costs[-2] - costs[-1], float(promised)
        if report:
            report(iteration, costs[-1], float(fraction))
        if (accepted and gain < tolerance * costs[-1]) or promise <= tolerance**2 * costs[-1]:
            status = "converged"
            break
        damping = damping / _FACTOR if accepted else max(damping * _FACTOR, _LEAST)
        damping = damping if damping >= _LEAST else 0.0
        if damping > _MOST:
            status = "no_progress"
            break
    return problem.found(now.x, now.u, now.K, costs, status)


@compiled
def _improved(
    plant: Plant, cost: Cost, now: Iterate, A: Array, B: Array, lower: Array, upper: Array, damping: Array
) -> tuple[Iterate, Array, Array]:
    """The trajectory after an iteration, the part of the step that was taken (0: none), and the gain it promised."""
    policy = backward(cost, now, A, B, lower, upper, damping)

    fractions = jnp.asarray(_FRACTIONS, now.x.dtype)
    x, u = jax.vmap(lambda fraction: followed(plant, now, policy, lower, upper, fraction))(fractions)
    costs = jax.vmap(cost.total)(x, u)
    promised = fractions * policy.first - fractions**2 * policy.second
    good = now.cost - costs > _ENOUGH * promised
    best = jnp.argmin(jnp.where(good, costs, jnp.inf))
    taken = Iterate(x[best], u[best], policy.K, costs[best])
    kept = jax.tree.map(functools.partial(jnp.where, good[best]), taken, now)
    return kept, jnp.where(good[best], fractions[best], 0.0), promised[0]


def followed(
    plant: Plant, now: Iterate, policy: Policy, lower: Array, upper: Array, fraction: Array
) -> tuple[Array, Array]:
    """The mechanism from the same start under a fraction of the changes, and the feedback; states and inputs."""

    def one(x: Array, at: tuple[Array, Array, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        x0, u0, k, K = at
        u = jnp.clip(u0 + fraction * k + K @ (x - x0), lower, upper)
        ahead = plant.next(x, u)
        return ahead, (ahead, u)

    _, (x, u) = jax.lax.scan(one, now.x[0], (now.x[:-1], now.u, policy.k, policy.K))
    return jnp.concatenate([now.x[:1], x]), u


def backward(cost: Cost, now: Iterate, A: Array, B: Array, lower: Array, upper: Array, damping: Array) -> Policy:
    """Feedback of the linear-quadratic problem about a trajectory; the damping keeps states near it."""
    solver, eye = BlockPivoting(), jnp.eye(now.x.shape[1], dtype=now.x.dtype)

    def one(ahead: tuple[Array, Array], at: tuple[Array, ...]) -> tuple[tuple[Array, Array], Policy]:
        V, v = ahead
        x, u, A, B = at
        g, b = cost.Q * (x - cost.goal) + A.T @ v, cost.R * u + B.T @ v
        H, G, D = jnp.diag(cost.Q) + A.T @ V @ A, B.T @ V @ A, jnp.diag(cost.R) + B.T @ V @ B
        stiff = V + damping * eye
        damped, cross = jnp.diag(cost.R) + B.T @ stiff @ B, B.T @ stiff @ A
        box = MLCP(damped, b, lower - u, upper - u)
        k = solve_mlcp(box, solver).x
        free = free_rows(box, k)
        inside = jnp.where(free[:, None] & free[None], damped, jnp.eye(len(u), dtype=u.dtype))
        K = -jnp.where(free[:, None], small.solve(inside, jnp.where(free[:, None], cross, 0.0)), 0.0)
        v = g + K.T @ D @ k + K.T @ b + G.T @ k
        V = H + K.T @ D @ K + K.T @ G + G.T @ K
        return ((V + V.T) / 2, v), Policy(k, K, -b @ k, k @ D @ k / 2)

    last = jnp.diag(cost.F), cost.F * (now.x[-1] - cost.goal)
    _, policy = jax.lax.scan(one, last, (now.x[:-1], now.u, A, B), reverse=True)
    return policy._replace(first=jnp.sum(policy.first), second=jnp.sum(policy.second))
