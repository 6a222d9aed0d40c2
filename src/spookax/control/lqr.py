"""Linear models of a mechanism about a point or along a trajectory, and the regulator that holds an equilibrium."""

import dataclasses
from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from .._compiled import compiled, on_device
from .._typing import AnyArray, Array, Float
from ..scene.explain import nearest
from ..system import Params, System
from .plant import Plant

_NEWTON_STEPS = 8  # to a balance
_PLACE = 1e-3  # of a step in positions beside one of inputs
_RANK = 1e-9  # singular values below which a direction has no effect
_FAR = 0.2  # rad or m, from where the balance was asked for
_RESIDUAL = 1e-8  # of an equilibrium, in a control period [rad, rad/s or m, m/s]; 32-bit floats: a thousand times


@dataclasses.dataclass(frozen=True)
class Linear:
    """x+ - x_0 = A (x - x_0) + B (u - u_0) of a control period; with a leading axis along a trajectory.

    `coordinates` names the positions in x, which the rates follow in the same order; `motors` the inputs.
    """

    A: Float[np.ndarray, "... size size"]
    B: Float[np.ndarray, "... size inputs"]
    x: Float[np.ndarray, "... size"]
    u: Float[np.ndarray, "... inputs"]
    period: float  # [s]
    coordinates: tuple[str, ...]
    motors: tuple[str, ...]


def linearise(
    system: System,
    params: Params,
    x: Float[AnyArray, "... size"],
    u: Float[AnyArray, "... inputs"],
    *,
    motors: tuple[str, ...] | None = None,
    steps: int = 1,
    dry_friction: bool = True,
) -> Linear:
    """Derivatives of a control period in joint coordinates, at one point or at every point of a trajectory.

    **Arguments:**

    - `x`: positions, then rates (half a step earlier) of all coordinates, in the order of `system.axis_names()`.
    - `u`: inputs [the motors' units].
    - `motors`, `steps`: see `Plant`.
    - `dry_friction`: without it the mechanism is one that does not stick. Where a joint sticks, nothing moves it a
      little, and derivatives are zero there.

    **Raises:** `ValueError` as `Plant`, and for arrays of other shapes.
    """
    plant = Plant(system, params if dry_friction else without_dry_friction(params), motors=motors, steps=steps)
    x, u = np.asarray(x, dtype=float), np.asarray(u, dtype=float)
    wanted = (*x.shape[:-1], plant.size), (*x.shape[:-1], len(plant.motors))
    if (x.shape, u.shape) != wanted or x.ndim not in (1, 2):
        shapes = f"(..., {plant.size}) and (..., {len(plant.motors)})"
        raise ValueError(f"`x` and `u` need the shapes {shapes}, got {x.shape} and {u.shape}")
    A, B, _ = local(plant, on_device(np.atleast_2d(x)), on_device(np.atleast_2d(u)))
    A, B = (np.asarray(a).reshape(*x.shape[:-1], *a.shape[1:]) for a in (A, B))
    period = steps * float(params.step)
    return Linear(A, B, x, u, period, plant.coordinates, plant.motors)


@dataclasses.dataclass(frozen=True)
class Regulator:
    """u = u_0 - K (x - x_0), which holds an equilibrium.

    `poles` are the eigenvalues of the closed loop over a control period: all inside the unit circle. `cost` is P of the
    cost to go, (x - x_0)^T P (x - x_0).
    """

    linear: Linear
    K: Float[np.ndarray, "inputs size"]
    cost: Float[np.ndarray, "size size"]
    poles: Float[np.ndarray, " size"]

    def __call__(self, x: Float[AnyArray, " size"]) -> Float[AnyArray, " inputs"]:
        """Inputs for positions and rates, as numpy arrays or those of JAX."""
        return self.linear.u - self.K @ (x - self.linear.x)


def lqr(
    system: System,
    params: Params,
    at: Mapping[str, float],
    *,
    weight: Mapping[str, float] | None = None,
    rate_weight: Mapping[str, float] | None = None,
    input_weight: float | Mapping[str, float] = 1.0,
    motors: tuple[str, ...] | None = None,
    steps: int = 1,
) -> Regulator:
    """The regulator of an equilibrium that costs least, for the linearised mechanism without dry friction.

    The cost is the integral over time of

        sum(weight (q - q_0)^2) + sum(rate_weight q'^2) + sum(input_weight (u - u_0)^2).

    **Arguments:**

    - `at`: coordinate -> position where it is to stand [rad or m]; the others at zero. What the motors have to give
      there is found. Where they cannot hold it there (a base that is tilted, a centre of mass beside the line), it is
      the nearest place within 0.2 rad or m where they can: `Regulator.linear.x`.
    - `weight`: coordinate -> weight of its position; 1 for all if left out. `rate_weight`: 0 if left out.
    - `input_weight`: of every motor's input, one number or motor -> number.
    - `motors`, `steps`: see `Plant`.

    **Raises:** `ValueError` if the inputs cannot hold the mechanism there, or not make it stable; as `Plant`.
    """
    free = without_dry_friction(params)
    plant = Plant(system, free, motors=motors, steps=steps)
    x, h = plant.point(dict(at)), steps * float(params.step)
    tolerance = _RESIDUAL * (1.0 if free.mass.dtype == np.float64 else 1e3) * max(1.0, 10 * h)
    asked = x
    x, u, off = _balance(plant, x, tolerance)
    if not (np.max(np.abs(off)) <= tolerance and np.max(np.abs(x - asked)) <= _FAR):
        raise ValueError(
            f"no input of {', '.join(plant.motors)} holds the mechanism at {dict(at)}, or within {_FAR:g} rad or m of "
            "it. Give positions where it is in balance."
        )
    linear = linearise(system, free, x, u, motors=plant.motors, steps=steps)
    Q = weights(plant.coordinates, weight, 1.0, "weight") + weights(plant.coordinates, rate_weight, 0.0, "rate_weight")
    given = input_weight if isinstance(input_weight, Mapping) else dict.fromkeys(plant.motors, float(input_weight))
    R = weights(plant.motors, given, 1.0, "input_weight")
    if min(R) <= 0:
        raise ValueError("`input_weight` must be positive")
    try:
        P = scipy.linalg.solve_discrete_are(linear.A, linear.B, h * np.diag(Q), h * np.diag(R))
    except (np.linalg.LinAlgError, ValueError):
        raise ValueError(_unstable(linear)) from None
    K = np.linalg.solve(h * np.diag(R) + linear.B.T @ P @ linear.B, linear.B.T @ P @ linear.A)
    poles = np.linalg.eigvals(linear.A - linear.B @ K)
    if not np.max(np.abs(poles)) < 1:
        raise ValueError(_unstable(linear))
    return Regulator(linear, K, P, poles)


def without_dry_friction(params: Params) -> Params:
    """The same mechanism, whose joints do not stick; viscous friction and drag stay."""
    where = ("coulomb", "stribeck_excess", "bearing", "learned_force")
    return eqx.tree_at(
        lambda p: [getattr(p, name) for name in where],
        params,
        [jnp.zeros_like(getattr(params, name)) for name in where],
    )


def weights(names: tuple[str, ...], given: Mapping[str, float] | None, usual: float, what: str) -> list[float]:
    """Of every name; those that are not given are zero, and `usual` where nothing is given.

    **Raises:** `ValueError` for unknown names and negative weights.
    """
    for name, value in (given or {}).items():
        if name not in names:
            raise ValueError(f"`{what}` names '{name}', which is not there. {nearest(name, names)}")
        if not value >= 0:
            raise ValueError(f"`{what}` of '{name}' must not be negative, got {value:g}")
    return [float(usual if given is None else given.get(name, 0.0)) for name in names]


def _unstable(linear: Linear) -> str:
    return (
        f"the inputs {', '.join(linear.motors)} cannot make this equilibrium stable, or its cost does not see all that "
        "moves: weigh every coordinate that drifts, or drive it"
    )


@compiled
def local(plant: Plant, x: Array, u: Array) -> tuple[Array, Array, Array]:
    """A, B and f(x, u) at every point."""
    return (*jax.vmap(plant.slopes)(x, u), jax.vmap(plant.next)(x, u))


def _balance(plant: Plant, x: np.ndarray, tolerance: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A balance: where it is, inputs there, what still moves in a control period.

    Inputs that hold the mechanism at x if there are any, else those and the place next to it, by Newton steps of least
    squares on the rates that a control period begins.
    """
    n, u = len(plant.coordinates), np.zeros(len(plant.motors))
    off = np.full(2 * n, np.inf)
    for place in (0.0, _PLACE):
        scale = np.concatenate([np.full(n, place), np.ones(u.size)])
        for _ in range(_NEWTON_STEPS):
            A, B, after = (np.asarray(a)[0] for a in local(plant, on_device(x[None]), on_device(u[None])))
            off = after - x
            if np.max(np.abs(off)) <= tolerance:
                return x, u, off
            slope = np.concatenate([A[n:, :n], B[n:]], axis=1) * scale
            d = -scale * (np.linalg.pinv(slope, rcond=_RANK) @ off[n:])
            x, u = x + np.concatenate([d[:n], np.zeros(n)]), u + d[n:]
    return x, u, off
