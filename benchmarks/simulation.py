"""Rollouts of three scenes: one environment, a batch, compile times, memory. `peers` has them beside MuJoCo and MJX."""

from typing import Any

import jax
import jax.numpy as jnp

import spookax as sx
from spookax._compiled import compiler_options
from spookax.constraints import prepare
from spookax.stepping import step

from .measure import MIB, Row, compile_now, row, timed
from .mechanisms import Mechanism, four_bar, furuta, pendulum, repeated

STEPS = 1000
BATCH, BATCH_STEPS = 256, 100


def run() -> list[Row]:
    """Rows of all scenes."""
    return [line for mechanism in (furuta(), four_bar(), pendulum()) for line in _scene(mechanism)]


def _scene(mechanism: Mechanism) -> list[Row]:
    name, (system, params, state) = mechanism.name, mechanism.load()

    def rollout(params: sx.Params, state: sx.State, controls: Any) -> sx.Trajectory:
        return sx.rollout(system, params, state, controls, throw=False)

    def one_step(params: sx.Params, state: sx.State, command: Any) -> Any:
        return step(system, prepare(system, params), state, command)

    controls = jnp.asarray(mechanism.controls(1, STEPS)[0])
    many = jnp.asarray(mechanism.controls(BATCH, BATCH_STEPS))
    stepped = compile_now(one_step, params, state, controls[0])
    single = compile_now(rollout, params, state, controls)
    plain = compile_now(rollout, params, state, controls, options=compiler_options())
    states = repeated(state, BATCH)
    batched = compile_now(jax.vmap(rollout, in_axes=(None, 0, 0)), params, states, many)

    trajectory = single.call(params, state, controls)
    assert int(trajectory.failed_step) < 0, f"{name}: a step failed"
    alone = timed(lambda: single.call(params, state, controls))
    elder = timed(lambda: plain.call(params, state, controls))
    together = timed(lambda: batched.call(params, states, many))
    per_step, per_batch = 1e6 / STEPS, 1e6 / (BATCH * BATCH_STEPS)

    return [
        row(name, "step in a rollout", alone.best * per_step, "µs", median=alone.median * per_step),
        row(name, f"step in a batch of {BATCH}", together.best * per_batch, "µs", median=together.median * per_batch),
        row(name, f"throughput of {BATCH} environments", BATCH * BATCH_STEPS / together.best, "steps/s"),
        row(name, "step in a batch, processor time of all threads", together.processor * per_batch, "µs"),
        row(name, "compile one step", stepped.seconds, "s"),
        row(name, "compile rollout", single.seconds, "s"),
        row(name, "compile batched rollout", batched.seconds, "s"),
        row(
            name,
            "compile rollout with the estimators' options",
            plain.seconds,
            "s",
            over=single.seconds,
            to="default options",
        ),
        row(
            name,
            "step in a rollout with the estimators' options",
            elder.best * per_step,
            "µs",
            over=alone.best * per_step,
            to="default options",
        ),
        *_memory(name, "rollout", single.temporary),
        *_memory(name, "batched rollout", batched.temporary),
    ]


def _memory(name: str, what: str, size: float | None) -> list[Row]:
    return [] if size is None else [row(name, f"temporary memory of the {what}", size / MIB, "MiB")]
