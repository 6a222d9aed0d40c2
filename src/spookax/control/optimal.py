"""What trajectory optimisation is asked for: a mechanism, where from and to, at what cost, within which limits."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._compiled import compiled, on_device
from .._typing import AnyArray, Array, Float
from ..system import Params, System
from .lqr import weights, without_dry_friction
from .plant import Plant

Status = Literal["converged", "iteration_limit", "no_progress"]

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


class Cost(eqx.Module):
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


class Problem(NamedTuple):
    """`tangent`: the plant whose derivatives are taken."""

    plant: Plant
    tangent: Plant
    cost: "Cost"
    start: Float[np.ndarray, " size"]
    first: Float[np.ndarray, "periods inputs"]
    lower: Float[np.ndarray, " inputs"]
    upper: Float[np.ndarray, " inputs"]
    period: float  # [s]

    def found(self, x: AnyArray, u: AnyArray, K: AnyArray, costs: list[float], status: Status) -> Optimal:
        """As a result."""
        plant, limits = self.plant, (self.lower, self.upper)
        x, u, K = (np.asarray(a) for a in (x, u, K))
        return Optimal(x, u, K, np.array(costs), status, self.period, plant.coordinates, plant.motors, limits)


def posed(
    system: System,
    params: Params,
    start: Mapping[str, float],
    goal: Mapping[str, float],
    periods: int,
    limits: Mapping[str, float | tuple[float, float]],
    weight: Mapping[str, float] | None,
    rate_weight: Mapping[str, float] | None,
    input_weight: float | Mapping[str, float],
    final_weight: float,
    motors: tuple[str, ...] | None,
    steps: int,
    dry_friction: bool,
    guess: Float[AnyArray, "periods inputs"] | None,
) -> Problem:
    """The problem of the arguments of `ilqr`. **Raises:** `ValueError` as that."""
    plant = Plant(system, params, motors=motors, steps=steps)
    tangent = plant if dry_friction else Plant(system, without_dry_friction(params), motors=motors, steps=steps)
    lower, upper = _limits(plant.motors, limits)
    period = steps * float(params.step)
    cost = _cost(plant, goal, weight, rate_weight, input_weight, final_weight, period)
    if periods < 1:
        raise ValueError(f"`periods` must be 1 at least, got {periods}")
    u = _first_inputs(guess, (periods, len(plant.motors)), lower, upper)
    return Problem(plant, tangent, cost, plant.point(dict(start)), u, lower, upper, period)


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
) -> Cost:
    places = weights(plant.coordinates, weight, 1.0, "weight")
    rates = weights(plant.coordinates, rate_weight, 0.1, "rate_weight")
    given = input_weight if isinstance(input_weight, Mapping) else dict.fromkeys(plant.motors, float(input_weight))
    inputs = weights(plant.motors, given, 1.0, "input_weight")
    if min(inputs) <= 0 or final_weight < 0:
        raise ValueError("`input_weight` must be positive and `final_weight` not negative")
    state = np.array(places + rates)
    parts = (plant.point(dict(goal)), h * state, h * np.array(inputs), final_weight * state)
    return Cost(*map(on_device, parts))


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
def simulated(plant: Plant, cost: Cost, x0: Array, u: Array) -> tuple[Array, Array]:
    """x_0 to the end, and what that costs."""

    def one(x: Array, u: Array) -> tuple[Array, Array]:
        ahead = plant.next(x, u)
        return ahead, ahead

    x = jnp.concatenate([x0[None], jax.lax.scan(one, x0, u)[1]])
    return x, cost.total(x, u)
