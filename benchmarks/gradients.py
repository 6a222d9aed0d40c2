"""Derivatives of a rollout in both modes, as ratios to the rollout itself."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import spookax as sx
from spookax.system import build
from spookax.system.params import locate

from .measure import MIB, Compiled, Row, compile_now, row, timed
from .mechanisms import Mechanism, Start, four_bar

STEPS = 100
ALL_INPUTS = 16  # up to so many the derivative is checked along each, else along a few random directions
MODES = {"forward": jax.jacfwd, "reverse": jax.grad}


@dataclasses.dataclass(frozen=True)
class Case:
    """The loss of the last state of a rollout, and its inputs: where some joints start, how fast, and a mass."""

    mechanism: Mechanism
    start: Start
    body: str

    def inputs(self) -> np.ndarray:
        """Positions, rates and the mass, shape (inputs,) [rad, rad/s, kg]."""
        positions, rates = zip(*self.start.values(), strict=True)
        return np.array([*positions, *rates, self.mechanism.scene.bodies[self.body].mass])

    def controls(self) -> np.ndarray:
        """Inputs of the motors, shape (steps, motors)."""
        return self.mechanism.controls(1, STEPS)[0]

    def loss(self) -> Callable[[Any], Any]:
        """The loss as a function of the inputs."""
        system, params = build(self.mechanism.scene)
        place, controls = locate(system, f"bodies.{self.body}.mass"), jnp.asarray(self.controls())

        def function(x: Any) -> Any:
            n = len(self.start)
            there = {joint: {"position": x[i], "rate": x[n + i]} for i, joint in enumerate(self.start)}
            changed = place.set(params, x[-1])
            state = sx.state_from_joints(system, changed, there)
            trajectory = sx.rollout(system, changed, state, controls, throw=False)
            return of_last(trajectory.position[-1], trajectory.rate[-1])

        return function


def of_last(position: Any, rate: Any) -> Any:
    """The loss of positions and rates along the last axis, of JAX or of NumPy."""
    return (position**2).sum(-1) + 0.01 * (rate**2).sum(-1)


def run() -> list[Row]:
    """Rows of the four-bar; those of the mechanisms that have a peer are among the `peers`."""
    return rows_of(Case(four_bar(), {"drive": (-1.5, 0.0)}, "coupler"), ("forward", "reverse"))


def rows_of(case: Case, modes: tuple[str, ...]) -> list[Row]:
    """Times of the rollout and of its derivative, compile times, memory, errors."""
    name, x = f"{case.mechanism.name}, gradient", jnp.asarray(case.inputs())
    value = compile_now(case.loss(), x)
    base = timed(lambda: value.call(x))
    compiled = {mode: compile_now(MODES[mode](case.loss()), x) for mode in modes}
    rows = [
        row(name, "rollout with its start", base.best * 1e3, "ms", median=base.median * 1e3),
        row(name, "compile rollout with its start", value.seconds, "s"),
    ]
    for mode, derivative in compiled.items():
        rows += _mode(name, f"{mode} mode, {len(x)} inputs", derivative, x, base.best, value.seconds)
    errors = directional_errors(
        {mode: np.asarray(derivative.call(x)) for mode, derivative in compiled.items()},
        lambda points: np.array([value.call(jnp.asarray(point)) for point in points]),
        np.asarray(x),
    )
    rows += [row(name, f"{mode} mode, error", error, "relative") for mode, error in errors.items()]
    return rows


def _mode(name: str, what: str, compiled: Compiled, x: Any, base: float, compiling: float) -> list[Row]:
    times = timed(lambda: compiled.call(x))
    milli = {"median": times.median * 1e3, "over": base * 1e3, "to": "rollout"}
    rows = [
        row(name, what, times.best * 1e3, "ms", **milli),
        row(name, f"compile {what}", compiled.seconds, "s", over=compiling, to="compile rollout"),
    ]
    if compiled.temporary is not None:
        rows.append(row(name, f"temporary memory of {what}", compiled.temporary / MIB, "MiB"))
    return rows


def directional_errors(
    gradients: dict[str, np.ndarray], losses: Callable[[np.ndarray], np.ndarray], x: np.ndarray
) -> dict[str, float]:
    """Errors of gradients against careful differences of the losses, relative to the largest component.

    `losses`: of points of shape (points, inputs).
    """
    generator = np.random.default_rng(0)
    directions = np.eye(len(x)) if len(x) <= ALL_INPUTS else generator.standard_normal((4, len(x)))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    exact = np.array([careful_difference(losses, x, direction) for direction in directions])
    scale = np.abs(exact).max()
    return {name: float(np.abs(directions @ gradient - exact).max() / scale) for name, gradient in gradients.items()}


def careful_difference(losses: Callable[[np.ndarray], np.ndarray], x: np.ndarray, direction: np.ndarray) -> float:
    """Derivative along a direction: central differences of fourth order, of the steps that agree best."""
    reach = 10.0 ** -np.arange(1.5, 6.1, 0.5)[:, None, None]
    factors = reach * np.array([1.0, -1.0, 0.5, -0.5])[None, :, None]
    values = losses((x + factors * direction).reshape(-1, len(x))).reshape(-1, 4)
    wide = (values[:, 0] - values[:, 1]) / (2 * reach[:, 0, 0])
    narrow = (values[:, 2] - values[:, 3]) / reach[:, 0, 0]
    found = (4 * narrow - wide) / 3
    return float(found[np.argmin(np.abs(np.diff(found))) + 1])
