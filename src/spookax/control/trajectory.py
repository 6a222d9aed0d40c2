"""Optimal trajectories of a mechanism under limits of its inputs: iterative LQR through the simulator.

A trajectory that exists is improved: the mechanism is linearised along it, the linear-quadratic problem of the
deviations is solved backwards in time with the inputs in their limits, and the feedback that this gives is simulated
forwards.

**Source:** Tassa, Mansard and Todorov (2014), control-limited differential dynamic programming; with the Gauss-Newton
curvature of Li and Todorov (2004). The box problem of every period is that of `spookax.complementarity`.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._compiled import compiled, on_device
from .._typing import AnyArray, Array, Float
from ..complementarity import MLCP, BlockPivoting, free_rows, solve_mlcp
from ..math import small
from ..system import Params, System
from .lqr import local, weights, without_dry_friction
from .plant import Plant

Status = Literal["converged", "iteration_limit", "no_progress"]

_FRACTIONS = 0.5 ** np.arange(10)  # of a step, all simulated at once
_ENOUGH = 1e-4  # of the promised gain
_LEAST, _MOST, _FACTOR = 1e-6, 1e10, 4.0  # damping: below the first it is zero; beyond the second nothing goes on
_RANDOM = 0.1  # of the limits: the first inputs, which have to move what rests


@dataclasses.dataclass(frozen=True)
class Optimal:
    """Inputs u_k, the states x_k that they lead to, and the feedback u = u_k + K_k (x - x_k) that keeps to them.

    `costs`: of the first trajectory and after every iteration.
    """

    x: Float[np.ndarray, "periods+1 size"]
    u: Float[np.ndarray, "periods inputs"]
    K: Float[np.ndarray, "periods inputs size"]
    costs: Float[np.ndarray, " iterations+1"]
    status: Status
    period: float  # [s]
    coordinates: tuple[str, ...]
    motors: tuple[str, ...]
    limits: tuple[Float[np.ndarray, " inputs"], Float[np.ndarray, " inputs"]]

    @property
    def cost(self) -> float:
        """Of the trajectory found."""
        return float(self.costs[-1])

    def __call__(self, k: int, x: Float[AnyArray, " size"]) -> Float[AnyArray, " inputs"]:
        """Inputs in period k for positions and rates, within the limits."""
        return jnp.clip(self.u[k] + self.K[k] @ (x - self.x[k]), *self.limits)


class _Cost(eqx.Module):
    """Half of sum (x - goal)' Q (x - goal) + u' R u over the periods, and the same with F at the end; all diagonal."""

    goal: Array
    Q: Array
    R: Array
    F: Array

    def running(self, x: Array, u: Array) -> Array:
        return (self.Q @ (x - self.goal) ** 2 + self.R @ u**2) / 2

    def total(self, x: Array, u: Array) -> Array:
        """Of a trajectory; infinite where it is no number."""
        cost = jnp.sum(jax.vmap(self.running)(x[:-1], u)) + self.F @ (x[-1] - self.goal) ** 2 / 2
        return jnp.where(jnp.isfinite(cost), cost, jnp.inf)


class _Policy(NamedTuple):
    """Changes of the inputs, feedback, what the cost gains by a fraction a of them (a first - a^2 second)."""

    k: Array
    K: Array
    first: Array
    second: Array


class _Iterate(NamedTuple):
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
    plant = Plant(system, params, motors=motors, steps=steps)
    tangent = plant if dry_friction else Plant(system, without_dry_friction(params), motors=motors, steps=steps)
    lower, upper = _limits(plant.motors, limits)
    cost = _cost(plant, goal, weight, rate_weight, input_weight, final_weight, steps * float(params.step))
    if periods < 1:
        raise ValueError(f"`periods` must be 1 at least, got {periods}")
    u = _first_inputs(guess, (periods, len(plant.motors)), lower, upper)
    bounds = on_device(lower), on_device(upper)
    x, first = _simulated(plant, cost, on_device(plant.point(dict(start))), on_device(u))
    none = np.zeros((periods, len(plant.motors), plant.size))
    now = _Iterate(x, on_device(u), on_device(none), first)
    if not np.isfinite(now.cost):
        raise ValueError("the simulation with the first inputs runs away: give a `guess`, or a smaller step")
    damping, costs, status = 1.0, [float(now.cost)], "iteration_limit"
    for iteration in range(1, max_iterations + 1):
        A, B, _ = local(tangent, now.x[:-1], now.u)
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
    x, u, K = (np.asarray(a) for a in (now.x, now.u, now.K))
    period = steps * float(params.step)
    return Optimal(x, u, K, np.array(costs), status, period, plant.coordinates, plant.motors, (lower, upper))


def _limits(motors: tuple[str, ...], given: Mapping[str, float | tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    missing, unknown = [m for m in motors if m not in given], [m for m in given if m not in motors]
    if missing or unknown:
        raise ValueError(f"`limits` are for the motors {', '.join(motors)}, got {', '.join(given) or 'none'}")
    pairs = [(-b, b) if isinstance(b := given[m], (int, float)) else b for m in motors]
    for motor, (low, high) in zip(motors, pairs, strict=True):
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"`limits` of '{motor}' must be finite and the least below the largest, got {low}, {high}")
    lower, upper = (np.array(side, dtype=float) for side in zip(*pairs, strict=True))
    return lower, upper


def _cost(
    plant: Plant,
    goal: Mapping[str, float],
    weight: Mapping[str, float] | None,
    rate_weight: Mapping[str, float] | None,
    input_weight: float | Mapping[str, float],
    final_weight: float,
    h: float,
) -> _Cost:
    places = weights(plant.coordinates, weight, 1.0, "weight")
    rates = weights(plant.coordinates, rate_weight, 0.1, "rate_weight")
    given = input_weight if isinstance(input_weight, Mapping) else dict.fromkeys(plant.motors, float(input_weight))
    inputs = weights(plant.motors, given, 1.0, "input_weight")
    if min(inputs) <= 0 or final_weight < 0:
        raise ValueError("`input_weight` must be positive and `final_weight` not negative")
    state = np.array(places + rates)
    parts = (plant.point(dict(goal)), h * state, h * np.array(inputs), final_weight * state)
    return _Cost(*map(on_device, parts))


def _first_inputs(
    guess: Float[AnyArray, "periods inputs"] | None, shape: tuple[int, int], lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    if guess is None:
        drawn = np.random.default_rng(0).uniform(-1, 1, shape)
        return np.clip(0.0, lower, upper) + _RANDOM * drawn * (upper - lower) / 2
    u = np.asarray(guess, dtype=float)
    if u.shape != shape or not np.isfinite(u).all():
        raise ValueError(f"`guess` needs finite inputs of the shape {shape}, got {u.shape}")
    return np.clip(u, lower, upper)


@compiled
def _simulated(plant: Plant, cost: _Cost, x0: Array, u: Array) -> tuple[Array, Array]:
    """x_0 to the end, and what that costs."""

    def one(x: Array, u: Array) -> tuple[Array, Array]:
        ahead = plant.next(x, u)
        return ahead, ahead

    x = jnp.concatenate([x0[None], jax.lax.scan(one, x0, u)[1]])
    return x, cost.total(x, u)


@compiled
def _improved(
    plant: Plant, cost: _Cost, now: _Iterate, A: Array, B: Array, lower: Array, upper: Array, damping: Array
) -> tuple[_Iterate, Array, Array]:
    """The trajectory after an iteration, the part of the step that was taken (0: none), and the gain it promised."""
    policy = _backward(cost, now, A, B, lower, upper, damping)

    def forward(fraction: Array) -> tuple[Array, Array]:
        def one(x: Array, at: tuple[Array, Array, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
            x0, u0, k, K = at
            u = jnp.clip(u0 + fraction * k + K @ (x - x0), lower, upper)
            ahead = plant.next(x, u)
            return ahead, (ahead, u)

        _, (x, u) = jax.lax.scan(one, now.x[0], (now.x[:-1], now.u, policy.k, policy.K))
        return jnp.concatenate([now.x[:1], x]), u

    fractions = jnp.asarray(_FRACTIONS, now.x.dtype)
    x, u = jax.vmap(forward)(fractions)
    costs = jax.vmap(cost.total)(x, u)
    promised = fractions * policy.first - fractions**2 * policy.second
    good = now.cost - costs > _ENOUGH * promised
    best = jnp.argmin(jnp.where(good, costs, jnp.inf))
    taken = _Iterate(x[best], u[best], policy.K, costs[best])
    kept = jax.tree.map(functools.partial(jnp.where, good[best]), taken, now)
    return kept, jnp.where(good[best], fractions[best], 0.0), promised[0]


def _backward(cost: _Cost, now: _Iterate, A: Array, B: Array, lower: Array, upper: Array, damping: Array) -> _Policy:
    """Feedback of the linear-quadratic problem about a trajectory; the damping keeps states near it."""
    solver, eye = BlockPivoting(), jnp.eye(now.x.shape[1], dtype=now.x.dtype)

    def one(ahead: tuple[Array, Array], at: tuple[Array, ...]) -> tuple[tuple[Array, Array], _Policy]:
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
        return ((V + V.T) / 2, v), _Policy(k, K, -b @ k, k @ D @ k / 2)

    last = jnp.diag(cost.F), cost.F * (now.x[-1] - cost.goal)
    _, policy = jax.lax.scan(one, last, (now.x[:-1], now.u, A, B), reverse=True)
    return policy._replace(first=jnp.sum(policy.first), second=jnp.sum(policy.second))
