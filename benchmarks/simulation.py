"""Rollouts of three scenes: one environment, a batch, compile times, memory. `peers` has them beside MuJoCo and MJX."""

import time
from typing import Any

import jax
import jax.numpy as jnp

import spookax as sx
from spookax._compiled import QUICK, known_options
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
    quick = compile_now(rollout, params, state, controls, options=known_options(QUICK))
    plain = compile_now(rollout, params, state, controls, options={})
    states = repeated(state, BATCH)
    began = time.perf_counter()
    jax.block_until_ready(sx.rollouts(system, params, states, many, throw=False))
    first = time.perf_counter() - began

    trajectory = single.call(params, state, controls)
    assert int(trajectory.failed_step) < 0, f"{name}: a step failed"
    alone = timed(lambda: single.call(params, state, controls))
    elder = timed(lambda: quick.call(params, state, controls))
    as_it_comes = timed(lambda: plain.call(params, state, controls))
    together = timed(lambda: sx.rollouts(system, params, states, many, throw=False))
    per_step, per_batch = 1e6 / STEPS, 1e6 / (BATCH * BATCH_STEPS)

    return [
        row(name, "step in a rollout", alone.best * per_step, "µs", median=alone.median * per_step),
        row(name, f"step in a batch of {BATCH}", together.best * per_batch, "µs", median=together.median * per_batch),
        row(name, f"throughput of {BATCH} environments", BATCH * BATCH_STEPS / together.best, "steps/s"),
        row(name, "step in a batch, processor time of all threads", together.processor * per_batch, "µs"),
        row(name, "compile one step", stepped.seconds, "s"),
        row(name, "compile rollout", single.seconds, "s"),
        row(name, "compile batched rollout", first - together.best, "s"),
        *(
            line
            for which, compiled, times in (("the estimators'", quick, elder), ("XLA's own", plain, as_it_comes))
            for line in (
                row(name, f"compile, {which} options", compiled.seconds, "s", over=single.seconds, to="sx.jit"),
                row(
                    name, f"step, {which} options", times.best * per_step, "µs", over=alone.best * per_step, to="sx.jit"
                ),
            )
        ),
        *_memory(name, "rollout", single.temporary),
    ]


def _memory(name: str, what: str, size: float | None) -> list[Row]:
    return [] if size is None else [row(name, f"temporary memory of the {what}", size / MIB, "MiB")]
