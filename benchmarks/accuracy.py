"""Reference motions: error against the step size, order and cost, for both presets of the relaxation.

`accuracy.yaml` has the values, `scenes/reference` the mechanisms. The tests read both through this module.
"""

import dataclasses
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import yaml

import spookax as sx
from spookax._compiled import QUICK, known_options
from spookax._results import STEP_RESULTS
from spookax.constraints import axes, frames, prepare
from spookax.math import rotation
from spookax.stepping import half_kick_back, step

from .measure import ROOT, Row, row

PRESETS = {2.0: "robust", 1.0: "accurate"}  # relaxation steps


@functools.partial(jax.jit, static_argnums=0, compiler_options=known_options(QUICK))
def _start(system: sx.System, params: sx.Params, state: sx.State) -> sx.State:
    return half_kick_back(system, prepare(system, params), state, jnp.zeros(len(system.motors)))


@functools.partial(jax.jit, static_argnums=0, compiler_options=known_options(QUICK))
def _advance(
    system: sx.System, params: sx.Params, carry: tuple[sx.State, Any, Any], count: Any
) -> tuple[sx.State, Any, Any]:
    """`count` steps more of (state, levels of the rows with bounds, number of failed steps)."""
    prepared, command = prepare(system, params), jnp.zeros(len(system.motors))

    def body(_: Any, carry: tuple[sx.State, Any, Any]) -> tuple[sx.State, Any, Any]:
        state, guess, failed = carry
        after, info = step(system, prepared, state, command, guess=guess)
        return after, info.levels, failed + jnp.where(info.result == STEP_RESULTS.successful, 0, 1)

    return jax.lax.fori_loop(0, count, body, carry)


@functools.partial(jax.jit, static_argnums=0)
def _positions(system: sx.System, params: sx.Params, state: sx.State) -> jax.Array:
    return axes.coordinates(
        system, frames.kinematics(system, state.r, state.e, frames.geometry(system, params)), state.near
    )


@dataclasses.dataclass(frozen=True)
class Problem:
    """A scene, what is read from it, and the values that it must show; see the head of `accuracy.yaml`."""

    name: str
    source: str
    read: dict[str, Any]
    steps: list[float]
    values: dict[float, list[float]]
    bound: list[list[float]] = dataclasses.field(default_factory=list)
    rates: dict[str, list[float]] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def mechanism(self) -> tuple[sx.System, sx.Params, sx.State]:
        system, params, state = sx.load(ROOT / f"scenes/reference/{self.name}.yaml")
        if self.rates:
            state = sx.state_from_joints(system, params, {name: {"rate": rate} for name, rate in self.rates.items()})
        return system, params, state

    def errors(self, h: float, relaxation: float) -> dict[float, float]:
        """Time -> distance of what is read from its value [m or rad]; infinite once a step has failed."""
        system, params, state = self.mechanism
        relaxed = jnp.full_like(params.relaxation, relaxation)
        params = dataclasses.replace(params, step=jnp.asarray(h), relaxation=relaxed)
        none = jnp.zeros(len(system.boxes)), jnp.zeros((), dtype=int)
        carry, done, found = (_start(system, params, state), *none), 0, {}
        for when, value in self.values.items():
            count = round(when / h)
            carry = _advance(system, params, carry, jnp.asarray(count - done))
            done = count
            apart = float(np.linalg.norm(self._read(system, params, carry[0]) - np.array(value)))
            found[when] = np.inf if int(carry[2]) else apart
        return found

    def _read(self, system: sx.System, params: sx.Params, state: sx.State) -> np.ndarray:
        kind, what = next(iter(self.read.items()))
        if kind == "joints":
            return np.asarray(_positions(system, params, state))[[system.axis_of(name) for name in what]]
        body = system.bodies.index(what)
        to_centre = rotation.matrix(state.e[body]) @ params.com[body]
        return np.asarray(state.r[body] - (0.0 if kind == "centre" else to_centre))


def problems() -> dict[str, Problem]:
    """All of `accuracy.yaml`."""
    data = yaml.safe_load((ROOT / "benchmarks/accuracy.yaml").read_text(encoding="utf-8"))
    return {name: Problem(name, **given) for name, given in data.items()}


def order(steps: list[float], errors: list[float]) -> float:
    """Slope of the error over the step size, of the logarithms."""
    return float(np.polyfit(np.log(steps), np.log(errors), 1)[0])


def run() -> list[Row]:
    """Largest error over the times of every problem, its order, and the time that a second of motion takes."""
    rows: list[Row] = []
    for name, problem in problems().items():
        for relaxation, preset in PRESETS.items():
            largest: list[float] = []
            for h in problem.steps:
                problem.errors(h, relaxation)  # compiled
                began = time.perf_counter()
                largest.append(max(problem.errors(h, relaxation).values()))
                cost = (time.perf_counter() - began) / max(problem.values)
                rows.append(row(f"{name}, {preset}", f"error, h = {h * 1e3:g} ms", largest[-1], "m, rad"))
                rows.append(row(f"{name}, {preset}", f"time for a second, h = {h * 1e3:g} ms", cost, "s"))
            rows.append(row(f"{name}, {preset}", "order", order(problem.steps, largest), ""))
    return rows
