"""Swing-ups by iterative LQR beside single shooting by scipy: L-BFGS-B, exact gradients, same start."""

import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

import spookax as sx
from spookax.control import Plant, ilqr, without_dry_friction

from .measure import ROOT, Row, row

_ITERATIONS = 1000  # of L-BFGS-B


class Problem(NamedTuple):
    """`options`: of `ilqr`, weights of all coordinates among them."""

    scene: str
    goal: dict[str, float]
    options: dict[str, Any]


PROBLEMS = {
    "pendulum": Problem(
        "driven_pendulum",
        {"pivot": np.pi},
        {"periods": 150, "steps": 4, "limits": {"drive": 0.25}, "weight": {"pivot": 1.0}, "input_weight": 0.5},
    ),
    "acrobot": Problem(
        "double_pendulum",
        {"shoulder": np.pi},
        {
            "periods": 150,
            "steps": 4,
            "limits": {"elbow": 2.0},
            "motors": ("elbow",),
            "weight": {"shoulder": 1.0, "elbow": 0.5},
            "input_weight": 0.05,
        },
    ),
    "furuta": Problem(
        "furuta_odrive",
        {"elbow": np.pi},
        {
            "periods": 150,
            "steps": 5,
            "limits": {"drive": 4.0},
            "motors": ("drive",),
            "weight": {"elbow": 1.0, "shoulder": 0.1},
            "rate_weight": {"elbow": 1e-3, "shoulder": 1e-3},
            "input_weight": 0.01,
        },
    ),
}


def run(part: str | None = None) -> list[Row]:
    """Of every mechanism, or one: cost, iterations and time of both, and where the trajectory ends."""
    rows: list[Row] = []
    for name in [part] if part else PROBLEMS:
        rows += _one(name, PROBLEMS[name])
    return rows


def _one(name: str, problem: Problem) -> list[Row]:
    system, params, _ = sx.load(ROOT / f"scenes/{problem.scene}.yaml")
    stamps: list[float] = []
    began = time.perf_counter()

    def report(*_: float) -> None:
        stamps.append(time.perf_counter())

    plan = ilqr(system, params, {}, problem.goal, **problem.options, dry_friction=False, report=report)
    rows = [
        row(name, f"ilqr: cost ({plan.status})", plan.cost, ""),
        row(name, "ilqr: iterations", len(stamps), ""),
        row(name, "ilqr: one iteration", float(np.median(np.diff(stamps))), "s"),
        row(name, "ilqr: to the end, with compilation", stamps[-1] - began, "s"),
        row(name, "ilqr: farthest from the goal at the end", _missed(plan, problem), "rad"),
    ]
    cost, iterations, seconds, ended = _shooting(system, params, problem, plan)
    return [
        *rows,
        row(name, "shooting by scipy: cost", cost, "", over=plan.cost, to="ilqr"),
        row(name, f"shooting by scipy: iterations ({ended})", iterations, ""),
        row(name, "shooting by scipy: to the end, compiled", seconds, "s"),
    ]


def _missed(plan: sx.control.Optimal, problem: Problem) -> float:
    wanted = np.array([problem.goal.get(name, 0.0) for name in plan.coordinates])
    counted = np.array([problem.options["weight"][name] > 0.3 for name in plan.coordinates])
    return float(np.max(np.abs(plan.x[-1, : len(wanted)] - wanted)[counted]))


def _shooting(
    system: sx.System, params: sx.Params, problem: Problem, plan: sx.control.Optimal
) -> tuple[float, int, float, str]:
    """Cost, iterations, time and message of L-BFGS-B from the same first inputs. It minimises for the mechanism without
    dry friction, whose derivatives `ilqr` has too; the cost is that of the real one.
    """
    options = problem.options
    plant = Plant(system, without_dry_friction(params), motors=plan.motors, steps=options["steps"])
    real = Plant(system, params, motors=plan.motors, steps=options["steps"])
    goal, h = plant.point(problem.goal), plan.period
    rate = options.get("rate_weight", dict.fromkeys(plant.coordinates, 0.1))
    weight = np.array([options["weight"][n] for n in plant.coordinates] + [rate.get(n, 0.0) for n in plant.coordinates])
    lower, upper = plan.limits

    def cost(plant: Plant, u: jax.Array) -> jax.Array:
        def one(x: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array]:
            return plant.next(x, u), h * (weight @ (x - goal) ** 2 + options["input_weight"] * u @ u) / 2

        end, costs = jax.lax.scan(one, jnp.asarray(plan.x[0]), u.reshape(plan.u.shape))
        return jnp.sum(costs) + 100 * weight @ (end - goal) ** 2 / 2

    both = eqx.filter_jit(lambda plant, u: jax.value_and_grad(lambda u: cost(plant, u))(u))
    drawn = np.random.default_rng(0).uniform(-1, 1, plan.u.shape)  # as the first inputs of `ilqr`
    first = (np.clip(0.0, lower, upper) + 0.1 * drawn * (upper - lower) / 2).ravel()
    both(plant, first)
    began = time.perf_counter()
    found = scipy.optimize.minimize(
        lambda u: tuple(np.asarray(a) for a in both(plant, u)),
        first,
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(*(np.broadcast_to(side, plan.u.shape).ravel() for side in (lower, upper)), strict=True)),
        options={"maxiter": _ITERATIONS, "maxfun": 10 * _ITERATIONS},
    )
    seconds = time.perf_counter() - began
    return float(eqx.filter_jit(cost)(real, found.x)), int(found.nit), seconds, found.message.lower()
